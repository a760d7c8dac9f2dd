//! Extreme numbers that dominate a column: found in the written shards, one comparison a cell.
//!
//! A standardized column has the mean 0 and the variance 1 over the training rows, so the square of
//! a cell over the number of rows is its fraction of the variance. If that is nearly all of it, a
//! model cannot distinguish the other rows.

mod far;

use std::cmp::Ordering;

use feedline_schemas::{
    count::{counted, first_of},
    expect::ExpectedColumn,
    manifest::Split,
    report::{WarnedColumn, Warning},
    transform::{FittedStep, FittedTarget, TransformArtefact},
};

use self::far::far_rows;
pub(in crate::pipeline) use self::far::{TrainingNumbers, appended_warnings};
use crate::{
    statistics::exact_sum::ExactMoments,
    warnings::{TARGET_REPEATS_EXTREME, toml_string},
};

/// Share of the variance above which one row is all that a column says.
const SHARE: f64 = 0.9;

/// Rows below which one may well be half of the variance.
pub(super) const ROWS: f64 = 100.0;

/// The largest integer up to which 32 bits hold all.
const INTEGERS: f64 = 16_777_216.0;

/// Share of the deviation of a target above which steps of rounding are worth a warning.
const ROUNDED: f64 = 1e-3;

/// Least share of the training rows for a repeated number at an end of the range of a target or a feature.
pub(super) const REPEATED: f64 = 0.01;

/// Least distance of such a number from all others, in ranges of these.
const APART: f64 = 2.0;

/// Key of the steps that warnings advise to change.
const STEPS: &str = "dataset.step";

/// Columns that a message names.
const NAMED: usize = 5;

/// The largest numbers of the written rows of a split.
#[derive(Clone, Debug, Default)]
pub(in crate::pipeline) struct Extremes {
    /// Of each feature, without its sign.
    features: Vec<f32>,
    /// Lowest and highest number of each target; none without a finite one.
    targets: Vec<Option<RangeEnds>>,
}

/// Lowest and highest number of a target.
#[derive(Clone, Copy, Debug)]
struct RangeEnds {
    lowest: RangeEnd,
    /// Of the numbers with the other sign.
    highest: RangeEnd,
}

/// The lowest of some numbers.
#[derive(Clone, Copy, Debug)]
struct RangeEnd {
    number: f32,
    /// Rows that have it.
    rows: u64,
    /// The lowest of the other numbers, if there are any.
    next: Option<f32>,
}

impl RangeEnd {
    const fn of(number: f32) -> Self {
        Self {
            number,
            rows: 1,
            next: None,
        }
    }

    fn add(&mut self, number: f32) {
        match number.total_cmp(&self.number) {
            Ordering::Less => {
                *self = Self {
                    next: Some(self.number),
                    ..Self::of(number)
                };
            }
            Ordering::Equal => self.rows += 1,
            Ordering::Greater => {
                self.next = Some(self.next.map_or(number, |next| next.min(number)));
            }
        }
    }
}

impl RangeEnds {
    const fn numbers(&self) -> [f32; 2] {
        [self.lowest.number, -self.highest.number]
    }

    /// The larger size of the two.
    fn size(&self) -> f64 {
        let [lowest, highest] = self.numbers();
        f64::from(lowest.abs().max(highest.abs()))
    }
}

impl Extremes {
    /// Adds the features of a row.
    pub(in crate::pipeline) fn add(&mut self, row: &[f32]) {
        self.features.resize(row.len(), 0.0);
        for (largest, cell) in self.features.iter_mut().zip(row) {
            *largest = largest.max(cell.abs());
        }
    }

    /// Adds a finite number of the target at this place.
    pub(in crate::pipeline) fn add_target(&mut self, place: usize, y: f32) {
        if self.targets.len() <= place {
            self.targets.resize(place + 1, None);
        }
        match &mut self.targets[place] {
            Some(ends) => {
                ends.lowest.add(y);
                ends.highest.add(-y);
            }
            none => {
                *none = Some(RangeEnds {
                    lowest: RangeEnd::of(y),
                    highest: RangeEnd::of(-y),
                });
            }
        }
    }

