//! Warnings about a source as of its newest entry, from its position.

use feedline_schemas::{
    commit::Position,
    report::{Warning, replace_warning},
};
use tracing::warn;

use super::source_run::Run;
use crate::{
    backfill::{warn_of_absent, warn_of_failed},
    html::failed_pages,
    warnings::PAGES_BEYOND_LIMIT,
    watermark::warn_of_ahead,
};

/// Codes of the warnings that follow from a position.
const CODES: [&str; 6] = [
    "cursor_in_future",
    "values_absent",
    "values_failed",
    "slices_read_again",
    "pages_failed",
    PAGES_BEYOND_LIMIT,
];

impl Run<'_> {
    /// Updates the `warnings` that depend on a position to `position`.
    pub(super) fn warn_of_position(&self, warnings: &mut Vec<Warning>, position: &Position) {
        let known = warnings.clone();
        warnings.retain(|warning| !CODES.contains(&warning.code.as_str()));
        for warning in position_warnings(position) {
            if known.iter().all(|known| known.code != warning.code) {
                warn!(source = %self.config.name, "{}", warning.message);
            }
            replace_warning(warnings, warning);
        }
    }
}

fn position_warnings(position: &Position) -> Vec<Warning> {
    let Some(run) = position.run() else {
        return Vec::new();
    };
    let ledger = run.ledger.as_deref();
    let again = ledger.filter(|ledger| ledger.reread.is_some()).map(|_| {
        let message = "by the log, future slices were read, so a clock was ahead then: all slices after the last pass with a plausible end are re-read";
        Warning::new("slices_read_again", message).with_key("slices.clock")
    });
    [
        warn_of_ahead(run),
        ledger.and_then(warn_of_absent),
        ledger.and_then(warn_of_failed),
        again,
        failed_pages::warn_of_failed(&run.failed_pages),
        failed_pages::warn_of_beyond_limit(&run.failed_pages),
    ]
    .into_iter()
    .flatten()
    .collect()
}
