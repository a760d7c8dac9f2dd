//! Optimizers over the parameters in the flat bucket; the buffers behind these are not theirs.
//!
//! An [`Optimizer`] is an [`Algorithm`] and its state: flat f32 buckets by name, which a checkpoint holds as they are.
//! Element-wise work is done in pieces on all threads, and sums are taken in f64 over pieces of a fixed size in a fixed
//! order, so the bits do not depend on the number of threads.
//!
//! The gradient that an algorithm sees is `scale * g + l2 * w + l1 * sign(w)`, with sign(0) = 0 and the scale of the
//! clipping. Decoupled decay multiplies the weights by `1 - rate * weight_decay` before the update, where the
//! algorithm's paper does not say otherwise. `rate` holds the schedule's multiplier and the group's factor.

mod adafactor;
mod adam;
mod lamb;
mod lars;
mod muon;
mod on_device;
mod settings;
mod sgd;
mod share;

use crate::number::single;
use std::{fmt::Debug, ops::Range};

use burn::tensor::Tensor;
use feedline_schemas::config::OptimizerConfig;

use self::on_device::DeviceUpdate;
pub(crate) use self::{
    muon::count_parameters,
    on_device::{DeviceOptimizer, chosen, length, total},
    settings::{check_groups, resolve},
    share::shares,
};
use crate::model::Parameter;

/// Elements one task updates; also the pieces of sums, so it is part of what a run computes.
const PIECE: usize = 1 << 14;

/// One kind of state of all parameters, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StateBucket {
    /// Name, such as `first_moment`.
    pub(crate) name: String,
    /// Values; 0 before the first step.
    pub(crate) values: Vec<f32>,
}

/// Name and length of each bucket of state, in the optimizer's order.
pub(crate) type StateLayout = Vec<(String, usize)>;

