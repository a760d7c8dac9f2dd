//! Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks") with the update of Liu et al. 2025,
//! arXiv 2502.16982: an update of a matrix is its momentum made orthogonal, so that all of its directions are as long.
//!
//! With `v` the momentum, `v += (1 - momentum) (g - v)`, and Nesterov's `u = g + momentum (v - g)` or else `u = v`: the
//! weights `[rows, columns]` move by `rate * 0.2 sqrt(max(rows, columns)) * orthogonal(u)`, whose root mean square is about
//! that of Adam's updates, so that one rate serves both. Kernels of convolutions are matrices `[out, in * height * width]`.
//! Embeddings, the model's last fully connected layer, biases and the scales of norms are updated by AdamW.

use burn::tensor::{Device, Tensor, TensorData};
use feedline_schemas::report::MuonParameters;

use super::{
    adam::Adam,
    algorithm::{Algorithm, DeviceUpdate, Update},
    device_sums,
};
use crate::{
    device::{Upload as _, numbers},
    float_casts::{exact_len, single},
    model::interface::Parameter,
};

/// The algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Muon {
    pub(super) momentum: f64,
    pub(super) nesterov: bool,
    /// Of what is no matrix inside the model.
    pub(super) adam: Adam,
}

/// Coefficients of an iteration of Newton and Schulz, Jordan's: singular values between 0 and 1 come to between about 0.7
/// and 1.2.
const ITERATION: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// Iterations.
const ITERATIONS: usize = 5;

/// Added to the length of a matrix.
const EPSILON: f64 = 1e-7;

/// Root mean square of an update that Adam makes, about.
const ROOT_MEAN_SQUARE: f64 = 0.2;

/// Rows and columns of a matrix, or of a kernel.
fn sizes(shape: &[usize]) -> [usize; 2] {
    [shape[0], shape[1..].iter().product()]
}

/// Counts the parameters that Muon updates, and those that it leaves to AdamW.
pub(crate) fn count_parameters(parameters: &[Parameter]) -> MuonParameters {
    let mut counts = MuonParameters::default();
    for parameter in parameters {
        let len = parameter.range.len() as u64;
        if parameter.is_hidden {
            counts.matrices += 1;
            counts.muon += len;
        } else {
            counts.adamw += len;
        }
    }
    counts
}

impl Muon {
    /// Direction that a matrix moves along, from its gradient; `velocity` becomes the momentum after it. Both are flat.
    fn direction(&self, g: Tensor<1>, velocity: &mut Tensor<1>, shape: &[usize]) -> Tensor<1> {
        let [rows, columns] = sizes(shape);
        *velocity = velocity.clone() * self.momentum + g.clone() * (1.0 - self.momentum);
        let along = match self.nesterov {
            true => g * (1.0 - self.momentum) + velocity.clone() * self.momentum,
            false => velocity.clone(),
        };
        let scale = ROOT_MEAN_SQUARE * exact_len(rows.max(columns)).sqrt();
        orthogonal(along, [rows, columns]) * scale
    }
}

/// A matrix with about the same singular vectors, and singular values of about 1; both flat.
fn orthogonal(x: Tensor<1>, [rows, columns]: [usize; 2]) -> Tensor<1> {
    let x = x.clone() / (device_sums::length(x) + EPSILON);
    let x = x.reshape([rows, columns]);
    // The products are of the shorter side.
    let is_tall = rows > columns;
    let mut x = if is_tall { x.transpose() } else { x };
    let [a, b, c] = ITERATION;
    for _ in 0..ITERATIONS {
        let square = x.clone().matmul(x.clone().transpose());
        let polynomial = square.clone() * b + square.clone().matmul(square) * c;
        x = x.clone() * a + polynomial.matmul(x);
    }
    let x = if is_tall { x.transpose() } else { x };
    x.reshape([rows * columns])
}

impl Algorithm for Muon {
    fn state(&self, parameter: &Parameter) -> Vec<(&'static str, usize)> {
        let len = parameter.range.len();
        let second = if parameter.is_hidden { 0 } else { len };
        vec![("first_moment", len), ("second_moment", second)]
    }

    fn step(&self, of: &Update<'_>, weights: &mut [f32], state: &mut [&mut [f32]]) {
        if !of.is_hidden {
            return self.adam.step(of, weights, state);
        }
        if weights.is_empty() {
            return;
        }
        let device = Device::flex();
        let tensor = |values: Vec<f32>| {
            let len = values.len();
            Tensor::<1>::upload(TensorData::new(values, [len]), &device)
        };
        let gradient = of.gradient.iter().zip(&*weights);
        let gradient = gradient.map(|(&g, &w)| of.penalty.gradient(g, w));
        let mut velocity = tensor(state[0].to_vec());
        let direction = self.direction(tensor(gradient.collect()), &mut velocity, of.shape);
        state[0].copy_from_slice(&numbers(velocity));
        let (keep, rate) = (single(1.0 - of.rate * of.weight_decay), single(of.rate));
        for (w, along) in weights.iter_mut().zip(numbers(direction)) {
            *w = *w * keep - rate * along;
        }
    }

    fn step_on_device(
        &self,
        of: DeviceUpdate<'_>,
        weights: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1> {
        let device = weights.device();
        let adam = self.adam.moments(of.step);
        let (mut directions, mut moments) = (Vec::new(), [Vec::new(), Vec::new()]);
        for (entry, member) in of.members.iter().enumerate() {
            if of.pack.len_of(entry) == 0 {
                continue;
            }
            let view = |i: usize| of.places[i].view(&state[i], entry);
            let gradient = of.pack.view(&of.gradient, entry);
            let direction = if member.is_hidden {
                let mut velocity = view(0);
                let direction = self.direction(gradient, &mut velocity, &member.shape);
                moments[0].push((entry, velocity));
                direction
            } else {
                let mut both = [view(0), view(1)];
                let direction = adam.on_device(gradient, &mut both);
                for (moments, moment) in moments.iter_mut().zip(both) {
                    moments.push((entry, moment));
                }
                direction
            };
            directions.push((entry, direction));
        }
        for (i, moments) in moments.into_iter().enumerate() {
            state[i] = of.places[i].join(moments, &device);
        }
        of.moved(weights, of.pack.join(directions, &device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orthogonal_update_has_singular_values_near_one() {
        for [rows, columns] in [[8, 8], [5, 12], [12, 5], [1, 7]] {
            let x = crate::testing::uniform(rows * columns, 3);
            let x = Tensor::<1>::from_floats(&x[..], &Device::flex()) * 1e-3;
            let y = orthogonal(x.clone(), [rows, columns]).reshape([rows, columns]);
            let y = if rows > columns { y.transpose() } else { y };
            let side = rows.min(columns);
            let square = numbers(y.clone().matmul(y.transpose()));
            // Squares of singular values are the eigenvalues; their sum is the trace.
            let trace: f32 = square.iter().step_by(side + 1).sum();
            let mean = trace / f32::from(u16::try_from(side).unwrap());
            assert!((0.45..1.4).contains(&mean), "{rows} {columns}: {mean}");
            // No direction is far longer than the others: the largest eigenvalue is below the largest sum of a row.
            let rows_of = square.chunks_exact(side);
            let largest = rows_of.map(|row| row.iter().map(|v| v.abs()).sum::<f32>());
            let largest = largest.fold(0.0, f32::max);
            assert!(largest < 2.5, "{rows} {columns}: {largest}");
        }
    }
}
