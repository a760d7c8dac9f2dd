//! Rules that turn a gradient into an update, and the steps that they are given.

use std::{fmt::Debug, ops::Range};

use burn::tensor::Tensor;

use super::device_sums::length;
use crate::{
    device::kernels::KernelStep,
    model::{
        interface::Parameter,
        packed_bucket::{Pack, Spread},
    },
};

/// Elements one task updates; also the pieces of sums, so it is part of what a run computes.
pub(super) const PIECE: usize = 1 << 14;

/// Rule that turns a gradient into an update.
pub(super) trait Algorithm: Debug + Send + Sync {
    /// Names of the buckets of state, and how many elements of each a parameter has.
    fn state(&self, parameter: &Parameter) -> Vec<(&'static str, usize)>;

    /// Updates one parameter and its parts of the buckets, which come in the order of [`Algorithm::state`].
    fn step(&self, of: &Update<'_>, weights: &mut [f32], state: &mut [&mut [f32]]);

    /// The weights of all parameters after step number `step` by one kernel of a device, which writes `state` too; `None`
    /// where there is no such kernel.
    fn step_by_kernel(
        &self,
        _of: KernelStep<'_>,
        _step: u64,
        _state: &[Tensor<1>],
    ) -> Option<Tensor<1>> {
        None
    }

    /// The weights of all parameters after the same step on a device; `state` becomes that after it.
    fn step_on_device(
        &self,
        of: DeviceUpdate<'_>,
        weights: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1>;
}

/// Step of one parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Update<'a> {
    /// Its gradient as the engine gave it.
    pub(super) gradient: &'a [f32],
    /// Penalty added to the gradient.
    pub(super) penalty: Penalty,
    pub(super) shape: &'a [usize],
    /// Number of the step; the first is 1.
    pub(super) step: u64,
    pub(super) rate: f64,
    pub(super) weight_decay: f64,
    /// True when the length of its updates may follow the length of its weights. That of biases and
    /// of the scales of norms does not: they start at 0 and 1.
    pub(super) adapts: bool,
    /// True for a matrix inside the model.
    pub(super) is_hidden: bool,
}

/// Makes the gradient that is meant of the one that was computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Penalty {
    pub(super) scale: f32,
    pub(super) l2: f32,
    pub(super) l1: f32,
}

impl Penalty {
    /// The gradient of the penalized loss at weight `w`.
    #[inline]
    pub(super) fn gradient(self, g: f32, w: f32) -> f32 {
        let sign = f32::from(i8::from(w > 0.0) - i8::from(w < 0.0));
        g * self.scale + (self.l2 * w + self.l1 * sign)
    }
}

/// One parameter as the optimizer sees it.
#[derive(Clone, Debug)]
pub(super) struct OptimizedParameter {
    pub(super) range: Range<usize>,
    pub(super) shape: Vec<usize>,
    pub(super) adapts: bool,
    pub(super) is_hidden: bool,
    pub(super) rate_factor: f64,
    pub(super) weight_decay: f64,
    pub(super) l2: f64,
    pub(super) l1: f64,
    /// Its part of each bucket of state.
    pub(super) state: Vec<Range<usize>>,
}

/// A step of all parameters on a device.
#[derive(Debug)]
pub(super) struct DeviceUpdate<'a> {
    /// The gradient of the penalized loss.
    pub(super) gradient: Tensor<1>,
    /// Number of the step; the first is 1.
    pub(super) step: u64,
    /// The learning rate, without the factors of groups.
    pub(super) rate: f64,
    /// Factors of the learning rate.
    pub(super) rate_factor: &'a Spread,
    /// Weight decay.
    pub(super) weight_decay: &'a Spread,
    pub(super) members: &'a [OptimizedParameter],
    /// Places of the parameters.
    pub(super) pack: &'a Pack,
    /// Places of each kind of state.
    pub(super) places: &'a [Pack],
    /// Weight decay times the factors of the learning rate.
    pub(super) decay: &'a Spread,
}

impl DeviceUpdate<'_> {
    /// Moves weights by decay and against `direction`.
    pub(super) fn moved(&self, weights: Tensor<1>, direction: Tensor<1>) -> Tensor<1> {
        self.decayed(weights) - self.rate_factor.times(direction, self.rate)
    }

    /// The weights after decay.
    pub(super) fn decayed(&self, weights: Tensor<1>) -> Tensor<1> {
        if self.decay.is(0.0) {
            return weights;
        }
        weights.clone() - self.decay.times(weights, self.rate)
    }

    /// Factors by `factor` of the lengths of weights and update, for each parameter whose updates follow the length of its
    /// weights; `None` for the others.
    pub(super) fn factors(
        &self,
        weights: &Tensor<1>,
        update: &Tensor<1>,
        factor: impl Fn(&OptimizedParameter, Tensor<1>, Tensor<1>) -> Tensor<1>,
    ) -> Vec<Option<Tensor<1>>> {
        let of_entry = |(entry, member): (usize, &OptimizedParameter)| {
            let adapts = member.adapts && self.pack.len_of(entry) > 0;
            adapts.then(|| {
                let [of_weights, of_update] =
                    [weights, update].map(|packed| length(self.pack.view(packed, entry)));
                factor(member, of_weights, of_update)
            })
        };
        self.members.iter().enumerate().map(of_entry).collect()
    }

    /// `update` with each parameter's part times its factor.
    pub(super) fn scaled(&self, update: &Tensor<1>, factors: Vec<Option<Tensor<1>>>) -> Tensor<1> {
        let parts = factors.into_iter().enumerate().map(|(entry, factor)| {
            let part = self.pack.view(update, entry);
            let scaled = match factor {
                Some(factor) => part * factor,
                None => part,
            };
            (entry, scaled)
        });
        self.pack.join(parts, &update.device())
    }
}

/// `of / by`, or 1 where one of them is 0.
pub(super) fn trust_ratio(of: f64, by: f64) -> f64 {
    if of > 0.0 && by > 0.0 { of / by } else { 1.0 }
}
