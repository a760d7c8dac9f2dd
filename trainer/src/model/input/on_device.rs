//! Inputs of a device that is not the processor: numbers of the batch cross the bus once, as they are, and what follows from
//! them is made there.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use super::{
    normalisation::Normalisation,
    positions::{narrow, signed},
    uploaded::{UploadedBatch, UploadedRows, is_plain},
};
use crate::{
    data::samples::Samples,
    device::Upload as _,
    model::{
        interface::{Input, NextIds, TokenInput},
        layers::Mask,
    },
};

/// The tensors of some rows, on `device`.
pub(super) fn tensors(
    samples: Samples<'_>,
    normalisation: &Normalisation,
    device: &Device,
) -> Input {
    let own;
    let uploaded = match samples.uploaded {
        Some(uploaded) => uploaded,
        None => {
            own = UploadedBatch::inputs_of(samples, &samples, &device.clone().inner());
            UploadedRows::all(&own)
        }
    };
    let part = DevicePart {
        uploaded,
        rows: samples.rows(),
        tracks: device.is_autodiff(),
    };
    let UploadedBatch { x, words, .. } = uploaded.batch;
    Input {
        rows: x.as_ref().map(|x| part.numbers(x)),
        images: words.as_ref().map(|words| {
            let words = part.on_device(words.clone());
            let [height, width] = samples.inputs.sides;
            let first = uploaded.first * 3 * height * width;
            let pixels = bytes(words, first, part.rows * 3 * height * width);
            let pixels = pixels.reshape([part.rows, height, width, 3]);
            planes(pixels, normalisation, device)
        }),
        tokens: part.tokens(samples, device),
    }
}

/// Rows of an uploaded batch that are computed at one time.
struct DevicePart<'a> {
    uploaded: UploadedRows<'a>,
    rows: usize,
    /// Gradients are wanted.
    tracks: bool,
}

impl DevicePart<'_> {
    fn on_device<const D: usize>(&self, tensor: Tensor<D, Int>) -> Tensor<D, Int> {
        if self.tracks {
            tensor.autodiff()
        } else {
            tensor
        }
    }

    fn numbers(&self, of_batch: &Tensor<2>) -> Tensor<2> {
        let rows = of_batch.clone().narrow(0, self.uploaded.first, self.rows);
        if self.tracks { rows.autodiff() } else { rows }
    }

    fn ids(&self, of_batch: &Tensor<2, Int>) -> Tensor<2, Int> {
        let rows = of_batch.clone().narrow(0, self.uploaded.first, self.rows);
        self.on_device(rows)
    }

    /// Token ids, of packed rows, a stream or whole texts.
    fn tokens(&self, samples: Samples<'_>, device: &Device) -> Option<TokenInput> {
        let UploadedBatch {
            tokens,
            segments,
            positions,
            texts,
            ..
        } = self.uploaded.batch;
        let ids = self.ids(tokens.as_ref()?);
        if let Some((lengths, shares)) = texts {
            return Some(whole_texts(ids, self.ids(lengths), self.numbers(shares)));
        }
        let positions = positions.as_ref().filter(|_| !is_plain(samples));
        Some(pieces(
            ids,
            segments.as_ref().map(|segments| self.ids(segments)),
            positions.map(|positions| self.ids(positions)),
            samples.inputs.is_stream,
            device,
        ))
    }
}

/// `count` bytes from number `first` on of those in `words`.
fn bytes(words: Tensor<1, Int>, first: usize, count: usize) -> Tensor<1, Int> {
    let from = first / 4;
    let number = (first + count).div_ceil(4) - from;
    let words = words.narrow(0, from, number);
    let byte = |i: i32| (words.clone().bitwise_right_shift_scalar(8 * i)).bitwise_and_scalar(255);
    let bytes: Tensor<2, Int> = Tensor::stack((0..4).map(byte).collect(), 1);
    bytes.reshape([4 * number]).narrow(0, first % 4, count)
}

/// Images, normalised, of pixels `[rows, height, width, 3]`.
fn planes(colours: Tensor<4, Int>, normalisation: &Normalisation, device: &Device) -> Tensor<4> {
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

/// The places of each row, `[rows, length]`.
fn places([rows, length]: [usize; 2], device: &Device) -> Tensor<2, Int> {
    let row = Tensor::<1, Int>::arange(0..i64::from(signed(narrow(length))), device);
    row.reshape([1, length]).repeat_dim(0, rows)
}

/// Ids of packed rows or a stream. Without `positions` each row is one piece from its beginning.
fn pieces(
    all: Tensor<2, Int>,
    segments: Option<Tensor<2, Int>>,
    positions: Option<Tensor<2, Int>>,
    is_stream: bool,
    device: &Device,
) -> TokenInput {
    let [rows, ids] = all.dims();
    let length = ids - 1;
    let before = |x: Tensor<2, Int>| x.narrow(1, 0, length);
    let after = |x: Tensor<2, Int>| x.narrow(1, 1, length);
    let mask = match (&segments, &positions) {
        (Some(segments), Some(_)) => Mask::within(before(segments.clone())),
        _ => Mask::before(),
    };
    let positions = match positions {
        Some(positions) => before(positions),
        None => places([rows, length], device),
    };
    let predicted = segments.map(|segments| {
        let [this, next] = [before(segments.clone()), after(segments)];
        let some = this
            .clone()
            .not_equal_elem(0)
            .bool_and(next.clone().not_equal_elem(0));
        if is_stream {
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

/// Whole texts, each with padding behind it; `lengths` and `shares` are `[rows, 1]`.
fn whole_texts(ids: Tensor<2, Int>, lengths: Tensor<2, Int>, shares: Tensor<2>) -> TokenInput {
    let [rows, length] = ids.dims();
    let positions = places([rows, length], &ids.device());
    let in_text: Tensor<2, Bool> = positions.clone().lower(lengths.expand([rows, length]));
    let shares = shares.expand([rows, length]);
    TokenInput {
        ids,
        positions,
        mask: Mask::before(),
        shares: Some(Tensor::zeros_like(&shares).mask_where(in_text, shares)),
        next: None,
    }
}
