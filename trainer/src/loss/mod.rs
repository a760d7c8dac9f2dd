//! Losses, one number per sample. Their sum is taken outside, in f64 and in row order, so that it does not depend on how
//! the engine adds, and so that a bad sample can be named.
//!
//! The mean of a batch is the sum of its losses over [`Loss::weight`]: their number, or with class weights the sum of
//! the samples' weights, as in PyTorch. With `d` the output minus the stored (scaled) target:
//!
//! | loss | of a sample |
//! |---|---|
//! | squared | `d²` |
//! | absolute | `\|d\|` |
//! | Huber (1964) | `d² / 2` up to `\|d\| = delta`, beyond it `delta * (\|d\| - delta / 2)` |
//! | quantile (Koenker and Bassett 1978) | `quantile * -d` below the target, `(1 - quantile) * d` above it |
//! | cross-entropy | minus the logarithm of the softmax at the target's class, times the class's weight |
//! | binary cross-entropy | `-positive_weight * ln σ(x)` for class 1, `-ln σ(-x)` for class 0; one output `x` |
//!
//! The loss of a row that is mixed of two samples (mixup, CutMix) is `lambda` times that of its own target and `1 - lambda`
//! times that of its partner's, and its weight likewise.
//!
//! The loss of a row with several numbers as targets is the mean of the losses of each.
//!
//! In training, label smoothing (Szegedy et al. 2016, arXiv 1512.00567, section 7) takes `1 - smoothing` of the cross-entropy and
//! `smoothing / classes` of that of every class, each with the weight of its class.

mod settings;

use burn::tensor::{Device, Int, Tensor, TensorData, activation};

pub(crate) use self::settings::{check, fill, resolve};
use crate::{
    data::{MixedTargets, Targets},
    device::Upload as _,
    model::NextIds,
    number::{exact_len, single},
};

/// A loss.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Loss {
    /// Squared difference.
    Squared,
    /// Absolute difference.
    Absolute,
    /// Squared near 0, a line beyond `delta`.
    Huber { delta: f64 },
    /// The sides of 0 weigh differently.
    Quantile { quantile: f64 },
    /// Over classes, one output for each.
    CrossEntropy {
        smoothing: f64,
        /// Of each class, by id; `None` where all weigh 1.
        weights: Option<Vec<f32>>,
    },
    /// Two classes, one output.
    BinaryCrossEntropy { positive_weight: f64 },
}

impl Loss {
    /// The loss of each row of `outputs: [rows, outputs]`.
    ///
    /// Every class id must be below the number of classes.
    ///
    /// # Panics
    /// When the targets are not of the loss's kind: the settings check that before the first batch.
    pub(crate) fn per_sample(
        &self,
        outputs: Tensor<2>,
        targets: Targets<'_>,
        device: &Device,
    ) -> Tensor<1> {
        let rows = targets.len();
        let column =
            |values: Vec<f32>| Tensor::<2>::upload(TensorData::new(values, [rows, 1]), device);
        let losses = match (self, targets) {
            (Self::CrossEntropy { smoothing, weights }, Targets::Classes(y)) => {
                let ids = TensorData::new(y.to_vec(), [rows, 1]);
                let ids = Tensor::<2, Int>::upload(ids, device);
                let weights = weights.as_deref().map(|weights| (weights, y));
                cross_entropy(outputs, ids, *smoothing, weights, device)
            }
            (Self::BinaryCrossEntropy { positive_weight }, Targets::Classes(y)) => {
                let of = |class: i32, weight: f64| {
                    let weights = y.iter().map(|&y| if y == class { weight } else { 0.0 });
                    column(weights.map(single).collect())
                };
                let negative = activation::log_sigmoid(outputs.clone().neg());
                (activation::log_sigmoid(outputs) * of(1, *positive_weight) + negative * of(0, 1.0))
                    .neg()
            }
            (_, Targets::Numbers(y)) => self.of_difference(outputs - column(y.to_vec())),
            (_, Targets::Vectors { y, width }) => {
                let y = TensorData::new(y.to_vec(), [rows, width]);
                let of_each = self.of_difference(outputs - Tensor::<2>::upload(y, device));
                of_each.mean_dim(1)
            }
            (_, targets) => {
                unreachable!("the settings pair losses with targets, not {self:?} with {targets:?}")
            }
        };
        losses.reshape([rows])
    }

    /// The loss of each position of some rows whose next ids are on the device of the outputs, `[positions, ids]`: 0 where none
    /// is predicted.
    ///
    /// # Panics
    /// When it is another loss than the cross-entropy without weights: the settings have no other for tokens.
    pub(crate) fn per_position(&self, outputs: Tensor<2>, next: NextIds) -> Tensor<1> {
        let Self::CrossEntropy {
            smoothing,
            weights: None,
        } = self
        else {
            unreachable!("the settings have no such loss for tokens: {self:?}")
        };
        let [positions, _] = outputs.dims();
        let device = outputs.device();
        let ids = next.ids.reshape([positions, 1]);
        let losses = cross_entropy(outputs, ids, *smoothing, None, &device).reshape([positions]);
        match next.predicted {
            Some(predicted) => losses.mask_fill(predicted.reshape([positions]).bool_not(), 0.0),
            None => losses,
        }
    }

