//! Warnings of numeric cells: infinite, NaN, and outside the range of the training split.

use std::collections::BTreeMap;

use feedline_schemas::{
    manifest::Split,
    report::{WarnedColumn, Warning},
};

use super::message::{COLUMNS, list_columns, percent, share, warning};
use crate::statistics::profile::outside::FarOutside;

/// Code of a warning about the cells of one column that are no numbers, in the rows of one build.
pub(crate) const TEXTS_NOT_NUMBERS: &str = "texts_not_numbers";

/// Code of a warning about a number that many targets have, far from all others, in the rows of one build.
pub(crate) const TARGET_REPEATS_EXTREME: &str = "target_repeats_extreme";

/// Code of a warning about a number that many cells of a feature have, far from all others, in the rows of one build.
pub(super) const FEATURE_REPEATS_EXTREME: &str = "feature_repeats_extreme";

/// Code of a warning about infinite cells of all columns, in the rows of one build.
pub(super) const INFINITE_CAPPED: &str = "infinite_capped";

/// Code of a warning about NaN cells of all columns, in the rows of one build.
pub(super) const NAN_MISSING: &str = "nan_missing";

/// Code of a warning about caps that change many cells of a split, in the rows of one build.
pub(super) const MOSTLY_CAPPED: &str = "mostly_capped";

/// Code of a warning about numbers far from those of the training rows, in the rows of one build.
pub(crate) const FAR_FROM_TRAINING_ROWS: &str = "far_from_training_rows";

/// Least fraction of the cells of a split that caps change, for a warning,
const CAPPED: f64 = 0.2;
/// least multiple of the fraction of the rows that the caps were fitted to,
const TIMES: f64 = 5.0;
/// and fewest cells.
const FEWEST: u64 = 10;

/// Warns of numeric features with many cells that the caps of a `winsorize` step change in one of the `splits`. Each column has
/// these cells of each split, and all rows of it, in the order of [`Split::ALL`]; `fitted` gives the fraction that they are of
/// the rows which the caps were fitted to.
pub(crate) fn mostly_capped(
    cells: &BTreeMap<String, [u64; 3]>,
    rows: [u64; 3],
    splits: &[Split],
    fitted: impl Fn(&str) -> f64,
) -> Option<Warning> {
    let columns = cells.iter().filter_map(|(column, cells)| {
        capped_column(column, (cells, rows), splits, fitted(column.as_str()))
    });
    let columns: Vec<WarnedColumn> = columns.collect();
    (!columns.is_empty()).then(|| {
        // Only rows that were appended are in the training split too.
        let refit = match splits.contains(&Split::Train) {
            true => "fit the caps to all rows with `feedline shards build --refit`, ",
            false => "",
        };
        let message = format!(
            "caps of `winsorize` change a large part of the numbers of a split, which all become the cap, so a model cannot \
             distinguish them: {}; a series that rises or falls leaves the range of its training rows: {refit}write \
             `[[dataset.step]]` without `winsorize` for such columns, or predict the difference from an earlier value; if the \
             caps are meant, list the columns in `columns` of the `winsorize` step, and later builds have no such warning",
            list_columns(&columns, COLUMNS)
        );
        warning(MOSTLY_CAPPED, "dataset.step", message).with_columns(columns)
    })
}

/// A column of [`mostly_capped`], with the splits that have many such cells; `None` if there are none.
fn capped_column(
    column: &str,
    (cells, rows): (&[u64; 3], [u64; 3]),
    splits: &[Split],
    fitted: f64,
) -> Option<WarnedColumn> {
    let least = CAPPED.max(TIMES * fitted);
    let counted = Split::ALL.into_iter().zip(*cells).zip(rows);
    let counted = counted.filter(|((split, cells), rows)| {
        splits.contains(split) && *cells >= FEWEST && share(*cells, *rows) >= least
    });
    let counted: Vec<String> = counted
        .map(|((split, cells), rows)| format!("{} of {rows} {split} rows", percent(cells, rows)))
        .collect();
    (!counted.is_empty()).then(|| {
        let found = format!(
            "{}; {:.1} % of the rows that the caps were fitted to",
            counted.join(", "),
            fitted * 100.0
        );
        WarnedColumn::with_found(column, found)
    })
}

/// Warns of features with a number that many rows have, far from all others. `advice` turns it off.
pub(crate) fn feature_repeats_extreme(columns: Vec<WarnedColumn>, advice: &str) -> Option<Warning> {
    (!columns.is_empty()).then(|| {
        let message = format!(
            "many rows have the same number in a feature, far from all others: {}; such a number often means that the value is \
             missing; if so, list it in `dataset.missing_values`; if it is a value, allow it in a file of expectations, which turns \
             this warning off: {advice}",
            list_columns(&columns, COLUMNS)
        );
        warning(FEATURE_REPEATS_EXTREME, "dataset.missing_values", message).with_columns(columns)
    })
}

/// Warns of infinite cells of numeric features. Each column has the cells of each split, in the
/// order of [`Split::ALL`].
pub(crate) fn infinite_capped(cells: &BTreeMap<String, [u64; 3]>) -> Option<Warning> {
    let columns: Vec<WarnedColumn> = cells
        .iter()
        .map(|(column, [train, validation, test])| {
            let found = format!("{train} train, {validation} validation, {test} test");
            WarnedColumn::with_found(column, found)
        })
        .collect();
    (!columns.is_empty()).then(|| {
        let message = format!(
            "infinite cells of features were capped as the largest and smallest numbers are: {}; where they mean a \
             missing value, make them null in the source or with `dataset.sql`",
            list_columns(&columns, COLUMNS)
        );
        warning(INFINITE_CAPPED, "dataset.step", message).with_columns(columns)
    })
}

/// Warns of NaN cells of numeric features, which became missing. Each column has these cells and all of its landed cells; `fills`
/// says whether a step imputes one of them.
pub(crate) fn nan_missing(cells: &BTreeMap<String, (u64, u64)>, fills: bool) -> Option<Warning> {
    let columns: Vec<WarnedColumn> = cells
        .iter()
        .map(|(column, (nan, all))| WarnedColumn::with_found(column, format!("{nan} of {all}")))
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
            list_columns(&columns, COLUMNS)
        );
        warning(NAN_MISSING, "dataset.step", message).with_columns(columns)
    })
}

/// Warns of columns that have far more cells outside the training range in a split than in the
/// training split itself.
pub(crate) fn far_outside(found: &[FarOutside]) -> Option<Warning> {
    let columns: Vec<WarnedColumn> = found
        .iter()
        .map(|found| {
            let (share, train) = (found.share * 100.0, found.train * 100.0);
            let shares = format!("{share:.2} % of {}, {train:.2} % of train", found.split);
            WarnedColumn::with_found(&found.column, shares)
        })
        .collect();
    (!columns.is_empty()).then(|| {
        let message = format!(
            "far more cells are outside of the caps or the range of the training split than in it, so the columns have drifted: {}",
            list_columns(&columns, COLUMNS)
        );
        warning("splits_drifted", "dataset.split", message).with_columns(columns)
    })
}
