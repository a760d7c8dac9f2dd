//! Each loss against PyTorch's (`tests/torch/losses.py`), and its gradient against finite differences too.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

const NUMBERS: Targets<'_> = Targets::Numbers(&[0.5, -1.25, 3.0, 0.0, -0.75, 2.0, 0.1]);
const PREDICTED: [f32; 7] = [0.25, 1.5, -2.0, 0.0, -0.8, 2.5, 40.0];
const CLASSES: Targets<'_> = Targets::Classes(&[0, 2, 1, 3, 2, 2]);
const LOGITS: [[f32; 4]; 6] = [
    [1.5, -0.5, 0.25, 0.0],
    [0.1, 0.2, 0.3, 0.4],
    [-3.0, 20.0, 1.0, 2.0],
    [50.0, -50.0, 0.0, 1.0],
    [0.0, 0.0, 0.0, 0.0],
    [-1.0, -2.0, -0.5, 4.0],
];
const BINARY: Targets<'_> = Targets::Classes(&[0, 1, 1, 0, 1, 0, 1]);
const BINARY_LOGITS: [f32; 7] = [0.3, -1.5, 2.0, 0.0, 0.0, 60.0, -60.0];
const WEIGHTS: [f32; 4] = [0.5, 2.0, 1.25, 3.0];

#[derive(Deserialize)]
struct Expected {
    losses: Vec<f64>,
    mean: f64,
    gradient: Vec<f64>,
}

#[test]
fn the_loss_of_several_targets_is_the_mean_of_those_of_each() {
    let device = Device::flex();
    let values = |tensor: Tensor<1>| tensor.into_data().try_into_vec::<f32>().unwrap();
    let y = [0.5, -1.25, 3.0, 0.0, -0.75, 2.0];
    let outputs = [0.25, 1.5, -2.0, 0.0, -0.8, 2.5];
    let tensor = |numbers: &[f32], shape: [usize; 2]| {
        Tensor::<2>::from_data(TensorData::new(numbers.to_vec(), shape), &device)
    };
    for loss in [
        Loss::Squared,
        Loss::Absolute,
        Loss::Huber { delta: 1.0 },
        Loss::Quantile { quantile: 0.3 },
    ] {
        let vectors = Targets::Vectors { y: &y, width: 3 };
        let found = values(loss.per_sample(tensor(&outputs, [2, 3]), vectors, &device));
        let of_each = loss.per_sample(tensor(&outputs, [6, 1]), Targets::Numbers(&y), &device);
        let of_each = values(of_each);
        let expected: Vec<f32> = of_each
            .chunks(3)
            .map(|row| row.iter().sum::<f32>() / 3.0)
            .collect();
        for (found, expected) in found.iter().zip(&expected) {
            assert!(
                (found - expected).abs() < 1e-6,
                "{loss:?}: {found} {expected}"
            );
        }
        assert_eq!((found.len(), loss.weight(vectors)), (2, 2.0));
        // One target in a list is that target alone, bit for bit.
        let alone = Targets::Vectors { y: &y, width: 1 };
        let alone = values(loss.per_sample(tensor(&outputs, [6, 1]), alone, &device));
        assert_eq!(alone, of_each);
    }
}

#[test]
fn the_loss_of_a_mixed_row_is_that_of_both_targets_by_their_shares() {
    let device = Device::flex();
    let outputs = || {
        let data = TensorData::new(LOGITS.concat(), [LOGITS.len(), 4]);
        Tensor::<2>::from_data(data, &device)
    };
    let partners = Targets::Classes(&[3, 2, 0, 0, 1, 3]);
    let lambda = [0.0, 1.0, 0.25, 0.5, 0.9, 0.3];
    let mixed = MixedTargets {
        lambda: &lambda,
        partners,
    };
    for weights in [None, Some(WEIGHTS.to_vec())] {
        let loss = Loss::CrossEntropy {
            smoothing: 0.1,
            weights: weights.clone(),
        };
        let values = |tensor: Tensor<1>| tensor.into_data().try_into_vec::<f32>().unwrap();
        let found = values(loss.per_mixed_sample(outputs(), (CLASSES, Some(mixed)), &device));
        let own = values(loss.per_sample(outputs(), CLASSES, &device));
        let other = values(loss.per_sample(outputs(), partners, &device));
        for (row, found) in found.iter().enumerate() {
            let expected = lambda[row] * own[row] + (1.0 - lambda[row]) * other[row];
            assert!(
                (found - expected).abs() <= 1e-6 * expected.max(1.0),
                "row {row}"
            );
        }
        let weight = loss.mixed_weight(CLASSES, Some(mixed));
        // Of classes 0, 2, 1, 3, 2, 2 and their partners.
        let expected = match weights {
            None => 6.0,
            Some(_) => {
                3.0 + 1.25
                    + (0.25 * 2.0 + 0.75 * 0.5)
                    + (0.5 * 3.0 + 0.5 * 0.5)
                    + (0.9 * 1.25 + 0.1 * 2.0)
                    + (0.3 * 1.25 + 0.7 * 3.0)
            }
        };
        assert!(
            (weight - expected).abs() < 1e-6,
            "{weight}, expected {expected}"
        );
    }
}