/// Rule that turns a gradient into an update.
trait Algorithm: Debug + Send + Sync {
    /// Names of the buckets of state, and how many elements of each a parameter has.
    fn state(&self, parameter: &Parameter) -> Vec<(&'static str, usize)>;

    /// Updates one parameter and its parts of the buckets, which come in the order of [`Algorithm::state`].
    fn step(&self, of: &Update<'_>, weights: &mut [f32], state: &mut [&mut [f32]]);

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
struct Update<'a> {
    /// Its gradient as the engine gave it.
    gradient: &'a [f32],
    /// Penalty added to the gradient.
    penalty: Penalty,
    shape: &'a [usize],
    /// Number of the step; the first is 1.
    step: u64,
    rate: f64,
    weight_decay: f64,
    /// True when the length of its updates may follow the length of its weights. That of biases and
    /// of the scales of norms does not: they start at 0 and 1.
    adapts: bool,
    /// True for a matrix inside the model.
    is_hidden: bool,
}

/// Makes the gradient that is meant of the one that was computed.
#[derive(Clone, Copy, Debug)]
struct Penalty {
    scale: f32,
    l2: f32,
    l1: f32,
}

impl Penalty {
    /// The gradient of the penalized loss at weight `w`.
    #[inline]
    fn gradient(self, g: f32, w: f32) -> f32 {
        let sign = f32::from(i8::from(w > 0.0) - i8::from(w < 0.0));
        g * self.scale + (self.l2 * w + self.l1 * sign)
    }
}

/// One parameter as the optimizer sees it.
#[derive(Clone, Debug)]
struct Member {
    range: Range<usize>,
    shape: Vec<usize>,
    adapts: bool,
    is_hidden: bool,
    rate_factor: f64,
    weight_decay: f64,
    l2: f64,
    l1: f64,
    /// Its part of each bucket of state.
    state: Vec<Range<usize>>,
}

/// An optimizer and its state.
#[derive(Debug)]
pub(crate) struct Optimizer {
    algorithm: Box<dyn Algorithm>,
    members: Vec<Member>,
    state: Vec<StateBucket>,
}

/// The state of an optimizer of these parameters. `config` is what [`resolve`] returned.
pub(crate) fn state_layout(config: &OptimizerConfig, parameters: &[Parameter]) -> StateLayout {
    let algorithm = settings::algorithm(config);
    let mut layout = StateLayout::new();
    for parameter in parameters {
        for (i, (name, len)) in algorithm.state(parameter).into_iter().enumerate() {
            match layout.get_mut(i) {
                Some((_, sum)) => *sum += len,
                None => layout.push((name.to_owned(), len)),
            }
        }
    }
    layout
}

/// The parameters as the optimizer sees them, with their parts of the state.
fn members(
    config: &OptimizerConfig,
    parameters: &[Parameter],
    algorithm: &dyn Algorithm,
) -> Vec<Member> {
    let mut ends: Vec<usize> = Vec::new();
    let members = parameters.iter().map(|parameter| {
        let lens = algorithm.state(parameter);
        ends.resize(lens.len(), 0);
        let take = |(end, (_, len)): (&mut usize, (_, usize))| {
            *end += len;
            *end - len..*end
        };
        let state = ends.iter_mut().zip(lens).map(take).collect();
        settings::member(config, parameter, state)
    });
    members.collect()
}

impl Optimizer {
    /// An optimizer of these parameters before its first step. `config` is what [`resolve`] returned.
    pub(crate) fn new(config: &OptimizerConfig, parameters: &[Parameter]) -> Self {
        let zeros = |(name, len)| StateBucket {
            name,
            values: vec![0.0; len],
        };
        let state = state_layout(config, parameters)
            .into_iter()
            .map(zeros)
            .collect();
        Self::resume(config, parameters, state)
    }

    /// An optimizer that continues from saved state.
    ///
    /// # Panics
    /// When the state is not of its [`state_layout`].
    pub(crate) fn resume(
        config: &OptimizerConfig,
        parameters: &[Parameter],
        state: Vec<StateBucket>,
    ) -> Self {
        let found = state.iter().map(|s| (s.name.clone(), s.values.len()));
        assert!(
            found.eq(state_layout(config, parameters)),
            "state has the optimizer's layout"
        );
        let algorithm = settings::algorithm(config);
        Self {
            members: members(config, parameters, &*algorithm),
            algorithm,
            state,
        }
    }

    /// The state after the last step.
    pub(crate) fn state(&self) -> &[StateBucket] {
        &self.state
    }

    /// Takes step number `step` (the first is 1) along `gradient * gradient_scale` with learning rate `rate`.
    ///
    /// # Panics
    /// When the buckets differ in length, or `step` is 0.
    pub(crate) fn step(
        &mut self,
        bucket: &mut [f32],
        gradient: &[f32],
        step: u64,
        rate: f64,
        gradient_scale: f64,
    ) {
        assert!(step > 0, "steps count from 1");
        let len = self.members.last().map_or(0, |member| member.range.end);
        assert!(
            bucket.len() == gradient.len() && bucket.len() >= len,
            "one bucket length"
        );
        for member in &self.members {
            let update = Update {
                gradient: &gradient[member.range.clone()],
                penalty: Penalty {
                    scale: single(gradient_scale),
                    l2: single(member.l2),
                    l1: single(member.l1),
                },
                shape: &member.shape,
                step,
                rate: rate * member.rate_factor,
                weight_decay: member.weight_decay,
                adapts: member.adapts,
                is_hidden: member.is_hidden,
            };
            let parts = self.state.iter_mut().zip(&member.state);
            let mut state: Vec<&mut [f32]> = parts
                .map(|(bucket, range)| &mut bucket.values[range.clone()])
                .collect();
            let weights = &mut bucket[member.range.clone()];
            self.algorithm.step(&update, weights, &mut state);
        }
    }
}

/// `of / by`, or 1 where one of them is 0.
fn trust_ratio(of: f64, by: f64) -> f64 {
    if of > 0.0 && by > 0.0 { of / by } else { 1.0 }
}

#[cfg(test)]
mod tests;
