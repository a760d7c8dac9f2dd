//! Warning of features of the past that are imputed far more often in new rows than in training.

use feedline_schemas::{
    count::first_of,
    report::{PredictReport, WarnedColumn, Warning},
    transform::{FittedStep, TransformArtefact},
};

use crate::output::shown_columns;

/// Least difference of the fractions of imputed cells, in new rows and in training, that is worth a warning.
const DIFFERENCE: f64 = 0.05;

/// Least excess of the fraction in new rows, in standard deviations of the fraction in as many training rows.
const DEVIATIONS: f64 = 3.0;

/// Features that the warning names.
const NAMED: usize = 5;

/// Warning of those `features`, which are made of earlier rows, that `artefact` imputes far more often in the
/// rows of `report` than in the rows that it was fitted on. Windows have `length` rows; single rows are
/// windows of 1. In training, too, the first rows of a series have no past.
pub(crate) fn imputed_features_warning(
    report: &PredictReport,
    artefact: &TransformArtefact,
    features: &[String],
    length: u32,
) -> Option<Warning> {
    let rows = report.rows.saturating_sub(report.rejected);
    let cells = rows.saturating_mul(length.into());
    let imputed = features.iter().filter_map(|name| {
        let missing = *report.missing_cells.get(name)?;
        let fitted = fitted_fraction(artefact, name)?;
        let is_far = is_far_above(fraction(missing, cells), fitted, rows);
        let fitted = fitted * 100.0;
        is_far.then(|| {
            let found = format!("{missing} of {cells}, {fitted:.1} % in training");
            WarnedColumn::with_found(name, found)
        })
    });
    let imputed: Vec<WarnedColumn> = imputed.collect();
    if imputed.is_empty() {
        return None;
    }
    let message = format!(
        "features have no earlier values to be made of, and are imputed far more often than in training: {}; such \
         predictions depend little on the past: give the earlier rows (`feedline ingest`, `--history`); values that are \
         not known yet are missing for each later step, so predict fewer steps ahead, or let features look further back; \
         `--flags` marks the rows",
        first_of(&shown_columns(&imputed), NAMED)
    );
    let warning = Warning::new("imputed_features", message).with_key("dataset.feature");
    Some(warning.with_columns(imputed))
}

/// Returns true if the fraction `found` of `rows` is far above the one in training.
fn is_far_above(found: f64, fitted: f64, rows: u64) -> bool {
    let deviation = (fitted * (1.0 - fitted)).max(0.0).sqrt() * fraction(1, rows).sqrt();
    found > fitted + DIFFERENCE.max(DEVIATIONS * deviation)
}

/// Fraction of the training cells of the column `name` that are imputed; `None` if no step imputes it.
fn fitted_fraction(artefact: &TransformArtefact, name: &str) -> Option<f64> {
    let missing = artefact.steps.iter().find_map(|step| match step {
        FittedStep::Impute { columns } => {
            let column = columns.iter().find(|column| column.name == name)?;
            Some(column.missing)
        }
        FittedStep::Knn { columns, .. } => {
            let column = columns.iter().find(|column| column.name == name)?;
            Some(column.missing)
        }
        _ => None,
    })?;
    Some(fraction(missing, artefact.fitted_rows))
}

#[expect(clippy::cast_precision_loss, reason = "a fraction needs no 53 bits")]
fn fraction(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use feedline_schemas::{
        format::TRANSFORM,
        ids::Hash128,
        transform::{FittedImpute, ImputeStatistic},
    };

    use super::*;

    /// Transform of 1000 rows that imputes the columns, which had so many missing cells.
    fn artefact(columns: &[(&str, u64)]) -> TransformArtefact {
        let columns = columns.iter().map(|(name, missing)| FittedImpute {
            name: (*name).to_owned(),
            value: 0.0,
            statistic: ImputeStatistic::Median,
            missing: *missing,
            indicator: false,
        });
        TransformArtefact {
            format: TRANSFORM.format.to_owned(),
            version: TRANSFORM.version,
            hash: Hash128::new(0),
            fitted_rows: 1000,
            null_values: Vec::new(),
            missing_values: Vec::new(),
            inputs: Vec::new(),
            steps: vec![FittedStep::Impute {
                columns: columns.collect(),
            }],
            features: Vec::new(),
            target: None,
            other_targets: Vec::new(),
            characters: None,
            images: None,
            tokens: None,
            signs: None,
        }
    }

    /// The warning for the features `a` and `b`: 0.2 % and 30 % of them are imputed in training.
    fn warning(rows: u64, length: u32, missing: &[(&str, u64)]) -> Option<String> {
        let artefact = artefact(&[("a", 2), ("b", 300), ("plain", 0)]);
        let missing = missing.iter();
        let missing = missing.map(|(name, cells)| ((*name).to_owned(), *cells));
        let report = PredictReport {
            rows: rows + 1,
            rejected: 1,
            missing_cells: BTreeMap::from_iter(missing),
            ..PredictReport::default()
        };
        let features = ["a", "b", "kept"].map(str::to_owned);
        let warning = imputed_features_warning(&report, &artefact, &features, length)?;
        assert_eq!(warning.code, "imputed_features");
        let is_named = |column: &WarnedColumn| {
            let item = format!("`{}` (", column.name);
            warning.message.contains(&item)
        };
        assert!(warning.columns().count() > 0 && warning.columns().all(is_named));
        Some(warning.message)
    }

    #[test]
    fn features_that_are_imputed_far_more_often_than_in_training_are_named() {
        let found = warning(24, 1, &[("a", 23), ("b", 24), ("plain", 24)]).unwrap();
        let expected = "`a` (23 of 24, 0.2 % in training), `b` (24 of 24, 30.0 % in training);";
        assert!(found.contains(expected), "{found}");
        assert!(warning(1, 1, &[("a", 1)]).is_some());
        let windows = warning(10, 5, &[("a", 4)]).unwrap();
        assert!(windows.contains("`a` (4 of 50, "), "{windows}");
    }

    #[test]
    fn as_many_imputed_values_as_in_training_are_no_reason_to_warn() {
        for (rows, length, missing) in [
            (24, 1, ("a", 1)),
            (10, 1, ("b", 5)),
            (1, 1, ("b", 1)),
            (1000, 1, ("b", 330)),
            (10, 5, ("a", 2)),
            // Not imputed, and not made of earlier rows.
            (10, 1, ("kept", 10)),
            (10, 1, ("plain", 10)),
            (0, 1, ("a", 0)),
        ] {
            assert_eq!(
                warning(rows, length, &[missing]),
                None,
                "{missing:?} of {rows}"
            );
        }
    }
}
