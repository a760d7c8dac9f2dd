//! Rows that the training data has none like, counted and warned of.

use feedline_preprocess::UnusualCells;
use feedline_schemas::report::PredictReport;

/// Adds the counts of unusual cells to the report.
pub(super) fn count_unusual(unusual: &UnusualCells, report: &mut PredictReport) {
    for (columns, counts) in [
        (&unusual.missing, &mut report.missing_cells),
        (&unusual.unknown, &mut report.unknown_categories),
        (&unusual.far_outside, &mut report.far_outside),
    ] {
        for (column, rows) in columns {
            *counts.entry(column.clone()).or_default() += rows.len() as u64;
        }
    }
}

/// Logs warnings about rows that the training data has none like.
pub(super) fn warn_of_unusual_rows(report: &PredictReport) {
    if !report.absent.is_empty() {
        tracing::warn!(
            columns = report.absent.join(", "),
            rows = report.rows,
            "no row has these columns, which the transform was fitted on, so all their cells were read as missing; check \
             how they are called"
        );
    }
    for (columns, what) in [
        (
            &report.unknown_categories,
            "with a category that no training row has, or fewer than `min_count`,",
        ),
        (
            &report.far_outside,
            "with a number far outside of the training rows",
        ),
    ] {
        for (column, cells) in columns {
            tracing::warn!(
                column,
                cells,
                rows = report.rows,
                "new rows {what} have predictions outside of the training data; `--flags` marks them"
            );
        }
    }
}
