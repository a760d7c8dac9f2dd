//! Checks of layers: gradients against central differences that are computed in f64.

use std::{collections::BTreeMap, sync::mpsc::channel};

use burn::tensor::{DType, Device, Tensor, TensorData};
use feedline_schemas::{
    config::{DeviceChoice, LoraConfig, Precision},
    ids::{Seed, Step},
};

use super::{Builder, Ghosts, Harvest, Layout, Pass, PassSettings, Segment, Training, observed_in};
use crate::{
    device::{Backend, DeviceKind},
    random::Stream,
    testing::uniform,
};

/// Half of the distance of two points of a central difference.
const SHIFT: f64 = 1e-5;

/// By how much gradients of the same layer may differ between a GPU and the processor: f32 sums in other orders, and
/// tensor cores that round the factors of a product to 10 bits would be beyond it.
const ON_GPU: f64 = 1e-4;

pub(crate) fn training() -> Option<Training> {
    let stream = Stream::dropout(Seed::new(1), Step::new(3));
    Some(Training {
        stream,
        first_row: 0,
        ghosts: Ghosts::WHOLE,
    })
}

/// A layer under test, with parameters away from special values.
struct LayerBench<L, const D: usize> {
    layer: L,
    segment: Segment,
    layout: Layout,
    bucket: Vec<f32>,
    shape: [usize; D],
    x: Vec<f32>,
}

impl<L, const D: usize> LayerBench<L, D> {
    fn new(shape: [usize; D], build: impl Fn(&mut Builder) -> L) -> Self {
        let mut builder = Builder::new();
        let (segment, layer) = builder.segment("layer", &shape[1..], build);
        Self::of(shape, segment, layer, builder.finish())
    }

    fn of(shape: [usize; D], segment: Segment, layer: L, layout: Layout) -> Self {
        let mut bucket = layout.initial(Seed::new(2));
        let trained = layout.trained_len();
        for (i, (value, noise)) in bucket.iter_mut().zip(uniform(100_000, 50)).enumerate() {
            // Buffers stay positive: among them are variances.
            *value += if i < trained {
                0.3 * noise
            } else {
                0.3 * noise.abs()
            };
        }
        let x = uniform(shape.iter().product(), 51);
        Self {
            layer,
            segment,
            layout,
            bucket,
            shape,
            x,
        }
    }

    fn weights(&self, bucket: &[f64], device: &Device) -> Vec<Tensor<1>> {
        let tensor = |values: &[f64]| {
            let data = TensorData::new(values.to_vec(), [values.len()]);
            Tensor::from_data(data, (device, DType::F64))
        };
        let entries = self.layout.entries().iter();
        entries
            .map(|entry| tensor(&bucket[entry.range.clone()]))
            .collect()
    }

