//! The same optimizers in operations on tensors, for weights that stay on a device.
//!
//! Weights, gradient and each kind of state are one flat tensor, a [`Pack`] of the trained parameters. Numbers are f32, and
//! sums are in an order of their own, so a step is that of the processor up to rounding; on one device it is the same bits
//! each time. A step that must not be taken is suppressed by the device itself: whoever asks for it need not know yet.

use burn::tensor::{Device, Tensor};
use feedline_schemas::config::OptimizerConfig;

use super::{
    algorithm::{Algorithm, DeviceUpdate, OptimizedParameter},
    device_sums::chosen,
    selection,
    state::StateBucket,
    verdict::StepVerdict,
};
use crate::{
    device::{
        kernels::{self, KernelStep},
        read,
    },
    error::Error,
    float_casts::single,
    model::{
        interface::Parameter,
        packed_bucket::{Pack, Spread},
    },
};

/// An optimizer whose state is on a device.
#[derive(Debug)]
pub(crate) struct DeviceOptimizer {
    algorithm: Box<dyn Algorithm>,
    members: Vec<OptimizedParameter>,
    /// Places of the trained parameters.
    pack: Pack,
    /// Places of each kind of state.
    places: Vec<Pack>,
    /// Each kind of state. Kernels write it where it is, so nothing else may keep it.
    state: Vec<Tensor<1>>,
    /// Settings of the parameters for kernels: factor of the learning rate, weight decay times this factor, penalties.
    settings: Tensor<1>,
    /// Factors of the learning rate, weight decay times these factors, and penalties.
    rate_factor: Spread,
    decay: Spread,
    weight_decay: Spread,
    l2: Spread,
    l1: Spread,
}

impl DeviceOptimizer {
    /// The optimizer of these parameters, with this state, on a device; `config` is what [`resolve`](super::resolve) returned.
    pub(crate) fn new(
        config: &OptimizerConfig,
        parameters: &[Parameter],
        state: &[StateBucket],
        device: &Device,
    ) -> Self {
        let algorithm = selection::algorithm(config);
        let members = selection::members(config, parameters, &*algorithm);
        let pack = Pack::new(members.iter().map(|member| member.range.clone()));
        let of_bucket = |(i, bucket): (usize, &StateBucket)| {
            let pack = Pack::new(members.iter().map(|member| member.state[i].clone()));
            let values = pack.upload(&bucket.values, device);
            (pack, values)
        };
        let (places, state) = state.iter().enumerate().map(of_bucket).unzip();
        let settings_of = |i: usize| {
            let member: &OptimizedParameter = &members[i];
            let decay = member.rate_factor * member.weight_decay;
            [member.rate_factor, decay, member.l2, member.l1]
        };
        let settings = pack.settings::<{ kernels::SETTINGS }>(settings_of, device);
        let spread =
            |of: &dyn Fn(&OptimizedParameter) -> f64| pack.spread(|i| of(&members[i]), device);
        Self {
            rate_factor: spread(&|member| member.rate_factor),
            decay: spread(&|member| member.rate_factor * member.weight_decay),
            weight_decay: spread(&|member| member.weight_decay),
            l2: spread(&|member| member.l2),
            l1: spread(&|member| member.l1),
            places,
            state,
            settings,
            algorithm,
            members,
            pack,
        }
    }

    /// Places of the parameters that it moves.
    pub(crate) const fn pack(&self) -> &Pack {
        &self.pack
    }

    /// The weights after step number `step` (the first is 1) along `gradient` with the scale of `verdict` and learning rate
    /// `rate`, where the verdict is to take it; else weights and state stay as they are.
    pub(crate) fn step(
        &mut self,
        weights: &Tensor<1>,
        gradient: Tensor<1>,
        verdict: &StepVerdict,
        step: u64,
        rate: f64,
    ) -> Tensor<1> {
        // A rank of many may have no share of a small model, and then no state.
        if self.members.is_empty() {
            return weights.clone();
        }
        let of_kernel = KernelStep {
            gradient: &gradient,
            numbers: verdict.numbers(),
            settings: &self.settings,
            weights,
            rate: single(rate),
        };
        if let Some(moved) = self.algorithm.step_by_kernel(of_kernel, step, &self.state) {
            return moved;
        }
        let good = &verdict.good();
        let mut gradient = gradient * verdict.scale();
        if !self.l2.is(0.0) {
            gradient = gradient + self.l2.times(weights.clone(), 1.0);
        }
        if !self.l1.is(0.0) {
            gradient = gradient + self.l1.times(weights.clone().sign(), 1.0);
        }
        let mut state = self.state.clone();
        let update = DeviceUpdate {
            gradient,
            step,
            rate,
            rate_factor: &self.rate_factor,
            weight_decay: &self.weight_decay,
            decay: &self.decay,
            members: &self.members,
            pack: &self.pack,
            places: &self.places,
        };
        let moved = self
            .algorithm
            .step_on_device(update, weights.clone(), &mut state);
        for (held, new) in self.state.iter_mut().zip(state) {
            *held = chosen(good, new, held.clone());
        }
        chosen(good, moved, weights.clone())
    }

    /// Writes the state to the processor's buckets.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn download(&self, buckets: &mut [StateBucket]) -> Result<(), Error> {
        for ((pack, values), bucket) in self.places.iter().zip(&self.state).zip(buckets) {
            pack.unpack(&read(values.clone())?, &mut bucket.values);
        }
        Ok(())
    }
}
