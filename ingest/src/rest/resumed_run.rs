//! The first page of a process that resumes a page run, and the records that moved in front of it
//! since the page before it landed.

use feedline_http::{Again, Request, server_time::Clocks};
use feedline_readers::record::Record;
use feedline_schemas::commit::PageRun;

use super::{
    Rest,
    fetcher::{FetchOutcome, Refused},
    refusals::{Refusal, restarted_page},
    response_origin::Answered,
};
use crate::{
    error::Error,
    pagination::{At, Paginator},
    source::Page,
};

/// Response to the second request of the page before the next one.
enum PageBefore {
    /// It is not known, not changed, or its request may not be repeated.
    Unknown,
    /// The page no longer exists.
    Missing(Box<(Request, Error)>),
    Answered(Box<(Request, Answered)>),
}

impl Rest {
    /// Returns true if the page before the one at `at` is to be requested once more: in a process
    /// that resumes, unless the page at `at`, which came as `tried`, has the last landed record.
    /// Then nothing has moved past it.
    pub(super) fn may_have_moved(
        &self,
        at: &At,
        tried: &Result<Option<Answered>, Refusal>,
    ) -> bool {
        let records: &[Record] = match tried {
            Ok(Some(answered)) => &answered.contents.records,
            Err(Refusal::End(_)) => &[],
            _ => return false,
        };
        self.is_resumed
            && !self.answers.are_replayed()
            && self.pages.place_of_last_record(&at.run, records).is_none()
    }

    /// Requests the page before the one at `at`, which `request` asks for, once more, and holds the
    /// records that now follow the last landed one there. If that page no longer exists, returns the
    /// page in place of the one at `at`, unless the page run continues.
    ///
    /// # Errors
    /// The error of a failed request. Nothing behind the page is returned until it is known whether
    /// the list has changed.
    pub(super) async fn check_page_before(
        &mut self,
        at: &At,
        request: &Request,
    ) -> Result<Option<Page>, Error> {
        let fetched = Box::pin(self.fetch_page_before(at)).await;
        let (of_before, answered) = match fetched.map_err(Paginator::advise_check)? {
            PageBefore::Unknown => return Ok(None),
            PageBefore::Missing(missing) => {
                let (of_before, error) = *missing;
                self.answers.keep_gone(self.ahead.http(), request, &error);
                return Ok(self.leave_missing(at, &of_before, &error));
            }
            PageBefore::Answered(answered) => *answered,
        };
        let records = &answered.contents.records;
        let place = self.pages.place_of_last_record(&at.run, records);
        if place.is_some_and(|place| place + 1 == records.len()) {
            // Behind the last record, no other page of this process has the total.
            let count = records.len() as u64;
            self.pages.note_total(answered.contents.total, count);
            return Ok(None);
        }
        let error = Error::Body {
            url: self.ahead.http().shown(&request.url),
            reason: "records came or went since the page before it landed".into(),
        };
        self.answers.keep_gone(self.ahead.http(), request, &error);
        self.hold_moved_up(at, &of_before, answered);
        Ok(None)
    }

    /// Takes the page before the one at `at` from an archive where it was requested once more, which
    /// `error` shows. Returns a page like [`Self::check_page_before`].
    ///
    /// # Errors
    /// [`Error::Archive`] if it is missing.
    pub(super) async fn replay_page_before(
        &mut self,
        at: &At,
        request: &Request,
        error: &Error,
    ) -> Result<Option<Page>, Error> {
        self.answers.keep_gone(self.ahead.http(), request, error);
        Ok(match Box::pin(self.fetch_page_before(at)).await? {
            PageBefore::Unknown => None,
            PageBefore::Missing(missing) => {
                let (of_before, error) = *missing;
                self.leave_missing(at, &of_before, &error)
            }
            PageBefore::Answered(answered) => {
                let (of_before, answered) = *answered;
                self.hold_moved_up(at, &of_before, answered);
                None
            }
        })
    }