    /// The loss of each row, of those that are mixed with others too.
    ///
    /// # Panics
    /// As [`Loss::per_sample`].
    pub(crate) fn per_mixed_sample(
        &self,
        outputs: Tensor<2>,
        (targets, mixed): (Targets<'_>, Option<MixedTargets<'_>>),
        device: &Device,
    ) -> Tensor<1> {
        let Some(MixedTargets { lambda, partners }) = mixed else {
            return self.per_sample(outputs, targets, device);
        };
        let shares = |values: Vec<f32>| {
            let rows = values.len();
            Tensor::<1>::upload(TensorData::new(values, [rows]), device)
        };
        let own = self.per_sample(outputs.clone(), targets, device);
        let other = self.per_sample(outputs, partners, device);
        let rest = lambda.iter().map(|lambda| 1.0 - lambda).collect();
        own * shares(lambda.to_vec()) + other * shares(rest)
    }

    /// The same as [`Loss::weight`] of rows that may be mixed with others.
    pub(crate) fn mixed_weight(
        &self,
        targets: Targets<'_>,
        mixed: Option<MixedTargets<'_>>,
    ) -> f64 {
        let (
            Self::CrossEntropy {
                weights: Some(weights),
                ..
            },
            Targets::Classes(own),
            Some(MixedTargets {
                lambda,
                partners: Targets::Classes(partners),
            }),
        ) = (self, targets, mixed)
        else {
            return self.weight(targets);
        };
        let of = |id: i32| f64::from(of_class(weights, id));
        let rows = own.iter().zip(partners).zip(lambda);
        rows.map(|((own, partner), &lambda)| {
            let lambda = f64::from(lambda);
            lambda * of(*own) + (1.0 - lambda) * of(*partner)
        })
        .sum()
    }

    fn of_difference(&self, d: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Squared => d.clone() * d,
            Self::Absolute => d.abs(),
            Self::Huber { delta } => {
                let size = d.abs();
                let near = size.clone().clamp_max(*delta);
                near.clone() * near.clone() * 0.5 + (size - near) * *delta
            }
            Self::Quantile { quantile } => {
                let below = activation::relu(d.clone().neg());
                below * *quantile + activation::relu(d) * (1.0 - quantile)
            }
            Self::CrossEntropy { .. } | Self::BinaryCrossEntropy { .. } => {
                unreachable!("the settings pair losses of classes with classes")
            }
        }
    }

    /// The loss that validation measures: label smoothing is for training only.
    pub(crate) fn measured(&self) -> Self {
        match self {
            Self::CrossEntropy { weights, .. } => Self::CrossEntropy {
                smoothing: 0.0,
                weights: weights.clone(),
            },
            other => other.clone(),
        }
    }

    /// Outputs of a model that is to be compared with `targets` classes or numbers.
    pub(crate) const fn outputs(&self, targets: usize) -> usize {
        match self {
            Self::BinaryCrossEntropy { .. } => 1,
            _ => targets,
        }
    }

    /// Divisor of the sum of the losses of samples with these targets for their mean; in f64 and
    /// row order.
    pub(crate) fn weight(&self, targets: Targets<'_>) -> f64 {
        match (self, targets) {
            (
                Self::CrossEntropy {
                    weights: Some(weights),
                    ..
                },
                Targets::Classes(y),
            ) => y.iter().map(|&y| f64::from(of_class(weights, y))).sum(),
            _ => exact_len(targets.len()),
        }
    }
}

fn of_class(weights: &[f32], id: i32) -> f32 {
    weights[usize::try_from(id).expect("class ids were checked")]
}

/// `[rows, 1]`, of classes `ids`, `[rows, 1]`, with the weight of each class and the classes on the host, if classes have
/// weights. Computed as `log_sum_exp(outputs) - outputs[class]`, so large outputs do not overflow.
fn cross_entropy(
    outputs: Tensor<2>,
    ids: Tensor<2, Int>,
    smoothing: f64,
    weights: Option<(&[f32], &[i32])>,
    device: &Device,
) -> Tensor<2> {
    let [rows, classes] = outputs.dims();
    let minus_logarithm = activation::log_softmax(outputs, 1).neg();
    let mut of_target = minus_logarithm.clone().gather(1, ids);
    if let Some((weights, y)) = weights {
        let of_rows: Vec<f32> = y.iter().map(|&y| of_class(weights, y)).collect();
        of_target = of_target * Tensor::upload(TensorData::new(of_rows, [rows, 1]), device);
    }
    if smoothing > 0.0 {
        let of_all = match weights {
            None => minus_logarithm,
            Some((weights, _)) => {
                let weights = TensorData::new(weights.to_vec(), [1, classes]);
                minus_logarithm * Tensor::<2>::upload(weights, device)
            }
        };
        of_target * (1.0 - smoothing) + of_all.sum_dim(1) * (smoothing / exact_len(classes))
    } else {
        of_target
    }
}

/// Sum of per-sample losses, in f64 and row order.
pub(crate) fn sum(losses: &[f32]) -> f64 {
    losses.iter().map(|&loss| f64::from(loss)).sum()
}

/// The mean of losses, from their sum and their weight; 0 where there are none.
pub(crate) fn mean(sum: f64, weight: f64) -> f64 {
    if weight > 0.0 { sum / weight } else { 0.0 }
}

#[cfg(test)]
impl From<feedline_schemas::config::LossKind> for Loss {
    fn from(kind: feedline_schemas::config::LossKind) -> Self {
        settings::plain(kind)
    }
}

#[cfg(test)]
mod tests;
