//! Warnings of numeric cells: infinite, NaN, and outside the range of the training split.

use std::collections::BTreeMap;

use feedline_schemas::report::Warning;

use super::message::{COLUMNS, first_of, warning};
use crate::{schema::landed_columns::shown, statistics::profile::outside::FarOutside};

/// Code of a warning about the cells of one column that are no numbers, in the rows of one build.
pub(crate) const TEXTS_NOT_NUMBERS: &str = "texts_not_numbers";

/// Code of a warning about a number that many targets have, far from all others, in the rows of one build.
pub(crate) const TARGET_REPEATS_EXTREME: &str = "target_repeats_extreme";

/// Code of a warning about infinite cells of all columns, in the rows of one build.
pub(super) const INFINITE_CAPPED: &str = "infinite_capped";

/// Code of a warning about NaN cells of all columns, in the rows of one build.
pub(super) const NAN_MISSING: &str = "nan_missing";

/// Warns of infinite cells of numeric features. Each column has the cells of each split, in the
/// order of [`Split::ALL`].
pub(crate) fn infinite_capped(cells: &BTreeMap<String, [u64; 3]>) -> Option<Warning> {
    let columns: Vec<String> = cells
        .iter()
        .map(|(column, [train, validation, test])| {
            let column = shown(column);
            format!("`{column}` ({train} train, {validation} validation, {test} test)")
        })
        .collect();
    (!columns.is_empty()).then(|| {
        let message = format!(
            "infinite cells of features were capped as the largest and smallest numbers are: {}; where they mean a \
             missing value, make them null in the source or with `dataset.sql`",
            first_of(&columns, COLUMNS)
        );
        warning(INFINITE_CAPPED, "dataset.step", message)
    })
}

/// Warns of NaN cells of numeric features, which became missing. Each column has these cells and all of its landed cells; `fills`
/// says whether a step imputes one of them.
pub(crate) fn nan_missing(cells: &BTreeMap<String, (u64, u64)>, fills: bool) -> Option<Warning> {
    let columns: Vec<String> = cells
        .iter()
        .map(|(column, (nan, all))| format!("`{}` ({nan} of {all})", shown(column)))
        .collect();
    let what = match fills {
        true => "were imputed; keep a mark of them with `indicator = true` of the `impute` step",
        false => {
            "rows that no step fills are rejected as `missing_value`; fill them with an `impute` step"
        }
    };
    (!columns.is_empty()).then(|| {
        let message = format!(
            "NaN cells of landed columns count as missing and {what}, or correct the source where NaN is a fault: {}",
            first_of(&columns, COLUMNS)
        );
        warning(NAN_MISSING, "dataset.step", message)
    })
}

/// Warns of columns that have far more cells outside the training range in a split than in the
/// training split itself.
pub(crate) fn far_outside(found: &[FarOutside]) -> Option<Warning> {
    let columns: Vec<String> = found
        .iter()
        .map(|found| {
            let (share, train) = (found.share * 100.0, found.train * 100.0);
            let column = shown(&found.column);
            format!(
                "`{column}` ({share:.2} % of {}, {train:.2} % of train)",
                found.split
            )
        })
        .collect();
    (!columns.is_empty()).then(|| {
        let message = format!(
            "far more cells are outside of the caps or the range of the training split than in it, so the columns have drifted: {}",
            first_of(&columns, COLUMNS)
        );
        warning("splits_drifted", "dataset.split", message)
    })
}
