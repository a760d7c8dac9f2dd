//! Failure of a prediction whose rows are all rejected.

use feedline_schemas::report::PredictReport;

use crate::cli;

/// Refuses a result without any prediction, which `--fail-on-rejects` would report by its exit code.
///
/// # Errors
/// Rows that are rejected without exception, with their commonest reason.
pub(crate) fn check_any_predicted(
    report: &PredictReport,
    options: &cli::Predict,
) -> anyhow::Result<()> {
    if report.rows == 0 || report.rejected < report.rows || options.rejects.fail_on_rejects {
        return Ok(());
    }
    let reasons = report.rejected_by_reason.iter();
    let commonest = reasons.max_by_key(|(name, rows)| (**rows, std::cmp::Reverse(*name)));
    let sample = report.reject_sample.as_deref().unwrap_or_default();
    let all = match (report.rows, commonest) {
        (1, _) => format!("its only row is rejected, {sample}"),
        (rows, None) => format!("all {rows} are rejected"),
        (rows, Some((name, most))) => {
            format!("all {rows} are rejected, {most} of them as `{name}`; the first one: {sample}")
        }
    };
    if !report.ordered_by.is_empty() {
        anyhow::bail!(
            "no forecast: {all}; a window needs `dataset.sequence.length` rows of its entity that follow one another and can be \
             used, and no gap above `dataset.series.max_gap`: land more rows (`feedline ingest`), or give rows without such \
             gaps by `--history`"
        );
    }
    anyhow::bail!(
        "no row of `{}` has a prediction: {all}; check that the file is written as the training data is, whose `csv` and \
         `contract` keys it is read with",
        options.rows.as_deref().unwrap_or("-")
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// Options of `predict` from its command line.
    fn options(more: &[&str]) -> cli::Predict {
        let line = ["feedline", "predict", "p.toml", "new.csv"];
        let parsed = cli::Cli::try_parse_from(line.iter().chain(more)).unwrap();
        match parsed.command {
            cli::Command::Predict(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_forecast_without_a_file_that_fails_asks_for_rows_that_follow_one_another() {
        let report = PredictReport {
            rows: 2,
            rejected: 2,
            rejected_by_reason: [("incomplete_window".to_owned(), 2)].into(),
            reject_sample: Some("`incomplete_window`: fewer than 6".to_owned()),
            ordered_by: vec!["site".to_owned(), "at".to_owned()],
            ..PredictReport::default()
        };
        let error = check_any_predicted(&report, &options(&[])).unwrap_err();
        let error = error.to_string();
        let begin =
            "no forecast: all 2 are rejected, 2 of them as `incomplete_window`; the first one: ";
        assert!(error.starts_with(begin), "{error}");
        assert!(error.contains("`dataset.sequence.length` rows"), "{error}");
        assert!(!error.contains("new.csv"), "{error}");
    }

    #[test]
    fn rows_that_are_all_rejected_are_a_failure_with_the_commonest_reason() {
        let mut report = PredictReport {
            rows: 3,
            rejected: 3,
            rejected_by_reason: [
                ("ragged_row".to_owned(), 1),
                ("type_conflict".to_owned(), 2),
            ]
            .into(),
            reject_sample: Some("`ragged_row`: line 2".to_owned()),
            ..PredictReport::default()
        };
        let error = check_any_predicted(&report, &options(&[])).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("all 3 are rejected, 2 of them as `type_conflict`; the first one: `ragged_row`: line 2"),
            "{error}"
        );
        let one = PredictReport {
            rows: 1,
            rejected: 1,
            rejected_by_reason: [("ragged_row".to_owned(), 1)].into(),
            ..report.clone()
        };
        let error = check_any_predicted(&one, &options(&[])).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("its only row is rejected, `ragged_row`: line 2; check"),
            "{error}"
        );
        // That option has an exit code of its own.
        check_any_predicted(&report, &options(&["--fail-on-rejects"])).unwrap();
        report.rows = 4;
        check_any_predicted(&report, &options(&[])).unwrap();
    }
}
