//! Distance between two sets of counts over the same bins.
//!
//! With shares p and q of the k bins, the bin of missing cells included:
//!
//! - Jensen-Shannon divergence (J. Lin, "Divergence measures based on the Shannon entropy", IEEE Trans. Inf. Theory 37(1),
//!   1991): `½ Σ p·log2(p/m) + ½ Σ q·log2(q/m)` with `m = (p + q) / 2`; to base 2, so 0 (equal) to 1 (nothing in common). Empty
//!   bins add nothing, and nothing is smoothed.
//! - Population stability index: `Σ (p - q)·ln(p/q)`, to base e. An empty bin would make it infinite, so half a cell is added
//!   to each bin of both: `p = (cells + ½) / (all + k/2)`. By custom, below 0.1 is no shift, above 0.25 a strong one.
//!
//! Between two samples of n and m cells of one distribution the index is about `(1/n + 1/m)` times
//! a chi-squared variable of k - 1 degrees of freedom (B. Yurdakul, "Statistical properties of
//! population stability index", Western Michigan University, 2018). [`Drift::chance`] is the value
//! that it exceeds once in a thousand times, by the approximation of Wilson and Hilferty; an index
//! not above it is called no shift, however large.

use feedline_schemas::profile::{CategoricalCells, DatasetProfile, NumericCells};
use libm::{log, log2, sqrt};

/// Values of a category that count as bins of their own; the rest are one bin.
const VALUES: usize = 30;

/// The quantile of a standard normal variable that one in a thousand exceeds.
pub(super) const ONE_IN_A_THOUSAND: f64 = 3.0902;

/// Distance between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drift {
    /// Jensen-Shannon divergence to base 2, 0 to 1.
    pub(crate) js: f64,
    /// Population stability index, from 0.
    pub(crate) psi: f64,
    /// Value that the index exceeds by chance once in a thousand times.
    pub(crate) chance: f64,
}

/// Verdict on a drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shift {
    None,
    Some,
    Strong,
}

impl Shift {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Some => "some",
            Self::Strong => "strong",
        }
    }
}

impl Drift {
    /// Of counts of the same bins; `None` where a side has no cell, and for other bins.
    pub(crate) fn of(one: &[u64], other: &[u64]) -> Option<Self> {
        let (n, m): (u64, u64) = (one.iter().sum(), other.iter().sum());
        if n == 0 || m == 0 || one.len() != other.len() {
            return None;
        }
        let (n, m, bins) = (exact(n), exact(m), exact(one.len() as u64));
        let (mut js, mut psi) = (0.0, 0.0);
        for (one, other) in one.iter().zip(other) {
            let (one, other) = (exact(*one), exact(*other));
            let (p, q) = (one / n, other / m);
            js += half_entropy(p, q) + half_entropy(q, p);
            let (p, q) = (
                (one + 0.5) / (n + bins / 2.0),
                (other + 0.5) / (m + bins / 2.0),
            );
            psi += (p - q) * log(p / q);
        }
        Some(Self {
            js: js.clamp(0.0, 1.0),
            psi: psi.max(0.0),
            chance: (1.0 / n + 1.0 / m) * chi_squared(bins - 1.0),
        })
    }

    /// Verdict on it.
    pub(crate) fn shift(self) -> Shift {
        if self.psi <= self.chance || self.psi < 0.1 {
            Shift::None
        } else if self.psi <= 0.25 {
            Shift::Some
        } else {
            Shift::Strong
        }
    }
}

fn half_entropy(p: f64, q: f64) -> f64 {
    if p > 0.0 {
        0.5 * p * log2(p / ((p + q) / 2.0))
    } else {
        0.0
    }
}

/// Value that a chi-squared variable exceeds once in a thousand times.
fn chi_squared(freedom: f64) -> f64 {
    if freedom <= 0.0 {
        return 0.0;
    }
    let spread = 2.0 / (9.0 * freedom);
    let root = 1.0 - spread + ONE_IN_A_THOUSAND * sqrt(spread);
    freedom * root * root * root
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn exact(count: u64) -> f64 {
    count as f64
}

/// The drift of a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ColumnDrift {
    pub(crate) column: String,
    /// Name of the data that the training split is compared with.
    pub(crate) with: String,
    pub(crate) drift: Drift,
}