    /// Fetches the page before the one at `at`, which had records. Null in place of its list is no page
    /// either, and so is an empty list.
    async fn fetch_page_before(&mut self, at: &At) -> Result<PageBefore, Error> {
        let Some((before, most)) = self.pages.page_before(at) else {
            return Ok(PageBefore::Unknown);
        };
        let request = self.request(&before)?;
        if !request.is_repeatable {
            return Ok(PageBefore::Unknown);
        }
        let end_status = self.pages.end_status(&before);
        let origin = self.answers.origin();
        let page = (&request, before.page == 0);
        let fetched = self.ahead.fetch_now(origin, page, &end_status).await;
        self.ahead.add_retries(fetched.retries);
        match fetched.outcome? {
            FetchOutcome::Answered(None) => Ok(PageBefore::Unknown),
            FetchOutcome::Answered(Some(answered))
                if answered.is_null || answered.contents.records.is_empty() =>
            {
                let reason = match answered.is_null {
                    true => "it has null where its list should be",
                    false => "it has no records now",
                };
                let error = Error::Body {
                    url: self.ahead.http().shown(&request.url),
                    reason: reason.into(),
                };
                Ok(PageBefore::Missing(Box::new((request, error))))
            }
            FetchOutcome::Answered(Some(mut answered)) => {
                answered.contents.records.truncate(most);
                Ok(PageBefore::Answered(Box::new((request, *answered))))
            }
            FetchOutcome::Refused(Refused { failure, tries }) => {
                let status = failure.error.status();
                let is_missing = failure.again == Again::End
                    || status.is_some_and(|status| self.pages.is_missing(status));
                if is_missing {
                    let missing = Box::new((request, *failure.error));
                    return Ok(PageBefore::Missing(missing));
                }
                Err(failure.after(tries))
            }
        }
    }

    /// Restarts the page run at its first page, since the page before the one at `at` no longer
    /// exists, which `error` shows. Where landed records would land twice, or the page run has been
    /// restarted before, it continues with a warning: `None`.
    fn leave_missing(&mut self, at: &At, of_before: &Request, error: &Error) -> Option<Page> {
        self.answers.keep_end(self.ahead.http(), of_before, error);
        if self.keeps_all || at.run.restarted {
            self.pages.warn_of_moved();
            return None;
        }
        self.pages.warn_of_restart();
        Some(restarted_page(at.run.clone()))
    }

    /// Holds the records of the page before the one at `at` that follow the last landed one. Without
    /// that one it warns, and holds them all if landed ones are dropped as duplicates.
    fn hold_moved_up(&mut self, at: &At, request: &Request, answered: Answered) {
        self.answers
            .keep(self.ahead.http(), request, Some(&answered));
        let mut records = answered.contents.records;
        let mut moved_up = match self.pages.place_of_last_record(&at.run, &records) {
            Some(place) => records.split_off(place + 1),
            None => {
                self.pages.warn_of_moved();
                if self.keeps_all { Vec::new() } else { records }
            }
        };
        if let (Some(plan), Some(ledger)) = (&self.plan, &at.run.ledger) {
            plan.mark(ledger, &mut moved_up);
        }
        tracing::warn!(
            records = moved_up.len(),
            "records came or went while the page run was interrupted: those that moved to the page before are read there"
        );
        self.moved_up = moved_up;
    }

    /// Takes the records that moved to the page before, and notes their cursors in `run`.
    ///
    /// # Errors
    /// [`Error::Body`] if a cursor cannot be ordered.
    pub(super) fn take_moved_up(
        &mut self,
        run: &mut PageRun,
        request: &Request,
        clocks: Clocks,
    ) -> Result<Vec<Record>, Error> {
        let records = std::mem::take(&mut self.moved_up);
        if let Some(incremental) = self.incremental.as_ref().filter(|_| !records.is_empty()) {
            let noted = incremental.note(run, &records, clocks.earlier());
            noted.map_err(|reason| Error::Body {
                url: self.ahead.http().shown(&request.url),
                reason,
            })?;
        }
        Ok(records)
    }
}
