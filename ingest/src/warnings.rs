//! Warnings of a source: raised while it is read, and stored in the entries of its log while they
//! hold.

use std::collections::BTreeSet;

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
const MISSING_RECORDS: [&str; 6] = [
    "small_pages",
    "graphql_partial_data",
    "no_xml_records",
    "values_absent",
    VALUES_BEYOND_LIMIT,
    "values_failed",
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
        self.changes.push(WarningChange::Raise(Warning {
            code: code.to_owned(),
            message,
            key: Some(key.to_owned()),
        }));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(code: &str, message: &str) -> Warning {
        Warning {
            code: code.into(),
            message: message.into(),
            key: None,
        }
    }

    #[test]
    fn records_missing_behind_a_short_page_are_missing_until_all_pages_are_read_again() {
        let held = vec![warning(SHORT_MIDDLE_PAGE, "a"), warning("small_pages", "b")];
        assert!(held.iter().all(|held| may_lack_records(&held.code)));
        let after = apply(held, [WarningChange::LiftEnds]);
        assert_eq!(after, [warning("small_pages", "b")]);
    }

    #[test]
    fn a_warning_is_replaced_by_a_newer_one_and_taken_back_by_its_code() {
        let held = vec![warning("no_total", "a"), warning("files_changed", "b")];
        let raised = WarningChange::Raise(warning("no_total", "c"));
        let after = apply(held.clone(), [raised]);
        assert_eq!(
            after,
            [warning("no_total", "c"), warning("files_changed", "b")]
        );
        let lifted = apply(held.clone(), [WarningChange::Lift("files_changed")]);
        assert_eq!(lifted, [warning("no_total", "a")]);
        assert_eq!(
            apply(held, [WarningChange::LiftEnds]),
            [warning("files_changed", "b")]
        );
    }
}
