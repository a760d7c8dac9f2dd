//! `[train.loss]`: which keys each type has, which targets it fits, and the loss it describes.

use feedline_schemas::config::{ClassWeightRule, ClassWeights, LossConfig, LossKind};

use super::Loss;
use crate::{
    error::{Error, config as wrong},
    number::single,
    settings::{above_zero, filled, name_of, share, within},
    task::Task,
};

/// Checks the values of `config` that need no dataset.
///
/// # Errors
/// [`Error::Config`] for the first value that is out of range.
pub(crate) fn check(config: &LossConfig) -> Result<(), Error> {
    let each = |key: &str, value: Option<f64>, check: fn(&str, f64) -> Result<(), Error>| {
        value.map_or(Ok(()), |value| check(&format!("loss.{key}"), value))
    };
    each("delta", config.delta, above_zero)?;
    each("quantile", config.quantile, |key, value| {
        within(
            key,
            value,
            value > 0.0 && value < 1.0,
            "above 0 and below 1",
        )
    })?;
    each("label_smoothing", config.label_smoothing, share)?;
    if let Some(ClassWeights::Each(weights)) = &config.class_weights {
        weights
            .iter()
            .try_for_each(|&weight| above_zero("loss.class_weights", weight))?;
    }
    each("positive_weight", config.positive_weight, above_zero)
}

/// Checks `config`, chooses the type for `task` where it names none, and fills in every key that the type has.
///
/// # Errors
/// [`Error::Config`] for the first key that the type has no use for, whose value is out of range, or that does not fit
/// the task.
pub(crate) fn resolve(config: &LossConfig, task: &Task) -> Result<(LossConfig, Loss), Error> {
    check(config)?;
    let kind = config.r#type.unwrap_or(task.default_loss());
    if !task.losses().contains(&kind) {
        let fitting: Vec<String> = task.losses().iter().map(name_of).collect();
        let reason = format!(
            "`{}` does not fit the dataset's target; use `{}`, or leave it out",
            name_of(&kind),
            fitting.join("` or `")
        );
        return Err(wrong("loss.type", reason));
    }
    let classes = kind == LossKind::CrossEntropy;
    let filled = LossConfig {
        r#type: Some(kind),
        delta: filled(
            "loss.delta",
            &kind,
            config.delta,
            (kind == LossKind::Huber).then_some(1.0),
        )?,
        quantile: filled(
            "loss.quantile",
            &kind,
            config.quantile,
            (kind == LossKind::Quantile).then_some(0.5),
        )?,
        label_smoothing: filled(
            "loss.label_smoothing",
            &kind,
            config.label_smoothing,
            classes.then_some(0.0),
        )?,
        class_weights: filled(
            "loss.class_weights",
            &kind,
            config.class_weights.clone(),
            config.class_weights.clone().filter(|_| classes),
        )?,
        positive_weight: filled(
            "loss.positive_weight",
            &kind,
            config.positive_weight,
            (kind == LossKind::BinaryCrossEntropy).then_some(1.0),
        )?,
    };
    let loss = loss(kind, &filled, task)?;
    Ok((filled, loss))
}

/// A loss with its defaults.
#[cfg(test)]
pub(super) fn plain(kind: LossKind) -> Loss {
    let task = match kind {
        LossKind::CrossEntropy | LossKind::BinaryCrossEntropy => {
            Task::Classification { counts: vec![1, 1] }
        }
        _ => Task::Regression {
            mean: 0.0,
            offset: 0.0,
            scale: 1.0,
        },
    };
    let config = LossConfig {
        r#type: Some(kind),
        ..LossConfig::default()
    };
    resolve(&config, &task).unwrap().1
}

fn loss(kind: LossKind, config: &LossConfig, task: &Task) -> Result<Loss, Error> {
    let number = |key: Option<f64>| key.expect("what the type uses was filled in");
    Ok(match kind {
        LossKind::Mse => Loss::Squared,
        LossKind::Mae => Loss::Absolute,
        LossKind::Huber => Loss::Huber {
            delta: number(config.delta),
        },
        LossKind::Quantile => Loss::Quantile {
            quantile: number(config.quantile),
        },
        LossKind::CrossEntropy => Loss::CrossEntropy {
            smoothing: number(config.label_smoothing),
            weights: weights(config.class_weights.as_ref(), task)?,
        },
        LossKind::BinaryCrossEntropy => Loss::BinaryCrossEntropy {
            positive_weight: number(config.positive_weight),
        },
    })
}