    /// Warns of a number of each target that many training rows have, far from all others. `targets` are those of these rows,
    /// as stored; `noun` names such a row.
    pub(in crate::pipeline) fn repeated_ends(
        &self,
        artefact: &TransformArtefact,
        targets: &[ExactMoments],
        expected: &[ExpectedColumn],
        noun: &str,
    ) -> Vec<Warning> {
        let ends = self.targets.iter().zip(targets);
        let repeated = artefact
            .targets()
            .zip(ends)
            .filter_map(|(target, (ends, moments))| {
                repeated_end(target, (ends.as_ref()?, moments), expected, noun)
            });
        repeated.collect()
    }

    /// Features with a number whose square is at least `least`, by their names in `standardized`:
    /// none for features of another number.
    fn beyond(&self, least: f64, standardized: &[Option<String>]) -> Vec<String> {
        if standardized.len() != self.features.len() {
            return Vec::new();
        }
        let cells = self.features.iter().zip(standardized);
        let far = cells.filter(|(cell, _)| f64::from(**cell).powi(2) >= least);
        far.filter_map(|(_, name)| name.clone()).collect()
    }
}

/// Warns of columns that one training row or rows of other splits make useless. `splits` has the extremes of each split, in
/// the order of [`Split::ALL`]; `targets` are those of the training rows, as stored.
pub(in crate::pipeline) fn warnings(
    artefact: &TransformArtefact,
    splits: &[Extremes; 3],
    targets: &[ExactMoments],
    rows: u64,
) -> Vec<Warning> {
    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
    let rows = rows as f64;
    let standardized = numbers(artefact, true);
    let mut dominated = Vec::new();
    if rows >= ROWS {
        dominated = splits[0].beyond(SHARE * rows, &standardized);
    }
    let moments = artefact.targets().zip(targets).zip(&splits[0].targets);
    let dominated_targets: Vec<String> = moments
        .filter_map(|((target, moments), ends)| {
            dominated_target(target, moments, ends.as_ref()?.numbers())
        })
        .collect();
    let dominated = (!dominated.is_empty()).then(|| {
        one_row_is_the_variance(&dominated, "", "or cap it with a `winsorize` step", STEPS)
    });
    // Steps change features only.
    let dominated_targets = (!dominated_targets.is_empty()).then(|| {
        let advice = "cap the number in `dataset.sql`, or reject such rows by a `min` or `max` of the target in the file of \
                      `dataset.expect`";
        one_row_is_the_variance(&dominated_targets, "the target ", advice, "dataset.expect")
    });
    let dominated = dominated.into_iter().chain(dominated_targets);
    let others = Split::ALL.into_iter().zip(splits).skip(1);
    let train = TrainingNumbers::of(&splits[0], targets);
    let far = far_rows(artefact, (&train, "train"), others);
    let ends = splits[0].targets.iter().zip(targets);
    let of_targets = artefact.targets().zip(ends);
    let rounded = of_targets.filter_map(|(target, (ends, moments))| {
        rounded_target(target, ends.as_ref()?.numbers(), moments)
    });
    dominated.chain(far).chain(rounded).collect()
}

