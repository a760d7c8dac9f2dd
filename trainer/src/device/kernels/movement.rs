//! Steps of optimizers whose numbers do not depend on each other, each in one kernel.
//!
//! State is updated in place, since nothing else refers to it. The moved weights are a tensor of their own: kernels that were
//! launched before may still read the old ones.

use burn::tensor::Tensor as DeviceTensor;
use cubecl::prelude::*;

use super::{
    AdamConstants, KernelStep, MomentumConstants, SETTINGS,
    launched::{self, CubeTensor},
    place,
};
use crate::model::packed_bucket::ALIGNMENT;

/// The weights after a step of Adam; updates `moments` in place.
pub(crate) fn adam(
    of: KernelStep<'_>,
    numbers: AdamConstants,
    moments: [&DeviceTensor<1>; 2],
) -> Option<DeviceTensor<1>> {
    let KernelArguments {
        tensors: [gradient, of_step, settings, weights],
        moved,
    } = KernelArguments::new(of)?;
    let [first, second] = [launched::of(moments[0])?, launched::of(moments[1])?];
    let (cubes, dim) = launched::threads(&moved, of.weights.dims()[0]);
    move_by_moments::launch(
        &moved.client,
        cubes,
        dim,
        gradient.into_tensor_arg(),
        of_step.into_tensor_arg(),
        settings.into_tensor_arg(),
        weights.into_tensor_arg(),
        moved.clone().into_tensor_arg(),
        first.into_tensor_arg(),
        second.into_tensor_arg(),
        of.rate,
        numbers.beta1,
        numbers.one_minus_beta1,
        numbers.beta2,
        numbers.one_minus_beta2,
        numbers.epsilon,
        numbers.first_scale,
        numbers.second_root_scale,
    );
    Some(launched::tensor(moved))
}

/// The weights after a step with momentum; updates `velocity` in place.
pub(crate) fn momentum(
    of: KernelStep<'_>,
    numbers: MomentumConstants,
    velocity: &DeviceTensor<1>,
) -> Option<DeviceTensor<1>> {
    let KernelArguments {
        tensors: [gradient, of_step, settings, weights],
        moved,
    } = KernelArguments::new(of)?;
    let velocity = launched::of(velocity)?;
    let (cubes, dim) = launched::threads(&moved, of.weights.dims()[0]);
    move_by_velocity::launch(
        &moved.client,
        cubes,
        dim,
        gradient.into_tensor_arg(),
        of_step.into_tensor_arg(),
        settings.into_tensor_arg(),
        weights.into_tensor_arg(),
        moved.clone().into_tensor_arg(),
        velocity.into_tensor_arg(),
        of.rate,
        numbers.kept,
        numbers.added,
        numbers.of_gradient,
        numbers.of_velocity,
    );
    Some(launched::tensor(moved))
}

/// Tensors that every step has.
struct KernelArguments {
    /// Gradient, numbers of the step, settings and weights.
    tensors: [CubeTensor; 4],
    moved: CubeTensor,
}

impl KernelArguments {
    fn new(of: KernelStep<'_>) -> Option<Self> {
        Some(Self {
            tensors: [
                launched::of(of.gradient)?,
                launched::of(of.numbers)?,
                launched::of(of.settings)?,
                launched::of(of.weights)?,
            ],
            moved: launched::empty(of.weights.dims()[0], &of.weights.device())?,
        })
    }
}

#[cube(launch)]
fn move_by_moments(
    gradient: &Tensor<f32>,
    of_step: &Tensor<f32>,
    of_parameters: &Tensor<f32>,
    weights: &Tensor<f32>,
    moved: &mut Tensor<f32>,
    first: &mut Tensor<f32>,
    second: &mut Tensor<f32>,
    rate: f32,
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    epsilon: f32,
    first_scale: f32,
    second_root_scale: f32,
) {
    if ABSOLUTE_POS >= moved.len() {
        terminate!();
    }
    let weight = weights[ABSOLUTE_POS];
    if of_step[comptime!(place::GOOD)] > 0.5 {
        let own = ABSOLUTE_POS / comptime!(ALIGNMENT) * comptime!(SETTINGS);
        let computed = gradient[ABSOLUTE_POS] * of_step[comptime!(place::SCALE)];
        let g = penalized(
            computed,
            weight,
            of_parameters[own + 2],
            of_parameters[own + 3],
        );
        let m = beta1 * first[ABSOLUTE_POS] + one_minus_beta1 * g;
        let v = beta2 * second[ABSOLUTE_POS] + one_minus_beta2 * (g * g);
        first[ABSOLUTE_POS] = m;
        second[ABSOLUTE_POS] = v;
        let direction = m / (v.sqrt() * second_root_scale + epsilon) * first_scale;
        moved[ABSOLUTE_POS] = against(
            weight,
            direction,
            of_parameters[own] * rate,
            of_parameters[own + 1] * rate,
        );
    } else {
        moved[ABSOLUTE_POS] = weight;
    }
}

#[cube(launch)]
fn move_by_velocity(
    gradient: &Tensor<f32>,
    of_step: &Tensor<f32>,
    of_parameters: &Tensor<f32>,
    weights: &Tensor<f32>,
    moved: &mut Tensor<f32>,
    velocity: &mut Tensor<f32>,
    rate: f32,
    kept: f32,
    added: f32,
    of_gradient: f32,
    of_velocity: f32,
) {
    if ABSOLUTE_POS >= moved.len() {
        terminate!();
    }
    let weight = weights[ABSOLUTE_POS];
    if of_step[comptime!(place::GOOD)] > 0.5 {
        let own = ABSOLUTE_POS / comptime!(ALIGNMENT) * comptime!(SETTINGS);
        let computed = gradient[ABSOLUTE_POS] * of_step[comptime!(place::SCALE)];
        let g = penalized(
            computed,
            weight,
            of_parameters[own + 2],
            of_parameters[own + 3],
        );
        let v = kept * velocity[ABSOLUTE_POS] + added * g;
        velocity[ABSOLUTE_POS] = v;
        let direction = of_gradient * g + of_velocity * v;
        moved[ABSOLUTE_POS] = against(
            weight,
            direction,
            of_parameters[own] * rate,
            of_parameters[own + 1] * rate,
        );
    } else {
        moved[ABSOLUTE_POS] = weight;
    }
}

/// The gradient of the penalized loss.
#[cube]
fn penalized(gradient: f32, weight: f32, l2: f32, l1: f32) -> f32 {
    let positive = select(weight > 0.0, l1, 0.0);
    let sign = select(weight < 0.0, -l1, positive);
    gradient + (l2 * weight + sign)
}

/// The weight after decay and a step against a direction.
#[cube]
fn against(weight: f32, direction: f32, rate: f32, decay: f32) -> f32 {
    weight - weight * decay - direction * rate
}