#[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
fn weights(config: Option<&ClassWeights>, task: &Task) -> Result<Option<Vec<f32>>, Error> {
    let counts: &[u64] = match task {
        Task::Classification { counts } => counts,
        Task::Regression { .. } | Task::NextToken { .. } | Task::Reconstruction { .. } => &[],
    };
    if config.is_some() && counts.is_empty() {
        return Err(wrong(
            "loss.class_weights",
            "tokens have no weights; leave it out",
        ));
    }
    let classes = counts.len();
    match config {
        None => Ok(None),
        Some(ClassWeights::Each(weights)) if weights.len() == classes => {
            Ok(Some(weights.iter().copied().map(single).collect()))
        }
        Some(ClassWeights::Each(weights)) => {
            let found = weights.len();
            let reason = format!("it has {found} numbers, the dataset {classes} classes");
            Err(wrong("loss.class_weights", reason))
        }
        Some(ClassWeights::Rule(ClassWeightRule::Balanced)) => {
            let rows = counts.iter().sum::<u64>() as f64;
            let of = |&count: &u64| single(rows / (classes as f64 * count as f64));
            Ok(Some(counts.iter().map(of).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Task = Task::Regression {
        mean: 0.0,
        offset: 0.0,
        scale: 1.0,
    };

    fn classes(counts: &[u64]) -> Task {
        Task::Classification {
            counts: counts.to_vec(),
        }
    }

    fn of(kind: LossKind) -> LossConfig {
        LossConfig {
            r#type: Some(kind),
            ..LossConfig::default()
        }
    }

    #[test]
    fn the_task_chooses_and_resolving_twice_changes_nothing() {
        let (config, loss) = resolve(&LossConfig::default(), &NUMBERS).unwrap();
        assert_eq!(loss, Loss::Squared);
        assert_eq!(resolve(&config, &NUMBERS).unwrap().0, config);
        let (config, loss) = resolve(&LossConfig::default(), &classes(&[3, 1])).unwrap();
        let plain = Loss::CrossEntropy {
            smoothing: 0.0,
            weights: None,
        };
        assert_eq!(loss, plain);
        assert_eq!(resolve(&config, &classes(&[3, 1])).unwrap().0, config);
        let huber = resolve(&of(LossKind::Huber), &NUMBERS).unwrap().1;
        assert_eq!(huber, Loss::Huber { delta: 1.0 });
    }

    #[test]
    fn balanced_classes_weigh_alike() {
        let config = LossConfig {
            class_weights: Some(ClassWeights::Rule(ClassWeightRule::Balanced)),
            ..LossConfig::default()
        };
        let (_, loss) = resolve(&config, &classes(&[1, 3, 4])).unwrap();
        let Loss::CrossEntropy { weights, .. } = loss else {
            panic!("{loss:?}")
        };
        let weights = weights.unwrap();
        for (weight, count) in weights.iter().zip([1.0, 3.0, 4.0]) {
            assert!((weight * count - 8.0 / 3.0).abs() < 1e-6, "{weights:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |config: LossConfig, task: &Task| {
            let error = resolve(&config, task).unwrap_err();
            error.to_string()
        };
        let two = classes(&[3, 1]);
        assert_eq!(
            refused(of(LossKind::Mae), &two),
            "cannot use `train.loss.type`: `mae` does not fit the dataset's target; use `cross_entropy` or \
             `binary_cross_entropy`, or leave it out"
        );
        let three = refused(of(LossKind::BinaryCrossEntropy), &classes(&[1, 1, 1]));
        assert!(three.contains("use `cross_entropy`, or"), "{three}");
        let numbers = refused(of(LossKind::CrossEntropy), &NUMBERS);
        assert!(numbers.contains("`mse` or `mae` or `huber`"), "{numbers}");
        let weights = LossConfig {
            class_weights: Some(ClassWeights::Each(vec![1.0; 3])),
            ..LossConfig::default()
        };
        let message = refused(weights, &two);
        assert!(
            message.contains("it has 3 numbers, the dataset 2 classes"),
            "{message}"
        );
    }

    #[test]
    fn values_out_of_range_and_keys_of_other_types_are_named() {
        let refused =
            |config: LossConfig, task: &Task| resolve(&config, task).unwrap_err().to_string();
        let plain = LossConfig::default;
        let two = classes(&[3, 1]);
        let huber = of(LossKind::Huber);
        for (key, config, task) in [
            (
                "delta",
                LossConfig {
                    delta: Some(0.0),
                    ..huber
                },
                &NUMBERS,
            ),
            (
                "delta",
                LossConfig {
                    delta: Some(1.0),
                    ..plain()
                },
                &NUMBERS,
            ),
            (
                "quantile",
                LossConfig {
                    quantile: Some(1.0),
                    ..of(LossKind::Quantile)
                },
                &NUMBERS,
            ),
            (
                "label_smoothing",
                LossConfig {
                    label_smoothing: Some(1.0),
                    ..plain()
                },
                &two,
            ),
            (
                "label_smoothing",
                LossConfig {
                    label_smoothing: Some(0.1),
                    ..plain()
                },
                &NUMBERS,
            ),
            (
                "positive_weight",
                LossConfig {
                    positive_weight: Some(2.0),
                    ..plain()
                },
                &two,
            ),
            (
                "class_weights",
                LossConfig {
                    class_weights: Some(ClassWeights::Each(vec![1.0, 0.0])),
                    ..plain()
                },
                &two,
            ),
        ] {
            let message = refused(config, task);
            assert!(
                message.contains(&format!("`train.loss.{key}`")),
                "{message}"
            );
        }
    }
}
