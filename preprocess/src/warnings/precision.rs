//! Warnings of integers that a 32-bit float rounds, and of other numbers that it makes equal, before and after steps.

use std::collections::{HashMap, HashSet};

use feedline_schemas::report::{WarnedColumn, Warning};

use super::message::{COLUMNS, list_columns, warning};
use crate::schema::landed_columns::shown;

/// Integers up to this are exact as 32-bit floats.
const MAX_EXACT_F32: f64 = 16_777_216.0;

/// Largest fraction of its distinct values that a feature may have after the rounding to be warned of. A few values of most
/// columns with many digits become equal, which means nothing.
const FEWER: f64 = 0.9;

/// Low bits of the 52 that hold the digits of a fraction, which may be rounding errors: 40 bits are about 12 digits.
const ERROR_BITS: u32 = 12;

/// Values of a feature among the first training rows before and after they are rounded.
#[derive(Debug, Default)]
pub(crate) struct RoundedNumbers {
    /// Of about 12 digits.
    before: HashSet<u64>,
    /// Rounded values, each with the first value that it comes from.
    after: HashMap<u32, f64>,
    /// An integer that changes.
    integer: Option<f64>,
    /// A value that becomes equal to another one.
    merged: Option<f64>,
    /// True if a value has a fraction. Beyond 2^52 all floats are integers, so a huge value says nothing of a column.
    has_fraction: bool,
}

impl RoundedNumbers {
    /// Counts a value as it leaves the steps.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the rounding is what is counted"
    )]
    pub(crate) fn add(&mut self, value: f64) {
        let short = value as f32;
        self.before.insert(exact_digits(value));
        let first = *self.after.entry(short.to_bits()).or_insert(value);
        let is_changed = f64::from(short).to_bits() != value.to_bits();
        if exact_digits(first) != exact_digits(value) {
            let changed = if is_changed { value } else { first };
            self.merged.get_or_insert(changed);
        }
        self.has_fraction |= value.is_finite() && value.fract() != 0.0;
        let is_large = value.fract() == 0.0 && value.abs() > MAX_EXACT_F32;
        if is_large && is_changed {
            self.integer.get_or_insert(value);
        }
    }

    /// An integer that changes, if all values are integers and some become equal.
    fn merged_integer(&self) -> Option<f64> {
        let is_merged = self.merged.is_some() && !self.has_fraction;
        self.integer.filter(|_| is_merged)
    }

    /// A value that becomes equal to another one, if many do and not all are integers.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the first rows are few, so their count is exact"
    )]
    fn merged_float(&self) -> Option<f64> {
        let (before, after) = (self.before.len() as f64, self.after.len() as f64);
        let is_much = self.merged_integer().is_none() && after <= before * FEWER;
        self.merged.filter(|_| is_much)
    }

    /// Figures of a column with a value that changes.
    fn figures(&self, sample: f64) -> String {
        let (before, after) = (self.before.len(), self.after.len());
        format!(
            "{before} values among the first rows become {after}, {sample} becomes {}",
            f64::from(short(sample))
        )
    }
}

/// Numbers of a column before the steps that scale it, and as 32-bit floats after them.
#[derive(Debug, Default)]
pub(crate) struct MergedNumbers {
    /// Of about 12 digits.
    before: HashSet<u64>,
    after: HashSet<u32>,
}

impl MergedNumbers {
    /// Counts a number that was `before`, and is stored as `after`.
    pub(crate) fn add(&mut self, before: f64, after: f64) {
        self.before.insert(exact_digits(before));
        self.after.insert(short(after).to_bits());
    }

    /// Figures of a column many of whose distinct numbers become equal, in this many rows.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the rows are few, so their count is exact"
    )]
    pub(crate) fn figures(&self, rows: usize) -> Option<String> {
        let (before, after) = (self.before.len(), self.after.len());
        let is_much = after < before && after as f64 <= before as f64 * FEWER;
        is_much.then(|| format!("{before} distinct numbers in {rows} training rows become {after}"))
    }
}

