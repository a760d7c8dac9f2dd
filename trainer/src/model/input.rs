//! From samples in host memory to the tensors that a model computes from.

mod normalisation;
mod on_device;
mod positions;
mod uploaded;

pub(crate) use self::{
    normalisation::{Normalisation, Statistics},
    uploaded::{ColumnBytes, LentColumns, RowTargets, TargetTensor, UploadedBatch, UploadedRows},
};
use self::{
    positions::{in_pieces, narrow, signed},
    uploaded::is_plain,
};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use crate::{
    data::samples::{ModelInputs, Samples},
    device::{Upload as _, is_processor},
    model::{
        interface::{Input, Objective, TokenInput},
        layers::Mask,
    },
};

/// The tensors of a part of a batch, on `device`.
pub(crate) fn tensors(
    samples: Samples<'_>,
    normalisation: &Normalisation,
    device: &Device,
) -> Input {
    if samples.uploaded.is_some() || !is_processor(device) {
        return on_device::tensors(samples, normalisation, device);
    }
    let inputs = samples.inputs;
    let rows = samples.rows();
    let [height, width] = inputs.sides;
    Input {
        rows: (inputs.features > 0).then(|| {
            let data = TensorData::new(inputs.x.to_vec(), [rows, inputs.features]);
            Tensor::upload(data, device)
        }),
        images: (height > 0).then(|| {
            let planes = planes(inputs.pixels, height * width, normalisation);
            let sizes = [rows, normalisation.channels, height, width];
            Tensor::upload(TensorData::new(planes, sizes), device)
        }),
        tokens: (inputs.length > 0).then(|| tokens(samples, device)),
    }
}

/// Pixels of interleaved colours as one plane for each colour that a model sees.
fn planes(pixels: &[u8], size: usize, normalisation: &Normalisation) -> Vec<f32> {
    if normalisation.channels == 1 {
        let [scale, shift] = normalisation.of(0);
        let colours = pixels.as_chunks::<3>().0.iter();
        return colours
            .map(|colours| f32::from(brightness(*colours)) * scale - shift)
            .collect();
    }
    let mut planes = vec![0.0; pixels.len()];
    let images = pixels.chunks_exact(3 * size);
    for (image, planes) in images.zip(planes.chunks_exact_mut(3 * size)) {
        for (colour, plane) in planes.chunks_exact_mut(size).enumerate() {
            let [scale, shift] = normalisation.of(colour);
            let values = image[colour..].iter().step_by(3);
            for (number, value) in plane.iter_mut().zip(values) {
                *number = f32::from(*value) * scale - shift;
            }
        }
    }
    planes
}

/// ITU-R 601-2 in fixed point, rounded, as Pillow converts to `L`: of three equal values, that value.
fn brightness([red, green, blue]: [u8; 3]) -> u8 {
    let sum = 19_595 * u32::from(red) + 38_470 * u32::from(green) + 7_471 * u32::from(blue);
    u8::try_from((sum + (1 << 15)) >> 16).expect("the weights add up to 2^16")
}

fn tokens(samples: Samples<'_>, device: &Device) -> TokenInput {
    let (rows, inputs) = (samples.rows(), samples.inputs);
    if let Some(lengths) = inputs.lengths {
        return texts(inputs, lengths, device);
    }
    // Rows of one piece each, with padding behind it: no place looks ahead, so none sees the padding.
    let plain = is_plain(samples);
    let length = inputs.length - 1;
    let first = |values: &[u32]| -> Vec<u32> {
        let rows = values.chunks_exact(inputs.length);
        rows.flat_map(|row| &row[..length]).copied().collect()
    };
    let tensor = |values: Vec<u32>| -> Tensor<2, Int> {
        let values: Vec<i32> = values.into_iter().map(signed).collect();
        Tensor::upload(TensorData::new(values, [rows, length]), device)
    };
    let positions = if plain {
        (0..rows).flat_map(|_| (0..length).map(narrow)).collect()
    } else {
        first(&in_pieces(inputs))
    };
    let mask = if plain {
        Mask::causal(length, device, DType::F32)
    } else {
        Mask::packed(&first(inputs.segments), length, device, DType::F32)
    };
    TokenInput {
        ids: tensor(first(inputs.tokens)),
        positions: tensor(positions),
        mask,
        shares: None,
        next: None,
    }
}

