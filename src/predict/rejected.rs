//! Failure of a prediction whose rows are all rejected, and advice for rejected times.

use feedline_schemas::report::PredictReport;

use crate::cli;

/// `fault` of a rejected row, with advice if it is a text in a column of timestamps, which are read by the
/// formats `dates`: ISO 8601 is read in CSV without a setting, and not in texts of other formats.
pub(crate) fn with_time_advice(fault: &str, dates: &[String]) -> String {
    if !fault.contains("is timestamp, the value is text") || fault.contains("`contract.dates`") {
        return fault.to_owned();
    }
    match dates {
        [] => format!(
            "{fault}; list the format of such times in `contract.dates` of the source, such as `\"%Y-%m-%d\"`: new rows are read \
             by it, too"
        ),
        dates => format!(
            "{fault}; the value fits none of the formats that times of new rows are read by, which are `{}`: write it in one of \
             them, or add its format to `contract.dates` of the source",
            dates.join("`, `")
        ),
    }
}

/// Returns true if all rows are rejected by rules of the build, and the first one since another row of its
/// time counts. The rules of the others are not known here.
fn all_have_same_time(report: &PredictReport) -> bool {
    let mut reasons = report.rejected_by_reason.keys();
    let sample = report.reject_sample.as_deref().unwrap_or_default();
    reasons.all(|reason| reason == "row_rejected")
        && sample.starts_with("`row_rejected`: `same_time`")
}

/// Refuses a result without any prediction, which `--fail-on-rejects` would report by its exit code. Times of the
/// rows are read by the formats `dates`.
///
/// # Errors
/// Rows that are rejected without exception, with their commonest reason.
pub(crate) fn check_any_predicted(
    report: &PredictReport,
    options: &cli::Predict,
    dates: &[String],
) -> anyhow::Result<()> {
    if report.rows == 0 || report.rejected < report.rows || options.rejects.fail_on_rejects {
        return Ok(());
    }
    let reasons = report.rejected_by_reason.iter();
    let commonest = reasons.max_by_key(|(name, rows)| (**rows, std::cmp::Reverse(*name)));
    let sample = with_time_advice(report.reject_sample.as_deref().unwrap_or_default(), dates);
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
    // Rows whose time has landed can be read.
    let advice = match all_have_same_time(report) {
        true => "",
        false => {
            "; check that the file is written as the training data is, whose `csv` and `contract` keys it is read with"
        }
    };
    anyhow::bail!(
        "no row of `{}` has a prediction: {all}{advice}",
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
        let error = check_any_predicted(&report, &options(&[]), &[]).unwrap_err();
        let error = error.to_string();
        let begin =
            "no forecast: all 2 are rejected, 2 of them as `incomplete_window`; the first one: ";
        assert!(error.starts_with(begin), "{error}");
        assert!(error.contains("`dataset.sequence.length` rows"), "{error}");
        assert!(!error.contains("new.csv"), "{error}");
    }

    #[test]
    fn a_text_that_is_no_timestamp_gets_the_key_of_its_format_once() {
        let fault = "`type_conflict`: column `at` is timestamp, the value is text `\"2024-07-19\"`";
        let advised = with_time_advice(fault, &[]);
        let advice = "; list the format of such times in `contract.dates` of the source";
        assert!(advised.contains(&format!("{fault}{advice}")), "{advised}");
        assert_eq!(with_time_advice(&advised, &[]), advised);
        let other = "column `a` is float, the value is text `\"x\"`";
        assert_eq!(with_time_advice(other, &[]), other);
        // With formats, the value fits none of them.
        let dates = ["%d.%m.%Y", "rfc3339"].map(str::to_owned);
        let named = with_time_advice(fault, &dates);
        let advice = "; the value fits none of the formats";
        assert!(named.contains(&format!("{fault}{advice}")), "{named}");
        assert!(named.contains("are `%d.%m.%Y`, `rfc3339`: "), "{named}");
        assert_eq!(with_time_advice(&named, &dates), named);
    }

    #[test]
    fn rows_whose_time_has_landed_are_no_reason_to_check_how_the_file_is_written() {
        let report = |sample: &str| PredictReport {
            rows: 2,
            rejected: 2,
            rejected_by_reason: [("row_rejected".to_owned(), 2)].into(),
            reject_sample: Some(format!("`row_rejected`: `{sample}`: at `t`")),
            ..PredictReport::default()
        };
        for (sample, expected) in [("same_time", false), ("time_missing", true)] {
            let error = check_any_predicted(&report(sample), &options(&[]), &[]).unwrap_err();
            let error = error.to_string();
            assert_eq!(error.contains("check that the file"), expected, "{error}");
        }
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
        let error = check_any_predicted(&report, &options(&[]), &[]).unwrap_err();
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
        let error = check_any_predicted(&one, &options(&[]), &[]).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("its only row is rejected, `ragged_row`: line 2; check"),
            "{error}"
        );
        // That option has an exit code of its own.
        check_any_predicted(&report, &options(&["--fail-on-rejects"]), &[]).unwrap();
        report.rows = 4;
        check_any_predicted(&report, &options(&[]), &[]).unwrap();
    }
}
