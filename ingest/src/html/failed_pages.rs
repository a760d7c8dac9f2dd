//! Pages that failed and may be available later: a run after the crawl requests them again.
//!
//! The position of a crawl lists them by the numbers of their URLs in the frontier, at most
//! [`MOST_REMEMBERED`]. A page leaves the list in the entry that lands it, or that records that it is
//! absent, disallowed or unusable. So each page lands once, wherever a run dies.

use std::collections::{BTreeMap, VecDeque};

use feedline_schemas::{commit::FailedPages, count::counted, report::Warning};

use super::{
    fetcher::UNREACHABLE, reader::HOST_TOO_SLOW, robots_failure::ROBOTS_UNREACHABLE,
    visits_ahead::VisitsAhead,
};
use crate::{
    backfill::MOST_REMEMBERED,
    frontier::{Frontier, discovery::Discovery},
    warnings::PAGES_BEYOND_LIMIT,
};

/// Failed pages of a crawl, and those that the current pass over them has not requested yet.
#[derive(Default)]
pub(super) struct FailedVisits {
    /// By the numbers of their URLs in the frontier.
    pages: BTreeMap<u64, Discovery>,
    /// Number of failed pages that are not among them.
    beyond_limit: u64,
    /// Those that the pass has not requested yet.
    pub(super) waiting: Frontier,
    /// The numbers of these.
    numbers: VecDeque<u64>,
    /// Number of URLs of the crawl when the pass began; 0 without a pass.
    end: u64,
    /// Visits of the pass.
    pub(super) ahead: VisitsAhead,
}

impl FailedVisits {
    /// The failed pages of a position, with the URLs in `pages`.
    pub(super) fn restore(failed: &FailedPages, pages: BTreeMap<u64, Discovery>) -> Self {
        let mut restored = Self {
            pages,
            beyond_limit: failed.beyond_limit,
            ..Self::default()
        };
        if let Some([from, end]) = failed.open {
            restored.fill(from, end);
        }
        restored
    }

    /// Begins a pass over all failed pages after a crawl of `end` URLs. Returns false if there are none.
    pub(super) fn begin_pass(&mut self, end: u64) -> bool {
        if self.pages.is_empty() {
            return false;
        }
        self.fill(0, end);
        true
    }

    fn fill(&mut self, from: u64, end: u64) {
        self.waiting = Frontier::default();
        self.ahead = VisitsAhead::of_failed();
        self.numbers.clear();
        self.end = end;
        for (number, page) in self.pages.range(from..end.max(from)) {
            self.waiting.push(page);
            self.numbers.push_back(*number);
        }
    }