/// Bits of a value without rounding errors of sums and differences, such as the last digit of 0.30000000000000004. An integer
/// has none.
fn exact_digits(value: f64) -> u64 {
    let bits = value.to_bits();
    match value.fract() == 0.0 {
        true => bits,
        // A carry into the exponent is the next power of two, as it should be.
        false => bits.wrapping_add(1 << (ERROR_BITS - 1)) >> ERROR_BITS << ERROR_BITS,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the rounding is what is shown"
)]
fn short(value: f64) -> f32 {
    value as f32
}

/// Features and their figures, those with a `sample` of the values that change.
fn described(
    found: &[(&str, RoundedNumbers)],
    sample: impl Fn(&RoundedNumbers) -> Option<f64>,
) -> Vec<WarnedColumn> {
    let columns = found.iter().filter_map(|(name, counted)| {
        let figures = counted.figures(sample(counted)?);
        Some(WarnedColumn::with_found(name, figures))
    });
    columns.collect()
}

/// Warns of features without a step that scales them, many of whose fractions a 32-bit float makes equal.
pub(crate) fn floats_rounded(found: &[(&str, RoundedNumbers)]) -> Option<Warning> {
    let columns = described(found, RoundedNumbers::merged_float);
    (!columns.is_empty()).then(|| {
        let message = format!(
            "features are 32-bit floats, which hold about seven digits, so distinct values become equal: {}; scale the column by \
             a `standardize`, `min_max` or `robust` step, which is computed in 64 bits before the rounding",
            list_columns(&columns, COLUMNS)
        );
        warning("floats_rounded", "dataset.step", message).with_columns(columns)
    })
}

/// Warns of features many of whose distinct numbers become equal after the steps that scale them.
pub(crate) fn scaled_rounded(columns: Vec<WarnedColumn>) -> Option<Warning> {
    (!columns.is_empty()).then(|| {
        let message = format!(
            "features are 32-bit floats, which hold about seven digits, so distinct numbers become equal after their steps: {}; \
             numbers far larger than the others make the scale of a column so large: add a `log1p` or `power` step before \
             `standardize`, or, where such numbers are few, replace `standardize` by a `robust` step, whose scale they do not \
             change, cap more of them by `lower` and `upper` of a `winsorize` step, or correct the source",
            list_columns(&columns, COLUMNS)
        );
        warning("floats_rounded", "dataset.step", message).with_columns(columns)
    })
}

/// Warns of a target many of whose distinct numbers become equal where it is stored in deviations, by these figures.
pub(crate) fn scaled_target_rounded(column: &str, figures: &str) -> Warning {
    let message = format!(
        "the target `{}` is stored in 32 bits, which hold about seven digits, by its distance from the mean, in deviations: \
         {figures}; numbers far larger than the others make the deviation so large: take a logarithm or cap them in \
         `dataset.sql`, or, where such numbers are few, correct the source or reject such rows by a `min` or `max` of the target \
         in the file of `dataset.expect`",
        shown(column)
    );
    warning("target_rounded", "dataset.expect", message)
        .with_columns(vec![WarnedColumn::new(column)])
}

