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
    data::samples::{MixedTargets, Targets},
    device::Upload as _,
    float_casts::{exact_len, single},
    model::{
        input::{RowTargets, TargetTensor},
        interface::NextIds,
    },
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
        let Some(targets) = TargetTensor::upload(targets, device) else {
            unreachable!("the settings pair no loss with samples without targets, not {self:?}")
        };
        self.per_target(outputs, targets, device)
    }

    /// The same of targets that are on the device.
    fn per_target(&self, outputs: Tensor<2>, targets: TargetTensor, device: &Device) -> Tensor<1> {
        let [rows, _] = outputs.dims();
        let losses = match (self, targets) {
            (Self::CrossEntropy { smoothing, weights }, TargetTensor::Classes(ids)) => {
                let weights = weights.as_deref().map(|weights| {
                    let data = TensorData::new(weights.to_vec(), [weights.len()]);
                    Tensor::<1>::upload(data, device)
                });
                cross_entropy(outputs, ids, *smoothing, weights)
            }
            (Self::BinaryCrossEntropy { positive_weight }, TargetTensor::Classes(ids)) => {
                let of = |class: i32, weight: f64| {
                    let of_class = ids.clone().equal_elem(class);
                    Tensor::zeros([rows, 1], device).mask_fill(of_class, single(weight))
                };
                let negative = activation::log_sigmoid(outputs.clone().neg());
                (activation::log_sigmoid(outputs) * of(1, *positive_weight) + negative * of(0, 1.0))
                    .neg()
            }
            (_, TargetTensor::Numbers(y)) => {
                let of_each = self.of_difference(outputs - y);
                if of_each.dims()[1] > 1 {
                    of_each.mean_dim(1)
                } else {
                    of_each
                }
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
        let ids = next.ids.reshape([positions, 1]);
        let losses = cross_entropy(outputs, ids, *smoothing, None).reshape([positions]);
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
        let lambda = TensorData::new(lambda.to_vec(), [lambda.len()]);
        let own = self.per_sample(outputs.clone(), targets, device);
        let other = self.per_sample(outputs, partners, device);
        mixture(Tensor::upload(lambda, device), own, other)
    }

    /// The same of targets that are on the device.
    pub(crate) fn per_uploaded_sample(
        &self,
        outputs: Tensor<2>,
        targets: RowTargets,
        device: &Device,
    ) -> Tensor<1> {
        let RowTargets { own, mixed } = targets;
        let Some((lambda, partners)) = mixed else {
            return self.per_target(outputs, own, device);
        };
        let own = self.per_target(outputs.clone(), own, device);
        mixture(lambda, own, self.per_target(outputs, partners, device))
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

/// `lambda` of the losses of own targets and the rest of those of others.
fn mixture(lambda: Tensor<1>, own: Tensor<1>, other: Tensor<1>) -> Tensor<1> {
    let rest = lambda.clone().neg() + 1.0;
    own * lambda + other * rest
}

/// `[rows, 1]`, of classes `ids`, `[rows, 1]`, with the weight of each class, if classes have weights. Computed as
/// `log_sum_exp(outputs) - outputs[class]`, so large outputs do not overflow.
fn cross_entropy(
    outputs: Tensor<2>,
    ids: Tensor<2, Int>,
    smoothing: f64,
    weights: Option<Tensor<1>>,
) -> Tensor<2> {
    let [rows, classes] = outputs.dims();
    let minus_logarithm = activation::log_softmax(outputs, 1).neg();
    let mut of_target = minus_logarithm.clone().gather(1, ids.clone());
    if let Some(weights) = &weights {
        let of_rows = weights.clone().select(0, ids.reshape([rows]));
        of_target = of_target * of_rows.reshape([rows, 1]);
    }
    if smoothing > 0.0 {
        let of_all = match weights {
            None => minus_logarithm,
            Some(weights) => minus_logarithm * weights.reshape([1, classes]),
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
