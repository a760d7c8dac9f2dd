//! Warning of integers that a 32-bit float rounds.

use std::collections::HashSet;

use feedline_schemas::report::Warning;

use super::message::{COLUMNS, first_of, warning};
use crate::schema::landed_columns::shown;

/// Integers up to this are exact as 32-bit floats.
const MAX_EXACT_F32: f64 = 16_777_216.0;

/// Values of a feature among the first training rows before and after they are rounded.
#[derive(Debug, Default)]
pub(crate) struct RoundedIntegers {
    before: HashSet<u64>,
    after: HashSet<u32>,
    /// An integer that changes.
    sample: Option<f64>,
}

impl RoundedIntegers {
    /// Counts a value as it leaves the steps.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the rounding is what is counted"
    )]
    pub(crate) fn add(&mut self, value: f64) {
        let short = value as f32;
        self.before.insert(value.to_bits());
        self.after.insert(short.to_bits());
        let is_large = value.fract() == 0.0 && value.abs() > MAX_EXACT_F32;
        if is_large && f64::from(short).to_bits() != value.to_bits() {
            self.sample.get_or_insert(value);
        }
    }

    /// Figures of a column with integers that change.
    fn figures(&self) -> Option<String> {
        let sample = self.sample?;
        let (before, after) = (self.before.len(), self.after.len());
        Some(format!(
            "{before} values among the first rows become {after}, {sample} becomes {}",
            f64::from(short(sample))
        ))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the rounding is what is shown"
)]
fn short(value: f64) -> f32 {
    value as f32
}

/// Warns of features without a step that scales them, whose integers a 32-bit float rounds.
pub(crate) fn integers_rounded(found: &[(&str, RoundedIntegers)]) -> Option<Warning> {
    let columns = found.iter().filter_map(|(name, counted)| {
        let figures = counted.figures()?;
        Some(format!("`{}` ({figures})", shown(name)))
    });
    let columns: Vec<String> = columns.collect();
    (!columns.is_empty()).then(|| {
        let message = format!(
            "features are 32-bit floats, which hold integers exactly up to 16777216 only: {}; scale the column by a `standardize`, `min_max` or `robust` step, which is computed in 64 bits before the rounding, or list it in `dataset.categorical`",
            first_of(&columns, COLUMNS)
        );
        warning("integers_rounded", "dataset.step", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(values: impl IntoIterator<Item = f64>) -> RoundedIntegers {
        let mut counted = RoundedIntegers::default();
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
    fn exact_integers_and_fractions_are_not() {
        for values in [
            [16_777_216.0, -16_777_216.0, 3.0],
            [1_700_000_000.0, 33_554_436.0, 0.0],
            [0.1, 1_700_000_001.25, f64::NAN],
        ] {
            let counted = counted(values);
            assert_eq!(integers_rounded(&[("a", counted)]), None, "{values:?}");
        }
    }
}
