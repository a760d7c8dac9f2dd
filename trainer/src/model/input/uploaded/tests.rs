use std::ops::Range;

use feedline_schemas::config::LossKind;

use super::*;
use crate::{
    data::samples::ModelInputs,
    model::{
        input::{self, Normalisation},
        interface::Input,
        layers::check::adapter,
    },
    optim::loss::Loss,
};

/// The processor, where what is uploaded stays as it is, and an adapter where there is one.
fn devices() -> Vec<Device> {
    let adapter = adapter().map(|backend| backend.device);
    [Some(Device::flex()), adapter]
        .into_iter()
        .flatten()
        .collect()
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

fn ids(tensor: &Tensor<2, Int>) -> Vec<i64> {
    let data = tensor.clone().into_data().convert::<i64>();
    data.try_into_vec().unwrap()
}

/// Parts of four rows; the first has all of them.
const PARTS: [Range<usize>; 4] = [0..4, 0..1, 1..3, 3..4];

#[test]
fn parts_of_an_uploaded_batch_have_their_own_inputs() {
    let x: Vec<f32> = (0..12_u8).map(f32::from).collect();
    let tokens: Vec<u32> = (10..30).collect();
    let of_tokens = ModelInputs {
        tokens: &tokens,
        length: 5,
        ..ModelInputs::default()
    };
    let segments = [1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 2, 2, 3, 0];
    let positions = [7, 8, 0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 0, 0, 9, 0, 1, 0, 0];
    let packed = ModelInputs {
        segments: &segments,
        positions: &positions,
        ..of_tokens
    };
    let all = [
        ModelInputs {
            x: &x,
            features: 3,
            ..ModelInputs::default()
        },
        of_tokens,
        packed,
        ModelInputs {
            is_stream: true,
            ..packed
        },
        ModelInputs {
            lengths: Some(&[5, 1, 3, 2]),
            ..of_tokens
        },
    ];
    let normalisation = Normalisation::default();
    for device in devices() {
        for inputs in all {
            let samples = Samples::new(4, inputs, Targets::None);
            let uploaded = UploadedBatch::of(samples, &samples, &device);
            let there = samples.with_upload(&uploaded);
            for rows in PARTS {
                let own = samples.slice(rows.clone());
                let expected = input::tensors(own, &normalisation, &Device::flex());
                let found = input::tensors(there.slice(rows), &normalisation, &device);
                let of_rows = |input: &Input| input.rows.clone().map(numbers);
                assert_eq!(of_rows(&found), of_rows(&expected));
                let (Some(found), Some(expected)) = (found.tokens, expected.tokens) else {
                    continue;
                };
                assert_eq!(ids(&found.ids), ids(&expected.ids));
                assert_eq!(ids(&found.positions), ids(&expected.positions));
                assert_eq!(found.shares.map(numbers), expected.shares.map(numbers));
                let Some(next) = found.next else {
                    assert!(inputs.lengths.is_some());
                    continue;
                };
                let of_host = input::next_tokens(own);
                let places = 0..i32::try_from(own.rows() * 4).unwrap();
                let chosen = of_host.places.unwrap_or_else(|| places.collect());
                let all = ids(&next.ids);
                let chosen_ids = chosen
                    .iter()
                    .map(|place| all[usize::try_from(*place).unwrap()]);
                let expected_ids = of_host.ids.iter().map(|id| i64::from(*id));
                assert!(chosen_ids.eq(expected_ids));
                let predicted = next.predicted.map(|predicted| ids(&predicted.int()));
                let predicted = predicted.unwrap_or_else(|| vec![1; all.len()]);
                assert_eq!(
                    predicted.iter().filter(|is| **is == 1).count(),
                    chosen.len()
                );
            }
        }
    }
}

#[test]
fn losses_of_uploaded_targets_are_those_of_targets_in_host_memory() {
    let partners = [0.5, -2.0, 3.0, 0.0];
    let check = |targets: Targets<'_>, partners, loss: &Loss, outputs: usize, device: &Device| {
        let lambda = [1.0, 0.25, 0.5, 0.0];
        let samples = Samples::new(4, ModelInputs::default(), targets);
        let mixed = samples.mixed_with(&lambda, partners);
        for samples in [samples, mixed] {
            let uploaded = UploadedBatch::of(samples, &samples, device);
            let there = samples.with_upload(&uploaded);
            for rows in PARTS {
                let (own, part) = (samples.slice(rows.clone()), there.slice(rows.clone()));
                let of_outputs = |device: &Device| {
                    let values: Vec<f32> = (0..rows.len() * outputs)
                        .map(|i| f32::from(u8::try_from(i * 7 % 5).unwrap()) - 1.5)
                        .collect();
                    Tensor::<2>::from_data(TensorData::new(values, [rows.len(), outputs]), device)
                };
                let flex = Device::flex();
                let in_host = (own.targets, own.mixed);
                let expected = loss.per_mixed_sample(of_outputs(&flex), in_host, &flex);
                let targets = part.uploaded.unwrap().targets(rows.len(), device).unwrap();
                assert_eq!(targets.mixed.is_some(), samples.mixed.is_some());
                let found = loss.per_uploaded_sample(of_outputs(device), targets, device);
                for (found, expected) in numbers(found).iter().zip(numbers(expected)) {
                    assert!(
                        (found - expected).abs() < 1e-5,
                        "{loss:?} {found} {expected}"
                    );
                }
            }
        }
    };
    let reversed = [8.0, -3.0, 0.25, 0.5, 2.0, -1.5, 0.0, 1.0];
    let y = [1.0, 0.0, -1.5, 2.0, 0.5, 0.25, -3.0, 8.0];
    let classes = Targets::Classes(&[2, 0, 1, 2]);
    let others = Targets::Classes(&[0, 1, 1, 0]);
    let weighted = Loss::CrossEntropy {
        smoothing: 0.1,
        weights: Some(vec![0.5, 2.0, 1.25]),
    };
    let binary = Loss::BinaryCrossEntropy {
        positive_weight: 3.0,
    };
    let squared = Loss::from(LossKind::Mse);
    for device in &devices() {
        check(classes, others, &weighted, 3, device);
        check(
            Targets::Classes(&[1, 0, 0, 1]),
            Targets::Classes(&[0, 0, 1, 1]),
            &binary,
            1,
            device,
        );
        check(
            Targets::Numbers(&y[..4]),
            Targets::Numbers(&partners),
            &squared,
            1,
            device,
        );
        let vectors = Targets::Vectors { y: &y, width: 2 };
        let others = Targets::Vectors {
            y: &reversed,
            width: 2,
        };
        check(vectors, others, &squared, 2, device);
    }
}
