//! `[train.loss]`: which keys each type has, which targets it fits, and the loss it describes.

use std::collections::BTreeMap;

use feedline_schemas::{
    config::{ClassWeightRule, ClassWeights, LossConfig, LossKind, PositiveWeight},
    count::counted,
};

use super::Loss;
use crate::{
    config::values::{above_zero, filled, name_of, share, within},
    data::task::Task,
    error::{Error, config as wrong},
    float_casts::single,
    model::class_outputs,
};

const CLASS_WEIGHTS: &str = "loss.class_weights";
const POSITIVE_WEIGHT: &str = "loss.positive_weight";

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
    let weights: Vec<f64> = match &config.class_weights {
        Some(ClassWeights::Each(weights)) => weights.clone(),
        Some(ClassWeights::Named(weights)) => weights.values().copied().collect(),
        Some(ClassWeights::Rule(_)) | None => Vec::new(),
    };
    weights
        .into_iter()
        .try_for_each(|weight| above_zero(CLASS_WEIGHTS, weight))?;
    match &config.positive_weight {
        Some(PositiveWeight::Weight(weight)) => above_zero(POSITIVE_WEIGHT, *weight),
        Some(PositiveWeight::Named(weights)) => weights
            .values()
            .try_for_each(|weight| above_zero(POSITIVE_WEIGHT, *weight)),
        None => Ok(()),
    }
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
    let filled = fill(config, kind)?;
    let loss = loss(kind, &filled, task)?;
    Ok((filled, loss))
}

/// The keys of type `kind`, filled in where `config` has none.
///
/// # Errors
/// [`Error::Config`] for the first key that the type has no use for.
pub(crate) fn fill(config: &LossConfig, kind: LossKind) -> Result<LossConfig, Error> {
    let classes = kind == LossKind::CrossEntropy;
    Ok(LossConfig {
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
            CLASS_WEIGHTS,
            &kind,
            config.class_weights.clone(),
            config.class_weights.clone().filter(|_| classes),
        )?,
        positive_weight: filled(
            POSITIVE_WEIGHT,
            &kind,
            config.positive_weight.clone(),
            (kind == LossKind::BinaryCrossEntropy).then_some(PositiveWeight::Weight(1.0)),
        )?,
    })
}

/// A loss with its defaults.
#[cfg(test)]
pub(super) fn plain(kind: LossKind) -> Loss {
    let task = match kind {
        LossKind::CrossEntropy | LossKind::BinaryCrossEntropy => Task::Classification {
            counts: vec![1, 1],
            names: vec!["no".into(), "yes".into()],
        },
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
            positive_weight: positive_weight(config.positive_weight.as_ref(), task)?,
        },
    })
}

#[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
fn weights(config: Option<&ClassWeights>, task: &Task) -> Result<Option<Vec<f32>>, Error> {
    let counts: &[u64] = match task {
        Task::Classification { counts, .. } => counts,
        Task::Regression { .. }
        | Task::Regressions(_)
        | Task::NextToken { .. }
        | Task::Reconstruction { .. } => &[],
    };
    if config.is_some() && counts.is_empty() {
        return Err(wrong(CLASS_WEIGHTS, "tokens have no weights; leave it out"));
    }
    let classes = counts.len();
    match config {
        None => Ok(None),
        Some(ClassWeights::Each(weights)) if weights.len() == classes => {
            Ok(Some(weights.iter().copied().map(single).collect()))
        }
        Some(ClassWeights::Each(weights)) => {
            let found = counted(weights.len() as u64, "number");
            let classes = counted(classes as u64, "class");
            let reason = format!(
                "it has {found}, the dataset {classes}; give weights by name: {}",
                class_outputs::list(task.classes())
            );
            Err(wrong(CLASS_WEIGHTS, reason))
        }
        Some(ClassWeights::Named(weights)) => {
            let names = task.classes();
            check_names(CLASS_WEIGHTS, weights, names)?;
            let of = |name| single(weights.get(name).copied().unwrap_or(1.0));
            Ok(Some(names.iter().map(of).collect()))
        }
        Some(ClassWeights::Rule(ClassWeightRule::Balanced)) => {
            let empty = task.classes().iter().zip(counts);
            let empty: Vec<&String> = empty.filter(|(_, n)| **n == 0).map(|(c, _)| c).collect();
            if !empty.is_empty() {
                let reason = format!(
                    "`balanced` gives no weight to classes without training rows: {}; give weights by name",
                    class_outputs::list(&empty)
                );
                return Err(wrong(CLASS_WEIGHTS, reason));
            }
            let rows = counts.iter().sum::<u64>() as f64;
            let of = |&count: &u64| single(rows / (classes as f64 * count as f64));
            Ok(Some(counts.iter().map(of).collect()))
        }
    }
}

