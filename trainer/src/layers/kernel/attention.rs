//! Attention of all heads, from queries, keys and values stored beside each other.
//!
//! Matrix products read each head in place; only scores, which become probabilities in place, and
//! the outputs of each head are written.

use burn::{
    backend::{
        Flex,
        flex::{FlexTensor, Layout},
        ops::FloatTensorOps,
    },
    tensor::{DType, Tensor},
};
use macerator::{AutoArch, Simd, WithSimd};

use super::{
    Kernel, Operand, apply, contiguous,
    math::{exp, sum, sum_of_products},
    shape, tensor,
};
use crate::number::{exact_len, single};

/// `softmax(q k^T / sqrt(width / heads) + mask) v` in each head, joined: `[rows, length, 3 width]`, which hold queries, keys
/// and values in this order, to `[rows, length, width]`. The mask is `[rows or 1, 1, length, length]`; each position sees
/// at least one.
///
/// `None` for what is left to the library.
pub(in super::super) fn attend(
    qkv: &Tensor<3>,
    heads: usize,
    mask: Option<&Tensor<4>>,
) -> Option<Tensor<3>> {
    let mask = match mask {
        Some(mask) => Some(contiguous(Operand::of(mask)?.into_plain())),
        None => None,
    };
    Some(apply(&Attention { heads, mask }, [Operand::of(qkv)?]))
}

#[derive(Clone, Debug)]
struct Attention {
    heads: usize,
    mask: Option<FlexTensor>,
}

impl Attention {
    fn scale(&self, width: usize) -> f32 {
        single(1.0 / exact_len(width / self.heads).sqrt())
    }

    /// Heads of some of the `width` columns of `[rows, length, columns]`, from `first` on, as
    /// `[rows, heads, length, width / heads]`.
    fn heads(&self, x: &FlexTensor, first: usize, width: usize) -> FlexTensor {
        let [rows, length, columns] = shape(x);
        let inside = width / self.heads;
        let strides = [length * columns, inside, columns, 1].map(usize::cast_signed);
        let shape = [rows, self.heads, length, inside].into();
        let layout = Layout::new(shape, strides.to_vec(), first);
        FlexTensor::from_arc(x.data_arc(), layout, DType::F32)
    }

    /// Copies `[rows, heads, length, inside]` to some columns of `[rows, length, columns]`, from `first` on.
    fn join(&self, from: &FlexTensor, to: &mut [f32], first: usize, columns: usize) {
        let [_, heads, length, inside] = shape(from);
        for (i, numbers) in from.storage::<f32>().chunks_exact(inside).enumerate() {
            let (row, head, place) = (i / length / heads, i / length % heads, i % length);
            let begin = (row * length + place) * columns + first + head * inside;
            to[begin..begin + inside].copy_from_slice(numbers);
        }
    }
}

impl Kernel<1> for Attention {
    /// The input and the probabilities.
    type Kept = [FlexTensor; 2];

    fn value(&self, [qkv]: [FlexTensor; 1]) -> (FlexTensor, [FlexTensor; 2]) {
        let qkv = contiguous(qkv);
        let [rows, length, columns] = shape(&qkv);
        let width = columns / 3;
        let [q, k, v] = [0, 1, 2].map(|i| self.heads(&qkv, i * width, width));
        let mut scores = Flex::float_matmul(q, Flex::float_swap_dims(k, 2, 3));
        AutoArch::new().dispatch(Softmax {
            scores: scores.storage_mut(),
            length,
            of_row: self.heads * length * length,
            scale: self.scale(width),
            mask: self.mask.as_ref().map(FlexTensor::storage),
        });
        let seen = Flex::float_matmul(scores.clone(), v);
        let mut joined = vec![0.0; rows * length * width];
        self.join(&seen, &mut joined, 0, width);
        (tensor(joined, [rows, length, width]), [qkv, scores])
    }

    fn gradients(
        &self,
        [qkv, probabilities]: [FlexTensor; 2],
        gradient: FlexTensor,
        _: [bool; 1],
    ) -> [Option<FlexTensor>; 1] {
        let gradient = contiguous(gradient);
        let [rows, length, columns] = shape(&qkv);
        let width = columns / 3;
        let [q, k, v] = [0, 1, 2].map(|i| self.heads(&qkv, i * width, width));
        let of_seen = self.heads(&gradient, 0, width);
        let turned = |x: &FlexTensor| Flex::float_swap_dims(x.clone(), 2, 3);
        let of_v = Flex::float_matmul(turned(&probabilities), of_seen.clone());
        let mut of_scores = Flex::float_matmul(of_seen, turned(&v));
        AutoArch::new().dispatch(SoftmaxGradient {
            probabilities: probabilities.storage(),
            gradient: of_scores.storage_mut(),
            length,
            scale: self.scale(width),
        });
        let of_k = Flex::float_matmul(turned(&of_scores), q);
        let of_q = Flex::float_matmul(of_scores, k);
        let mut joined = vec![0.0; rows * length * columns];
        for (i, part) in [of_q, of_k, of_v].iter().enumerate() {
            self.join(part, &mut joined, i * width, columns);
        }
        [Some(tensor(joined, [rows, length, columns]))]
    }
}

/// `softmax(scale * scores + mask)` of each `length` numbers.
struct Softmax<'a> {
    scores: &'a mut [f32],
    length: usize,
    /// Scores of a row of the batch, which share a mask.
    of_row: usize,
    scale: f32,
    mask: Option<&'a [f32]>,
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        let (length, square) = (self.length, self.length * self.length);
        for (row, scores) in self.scores.chunks_exact_mut(self.of_row).enumerate() {
            let mask = self.mask.map(|mask| {
                let first = if mask.len() == square {
                    0
                } else {
                    row * square
                };
                &mask[first..first + square]
            });
            for (i, scores) in scores.chunks_exact_mut(length).enumerate() {
                for score in &mut *scores {
                    *score *= self.scale;
                }
                if let Some(mask) = mask {
                    let mask = &mask[i % length * length..][..length];
                    for (score, mask) in scores.iter_mut().zip(mask) {
                        *score += mask;
                    }
                }
                let most = |most: f32, &x: &f32| if x > most { x } else { most };
                let largest = scores.iter().fold(f32::NEG_INFINITY, most);
                for score in &mut *scores {
                    let below = *score - largest;
                    // What is masked is 0, not nearly so.
                    *score = if below < -86.0 { 0.0 } else { exp(below) };
                }
                let share = 1.0 / sum(scores);
                for score in scores {
                    *score *= share;
                }
            }
        }
    }
}

/// `scale * p * (g - sum(p g))` of each `length` numbers, in place of `g`.
struct SoftmaxGradient<'a> {
    probabilities: &'a [f32],
    gradient: &'a mut [f32],
    length: usize,
    scale: f32,
}

impl WithSimd for SoftmaxGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        let probabilities = self.probabilities.chunks_exact(self.length);
        for (gradient, p) in self
            .gradient
            .chunks_exact_mut(self.length)
            .zip(probabilities)
        {
            let mean = sum_of_products(p, gradient);
            for (gradient, p) in gradient.iter_mut().zip(p) {
                *gradient = self.scale * p * (*gradient - mean);
            }
        }
    }
}
