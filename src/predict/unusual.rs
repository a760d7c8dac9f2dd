//! Rows that the training data has none like, counted and warned of.

use std::collections::BTreeMap;

use feedline_preprocess::{Transform, UnusualCells, capped_in_train};
use feedline_schemas::{
    config::{DatasetConfig, Step},
    report::{PredictReport, WarnedColumn, Warning},
};

use crate::output::shown_columns;

/// Least fraction of the new rows whose number a cap changes, for a warning,
const CAPPED: f64 = 0.5;
/// least multiple of that fraction of the training rows,
const TIMES: f64 = 5.0;
/// and fewest rows.
const FEWEST: u64 = 20;

/// Adds the counts of unusual cells to the report.
pub(super) fn count_unusual(unusual: &UnusualCells, report: &mut PredictReport) {
    for (columns, counts) in [
        (&unusual.missing, &mut report.missing_cells),
        (&unusual.unknown, &mut report.unknown_categories),
        (&unusual.far_outside, &mut report.far_outside),
        (&unusual.capped, &mut report.capped),
    ] {
        for (column, rows) in columns {
            *counts.entry(column.clone()).or_default() += rows.len() as u64;
        }
    }
}

/// Adds the fractions of the training rows that caps of the counted columns change, and counts cells of those
/// whose numbers are far outside by caps, which may be none.
pub(super) fn add_training_caps(transform: &Transform, report: &mut PredictReport) {
    let artefact = transform.artefact();
    let far = report.far_outside.keys();
    for column in far.filter(|column| transform.has_caps_as_bounds(column)) {
        report.capped.entry(column.clone()).or_default();
    }
    let columns = report.capped.keys();
    report.capped_in_train = columns
        .map(|column| (column.clone(), capped_in_train(artefact, column)))
        .collect();
}

/// Warns of caps that change the numbers of most new rows. Columns that a `winsorize` step lists are
/// meant to be capped.
pub(crate) fn mostly_capped(
    report: &PredictReport,
    dataset: Option<&DatasetConfig>,
) -> Option<Warning> {
    let rows = report.rows.saturating_sub(report.rejected);
    let steps = dataset.iter().flat_map(|dataset| &dataset.step).flatten();
    let steps = steps.filter(|step| matches!(step.step, Step::Winsorize(_)));
    let listed: Vec<&String> = steps.flat_map(|step| &step.columns).collect();
    let columns = report
        .capped
        .iter()
        .filter(|(column, _)| !listed.contains(column));
    let columns = columns.filter_map(|(column, cells)| {
        let trained = *report.capped_in_train.get(column)?;
        let found = *cells as f64 / rows.max(1) as f64;
        let is_most = rows >= FEWEST && found > CAPPED && found >= TIMES * trained;
        is_most.then(|| {
            let found = format!(
                "{:.0} % of {rows} rows; {:.1} % of the training rows",
                found * 100.0,
                trained * 100.0
            );
            WarnedColumn::with_found(column, found)
        })
    });
    let columns: Vec<WarnedColumn> = columns.collect();
    (!columns.is_empty()).then(|| {
        let message = format!(
            "caps of `winsorize` change the numbers of most new rows, which all become the cap, so a model cannot distinguish \
             them: {}; a series that rises or falls leaves the range of its training rows: build and train with newer rows, or \
             write `[[dataset.step]]` without `winsorize` for such columns; if the caps are meant, list the columns in \
             `columns` of the `winsorize` step, and this warning is gone",
            shown_columns(&columns).join(", ")
        );
        let warning = Warning::new("mostly_capped", message).with_key("dataset.step");
        warning.with_columns(columns)
    })
}

/// Counts of numbers far outside, by column: those beyond caps, and those outside of the training rows.
pub(super) fn split_far_outside(report: &PredictReport) -> [BTreeMap<String, u64>; 2] {
    let far = report.far_outside.clone().into_iter();
    let (of_caps, others) = far.partition(|(column, _)| report.capped.contains_key(column));
    [of_caps, others]
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
    let [beyond_caps, outside] = split_far_outside(report);
    for (columns, what) in [
        (
            &report.unknown_categories,
            "with a category that no training row has, or fewer than `min_count`,",
        ),
        (
            &beyond_caps,
            "with a number far beyond the caps of `winsorize`",
        ),
        (&outside, "with a number far outside of the training rows"),
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

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    #[test]
    fn numbers_beyond_caps_are_counted_apart_from_those_outside_of_the_training_rows() {
        let report = PredictReport {
            far_outside: [("a".to_owned(), 1), ("b".to_owned(), 2)].into(),
            capped: [("a".to_owned(), 0), ("c".to_owned(), 3)].into(),
            ..PredictReport::default()
        };
        let [beyond_caps, outside] = split_far_outside(&report);
        assert_eq!(beyond_caps, BTreeMap::from([("a".to_owned(), 1)]));
        assert_eq!(outside, BTreeMap::from([("b".to_owned(), 2)]));
    }

    #[test]
    fn caps_that_change_most_new_rows_are_warned_of_unless_they_are_meant() {
        let dataset = |step: &str| {
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"s.csv\"\n\
                 [dataset]\ntarget = \"y\"\n{step}"
            );
            load("p.toml", &text, &[]).unwrap().config.dataset
        };
        let warned = |rows: u64, cells: u64, trained: f64, step: &str| {
            let report = PredictReport {
                rows: rows + 3,
                rejected: 3,
                capped: [("v".to_owned(), cells)].into(),
                capped_in_train: [("v".to_owned(), trained)].into(),
                ..PredictReport::default()
            };
            mostly_capped(&report, dataset(step).as_ref())
        };
        let warning = warned(40, 30, 0.02, "").unwrap();
        assert_eq!(warning.code, "mostly_capped");
        let found = "`v` (75 % of 40 rows; 2.0 % of the training rows)";
        assert!(warning.message.contains(found), "{warning:?}");
        assert!(warning.is_about("v"), "{warning:?}");
        let listed = "step = [{ type = \"winsorize\", columns = [\"v\"] }]\n";
        for (rows, cells, trained, step) in [
            (19, 19, 0.02, ""),
            (40, 20, 0.02, ""),
            (40, 30, 0.2, ""),
            (40, 30, 0.02, listed),
        ] {
            assert_eq!(
                warned(rows, cells, trained, step),
                None,
                "{rows} {cells} {step}"
            );
        }
    }
}