/// The training split beside the other splits, column by column.
pub(crate) fn of_splits(profile: &DatasetProfile) -> Vec<ColumnDrift> {
    let mut found = Vec::new();
    let mut add = |column: &str, split: &str, one: &[u64], other: &[u64]| {
        found.extend(Drift::of(one, other).map(|drift| ColumnDrift {
            column: column.to_owned(),
            with: split.to_owned(),
            drift,
        }));
    };
    for column in &profile.numeric {
        let mut cells = column.splits.iter();
        let Some(train) = cells.next() else { continue };
        for other in cells {
            let split = other.split.as_str();
            add(&column.name, split, &of_numbers(train), &of_numbers(other));
        }
    }
    for column in &profile.categorical {
        let mut cells = column.splits.iter();
        let Some(train) = cells.next() else { continue };
        for other in cells {
            let split = other.split.as_str();
            add(&column.name, split, &of_values(train), &of_values(other));
        }
    }
    found
}

/// The bins of a column of numbers, and its missing cells.
pub(crate) fn of_numbers(cells: &NumericCells) -> Vec<u64> {
    let missing = std::iter::once(cells.missing);
    cells.bins.iter().copied().chain(missing).collect()
}

/// The most frequent values, all others, and the missing cells.
pub(crate) fn of_values(cells: &CategoricalCells) -> Vec<u64> {
    let (often, rare) = cells.counts.split_at(cells.counts.len().min(VALUES));
    let other = cells.other + rare.iter().sum::<u64>();
    often
        .iter()
        .copied()
        .chain([other, cells.missing])
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * b.abs().max(1.0)
    }

    #[test]
    fn figures_are_those_of_the_formulas() {
        let found = Drift::of(&[3, 1], &[1, 3]).unwrap();
        // m = ½ for both bins: ¾·log2(3/2) + ¼·log2(1/2).
        let js = 0.75 * 1.5_f64.log2() - 0.25;
        assert!(close(found.js, js), "{found:?}");
        // Shares 3.5/5 and 1.5/5.
        let psi = 2.0 * 0.4 * (3.5_f64 / 1.5).ln();
        assert!(close(found.psi, psi), "{found:?}");
        assert!(
            (chi_squared(20.0) / 45.315 - 1.0).abs() < 0.005,
            "a table says 45.315"
        );
    }

    #[test]
    fn nothing_in_common_is_one_and_the_same_is_zero() {
        let apart = Drift::of(&[1000, 0], &[0, 1000]).unwrap();
        assert!(close(apart.js, 1.0) && apart.psi.is_finite());
        assert_eq!(apart.shift(), Shift::Strong);
        let same = Drift::of(&[10, 20, 0], &[100, 200, 0]).unwrap();
        assert!(close(same.js, 0.0));
        assert_eq!(same.shift(), Shift::None);
        assert_eq!(Drift::of(&[0, 0], &[1, 1]), None);
        assert_eq!(Drift::of(&[1, 1], &[1]), None);
    }

    #[test]
    fn few_rows_are_not_called_a_shift() {
        let few = Drift::of(
            &[50; 20],
            &[2, 0, 1, 0, 0, 2, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1],
        );
        let few = few.unwrap();
        assert!(few.psi > 0.25, "{few:?}");
        assert_eq!(few.shift(), Shift::None);
    }

    proptest! {
        #[test]
        fn both_are_symmetric_and_bounded(pairs in prop::collection::vec((0u64..1000, 0u64..1000), 1..30)) {
            let (one, other): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
            if let (Some(there), Some(back)) = (Drift::of(&one, &other), Drift::of(&other, &one)) {
                prop_assert!(close(there.js, back.js) && close(there.psi, back.psi));
                prop_assert!((0.0..=1.0).contains(&there.js) && there.psi >= 0.0 && there.psi.is_finite());
            }
        }
    }
}