/// Whole texts, each with padding behind it, which no position sees and no mean counts.
fn texts(inputs: ModelInputs<'_>, lengths: &[u32], device: &Device) -> TokenInput {
    let (rows, length) = (lengths.len(), inputs.length);
    let tensor = |values: Vec<i32>| -> Tensor<2, Int> {
        Tensor::upload(TensorData::new(values, [rows, length]), device)
    };
    let positions = (0..rows).flat_map(|_| (0..length).map(|at| signed(narrow(at))));
    let shares = lengths.iter().flat_map(|&own| {
        #[expect(clippy::cast_precision_loss, reason = "a row has at most 65,536 ids")]
        let share = 1.0 / own.max(1) as f32;
        (0..length).map(move |at| if at < own as usize { share } else { 0.0 })
    });
    let shares = TensorData::new(shares.collect::<Vec<f32>>(), [rows, length]);
    TokenInput {
        ids: tensor(inputs.tokens.iter().copied().map(signed).collect()),
        positions: tensor(positions.collect()),
        mask: Mask::causal(length, device, DType::F32),
        shares: Some(Tensor::upload(shares, device)),
        next: None,
    }
}

/// Targets of a part of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NextTokens {
    /// The ids.
    pub(crate) ids: Vec<i32>,
    /// The places that predict them among all `rows * length`; `None` where all do.
    pub(crate) places: Option<Vec<i32>>,
}

/// The token after each place, where it belongs to the same document or stream.
pub(crate) fn next_tokens(samples: Samples<'_>) -> NextTokens {
    let ModelInputs {
        tokens,
        segments,
        length,
        is_stream,
        ..
    } = samples.inputs;
    let places = || {
        let rows = 0..samples.rows();
        rows.flat_map(move |row| (0..length - 1).map(move |at| (row, at)))
    };
    let id = |row: usize, at: usize| signed(tokens[row * length + at + 1]);
    if segments.is_empty() {
        let ids = places().map(|(row, at)| id(row, at)).collect();
        return NextTokens { ids, places: None };
    }
    let belongs = |row: usize, at: usize| {
        let [this, next] = [0, 1].map(|i| segments[row * length + at + i]);
        this != 0 && next != 0 && (is_stream || this == next)
    };
    let valid = places().filter(|&(row, at)| belongs(row, at));
    let (places, ids): (Vec<i32>, Vec<i32>) = valid
        .map(|(row, at)| (signed(narrow(row * (length - 1) + at)), id(row, at)))
        .unzip();
    let all = ids.len() == samples.rows() * (length - 1);
    NextTokens {
        ids,
        places: (!all).then_some(places),
    }
}

/// Number of losses of a batch.
pub(crate) fn losses(objective: Objective, samples: Samples<'_>) -> usize {
    match objective {
        Objective::Target | Objective::Input => samples.rows(),
        Objective::NextToken => next_tokens(samples).ids.len(),
    }
}

