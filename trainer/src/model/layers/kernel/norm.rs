//! Layer norm and root-mean-square norm.

use std::sync::Arc;

use burn::{
    backend::flex::FlexTensor,
    tensor::{Tensor, module},
};
use macerator::{AutoArch, Simd, WithSimd};

use super::{
    Kernel, Operand, apply, contiguous,
    math::{sum, sum_of_products},
    shape, tensor,
};
use crate::float_casts::{exact_len, single};

/// `(x - mean) / sqrt(variance + epsilon) * scale + shift` of each `width` numbers, `[.., width]`; scale and shift are
/// `[width]`.
pub(in super::super) fn layer_norm<const D: usize>(
    x: Tensor<D>,
    [scale, shift]: [Tensor<1>; 2],
    epsilon: f64,
) -> Tensor<D> {
    match (Operand::of(&x), Operand::of(&scale), Operand::of(&shift)) {
        (Some(of_x), Some(scale), Some(shift)) => {
            drop(x);
            let epsilon = single(epsilon);
            apply(&LayerNorm { epsilon }, [of_x, scale, shift])
        }
        _ => module::layer_norm(x, scale, Some(shift), epsilon),
    }
}

/// `x / sqrt(mean(x^2) + epsilon) * scale` of each `width` numbers, `[.., width]`; the scale is `[width]`.
pub(in super::super) fn rms_norm<const D: usize>(
    x: Tensor<D>,
    scale: Tensor<1>,
    epsilon: f64,
) -> Tensor<D> {
    match (Operand::of(&x), Operand::of(&scale)) {
        (Some(of_x), Some(scale)) => {
            drop(x);
            let epsilon = single(epsilon);
            apply(&RmsNorm { epsilon }, [of_x, scale])
        }
        _ => {
            let mut sizes = [1; D];
            sizes[D - 1] = scale.dims()[0];
            let square = (x.clone() * x.clone()).mean_dim(D - 1);
            x / (square + epsilon).sqrt() * scale.reshape(sizes)
        }
    }
}

#[derive(Clone, Debug)]
struct RmsNorm {
    epsilon: f32,
}

impl Kernel<2> for RmsNorm {
    /// The input, the scale, and the inverse root of each row.
    type Kept = (FlexTensor, FlexTensor, Arc<[f32]>);

    fn value(&self, inputs: [FlexTensor; 2]) -> (FlexTensor, Self::Kept) {
        let [x, scale] = inputs.map(contiguous);
        let [width] = shape(&scale);
        let mut value = x.clone();
        let inverses = AutoArch::new().dispatch(RootMeanSquare {
            values: value.storage_mut(),
            scale: scale.storage(),
            share: single(1.0 / exact_len(width)),
            epsilon: self.epsilon,
        });
        (value, (x, scale, inverses.into()))
    }

    fn gradients(
        &self,
        (x, scale, inverses): Self::Kept,
        gradient: FlexTensor,
        _: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        let mut gradient = contiguous(gradient);
        let [width] = shape(&scale);
        let mut of_scale = vec![0.0; width];
        AutoArch::new().dispatch(RootMeanSquareGradient {
            x: x.storage(),
            scale: scale.storage(),
            inverses: &inverses,
            gradient: gradient.storage_mut(),
            of_scale: &mut of_scale,
            share: single(1.0 / exact_len(width)),
        });
        [Some(gradient), Some(tensor(of_scale, [width]))]
    }
}

/// Overwrites rows by the normalized ones. Returns the inverse root of each.
struct RootMeanSquare<'a> {
    values: &'a mut [f32],
    scale: &'a [f32],
    /// `1 / width`.
    share: f32,
    epsilon: f32,
}

impl WithSimd for RootMeanSquare<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self) -> Vec<f32> {
        let width = self.scale.len();
        let mut inverses = Vec::with_capacity(self.values.len() / width);
        for row in self.values.chunks_exact_mut(width) {
            let square = sum_of_products(row, row) * self.share;
            let inverse = 1.0 / (square + self.epsilon).sqrt();
            for (value, scale) in row.iter_mut().zip(self.scale) {
                *value = *value * inverse * scale;
            }
            inverses.push(inverse);
        }
        inverses
    }
}

/// With `n` the normalized numbers and `t = g * scale`: `(t - n mean(t n)) * inverse` in place of `g`; and the sum over rows
/// of `g n`.
struct RootMeanSquareGradient<'a> {
    x: &'a [f32],
    scale: &'a [f32],
    inverses: &'a [f32],
    gradient: &'a mut [f32],
    of_scale: &'a mut [f32],
    /// `1 / width`.
    share: f32,
}

