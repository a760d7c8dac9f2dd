//! LARS (You, Gitman, Ginsburg 2017, arXiv 1708.03888, algorithm 1): momentum over updates whose length is a share of
//! the weights', `v = momentum * v + rate * local * (g + weight_decay * w)`, `w -= v`, with
//! `local = trust * |w| / (|g| + weight_decay * |w|)`. Where weights or gradient are all 0 `local` is 1, and so it is
//! for biases and norms, as is usual.

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::{
    algorithm::{Algorithm, DeviceUpdate, OptimizedParameter, PIECE, Update, trust_ratio},
    device_sums,
};
use crate::{float_casts::single, model::interface::Parameter};

/// The algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lars {
    pub(super) momentum: f64,
    pub(super) trust: f64,
}

impl Lars {
    /// The local rate.
    fn local(&self, of: &Update<'_>, weights: &[f32]) -> f64 {
        let squares: Vec<(f64, f64)> = weights
            .par_chunks(PIECE)
            .zip(of.gradient.par_chunks(PIECE))
            .map(|(weights, gradients)| {
                let (mut of_weights, mut of_gradient) = (0.0, 0.0);
                for (&w, &g) in weights.iter().zip(gradients) {
                    let g = f64::from(of.penalty.gradient(g, w));
                    of_weights += f64::from(w) * f64::from(w);
                    of_gradient += g * g;
                }
                (of_weights, of_gradient)
            })
            .collect();
        let of_weights = squares.iter().map(|(w, _)| w).sum::<f64>().sqrt();
        let of_gradient = squares.iter().map(|(_, g)| g).sum::<f64>().sqrt();
        if of_gradient > 0.0 {
            let by = of_gradient + of.weight_decay * of_weights;
            trust_ratio(self.trust * of_weights, by)
        } else {
            1.0
        }
    }
}

impl Algorithm for Lars {
    fn state(&self, parameter: &Parameter) -> Vec<(&'static str, usize)> {
        vec![("momentum", parameter.range.len())]
    }

    fn step(&self, of: &Update<'_>, weights: &mut [f32], state: &mut [&mut [f32]]) {
        let [velocity] = state else {
            unreachable!("one moment")
        };
        let local = if of.adapts {
            self.local(of, weights)
        } else {
            1.0
        };
        let rate = single(of.rate * local);
        let (momentum, weight_decay) = (single(self.momentum), single(of.weight_decay));
        weights
            .par_chunks_mut(PIECE)
            .zip(of.gradient.par_chunks(PIECE))
            .zip(velocity.par_chunks_mut(PIECE))
            .for_each(|((weights, gradients), velocities)| {
                for ((w, &g), v) in weights.iter_mut().zip(gradients).zip(velocities) {
                    let g = of.penalty.gradient(g, *w) + weight_decay * *w;
                    *v = momentum * *v + rate * g;
                    *w -= *v;
                }
            });
    }

    fn step_on_device(
        &self,
        of: DeviceUpdate<'_>,
        weights: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1> {
        let [velocity] = state else {
            unreachable!("one moment")
        };
        // A gradient of 0 has the ratio 1, as decay alone moves the weights then.
        let local = |member: &OptimizedParameter, of_weights: Tensor<1>, of_gradient: Tensor<1>| {
            let by = of_gradient.clone() + of_weights.clone() * member.weight_decay;
            let moves = of_gradient.greater_elem(0.0).float();
            device_sums::trust_ratio(of_weights * moves * self.trust, by)
        };
        let ratios = of.factors(&weights, &of.gradient, local);
        let decayed = of.gradient.clone() + of.weight_decay.times(weights.clone(), 1.0);
        let step = of.rate_factor.times(of.scaled(&decayed, ratios), of.rate);
        *velocity = velocity.clone() * self.momentum + step;
        weights - velocity.clone()
    }
}
