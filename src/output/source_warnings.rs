//! Warnings of a source in reports of ingest.

use std::fmt;

use feedline_schemas::report::{SourceReport, Warning};

use super::text::{signed, when, write_warnings, write_warnings_of};

/// Writes the warnings of a source. Those of its last run alone follow, with their time.
pub(super) fn write_source_warnings(source: &SourceReport, out: &mut String) -> fmt::Result {
    let of_run = source.standing.as_ref();
    let Some(of_run) = of_run.and_then(|standing| standing.run_warnings.as_ref()) else {
        return write_warnings(&source.warnings, out);
    };
    let is_of_run = |warning: &Warning| of_run.codes.contains(&warning.code);
    let (last, held): (Vec<_>, Vec<_>) = source.warnings.iter().cloned().partition(is_of_run);
    write_warnings(&held, out)?;
    let since = when(signed(of_run.since_unix_s));
    let of = format!("in the last run, since {since}: ");
    write_warnings_of(&of, &last, out)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::report::{LastRunWarnings, Standing};

    use super::*;

    #[test]
    fn warnings_of_the_last_run_have_its_time_and_those_of_the_log_have_none() {
        let warnings = [
            Warning::new("unsettled_file", "`b.csv` is young").with_key("files.settle_s"),
            Warning::new("odd_values", "3 values"),
        ];
        let mut source = SourceReport {
            warnings: warnings.to_vec(),
            standing: Some(Standing::default()),
            ..SourceReport::default()
        };
        let shown = |source: &SourceReport| {
            let mut out = String::new();
            write_source_warnings(source, &mut out).unwrap();
            out
        };
        assert!(!shown(&source).contains("last run"));
        source.standing.as_mut().unwrap().run_warnings = Some(LastRunWarnings {
            run_id: "r".into(),
            since_unix_s: 1_780_000_000,
            codes: vec!["unsettled_file".into()],
        });
        let expected = "    warning        odd values: 3 values
    warning        in the last run, since 2026-05-28T20:26:40Z: unsettled file: `b.csv` is young; see `files.settle_s`
";
        assert_eq!(shown(&source), expected);
    }
}