/// Losses of all rows, and the gradient of their mean.
fn compute(loss: &Loss, outputs: &[f32], targets: Targets<'_>) -> (Vec<f32>, Vec<f32>) {
    let device = Device::flex().autodiff();
    let shape = [targets.len(), outputs.len() / targets.len()];
    let data = TensorData::new(outputs.to_vec(), shape);
    let outputs = Tensor::<2>::from_data(data, &device).require_grad();
    let losses = loss.per_sample(outputs.clone(), targets, &device);
    let values = losses.clone().inner().into_data().try_into_vec().unwrap();
    let mean = losses.sum() / loss.weight(targets);
    let gradient = outputs.grad_remove(&mut mean.backward()).unwrap();
    (values, gradient.into_data().try_into_vec().unwrap())
}

fn close(name: &str, found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        let found = f64::from(*found);
        assert!(
            (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
            "{name}: {found}, expected {expected}"
        );
    }
}

fn cases() -> Vec<(&'static str, Loss, Vec<f32>, Targets<'static>)> {
    let cross_entropy = |smoothing, weights: Option<[f32; 4]>| Loss::CrossEntropy {
        smoothing,
        weights: weights.map(|weights| weights.to_vec()),
    };
    let binary = |positive_weight| Loss::BinaryCrossEntropy { positive_weight };
    let numbers = |name, loss| (name, loss, PREDICTED.to_vec(), NUMBERS);
    let classes = |name, loss| (name, loss, LOGITS.concat(), CLASSES);
    let two = |name, loss| (name, loss, BINARY_LOGITS.to_vec(), BINARY);
    vec![
        numbers("mse", Loss::Squared),
        numbers("mae", Loss::Absolute),
        numbers("huber", Loss::Huber { delta: 0.6 }),
        numbers("quantile", Loss::Quantile { quantile: 0.8 }),
        classes("cross_entropy", cross_entropy(0.0, None)),
        classes("smoothed", cross_entropy(0.15, None)),
        classes("weighted", cross_entropy(0.0, Some(WEIGHTS))),
        classes("smoothed_and_weighted", cross_entropy(0.15, Some(WEIGHTS))),
        two("binary", binary(1.0)),
        two("binary_weighted", binary(2.5)),
    ]
}

#[test]
fn losses_means_and_gradients_equal_pytorchs() {
    let text = include_str!("../../../tests/torch/losses.json");
    let fixture: BTreeMap<String, Expected> = serde_json::from_str(text).unwrap();
    assert_eq!(fixture.len(), cases().len());
    for (name, loss, outputs, targets) in cases() {
        let expected = &fixture[name];
        let (losses, gradient) = compute(&loss, &outputs, targets);
        close(name, &losses, &expected.losses);
        let mean = sum(&losses) / loss.weight(targets);
        assert!(
            (mean - expected.mean).abs() <= 1e-6 * expected.mean,
            "{name}: {mean}"
        );
        // Where a loss has a corner, at a difference of 0, any slope between its sides' is right; ours is 0.
        let corner = matches!(loss, Loss::Quantile { .. }).then_some(3);
        let mut slopes = expected.gradient.clone();
        if let Some(corner) = corner {
            slopes[corner] = 0.0;
        }
        close(name, &gradient, &slopes);
    }
}

#[test]
fn gradients_equal_finite_differences() {
    for (name, loss, mut outputs, targets) in cases() {
        // Away from corners, and small enough that f32 resolves a difference.
        for output in &mut outputs {
            *output = (*output + 0.07).clamp(-4.0, 4.0);
        }
        let (_, gradient) = compute(&loss, &outputs, targets);
        for i in 0..outputs.len() {
            let at = |shift: f32| {
                let mut moved = outputs.clone();
                moved[i] += shift;
                sum(&compute(&loss, &moved, targets).0) / loss.weight(targets)
            };
            let difference = (at(0.01) - at(-0.01)) / 0.02;
            let found = f64::from(gradient[i]);
            assert!(
                (found - difference).abs() < 1e-4,
                "{name} {i}: {found} {difference}"
            );
        }
    }
}

#[test]
fn huge_outputs_do_not_overflow() {
    let cross_entropy = Loss::CrossEntropy {
        smoothing: 0.0,
        weights: None,
    };
    let outputs = [1e4, 0.0, 1e4, 0.0];
    let (losses, _) = compute(&cross_entropy, &outputs, Targets::Classes(&[0, 1]));
    close("cross_entropy", &losses, &[0.0, 1e4]);
    let binary = Loss::BinaryCrossEntropy {
        positive_weight: 1.0,
    };
    let (losses, gradient) = compute(&binary, &[1e4, -1e4], Targets::Classes(&[0, 0]));
    close("binary", &losses, &[1e4, 0.0]);
    close("binary", &gradient, &[0.5, 0.0]);
}

#[test]
fn only_class_weights_change_the_weight_of_samples() {
    for (name, loss, _, targets) in cases() {
        let expected = match targets {
            Targets::Classes(y) if name.ends_with("weighted") && y.len() == 6 => {
                0.5 + 1.25 + 2.0 + 3.0 + 1.25 + 1.25
            }
            targets => exact_len(targets.len()),
        };
        let found = loss.weight(targets);
        assert!((found - expected).abs() < 1e-12, "{name}: {found}");
    }
}
