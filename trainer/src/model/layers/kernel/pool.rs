//! The largest number of each window of an image.

use std::{ops::Range, sync::Arc};

use burn::{
    backend::flex::FlexTensor,
    tensor::{Tensor, module, ops::MaxPoolOptions},
};
use macerator::{AutoArch, Simd, WithSimd};

use super::{super::window::SlidingWindow, Kernel, Operand, apply, contiguous, shape, tensor};

/// The largest number of each window of `[rows, channels, height, width]`, the first of several;
/// NaN where there is one. The padding is no number. The gradient goes to the place of the largest
/// number.
pub(in super::super) fn largest(x: Tensor<4>, window: SlidingWindow) -> Tensor<4> {
    // Places in a window are kept in a byte each.
    let fits = u8::try_from(window.size * window.size - 1).is_ok();
    let Some(operand) = Operand::of(&x).filter(|_| fits) else {
        let options = MaxPoolOptions::new([window.size; 2])
            .with_stride([window.stride; 2])
            .with_padding([window.padding; 2]);
        return module::max_pool2d(x, options);
    };
    drop(x);
    apply(&Largest(window), [operand])
}

#[derive(Clone, Debug)]
struct Largest(SlidingWindow);

/// Positions of the largest numbers.
#[derive(Clone, Debug)]
struct Places {
    /// Number of the place in its window, row by row, for each output.
    in_window: Arc<[u8]>,
    /// Sizes of the input.
    of: [usize; 4],
}

impl Largest {
    /// Sides of a plane's output.
    const fn output(&self, height: usize, width: usize) -> [usize; 2] {
        [self.0.places(height), self.0.places(width)]
    }

    /// Returns true if each number is in one window of 2x2.
    const fn halves(&self) -> bool {
        self.0.size == 2 && self.0.stride == 2 && self.0.padding == 0
    }

    /// Places along a side of `side` that the window number `at` covers, and the first one's place in the window.
    fn covered(&self, at: usize, side: usize) -> (Range<usize>, usize) {
        let begin = at * self.0.stride;
        let end = (begin + self.0.size)
            .saturating_sub(self.0.padding)
            .min(side);
        let first = begin.saturating_sub(self.0.padding);
        (first..end, first + self.0.padding - begin)
    }

    fn plane(&self, x: &[f32], width: usize, values: &mut [f32], places: &mut [u8]) {
        let [height, size] = [x.len() / width, self.0.size];
        let [_, across] = self.output(height, width);
        for (i, (value, place)) in values.iter_mut().zip(places).enumerate() {
            let (rows, top) = self.covered(i / across, height);
            let (columns, left) = self.covered(i % across, width);
            *value = f32::NEG_INFINITY;
            for (row, down) in rows.zip(top..) {
                let line = &x[row * width..][columns.clone()];
                for (&number, right) in line.iter().zip(left..) {
                    if number > *value || number.is_nan() {
                        *value = number;
                        *place = (down * size + right).to_le_bytes()[0];
                    }
                }
            }
        }
    }

    fn plane_gradient(&self, gradient: &[f32], places: &[u8], width: usize, x: &mut [f32]) {
        let SlidingWindow {
            size,
            stride,
            padding,
        } = self.0;
        let [_, across] = self.output(x.len() / width, width);
        for (i, (gradient, &place)) in gradient.iter().zip(places).enumerate() {
            let (down, right) = (usize::from(place) / size, usize::from(place) % size);
            let row = i / across * stride + down;
            let column = i % across * stride + right;
            // A window of minus infinities only has no place, and its first may be in the padding.
            if let (Some(row), Some(column)) =
                (row.checked_sub(padding), column.checked_sub(padding))
            {
                x[row * width + column] += gradient;
            }
        }
    }
}

impl Kernel<1> for Largest {
    type Kept = Places;

    fn value(&self, [x]: [FlexTensor; 1]) -> (FlexTensor, Places) {
        let x = contiguous(x);
        let of @ [rows, channels, height, width] = shape(&x);
        let [down, across] = self.output(height, width);
        let mut values = vec![0.0; rows * channels * down * across];
        let mut in_window = vec![0; values.len()];
        let planes = x.storage::<f32>().chunks_exact(height * width);
        let outputs = values.chunks_exact_mut(down * across);
        let places = in_window.chunks_exact_mut(down * across);
        for ((x, values), places) in planes.zip(outputs).zip(places) {
            if self.halves() {
                AutoArch::new().dispatch(Halved {
                    x,
                    width,
                    values,
                    places,
                });
            } else {
                self.plane(x, width, values, places);
            }
        }
        let in_window = in_window.into();
        let value = tensor(values, [rows, channels, down, across]);
        (value, Places { in_window, of })
    }

    fn gradients(
        &self,
        kept: Places,
        gradient: FlexTensor,
        _: [bool; 1],
    ) -> [Option<FlexTensor>; 1] {
        let gradient = contiguous(gradient);
        let [rows, channels, height, width] = kept.of;
        let [down, across] = self.output(height, width);
        let mut x = vec![0.0; rows * channels * height * width];
        let planes = x.chunks_exact_mut(height * width);
        let gradients = gradient.storage::<f32>().chunks_exact(down * across);
        let places = kept.in_window.chunks_exact(down * across);
        for ((x, gradient), places) in planes.zip(gradients).zip(places) {
            if self.halves() {
                AutoArch::new().dispatch(HalvedGradient {
                    gradient,
                    places,
                    width,
                    x,
                });
            } else {
                self.plane_gradient(gradient, places, width, x);
            }
        }
        [Some(tensor(x, kept.of))]
    }
}

/// A plane by windows of 2x2, next to each other.
struct Halved<'a> {
    x: &'a [f32],
    width: usize,
    values: &'a mut [f32],
    places: &'a mut [u8],
}

impl WithSimd for Halved<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        let (width, across) = (self.width, self.width / 2);
        let outputs = self.values.chunks_exact_mut(across);
        let places = self.places.chunks_exact_mut(across);
        for ((lines, values), places) in self.x.chunks_exact(2 * width).zip(outputs).zip(places) {
            let (top, bottom) = lines.split_at(width);
            let top = top.as_chunks::<2>().0.iter();
            let bottom = bottom.as_chunks::<2>().0;
            for (((top, bottom), value), place) in top.zip(bottom).zip(values).zip(places) {
                let mut best = (top[0], 0);
                for (number, i) in [(top[1], 1), (bottom[0], 2), (bottom[1], 3)] {
                    best = if number > best.0 || number.is_nan() {
                        (number, i)
                    } else {
                        best
                    };
                }
                (*value, *place) = best;
            }
        }
    }
}

struct HalvedGradient<'a> {
    gradient: &'a [f32],
    places: &'a [u8],
    width: usize,
    x: &'a mut [f32],
}

impl WithSimd for HalvedGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        let (width, across) = (self.width, self.width / 2);
        let gradients = self.gradient.chunks_exact(across);
        let places = self.places.chunks_exact(across);
        let lines = self.x.chunks_exact_mut(2 * width);
        for ((lines, gradients), places) in lines.zip(gradients).zip(places) {
            let (top, bottom) = lines.split_at_mut(width);
            let top = top.as_chunks_mut::<2>().0.iter_mut();
            let bottom = bottom.as_chunks_mut::<2>().0;
            for (((top, bottom), &gradient), &place) in top.zip(bottom).zip(gradients).zip(places) {
                let at = |i: u8| if place == i { gradient } else { 0.0 };
                *top = [at(0), at(1)];
                *bottom = [at(2), at(3)];
            }
        }
    }
}
