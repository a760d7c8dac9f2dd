//! Extreme numbers that dominate a column: found in the written shards, one comparison a cell.
//!
//! A standardized column has the mean 0 and the variance 1 over the training rows, so the square of
//! a cell over the number of rows is its fraction of the variance. If that is nearly all of it, a
//! model cannot distinguish the other rows.

use std::cmp::Ordering;

use feedline_schemas::{
    count::counted,
    expect::ExpectedColumn,
    manifest::Split,
    report::Warning,
    transform::{FittedStep, FittedTarget, TransformArtefact},
};

use crate::{
    statistics::exact_sum::ExactMoments,
    warnings::{TARGET_REPEATS_EXTREME, toml_string},
};

/// Share of the variance above which one row is all that a column says.
const SHARE: f64 = 0.9;

/// Rows below which one may well be half of the variance.
const ROWS: f64 = 100.0;

/// Deviations from the mean of the training rows beyond which a row of another split is far out.
const FAR: f64 = 1e6;

/// The largest integer up to which 32 bits hold all.
const INTEGERS: f64 = 16_777_216.0;

/// Share of the deviation of a target above which steps of rounding are worth a warning.
const ROUNDED: f64 = 1e-3;

/// Least share of the training rows for a repeated number at an end of the target's range.
const REPEATED: f64 = 0.01;

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
    let standardized = standardized(artefact);
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
    let mut far = Vec::new();
    for (split, extremes) in Split::ALL.into_iter().zip(splits).skip(1) {
        let found = extremes.beyond(FAR * FAR, &standardized).into_iter();
        far.extend(found.map(|name| format!("{name} ({split})")));
    }
    let dominated = (!dominated.is_empty())
        .then(|| one_row_is_the_variance(&dominated, "or cap it with a `winsorize` step", STEPS));
    // Steps change features only.
    let dominated_targets = (!dominated_targets.is_empty()).then(|| {
        let advice = "cap the number in `dataset.sql`, or reject such rows by a `min` or `max` of the target in the file of \
                      `dataset.expect`";
        one_row_is_the_variance(&dominated_targets, advice, "dataset.expect")
    });
    let dominated = dominated.into_iter().chain(dominated_targets);
    let far = (!far.is_empty()).then(|| far_from_training_rows(&far));
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
    Some(Warning::new(TARGET_REPEATS_EXTREME, message).with_key("dataset.missing_values"))
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
fn advise_bound(column: &str, is_lowest: bool, number: &str) -> String {
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
fn allows(expected: &ExpectedColumn, number: f64, rounding: f64, is_lowest: bool) -> bool {
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

/// The warning of these columns, with `advice` besides a change of the data, and the key that it is about.
fn one_row_is_the_variance(columns: &[String], advice: &str, key: &str) -> Warning {
    let message = format!(
        "one training row makes up over {:.0} % of the variance of {}: the other rows are alike to a model; correct or drop \
         that row, {advice}",
        SHARE * 100.0,
        named(columns)
    );
    Warning::new("one_row_is_the_variance", message).with_key(key)
}

fn far_from_training_rows(columns: &[String]) -> Warning {
    let message = format!(
        "rows are over a million deviations from the mean of the training rows in {}: what a model says of them is no \
         measure of it; correct or drop them, or cap them with a `winsorize` step",
        named(columns)
    );
    Warning::new("far_from_training_rows", message).with_key(STEPS)
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
        Warning::new("target_rounded", message).with_key("dataset.scale_target")
    })
}

