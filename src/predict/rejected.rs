//! Failure of a prediction whose rows are all rejected, and advice for rejected times.

use feedline_schemas::report::PredictReport;

use crate::cli;

/// Advice for a text in a column of timestamps, which are read by the formats `dates`, at the end of a
/// message: ISO 8601 is read in CSV without a setting, and not in texts of other formats.
pub(super) fn time_advice(dates: &[String]) -> String {
    match dates {
        [] => String::from(
            "; list the format of such times in `contract.dates` of the source, such as `\"%Y-%m-%d\"`: new rows are read by it, \
             too",
        ),
        dates => format!(
            "; the value fits none of the formats that times of new rows are read by, which are `{}`: write it in one of them, \
             or add its format to `contract.dates` of the source",
            dates.join("`, `")
        ),
    }
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
    let mut sample = report.reject_sample.clone().unwrap_or_default();
    if report.is_unread_time {
        sample += &time_advice(dates);
    }
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
    let advice = match report.same_time == report.rejected {
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
    fn a_text_that_is_no_timestamp_gets_the_key_of_its_format() {
        let error = |is_unread_time: bool, dates: &[String]| {
            let report = PredictReport {
                rows: 1,
                rejected: 1,
                reject_sample: Some("`type_conflict`: a text".to_owned()),
                is_unread_time,
                ..PredictReport::default()
            };
            let error = check_any_predicted(&report, &options(&[]), dates).unwrap_err();
            error.to_string()
        };
        let advised = error(true, &[]);
        let advice = "a text; list the format of such times in `contract.dates` of the source";
        assert!(advised.contains(advice), "{advised}");
        // With formats, the value fits none of them.
        let dates = ["%d.%m.%Y", "rfc3339"].map(str::to_owned);
        let named = error(true, &dates);
        let advice = "a text; the value fits none of the formats";
        assert!(named.contains(advice), "{named}");
        assert!(named.contains("are `%d.%m.%Y`, `rfc3339`: "), "{named}");
        let other = error(false, &dates);
        assert!(other.contains("a text; check that the file"), "{other}");
    }

    #[test]
    fn rows_whose_time_has_landed_are_no_reason_to_check_how_the_file_is_written() {
        let report = |same_time: u64| PredictReport {
            rows: 2,
            rejected: 2,
            rejected_by_reason: [("row_rejected".to_owned(), 2)].into(),
            reject_sample: Some("`row_rejected`: at `t`".to_owned()),
            same_time,
            ..PredictReport::default()
        };
        for (same_time, expected) in [(2, false), (1, true), (0, true)] {
            let report = report(same_time);
            let error = check_any_predicted(&report, &options(&[]), &[]).unwrap_err();
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
