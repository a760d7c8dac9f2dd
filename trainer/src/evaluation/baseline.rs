//! A model beside a baseline that looks at no feature.
//!
//! Metrics are compared that the loss asks for: the root mean squared error, the mean absolute error, or for classes both
//! accuracy and cross-entropy. Weights of classes make a model worse in those on purpose, so that F1 and the area under the
//! curve count as well. A quantile other than the median is compared by its pinball loss, with the best constant of the other
//! rows of the split.

use feedline_schemas::{
    checkpoint::BestEpoch,
    config::{BaselinePolicy, LossConfig, LossKind, PositiveWeight, TrainConfig},
    count::counted,
    manifest::{NaiveForecast, Split},
    report::Warning,
};

use crate::{
    data::task::Task,
    evaluation::metrics::{Metrics, metric},
};

/// Code of the warning.
pub(crate) const CODE: &str = "worse_than_baseline";

/// Key that decides what such a model means.
const KEY: &str = "train.require_better_than_baseline";

/// Metrics that are better the higher they are.
pub(crate) const HIGHER: [&str; 6] = ["accuracy", "auc", "f1", "f1_macro", "r2", "top5_accuracy"];

/// Returns whether a metric is better the higher it is; one of several targets counts as that of all.
pub(crate) fn is_higher_better(metric: &str) -> bool {
    HIGHER.contains(&of_any_target(metric))
}

/// The name of a metric without that of a target.
pub(crate) fn of_any_target(metric: &str) -> &str {
    metric.split_once('.').map_or(metric, |(name, _)| name)
}

/// Returns true if the loss has a weight for the positive class of two.
fn has_positive_weight(loss: &LossConfig) -> bool {
    match &loss.positive_weight {
        None => false,
        Some(PositiveWeight::Weight(weight)) => weight.total_cmp(&1.0).is_ne(),
        Some(PositiveWeight::Named(_)) => true,
    }
}

/// Returns true if the loss has weights of classes.
fn has_weights(loss: &LossConfig) -> bool {
    loss.class_weights.is_some() || has_positive_weight(loss)
}

/// The metrics that are compared, the main one first.
pub(crate) fn compared(loss: &LossConfig) -> &'static [&'static str] {
    match loss.r#type {
        Some(LossKind::Mae) => &["mae"],
        Some(LossKind::Quantile) if loss.quantile.is_some_and(|q| q.total_cmp(&0.5).is_ne()) => {
            &["pinball"]
        }
        Some(LossKind::Quantile) => &["mae"],
        Some(LossKind::Mse | LossKind::Huber) => &["rmse"],
        _ if has_weights(loss) => &["f1_macro", "auc", "accuracy", "cross_entropy"],
        // Of an autoencoder there is no baseline, of numbers no cross-entropy.
        Some(LossKind::CrossEntropy | LossKind::BinaryCrossEntropy) => {
            &["cross_entropy", "accuracy"]
        }
        None => &["rmse", "cross_entropy", "accuracy"],
    }
}

/// Likely cause of a model of classes that is worse than its baseline: a loader that changes how often each class appears in
/// training. With weights of classes there is none to name: such a model is worse in F1 and the area under the curve too, which
/// other probabilities do not explain.
pub(crate) fn cause_in_balance(config: &TrainConfig) -> Option<String> {
    let is_cause = config.loader.balance.is_some() && !has_weights(&config.loss);
    is_cause.then(|| {
        "`train.loader.balance` changes how often each class appears in training, so predicted probabilities are not those of \
         the split, which may be the cause: compare `f1_macro` and, of two classes, `auc` with the baseline"
            .to_owned()
    })
}

/// A metric that is no better than the baseline's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorseThanBaseline {
    pub(crate) metric: String,
    pub(crate) found: f64,
    pub(crate) baseline: f64,
}

