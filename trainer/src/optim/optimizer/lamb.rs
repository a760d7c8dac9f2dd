//! LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2, with the identity for φ): Adam's direction plus
//! `weight_decay * w`, made as long as the weights before the rate is applied. Where weights or update are all 0 the
//! ratio is 1, and so it is for biases and norms, as in the authors' code.

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::{
    adam::Adam,
    algorithm::{Algorithm, DeviceUpdate, PIECE, Penalty, Update, trust_ratio},
    device_sums,
};
use crate::{device::kernels::AdamConstants, float_casts::single, model::interface::Parameter};

/// The algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lamb(pub(super) Adam);

#[derive(Clone, Copy)]
struct Constants {
    moments: AdamConstants,
    penalty: Penalty,
    weight_decay: f32,
}

impl Constants {
    #[inline]
    fn direction(self, m: f32, v: f32, w: f32) -> f32 {
        self.moments.direction(m, v) + self.weight_decay * w
    }
}

impl Algorithm for Lamb {
    fn state(&self, parameter: &Parameter) -> Vec<(&'static str, usize)> {
        self.0.state(parameter)
    }

    fn step(&self, of: &Update<'_>, weights: &mut [f32], state: &mut [&mut [f32]]) {
        let [first, second] = state else {
            unreachable!("two moments")
        };
        let c = Constants {
            moments: self.0.moments(of.step),
            penalty: of.penalty,
            weight_decay: single(of.weight_decay),
        };
        let squares: Vec<(f64, f64)> = weights
            .par_chunks(PIECE)
            .zip(of.gradient.par_chunks(PIECE))
            .zip(first.par_chunks_mut(PIECE))
            .zip(second.par_chunks_mut(PIECE))
            .map(|(((weights, gradients), first), second)| {
                moments_and_squares(c, weights, gradients, first, second)
            })
            .collect();
        let ratio = if of.adapts {
            let of_weights: f64 = squares.iter().map(|(w, _)| w).sum();
            let of_update: f64 = squares.iter().map(|(_, u)| u).sum();
            trust_ratio(of_weights.sqrt(), of_update.sqrt())
        } else {
            1.0
        };
        let rate = single(of.rate * ratio);
        weights
            .par_chunks_mut(PIECE)
            .zip(first.par_chunks(PIECE))
            .zip(second.par_chunks(PIECE))
            .for_each(|((weights, first), second)| {
                for ((w, &m), &v) in weights.iter_mut().zip(first).zip(second) {
                    *w -= rate * c.direction(m, v, *w);
                }
            });
    }

    fn step_on_device(
        &self,
        of: DeviceUpdate<'_>,
        weights: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1> {
        let moments = self.0.moments(of.step);
        let direction = moments.on_device(of.gradient.clone(), state)
            + of.weight_decay.times(weights.clone(), 1.0);
        let ratio = |_: &_, of_weights, of_update| device_sums::trust_ratio(of_weights, of_update);
        let ratios = of.factors(&weights, &direction, ratio);
        let direction = of.scaled(&direction, ratios);
        weights - of.rate_factor.times(direction, of.rate)
    }
}

/// Updates the moments; the sums of squares of weights and update.
fn moments_and_squares(
    c: Constants,
    weights: &[f32],
    gradients: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) -> (f64, f64) {
    let (mut of_weights, mut of_update) = (0.0, 0.0);
    for (((&w, &g), m), v) in weights.iter().zip(gradients).zip(first).zip(second) {
        c.moments.update(c.penalty.gradient(g, w), m, v);
        let direction = f64::from(c.direction(*m, *v, w));
        of_weights += f64::from(w) * f64::from(w);
        of_update += direction * direction;
    }
    (of_weights, of_update)
}