/// The weight of class 1.
fn positive_weight(config: Option<&PositiveWeight>, task: &Task) -> Result<f64, Error> {
    let weights = match config {
        None => return Ok(1.0),
        Some(PositiveWeight::Weight(weight)) => return Ok(*weight),
        Some(PositiveWeight::Named(weights)) => weights,
    };
    check_names(POSITIVE_WEIGHT, weights, task.classes())?;
    let [other, positive] = task.classes() else {
        return Err(wrong(POSITIVE_WEIGHT, "only one of two classes has it"));
    };
    match weights.get(positive) {
        Some(weight) if weights.len() == 1 => Ok(*weight),
        _ => {
            let reason = format!(
                "it is the weight of class 1, which is `{positive}`: name that class alone; to make `{other}` class 1, set \
                 `dataset.classes = [{positive:?}, {other:?}]` and build the dataset again"
            );
            Err(wrong(POSITIVE_WEIGHT, reason))
        }
    }
}

/// Refuses weights of classes that the dataset does not have.
fn check_names(
    key: &str,
    weights: &BTreeMap<String, f64>,
    classes: &[String],
) -> Result<(), Error> {
    let unknown = weights.keys().filter(|name| !classes.contains(name));
    let unknown: Vec<&String> = unknown.collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "the dataset has no class {}; its classes are {}",
        class_outputs::list(&unknown),
        class_outputs::list(classes)
    );
    Err(wrong(key, reason))
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
            names: (0..counts.len()).map(|id| format!("c{id}")).collect(),
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
    fn weights_by_name_follow_their_classes_and_unknown_names_are_refused() {
        let named = |weights: &[(&str, f64)]| {
            let weights = weights
                .iter()
                .map(|(name, weight)| ((*name).to_owned(), *weight));
            weights.collect::<BTreeMap<_, _>>()
        };
        let by_name = |weights: &[(&str, f64)]| LossConfig {
            class_weights: Some(ClassWeights::Named(named(weights))),
            ..LossConfig::default()
        };
        let three = classes(&[1, 3, 4]);
        let (_, loss) = resolve(&by_name(&[("c2", 5.0), ("c0", 0.5)]), &three).unwrap();
        let weights = Some(vec![0.5, 1.0, 5.0]);
        let expected = Loss::CrossEntropy {
            smoothing: 0.0,
            weights,
        };
        assert_eq!(loss, expected);
        let error = resolve(&by_name(&[("c1", 5.0), ("d", 2.0)]), &three).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot use `train.loss.class_weights`: the dataset has no class `d`; its classes are `c0`, `c1`, `c2`"
        );
        assert!(resolve(&by_name(&[("c1", 0.0)]), &three).is_err());

        let positive = |weights: &[(&str, f64)]| {
            let config = LossConfig {
                r#type: Some(LossKind::BinaryCrossEntropy),
                positive_weight: Some(PositiveWeight::Named(named(weights))),
                ..LossConfig::default()
            };
            resolve(&config, &classes(&[3, 1])).map(|(_, loss)| loss)
        };
        let weighted = Loss::BinaryCrossEntropy {
            positive_weight: 5.0,
        };
        assert_eq!(positive(&[("c1", 5.0)]).unwrap(), weighted);
        let other = positive(&[("c0", 5.0)]).unwrap_err().to_string();
        assert!(
            other.contains("which is `c1`") && other.contains("[\"c1\", \"c0\"]"),
            "{other}"
        );
        assert!(positive(&[("c0", 5.0), ("c1", 5.0)]).is_err());
        let unknown = positive(&[("yes", 5.0)]).unwrap_err().to_string();
        assert!(
            unknown.contains("no class `yes`; its classes are `c0`, `c1`"),
            "{unknown}"
        );
    }

    #[test]
    fn balanced_weights_of_a_class_without_rows_are_refused() {
        let config = LossConfig {
            class_weights: Some(ClassWeights::Rule(ClassWeightRule::Balanced)),
            ..LossConfig::default()
        };
        let error = resolve(&config, &classes(&[3, 0, 1]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("without training rows: `c1`"), "{error}");
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
                    positive_weight: Some(PositiveWeight::Weight(2.0)),
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