/// The ids of one row.
pub(crate) fn ids(ids: &[u32], device: &Device) -> Tensor<2, Int> {
    let ids: Vec<i32> = ids.iter().map(|id| signed(*id)).collect();
    let sizes = [1, ids.len()];
    Tensor::upload(TensorData::new(ids, sizes), device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::samples::Targets;

    fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().unwrap()
    }

    fn ints(tensor: Tensor<2, Int>) -> Vec<i64> {
        tensor.into_data().convert::<i64>().try_into_vec().unwrap()
    }

    #[test]
    fn images_become_normalised_planes() {
        // Two images of two pixels; their values differ by colour and image.
        let pixels = [0, 51, 255, 102, 0, 51, 255, 255, 255, 0, 0, 0];
        let inputs = ModelInputs {
            pixels: &pixels,
            sides: [1, 2],
            ..ModelInputs::default()
        };
        let normalisation = Normalisation {
            channels: 3,
            mean: [0.0, 0.2, 0.5],
            deviation: [1.0, 2.0, 0.5],
        };
        let samples = Samples::new(2, inputs, Targets::None);
        let input = tensors(samples, &normalisation, &Device::flex());
        let found = input.images();
        assert_eq!(found.dims(), [2, 3, 1, 2]);
        let expected = [
            0.0, 0.4, 0.0, -0.1, 1.0, -0.6, 1.0, 0.0, 0.4, -0.1, 1.0, -1.0,
        ];
        for (found, expected) in numbers(found).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        assert!(input.rows.is_none() && input.tokens.is_none());
    }

    #[test]
    fn grey_is_one_plane_of_the_same_values() {
        for value in 0..=255 {
            assert_eq!(brightness([value; 3]), value);
        }
        // Pillow: Image.new("RGB", (1, 1), c).convert("L") of red, green, blue and a mixture.
        let colours = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [12, 200, 99]];
        assert_eq!(colours.map(brightness), [76, 150, 29, 132]);
        let inputs = ModelInputs {
            pixels: &[0, 0, 0, 102, 102, 102, 255, 0, 0, 255, 255, 255],
            sides: [1, 2],
            ..ModelInputs::default()
        };
        let normalisation = Normalisation {
            channels: 1,
            mean: [0.2, 9.0, 9.0],
            deviation: [0.5, 9.0, 9.0],
        };
        let samples = Samples::new(2, inputs, Targets::None);
        let found = tensors(samples, &normalisation, &Device::flex()).images();
        assert_eq!(found.dims(), [2, 1, 1, 2]);
        let expected = [-0.4, 0.4, 76.0 / 127.5 - 0.4, 1.6];
        for (found, expected) in numbers(found).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }

    #[test]
    fn images_are_the_same_made_on_a_device() {
        // 3 images of 5 times 3 pixels: their bytes do not fill whole words.
        let pixels: Vec<u8> = (0..135_u32)
            .map(|i| u8::try_from(i * 37 % 256).unwrap())
            .collect();
        let devices = [
            Some(Device::flex()),
            crate::model::layers::check::adapter().map(|a| a.device),
        ];
        for device in devices.into_iter().flatten() {
            for channels in [1, 3] {
                let normalisation = Normalisation {
                    channels,
                    mean: [0.1, 0.2, 0.5],
                    deviation: [1.0, 2.0, 0.5],
                };
                let inputs = ModelInputs {
                    pixels: &pixels,
                    sides: [5, 3],
                    ..ModelInputs::default()
                };
                let samples = Samples::new(3, inputs, Targets::None);
                let uploaded = UploadedBatch::of(samples, &samples, &device);
                let samples = samples.with_upload(&uploaded);
                // All of them, and parts whose bytes begin within a word.
                for rows in [0..3, 1..3, 2..3] {
                    let part = samples.slice(rows.clone());
                    let found = tensors(part, &normalisation, &device).images();
                    assert_eq!(found.dims(), [rows.len(), channels, 5, 3]);
                    let expected = planes(&pixels[45 * rows.start..], 15, &normalisation);
                    for (found, expected) in numbers(found).iter().zip(&expected) {
                        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn tokens_predict_the_next_of_their_row() {
        let inputs = ModelInputs {
            tokens: &[10, 11, 12, 20, 21, 22],
            length: 3,
            ..ModelInputs::default()
        };
        let samples = Samples::new(2, inputs, Targets::None);
        let input = tensors(samples, &Normalisation::default(), &Device::flex());
        assert_eq!(ints(input.tokens().ids.clone()), [10, 11, 20, 21]);
        assert_eq!(ints(input.tokens().positions.clone()), [0, 1, 0, 1]);
        let next = next_tokens(samples);
        assert_eq!((next.ids, next.places), (vec![11, 12, 21, 22], None));
    }

    #[test]
    fn a_text_beside_other_parts_is_read_whole_and_its_padding_has_no_share() {
        let inputs = ModelInputs {
            tokens: &[10, 11, 12, 20, 0, 0],
            lengths: Some(&[3, 1]),
            length: 3,
            ..ModelInputs::default()
        };
        let samples = Samples::new(2, inputs, Targets::None);
        let of = |samples| tensors(samples, &Normalisation::default(), &Device::flex());
        let input = of(samples);
        let tokens = input.tokens();
        assert_eq!(ints(tokens.ids.clone()), [10, 11, 12, 20, 0, 0]);
        assert_eq!(ints(tokens.positions.clone()), [0, 1, 2, 0, 1, 2]);
        let third = 1.0 / 3.0;
        let shares = numbers(tokens.shares.clone().unwrap());
        assert_eq!(shares, [third, third, third, 1.0, 0.0, 0.0]);
        let last = of(samples.slice(1..2));
        assert_eq!(ints(last.tokens().ids.clone()), [20, 0, 0]);
        assert_eq!(
            numbers(last.tokens().shares.clone().unwrap()),
            [1.0, 0.0, 0.0]
        );
    }

    #[test]
    fn nothing_is_predicted_across_documents_or_of_padding() {
        let inputs = ModelInputs {
            tokens: &[10, 11, 30, 31, 32, 40, 41, 42, 0, 0],
            segments: &[1, 1, 2, 2, 2, 1, 1, 1, 0, 0],
            positions: &[0, 1, 0, 1, 2, 0, 1, 2, 0, 0],
            length: 5,
            ..ModelInputs::default()
        };
        let samples = Samples::new(2, inputs, Targets::None);
        let next = next_tokens(samples);
        assert_eq!(next.ids, [11, 31, 32, 41, 42]);
        assert_eq!(next.places.unwrap(), [0, 2, 3, 4, 5]);
        assert_eq!(losses(Objective::NextToken, samples), 5);
        assert_eq!(losses(Objective::Target, samples), 2);
        let input = tensors(samples, &Normalisation::default(), &Device::flex());
        assert_eq!(
            ints(input.tokens().positions.clone()),
            [0, 1, 0, 1, 0, 1, 2, 0]
        );
    }

    #[test]
    fn in_a_stream_the_first_id_of_a_document_is_predicted_and_padding_is_not() {
        let inputs = ModelInputs {
            tokens: &[10, 11, 30, 31, 32, 40, 41, 42, 0, 0],
            segments: &[1, 1, 2, 2, 2, 1, 1, 2, 0, 0],
            positions: &[7, 8, 0, 1, 2, 3, 4, 0, 0, 0],
            length: 5,
            is_stream: true,
            ..ModelInputs::default()
        };
        let samples = Samples::new(2, inputs, Targets::None);
        let next = next_tokens(samples);
        assert_eq!(next.ids, [11, 30, 31, 32, 41, 42]);
        assert_eq!(next.places.unwrap(), [0, 1, 2, 3, 4, 5]);
        let input = tensors(samples, &Normalisation::default(), &Device::flex());
        assert_eq!(
            ints(input.tokens().positions.clone()),
            [0, 1, 2, 3, 0, 1, 2, 3]
        );
    }

    #[test]
    fn a_document_that_was_cut_has_positions_in_its_pieces() {
        let cut = |tokens, segments, positions| ModelInputs {
            tokens,
            segments,
            positions,
            length: 4,
            ..ModelInputs::default()
        };
        let positions = |inputs| {
            let samples = Samples::new(2, inputs, Targets::None);
            let input = tensors(samples, &Normalisation::default(), &Device::flex());
            let next = next_tokens(samples);
            (ints(input.tokens().positions.clone()), next.places)
        };
        let tokens = &[1; 8];
        // The end of one document before the beginning of another, and a piece from the middle.
        let mixed = cut(
            tokens,
            &[1, 1, 2, 2, 1, 1, 1, 1],
            &[400, 401, 0, 1, 80, 81, 82, 83],
        );
        let expected = (vec![0, 1, 0, 0, 1, 2], Some(vec![0, 2, 3, 4, 5]));
        assert_eq!(positions(mixed), expected);
        // Pieces that fill their rows need neither a mask of their own nor a choice of places.
        let full = cut(tokens, &[1; 8], &[40, 41, 42, 43, 80, 81, 82, 83]);
        assert_eq!(positions(full), (vec![0, 1, 2, 0, 1, 2], None));
    }
}