/// Warns of a number of a target that many training rows have and that is far below or above all
/// others, as a number that means a missing value is; not if it is `expected`.
fn repeated_end(
    target: &FittedTarget,
    (ends, moments): (&RangeEnds, &ExactMoments),
    expected: &[ExpectedColumn],
    noun: &str,
) -> Option<Warning> {
    let FittedTarget::Regression {
        column,
        scale,
        offset,
        ..
    } = target
    else {
        return None;
    };
    let (number, rows, [from, to]) = apart(ends, moments.count())?;
    // 32 bits hold some seven digits of the stored number.
    let rounding = f64::from(f32::EPSILON) * (ends.size() * scale.abs() + offset.abs());
    let (value, is_lowest) = (number * scale + offset, number < from);
    let mut of_column = expected.iter().filter(|other| other.name == *column);
    if of_column.any(|expected| allows(expected, value, rounding, is_lowest)) {
        return None;
    }
    let shown = |stored: f64| shown(stored * scale + offset, rounding);
    // That of this number, which is smaller where it is near to 0.
    let own_rounding = f64::from(f32::EPSILON) * ((number * scale).abs() + offset.abs());
    let bound = bound_that_allows(value, own_rounding, is_lowest);
    let message = format!(
        "{} have the target `{column}` of about {}, and all others are from about {} to {}: such a number often means that the \
         value is missing; if so, list it as the data have it in `dataset.missing_values`, and allow such rows to be rejected by \
         `dataset.max_reject_fraction`; if it is a value, allow it in a file of expectations, which turns this warning off: {}",
        counted(rows, noun),
        shown(number),
        shown(from),
        shown(to),
        advise_bound(column, is_lowest, &bound),
    );
    let warning = Warning::new(TARGET_REPEATS_EXTREME, message).with_key("dataset.missing_values");
    Some(warning.with_columns(vec![WarnedColumn::new(column)]))
}

/// A lower or upper bound of few digits that allows `number`, which `rounding` may have moved: the number itself if it is an
/// integer.
fn bound_that_allows(number: f64, rounding: f64, is_lowest: bool) -> String {
    if number.fract() == 0.0 {
        // Not -0.
        return (number + 0.0).to_string();
    }
    let (outermost, digit) = match is_lowest {
        true => (number - rounding, -1e-5),
        false => (number + rounding, 1e-5),
    };
    let text = format!("{outermost:.5e}");
    let nearest = text.parse().unwrap_or(outermost);
    let allows = match is_lowest {
        true => nearest <= outermost,
        false => nearest >= outermost,
    };
    let further = || -> Option<f64> {
        let (digits, exponent) = text.split_once('e')?;
        let digits = digits.parse::<f64>().ok()? + digit;
        format!("{digits:.5}e{exponent}").parse().ok()
    };
    let bound = match allows {
        true => nearest,
        false => further().unwrap_or(outermost),
    };
    bound.to_string()
}

/// Advice to allow the lowest or highest number of a column by an expectation.
pub(super) fn advise_bound(column: &str, is_lowest: bool, number: &str) -> String {
    let (bound, other) = match is_lowest {
        true => ("min", "less"),
        false => ("max", "more"),
    };
    format!(
        "set `dataset.expect = {{ file = \"expect.toml\" }}`, and write the lines `[[column]]`, `name = {}`, \
         `kind = \"numeric\"` and `{bound} = {number}` (or {other}) in that file",
        toml_string(column)
    )
}

/// Returns true if the expectations of a column have a bound at this end of its range that allows `number`, which `rounding`
/// may have moved.
pub(super) fn allows(
    expected: &ExpectedColumn,
    number: f64,
    rounding: f64,
    is_lowest: bool,
) -> bool {
    match is_lowest {
        true => expected.min.is_some_and(|min| min <= number + rounding),
        false => expected.max.is_some_and(|max| max >= number - rounding),
    }
}

/// The lowest or highest number if many of `all` rows have it and it is far from the others, with its
/// rows and the range of the others.
fn apart(ends: &RangeEnds, all: u64) -> Option<(f64, u64, [f64; 2])> {
    let [lowest, highest] = ends.numbers().map(f64::from);
    let below = ends.lowest.next.map(f64::from);
    let below = below.map(|next| (lowest, ends.lowest.rows, [next, highest]));
    let above = ends.highest.next.map(|next| -f64::from(next));
    let above = above.map(|next| (highest, ends.highest.rows, [lowest, next]));
    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
    let is_apart = |(number, rows, [from, to]): &(f64, u64, [f64; 2])| {
        let all = all as f64;
        let share = *rows as f64 / all;
        let gap = (from - number).max(number - to);
        all >= ROWS && (REPEATED..0.5).contains(&share) && to > from && gap > APART * (to - from)
    };
    [below, above].into_iter().flatten().find(is_apart)
}

