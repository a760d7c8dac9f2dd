//! Decision whether a step is taken, and the scale of its gradient.

use burn::tensor::Tensor as DeviceTensor;
use cubecl::prelude::*;

use super::{GradientScale, JudgedSums, launched, place};

/// The numbers of a step, by [`place`].
pub(crate) fn judge(sums: &JudgedSums, of: GradientScale) -> Option<DeviceTensor<1>> {
    let JudgedSums {
        loss,
        unsmoothed,
        norm,
        buffers,
        of_ranks,
    } = sums;
    let has_ranks = of_ranks.is_some();
    let len = if has_ranks {
        place::OF_RANKS
    } else {
        place::ALONE
    };
    let numbers = launched::empty(len, &loss.device())?;
    let [weight, stops] = of_ranks
        .as_ref()
        .map_or([loss, loss], |[weight, stops]| [weight, stops]);
    let (cubes, dim) = launched::threads(&numbers, 1);
    judge_step::launch(
        &numbers.client,
        cubes,
        dim,
        launched::of(loss)?.into_tensor_arg(),
        launched::of(unsmoothed)?.into_tensor_arg(),
        launched::of(norm)?.into_tensor_arg(),
        launched::of(buffers)?.into_tensor_arg(),
        launched::of(weight)?.into_tensor_arg(),
        launched::of(stops)?.into_tensor_arg(),
        numbers.clone().into_tensor_arg(),
        of.factor,
        of.nominal,
        of.loss_scale,
        of.clip_norm,
        has_ranks,
    );
    Some(launched::tensor(numbers))
}

#[cube(launch)]
fn judge_step(
    loss: &Tensor<f32>,
    unsmoothed: &Tensor<f32>,
    norm: &Tensor<f32>,
    buffers: &Tensor<f32>,
    weight: &Tensor<f32>,
    stops: &Tensor<f32>,
    numbers: &mut Tensor<f32>,
    factor: f32,
    nominal: f32,
    loss_scale: f32,
    clip_norm: f32,
    #[comptime] has_ranks: bool,
) {
    if ABSOLUTE_POS >= 1 {
        terminate!();
    }
    let mut scale = factor;
    if comptime!(has_ranks) {
        scale = 1.0 / loss_scale;
        if weight[0] > 0.0 {
            scale = nominal / weight[0] / loss_scale;
        }
        numbers[comptime!(place::WEIGHT)] = weight[0];
        numbers[comptime!(place::STOPS)] = stops[0];
    }
    let length = norm[0] * scale;
    if clip_norm > 0.0 && length > clip_norm {
        scale *= clip_norm / length;
    }
    let is_bad = is_not_finite(loss[0]) || is_not_finite(norm[0]) || is_not_finite(buffers[0]);
    numbers[comptime!(place::LOSS)] = loss[0];
    numbers[comptime!(place::UNSMOOTHED)] = unsmoothed[0];
    numbers[comptime!(place::NORM)] = norm[0];
    numbers[comptime!(place::BUFFERS)] = buffers[0];
    numbers[comptime!(place::GOOD)] = select(is_bad, 0.0, 1.0);
    numbers[comptime!(place::SCALE)] = scale;
}

/// True for infinities and what is no number, by the bits: a compiler may take a comparison for false.
#[cube]
fn is_not_finite(x: f32) -> bool {
    (u32::reinterpret(x) & 0x7F80_0000_u32) == 0x7F80_0000_u32
}