impl WithSimd for RootMeanSquareGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        let width = self.scale.len();
        let rows = self.x.chunks_exact(width).zip(self.inverses);
        for ((x, &inverse), gradient) in rows.zip(self.gradient.chunks_exact_mut(width)) {
            for ((sum, g), x) in self.of_scale.iter_mut().zip(&*gradient).zip(x) {
                *sum += g * (x * inverse);
            }
            for (g, scale) in gradient.iter_mut().zip(self.scale) {
                *g *= scale;
            }
            let of_normed = sum_of_products(gradient, x) * inverse * self.share;
            for (g, x) in gradient.iter_mut().zip(x) {
                *g = inverse * (*g - x * inverse * of_normed);
            }
        }
    }
}

#[derive(Clone, Debug)]
struct LayerNorm {
    epsilon: f32,
}

/// Values that the gradients are computed from.
#[derive(Clone, Debug)]
struct NormValues {
    x: FlexTensor,
    scale: FlexTensor,
    /// Mean and inverse deviation of each row.
    statistics: Arc<[[f32; 2]]>,
}

impl Kernel<3> for LayerNorm {
    type Kept = NormValues;

    fn value(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, NormValues) {
        let [x, scale, shift] = inputs.map(contiguous);
        let [width] = shape(&scale);
        let mut value = x.clone();
        let statistics = AutoArch::new().dispatch(Norm {
            values: value.storage_mut(),
            scale: scale.storage(),
            shift: shift.storage(),
            share: single(1.0 / exact_len(width)),
            epsilon: self.epsilon,
        });
        let statistics = statistics.into();
        let kept = NormValues {
            x,
            scale,
            statistics,
        };
        (value, kept)
    }

    fn gradients(
        &self,
        kept: NormValues,
        gradient: FlexTensor,
        _: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let mut gradient = contiguous(gradient);
        let [width] = shape(&kept.scale);
        let [mut of_scale, mut of_shift] = [(); 2].map(|()| vec![0.0; width]);
        AutoArch::new().dispatch(NormGradient {
            kept: &kept,
            gradient: gradient.storage_mut(),
            normed: &mut vec![0.0; width],
            of_scale: &mut of_scale,
            of_shift: &mut of_shift,
            share: single(1.0 / exact_len(width)),
        });
        let [of_scale, of_shift] = [of_scale, of_shift].map(|sums| tensor(sums, [width]));
        [Some(gradient), Some(of_scale), Some(of_shift)]
    }
}

/// Overwrites rows by what comes out, and gives their statistics.
struct Norm<'a> {
    values: &'a mut [f32],
    scale: &'a [f32],
    shift: &'a [f32],
    /// `1 / width`.
    share: f32,
    epsilon: f32,
}

impl WithSimd for Norm<'_> {
    type Output = Vec<[f32; 2]>;

    #[inline(always)]
    fn with_simd<S: Simd>(self) -> Vec<[f32; 2]> {
        let width = self.scale.len();
        let mut statistics = Vec::with_capacity(self.values.len() / width);
        for row in self.values.chunks_exact_mut(width) {
            let mean = sum(row) * self.share;
            for value in &mut *row {
                *value -= mean;
            }
            let variance = sum_of_products(row, row) * self.share;
            let inverse = 1.0 / (variance + self.epsilon).sqrt();
            for ((value, scale), shift) in row.iter_mut().zip(self.scale).zip(self.shift) {
                *value = *value * inverse * scale + shift;
            }
            statistics.push([mean, inverse]);
        }
        statistics
    }
}

/// With `n` the normed numbers and `t = g * scale`: `(t - mean(t) - n mean(t n)) / deviation` in place of `g`; and the sums
/// over rows of `g n` and of `g`.
struct NormGradient<'a> {
    kept: &'a NormValues,
    gradient: &'a mut [f32],
    /// Memory of a row.
    normed: &'a mut [f32],
    of_scale: &'a mut [f32],
    of_shift: &'a mut [f32],
    /// `1 / width`.
    share: f32,
}

impl WithSimd for NormGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        let scale: &[f32] = self.kept.scale.storage();
        let (width, normed) = (scale.len(), self.normed);
        let rows = self.kept.x.storage::<f32>().chunks_exact(width);
        let gradients = self.gradient.chunks_exact_mut(width);
        for ((x, gradient), [mean, inverse]) in rows.zip(gradients).zip(&*self.kept.statistics) {
            for (normed, x) in normed.iter_mut().zip(x) {
                *normed = (x - mean) * inverse;
            }
            for ((sum, g), normed) in self.of_scale.iter_mut().zip(&*gradient).zip(&*normed) {
                *sum += g * normed;
            }
            for (sum, g) in self.of_shift.iter_mut().zip(&*gradient) {
                *sum += g;
            }
            for (g, scale) in gradient.iter_mut().zip(scale) {
                *g *= scale;
            }
            let of_mean = sum(gradient) * self.share;
            let of_normed = sum_of_products(gradient, normed) * self.share;
            for (g, normed) in gradient.iter_mut().zip(&*normed) {
                *g = inverse * (*g - of_mean - normed * of_normed);
            }
        }
    }
}