impl WorseThanBaseline {
    /// Says it of the model on a split.
    pub(crate) fn sentence(&self, split: Split) -> String {
        let Self {
            metric: name,
            found,
            baseline,
        } = self;
        let times = match is_higher_better(name) {
            true => baseline / found,
            false => found / baseline,
        };
        let how = match times.is_finite() && times >= 1.05 {
            true if is_higher_better(name) => "below the".to_owned(),
            true => format!("{times:.1} times the"),
            false => "no better than the".to_owned(),
        };
        format!(
            "{name} on the {split} split is {}, {how} {} of a baseline that looks at no feature",
            metric(*found),
            metric(*baseline)
        )
    }
}

/// The main metric, where none of those compared is better than the baseline's.
pub(crate) fn behind(
    loss: &LossConfig,
    metrics: &Metrics,
    baseline: &Metrics,
) -> Option<WorseThanBaseline> {
    let both = compared(loss)
        .iter()
        .filter_map(|name| Some((*name, *metrics.get(*name)?, *baseline.get(*name)?)));
    let both: Vec<_> = both.collect();
    let is_better = |(name, found, baseline): &(&str, f64, f64)| match is_higher_better(name) {
        true => found > baseline,
        false => found < baseline,
    };
    match both.first() {
        Some((metric, found, of_baseline)) if !both.iter().any(is_better) => {
            Some(WorseThanBaseline {
                metric: (*metric).to_owned(),
                found: *found,
                baseline: *of_baseline,
            })
        }
        _ => None,
    }
}

/// The main metric of the first of several targets that are predicted no better than by the baseline, and how many these are.
fn behind_of_target(
    loss: &LossConfig,
    metrics: &Metrics,
    baseline: &Metrics,
) -> Option<(WorseThanBaseline, usize)> {
    let main = *compared(loss).first()?;
    let of_targets = metrics
        .iter()
        .filter(|(name, _)| name.len() > main.len() && of_any_target(name) == main);
    let mut behind = of_targets.filter_map(|(name, found)| {
        let baseline = *baseline.get(name)?;
        // NaN is no better.
        let is_better = match is_higher_better(name) {
            true => *found > baseline,
            false => *found < baseline,
        };
        (!is_better).then(|| WorseThanBaseline {
            metric: name.clone(),
            found: *found,
            baseline,
        })
    });
    Some((behind.next()?, 1 + behind.count()))
}

/// The warning of a model that is no better than its baseline on the validation split, or else on the test split.
pub(crate) fn warning(
    config: &TrainConfig,
    best: Option<&BestEpoch>,
    test: [&Metrics; 2],
) -> Option<Warning> {
    if config.require_better_than_baseline == BaselinePolicy::Ignore {
        return None;
    }
    let of_best = best.map(|best| (Split::Validation, [&best.metrics, &best.baseline]));
    let mut splits = of_best.into_iter().chain([(Split::Test, test)]);
    splits.find_map(|(split, metrics)| of_split(config, split, metrics))
}

/// The warning of a model that is no better than its baseline on a split.
pub(crate) fn of_split(
    config: &TrainConfig,
    split: Split,
    [metrics, baseline]: [&Metrics; 2],
) -> Option<Warning> {
    if config.require_better_than_baseline == BaselinePolicy::Ignore {
        return None;
    }
    let loss = &config.loss;
    let message = match behind(loss, metrics, baseline) {
        Some(behind) => behind.sentence(split),
        None => {
            let (behind, targets) = behind_of_target(loss, metrics, baseline)?;
            match targets - 1 {
                0 => behind.sentence(split),
                more => format!(
                    "{}; so it is of {}",
                    behind.sentence(split),
                    counted(more as u64, "further target")
                ),
            }
        }
    };
    let message = match cause_in_balance(config) {
        Some(cause) => format!("{message}; {cause}"),
        None => message,
    };
    Some(Warning::new(CODE, message).with_key(KEY))
}

/// Fraction of the training mean up to which a baseline's error is none, as far as stored numbers say.
const ROUNDING: f64 = 1e-6;

