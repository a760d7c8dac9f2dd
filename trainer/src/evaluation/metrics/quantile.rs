//! Metrics of a model that predicts a quantile: `pinball` and `coverage`.
//!
//! The pinball loss (Koenker and Bassett 1978) of a target is `quantile` times its distance above the prediction, or
//! `1 - quantile` times its distance below. Coverage is the fraction of the targets at or below their predictions; the closer to
//! the quantile, the better.
//!
//! The baseline predicts for each row the constant with the lowest pinball loss on all other rows of the split. A dataset does
//! not store the quantiles of its training targets. The best constant of all rows, each with its own target, would be fitted to
//! the chance of the split: on few rows it is better than most good models.

use super::values::{Metrics, named};
use crate::float_casts::{exact, exact_len};

/// Sums over the rows of one target, in units of the stored target.
#[derive(Clone, Debug)]
pub(super) struct QuantileSums {
    /// Aimed fraction of the targets below the prediction.
    quantile: f64,
    pinball: f64,
    /// Rows whose target is at or below the prediction.
    covered: u64,
    targets: Vec<f32>,
}

/// Means over the rows of one target, in units of the stored target.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuantileMeans {
    pinball: f64,
    coverage: f64,
}

impl QuantileSums {
    /// No rows yet.
    pub(super) const fn new(quantile: f64) -> Self {
        Self {
            quantile,
            pinball: 0.0,
            covered: 0,
            targets: Vec::new(),
        }
    }

    /// Adds a row, both numbers as stored.
    pub(super) fn add(&mut self, output: f32, y: f32) {
        self.add_loss(output, y);
        self.targets.push(y);
    }

    fn add_loss(&mut self, output: f32, y: f32) {
        let above = f64::from(y) - f64::from(output);
        self.pinball += match above > 0.0 {
            true => self.quantile * above,
            false => (self.quantile - 1.0) * above,
        };
        self.covered += u64::from(y <= output);
    }

    /// Means of the model.
    pub(super) fn means(&self) -> QuantileMeans {
        self.over(self.targets.len())
    }

    /// Means of a baseline that predicts the quantile of all other targets for each row; `None` with fewer than two rows.
    pub(super) fn baseline_means(&self) -> Option<QuantileMeans> {
        let [low, high] = self.constants_of_others()?;
        let mut sums = Self::new(self.quantile);
        for &y in &self.targets {
            sums.add_loss(if y <= low { high } else { low }, y);
        }
        Some(sums.over(self.targets.len()))
    }

    fn over(&self, rows: usize) -> QuantileMeans {
        QuantileMeans {
            pinball: self.pinball / exact_len(rows),
            coverage: exact(self.covered) / exact_len(rows),
        }
    }

    /// The lowest target that at least the fraction `quantile` of all other targets are at or below: `low` for rows above it, and
    /// the next one, `high`, for rows at or below `low`. `None` with fewer than two rows.
    fn constants_of_others(&self) -> Option<[f32; 2]> {
        let others = self.targets.len().checked_sub(1)?;
        let wanted = self.quantile * exact_len(others);
        let place = (0..others).find(|place| exact_len(place + 1) >= wanted)?;
        let mut targets = self.targets.clone();
        let (_, low, above) = targets.select_nth_unstable_by(place, f32::total_cmp);
        let high = above.iter().copied().min_by(f32::total_cmp)?;
        Some([*low, high])
    }
}

impl QuantileMeans {
    /// Means over all of several targets; `None` where there are none.
    pub(super) fn of_all(targets: &[Self]) -> Option<Self> {
        let mean = |value: fn(&Self) -> f64| {
            targets.iter().map(value).sum::<f64>() / exact_len(targets.len())
        };
        (!targets.is_empty()).then(|| Self {
            pinball: mean(|means| means.pinball),
            coverage: mean(|means| means.coverage),
        })
    }

    /// Metrics of a target that is stored in units of `scale`.
    pub(super) fn metrics(self, scale: f64) -> Metrics {
        named([
            ("pinball", self.pinball * scale),
            ("coverage", self.coverage),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: QuantileMeans, pinball: f64, coverage: f64) {
        assert!((found.pinball - pinball).abs() < 1e-6, "{found:?}");
        assert!((found.coverage - coverage).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn the_loss_and_the_coverage_are_compared_with_the_best_constant_of_the_other_rows() {
        let mut sums = QuantileSums::new(0.75);
        for (output, y) in [(2.0, 1.0), (2.0, 2.0), (2.0, 4.0), (5.0, 3.0)] {
            sums.add(output, y);
        }
        // One below by 1, one equal, one above by 2, one below by 2.
        check(
            sums.means(),
            (0.25 + 0.0 + 0.75 * 2.0 + 0.25 * 2.0) / 4.0,
            0.75,
        );
        // Of three others it is the highest: 4 for 1, 2 and 3, and 3 for 4.
        check(
            sums.baseline_means().unwrap(),
            (0.25 * 3.0 + 0.25 * 2.0 + 0.25 + 0.75) / 4.0,
            0.75,
        );
    }

    #[test]
    fn one_row_has_no_baseline() {
        let mut sums = QuantileSums::new(0.9);
        assert!(sums.baseline_means().is_none());
        sums.add(1.0, 2.0);
        assert!(sums.baseline_means().is_none());
        sums.add(1.0, 2.0);
        check(sums.baseline_means().unwrap(), 0.0, 1.0);
    }

    #[test]
    fn the_baseline_of_a_row_is_fitted_without_it() {
        let mut targets = crate::testing::uniform(57, 31);
        // Equal targets at the ends and within.
        targets.extend([-2.0, -2.0, 0.0, 0.0, 0.0, 2.0, 2.0]);
        for quantile in [0.001, 0.1, 0.5, 0.9, 0.999] {
            let (mut sums, mut reference) =
                (QuantileSums::new(quantile), QuantileSums::new(quantile));
            for (row, &y) in targets.iter().enumerate() {
                sums.add(0.0, y);
                let mut others = targets.clone();
                others.remove(row);
                others.sort_by(f32::total_cmp);
                let is_enough = |constant: &f32| {
                    let below = others.iter().filter(|other| *other <= constant).count();
                    exact_len(below) >= quantile * exact_len(others.len())
                };
                reference.add(others.iter().copied().find(is_enough).unwrap(), y);
            }
            let expected = reference.means();
            check(
                sums.baseline_means().unwrap(),
                expected.pinball,
                expected.coverage,
            );
        }
    }
}