/// A number that was stored in 32 bits, without digits that `rounding` has made: the nearest integer
/// if it is as near as that.
fn shown(number: f64, rounding: f64) -> String {
    let integer = number.round();
    if (number - integer).abs() <= rounding {
        // Not -0.
        return (integer + 0.0).to_string();
    }
    let text = format!("{number:.5e}");
    text.parse::<f64>()
        .map_or(text, |number| number.to_string())
}

/// The warning of these columns, `noun` before each, with `advice` besides a change of the data, and the key that it is about.
fn one_row_is_the_variance(columns: &[String], noun: &str, advice: &str, key: &str) -> Warning {
    let named = columns.iter().map(|column| format!("{noun}`{column}`"));
    let named: Vec<String> = named.collect();
    let message = format!(
        "one training row makes up over {:.0} % of the variance of {}: the other rows are alike to a model; correct or drop \
         that row, {advice}",
        SHARE * 100.0,
        first_of(&named, NAMED)
    );
    let columns = columns.iter().map(|column| WarnedColumn::new(column));
    let warning = Warning::new("one_row_is_the_variance", message).with_key(key);
    warning.with_columns(columns.collect())
}

/// Warns of a target that is stored as it is, where 32 bits round it: beyond 2^24 they do not hold every integer, and numbers
/// that differ little beside their size become few.
fn rounded_target(
    target: &FittedTarget,
    ends: [f32; 2],
    moments: &ExactMoments,
) -> Option<Warning> {
    let FittedTarget::Regression {
        column,
        scale,
        offset,
        ..
    } = target
    else {
        return None;
    };
    let is_as_it_is = [*scale, *offset].map(f64::to_bits) == [1.0_f64, 0.0].map(f64::to_bits);
    if !is_as_it_is {
        return None;
    }
    let largest = f64::from(ends[0].abs().max(ends[1].abs()));
    let deviation = moments.summary()?.deviation;
    let step = largest * f64::from(f32::EPSILON);
    (deviation > 0.0 && (largest > INTEGERS || step > ROUNDED * deviation)).then(|| {
        let message = format!(
            "the target `{column}` is stored as it is, in 32 bits, and rounded: numbers of its size ({largest}) are about {step:.1e} \
             apart there, its deviation is {deviation:.1e}; without `dataset.scale_target = false` it is stored by its distance \
             from the mean, in deviations, and reported in its own units"
        );
        let warning = Warning::new("target_rounded", message).with_key("dataset.scale_target");
        warning.with_columns(vec![WarnedColumn::new(column)])
    })
}

/// The name of each feature that is a number, if its column is standardized or not as given, and `None` for others.
fn numbers(artefact: &TransformArtefact, is_standardized: bool) -> Vec<Option<String>> {
    let columns = artefact.steps.iter().flat_map(|step| match step {
        FittedStep::Standardize { columns } => columns.as_slice(),
        _ => &[],
    });
    let names: Vec<&String> = columns.map(|column| &column.name).collect();
    let of = |feature: &feedline_schemas::transform::Feature| {
        let is_it = feature.category.is_none()
            && feature.name == feature.column
            && names.contains(&&feature.column) == is_standardized;
        is_it.then(|| feature.name.clone())
    };
    artefact.features.iter().map(of).collect()
}

/// The target, where one training row makes up nearly all of its variance.
fn dominated_target(
    target: &FittedTarget,
    moments: &ExactMoments,
    ends: [f32; 2],
) -> Option<String> {
    let FittedTarget::Regression { column, .. } = target else {
        return None;
    };
    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
    let rows = moments.count() as f64;
    let summary = moments.summary()?;
    let furthest = ends.map(|end| ((f64::from(end) - summary.mean) / summary.deviation).powi(2));
    let most = furthest[0].max(furthest[1]);
    (rows >= ROWS && summary.deviation > 0.0 && most >= SHARE * rows).then(|| column.clone())
}

#[cfg(test)]
mod tests;
