//! Multi-head self-attention.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    device::{Upload as _, is_processor},
    float_casts::{exact_len, single},
};
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData, activation, module};

use super::{
    Builder, Gain, Linear, Pass,
    blockwise::{self, BLOCK, Blockwise, Visible},
    heads::Heads,
    in_f32, kernel,
};

/// Positions that each position attends to.
#[derive(Clone, Debug)]
pub struct Mask(MaskForm);

#[derive(Clone, Debug)]
enum MaskForm {
    /// A number added to the scores of a position, 0 or minus infinity: `[rows or 1, 1, length, length]`, on the processor.
    Added(Box<Tensor<4>>),
    /// On another device, which makes the mask of a block of positions at a time.
    Blocks(Visible),
}

impl MaskForm {
    /// The numbers that are added to scores.
    fn added(&self) -> Option<&Tensor<4>> {
        match self {
            Self::Added(mask) => Some(mask),
            Self::Blocks(_) => None,
        }
    }
}

impl Mask {
    /// Each position looks at itself and those before it, on a device that is not the processor.
    pub(crate) const fn before() -> Self {
        Self(MaskForm::Blocks(Visible::Before))
    }

    /// The same within each document of packed rows, by the number of each position's document, `[rows, length]`.
    pub(crate) fn within(segments: Tensor<2, Int>) -> Self {
        // No gradient flows through what is made of it.
        Self(MaskForm::Blocks(Visible::Within(Box::new(
            segments.inner(),
        ))))
    }

    /// Each position of `length` looks at itself and those before it.
    #[must_use]
    pub fn causal(length: usize, device: &Device, dtype: DType) -> Self {
        if !is_processor(device) {
            return Self::before();
        }
        let seen = |from: usize, to: usize| if to <= from { 0.0 } else { f32::NEG_INFINITY };
        let mask = (0..length * length).map(|i| seen(i / length, i % length));
        let data = TensorData::new(mask.collect::<Vec<f32>>(), [1, 1, length, length]);
        Self(MaskForm::Added(Box::new(Tensor::upload(
            data,
            (device, dtype),
        ))))
    }

    /// The same within each document of packed rows: `segments` is `[rows, length]`, the number of each position's
    /// document. A position always sees itself.
    #[must_use]
    pub fn packed(segments: &[u32], length: usize, device: &Device, dtype: DType) -> Self {
        let rows = segments.len() / length;
        if !is_processor(device) {
            let numbers: Vec<i32> = segments
                .iter()
                .map(|segment| segment.cast_signed())
                .collect();
            let data = TensorData::new(numbers, [rows, length]);
            return Self::within(Tensor::upload(data, device));
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
        Self(MaskForm::Added(Box::new(Tensor::upload(
            data,
            (device, dtype),
        ))))
    }
}

/// Angles of positions, for the rotation of queries and keys (Su et al. 2021, arXiv 2104.09864): number `i` of the first half
/// of a head and number `i` of its second half are the coordinates of a point, which is rotated by
/// `position / 10000^(2 i / inside)`.
#[derive(Clone, Debug)]
pub struct Angles {
    cosines: Tensor<3>,
    sines: Tensor<3>,
}

/// Base of the angles, that of the paper.
const ROTARY_BASE: f64 = 10_000.0;

/// Cosines and sines of all angles of a model.
#[derive(Clone, Debug)]
pub struct AngleTable {
    /// Numbers in half a head.
    half: usize,
    /// `[positions, half]`.
    cosines: Arc<[f32]>,
    sines: Arc<[f32]>,
    /// Both on the device that computed last, in its type; on the processor they are not copied.
    uploaded: Arc<Mutex<Option<[Tensor<2>; 2]>>>,
}

impl AngleTable {
    /// For positions below `count`, and heads of `inside` numbers, which are even.
    #[must_use]
    pub fn new(count: usize, inside: usize) -> Self {
        let half = inside / 2;
        let frequency = |i: usize| {
            let exponent = 2.0 * exact_len(i) / exact_len(inside);
            1.0 / ROTARY_BASE.powf(exponent)
        };
        let frequencies: Vec<f64> = (0..half).map(frequency).collect();
        let table = |of: fn(f64) -> f64| {
            let row = |position| {
                let angles = frequencies.iter().map(move |f| exact_len(position) * f);
                angles.map(move |angle| single(of(angle)))
            };
            (0..count).flat_map(row).collect()
        };
        Self {
            half,
            cosines: table(f64::cos),
            sines: table(f64::sin),
            uploaded: Arc::default(),
        }
    }

