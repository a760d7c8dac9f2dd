//! Losses, one number per sample. Their mean is taken outside, in f64 and in row order, so that it does not depend on
//! how the engine adds, and so that a bad sample can be named.

use burn::tensor::{Device, Int, Tensor, TensorData, activation};
use feedline_schemas::config::LossKind;

use crate::data::Targets;

/// The loss of each row of `outputs: [rows, outputs]`.
///
/// `Mse`: the square of the difference to the stored (scaled) target; one output. `CrossEntropy`: minus the logarithm
/// of the softmax of the target's class, computed as `log_sum_exp(outputs) - outputs[class]`; one output per class,
/// every class id must be below their number.
///
/// # Panics
/// When the targets are not of the loss's kind: the session checks that once, before the first batch.
pub(crate) fn per_sample(
    kind: LossKind,
    outputs: Tensor<2>,
    targets: Targets<'_>,
    device: &Device,
) -> Tensor<1> {
    let rows = targets.len();
    match (kind, targets) {
        (LossKind::Mse, Targets::Numbers(y)) => {
            let y = Tensor::<2>::from_data(TensorData::new(y.to_vec(), [rows, 1]), device);
            let difference = outputs - y;
            (difference.clone() * difference).reshape([rows])
        }
        (LossKind::CrossEntropy, Targets::Classes(y)) => {
            let y = Tensor::<2, Int>::from_data(TensorData::new(y.to_vec(), [rows, 1]), device);
            activation::log_softmax(outputs, 1)
                .gather(1, y)
                .neg()
                .reshape([rows])
        }
        (kind, targets) => {
            unreachable!("the session pairs losses with targets, not {kind:?} with {targets:?}")
        }
    }
}

/// Mean of per-sample losses, in f64 and row order; NaN for no samples.
#[expect(
    clippy::cast_precision_loss,
    reason = "batches are far below 2^53 rows"
)]
pub(crate) fn mean(losses: &[f32]) -> f64 {
    sum(losses) / losses.len() as f64
}

/// Sum of per-sample losses, in f64 and row order.
pub(crate) fn sum(losses: &[f32]) -> f64 {
    losses.iter().map(|&loss| f64::from(loss)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: LossKind, outputs: &[&[f32]], targets: Targets<'_>, expected: &[f32]) {
        let device = Device::flex();
        let shape = [outputs.len(), outputs[0].len()];
        let outputs = Tensor::<2>::from_data(TensorData::new(outputs.concat(), shape), &device);
        let found = per_sample(kind, outputs, targets, &device)
            .into_data()
            .try_into_vec::<f32>()
            .unwrap();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
                "{found}, expected {expected}"
            );
        }
    }

    #[test]
    fn squared_error_is_per_row() {
        check(
            LossKind::Mse,
            &[&[1.0], &[2.0], &[-1.5]],
            Targets::Numbers(&[1.0, 0.0, 1.0]),
            &[0.0, 4.0, 6.25],
        );
    }

    #[test]
    fn cross_entropy_of_equal_outputs_is_the_logarithm_of_their_number() {
        let ln4 = 4.0_f32.ln();
        check(
            LossKind::CrossEntropy,
            &[&[7.0; 4], &[-3.0; 4]],
            Targets::Classes(&[0, 3]),
            &[ln4, ln4],
        );
    }

    #[test]
    fn cross_entropy_of_huge_outputs_does_not_overflow() {
        let outputs: &[&[f32]] = &[&[1e4, 0.0], &[1e4, 0.0]];
        check(
            LossKind::CrossEntropy,
            outputs,
            Targets::Classes(&[0, 1]),
            &[0.0, 1e4],
        );
    }
}
