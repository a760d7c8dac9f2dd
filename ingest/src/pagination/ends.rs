//! End of a page run: signs that a page is the last one, and warnings if there are none.
//!
//! A page with fewer records than requested is no sign: many servers return at most 50 or 100. The
//! end is a reached total, a boolean, a next cursor that is named and empty, or a page after the
//! last one: empty, the last one again, or refused.

use feedline_schemas::{
    commit::{PageRun, ShortPage},
    config::{Pagination, PaginationKind},
    count::counted,
    report::Warning,
};

use super::{At, Contents, Paginator, SMALL_PAGES, total};
use crate::{
    error::Error,
    warnings::{LIST_MOVED, SHORT_MIDDLE_PAGE, WarningChange},
};

/// Statuses that servers return for a page after the last one.
const BEHIND_THE_LAST: [u16; 5] = [400, 404, 410, 416, 422];

impl Paginator {
    /// Restores the warnings that hold. `may_lack_next` is false if pages without a next one are
    /// known to be usual.
    pub(crate) fn restore(&mut self, held: &[Warning], may_lack_next: bool) {
        self.warnings.restore(held);
        self.possible_cap = total::possible_cap(held);
        let code = self.missing_next().map_or("", |(code, _)| code);
        self.may_lack_next = may_lack_next || self.warnings.has(code);
    }

    /// Takes the changes of warnings since the last call.
    pub(crate) fn take_warnings(&mut self) -> Vec<WarningChange> {
        self.warnings.take()
    }

    /// Returns true if a refusal with `status` of the page at `at` means that the page before was
    /// the last one.
    pub(crate) fn is_end(&self, at: &At, status: u16) -> bool {
        if at.page == 0 || !self.config.way.end_status().is_empty() {
            return self.end_status(at).contains(&status);
        }
        // Servers whose pages are all short give no such sign, unless all records have come.
        let is_expected = !self.has_small_pages() || self.has_all(&at.run);
        let is_behind_last = at.run.short.is_some() && is_expected;
        self.hashes_pages() && is_behind_last && BEHIND_THE_LAST.contains(&status)
    }

    /// Configured statuses that mean that no page exists at `at`.
    pub(crate) fn end_status(&self, at: &At) -> Vec<u16> {
        let configured = self.config.way.end_status().iter();
        configured
            .map(|s| s.get())
            .filter(|_| at.page > 0)
            .collect()
    }

    /// Returns true if a refusal with `status` of a page that came before means that it no longer
    /// exists.
    pub(crate) fn is_missing(&self, status: u16) -> bool {
        let mut configured = self.config.way.end_status().iter();
        BEHIND_THE_LAST.contains(&status) || configured.any(|end| end.get() == status)
    }

    /// Adds advice to `error` if it may be the refusal of a page after the last one.
    pub(crate) fn advise(&self, at: &At, error: Error) -> Error {
        let Some(status) = error
            .status()
            .filter(|status| BEHIND_THE_LAST.contains(status))
        else {
            return error;
        };
        match error {
            Error::Http {
                url,
                cause,
                what,
                advice,
            } if at.page > 0 && self.hashes_pages() => Error::Http {
                url,
                cause,
                what,
                advice: format!(
                    "if this is how the API refuses a page behind its last one, set `pagination.end_status = [{status}]`; otherwise {advice}"
                ),
            },
            other => other,
        }
    }

    /// Returns true if the server returns fewer records per page than `page_size`.
    pub(super) fn has_small_pages(&self) -> bool {
        self.warnings.has(SMALL_PAGES)
    }

    /// Begins a page run.
    pub(super) fn begin(&mut self, run: &PageRun) {
        self.seen.clear();
        self.distinct.clear();
        self.repeats = 0;
        (self.came, self.total, self.empty) = (Some(0), None, 0);
        if run.ledger.is_none() && run.since.is_none() {
            // Perhaps raised by an earlier process, as the page run restarted.
            let is_restart = run.restarted && self.warnings.has(LIST_MOVED);
            self.warnings.lift_ends();
            if is_restart {
                self.warn_of_restart();
            }
        }
    }

