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
use crate::float_casts::{exact_len, single};

/// `softmax(q k^T / sqrt(inside) + mask) v` in each of the heads, joined: `[rows, length, (heads + 2 kv_heads) inside]`,
/// which hold queries, keys and values in this order, to `[rows, length, heads inside]`. `heads` and `kv_heads` are the numbers
/// of heads of queries, and of keys and values, which equal groups of queries share. The mask is
/// `[rows or 1, 1, length, length]`; each position sees at least one.
///
/// # Errors
/// The input, unchanged, where the library has to compute it.
#[expect(
    clippy::result_large_err,
    reason = "the input is given back as it came"
)]
pub(in super::super) fn attend(
    qkv: Tensor<3>,
    [heads, kv_heads]: [usize; 2],
    mask: Option<&Tensor<4>>,
) -> Result<Tensor<3>, Tensor<3>> {
    let mask = mask.map(|mask| Operand::of(mask).map(Operand::into_plain));
    match (Operand::of(&qkv), mask) {
        (Some(operand), mask @ (None | Some(Some(_)))) => {
            // Memory without another owner is overwritten.
            drop(qkv);
            let mask = mask.flatten().map(contiguous);
            Ok(apply(
                &Attention {
                    heads,
                    kv_heads,
                    mask,
                },
                [operand],
            ))
        }
        _ => Err(qkv),
    }
}

#[derive(Clone, Debug)]
struct Attention {
    heads: usize,
    kv_heads: usize,
    mask: Option<FlexTensor>,
}

/// Columns of queries, keys or values.
#[derive(Clone, Copy)]
struct HeadColumns {
    first: usize,
    heads: usize,
}

impl Attention {
    /// Numbers in a head of `columns`.
    fn inside(&self, columns: usize) -> usize {
        columns / (self.heads + 2 * self.kv_heads)
    }

    /// Queries, keys and values.
    fn parts(&self, inside: usize) -> [HeadColumns; 3] {
        let of = |before, heads| HeadColumns {
            first: before * inside,
            heads,
        };
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        [
            of(0, heads),
            of(heads, kv_heads),
            of(heads + kv_heads, kv_heads),
        ]
    }

    /// Some columns of `[rows, length, columns]` as `[rows, kv_heads, heads / kv_heads, length, inside]`.
    fn split(&self, x: &FlexTensor, of: HeadColumns, inside: usize) -> FlexTensor {
        let [rows, length, columns] = shape(x);
        let group = of.heads / self.kv_heads;
        let strides = [length * columns, group * inside, inside, columns, 1];
        let shape = [rows, self.kv_heads, group, length, inside].into();
        let strides = strides.map(usize::cast_signed).to_vec();
        let layout = Layout::new(shape, strides, of.first);
        FlexTensor::from_arc(x.data_arc(), layout, DType::F32)
    }
}

/// Copies `[rows, kv_heads, group, length, inside]` to some columns of `[rows, length, columns]`.
fn join(from: &FlexTensor, to: &mut [f32], of: HeadColumns, columns: usize) {
    let [_, _, _, length, inside] = shape(from);
    for (i, numbers) in from.storage::<f32>().chunks_exact(inside).enumerate() {
        let (head, place) = (i / length, i % length);
        let (row, head) = (head / of.heads, head % of.heads);
        let begin = (row * length + place) * columns + of.first + head * inside;
        to[begin..begin + inside].copy_from_slice(numbers);
    }
}

impl Kernel<1> for Attention {
    /// The input and the probabilities.
    type Kept = [FlexTensor; 2];

    fn value(&self, [qkv]: [FlexTensor; 1]) -> (FlexTensor, [FlexTensor; 2]) {
        let qkv = contiguous(qkv);
        let [rows, length, columns] = shape(&qkv);
        let inside = self.inside(columns);
        let [of_q, of_k, of_v] = self.parts(inside);
        let [q, k, v] = [of_q, of_k, of_v].map(|of| self.split(&qkv, of, inside));
        let mut scores = Flex::float_matmul(q, Flex::float_swap_dims(k, 3, 4));
        AutoArch::new().dispatch(Softmax {
            scores: scores.storage_mut(),
            length,
            of_row: self.heads * length * length,
            scale: scale(inside),
            mask: self.mask.as_ref().map(FlexTensor::storage),
        });
        let seen = Flex::float_matmul(scores.clone(), v);
        let width = self.heads * inside;
        let mut joined = vec![0.0; rows * length * width];
        join(&seen, &mut joined, of_q, width);
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
        let inside = self.inside(columns);
        let parts = self.parts(inside);
        let [q, k, v] = parts.map(|of| self.split(&qkv, of, inside));
        let of_seen = self.split(&gradient, parts[0], inside);
        let turned = |x: &FlexTensor| Flex::float_swap_dims(x.clone(), 3, 4);
        let of_v = Flex::float_matmul(turned(&probabilities), of_seen.clone());
        let mut of_scores = Flex::float_matmul(of_seen, turned(&v));
        AutoArch::new().dispatch(SoftmaxGradient {
            probabilities: probabilities.storage(),
            gradient: of_scores.storage_mut(),
            length,
            scale: scale(inside),
        });
        let of_k = Flex::float_matmul(turned(&of_scores), q);
        let of_q = Flex::float_matmul(of_scores, k);
        // Keys and values that several heads of queries share have the sum of their gradients.
        let shared = |x: FlexTensor| match self.heads == self.kv_heads {
            true => x,
            false => Flex::float_sum_dim(x, 2),
        };
        let mut joined = vec![0.0; rows * length * columns];
        for (of, part) in parts.into_iter().zip([of_q, shared(of_k), shared(of_v)]) {
            join(&part, &mut joined, of, columns);
        }
        [Some(tensor(joined, [rows, length, columns]))]
    }
}

fn scale(inside: usize) -> f32 {
    single(1.0 / exact_len(inside).sqrt())
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