/// Warns of features of integers without a step that scales them, where a 32-bit float makes some equal.
pub(crate) fn integers_rounded(found: &[(&str, RoundedNumbers)]) -> Option<Warning> {
    let columns = described(found, RoundedNumbers::merged_integer);
    (!columns.is_empty()).then(|| {
        let message = format!(
            "features are 32-bit floats, which hold integers exactly up to 16777216 only: {}; scale the column by a `standardize`, `min_max` or `robust` step, which is computed in 64 bits before the rounding, or list it in `dataset.categorical`",
            list_columns(&columns, COLUMNS)
        );
        warning("integers_rounded", "dataset.step", message).with_columns(columns)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(values: impl IntoIterator<Item = f64>) -> RoundedNumbers {
        let mut counted = RoundedNumbers::default();
        values.into_iter().for_each(|value| counted.add(value));
        counted
    }

    #[test]
    fn integers_that_change_are_reported_with_what_is_left_of_them() {
        let seconds = counted((0..500).map(|i| 1_700_000_001.0 + f64::from(i)));
        let warning = integers_rounded(&[("sec", seconds)]).unwrap();
        let part =
            "`sec` (500 values among the first rows become 5, 1700000001 becomes 1700000000)";
        assert!(warning.message.contains(part), "{}", warning.message);
        assert_eq!(warning.key.as_deref(), Some("dataset.step"));
    }

    #[test]
    fn floats_that_become_equal_are_reported_where_they_are_many() {
        let halves = |count: i32| (0..count).map(|i| 1_700_000_000.5 + f64::from(i));
        let found = [("sec", counted(halves(100)))];
        let warning = floats_rounded(&found).unwrap();
        let part =
            "`sec` (100 values among the first rows become 2, 1700000001.5 becomes 1700000000)";
        assert!(warning.message.contains(part), "{}", warning.message);
        assert_eq!(warning.code, "floats_rounded");
        assert_eq!(integers_rounded(&found), None);
        // Digits beyond the seventh are lost, and the values stay apart.
        let fine = counted((0..1000).map(|i| f64::from(i) / 7.0));
        let few = counted(halves(2).chain((0..50_i32).map(f64::from)));
        assert_eq!(floats_rounded(&[("fine", fine), ("few", few)]), None);
        // A column with fractions is none of integers.
        let mixed = [("mixed", counted(halves(100).chain([1_700_000_001.0])))];
        assert!(floats_rounded(&mixed).is_some());
        assert_eq!(integers_rounded(&mixed), None);
    }

    #[test]
    fn rounding_errors_of_sums_are_no_distinct_values() {
        // Sums and means of four numbers of one decimal, in changing orders.
        let number = |i: i32| f64::from(i * 37 % 101) / 10.0;
        let sum = |i: i32| number(i) + number(i * i % 97) + number(i + 5) + number(i + 11);
        let sums = counted((0..2000).map(sum));
        let means = counted((0..2000).map(|i| sum(i) / 4.0));
        assert_eq!(sums.before.len(), sums.after.len());
        assert_eq!(floats_rounded(&[("sums", sums), ("means", means)]), None);
        let pair = counted([0.1 + 0.2, 0.3]);
        assert_eq!((pair.before.len(), pair.merged), (1, None));
        // Seconds of this century that are half a second apart are distinct.
        let halves = counted([1_700_000_000.5, 1_700_000_001.0]);
        assert_eq!(halves.before.len(), 2);
    }

    #[test]
    fn huge_values_among_fractions_and_integers_that_stay_apart_are_not_reported() {
        let huge = counted((0..600).map(|i| f64::from(i) / 7.0).chain([3e38, -3e38]));
        let apart = counted((0..600).map(|i| 1_700_000_001.0 + 1_000.0 * f64::from(i)));
        let found = [("huge", huge), ("apart", apart)];
        assert_eq!(integers_rounded(&found), None);
        assert_eq!(floats_rounded(&found), None);
    }

    #[test]
    fn a_logarithm_is_advised_before_caps() {
        let feature = scaled_rounded(vec![WarnedColumn::new("x")]).unwrap();
        let target = scaled_target_rounded("y", "9 distinct numbers become 3");
        for (warning, first, then) in [
            (feature, "`log1p` or `power`", "`winsorize`"),
            (target, "a logarithm", "`dataset.expect`"),
        ] {
            let [first, then] = [first, then].map(|part| warning.message.find(part).unwrap());
            assert!(first < then, "{warning:?}");
            let cause = "numbers far larger than the others make the ";
            assert!(warning.message.contains(cause), "{warning:?}");
        }
    }

    #[test]
    fn exact_integers_and_fractions_are_not() {
        for values in [
            [16_777_216.0, -16_777_216.0, 3.0],
            [1_700_000_000.0, 33_554_436.0, 0.0],
            [0.1, 1_700_000_001.25, f64::NAN],
        ] {
            let found = [("a", counted(values))];
            assert_eq!(integers_rounded(&found), None, "{values:?}");
            assert_eq!(floats_rounded(&found), None, "{values:?}");
        }
    }
}
