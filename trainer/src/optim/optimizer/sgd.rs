//! Stochastic gradient descent with momentum in PyTorch's form (Sutskever et al. 2013 with the rate outside the
//! velocity): `v = momentum * v + (1 - dampening) * g`, at the first step `v = g`; then `w -= rate * v`, or with
//! Nesterov's look-ahead `w -= rate * (g + momentum * v)`.

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::algorithm::{Algorithm, DeviceUpdate, PIECE, Update};
use crate::{
    device::kernels::{self, KernelStep, MomentumConstants},
    float_casts::single,
    model::interface::Parameter,
};

/// The algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sgd {
    pub(super) momentum: f64,
    pub(super) dampening: f64,
    pub(super) nesterov: bool,
}

impl Algorithm for Sgd {
    fn state(&self, parameter: &Parameter) -> Vec<(&'static str, usize)> {
        if self.momentum > 0.0 {
            vec![("momentum", parameter.range.len())]
        } else {
            vec![]
        }
    }

    fn step(&self, of: &Update<'_>, weights: &mut [f32], state: &mut [&mut [f32]]) {
        let keep = single(1.0 - of.rate * of.weight_decay);
        let rate = single(of.rate);
        let pieces = weights
            .par_chunks_mut(PIECE)
            .zip(of.gradient.par_chunks(PIECE));
        let Some(velocity) = state.first_mut() else {
            pieces.for_each(|(weights, gradients)| {
                for (w, &g) in weights.iter_mut().zip(gradients) {
                    *w = *w * keep - rate * of.penalty.gradient(g, *w);
                }
            });
            return;
        };
        let first = of.step == 1;
        let (momentum, added) = (single(self.momentum), single(1.0 - self.dampening));
        let velocities = velocity.par_chunks_mut(PIECE);
        pieces
            .zip(velocities)
            .for_each(|((weights, gradients), velocities)| {
                for ((w, &g), v) in weights.iter_mut().zip(gradients).zip(velocities) {
                    let g = of.penalty.gradient(g, *w);
                    *v = if first { g } else { momentum * *v + added * g };
                    let along = if self.nesterov { g + momentum * *v } else { *v };
                    *w = *w * keep - rate * along;
                }
            });
    }

    fn step_by_kernel(
        &self,
        of: KernelStep<'_>,
        step: u64,
        state: &[Tensor<1>],
    ) -> Option<Tensor<1>> {
        let velocity = state.first()?;
        let [kept, added] = if step == 1 {
            [0.0, 1.0]
        } else {
            [single(self.momentum), single(1.0 - self.dampening)]
        };
        let [of_gradient, of_velocity] = if self.nesterov {
            [1.0, single(self.momentum)]
        } else {
            [0.0, 1.0]
        };
        let numbers = MomentumConstants {
            kept,
            added,
            of_gradient,
            of_velocity,
        };
        kernels::momentum(of, numbers, velocity)
    }

    fn step_on_device(
        &self,
        of: DeviceUpdate<'_>,
        weights: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1> {
        let g = of.gradient.clone();
        let Some(velocity) = state.first_mut() else {
            return of.moved(weights, g);
        };
        *velocity = if of.step == 1 {
            g.clone()
        } else {
            velocity.clone() * self.momentum + g.clone() * (1.0 - self.dampening)
        };
        let along = if self.nesterov {
            g + velocity.clone() * self.momentum
        } else {
            velocity.clone()
        };
        of.moved(weights, along)
    }
}
