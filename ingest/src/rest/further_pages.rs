//! Warnings about records that a page does not have: further pages that a source without pagination does
//! not request, and errors beside its records.

use feedline_schemas::count::counted;

use super::Rest;
use crate::{
    pagination::suggest::FurtherPages,
    warnings::{ERRORS_BESIDE_RECORDS, NEXT_PAGE_NOT_REQUESTED},
};

impl Rest {
    /// Warns that a page of `count` records has a sign of further pages, which are not requested.
    pub(super) fn warn_of_further_pages(&mut self, further: &FurtherPages, count: usize) {
        let http = self.ahead.http();
        let FurtherPages { pagination, reason } = further;
        let line = pagination.as_deref().unwrap_or_default();
        let shown = format!("{reason}\n{line}");
        let is_secret = http.is_revealed_by(&shown) || http.masked(&shown.into()).1 > 0;
        let (reason, setting) = match pagination {
            _ if is_secret => (
                "names in the response hold a secret of this source, and are not shown",
                "set `source.pagination`".to_owned(),
            ),
            Some(line) => (
                reason.as_str(),
                format!("set `source.pagination`, such as by `{line}`"),
            ),
            None => (reason.as_str(), "set `source.pagination`".to_owned()),
        };
        let message = format!(
            "a page of {} seems not to be the last, and no further page is requested, because the source has no pagination: {reason}; {setting} (`feedline plan --ask` looks closer), or to `{{ type = \"none\" }}` if one page is all that is wanted",
            counted(count as u64, "row")
        );
        self.warnings
            .raise(NEXT_PAGE_NOT_REQUESTED, "pagination", message);
    }

    /// Warns that a page has landed with errors beside its data.
    pub(super) fn warn_of_errors(&mut self, errors: &str) {
        if !self.is_query {
            let message = format!(
                "a page had an error beside its records{errors}; it was landed, and records may be missing; set `error_path` to the path of the error to retry such a page and stop, or to \"\" if this is none"
            );
            return self
                .warnings
                .raise(ERRORS_BESIDE_RECORDS, "error_path", message);
        }
        let message = format!(
            "a page had errors beside its data{errors}; it was landed, and records or fields may be missing; set `graphql.partial_data` to `refuse` to end a run at such a page"
        );
        self.warnings
            .raise("graphql_partial_data", "graphql.partial_data", message);
    }
}
