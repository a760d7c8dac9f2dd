//! Order of the warnings of a report that shows some of them: those of wrong results first.

/// Words before the code of a warning that an earlier build gave.
pub(super) const EARLIER: &str = "of the earlier build: ";

/// Effect of a finding on a result, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// A metric may be better than the model: training sees what it is measured on, or the target.
    Leak,
    /// A model, a metric or values may be wrong.
    WrongResult,
    /// Other decisions and observations.
    Other,
}

/// Codes of warnings of leaks.
const LEAKS: [&str; 19] = [
    "equal_documents",
    "equal_rows",
    "key_is_feature",
    "labels_differ",
    "looks_like_identifier",
    "looks_like_row_number",
    "mixture_not_compared",
    "mixture_shares_sources",
    "range_not_by_time",
    "rows_changed_split",
    "rows_may_have_been_trained_on",
    "splits_not_compared",
    "sql_repeats_rows",
    "sql_sees_other_rows",
    "target_encoded_training_rows",
    "target_is_sum",
    "target_leakage",
    "target_time_unknown",
    "versions_change_split",
];

/// Codes of warnings of results that may be wrong, other than by a leak.
const WRONG_RESULTS: [&str; 29] = [
    "ambiguous_dates",
    "class_ids_moved",
    "classes_absent_from_split",
    "constant_target",
    "dataset_settings_changed",
    "digits_rounded",
    "does_not_fit",
    "far_from_training_rows",
    "feature_repeats_extreme",
    "few_split_rows",
    "floats_rounded",
    "integers_rounded",
    "join_unmatched",
    "looks_like_decimal_comma",
    "looks_like_decimal_point",
    "looks_like_thousands",
    "many_rejects",
    "mixed_decimal_separators",
    "mixed_types",
    "no_feature_left",
    "one_class",
    "one_row_is_the_variance",
    "splits_drifted",
    "target_missing",
    "target_repeats_extreme",
    "target_rounded",
    "test_not_finite",
    "worse_than_baseline",
    "worse_than_naive",
];

impl Severity {
    /// Severity of a warning that a report shows as `code`.
    pub(super) fn of(code: &str) -> Self {
        let code = code.replace(' ', "_");
        if LEAKS.contains(&code.as_str()) {
            Self::Leak
        } else if WRONG_RESULTS.contains(&code.as_str()) {
            Self::WrongResult
        } else {
            Self::Other
        }
    }
}

/// Code of a warning in a report, with spaces, as `write_warnings` writes it; `warning` itself if it has none.
pub(super) fn shown_code(warning: &str) -> &str {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == ' ';
    let text = warning.strip_prefix(EARLIER).unwrap_or(warning);
    // The time of the last run, which may precede the code, has other characters.
    let mut parts = text.split(": ").take(2);
    let code = parts.find(|part| !part.is_empty() && part.chars().all(is_letter));
    code.unwrap_or(warning)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use feedline_schemas::report::{LastRunWarnings, SourceReport, Standing, Warning};

    use super::*;
    use crate::output::{source_warnings::write_source_warnings, text::write_warnings_of};

    /// Adds the text of all files of Rust in `folder` to `text`.
    fn read_sources(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => read_sources(&path, text),
                false if path.ends_with("severity.rs") => {}
                false => *text += &fs::read_to_string(path).unwrap_or_default(),
            }
        }
    }

    #[test]
    fn each_listed_code_is_that_of_a_warning() {
        let mut text = String::new();
        for package in ["ingest/src", "preprocess/src", "trainer/src", "src"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(package);
            read_sources(&folder, &mut text);
        }
        for code in LEAKS.iter().chain(&WRONG_RESULTS) {
            assert!(text.contains(&format!("\"{code}\"")), "{code}");
        }
    }

    #[test]
    fn the_code_of_a_written_warning_is_found() {
        let warnings = [Warning::new("target_leakage", "`x`: 1").with_key("dataset.drop")];
        let source = SourceReport {
            warnings: warnings.to_vec(),
            standing: Some(Standing {
                run_warnings: Some(LastRunWarnings {
                    run_id: "r".into(),
                    since_unix_s: 1_780_000_000,
                    codes: vec!["target_leakage".into()],
                }),
                ..Standing::default()
            }),
            ..SourceReport::default()
        };
        let mut text = String::new();
        write_warnings_of("", &warnings, &mut text).unwrap();
        write_warnings_of(EARLIER, &warnings, &mut text).unwrap();
        write_source_warnings(&source, &mut text).unwrap();
        assert_eq!(text.lines().count(), 3);
        for line in text.lines() {
            let warning = line.trim_start().strip_prefix("warning").unwrap();
            let code = shown_code(warning.trim_start());
            assert_eq!(code, "target leakage", "{line}");
            assert_eq!(Severity::of(code), Severity::Leak);
        }
        for of in ["feature", "target"] {
            let code = format!("{of} repeats extreme");
            assert_eq!(Severity::of(&code), Severity::WrongResult);
        }
        assert_eq!(Severity::of("missing spellings"), Severity::Other);
    }
}