/// The name of each feature that a standardized column is, and `None` for others.
fn standardized(artefact: &TransformArtefact) -> Vec<Option<String>> {
    let columns = artefact.steps.iter().flat_map(|step| match step {
        FittedStep::Standardize { columns } => columns.as_slice(),
        _ => &[],
    });
    let names: Vec<&String> = columns.map(|column| &column.name).collect();
    let of = |feature: &feedline_schemas::transform::Feature| {
        let is_it = feature.category.is_none()
            && feature.name == feature.column
            && names.contains(&&feature.column);
        is_it.then(|| format!("`{}`", feature.name))
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
    (rows >= ROWS && summary.deviation > 0.0 && most >= SHARE * rows)
        .then(|| format!("the target `{column}`"))
}

/// The first few of some names.
fn named(names: &[String]) -> String {
    let mut text = names
        .iter()
        .take(NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(more) = names.len().checked_sub(NAMED).filter(|more| *more > 0) {
        text += &format!(" and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{expect::Expectations, transform::InputKind};

    use super::*;

    #[test]
    fn numbers_are_shown_without_the_digits_that_32_bits_have_made() {
        for (number, rounding, expected) in [
            (-0.000_000_102_938, 1e-6, "0"),
            (-199.999_991, 1e-4, "-200"),
            (0.500_000_02, 1e-6, "0.5"),
            (1234.5, 1e-4, "1234.5"),
        ] {
            assert_eq!(shown(number, rounding), expected);
        }
    }

    /// The message about a target that is -200 in `repeated` of 1,000 rows, and from 0 to `largest`
    /// in the others.
    fn warned(repeated: u16, largest: f32) -> Option<String> {
        warned_beside(repeated, largest, &[])
    }

    /// As [`warned`], where columns are `expected`.
    fn warned_beside(repeated: u16, largest: f32, expected: &[ExpectedColumn]) -> Option<String> {
        warned_of(-200.0, repeated, largest, expected)
    }

    /// As [`warned_beside`], where `number` is repeated.
    fn warned_of(
        number: f32,
        repeated: u16,
        largest: f32,
        expected: &[ExpectedColumn],
    ) -> Option<String> {
        let mut extremes = Extremes::default();
        let mut moments = ExactMoments::default();
        for row in 0..1000_u16 {
            let y = match row < repeated {
                true => number,
                false => f32::from(row % 11) / 10.0 * largest,
            };
            extremes.add_target(0, y);
            moments.add(f64::from(y));
        }
        let target = FittedTarget::Regression {
            column: "co".to_owned(),
            mean: 0.0,
            scale: 1.0,
            offset: 0.0,
        };
        let ends = extremes.targets[0].unwrap();
        let found = repeated_end(&target, (&ends, &moments), expected, "training row");
        found.map(|warning| warning.message)
    }

    #[test]
    fn a_bound_that_allows_the_repeated_number_turns_the_warning_off() {
        let expected = |name: &str, min: Option<f64>, max: Option<f64>| ExpectedColumn {
            name: name.to_owned(),
            kind: InputKind::Numeric,
            required: false,
            min,
            max,
            max_missing_fraction: None,
            unique: false,
            values: None,
        };
        let is_warned = |expected: ExpectedColumn| warned_beside(180, 12.0, &[expected]).is_some();
        assert!(!is_warned(expected("co", Some(-200.0), None)));
        assert!(!is_warned(expected("co", Some(-500.0), Some(12.0))));
        // Such a row violates it, where it is kept with a warning.
        assert!(is_warned(expected("co", Some(0.0), None)));
        assert!(is_warned(expected("co", None, Some(12.0))));
        assert!(is_warned(expected("no", Some(-200.0), None)));
    }

    /// The columns of the lines that a message advises to write.
    fn advised(message: &str) -> Vec<ExpectedColumn> {
        let (_, advice) = message.split_once("write the lines ").unwrap();
        let lines: Vec<&str> = advice.split('`').skip(1).step_by(2).collect();
        assert_eq!(lines[0], "[[column]]");
        Expectations::parse(&lines.join("\n")).unwrap().column
    }

    #[test]
    fn the_lines_that_the_warning_advises_are_an_expectation_that_turns_it_off() {
        let expected = advised(&warned(180, 12.0).unwrap());
        assert_eq!(warned_beside(180, 12.0, &expected), None);
    }

    #[test]
    fn an_advised_bound_allows_a_number_of_many_digits() {
        for number in [
            -999.1234_f64,
            999.1234,
            -999.999_96,
            -5_000_000.5,
            -9999.001,
        ] {
            #[expect(clippy::cast_possible_truncation, reason = "a target has 32 bits")]
            let stored = number as f32;
            let expected = advised(&warned_of(stored, 100, 12.0, &[]).unwrap());
            let [column] = &expected[..] else {
                panic!("{expected:?}")
            };
            assert!(column.min.is_none_or(|min| min <= number), "{column:?}");
            assert!(column.max.is_none_or(|max| max >= number), "{column:?}");
            assert_eq!(warned_of(stored, 100, 12.0, &expected), None);
        }
        assert_eq!(bound_that_allows(-999.1234, 1e-4, true), "-999.124");
        assert_eq!(bound_that_allows(999.1234, 1e-4, false), "999.124");
        assert_eq!(bound_that_allows(-0.3, 1e-8, true), "-0.300001");
        // The nearest integer is within the rounding, and would reject the number.
        assert_eq!(bound_that_allows(-9999.001, 1e-3, true), "-9999.01");
        assert_eq!(bound_that_allows(-9999.0, 1e-3, true), "-9999");
        assert_eq!(bound_that_allows(9999.0, 1e-3, false), "9999");
    }

    #[test]
    fn a_repeated_number_far_from_all_others_may_mean_a_missing_target() {
        let message = warned(180, 12.0).unwrap();
        assert!(
            message.starts_with(
                "180 training rows have the target `co` of about -200, and all others are from about 0 to 12:"
            ),
            "{message}"
        );
        assert_eq!(warned(9, 12.0), None);
        assert_eq!(warned(600, 12.0), None);
        assert_eq!(warned(180, 100.0), None);
    }

    #[test]
    fn the_ends_of_a_target_count_their_rows() {
        let mut end = RangeEnd::of(3.0);
        for number in [2.0, 5.0, 2.0, 4.0, 1.0, 1.0] {
            end.add(number);
        }
        assert_eq!((end.number.to_bits(), end.rows), (1.0_f32.to_bits(), 2));
        assert_eq!(end.next.map(f32::to_bits), Some(2.0_f32.to_bits()));
    }
}