    /// Checks the page of `count` records after a `short` one. The same page again is the end;
    /// another one shows that short pages are usual.
    pub(super) fn check_behind_short(
        &mut self,
        page: u64,
        short: Option<ShortPage>,
        count: u64,
        contents: &mut Contents,
    ) {
        let Some(short) = short.filter(|_| !contents.records.is_empty()) else {
            return;
        };
        if short.hash.is_some() && short.hash == contents.hash {
            contents.records.clear();
            // After later pages, this is how servers respond when no further page exists.
            if page == 1 {
                let param = match self.config.way.kind() {
                    PaginationKind::Offset => "offset_param",
                    _ => "page_param",
                };
                let advice = self.page_one_advice(page);
                self.warnings.raise(
                    "repeated_page",
                    &format!("pagination.{param}"),
                    format!(
                        "the second page has the same {} as the first one and is taken as the end; if the API has more, it does not know the query parameter of `pagination.{param}`{advice}",
                        counted(short.records, "record")
                    ),
                );
            }
            return;
        }
        let size = self.config.common.page_size;
        if short.records >= size || short.records == 0 {
            // A full page after the total was reached: the total was wrong. An empty one is no sign
            // of the size of pages.
            return;
        }
        if self.config.way.overlap() > 0 && count < short.records {
            // The end of a list that has grown meanwhile.
            return;
        }
        let is_numbered = self.config.way.kind() == PaginationKind::Page;
        let has_full_pages = self.longest >= size;
        if has_full_pages && (!is_numbered || self.config.way.empty_pages() > 1) {
            // The end of a list that has grown meanwhile, and the next offset is behind its last
            // record; or pages that the API filters.
            return;
        }
        let (code, key, cause) = match (has_full_pages, is_numbered) {
            (true, _) => (
                SHORT_MIDDLE_PAGE,
                "pagination.type",
                ", and full pages have come too: if the list grows while it is read, records that were added to that page are missing: use `pagination.type = \"offset\"` if the API has offsets; if the API filters its pages, set `pagination.empty_pages = 2`",
            ),
            (false, true) => (
                SMALL_PAGES,
                "pagination.page_size",
                ": the server gives smaller pages; set it to what the server gives at most, since a server that numbers its pages by what it is asked for leaves records out between them",
            ),
            (false, false) => (
                SMALL_PAGES,
                "pagination.page_size",
                ": the server gives smaller pages; set it to what the server gives at most",
            ),
        };
        self.warnings.raise(
            code,
            key,
            format!(
                "a page of {}, where `pagination.page_size` = {size}, was not the last one{cause}",
                counted(short.records, "record"),
            ),
        );
    }

