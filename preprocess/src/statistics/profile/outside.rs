//! Cells outside of the training split's caps or range, in each split.
//!
//! In the training split caps leave as many outside as their percentiles say. A split of the same
//! distribution has about as many. A split with far more has drifted, and its capped values carry
//! no information for a model.

use feedline_schemas::{
    manifest::Split,
    profile::{DatasetProfile, NumericCells, OutsideCells},
};
use libm::sqrt;

use super::drift::ONE_IN_A_THOUSAND;
use crate::statistics::aggregates::Bins;

/// Far more than in the training split is more than so many times the share there,
const TIMES: f64 = 2.0;
/// and larger by more than this, and by more than chance makes once in a thousand times.
const MORE: f64 = 0.01;

/// A split with far more cells outside than the training split has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FarOutside {
    pub(crate) column: String,
    pub(crate) split: Split,
    /// Share of its cells that are not missing, 0 to 1.
    pub(crate) share: f64,
    /// The same of the training split.
    pub(crate) train: f64,
}

/// Edges of the bins below, within and above both ends. The one that nothing is above keeps them apart from the bars of a
/// constant column.
pub(super) fn edges((low, high): (f64, f64)) -> Vec<f64> {
    vec![low.next_down(), high, f64::INFINITY]
}

/// Cells outside, from the counts between [`edges`]; `None` if there are none.
pub(super) fn cells(bins: &Bins) -> Option<OutsideCells> {
    let [below, _, above, ..] = *bins.counts() else {
        return None;
    };
    let found = OutsideCells { below, above };
    (found != OutsideCells::default()).then_some(found)
}

/// Numbers of cells of a split that are outside, and that are not missing.
pub(crate) fn rate(cells: &NumericCells) -> (u64, u64) {
    let outside = cells.outside.unwrap_or_default();
    (outside.below + outside.above, cells.cells() - cells.missing)
}

/// The splits with far more cells outside than the training split, column by column.
pub(crate) fn far(profile: &DatasetProfile) -> Vec<FarOutside> {
    let mut found = Vec::new();
    for column in &profile.numeric {
        let Some((train, others)) = column.splits.split_first() else {
            continue;
        };
        for other in others
            .iter()
            .filter(|other| is_far(rate(other), rate(train)))
        {
            found.push(FarOutside {
                column: column.name.clone(),
                split: other.split,
                share: share(rate(other)),
                train: share(rate(train)),
            });
        }
    }
    found
}

fn is_far(other: (u64, u64), train: (u64, u64)) -> bool {
    if other.1 == 0 || train.1 == 0 {
        return false;
    }
    let (p, q) = (share(other), share(train));
    let all = share((other.0 + train.0, other.1 + train.1));
    let spread = sqrt(all * (1.0 - all) * (1.0 / exact(other.1) + 1.0 / exact(train.1)));
    p > TIMES * q && p - q > MORE && p - q > ONE_IN_A_THOUSAND * spread
}

fn share((part, whole): (u64, u64)) -> f64 {
    exact(part) / exact(whole)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn exact(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trap_42_a_split_is_told_of_where_far_more_is_outside_than_in_train() {
        for (other, train, expected) in [
            ((10, 100), (20, 1000), true),
            ((4, 100), (20, 1000), false),
            ((30, 1000), (20, 1000), false),
            ((50, 1000), (20, 1000), true),
            // One of ten may be by chance.
            ((1, 10), (20, 1000), false),
            // Beyond a range that leaves nothing outside.
            ((9, 1000), (0, 1000), false),
            ((20, 1000), (0, 1000), true),
            ((0, 0), (20, 1000), false),
            ((5, 5), (0, 0), false),
        ] {
            assert_eq!(is_far(other, train), expected, "{other:?} {train:?}");
        }
    }

    #[test]
    fn trap_42_a_cell_on_a_cap_is_not_outside_and_infinities_are() {
        let mut bins = Bins::new(edges((-0.0, 1.0)));
        bins.add_all(&[
            0.0,
            -0.0,
            1.0,
            -1e-300,
            1.5,
            2.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ]);
        let found = cells(&bins);
        assert_eq!(found, Some(OutsideCells { below: 2, above: 3 }));
        assert_eq!(cells(&Bins::new(edges((1.0, 1.0)))), None);
    }
}