    /// Cosines and sines on a device.
    fn on(&self, device: &Device, dtype: DType) -> [Tensor<2>; 2] {
        let tables = || {
            [&self.cosines, &self.sines].map(|numbers| {
                let sizes = [numbers.len() / self.half, self.half];
                let data = TensorData::new(numbers.to_vec(), sizes);
                Tensor::<2>::upload(data, (device, dtype))
            })
        };
        if is_processor(device) {
            return tables();
        }
        let mut uploaded = self.uploaded.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |[cosines, _]: &&[Tensor<2>; 2]| {
            cosines.dtype() == dtype && cosines.device() == *device
        };
        let tables = match uploaded.as_ref().filter(fits) {
            Some(tables) => tables.clone(),
            None => uploaded.insert(tables().map(Tensor::inner)).clone(),
        };
        if device.is_autodiff() {
            tables.map(Tensor::autodiff)
        } else {
            tables
        }
    }
}

impl Angles {
    /// Of `positions`, `[rows, length]` and below the number of rows of the table; in the type `dtype`.
    #[must_use]
    pub fn new(table: &AngleTable, positions: &Tensor<2, Int>, dtype: DType) -> Self {
        let tables = table.on(&positions.device(), dtype);
        let [cosines, sines] = tables.map(|rows| module::embedding(rows, positions.clone()));
        Self { cosines, sines }
    }

    /// Of `new` positions of one row from `first` on.
    #[must_use]
    pub fn following(
        table: &AngleTable,
        [first, new]: [usize; 2],
        device: &Device,
        dtype: DType,
    ) -> Self {
        let of = |numbers: &[f32]| {
            let some = numbers[first * table.half..][..new * table.half].to_vec();
            let data = TensorData::new(some, [1, new, table.half]);
            Tensor::upload(data, (device, dtype))
        };
        Self {
            cosines: of(&table.cosines),
            sines: of(&table.sines),
        }
    }

    /// Rotates the first `heads` of the heads in `[rows, length, heads and others]`.
    fn rotate(&self, x: Tensor<3>, heads: usize) -> Tensor<3> {
        let given = x.dtype();
        kernel::rotate(in_f32(x), heads, [&self.cosines, &self.sines]).cast(given)
    }
}

/// Keys and values of the positions so far, for each attention layer of a model in order.
#[derive(Clone, Debug, Default)]
pub struct KeyValueCache {
    /// `[rows, kv_heads, length, inside]` each.
    layers: Vec<[Tensor<4>; 2]>,
    next_layer: usize,
    length: usize,
}

impl KeyValueCache {
    /// Positions in it.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Ends a pass of `new` positions through all layers.
    pub const fn advance(&mut self, new: usize) {
        self.next_layer = 0;
        self.length += new;
    }

