//! Multi-head self-attention.

use crate::{device::is_processor, number::exact_len};
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData, activation};

use super::{Builder, Gain, Linear, Pass, in_f32, kernel};

/// Attention mask: a number added to the scores of a position, 0 or minus infinity.
#[derive(Clone, Debug)]
pub struct Mask(Tensor<4>);

impl Mask {
    /// Each position of `length` looks at itself and those before it.
    #[must_use]
    pub fn causal(length: usize, device: &Device, dtype: DType) -> Self {
        if !is_processor(device) {
            return Self(hidden(later(length, device).unsqueeze(), dtype));
        }
        let seen = |from: usize, to: usize| if to <= from { 0.0 } else { f32::NEG_INFINITY };
        let mask = (0..length * length).map(|i| seen(i / length, i % length));
        let data = TensorData::new(mask.collect::<Vec<f32>>(), [1, 1, length, length]);
        Self(Tensor::from_data(data, (device, dtype)))
    }

    /// The same within each document of packed rows: `segments` is `[rows, length]`, the number of each position's
    /// document. A position always sees itself.
    #[must_use]
    pub fn packed(segments: &[u32], length: usize, device: &Device, dtype: DType) -> Self {
        let rows = segments.len() / length;
        if !is_processor(device) {
            let other = others(segments, [rows, length], device);
            let later: Tensor<4, Bool> = later(length, device).unsqueeze();
            return Self(hidden(
                other.bool_or(later.expand([rows, 1, length, length])),
                dtype,
            ));
        }
        let mut mask = Vec::with_capacity(segments.len() * length);
        for row in segments.chunks_exact(length) {
            for (from, segment) in row.iter().enumerate() {
                mask.extend(row.iter().enumerate().map(|(to, other)| {
                    if to <= from && segment == other {
                        0.0
                    } else {
                        f32::NEG_INFINITY
                    }
                }));
            }
        }
        let data = TensorData::new(mask, [rows, 1, length, length]);
        Self(Tensor::from_data(data, (device, dtype)))
    }
}

/// True where a position would see one after it, `[length, length]`.
fn later(length: usize, device: &Device) -> Tensor<2, Bool> {
    Tensor::tril_mask([length, length], 0, device)
}

/// True where a position would see one of another document, `[rows, 1, length, length]`.
fn others(segments: &[u32], [rows, length]: [usize; 2], device: &Device) -> Tensor<4, Bool> {
    let segments: Vec<i32> = segments
        .iter()
        .map(|segment| segment.cast_signed())
        .collect();
    let data = TensorData::new(segments, [rows, length]);
    let segments = Tensor::<2, Int>::from_data(data, device);
    let of = |sizes: [usize; 4]| {
        let one = segments.clone().reshape(sizes);
        one.expand([rows, 1, length, length])
    };
    of([rows, 1, length, 1]).not_equal(of([rows, 1, 1, length]))
}

/// Minus infinity where `mask` is true, else 0, made on its device.
fn hidden(mask: Tensor<4, Bool>, dtype: DType) -> Tensor<4> {
    let zeros = Tensor::zeros(mask.dims(), (&mask.device(), dtype));
    zeros.mask_fill(mask, f32::NEG_INFINITY)
}

/// Multi-head self-attention (Vaswani et al. 2017, arXiv 1706.03762): `softmax(q k^T / sqrt(width / heads) + mask) v` in
/// each head, joined and mapped by `out`. `qkv: [width, 3 width]` holds queries, keys and values in this order.
#[derive(Clone, Debug)]
pub struct Attention {
    qkv: Linear,
    out: Linear,
    heads: usize,
}

impl Attention {
    /// Over samples of `[length, width]`, with `heads` that divide the width. `gain` is that of `out`, `inner` that of
    /// `qkv`.
    pub fn new(
        builder: &mut Builder,
        name: &str,
        [length, width]: [usize; 2],
        heads: usize,
        [inner, gain]: [Gain; 2],
    ) -> Self {
        builder.within(name, |b| {
            let qkv = Linear::new(b, "qkv", &[length, width], 3 * width, inner);
            let kept = heads * length * length + 3 * length * width;
            b.note("", format!("attention {heads}"), &[length, width], 0, kept);
            let out = Linear::new(b, "out", &[length, width], width, gain);
            Self { qkv, out, heads }
        })
    }

