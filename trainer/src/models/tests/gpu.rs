//! Models on a GPU beside the processor.

use super::*;
use crate::{
    device::Backend,
    layers::{PassSettings, check::gpu},
};

/// In a build for GPUs, on a machine that has one.
#[test]
fn a_step_of_every_model_is_about_the_same_on_a_gpu() {
    let Some(gpu) = gpu() else {
        return;
    };
    for (name, shape, config) in small() {
        let checkpoints = ["*".to_owned()];
        let data = Data::new(shape);
        let on = |backend: Backend, checkpoint: &[String]| {
            let engine = engine(&config, &data);
            let passes = PassSettings::new(engine.model().layout(), checkpoint).unwrap();
            let engine = engine.with_passes(passes).on(backend);
            let bucket = bucket(&engine);
            let mut gradient = vec![0.0; bucket.len()];
            let computed =
                engine.loss_and_gradient(&bucket, data.samples(), (stream(), 1.0), &mut gradient);
            (gradient, computed.loss_sum)
        };
        let has_segments = !engine(&config, &data)
            .model()
            .layout()
            .segments()
            .is_empty();
        let checkpoint: &[String] = if has_segments { &checkpoints } else { &[] };
        let expected = on(Backend::cpu(), &[]);
        for found in [on(gpu.clone(), &[]), on(gpu.clone(), checkpoint)] {
            let length = |of: &mut dyn Iterator<Item = f32>| {
                of.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt()
            };
            let differences = &mut found.0.iter().zip(&expected.0).map(|(a, b)| a - b);
            let error = length(differences) / length(&mut expected.0.iter().copied());
            assert!(error < 1e-3, "{name}: error {error}");
            let loss = (found.1 - expected.1).abs() / expected.1;
            assert!(loss < 1e-4, "{name}: losses differ by {loss}");
        }
    }
}