    /// Adds the keys and values of new positions to those of the next layer. Returns all of the layer.
    fn extend(&mut self, new: [Tensor<4>; 2]) -> [Tensor<4>; 2] {
        let layer = self.next_layer;
        self.next_layer += 1;
        match self.layers.get_mut(layer) {
            None => {
                self.layers.push(new.clone());
                new
            }
            Some(kept) => {
                let [k, v] = new;
                let [past_k, past_v] = kept.clone();
                *kept = [
                    Tensor::cat(vec![past_k, k], 2),
                    Tensor::cat(vec![past_v, v], 2),
                ];
                kept.clone()
            }
        }
    }
}

/// Multi-head self-attention (Vaswani et al. 2017, arXiv 1706.03762): `softmax(q k^T / sqrt(width / heads) + mask) v` in
/// each head, joined and mapped by `out`. `qkv: [width, width + 2 keys]` holds queries, keys and values in this order. With
/// fewer heads of keys and values than of queries, groups of queries share them (Ainslie et al. 2023, arXiv 2305.13245).
#[derive(Clone, Debug)]
pub struct Attention {
    qkv: Linear,
    out: Linear,
    heads: Heads,
}

impl Attention {
    /// Over samples of `[length, width]`. `gain` is that of `out`, `inner` that of `qkv`.
    pub fn new(
        builder: &mut Builder,
        name: &str,
        [length, width]: [usize; 2],
        heads: Heads,
        [inner, gain]: [Gain; 2],
        bias: bool,
    ) -> Self {
        let columns = width + 2 * heads.keys * (width / heads.queries);
        builder.within(name, |b| {
            let qkv = Linear::with_bias(b, "qkv", &[length, width], columns, inner, bias);
            let scores = heads.queries * length * length;
            let kind = match heads.queries == heads.keys {
                true => format!("attention {}", heads.queries),
                false => format!("attention {}, {} of keys", heads.queries, heads.keys),
            };
            b.note("", kind, &[length, width], 0, length * columns);
            b.note_scores(scores);
            let out = Linear::with_bias(b, "out", &[length, width], width, gain, bias);
            Self { qkv, out, heads }
        })
    }

    /// `[rows, length, width]` to the same. With `angles`, queries and keys are rotated by them.
    #[must_use]
    pub fn forward(
        &self,
        pass: &Pass<'_>,
        x: Tensor<3>,
        mask: Option<&Mask>,
        angles: Option<&Angles>,
    ) -> Tensor<3> {
        let given = x.dtype();
        let qkv = self.qkv(pass, x, angles);
        let joined = match mask.map(|Mask(seen)| seen) {
            Some(MaskForm::Blocks(visible)) => self.by_blocks(qkv, visible.clone()),
            None if !is_processor(&qkv.device()) => self.by_blocks(qkv, Visible::All),
            added => {
                let mask = added.and_then(MaskForm::added);
                let Heads { queries, keys } = self.heads;
                kernel::attend(qkv, [queries, keys], mask).unwrap_or_else(|qkv| {
                    let [q, k, v] = blockwise::parts(&qkv, self.heads);
                    self.by_library(pass, q, [k, v], mask)
                })
            }
        };
        self.out.forward(pass, joined.cast(given))
    }

    /// The same for the positions after those whose keys and values `cache` has, to which it adds the new ones. Each position
    /// sees itself and all before it.
    ///
    /// # Panics
    /// For more positions than memory has bytes.
    #[must_use]
    pub fn extend(
        &self,
        pass: &Pass<'_>,
        x: Tensor<3>,
        cache: &mut KeyValueCache,
        angles: Option<&Angles>,
    ) -> Tensor<3> {
        let (given, new, device) = (x.dtype(), x.dims()[1], x.device());
        let qkv = self.qkv(pass, x, angles);
        let [q, k, v] = blockwise::parts(&qkv, self.heads);
        let past = cache.length();
        let kept = cache.extend([k, v]);
        // One position sees all others: it needs no mask.
        let mask = (new > 1).then(|| {
            let offset = i64::try_from(past).expect("positions fit in memory");
            let later = Tensor::<2, Bool>::tril_mask([new, past + new], offset, &device);
            let zeros = Tensor::zeros([1, 1, new, past + new], (&device, DType::F32));
            zeros.mask_fill(later.unsqueeze(), f32::NEG_INFINITY)
        });
        let joined = self.by_library(pass, q, kept, mask.as_ref());
        self.out.forward(pass, joined.cast(given))
    }

    fn qkv(&self, pass: &Pass<'_>, x: Tensor<3>, angles: Option<&Angles>) -> Tensor<3> {
        let qkv = pass.for_product(self.qkv.forward(pass, x));
        match angles {
            Some(angles) => angles.rotate(qkv, self.heads.queries + self.heads.keys),
            None => qkv,
        }
    }

    fn by_blocks(&self, qkv: Tensor<3>, visible: Visible) -> Tensor<3> {
        let blockwise = Blockwise {
            heads: self.heads,
            visible,
            block: BLOCK,
        };
        blockwise::attend(qkv, &blockwise)
    }