    /// `[rows, length, width]` to the same.
    #[must_use]
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<3>, mask: Option<&Mask>) -> Tensor<3> {
        let given = x.dtype();
        let qkv = pass.for_product(self.qkv.forward(pass, x));
        let mask = mask.map(|Mask(mask)| mask);
        let joined = kernel::attend(&qkv, self.heads, mask)
            .unwrap_or_else(|| self.by_library(pass, &qkv, mask));
        self.out.forward(pass, joined.cast(given))
    }

    fn by_library(&self, pass: &Pass<'_>, qkv: &Tensor<3>, mask: Option<&Tensor<4>>) -> Tensor<3> {
        let [rows, length, columns] = qkv.dims();
        let width = columns / 3;
        let inside = width / self.heads;
        let head = |i: usize| {
            qkv.clone()
                .narrow(2, i * width, width)
                .reshape([rows, length, self.heads, inside])
                .swap_dims(1, 2)
        };
        let scale = 1.0 / exact_len(inside).sqrt();
        let mut scores = in_f32((head(0) * scale).matmul(head(1).swap_dims(2, 3)));
        if let Some(mask) = mask {
            scores = scores + mask.clone();
        }
        let shares = pass.for_product(activation::softmax(scores, 3));
        let seen = shares.matmul(head(2)).swap_dims(1, 2);
        seen.reshape([rows, length, width])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::check::{self, check};

    const SEGMENTS: [u32; 10] = [1, 1, 2, 2, 2, 1, 1, 1, 0, 0];

    fn build(b: &mut Builder) -> Attention {
        Attention::new(b, "a", [5, 6], 2, [Gain::Glorot; 2])
    }

    fn packed(x: &Tensor<3>) -> Mask {
        Mask::packed(&SEGMENTS, 5, &x.device(), x.dtype())
    }

    #[test]
    fn gradients_equal_finite_differences() {
        check([2, 5, 6], build, |a, pass, x| a.forward(pass, x, None));
        check([2, 5, 6], build, |a, pass, x| {
            let mask = Mask::causal(5, &x.device(), x.dtype());
            a.forward(pass, x, Some(&mask))
        });
        check([2, 5, 6], build, |a, pass, x| {
            let mask = packed(&x);
            a.forward(pass, x, Some(&mask))
        });
    }

    #[test]
    fn masks_are_the_same_made_on_a_device() {
        let devices = [Some(Device::flex()), check::adapter().map(|a| a.device)];
        for device in devices.into_iter().flatten() {
            let causal = hidden(later(5, &device).unsqueeze(), DType::F32);
            let later: Tensor<4, Bool> = later(5, &device).unsqueeze();
            let other = others(&SEGMENTS, [2, 5], &device);
            let packed = hidden(other.bool_or(later.expand([2, 1, 5, 5])), DType::F32);
            let flex = Device::flex();
            for (found, expected) in [
                (causal, Mask::causal(5, &flex, DType::F32)),
                (packed, Mask::packed(&SEGMENTS, 5, &flex, DType::F32)),
            ] {
                assert_eq!(found.dims(), expected.0.dims());
                let [found, expected] = [found, expected.0].map(crate::engine::numbers);
                assert_eq!(found, expected);
            }
        }
    }

    /// Outputs of row 0 at each position, with the input at one position changed or not.
    fn positions(mask: fn(&Tensor<3>) -> Mask, changed: Option<usize>) -> Vec<Vec<f64>> {
        let (_, _, y) = check::outputs([2, 5, 6], build, |a, pass, x| {
            let mask = mask(&x);
            let x = match changed {
                Some(at) => x.clone().slice_assign(
                    [0..1, at..at + 1, 0..6],
                    x.narrow(1, at, 1).narrow(0, 0, 1) + 1.0,
                ),
                None => x,
            };
            a.forward(pass, x, Some(&mask))
        });
        y.chunks(6).take(5).map(<[f64]>::to_vec).collect()
    }

    fn seen_by(mask: fn(&Tensor<3>) -> Mask, at: usize) -> Vec<usize> {
        let (before, after) = (positions(mask, None), positions(mask, Some(at)));
        (0..5).filter(|&i| before[i] != after[i]).collect()
    }

    #[test]
    fn a_position_is_seen_by_itself_and_later_ones_only() {
        let causal = |x: &Tensor<3>| Mask::causal(5, &x.device(), x.dtype());
        assert_eq!(seen_by(causal, 0), [0, 1, 2, 3, 4]);
        assert_eq!(seen_by(causal, 3), [3, 4]);
    }

    #[test]
    fn a_position_is_not_seen_by_other_documents() {
        assert_eq!(seen_by(packed, 0), [0, 1]);
        assert_eq!(seen_by(packed, 1), [1]);
        assert_eq!(seen_by(packed, 2), [2, 3, 4]);
    }
}