/// The warning of a target without any other value than the training mean on these splits. A split of equal targets has no `r2`;
/// the error alone says nothing, as different targets may be close to each other beside a large mean.
pub(crate) fn constant_target(task: &Task, baselines: [&Metrics; 2]) -> Option<Warning> {
    let Task::Regression { mean, .. } = task else {
        return None;
    };
    let is_constant = |baseline: &Metrics| {
        let error = baseline.get("rmse");
        let is_mean = error.is_some_and(|rmse| *rmse <= ROUNDING * mean.abs());
        is_mean && !baseline.contains_key("r2")
    };
    baselines.into_iter().all(is_constant).then(|| {
        let message = format!(
            "the target is `{mean}` in all rows of the validation and the test split, as its mean in training: there is nothing to \
             learn from it"
        );
        Warning::new("constant_target", message).with_key("dataset.target")
    })
}

/// The warning of a forecast of one number that is worse on a split of `rows` windows than the best naive forecast of the
/// dataset. A naive forecast that is known for fewer than half of them is another measure, and is not compared.
pub(crate) fn of_naive(
    config: &TrainConfig,
    naive: &[NaiveForecast],
    (split, rows, metrics): (Split, u64, &Metrics),
) -> Option<Warning> {
    if config.require_better_than_baseline == BaselinePolicy::Ignore {
        return None;
    }
    let name = *compared(&config.loss).first()?;
    let found = *metrics.get(name)?;
    if metrics.keys().any(|name| name.contains('.')) {
        return None;
    }
    let of_split = naive.iter().filter_map(|forecast| {
        let metrics = forecast.splits.get(&split)?;
        let value = match name {
            "rmse" => metrics.rmse,
            "mae" => metrics.mae,
            _ => return None,
        };
        (metrics.windows.saturating_mul(2) >= rows).then_some((forecast, value, metrics.windows))
    });
    let (forecast, value, windows) = of_split.min_by(|(_, a, _), (_, b, _)| a.total_cmp(b))?;
    // NaN is no better.
    let is_better = found <= value;
    (!is_better).then(|| {
        let known = match windows < rows {
            true => format!(" and is known for {windows} of the {rows} windows"),
            false => String::new(),
        };
        let message = format!(
            "{name} on the {split} split is {}, and {} for the naive forecast `{}` of {} before, which needs no model{known}",
            metric(found),
            metric(value),
            forecast.method.as_str(),
            counted(forecast.lag.into(), "row")
        );
        Warning::new("worse_than_naive", message).with_key(KEY)
    })
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::{BalanceRule, ClassBalanceConfig, ClassWeightRule, ClassWeights},
        manifest::{NaiveMethod, NaiveMetrics},
    };

    use super::*;

    fn of(kind: LossKind) -> LossConfig {
        LossConfig {
            r#type: Some(kind),
            ..LossConfig::default()
        }
    }

    #[test]
    fn further_targets_that_are_no_better_are_counted() {
        let metrics = |values: [f64; 4]| -> Metrics {
            let names = ["rmse", "rmse.a", "rmse.b", "rmse.c"].map(str::to_owned);
            names.into_iter().zip(values).collect()
        };
        let message = |found: [f64; 4]| {
            let (found, baseline) = (metrics(found), metrics([1.0; 4]));
            let warning = of_split(&TrainConfig::default(), Split::Test, [&found, &baseline]);
            warning.unwrap().message
        };
        let one = message([0.9, 2.0, 0.5, 0.5]);
        assert!(
            one.starts_with("rmse.a on the test split is 2") && !one.contains("further"),
            "{one}"
        );
        for (found, further) in [
            ([0.9, 2.0, 3.0, 0.5], "so it is of 1 further target"),
            ([0.9, 2.0, 3.0, 4.0], "so it is of 2 further targets"),
        ] {
            let message = message(found);
            assert!(message.ends_with(further), "{message}");
        }
    }

    #[test]
    fn a_forecast_is_beside_the_best_naive_one_of_the_same_split_and_metric() {
        let forecast = |method, lag, rmse, mae| {
            let metrics = NaiveMetrics {
                windows: 10,
                rmse,
                mae,
                r2: None,
            };
            NaiveForecast {
                method,
                lag,
                splits: [(Split::Test, metrics)].into(),
            }
        };
        let naive = [
            forecast(NaiveMethod::LastValue, 1, 2.0, 1.0),
            forecast(NaiveMethod::Seasonal, 24, 3.0, 0.5),
        ];
        let mut config = TrainConfig::default();
        let found = |config: &TrainConfig, split, values: &[(&str, f64)]| {
            let metrics = metrics(values);
            of_naive(config, &naive, (split, 10, &metrics)).map(|warning| warning.message)
        };
        let rmse = found(&config, Split::Test, &[("rmse", 2.5)]).unwrap();
        assert!(rmse.contains("`last_value` of 1 row before"), "{rmse}");
        // A forecast that is known for few of the windows is another measure.
        let among = |rows| {
            let metrics = metrics(&[("rmse", 2.5)]);
            of_naive(&config, &naive, (Split::Test, rows, &metrics)).map(|warning| warning.message)
        };
        let twenty = among(20).unwrap();
        assert!(
            twenty.ends_with("known for 10 of the 20 windows"),
            "{twenty}"
        );
        assert_eq!(among(21), None);
        assert_eq!(found(&config, Split::Test, &[("rmse", 1.9)]), None);
        assert_eq!(found(&config, Split::Validation, &[("rmse", 2.5)]), None);
        assert_eq!(
            found(&config, Split::Test, &[("rmse", 9.0), ("rmse.b", 9.0)]),
            None
        );
        assert!(found(&config, Split::Test, &[("rmse", f64::NAN)]).is_some());
        config.loss = of(LossKind::Mae);
        let mae = found(&config, Split::Test, &[("rmse", 2.5), ("mae", 0.7)]).unwrap();
        assert!(mae.contains("`seasonal` of 24 rows before"), "{mae}");
        config.require_better_than_baseline = BaselinePolicy::Ignore;
        assert_eq!(found(&config, Split::Test, &[("mae", 0.7)]), None);
    }

    #[test]
    fn a_target_that_is_always_its_mean_is_named() {
        let task = Task::Regression {
            mean: 7.5,
            offset: 7.5,
            scale: 1.0,
        };
        let [none, some] = [1e-7, 0.1].map(|rmse| metrics(&[("rmse", rmse)]));
        let found = constant_target(&task, [&none, &none]).unwrap();
        assert!(found.message.contains("`7.5`"), "{found:?}");
        assert_eq!(constant_target(&task, [&none, &some]), None);
        assert_eq!(constant_target(&task, [&Metrics::new(), &none]), None);
    }

    #[test]
    fn different_targets_close_to_a_large_mean_are_not_constant() {
        // `1700000000 + 3 * k` for 600 values of `k`.
        let task = Task::Regression {
            mean: 1_700_000_898.5,
            offset: 1_700_000_898.5,
            scale: 519.6,
        };
        let varied = metrics(&[("rmse", 519.6), ("r2", 0.0)]);
        assert_eq!(constant_target(&task, [&varied, &varied]), None);
    }

    fn metrics(values: &[(&str, f64)]) -> Metrics {
        let named = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        named.collect()
    }

    #[test]
    fn a_model_is_behind_where_none_of_the_metrics_that_its_loss_asks_for_is_better() {
        let check = |loss: &LossConfig, model: &[(&str, f64)], base: &[(&str, f64)], expected| {
            let found = behind(loss, &metrics(model), &metrics(base));
            let found = found.as_ref().map(|behind| behind.metric.as_str());
            assert_eq!(found, expected, "{loss:?}");
        };
        // Figures of a panel of 34 entities.
        let panel = [("rmse", 838_432.0), ("mae", 90_000.0)];
        let mean = [("rmse", 243_204.0), ("mae", 100_000.0)];
        check(&of(LossKind::Mse), &panel, &mean, Some("rmse"));
        check(&of(LossKind::Mae), &panel, &mean, None);
        let ninety = LossConfig {
            quantile: Some(0.9),
            ..of(LossKind::Quantile)
        };
        // Runs of earlier versions have no pinball loss.
        check(&ninety, &panel, &mean, None);
        let [model, constant] = [2.08, 2.36].map(|pinball| [("pinball", pinball)]);
        check(&ninety, &model, &constant, None);
        check(&ninety, &constant, &model, Some("pinball"));
        let sure = [("accuracy", 0.9), ("cross_entropy", 3.0)];
        let most = [("accuracy", 0.8), ("cross_entropy", 0.5)];
        check(&of(LossKind::CrossEntropy), &sure, &most, None);
        check(&of(LossKind::CrossEntropy), &most, &sure, None);
        let bad = [("accuracy", 0.8), ("cross_entropy", 3.0)];
        check(
            &of(LossKind::CrossEntropy),
            &bad,
            &most,
            Some("cross_entropy"),
        );
        let balanced = LossConfig {
            class_weights: Some(ClassWeights::Rule(ClassWeightRule::Balanced)),
            ..of(LossKind::CrossEntropy)
        };
        let rare = [("accuracy", 0.7), ("cross_entropy", 0.6), ("f1_macro", 0.6)];
        let never = [("accuracy", 0.8), ("cross_entropy", 0.5), ("f1_macro", 0.4)];
        check(&balanced, &rare, &never, None);
        check(&of(LossKind::Mse), &panel, &[], None);
    }

    #[test]
    fn the_warning_says_by_how_much_on_which_split_and_with_which_key() {
        let config = TrainConfig {
            loss: of(LossKind::Mse),
            ..TrainConfig::default()
        };
        let [model, base] = [838_432.0, 243_204.0].map(|rmse| metrics(&[("rmse", rmse)]));
        let found = warning(&config, None, [&model, &base]).unwrap();
        assert_eq!(
            found.message,
            format!(
                "rmse on the test split is {}, 3.4 times the {} of a baseline that looks at no feature",
                metric(838_432.0),
                metric(243_204.0)
            )
        );
        assert_eq!(found.key.as_deref(), Some(KEY));
        assert_eq!(warning(&config, None, [&base, &model]), None);
        let ignored = TrainConfig {
            require_better_than_baseline: BaselinePolicy::Ignore,
            ..config
        };
        assert_eq!(warning(&ignored, None, [&model, &base]), None);
    }

    #[test]
    fn a_balanced_loader_is_named_as_a_cause_and_weights_of_classes_are_not() {
        let sentence = |change: fn(&mut TrainConfig)| {
            let mut config = TrainConfig {
                loss: of(LossKind::CrossEntropy),
                ..TrainConfig::default()
            };
            change(&mut config);
            let model = [("f1_macro", 0.2), ("auc", 0.4), ("cross_entropy", 0.9)];
            let base = [("f1_macro", 0.4), ("auc", 0.5), ("cross_entropy", 0.4)];
            let [model, base] = [model, base].map(|values| metrics(&values));
            warning(&config, None, [&model, &base]).unwrap().message
        };
        let balanced = sentence(|config| {
            config.loader.balance = Some(ClassBalanceConfig::Rule(BalanceRule::Equal));
        });
        assert!(
            balanced.contains("; `train.loader.balance` changes how often each class appears")
                && balanced.contains("`auc`"),
            "{balanced}"
        );
        // Worse in F1 and the area under the curve: other probabilities are no cause of that.
        let weighted = sentence(|config| {
            let rule = ClassWeightRule::Balanced;
            config.loss.class_weights = Some(ClassWeights::Rule(rule));
        });
        let positive = sentence(|config| {
            config.loss.positive_weight = Some(PositiveWeight::Weight(5.0));
        });
        let both = sentence(|config| {
            config.loader.balance = Some(ClassBalanceConfig::Rule(BalanceRule::Equal));
            config.loss.positive_weight = Some(PositiveWeight::Weight(5.0));
        });
        for message in [weighted, positive, both] {
            assert!(
                message.starts_with("f1_macro on the test split"),
                "{message}"
            );
            assert!(!message.contains("cause"), "{message}");
        }
        let plain = sentence(|config| {
            config.loss.positive_weight = Some(PositiveWeight::Weight(1.0));
        });
        assert!(!plain.contains("cause"), "{plain}");
    }
}
