//! Models on a GPU beside the processor.

use std::sync::{Arc, Mutex};

use feedline_schemas::config::OptimizerConfig;

use super::*;
use crate::{
    device::{Backend, numbers, take_bus_bytes},
    model::{
        engine::GradientSink,
        layers::{
            PassSettings,
            check::{adapter, gpus},
        },
    },
    optim::optimizer::{self, Optimizer},
    session::device_state::{DeviceState, Stepping},
};

/// In a build for GPUs, on a machine that has one.
#[test]
fn a_step_of_every_model_is_about_the_same_on_a_gpu() {
    for gpu in gpus() {
        compare(&gpu);
    }
}

fn compare(gpu: &Backend) {
    for (name, shape, config) in small_models() {
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

/// Bytes of a batch: each number once.
fn bytes_of(samples: Samples<'_>) -> usize {
    let inputs = samples.inputs;
    let targets = match samples.targets {
        Targets::None => 0,
        Targets::Numbers(y) => y.len(),
        Targets::Vectors { y, .. } => y.len(),
        Targets::Classes(y) => y.len(),
    };
    let lengths = inputs.lengths.map_or(0, <[u32]>::len);
    let numbers = inputs.x.len() + inputs.tokens.len() + inputs.segments.len();
    inputs.pixels.len() + 4 * (numbers + inputs.positions.len() + targets + lengths)
}

/// Bytes of a step that are no batch: constants such as means of colours.
const FEW: u64 = 256;

#[test]
fn a_step_of_every_model_moves_its_batch_over_the_bus_and_nothing_else() {
    for device in gpus() {
        for (name, shape, config) in small_models() {
            let data = Data::new(shape);
            let engine = engine(&config, &data).on(device.clone());
            let mut session = OnDevice::new(&engine);
            // The first step takes tables of the model to the device.
            session.step(&engine, &data);
            let uploaded = take_bus_bytes().uploaded;
            assert!(
                uploaded >= 4 * bucket(&engine).len() as u64,
                "{name}: {uploaded}"
            );
            session.step(&engine, &data);
            let found = take_bus_bytes();
            let batch = bytes_of(data.samples()) as u64;
            assert!(
                found.uploaded <= batch + FEW,
                "{name}: {found:?}, batch {batch}"
            );
            assert!(found.downloaded <= FEW, "{name}: {found:?}");
        }
    }
}

/// Weights that stay on a device.
struct OnDevice {
    state: DeviceState,
    number: u64,
}

impl OnDevice {
    fn new(engine: &ModelEngine) -> Self {
        let config = optimizer::resolve(&OptimizerConfig::default()).unwrap();
        let own = engine.trained();
        let optimizer = Optimizer::new(&config, &own);
        let bucket = bucket(engine);
        let state = DeviceState::upload(engine, (&config, &own, None), &bucket, (&optimizer, None));
        Self { state, number: 0 }
    }

    /// The mean loss of a step.
    fn step(&mut self, engine: &ModelEngine, data: &Data) -> f64 {
        self.number += 1;
        let random = Stream::dropout(Seed::new(1), Step::new(self.number));
        let weights = self.state.weights();
        let mut found = engine.compute_on_device(&weights, data.samples(), (random, 1.0), None);
        let weight = found.weight;
        let gradient = self.state.gradient(&mut found);
        let sums = self.state.sums(&mut found);
        let stepping = Stepping {
            number: self.number,
            rate: RATE,
            nominal: found.nominal,
            loss_scale: 1.0,
            factor: found.nominal / weight,
            clip_norm: 0.0,
            buffer_share: engine.buffer_share(data.samples().rows()),
            average: None,
        };
        let report = self
            .state
            .step((gradient, sums), found.losses, stepping, None);
        report.unwrap().finish().unwrap().loss_sum / weight
    }
}

const RATE: f64 = 1e-3;

/// Mean losses of `steps` steps on the processor, the flat bucket being the reference.
fn losses_on_processor(engine: &ModelEngine, data: &Data, steps: u64) -> Vec<f64> {
    let config = optimizer::resolve(&OptimizerConfig::default()).unwrap();
    let mut bucket = bucket(engine);
    let mut optimizer = Optimizer::new(&config, &engine.trained());
    let mut gradient = vec![0.0; bucket.len()];
    let mut step = |number| {
        let random = Stream::dropout(Seed::new(1), Step::new(number));
        let found = engine.loss_and_gradient(&bucket, data.samples(), (random, 1.0), &mut gradient);
        let factor = found.nominal / found.weight;
        optimizer.step(&mut bucket, &gradient, number, RATE, factor);
        let rows = data.samples().rows();
        engine.move_buffers(&mut bucket, &found.buffers, rows);
        found.loss_sum / found.weight
    };
    (1..=steps).map(&mut step).collect()
}

/// The same with weights that stay on the engine's device.
fn losses_on_device(engine: &ModelEngine, data: &Data, steps: u64) -> Vec<f64> {
    let mut session = OnDevice::new(engine);
    (0..steps).map(|_| session.step(engine, data)).collect()
}

#[test]
fn two_hundred_steps_on_a_device_have_the_losses_of_the_processor() {
    for device in [Some(Backend::stand_in()), adapter()].into_iter().flatten() {
        for (name, shape, config) in small_models() {
            if !["mlp, layer", "cnn, layer", "lstm, tokens", "transformer"].contains(&name) {
                continue;
            }
            let data = Data::new(shape);
            let expected = losses_on_processor(&engine(&config, &data), &data, 200);
            let found = losses_on_device(&engine(&config, &data).on(device.clone()), &data, 200);
            assert!(expected[199] < 0.95 * expected[0], "{name}: {expected:?}");
            for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let difference = (found - expected).abs() / expected;
                assert!(
                    difference < 1e-3,
                    "{name} on {}, step {step}: {found}, expected {expected}",
                    device.name
                );
            }
        }
    }
}

#[test]
fn gradients_are_given_out_once_each_and_those_of_the_last_layer_first() {
    for device in [Some(Backend::stand_in()), adapter()].into_iter().flatten() {
        for (name, shape, config) in small_models() {
            let data = Data::new(shape);
            let engine = engine(&config, &data).on(device.clone());
            let weights = OnDevice::new(&engine).state.weights();
            let compute =
                |sink| engine.compute_on_device(&weights, data.samples(), (stream(), 1.0), sink);
            let given = Arc::new(Mutex::new(Vec::new()));
            let to = Arc::clone(&given);
            let sink = move |parameter: usize, gradient: Option<burn::tensor::Tensor<1>>| {
                to.lock().unwrap().push((parameter, gradient))
            };
            let left = compute(Some(Box::new(sink) as GradientSink)).gradients;
            assert!(left.is_empty(), "{name}");
            let given = std::mem::take(&mut *given.lock().unwrap());
            let order: Vec<usize> = given.iter().map(|(parameter, _)| *parameter).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            let trained = engine.model().layout().trained();
            let at = |parameter| order.iter().position(|at| *at == parameter).unwrap();
            // All at once, after the backward pass, they would come in the order of the layout.
            assert!(at(trained - 1) < at(0), "{name}: {order:?}");
            assert!(sorted.iter().copied().eq(0..trained), "{name}: {order:?}");
            let mut expected = compute(None).gradients;
            for (parameter, gradient) in given {
                let expected = expected.remove(&parameter).map(numbers);
                assert!(gradient.map(numbers) == expected, "{name}: {parameter}");
            }
        }
    }
}