    /// Returns true if no page of the pass waits.
    pub(super) fn is_over(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Takes the next page of the pass, with its number.
    pub(super) fn pop(&mut self) -> Option<(u64, Discovery)> {
        let number = self.numbers.pop_front()?;
        Some((number, self.waiting.pop()?))
    }

    /// Adds a page that failed for `reason`, if it may be available later. Returns true if it had
    /// failed before.
    pub(super) fn add(&mut self, number: u64, page: Discovery, reason: &str) -> bool {
        if !may_be_available_later(reason) {
            self.remove(number);
            return false;
        }
        let is_known = self.pages.contains_key(&number);
        if is_known || self.pages.len() < MOST_REMEMBERED {
            self.pages.insert(number, page);
        } else {
            self.beyond_limit += 1;
        }
        is_known
    }

    /// Removes a page that has not failed again.
    pub(super) fn remove(&mut self, number: u64) {
        self.pages.remove(&number);
    }

    /// Returns true if a pass has begun.
    pub(super) fn is_in_pass(&self) -> bool {
        self.end > 0
    }

    /// Returns true after a pass that leaves no failed page.
    pub(super) fn has_recovered(&self) -> bool {
        self.is_in_pass() && self.pages.is_empty() && self.beyond_limit == 0
    }

    /// Returns true if a crawl without any record may land some later: a page behind the start pages
    /// failed, or a pass requests such pages again.
    pub(super) fn may_land_records(&self) -> bool {
        let has_linked = || self.pages.values().any(|page| !page.is_start);
        self.is_in_pass() || self.beyond_limit > 0 || has_linked()
    }

    /// The failed pages in a position; `is_over` is true if no URL waits. A pass is open until its
    /// last link has been followed, even if no failed page waits.
    pub(super) fn state(&self, is_over: bool) -> FailedPages {
        let from = self.numbers.front().copied().unwrap_or(self.end);
        FailedPages {
            numbers: self.pages.keys().copied().collect(),
            open: (self.is_in_pass() && !is_over).then_some([from, self.end]),
            beyond_limit: self.beyond_limit,
        }
    }
}

/// Returns true if a page that failed for `reason` may be available later: its server or its
/// robots.txt failed, or it was not read since other pages of its host were too slow. Other failures
/// are those of the page itself, or the server refuses it.
fn may_be_available_later(reason: &str) -> bool {
    matches!(reason, UNREACHABLE | ROBOTS_UNREACHABLE | HOST_TOO_SLOW)
}

/// Warns of failed pages that each later run requests again.
pub(crate) fn warn_of_failed(failed: &FailedPages) -> Option<Warning> {
    let count = failed.numbers.len() as u64;
    let (requests, their, them) = match count {
        0 => return None,
        1 => ("request", "its", "it"),
        _ => ("requests", "their", "them"),
    };
    let message = format!(
        "the last {requests} of {} of the crawl failed, and {their} records are missing; each later run requests {them} again; rejects have the URLs, and this key leaves out a page or a host that is gone for good",
        counted(count, "page")
    );
    Some(Warning::new("pages_failed", message).with_key("crawl.deny"))
}

/// Warns of failed pages that only a repeated crawl requests again.
pub(crate) fn warn_of_beyond_limit(failed: &FailedPages) -> Option<Warning> {
    let them = match failed.beyond_limit {
        0 => return None,
        1 => "it",
        _ => "them",
    };
    let message = format!(
        "{} of the crawl failed beyond the {MOST_REMEMBERED} failed ones that each later run requests again: no later run requests {them} while this key is `never`; set it to `if_changed` for one run, which requests all pages of the crawl again, and leave out hosts that are down with `crawl.deny`",
        counted(failed.beyond_limit, "page")
    );
    Some(Warning::new(PAGES_BEYOND_LIMIT, message).with_key("crawl.refresh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: u64) -> Discovery {
        Discovery {
            url: format!("http://h/{number}").into(),
            is_start: false,
            is_sitemap: false,
            depth: 1,
            redirects: 0,
        }
    }

    #[test]
    fn only_failures_of_servers_and_hosts_may_be_over_later() {
        for reason in [UNREACHABLE, ROBOTS_UNREACHABLE, HOST_TOO_SLOW] {
            assert!(may_be_available_later(reason), "{reason}");
        }
        for reason in [
            "refused",
            "unusable_answer",
            "too_deep",
            "too_large",
            "too_many_attributes",
            "took_too_long",
            "extraction_failed",
            "bad_sitemap",
        ] {
            assert!(!may_be_available_later(reason), "{reason}");
        }
    }

    #[test]
    fn a_pass_resumes_at_the_first_page_that_it_has_not_requested() {
        let mut failed = FailedVisits::default();
        assert!(!failed.begin_pass(9));
        for number in [3, 5, 8] {
            assert!(!failed.add(number, page(number), UNREACHABLE));
        }
        assert!(failed.begin_pass(9));
        let (number, first) = failed.pop().unwrap();
        assert_eq!((number, &first), (3, &page(3)));
        assert!(failed.add(number, first, UNREACHABLE));
        let (number, _) = failed.pop().unwrap();
        failed.remove(number);
        let state = failed.state(false);
        assert_eq!(state.numbers, [3, 8]);
        assert_eq!(state.open, Some([8, 9]));
        let pages = BTreeMap::from([(3, page(3)), (8, page(8))]);
        let mut resumed = FailedVisits::restore(&state, pages);
        assert_eq!(resumed.state(false), state);
        assert_eq!(resumed.pop(), Some((8, page(8))));
        // The status 403 is no reason for another request.
        assert!(!resumed.add(8, page(8), "refused"));
        assert!(resumed.is_over() && !resumed.has_recovered());
        assert!(resumed.begin_pass(9));
        let (number, _) = resumed.pop().unwrap();
        resumed.remove(number);
        assert!(resumed.has_recovered());
        assert_eq!(resumed.state(true), FailedPages::default());
        // Links of the last page wait.
        let state = resumed.state(false);
        assert_eq!(state.open, Some([9, 9]));
        let resumed = FailedVisits::restore(&state, BTreeMap::new());
        assert!(resumed.is_over() && resumed.has_recovered());
    }

    #[test]
    fn a_crawl_without_a_record_may_land_some_unless_only_start_pages_failed() {
        let mut failed = FailedVisits::default();
        assert!(!failed.may_land_records());
        let start = Discovery {
            is_start: true,
            ..page(0)
        };
        failed.add(0, start, ROBOTS_UNREACHABLE);
        assert!(!failed.may_land_records());
        failed.add(1, page(1), UNREACHABLE);
        assert!(failed.may_land_records());
    }

    #[test]
    fn an_interval_that_ends_before_it_begins_has_no_pages() {
        let state = FailedPages {
            numbers: vec![3],
            open: Some([7, 2]),
            beyond_limit: 0,
        };
        let failed = FailedVisits::restore(&state, BTreeMap::from([(3, page(3))]));
        assert!(failed.is_over());
    }

    #[test]
    fn pages_beyond_the_limit_are_counted_and_named_in_a_warning() {
        let mut failed = FailedVisits::default();
        let most = MOST_REMEMBERED as u64;
        for number in 0..most {
            failed.add(number, page(number), UNREACHABLE);
        }
        assert_eq!(warn_of_beyond_limit(&failed.state(true)), None);
        failed.add(most, page(most), UNREACHABLE);
        // One that is remembered already takes no further place.
        assert!(failed.add(0, page(0), UNREACHABLE));
        let state = failed.state(true);
        assert_eq!((state.numbers.len(), state.beyond_limit), (30, 1));
        let warning = warn_of_beyond_limit(&state).unwrap();
        assert_eq!(warning.key.as_deref(), Some("crawl.refresh"));
        let begin = "1 page of the crawl failed beyond the 30 failed ones";
        assert!(warning.message.starts_with(begin), "{warning:?}");
        let warning = warn_of_failed(&state).unwrap();
        let begin = "the last requests of 30 pages of the crawl failed, and their records";
        assert!(warning.message.starts_with(begin), "{warning:?}");
        assert_eq!(warn_of_failed(&FailedPages::default()), None);
    }
}
