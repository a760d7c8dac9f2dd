//! Inputs of a device that is not the processor: numbers of the batch cross the bus once, as they are, and what follows from
//! them is made there.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use super::{
    normalisation::Normalisation,
    positions::{in_pieces, narrow, signed},
};
use crate::{
    data::ModelInputs,
    device::Upload as _,
    layers::Mask,
    model::{NextIds, TokenInput},
};

/// Images, normalised, of pixels that travel as bytes: four in a word, as not every device knows bytes.
pub(super) fn planes(
    pixels: &[u8],
    [height, width]: [usize; 2],
    normalisation: &Normalisation,
    device: &Device,
) -> Tensor<4> {
    let count = pixels.len();
    let (whole, rest) = pixels.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let rest = (!rest.is_empty()).then_some(last);
    let words = whole.iter().copied().chain(rest).map(i32::from_le_bytes);
    let words = words.collect::<Vec<i32>>();
    let number = words.len();
    let words = Tensor::<1, Int>::upload(TensorData::new(words, [number]), device);
    let byte = |i: i32| (words.clone().bitwise_right_shift_scalar(8 * i)).bitwise_and_scalar(255);
    let bytes: Tensor<2, Int> = Tensor::stack((0..4).map(byte).collect(), 1);
    let bytes = bytes.reshape([4 * number]).narrow(0, 0, count);
    let colours = bytes.reshape([count / (3 * height * width), height, width, 3]);
    let channels = normalisation.channels;
    let of_each = |which: usize| {
        let values: Vec<f32> = (0..channels)
            .map(|colour| normalisation.of(colour)[which])
            .collect();
        Tensor::<4>::upload(TensorData::new(values, [1, channels, 1, 1]), device)
    };
    let planes = if channels == 1 {
        let colour = |i: usize, share: i32| colours.clone().narrow(3, i, 1) * share;
        let sum = colour(0, 19_595) + colour(1, 38_470) + colour(2, 7_471) + (1 << 15);
        sum.bitwise_right_shift_scalar(16)
    } else {
        colours
    };
    planes.permute([0, 3, 1, 2]).float() * of_each(0) - of_each(1)
}

/// Numbers of each id of some rows, `[rows, width]`.
fn ids(values: &[u32], rows: usize, device: &Device) -> Tensor<2, Int> {
    let width = values.len() / rows;
    let values: Vec<i32> = values.iter().copied().map(signed).collect();
    Tensor::upload(TensorData::new(values, [rows, width]), device)
}

/// The places of each row, `[rows, length]`.
fn places([rows, length]: [usize; 2], device: &Device) -> Tensor<2, Int> {
    let row = Tensor::<1, Int>::arange(0..i64::from(signed(narrow(length))), device);
    row.reshape([1, length]).repeat_dim(0, rows)
}

/// Ids of packed rows or a stream; `plain` where each row is one piece from its beginning.
pub(super) fn tokens(
    inputs: ModelInputs<'_>,
    rows: usize,
    plain: bool,
    device: &Device,
) -> TokenInput {
    let length = inputs.length - 1;
    let before = |x: Tensor<2, Int>| x.narrow(1, 0, length);
    let after = |x: Tensor<2, Int>| x.narrow(1, 1, length);
    let all = ids(inputs.tokens, rows, device);
    let segments = (!inputs.segments.is_empty()).then(|| ids(inputs.segments, rows, device));
    let mask = match &segments {
        Some(segments) if !plain => Mask::within(before(segments.clone())),
        _ => Mask::before(),
    };
    let positions = if plain {
        places([rows, length], device)
    } else {
        before(ids(&in_pieces(inputs), rows, device))
    };
    let predicted = segments.map(|segments| {
        let [this, next] = [before(segments.clone()), after(segments)];
        let some = this
            .clone()
            .not_equal_elem(0)
            .bool_and(next.clone().not_equal_elem(0));
        if inputs.is_stream {
            some
        } else {
            some.bool_and(this.equal(next))
        }
    });
    TokenInput {
        ids: before(all.clone()),
        positions,
        mask,
        shares: None,
        next: Some(NextIds {
            ids: after(all),
            predicted,
        }),
    }
}

/// Whole texts, each with padding behind it.
pub(super) fn texts(inputs: ModelInputs<'_>, lengths: &[u32], device: &Device) -> TokenInput {
    let (rows, length) = (lengths.len(), inputs.length);
    let positions = places([rows, length], device);
    let own = ids(lengths, rows, device).expand([rows, length]);
    let in_text: Tensor<2, Bool> = positions.clone().lower(own);
    #[expect(clippy::cast_precision_loss, reason = "a row has at most 65,536 ids")]
    let shares = lengths.iter().map(|&own| 1.0 / own.max(1) as f32);
    let shares = TensorData::new(shares.collect::<Vec<f32>>(), [rows, 1]);
    let shares = Tensor::<2>::upload(shares, device).expand([rows, length]);
    TokenInput {
        ids: ids(inputs.tokens, rows, device),
        positions,
        mask: Mask::before(),
        shares: Some(Tensor::zeros_like(&shares).mask_where(in_text, shares)),
        next: None,
    }
}
