//! The first page of a process that resumes a page run, and the records that moved in front of it
//! since the page before it landed.

use feedline_http::{Request, server_time::Clocks};
use feedline_readers::record::Record;
use feedline_schemas::commit::PageRun;

use super::{
    Refusal, Rest,
    fetcher::{FetchOutcome, Refused},
    response_origin::Answered,
};
use crate::{error::Error, pagination::At};

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
    /// records that now follow the last landed one there. A request that fails proves nothing: the
    /// page at `at` has come, so the page run continues.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub(super) async fn check_page_before(
        &mut self,
        at: &At,
        request: &Request,
    ) -> Result<(), Error> {
        let fetched = match Box::pin(self.fetch_page_before(at)).await {
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(error) => {
                tracing::warn!(%error, "the page before the next one could not be requested again, so it is not known whether records came or went while the page run was interrupted");
                None
            }
            Ok(fetched) => fetched,
        };
        let Some((of_before, answered)) = fetched else {
            return Ok(());
        };
        let records = &answered.contents.records;
        let place = self.pages.place_of_last_record(&at.run, records);
        if place.is_some_and(|place| place + 1 == records.len()) {
            return Ok(());
        }
        let error = Error::Body {
            url: self.ahead.http().shown(&request.url),
            reason: "records came or went since the page before it landed".into(),
        };
        self.answers.keep_gone(self.ahead.http(), request, &error);
        self.hold_moved_up(at, &of_before, answered);
        Ok(())
    }

    /// Takes the page before the one at `at` from an archive where it was requested once more, which
    /// `error` shows.
    ///
    /// # Errors
    /// [`Error::Archive`] if it is missing.
    pub(super) async fn replay_page_before(
        &mut self,
        at: &At,
        request: &Request,
        error: &Error,
    ) -> Result<(), Error> {
        self.answers.keep_gone(self.ahead.http(), request, error);
        if let Some((of_before, answered)) = Box::pin(self.fetch_page_before(at)).await? {
            self.hold_moved_up(at, &of_before, answered);
        }
        Ok(())
    }

    /// Fetches the page before the one at `at`; `None` if it is not known, shows nothing, or its
    /// request may not be repeated.
    async fn fetch_page_before(&mut self, at: &At) -> Result<Option<(Request, Answered)>, Error> {
        let Some((before, most)) = self.pages.page_before(at) else {
            return Ok(None);
        };
        let request = self.request(&before)?;
        if !request.is_repeatable {
            return Ok(None);
        }
        let end_status = self.pages.end_status(&before);
        let origin = self.answers.origin();
        let fetched = self.ahead.fetch_now(origin, &request, &end_status).await;
        self.ahead.add_retries(fetched.retries);
        match fetched.outcome? {
            FetchOutcome::Answered(Some(answered)) if !answered.is_null => {
                let mut answered = *answered;
                answered.contents.records.truncate(most);
                Ok(Some((request, answered)))
            }
            FetchOutcome::Answered(_) => Ok(None),
            FetchOutcome::Refused(Refused { failure, tries }) => Err(failure.after(tries)),
        }
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
