//! The same models as a plain loop on the tensor library alone: its layers, AdamW and clipping as
//! tensor operations, and batches held in memory as tensors.

use burn::tensor::{
    Device, Int, Tensor, TensorData, activation, module,
    ops::{ConvOptions, MaxPoolOptions},
};

use crate::case::{self, CLASSES, Case, FEATURES, SIDE};

/// Batches in memory, which are taken in turn.
const BATCHES: usize = 16;

const RATE: f64 = 1e-3;
const DECAY: f64 = 0.01;
const BETAS: [f64; 2] = [0.9, 0.999];
const EPSILON: f64 = 1e-8;
const CLIP_NORM: f64 = 1.0;

enum Batch {
    Rows(Tensor<2>, Tensor<2>),
    Images(Tensor<4>, Tensor<2, Int>),
}

/// A parameter, flat, and its two moments.
struct Parameter {
    shape: Vec<usize>,
    values: Tensor<1>,
    moments: [Tensor<1>; 2],
}

/// A model in training.
pub(crate) struct Bare {
    parameters: Vec<Parameter>,
    batches: Vec<Batch>,
    step: usize,
}

impl Bare {
    /// The model of a case, of those that this loop has.
    pub(crate) fn new(case: Case, batch: usize) -> Option<Self> {
        let shapes: &[&[usize]] = match case {
            Case::Mlp => &[
                &[FEATURES, 256],
                &[256],
                &[256, 256],
                &[256],
                &[256, 1],
                &[1],
            ],
            Case::Cnn => &[
                &[32, 3, 3, 3],
                &[32],
                &[64, 32, 3, 3],
                &[64],
                &[64 * 7 * 7, 128],
                &[128],
                &[128, CLASSES],
                &[CLASSES],
            ],
            Case::Transformer | Case::Lstm | Case::Gpt2 => return None,
        };
        let device = Device::flex();
        let load = |number| load(case, number * batch, batch, &device);
        let parameters = shapes.iter().enumerate();
        Some(Self {
            parameters: parameters
                .map(|(i, shape)| Parameter::new(i, shape, &device))
                .collect(),
            batches: (0..BATCHES).map(load).collect(),
            step: 0,
        })
    }

    /// Takes a step, and returns the loss before it.
    pub(crate) fn step(&mut self) -> f32 {
        let batch = &self.batches[self.step % BATCHES];
        self.step += 1;
        let leaf = |p: &Parameter| p.values.clone().autodiff().require_grad();
        let leaves: Vec<Tensor<1>> = self.parameters.iter().map(leaf).collect();
        let loss = self.loss(&leaves, batch);
        let value = loss.clone().into_scalar();
        let mut gradients = loss.backward();
        let take = |leaf: &Tensor<1>| leaf.grad_remove(&mut gradients).unwrap();
        let gradients: Vec<Tensor<1>> = leaves.iter().map(take).collect();
        let square = |g: &Tensor<1>| (g.clone() * g.clone()).sum().into_scalar::<f64>();
        let norm = gradients.iter().map(square).sum::<f64>().sqrt();
        let scale = (CLIP_NORM / norm).min(1.0);
        for (parameter, gradient) in self.parameters.iter_mut().zip(gradients) {
            parameter.update(gradient * scale, self.step);
        }
        value
    }

    fn loss(&self, leaves: &[Tensor<1>], batch: &Batch) -> Tensor<1> {
        let linear = |layer: usize, x: Tensor<2>| {
            let shape = &self.parameters[layer].shape;
            let weight = leaves[layer].clone().reshape([shape[0], shape[1]]);
            module::linear(x, weight, Some(leaves[layer + 1].clone()))
        };
        match batch {
            Batch::Rows(x, y) => {
                let x = activation::gelu(linear(0, x.clone().autodiff()));
                let x = activation::gelu(linear(2, x));
                let difference = linear(4, x) - y.clone().autodiff();
                (difference.clone() * difference).mean()
            }
            Batch::Images(x, classes) => {
                let x = self.stage(leaves, 0, x.clone().autodiff());
                let x = self.stage(leaves, 2, x);
                let x = activation::relu(linear(4, x.flatten(1, 3)));
                let logarithms = activation::log_softmax(linear(6, x), 1);
                logarithms
                    .gather(1, classes.clone().autodiff())
                    .mean()
                    .neg()
            }
        }
    }

    fn stage(&self, leaves: &[Tensor<1>], layer: usize, x: Tensor<4>) -> Tensor<4> {
        let shape: [usize; 4] = self.parameters[layer].shape.as_slice().try_into().unwrap();
        let weight = leaves[layer].clone().reshape(shape);
        let options = ConvOptions::new([1; 2], [1; 2], [1; 2], 1);
        let x = module::conv2d(x, weight, Some(leaves[layer + 1].clone()), options);
        let pool = MaxPoolOptions::new([2; 2]).with_stride([2; 2]);
        module::max_pool2d(activation::relu(x), pool)
    }
}

impl Parameter {
    /// Weights uniform in `±sqrt(6 / in)`, biases 0.
    fn new(number: usize, shape: &[usize], device: &Device) -> Self {
        let len = shape.iter().product();
        let fan_in: usize = match shape.len() {
            1 => usize::MAX,
            2 => shape[0],
            _ => shape[1..].iter().product(),
        };
        #[expect(clippy::cast_precision_loss, reason = "small, or a bound of about 0")]
        let bound = (6.0 / fan_in as f32).sqrt();
        let noise = (0..len).map(|at| bound * (2.0 * case::uniform(usize::MAX - number, at) - 1.0));
        let values: Vec<f32> = noise.collect();
        Self {
            shape: shape.to_vec(),
            values: Tensor::from_floats(values.as_slice(), device),
            moments: [(); 2].map(|()| Tensor::zeros([len], device)),
        }
    }

    /// AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2).
    fn update(&mut self, gradient: Tensor<1>, step: usize) {
        let [first, second] = self.moments.clone();
        let square = gradient.clone() * gradient.clone();
        let first = first * BETAS[0] + gradient * (1.0 - BETAS[0]);
        let second = second * BETAS[1] + square * (1.0 - BETAS[1]);
        self.moments = [first.clone(), second.clone()];
        let corrected = |beta: f64| 1.0 - beta.powi(i32::try_from(step).unwrap());
        let root = (second / corrected(BETAS[1])).sqrt() + EPSILON;
        let direction = first / corrected(BETAS[0]) / root;
        self.values = self.values.clone() * (1.0 - RATE * DECAY) - direction * RATE;
    }
}

fn load(case: Case, first: usize, rows: usize, device: &Device) -> Batch {
    let numbers = first..first + rows;
    if case == Case::Mlp {
        let x: Vec<f32> = numbers.clone().flat_map(case::features).collect();
        let y: Vec<f32> = numbers.map(case::function).collect();
        let x = Tensor::from_data(TensorData::new(x, [rows, FEATURES]), device);
        return Batch::Rows(x, Tensor::from_data(TensorData::new(y, [rows, 1]), device));
    }
    let pixels = numbers.clone().flat_map(case::planes);
    let x: Vec<f32> = pixels.map(|value| f32::from(value) / 255.0).collect();
    let classes: Vec<i32> = numbers.map(case::class).collect();
    let x = Tensor::from_data(TensorData::new(x, [rows, 3, SIDE, SIDE]), device);
    let classes = Tensor::from_data(TensorData::new(classes, [rows, 1]), device);
    Batch::Images(x, classes)
}
