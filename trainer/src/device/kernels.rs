//! Kernels of our own for what a step does besides the model: each takes the place of many operations of the tensor library.
//!
//! The thread that dispatches a step needs about as long for each kernel, small or large, and a GPU reads and writes memory for
//! each. Every function returns `None` where there is no such kernel: on the processor, and for tensors that are not
//! contiguous. Its caller then does the same by operations of the library, whose results differ by rounding only.
//!
//! Kernels bind at most eight buffers, one of them with their scalars: fewer adapters have more.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod launched;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod movement;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod packing;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod reduction;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod verdict;

#[cfg(test)]
mod tests;

use burn::tensor::Tensor;

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
pub(crate) use self::no_device::{adam, judge, length, momentum, pack, total};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use self::{
    movement::{adam, momentum},
    packing::pack,
    reduction::{length, total},
    verdict::judge,
};

/// Indices in the numbers of a step.
pub(crate) mod place {
    /// Sum of the losses.
    pub(crate) const LOSS: usize = 0;
    /// The same without label smoothing.
    pub(crate) const UNSMOOTHED: usize = 1;
    /// Norm of the computed gradient.
    pub(crate) const NORM: usize = 2;
    /// Sum of the observed values of the buffers.
    pub(crate) const BUFFERS: usize = 3;
    /// 1 where all of these are finite, and the step is taken; else 0.
    pub(crate) const GOOD: usize = 4;
    /// Factor of the gradient of the step.
    pub(crate) const SCALE: usize = 5;
    /// Numbers of a rank alone.
    pub(crate) const ALONE: usize = 6;
    /// Weight of the losses of all ranks.
    pub(crate) const WEIGHT: usize = 6;
    /// Number of ranks that are to stop.
    pub(crate) const STOPS: usize = 7;
    /// Numbers of several ranks.
    pub(crate) const OF_RANKS: usize = 8;
}

/// Numbers of a parameter in its settings: factor of the learning rate, weight decay times this factor, L2 and L1 penalty.
pub(crate) const SETTINGS: usize = 4;

/// Sums of a batch on a device, each `[1]`.
#[derive(Clone, Debug)]
pub(crate) struct JudgedSums {
    pub(crate) loss: Tensor<1>,
    pub(crate) unsmoothed: Tensor<1>,
    pub(crate) norm: Tensor<1>,
    pub(crate) buffers: Tensor<1>,
    /// Weight of the losses of several ranks, and the number of ranks that are to stop.
    pub(crate) of_ranks: Option<[Tensor<1>; 2]>,
}

/// Settings that the scale of a gradient follows from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GradientScale {
    /// Factor of a rank alone.
    pub(crate) factor: f32,
    /// Divisor that the gradient was computed with; with several ranks the factor is `nominal / weight / loss_scale`.
    pub(crate) nominal: f32,
    /// Scale of the loss.
    pub(crate) loss_scale: f32,
    /// Longest gradient; 0 for any length.
    pub(crate) clip_norm: f32,
}

/// A step of all parameters.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(any(feature = "cuda", feature = "wgpu")),
    expect(dead_code, reason = "the processor, the only device, needs no kernel")
)]
pub(crate) struct KernelStep<'a> {
    /// The gradient as it was computed.
    pub(crate) gradient: &'a Tensor<1>,
    /// Numbers of the step, by [`place`].
    pub(crate) numbers: &'a Tensor<1>,
    /// [`SETTINGS`] numbers for each [`ALIGNMENT`](crate::model::packed_bucket::ALIGNMENT) weights.
    pub(crate) settings: &'a Tensor<1>,
    pub(crate) weights: &'a Tensor<1>,
    /// The learning rate, without the factors of groups.
    pub(crate) rate: f32,
}

/// Constants of a step of Adam, in the precision of the weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdamConstants {
    pub(crate) beta1: f32,
    pub(crate) one_minus_beta1: f32,
    pub(crate) beta2: f32,
    pub(crate) one_minus_beta2: f32,
    pub(crate) epsilon: f32,
    pub(crate) first_scale: f32,
    pub(crate) second_root_scale: f32,
}

/// Constants of a step with momentum.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(any(feature = "cuda", feature = "wgpu")),
    expect(dead_code, reason = "the processor, the only device, needs no kernel")
)]
pub(crate) struct MomentumConstants {
    /// Share of the velocity that stays: 0 at the first step.
    pub(crate) kept: f32,
    /// Share of the gradient that is added to it.
    pub(crate) added: f32,
    /// Shares of gradient and velocity in the direction.
    pub(crate) of_gradient: f32,
    pub(crate) of_velocity: f32,
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
mod no_device {
    use burn::tensor::{Device, Tensor};

    use super::{AdamConstants, GradientScale, JudgedSums, KernelStep, MomentumConstants};
    use crate::model::packed_bucket::PlacedTensor;

    pub(crate) const fn adam(
        _of: KernelStep<'_>,
        _numbers: AdamConstants,
        _moments: [&Tensor<1>; 2],
    ) -> Option<Tensor<1>> {
        None
    }

    pub(crate) const fn momentum(
        _of: KernelStep<'_>,
        _numbers: MomentumConstants,
        _velocity: &Tensor<1>,
    ) -> Option<Tensor<1>> {
        None
    }

    pub(crate) const fn pack(
        _parts: &[PlacedTensor],
        _len: usize,
        _device: &Device,
    ) -> Option<Tensor<1>> {
        None
    }

    pub(crate) const fn length(_x: &Tensor<1>) -> Option<Tensor<1>> {
        None
    }

    pub(crate) const fn total(_x: &Tensor<1>) -> Option<Tensor<1>> {
        None
    }

    pub(crate) const fn judge(_sums: &JudgedSums, _of: GradientScale) -> Option<Tensor<1>> {
        None
    }
}
