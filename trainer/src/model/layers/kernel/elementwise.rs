//! Functions of each number by itself.

use std::{fmt::Debug, marker::PhantomData};

use burn::{
    backend::flex::FlexTensor,
    tensor::{Tensor, activation},
};
use macerator::{AutoArch, Simd, WithSimd};

use super::{
    Kernel, Operand, apply, contiguous,
    math::{erf, exp, sigmoid},
};

/// `x Φ(x)`.
pub(in super::super) fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    of_each::<Gelu, D>(x, gelu_of_operations)
}

/// The same by operations of the library. Its own function has the gradient of another, the approximation by a hyperbolic
/// tangent, which differs by 2e-4.
fn gelu_of_operations<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let share = (x.clone() * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0;
    x * share * 0.5
}

/// `max(x, 0)`; NaN for NaN.
pub(in super::super) fn relu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    of_each::<Relu, D>(x, activation::relu)
}

/// `x sigmoid(x)`.
pub(in super::super) fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    of_each::<Silu, D>(x, activation::silu)
}

fn of_each<F: Function, const D: usize>(
    x: Tensor<D>,
    library: fn(Tensor<D>) -> Tensor<D>,
) -> Tensor<D> {
    let Some(operand) = Operand::of(&x) else {
        return library(x);
    };
    // Memory without another owner is overwritten.
    drop(x);
    apply(&OfEach::<F>(PhantomData), [operand])
}

/// A function of a number.
trait Function: Clone + Debug + Send + 'static {
    /// True when the gradient is computed from the value rather than from the argument.
    const FROM_VALUE: bool;

    fn value(x: f32) -> f32;

    /// The gradient of the argument, from what is kept and the gradient of the value.
    fn gradient(kept: f32, gradient: f32) -> f32;
}

#[derive(Clone, Debug)]
struct Gelu;

impl Function for Gelu {
    const FROM_VALUE: bool = false;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
    }

    /// `Φ(x) + x φ(x)`.
    #[inline(always)]
    fn gradient(x: f32, gradient: f32) -> f32 {
        const INVERSE_ROOT_2_PI: f32 = 0.398_942_3;
        let below = 0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2));
        let density = INVERSE_ROOT_2_PI * exp(-0.5 * x * x);
        gradient * (below + x * density)
    }
}

#[derive(Clone, Debug)]
struct Relu;

impl Function for Relu {
    const FROM_VALUE: bool = true;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        if x <= 0.0 { 0.0 } else { x }
    }

    #[inline(always)]
    fn gradient(value: f32, gradient: f32) -> f32 {
        if value <= 0.0 { 0.0 } else { gradient }
    }
}

#[derive(Clone, Debug)]
struct Silu;

impl Function for Silu {
    const FROM_VALUE: bool = false;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * sigmoid(x)
    }

    #[inline(always)]
    fn gradient(x: f32, gradient: f32) -> f32 {
        let s = sigmoid(x);
        gradient * s * (1.0 + x * (1.0 - s))
    }
}

#[derive(Clone, Debug)]
struct OfEach<F>(PhantomData<F>);

impl<F: Function> Kernel<1> for OfEach<F> {
    /// The argument or the value.
    type Kept = FlexTensor;

    fn value(&self, [x]: [FlexTensor; 1]) -> (FlexTensor, FlexTensor) {
        let x = contiguous(x);
        let kept = (!F::FROM_VALUE).then(|| x.clone());
        let mut value = x;
        // Copies where the argument is kept.
        AutoArch::new().dispatch(ElementwiseValues::<F>(value.storage_mut(), PhantomData));
        let kept = kept.unwrap_or_else(|| value.clone());
        (value, kept)
    }

    fn gradients(
        &self,
        kept: FlexTensor,
        gradient: FlexTensor,
        _: [bool; 1],
    ) -> [Option<FlexTensor>; 1] {
        let mut gradient = contiguous(gradient);
        let work = Gradients::<F>(kept.storage(), gradient.storage_mut(), PhantomData);
        AutoArch::new().dispatch(work);
        [Some(gradient)]
    }
}

struct ElementwiseValues<'a, F>(&'a mut [f32], PhantomData<F>);

impl<F: Function> WithSimd for ElementwiseValues<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        for x in self.0 {
            *x = F::value(*x);
        }
    }
}

struct Gradients<'a, F>(&'a [f32], &'a mut [f32], PhantomData<F>);

impl<F: Function> WithSimd for Gradients<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        for (gradient, &kept) in self.1.iter_mut().zip(self.0) {
            *gradient = F::gradient(kept, *gradient);
        }
    }
}
