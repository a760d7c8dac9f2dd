//! Rotation of queries and keys by the angles of their positions.

use burn::{backend::flex::FlexTensor, tensor::Tensor};
use macerator::{AutoArch, Simd, WithSimd};

use super::{Kernel, Operand, apply, contiguous, shape};

/// Rotates the first `heads * 2 * half` of the columns of `[rows, length, columns]`: number `i` of a head with number
/// `i + half`, by an angle whose cosines and sines are `[rows, length, half]`.
pub(in super::super) fn rotate(
    x: Tensor<3>,
    heads: usize,
    [cosines, sines]: [&Tensor<3>; 2],
) -> Tensor<3> {
    let plain = |x| Some(contiguous(Operand::of(x)?.into_plain()));
    match (Operand::of(&x), plain(cosines), plain(sines)) {
        (Some(of_x), Some(cosines), Some(sines)) => {
            // Memory without another owner is overwritten.
            drop(x);
            let rotation = Rotation {
                heads,
                cosines,
                sines,
            };
            apply(&rotation, [of_x])
        }
        _ => rotate_of_operations(x, heads, [cosines, sines]),
    }
}

/// The same by operations of the library.
fn rotate_of_operations(
    x: Tensor<3>,
    heads: usize,
    [cosines, sines]: [&Tensor<3>; 2],
) -> Tensor<3> {
    let [rows, length, columns] = x.dims();
    let half = cosines.dims()[2];
    let width = heads * 2 * half;
    let rotated = x.clone().narrow(2, 0, width);
    let rotated = rotated.reshape([rows, length, heads, 2 * half]);
    let [first, second] = [0, half].map(|begin| rotated.clone().narrow(3, begin, half));
    let [cosines, sines] = [cosines, sines].map(|of| of.clone().reshape([rows, length, 1, half]));
    let turned = [
        first.clone() * cosines.clone() - second.clone() * sines.clone(),
        second * cosines + first * sines,
    ];
    let turned = Tensor::cat(turned.to_vec(), 3).reshape([rows, length, width]);
    match columns - width {
        0 => turned,
        rest => Tensor::cat(vec![turned, x.narrow(2, width, rest)], 2),
    }
}

#[derive(Clone, Debug)]
struct Rotation {
    heads: usize,
    cosines: FlexTensor,
    sines: FlexTensor,
}

impl Rotation {
    /// `direction` is 1, or -1 for the way back.
    fn apply(&self, x: FlexTensor, direction: f32) -> FlexTensor {
        let mut x = contiguous(x);
        let [_, _, columns] = shape(&x);
        let [_, _, half] = shape(&self.cosines);
        AutoArch::new().dispatch(Rotate {
            values: x.storage_mut(),
            columns,
            heads: self.heads,
            half,
            cosines: self.cosines.storage(),
            sines: self.sines.storage(),
            direction,
        });
        x
    }
}

impl Kernel<1> for Rotation {
    type Kept = ();

    fn value(&self, [x]: [FlexTensor; 1]) -> (FlexTensor, ()) {
        (self.apply(x, 1.0), ())
    }

    /// A rotation keeps lengths, so the gradient is rotated back.
    fn gradients(&self, (): (), gradient: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        [Some(self.apply(gradient, -1.0))]
    }
}

struct Rotate<'a> {
    values: &'a mut [f32],
    columns: usize,
    heads: usize,
    half: usize,
    cosines: &'a [f32],
    sines: &'a [f32],
    direction: f32,
}

impl WithSimd for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        let half = self.half;
        let angles = self.cosines.chunks_exact(half);
        let angles = angles.zip(self.sines.chunks_exact(half));
        let places = self.values.chunks_exact_mut(self.columns);
        for (place, (cosines, sines)) in places.zip(angles) {
            for head in place.chunks_exact_mut(2 * half).take(self.heads) {
                let (first, second) = head.split_at_mut(half);
                let numbers = first.iter_mut().zip(second);
                for ((a, b), (cosine, sine)) in numbers.zip(cosines.iter().zip(sines)) {
                    let sine = self.direction * sine;
                    (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
                }
            }
        }
    }
}
