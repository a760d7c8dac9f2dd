//! Rows of validation, of test and appended ones whose numbers are far from those of the training rows.
//!
//! A standardized feature and a target have the bounds that `predict` has for new rows ([`far_bounds`]). They come from mean and
//! deviation alone, and training rows of a long-tailed column may exceed them too. So a number must also be outside of the range of
//! the training rows by many times its width. Caps keep a feature inside: the warning `mostly_capped` is for those.

use std::collections::BTreeMap;

use feedline_schemas::{
    manifest::Split,
    report::{WarnedColumn, Warning},
    transform::{FittedStandardize, FittedStep, FittedTarget, TransformArtefact},
};

use super::{Extremes, NAMED, RangeEnds, STEPS, numbers};
use crate::{
    shards::shard_index::Measured,
    statistics::exact_sum::ExactMoments,
    transform::far_bounds,
    warnings::{FAR_FROM_TRAINING_ROWS, list_columns},
};

/// Least multiple of the largest number of the training rows that is far out in another split, in a column that is not
/// standardized.
const FAR_TIMES: f64 = 1000.0;

/// A far target is outside of the range of the training rows by this multiple of its width, and a far feature is farther from the
/// mean than this multiple of their largest distance. Further training rows of a long-tailed column are seldom as far.
const FAR_WIDTHS: f64 = 10.0;

/// Training rows below which mean, deviation and range say little.
const FEW_ROWS: u64 = 30;

/// Numbers of the training rows as they are stored.
#[derive(Debug)]
pub(in crate::pipeline) struct TrainingNumbers {
    /// The largest one of each feature, without its sign.
    pub(in crate::pipeline) features: Vec<f32>,
    /// Of each target.
    pub(in crate::pipeline) targets: Vec<Measured>,
}

/// A standardized feature, and the deviations from the mean beyond which a number of it is far outside of the training rows.
struct StandardizedFeature {
    name: String,
    deviations: f64,
}

/// Columns with numbers far from the training rows, each with these.
#[derive(Debug, Default)]
pub(super) struct FarColumns {
    /// Standardized features.
    pub(super) standardized: Vec<WarnedColumn>,
    /// Other features, whose steps have no bounds of their own.
    pub(super) others: Vec<WarnedColumn>,
    pub(super) targets: Vec<WarnedColumn>,
}