    /// Outputs in f64.
    fn outputs<const E: usize>(
        &self,
        forward: impl Fn(&L, &mut Pass<'_>, Tensor<D>) -> Tensor<E>,
        bucket: &[f64],
        x: &[f64],
        training: Option<Training>,
    ) -> Vec<f64> {
        let device = Device::flex();
        let weights = self.weights(bucket, &device);
        let data = TensorData::new(x.to_vec(), self.shape);
        let x = Tensor::from_data(data, (&device, DType::F64));
        let mut pass = Pass::new(&self.layout, &weights, training);
        let y = forward(&self.layer, &mut pass, x);
        y.into_data().try_into_vec().unwrap()
    }

    /// Outputs in f32, gradients of their sum, each times a number, and what was observed; with the layer computed again
    /// in the backward pass where `checkpoint` says so.
    fn gradients<const E: usize>(
        &self,
        device: &Device,
        forward: impl Fn(&L, &mut Pass<'_>, Tensor<D>) -> Tensor<E> + Send + Sync + 'static,
        checkpoint: &[String],
        precision: Precision,
    ) -> Gradients
    where
        L: Clone + Send + Sync + 'static,
    {
        let device = device.clone().autodiff();
        let entries = self.layout.entries();
        let weights: Vec<Tensor<1>> = entries
            .iter()
            .map(|entry| {
                let values = self.bucket[entry.range.clone()].to_vec();
                let data = TensorData::new(values, [entry.range.len()]);
                Tensor::from_data(data, &device).require_grad()
            })
            .collect();
        let x = Tensor::<D>::from_data(TensorData::new(self.x.clone(), self.shape), &device);
        let x = x.require_grad();
        let settings = PassSettings::new(&self.layout, checkpoint).unwrap();
        let settings = settings.with_precision(precision);
        let (send, of_weights) = channel();
        let trained = self.layout.trained();
        let harvest = Harvest::new(trained, move |i, gradient| {
            send.send((i, gradient)).unwrap()
        });
        let mut pass = Pass::new(&self.layout, &weights, training())
            .with_settings(&settings)
            .with_harvest(&harvest);
        let layer = self.layer.clone();
        // As deep in the graph as in a model.
        let deep = (0..20).fold(x.clone(), |x, _| -x);
        let y = pass.checkpoint(self.segment, deep, move |pass, x| forward(&layer, pass, x));
        let shape = y.dims();
        let factors = TensorData::new(uniform(shape.iter().product(), 52), shape);
        let outputs: Vec<f32> = y.clone().into_data().try_into_vec().unwrap();
        let mut gradients = (y * Tensor::from_data(factors, &device)).sum().backward();
        harvest.backward_done();
        let of_weights: BTreeMap<_, _> = of_weights.into_iter().collect();
        assert_eq!(of_weights.len(), trained);
        let of_weights = of_weights.into_values().flat_map(|gradient| {
            let gradient: Tensor<1> = gradient.unwrap();
            gradient.into_data().try_into_vec::<f32>().unwrap()
        });
        let of_weights = of_weights.collect();
        let of_x = x.grad_remove(&mut gradients).unwrap();
        Gradients {
            outputs,
            of_weights,
            of_x: of_x.into_data().try_into_vec().unwrap(),
            observed: observed_in(&self.layout, pass.into_observed(), &self.bucket),
        }
    }
}

/// Gradients of a layer's passes.
struct Gradients {
    outputs: Vec<f32>,
    of_weights: Vec<f32>,
    of_x: Vec<f32>,
    observed: Vec<f32>,
}

impl Gradients {
    fn numbers(&self) -> impl Iterator<Item = f32> {
        let numbers = self.of_weights.iter().chain(&self.of_x);
        numbers.chain(&self.observed).copied()
    }

    fn bits(&self) -> Vec<u32> {
        self.numbers().map(f32::to_bits).collect()
    }

    /// Length of the difference, as a share of the length of `exact`.
    fn error(&self, exact: &Self) -> f64 {
        let length = |numbers: &mut dyn Iterator<Item = f32>| {
            numbers.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt()
        };
        let differences = &mut self.numbers().zip(exact.numbers()).map(|(a, b)| a - b);
        length(differences) / length(&mut exact.numbers())
    }
}

/// GPUs and adapters to compare with, in a build for them and where there are some; says so where there is none.
pub(crate) fn gpus() -> Vec<Backend> {
    let mut found = Vec::new();
    for (built, choice) in [
        (cfg!(feature = "cuda"), DeviceChoice::Cuda(Some(0))),
        (cfg!(feature = "wgpu"), DeviceChoice::Wgpu(Some(0))),
    ] {
        if !built {
            continue;
        }
        match Backend::choose(choice, 0) {
            Ok(backend) => found.push(backend),
            Err(refusal) => eprintln!("not compared with {choice}: {refusal}"),
        }
    }
    found
}

/// The adapter of the tests, as [`gpus`].
pub(crate) fn adapter() -> Option<Backend> {
    let is_adapter = |backend: &Backend| matches!(backend.kind, DeviceKind::Wgpu(_));
    gpus().into_iter().find(is_adapter)
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|v| f64::from(*v)).collect()
}

/// Compares the outputs with those in f64, and the gradients of every parameter and every input with central differences
/// in f64, in training; with them those of the layer when it is computed again in the backward pass, bit by bit, and
/// those with products in bf16 and f16, to a few times the error of one rounding. `forward` gets an input of this shape.
pub(crate) fn check<L, const D: usize, const E: usize>(
    shape: [usize; D],
    build: impl Fn(&mut Builder) -> L,
    forward: impl Fn(&L, &mut Pass<'_>, Tensor<D>) -> Tensor<E> + Clone + Send + Sync + 'static,
) where
    L: Clone + Send + Sync + 'static,
{
    check_bench(&LayerBench::new(shape, build), 4.0, forward);
}

/// The same with adapters.
pub(crate) fn check_adapted<L, const D: usize, const E: usize>(
    config: &LoraConfig,
    shape: [usize; D],
    build: impl Fn(&mut Builder) -> L,
    forward: impl Fn(&L, &mut Pass<'_>, Tensor<D>) -> Tensor<E> + Clone + Send + Sync + 'static,
) where
    L: Clone + Send + Sync + 'static,
{
    let bench = LayerBench::new(shape, build);
    let layout = bench.layout.adapted(config).unwrap();
    let bench = LayerBench::of(shape, bench.segment, bench.layer, layout);
    // There is one product more, one after the other.
    check_bench(&bench, 6.0, forward);
}

/// Outputs with adapters, and with their products added to the weights.
pub(crate) fn outputs_adapted<L: Clone, const D: usize, const E: usize>(
    config: &LoraConfig,
    shape: [usize; D],
    build: impl Fn(&mut Builder) -> L,
    forward: impl Fn(&L, &mut Pass<'_>, Tensor<D>) -> Tensor<E>,
) -> (Vec<f64>, Vec<f64>) {
    let bench = LayerBench::new(shape, build);
    let layout = bench.layout.adapted(config).unwrap();
    let adapted = LayerBench::of(shape, bench.segment, bench.layer.clone(), layout);
    let (layout, bucket) = adapted.layout.merged(&adapted.bucket);
    assert_eq!(layout.entries(), bench.layout.entries());
    let x = wide(&bench.x);
    let of = |bench: &LayerBench<L, D>, bucket: &[f32]| {
        bench.outputs(&forward, &wide(bucket), &x, training())
    };
    (of(&adapted, &adapted.bucket), of(&bench, &bucket))
}

fn check_bench<L, const D: usize, const E: usize>(
    bench: &LayerBench<L, D>,
    roundings: f64,
    forward: impl Fn(&L, &mut Pass<'_>, Tensor<D>) -> Tensor<E> + Clone + Send + Sync + 'static,
) where
    L: Clone + Send + Sync + 'static,
{
    let of = |checkpoint: &[&str], precision| {
        let checkpoint: Vec<String> = checkpoint.iter().map(ToString::to_string).collect();
        bench.gradients(&Device::flex(), forward.clone(), &checkpoint, precision)
    };
    let found = of(&[], Precision::F32);
    for gpu in gpus() {
        let error = bench
            .gradients(&gpu.device, forward.clone(), &[], Precision::F32)
            .error(&found);
        assert!(error <= ON_GPU, "on {}: error {error}", gpu.name);
    }
    for (precision, rounding) in [
        (Precision::F32, 0.0),
        (Precision::Bf16, 2.0_f64.powi(-9)),
        (Precision::F16, 2.0_f64.powi(-12)),
    ] {
        let kept = of(&[], precision);
        let again = of(&["layer"], precision);
        assert!(
            kept.bits() == again.bits(),
            "{precision:?}, computed again: other bits"
        );
        let error = kept.error(&found);
        assert!(
            error <= roundings * rounding,
            "{precision:?}: error {error}"
        );
    }
    let Gradients {
        outputs,
        of_weights,
        of_x,
        ..
    } = found;
    let (bucket, x) = (wide(&bench.bucket), wide(&bench.x));
    let expected = bench.outputs(&forward, &bucket, &x, training());
    assert_near(&wide(&outputs), &expected, 1e-5);
    let sum = |bucket: &[f64], x: &[f64]| {
        let y = bench.outputs(&forward, bucket, x, training());
        let factors = uniform(y.len(), 52);
        y.iter()
            .zip(factors)
            .map(|(y, f)| y * f64::from(f))
            .sum::<f64>()
    };
    let compare = |what: &str, i: usize, found: f32, difference: f64| {
        let found = f64::from(found);
        assert!(
            (found - difference).abs() < 2e-5 + 1e-4 * difference.abs(),
            "{what} {i}: gradient {found}, central difference {difference}"
        );
    };
    for (i, &found) in of_weights.iter().enumerate() {
        let at = |shift: f64| sum(&moved(&bucket, i, shift), &x);
        compare(
            "parameter",
            i,
            found,
            (at(SHIFT) - at(-SHIFT)) / (2.0 * SHIFT),
        );
    }
    for (i, &found) in of_x.iter().enumerate() {
        let at = |shift: f64| sum(&bucket, &moved(&x, i, shift));
        compare("input", i, found, (at(SHIFT) - at(-SHIFT)) / (2.0 * SHIFT));
    }
}

fn moved(values: &[f64], i: usize, shift: f64) -> Vec<f64> {
    let mut moved = values.to_vec();
    moved[i] += shift;
    moved
}

/// Bucket, input and outputs in f64, in training.
pub(crate) fn outputs<L, const D: usize, const E: usize>(
    shape: [usize; D],
    build: impl Fn(&mut Builder) -> L,
    forward: impl Fn(&L, &mut Pass<'_>, Tensor<D>) -> Tensor<E>,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let bench = LayerBench::new(shape, build);
    let (bucket, x) = (wide(&bench.bucket), wide(&bench.x));
    let y = bench.outputs(forward, &bucket, &x, training());
    (bucket, x, y)
}

/// Bucket, input and outputs in f64, after training.
pub(crate) fn evaluated<L, const D: usize, const E: usize>(
    shape: [usize; D],
    build: impl Fn(&mut Builder) -> L,
    forward: impl Fn(&L, &mut Pass<'_>, Tensor<D>) -> Tensor<E>,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let bench = LayerBench::new(shape, build);
    let (bucket, x) = (wide(&bench.bucket), wide(&bench.x));
    let y = bench.outputs(forward, &bucket, &x, None);
    (bucket, x, y)
}

/// Observations of a pass in training.
pub(crate) fn observed<const D: usize>(
    layout: &Layout,
    bucket: &[f32],
    forward: impl Fn(&mut Pass<'_>, &Device) -> Tensor<D>,
) -> Vec<f32> {
    let device = Device::flex();
    let entries = layout.entries().iter();
    let weights: Vec<Tensor<1>> = entries
        .map(|entry| Tensor::from_floats(&bucket[entry.range.clone()], &device))
        .collect();
    let mut pass = Pass::new(layout, &weights, training());
    drop(forward(&mut pass, &device));
    observed_in(layout, pass.into_observed(), bucket)
}

/// Asserts that numbers agree to this absolute difference.
pub(crate) fn assert_near(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() <= tolerance,
            "number {i}: {found}, expected {expected}"
        );
    }
}