    /// Values that positions see, `[rows, length, width]`. The mask is `[rows or 1, 1, length, positions]`.
    fn by_library(
        &self,
        pass: &Pass<'_>,
        q: Tensor<4>,
        [k, v]: [Tensor<4>; 2],
        mask: Option<&Tensor<4>>,
    ) -> Tensor<3> {
        let [rows, queries, length, inside] = q.dims();
        let [_, keys, positions, _] = k.dims();
        let scale = 1.0 / exact_len(inside).sqrt();
        // Queries that share keys are more rows of one product.
        let grouped = [rows, keys, queries / keys * length, inside];
        let scores = (q * scale).reshape(grouped).matmul(k.swap_dims(2, 3));
        let mut scores = in_f32(scores).reshape([rows, queries, length, positions]);
        if let Some(mask) = mask {
            scores = scores + mask.clone();
        }
        let shares = pass.for_product(activation::softmax(scores, 3));
        let [_, _, together, _] = grouped;
        let seen = shares.reshape([rows, keys, together, positions]).matmul(v);
        let seen = seen.reshape([rows, queries, length, inside]);
        seen.swap_dims(1, 2)
            .reshape([rows, length, queries * inside])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::layers::check::{self, check};

    #[test]
    fn tables_of_angles_are_sent_to_a_device_once() {
        let Some(device) = check::adapter().map(|adapter| adapter.device) else {
            eprintln!("skipped: no adapter");
            return;
        };
        let (table, device) = (AngleTable::new(64, 8), device.autodiff());
        let positions = Tensor::<2, Int>::ones([2, 5], &device);
        crate::device::take_bus_bytes();
        let uploaded = [(); 3].map(|()| {
            drop(Angles::new(&table, &positions, DType::F32));
            crate::device::take_bus_bytes().uploaded
        });
        assert_eq!(uploaded, [2 * 64 * 4 * 4, 0, 0]);
    }

    const SEGMENTS: [u32; 10] = [1, 1, 2, 2, 2, 1, 1, 1, 0, 0];

    fn build(b: &mut Builder) -> Attention {
        with_heads(b, Heads::equal(2))
    }

    fn with_heads(b: &mut Builder, heads: Heads) -> Attention {
        Attention::new(b, "a", [5, 8], heads, [Gain::Glorot; 2], true)
    }

    const GROUPED: Heads = Heads {
        queries: 4,
        keys: 2,
    };

    fn packed(x: &Tensor<3>) -> Mask {
        Mask::packed(&SEGMENTS, 5, &x.device(), x.dtype())
    }

    /// Angles of the positions that [`SEGMENTS`] has.
    fn angles(x: &Tensor<3>, inside: usize) -> Angles {
        let positions = vec![0, 1, 0, 1, 2, 0, 1, 2, 0, 1];
        let positions = TensorData::new(positions, [2, 5]);
        let positions = Tensor::from_data(positions, &x.device());
        Angles::new(&AngleTable::new(3, inside), &positions, x.dtype())
    }

    #[test]
    fn gradients_equal_finite_differences() {
        check([2, 5, 8], build, |a, pass, x| {
            a.forward(pass, x, None, None)
        });
        check([2, 5, 8], build, |a, pass, x| {
            let mask = Mask::causal(5, &x.device(), x.dtype());
            a.forward(pass, x, Some(&mask), None)
        });
        check([2, 5, 8], build, |a, pass, x| {
            let mask = packed(&x);
            a.forward(pass, x, Some(&mask), None)
        });
    }

    #[test]
    fn gradients_of_shared_keys_equal_finite_differences() {
        let one = Heads { keys: 1, ..GROUPED };
        for heads in [GROUPED, one] {
            let build = move |b: &mut Builder| with_heads(b, heads);
            check([2, 5, 8], build, |a, pass, x| {
                let mask = packed(&x);
                a.forward(pass, x, Some(&mask), None)
            });
        }
    }

    #[test]
    fn gradients_with_rotation_equal_finite_differences() {
        check([2, 5, 8], build, |a, pass, x| {
            let (mask, angles) = (packed(&x), angles(&x, 4));
            a.forward(pass, x, Some(&mask), Some(&angles))
        });
        let build = |b: &mut Builder| with_heads(b, GROUPED);
        check([2, 5, 8], build, |a, pass, x| {
            let (mask, angles) = (packed(&x), angles(&x, 2));
            a.forward(pass, x, Some(&mask), Some(&angles))
        });
    }

    #[test]
    fn a_rotation_turns_pairs_of_halves_by_the_angle_of_the_position() {
        let x: Vec<f64> = (1..=2 * 5 * 6).map(f64::from).collect();
        let device = Device::flex();
        let data = TensorData::new(x.clone(), [2, 5, 6]);
        let x_f32 = Tensor::<3>::from_data(data, (&device, DType::F32));
        // One head of four numbers is rotated, the two numbers behind it are not.
        let found = angles(&x_f32, 4).rotate(x_f32, 1);
        let found: Vec<f32> = found.into_data().try_into_vec().unwrap();
        let positions = [0, 1, 0, 1, 2, 0, 1, 2, 0, 1];
        for (place, position) in positions.into_iter().enumerate() {
            let (x, found) = (&x[place * 6..][..6], &found[place * 6..][..6]);
            for i in 0..2 {
                let angle = f64::from(position) / [1.0, 100.0][i];
                let (sine, cosine) = angle.sin_cos();
                let expected = [
                    x[i] * cosine - x[i + 2] * sine,
                    x[i + 2] * cosine + x[i] * sine,
                ];
                for (at, expected) in [i, i + 2].into_iter().zip(expected) {
                    let found = f64::from(found[at]);
                    assert!((found - expected).abs() < 1e-5, "{found} {expected}");
                }
            }
            assert!((f64::from(found[4]) - x[4]).abs() < 1e-9);
        }
    }

    #[test]
    fn heads_that_share_keys_compute_what_equal_keys_would() {
        // The keys and values of each group are those of a layer that has them once for each head.
        let mut builder = Builder::new();
        let shared = with_heads(&mut builder, GROUPED);
        let layout = builder.finish();
        let mut builder = Builder::new();
        let each = with_heads(&mut builder, Heads::equal(4));
        let each_layout = builder.finish();
        let bucket = layout.initial(feedline_schemas::ids::Seed::new(3));
        let (weight, rest) = bucket.split_at(8 * 16);
        let (bias, out) = rest.split_at(16);
        let spread = |row: &[f32]| -> Vec<f32> {
            let (q, kv) = row.split_at(8);
            let kv = kv.chunks_exact(2).flat_map(|head| [head, head].concat());
            q.iter().copied().chain(kv).collect()
        };
        let spread_weight = weight.chunks_exact(16).flat_map(spread);
        let of_each: Vec<f32> = spread_weight
            .chain(spread(bias))
            .chain(out.iter().copied())
            .collect();
        let device = Device::flex();
        let outputs = |layer: &Attention, layout: &crate::model::layers::Layout, bucket: &[f32]| {
            let entries = layout.entries().iter();
            let weights: Vec<Tensor<1>> = entries
                .map(|entry| Tensor::from_floats(&bucket[entry.range.clone()], &device))
                .collect();
            let pass = Pass::new(layout, &weights, None);
            let x = crate::testing::uniform(2 * 5 * 8, 5);
            let x = Tensor::<3>::from_data(TensorData::new(x, [2, 5, 8]), &device);
            let mask = packed(&x);
            crate::device::numbers(layer.forward(&pass, x, Some(&mask), None))
        };
        let found = outputs(&shared, &layout, &bucket);
        let expected = outputs(&each, &each_layout, &of_each);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }

    /// Outputs of row 0 at each position, with the input at one position changed or not.
    fn positions(mask: fn(&Tensor<3>) -> Mask, changed: Option<usize>) -> Vec<Vec<f64>> {
        let (_, _, y) = check::outputs([2, 5, 8], build, |a, pass, x| {
            let mask = mask(&x);
            let x = match changed {
                Some(at) => x.clone().slice_assign(
                    [0..1, at..at + 1, 0..8],
                    x.narrow(1, at, 1).narrow(0, 0, 1) + 1.0,
                ),
                None => x,
            };
            a.forward(pass, x, Some(&mask), None)
        });
        y.chunks(8).take(5).map(<[f64]>::to_vec).collect()
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
