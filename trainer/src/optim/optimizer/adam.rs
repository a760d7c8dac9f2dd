//! Adam (Kingma and Ba 2015, arXiv 1412.6980, algorithm 1), and AdamW when the weights decay (Loshchilov and Hutter
//! 2019, arXiv 1711.05101, algorithm 2, with the schedule multiplier inside the rate). As PyTorch has it: decay is
//! `rate * weight_decay`, epsilon is added outside the root.

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::algorithm::{Algorithm, DeviceUpdate, PIECE, Penalty, Update};
use crate::{
    device::kernels::{self, AdamConstants, KernelStep},
    float_casts::{exact, single},
    model::interface::Parameter,
};

/// The algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adam {
    pub(super) beta1: f64,
    pub(super) beta2: f64,
    pub(super) epsilon: f64,
}

impl Adam {
    /// Constants of step number `step`.
    pub(super) fn moments(&self, step: u64) -> AdamConstants {
        let Self {
            beta1,
            beta2,
            epsilon,
        } = *self;
        let step = exact(step);
        let (correction1, correction2) = (1.0 - beta1.powf(step), 1.0 - beta2.powf(step));
        AdamConstants {
            beta1: single(beta1),
            one_minus_beta1: single(1.0 - beta1),
            beta2: single(beta2),
            one_minus_beta2: single(1.0 - beta2),
            epsilon: single(epsilon),
            first_scale: single(1.0 / correction1),
            second_root_scale: single(1.0 / correction2.sqrt()),
        }
    }
}

impl AdamConstants {
    /// Takes a gradient into both moments.
    #[inline]
    pub(super) fn update(self, g: f32, m: &mut f32, v: &mut f32) {
        *m = self.beta1 * *m + self.one_minus_beta1 * g;
        *v = self.beta2 * *v + self.one_minus_beta2 * (g * g);
    }

    /// Both moments of a gradient on a device, and [`direction`](Self::direction).
    pub(super) fn on_device(self, g: Tensor<1>, moments: &mut [Tensor<1>]) -> Tensor<1> {
        let [m, v] = moments else {
            unreachable!("two moments")
        };
        *v = v.clone() * self.beta2 + g.clone() * g.clone() * self.one_minus_beta2;
        *m = m.clone() * self.beta1 + g * self.one_minus_beta1;
        let root = v.clone().sqrt() * self.second_root_scale + self.epsilon;
        m.clone() / root * self.first_scale
    }

    /// The corrected first moment over the root of the corrected second.
    #[inline]
    pub(super) fn direction(self, m: f32, v: f32) -> f32 {
        self.first_scale * (m / (v.sqrt() * self.second_root_scale + self.epsilon))
    }
}

impl Algorithm for Adam {
    fn state(&self, parameter: &Parameter) -> Vec<(&'static str, usize)> {
        let len = parameter.range.len();
        vec![("first_moment", len), ("second_moment", len)]
    }

    fn step(&self, of: &Update<'_>, weights: &mut [f32], state: &mut [&mut [f32]]) {
        let [first, second] = state else {
            unreachable!("two moments")
        };
        let c = Constants {
            moments: self.moments(of.step),
            penalty: of.penalty,
            keep: single(1.0 - of.rate * of.weight_decay),
            rate: single(of.rate),
        };
        weights
            .par_chunks_mut(PIECE)
            .zip(of.gradient.par_chunks(PIECE))
            .zip(first.par_chunks_mut(PIECE))
            .zip(second.par_chunks_mut(PIECE))
            .for_each(|(((weights, gradients), first), second)| {
                update(c, weights, gradients, first, second);
            });
    }

    fn step_by_kernel(
        &self,
        of: KernelStep<'_>,
        step: u64,
        state: &[Tensor<1>],
    ) -> Option<Tensor<1>> {
        let [first, second] = state else {
            unreachable!("two moments")
        };
        kernels::adam(of, self.moments(step), [first, second])
    }

    fn step_on_device(
        &self,
        of: DeviceUpdate<'_>,
        weights: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1> {
        let direction = self.moments(of.step).on_device(of.gradient.clone(), state);
        of.moved(weights, direction)
    }
}

#[derive(Clone, Copy)]
struct Constants {
    moments: AdamConstants,
    penalty: Penalty,
    keep: f32,
    rate: f32,
}

fn update(
    c: Constants,
    weights: &mut [f32],
    gradients: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    for (((w, &g), m), v) in weights.iter_mut().zip(gradients).zip(first).zip(second) {
        c.moments.update(c.penalty.gradient(g, *w), m, v);
        *w = *w * c.keep - c.rate * c.moments.direction(*m, *v);
    }
}