    /// Advice about the number of the first page, if `page` has the records of the page before, and is the second one of
    /// pages that are counted from 0: an API that counts from 1 may return its first page for both. Otherwise empty.
    pub(super) fn page_one_advice(&self, page: u64) -> &'static str {
        let is_from_zero =
            matches!(&self.config.way, Pagination::Page(keys) if keys.first_page == 0);
        match page == 1 && is_from_zero {
            true => {
                "; if it counts its pages from 1, it returned the first one for the numbers 0 and 1: set `pagination.first_page` = 1"
            }
            false => "",
        }
    }

    /// Advice about the end of the pages, if `page` has the records of the page before it: an API may
    /// return its last page again for all numbers after it. Otherwise empty.
    pub(super) const fn last_page_advice(earlier: u64, page: u64) -> &'static str {
        match earlier.saturating_add(1) == page {
            true => {
                "; if the API returns its last page again for the pages after it, set `pagination.total_path` or `pagination.has_more_path`, or `pagination.page_size` if that page has fewer records than the others"
            }
            false => "",
        }
    }

    /// Returns true for a short page with the records of an earlier one, where pages overlap: the end
    /// of a list that grows at its top while it is read, so that each offset finds its last records.
    pub(super) fn is_tail_again(&self, count: u64, contents: &Contents) -> bool {
        let is_seen = |hash| self.seen.contains_key(&hash);
        self.config.way.overlap() > 0 && count < self.longest && contents.hash.is_some_and(is_seen)
    }

    /// Code of the warning that no page names a next one, and the missing field.
    fn missing_next(&self) -> Option<(&'static str, String)> {
        Some(match &self.config.way {
            Pagination::Link(_) => ("no_link_header", "`Link` header of a list of pages".into()),
            Pagination::HeaderCursor(keys) => (
                "no_cursor_header",
                format!("header `{}`", keys.cursor_header),
            ),
            Pagination::Cursor(keys) => ("no_next_cursor", format!("`{}`", keys.cursor_path)),
            Pagination::NextUrl(keys) => ("no_next_url", format!("`{}`", keys.next_path)),
            _ => return None,
        })
    }

    /// Warns of a first page with `count` records that has no place for a next one. A wrong path or
    /// header looks the same as a source of one page.
    pub(super) fn note_missing_next(&mut self, page: u64, count: u64, contents: &Contents) {
        let Some((code, what)) = self.missing_next() else {
            return;
        };
        if contents.token.is_some() || contents.names_next {
            self.may_lack_next = false;
            self.warnings.lift(code);
            return;
        }
        let size = self.config.common.page_size;
        let may_be_full = count > 0 && (size == 0 || count >= size);
        if page > 0 || !self.may_lack_next || !may_be_full || contents.has_more == Some(false) {
            return;
        }
        let key = match self.config.way.kind() {
            PaginationKind::Link => "pagination.type",
            PaginationKind::HeaderCursor => "pagination.cursor_header",
            PaginationKind::Cursor => "pagination.cursor_path",
            _ => "pagination.next_path",
        };
        self.warnings.raise(
            code,
            key,
            format!(
                "the first page has {} and no {what}, so nothing is known of a second page; check `{key}`, or set `pagination.page_size` to the most records of a page if such a source fits into one",
                counted(count, "record")
            ),
        );
    }

    /// Returns the page's own flag for further pages; `new` is the number of its new records.
    ///
    /// # Errors
    /// [`Error::Incomplete`] if the flag announces further pages and nothing leads to them.
    pub(super) fn has_more(
        &mut self,
        page: u64,
        new: u64,
        contents: &Contents,
    ) -> Result<Option<bool>, Error> {
        let Some(path) = self.has_more_path().map(ToOwned::to_owned) else {
            return Ok(None);
        };
        let lacks = if self.hashes_pages() {
            (new == 0).then_some("no record that has not come before")
        } else {
            contents.token.is_none().then_some("no next cursor or URL")
        };
        match (contents.has_more, lacks) {
            (Some(true), Some(lacks)) => Err(Error::Incomplete {
                url: self.urls.shown_base(),
                reason: format!(
                    "page {} has {lacks}, and `{path}` (`pagination.has_more_path`) says that there are further pages; run again, or check `pagination`",
                    self.page_number(page)
                ),
            }),
            (None, _) if page == 0 => {
                self.warnings.raise(
                    "no_has_more",
                    "pagination.has_more_path",
                    format!(
                        "the first page has no boolean at `{path}`, so it says nothing of further pages; check `pagination.has_more_path`"
                    ),
                );
                Ok(None)
            }
            (has_more, _) => {
                if has_more.is_some() {
                    self.warnings.lift("no_has_more");
                }
                Ok(has_more)
            }
        }
    }

    /// Warns of a partial page (status 206) whose other parts may not have come.
    pub(super) fn note_partial(&mut self, page: u64, is_last: bool, contents: &Contents) {
        let what = match contents.partial {
            Some(Partial::Unbounded) => "no `Content-Range` says of what",
            Some(Partial::Middle) if is_last => {
                "as the last one, and its `Content-Range` says that more follows"
            }
            _ => return,
        };
        let number = self.page_number(page);
        self.warnings.raise(
            "partial_content",
            "pagination",
            format!(
                "page {number} came with status 206 (Partial Content), {what}: records may be missing; check `pagination`, and ask the server's owner"
            ),
        );
    }
}

/// A page with status 206.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partial {
    /// The part of an unknown total.
    Unbounded,
    /// More follows it.
    Middle,
    /// It is the last part.
    Last,
}

impl Partial {
    /// Parses a `Content-Range` such as `items 0-24/100` (RFC 9110, section 14.4; any unit).
    pub(crate) fn of(content_range: Option<&str>) -> Self {
        let range = content_range.and_then(|text| text.trim().rsplit(' ').next());
        let parts = range.and_then(|range| range.split_once('/'));
        let Some((range, total)) = parts else {
            return Self::Unbounded;
        };
        let last = range
            .split_once('-')
            .and_then(|(_, last)| last.parse::<u64>().ok());
        match (last, total.parse::<u64>().ok()) {
            (Some(last), Some(total)) if last.saturating_add(1) >= total => Self::Last,
            (Some(_), Some(_)) => Self::Middle,
            _ => Self::Unbounded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Partial;

    #[test]
    fn the_range_of_a_partial_response_says_whether_more_follows() {
        let check = |text: &str, expected: Partial| {
            assert_eq!(Partial::of(Some(text)), expected, "{text}");
        };
        check("items 0-24/100", Partial::Middle);
        check("75-99/100", Partial::Last);
        check("0-24/*", Partial::Unbounded);
        check("*/100", Partial::Unbounded);
        check("", Partial::Unbounded);
        assert_eq!(Partial::of(None), Partial::Unbounded);
    }
}
