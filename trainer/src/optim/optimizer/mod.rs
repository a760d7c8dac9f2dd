//! Optimizers over the parameters in the flat bucket; the buffers behind these are not theirs.
//!
//! An [`Optimizer`] is an [`Algorithm`](algorithm::Algorithm) and its state: flat f32 buckets by name, which a checkpoint holds as they are.
//! Element-wise work is done in pieces on all threads, and sums are taken in f64 over pieces of a fixed size in a fixed
//! order, so the bits do not depend on the number of threads.
//!
//! The gradient that an algorithm sees is `scale * g + l2 * w + l1 * sign(w)`, with sign(0) = 0 and the scale of the
//! clipping. Decoupled decay multiplies the weights by `1 - rate * weight_decay` before the update, where the
//! algorithm's paper does not say otherwise. `rate` holds the schedule's multiplier and the group's factor.

mod adafactor;
mod adam;
mod algorithm;
mod device_sums;
mod lamb;
mod lars;
mod muon;
mod on_device;
mod on_processor;
mod selection;
mod settings;
mod sgd;
mod share;
mod state;
mod verdict;

pub(crate) use self::{
    device_sums::{chosen, length, total},
    muon::count_parameters,
    on_device::DeviceOptimizer,
    on_processor::Optimizer,
    selection::state_layout,
    settings::{check_groups, resolve},
    share::shares,
    state::{StateBucket, StateLayout},
    verdict::StepVerdict,
};

#[cfg(test)]
mod tests;