impl TrainingNumbers {
    /// Those of written training rows, whose numeric targets are `targets`.
    pub(super) fn of(written: &Extremes, targets: &[ExactMoments]) -> Self {
        let ends = written.targets.iter().zip(targets);
        let targets = ends.map_while(|(ends, moments)| measured(ends.as_ref()?, moments));
        Self {
            features: written.features.clone(),
            targets: targets.collect(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
fn measured(ends: &RangeEnds, moments: &ExactMoments) -> Option<Measured> {
    let summary = moments.summary()?;
    Some(Measured {
        rows: moments.count() as f64,
        mean: summary.mean,
        variance: summary.deviation.powi(2),
        range: ends.numbers().map(f64::from),
        unlike: None,
    })
}

impl Extremes {
    /// Standardized features with a number far from the mean of the training rows, and far from all numbers of `train`: none for
    /// features of another number.
    fn far_from_mean(
        &self,
        train: &TrainingNumbers,
        standardized: &[Option<StandardizedFeature>],
        split: Split,
    ) -> Vec<WarnedColumn> {
        let features = self.features.len();
        if [train.features.len(), standardized.len()] != [features; 2] {
            return Vec::new();
        }
        let cells = self.features.iter().zip(&train.features);
        let far = cells.zip(standardized).filter_map(|((cell, largest), of)| {
            let (cell, largest, of) = (f64::from(*cell), f64::from(*largest), of.as_ref()?);
            let is_far = cell > of.deviations && cell > FAR_WIDTHS * largest;
            is_far.then(|| WarnedColumn::with_found(&of.name, describe(cell, split)))
        });
        far.collect()
    }

    /// Features with a number far beyond the largest one of `train`, the training rows by the name `noun`, by their names in
    /// `others`, each with both numbers: none for features of another number. Numbers below 1 count as 1, which is the scale of
    /// a step.
    pub(super) fn beyond_training(
        &self,
        (train, noun): (&TrainingNumbers, &str),
        others: &[Option<String>],
        split: Split,
    ) -> Vec<WarnedColumn> {
        let features = self.features.len();
        if [train.features.len(), others.len()] != [features; 2] {
            return Vec::new();
        }
        let cells = self.features.iter().zip(&train.features).zip(others);
        let far = cells.filter_map(|((cell, largest), name)| {
            let is_far = f64::from(*cell) >= FAR_TIMES * f64::from(largest.max(1.0));
            let name = name.as_ref().filter(|_| is_far)?;
            let numbers = format!("{cell:.1e} in {split}, {largest:.1e} in {noun}");
            Some(WarnedColumn::with_found(name, numbers))
        });
        far.collect()
    }

    /// Targets with a number far from those of the training rows.
    fn far_targets(
        &self,
        artefact: &TransformArtefact,
        train: &TrainingNumbers,
        split: Split,
    ) -> Vec<WarnedColumn> {
        let ends = self.targets.iter().zip(&train.targets);
        let far = artefact.targets().zip(ends);
        let far = far.filter_map(|(target, (ends, train))| {
            let FittedTarget::Regression { column, .. } = target else {
                return None;
            };
            let deviations = far_target(ends.as_ref()?, train)?;
            Some(WarnedColumn::with_found(
                column,
                describe(deviations, split),
            ))
        });
        far.collect()
    }
}

/// Deviations of the farther one of the `ends` of a target from the mean of the training rows, if it is far outside of them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it counts rows"
)]
fn far_target(ends: &RangeEnds, train: &Measured) -> Option<f64> {
    let (mean, deviation, rows) = (train.mean, train.variance.sqrt(), train.rows as u64);
    if rows < FEW_ROWS || deviation <= 0.0 {
        return None;
    }
    let (low, high) = far_bounds(mean, deviation, rows);
    let [least, greatest] = train.range;
    let margin = FAR_WIDTHS * (greatest - least);
    let is_far =
        |y: &f64| (*y < low || *y > high) && (*y < least - margin || *y > greatest + margin);
    let far = ends.numbers().map(f64::from).into_iter().filter(is_far);
    let deviations = far.map(|y| ((y - mean) / deviation).abs());
    deviations.reduce(f64::max)
}

/// Deviations in a message.
fn describe(deviations: f64, split: Split) -> String {
    match deviations < 1e4 {
        true => format!("{deviations:.0} deviations in {split}"),
        false => format!("{deviations:.1e} deviations in {split}"),
    }
}

/// Warns of appended rows with a number far from the training rows that the transform was fitted on, `train`. `splits` has the
/// extremes of the appended rows, in the order of [`Split::ALL`].
pub(in crate::pipeline) fn appended_warnings(
    artefact: &TransformArtefact,
    splits: &[Extremes; 3],
    train: &TrainingNumbers,
) -> Option<Warning> {
    let splits = Split::ALL.into_iter().zip(splits);
    far_rows(artefact, (train, "the training rows before"), splits)
}

/// Warns of features and targets with a number in one of these `splits` far from the training rows, `train`, by their name in a
/// message. One warning names all of them: a dataset with appended rows joins warnings of one code.
pub(super) fn far_rows<'e>(
    artefact: &TransformArtefact,
    train: (&TrainingNumbers, &str),
    splits: impl Iterator<Item = (Split, &'e Extremes)>,
) -> Option<Warning> {
    let (standardized, others) = (standardized(artefact), numbers(artefact, false));
    let mut far = FarColumns::default();
    for (split, extremes) in splits {
        let found = extremes.far_from_mean(train.0, &standardized, split);
        far.standardized.extend(found);
        far.others
            .extend(extremes.beyond_training(train, &others, split));
        far.targets
            .extend(extremes.far_targets(artefact, train.0, split));
    }
    far_from_training_rows(far)
}

/// The standardized features with their bounds, and `None` for others.
fn standardized(artefact: &TransformArtefact) -> Vec<Option<StandardizedFeature>> {
    let columns = artefact.steps.iter().flat_map(|step| match step {
        FittedStep::Standardize { columns } => columns.as_slice(),
        _ => &[],
    });
    let rows = artefact.fitted_rows;
    let bounds = columns.map(|column| (column.name.as_str(), deviations_of(column, rows)));
    let bounds: BTreeMap<&str, f64> = bounds.collect();
    let names = numbers(artefact, true).into_iter();
    let features = names.map(|name| {
        let name = name?;
        let deviations = *bounds.get(name.as_str())?;
        Some(StandardizedFeature { name, deviations })
    });
    features.collect()
}

/// Distance of the bounds of a standardized column from the mean, in the units of the shards; infinite for one that is constant.
fn deviations_of(column: &FittedStandardize, rows: u64) -> f64 {
    let groups = || column.groups.iter().flat_map(|of| of.moments.values());
    if rows < FEW_ROWS || column.constant || groups().any(|group| group.constant) {
        return f64::INFINITY;
    }
    let distance = |mean: f64, deviation: f64, scale: f64, rows: u64| {
        let (low, high) = far_bounds(mean, deviation, rows);
        (mean - low).max(high - mean) / scale
    };
    let all = distance(column.mean, column.deviation, column.scale, rows);
    let of_groups = groups().map(|of| distance(of.mean, of.deviation, of.scale, of.rows));
    of_groups.fold(all, f64::max)
}

/// The warning of these columns.
pub(super) fn far_from_training_rows(far: FarColumns) -> Option<Warning> {
    let parts = far.describe();
    (!parts.is_empty()).then(|| {
        let message = format!(
            "{}: what a model predicts for them is no measure of it; {}",
            parts.join(", and "),
            far.advice()
        );
        let key = match far.has_features() {
            true => STEPS,
            false => "dataset.expect",
        };
        let warning = Warning::new(FAR_FROM_TRAINING_ROWS, message).with_key(key);
        warning.with_columns([far.standardized, far.others, far.targets].concat())
    })
}

impl FarColumns {
    fn has_features(&self) -> bool {
        !self.standardized.is_empty() || !self.others.is_empty()
    }

    /// The columns of each kind that has some.
    fn describe(&self) -> Vec<String> {
        let times = format!(
            "rows have numbers over {FAR_TIMES} times as large as the largest one of the training rows, after the steps, in"
        );
        let kinds = [
            (
                &self.standardized,
                "rows are far from the mean and the range of the training rows in",
            ),
            (&self.others, times.as_str()),
            (
                &self.targets,
                "targets are far from the mean and the range of those of the training rows in",
            ),
        ];
        let found = kinds.into_iter().filter(|(columns, _)| !columns.is_empty());
        found
            .map(|(columns, what)| format!("{what} {}", list_columns(columns, NAMED)))
            .collect()
    }

    /// Advice to correct, drop, reject or cap them. Steps change features only.
    fn advice(&self) -> String {
        let mut advice = "correct or drop them".to_owned();
        if !self.targets.is_empty() {
            advice += ", reject such targets by `min` or `max` of the target in the file of `dataset.expect`";
        }
        if self.has_features() {
            advice += ", or cap features with a `winsorize` step";
        }
        if !self.others.is_empty() {
            advice += ": other steps, such as `robust` and `power`, have no bounds";
        }
        advice
    }
}

#[cfg(test)]
mod tests {
    use libm::{cos, exp, log, sqrt};

    use super::*;

    fn column(mean: f64, deviation: f64) -> FittedStandardize {
        FittedStandardize {
            name: "a".to_owned(),
            mean,
            deviation,
            scale: deviation,
            constant: false,
            groups: None,
        }
    }

    /// Mean and deviation.
    fn moments(cells: &[f64]) -> (f64, f64) {
        #[expect(clippy::cast_precision_loss, reason = "they are few")]
        let rows = cells.len() as f64;
        let mean = cells.iter().sum::<f64>() / rows;
        let squares = cells.iter().map(|cell| (cell - mean).powi(2));
        (mean, sqrt(squares.sum::<f64>() / rows))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "cells of shards have 32 bits"
    )]
    fn stored(cells: &[f64], (mean, deviation): (f64, f64)) -> Extremes {
        let mut extremes = Extremes::default();
        for cell in cells {
            let cell = ((cell - mean) / deviation) as f32;
            extremes.add(&[cell]);
            extremes.add_target(0, cell);
        }
        extremes
    }

    /// Columns found in `test`, and the deviations of a target: standardized by the moments of `train`.
    fn found(train: &[f64], test: &[f64]) -> (Vec<WarnedColumn>, Option<f64>) {
        let (mean, deviation) = moments(train);
        let feature = StandardizedFeature {
            name: "a".to_owned(),
            deviations: deviations_of(&column(mean, deviation), train.len() as u64),
        };
        let [written, other] = [train, test].map(|cells| stored(cells, (mean, deviation)));
        let mut of_target = ExactMoments::default();
        let scaled = train.iter().map(|cell| (cell - mean) / deviation);
        scaled.for_each(|cell| of_target.add(cell));
        let numbers = TrainingNumbers::of(&written, &[of_target]);
        let features = other.far_from_mean(&numbers, &[Some(feature)], Split::Test);
        let target = far_target(other.targets[0].as_ref().unwrap(), &numbers.targets[0]);
        (features, target)
    }

    #[test]
    fn a_log_normal_column_of_10_000_rows_has_no_row_far_outside() {
        let uniform = |i: u32| f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24);
        let normal = |i: u32| {
            let radius = sqrt(-2.0 * log(uniform(2 * i + 1).max(1e-9)));
            radius * cos(std::f64::consts::TAU * uniform(i ^ 0x5bd1_e995))
        };
        for deviation in [1.0, 1.5] {
            let incomes: Vec<f64> = (0..10_000).map(|i| exp(deviation * normal(i))).collect();
            let (train, test) = incomes.split_at(8000);
            assert_eq!(found(train, test), (Vec::new(), None), "{deviation}");
        }
    }

