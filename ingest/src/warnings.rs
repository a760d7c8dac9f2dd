//! Warnings of a source: raised while it is read, and stored in the entries of its log while they
//! hold.

use std::collections::BTreeSet;

use feedline_http::SecretMasks;
use feedline_schemas::report::Warning;

/// A change of the warnings of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WarningChange {
    /// Raises a warning and replaces an earlier one with the same code.
    Raise(Warning),
    /// Clears the warning with this code.
    Lift(&'static str),
    /// Clears the warnings about the ends of pages: all pages are read again.
    LiftEnds,
}

/// Code of the warning about a next page that a source without pagination does not request.
pub(crate) const NEXT_PAGE_NOT_REQUESTED: &str = "next_page_not_requested";

/// Code of the warning about a page between full ones that had fewer records than it has by now.
pub(crate) const SHORT_MIDDLE_PAGE: &str = "short_middle_page";

/// Code of the warning about a page run that continued behind records that had moved while it was
/// interrupted, or restarted since its last page no longer existed.
pub(crate) const LIST_MOVED: &str = "list_moved";

/// Code of the warning about a page with records and an error that the configuration does not name.
pub(crate) const ERRORS_BESIDE_RECORDS: &str = "errors_beside_records";

/// Code of the warning about an end at a number of records at which many APIs stop.
pub(crate) const COMMON_CAP: &str = "common_cap";

/// Code of the warning about absent values of a list that no later run requests again.
pub(crate) const VALUES_BEYOND_LIMIT: &str = "values_beyond_limit";

/// Code of the warning about failed pages of a crawl that only a repeated crawl requests again.
pub(crate) const PAGES_BEYOND_LIMIT: &str = "pages_beyond_limit";

/// Warnings about the ends of pages; the next reading of all pages decides them again.
const ENDS: [&str; 17] = [
    "repeated_page",
    "no_link_header",
    "no_cursor_header",
    "no_next_cursor",
    "no_next_url",
    "no_has_more",
    NEXT_PAGE_NOT_REQUESTED,
    SHORT_MIDDLE_PAGE,
    LIST_MOVED,
    "partial_content",
    "total_differs",
    "total_changed",
    "no_total",
    COMMON_CAP,
    "xml_end",
    "null_list",
    ERRORS_BESIDE_RECORDS,
];

/// Warnings besides [`ENDS`] that mean that records may be missing.
const MISSING_RECORDS: [&str; 8] = [
    "small_pages",
    "graphql_partial_data",
    "no_xml_records",
    "values_absent",
    VALUES_BEYOND_LIMIT,
    "values_failed",
    "pages_failed",
    PAGES_BEYOND_LIMIT,
];

/// Changes of warnings, and the codes that hold.
#[derive(Debug, Default)]
pub(crate) struct WarningChanges {
    changes: Vec<WarningChange>,
    held: BTreeSet<String>,
}

impl WarningChanges {
    /// Restores the warnings that hold.
    pub(crate) fn restore(&mut self, held: &[Warning]) {
        self.held
            .extend(held.iter().map(|warning| warning.code.clone()));
    }

    /// Returns true if a warning with `code` holds.
    pub(crate) fn has(&self, code: &str) -> bool {
        self.held.contains(code)
    }

    pub(crate) fn raise(&mut self, code: &'static str, key: &str, message: String) {
        if self.held.insert(code.to_owned()) {
            tracing::warn!(code, key, "{message}");
        }
        let warning = Warning::new(code, message).with_key(key);
        self.changes.push(WarningChange::Raise(warning));
    }

    pub(crate) fn lift(&mut self, code: &'static str) {
        if self.held.remove(code) {
            self.changes.push(WarningChange::Lift(code));
        }
    }

    pub(crate) fn lift_ends(&mut self) {
        if self.held.iter().any(|code| is_end(code)) {
            self.held.retain(|code| !is_end(code));
            self.changes.push(WarningChange::LiftEnds);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<WarningChange> {
        std::mem::take(&mut self.changes)
    }
}

/// Returns true if a warning is about the ends of pages.
pub(crate) fn is_end(code: &str) -> bool {
    ENDS.contains(&code)
}

/// Returns true if a warning means that records of the source may be missing.
pub(crate) fn may_lack_records(code: &str) -> bool {
    is_end(code) || MISSING_RECORDS.contains(&code)
}

/// Returns the warnings after `changes`, in the order in which they were first raised.
pub(crate) fn apply(
    mut warnings: Vec<Warning>,
    changes: impl IntoIterator<Item = WarningChange>,
) -> Vec<Warning> {
    for change in changes {
        match change {
            WarningChange::Raise(raised) => {
                match warnings.iter_mut().find(|held| held.code == raised.code) {
                    Some(held) => *held = raised,
                    None => warnings.push(raised),
                }
            }
            WarningChange::Lift(code) => warnings.retain(|held| held.code != code),
            WarningChange::LiftEnds => warnings.retain(|held| !is_end(&held.code)),
        }
    }
    warnings
}

/// Puts masks in place of secrets in the texts of a warning. Names of columns stay: they are in every schema.
pub(crate) fn mask_warning(warning: &mut Warning, masks: &SecretMasks) {
    let mask_text = |text: &mut String| *text = masks.mask_message(text);
    mask_text(&mut warning.message);
    for finding in &mut warning.findings {
        mask_text(&mut finding.finding);
        mask_text(&mut finding.advice);
        for column in &mut finding.columns {
            mask_text(&mut column.found);
            for value in &mut column.values {
                *value = masks.mask(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::report::{Finding, WarnedColumn};

    use super::*;

    #[test]
    fn secrets_are_masked_in_all_texts_of_a_warning() {
        let secret = "canary/0123";
        let column = WarnedColumn {
            values: vec![secret.to_owned()],
            ..WarnedColumn::with_found("a", format!("`{secret}`"))
        };
        let finding = Finding {
            columns: vec![column],
            finding: format!("values such as `{secret}` are text"),
            advice: format!("remove `{secret}`"),
            ..Finding::default()
        };
        let mut warning = Warning::of_findings("odd_values", "contract", vec![finding]);
        mask_warning(&mut warning, &SecretMasks::of(vec![secret.to_owned()]));
        assert!(!format!("{warning:?}").contains("canary"), "{warning:?}");
        assert!(warning.is_about("a"));
    }

    #[test]
    fn records_missing_behind_a_short_page_are_missing_until_all_pages_are_read_again() {
        let held = vec![
            Warning::new(SHORT_MIDDLE_PAGE, "a"),
            Warning::new("small_pages", "b"),
        ];
        assert!(held.iter().all(|held| may_lack_records(&held.code)));
        let after = apply(held, [WarningChange::LiftEnds]);
        assert_eq!(after, [Warning::new("small_pages", "b")]);
    }

    #[test]
    fn a_warning_is_replaced_by_a_newer_one_and_taken_back_by_its_code() {
        let held = vec![
            Warning::new("no_total", "a"),
            Warning::new("files_changed", "b"),
        ];
        let raised = WarningChange::Raise(Warning::new("no_total", "c"));
        let after = apply(held.clone(), [raised]);
        assert_eq!(
            after,
            [
                Warning::new("no_total", "c"),
                Warning::new("files_changed", "b")
            ]
        );
        let lifted = apply(held.clone(), [WarningChange::Lift("files_changed")]);
        assert_eq!(lifted, [Warning::new("no_total", "a")]);
        assert_eq!(
            apply(held, [WarningChange::LiftEnds]),
            [Warning::new("files_changed", "b")]
        );
    }
}