    #[test]
    fn features_and_targets_beyond_the_bounds_of_predict_are_found_with_their_deviations() {
        let train: Vec<f64> = (0..500).map(|i| f64::from(i % 101) / 10.0 - 5.0).collect();
        let (features, target) = found(&train, &[1.0, 1e6]);
        assert_eq!(features.len(), 1, "{features:?}");
        assert!(
            features[0].found.ends_with("e5 deviations in test"),
            "{features:?}"
        );
        assert!(
            target.is_some_and(|deviations| deviations > 1e5),
            "{target:?}"
        );
        // 20 deviations of 500 rows are inside.
        assert_eq!(found(&train, &[1.0, 55.0]), (Vec::new(), None));
        // A training row is as far.
        let with_far: Vec<f64> = train.iter().copied().chain([9e5]).collect();
        assert_eq!(found(&with_far, &[1e6]), (Vec::new(), None));
        // Long tails have numbers several times as large as the largest training row.
        assert_eq!(found(&with_far, &[5e6]), (Vec::new(), None));
        let (features, target) = found(&with_far, &[2e7]);
        assert_eq!(
            (features.len(), target.is_some()),
            (1, true),
            "{features:?}"
        );
    }

    #[test]
    fn a_rare_1_and_a_constant_column_are_not_far() {
        let flag = |rows: u32| (0..rows).map(|i| f64::from(u32::from(i == 7)));
        let train: Vec<f64> = flag(5000).collect();
        assert_eq!(found(&train, &[0.0, 1.0]), (Vec::new(), None));
        let constant = FittedStandardize {
            constant: true,
            ..column(3.0, 0.0)
        };
        assert!(deviations_of(&constant, 500).is_infinite());
    }

    #[test]
    fn targets_alone_have_advice_that_changes_targets() {
        let far = FarColumns {
            targets: vec![WarnedColumn::with_found("y", "4.0e5 deviations in train")],
            ..FarColumns::default()
        };
        let warning = far_from_training_rows(far).unwrap();
        assert_eq!(warning.key.as_deref(), Some("dataset.expect"));
        for part in [
            "targets are far from the mean and the range of those of the training rows in `y` (4.0e5 deviations in train): ",
            "`min` or `max` of the target",
        ] {
            assert!(warning.message.contains(part), "{warning:?}");
        }
        assert!(!warning.message.contains("winsorize"), "{warning:?}");
    }
}
