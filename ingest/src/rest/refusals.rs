//! Refusals that are no failures.

use feedline_http::{Again, Request};
use feedline_schemas::commit::{PageRun, Position};

use super::{
    Rest,
    fetcher::Refused,
    page,
    page_positions::{begin, ended},
};
use crate::{
    error::Error,
    pagination::{At, Contents},
    source::{Crawled, Page},
    warnings::VALUES_BEYOND_LIMIT,
};

/// Refusal that is not a failure.
pub(super) enum Refusal {
    /// The page does not exist: the one before was the last.
    End(Box<Error>),
    /// The cursor has expired.
    Gone(Box<Error>),
    /// The value does not exist.
    Absent,
}

impl Rest {
    /// Returns what the refusal of the page at `at` means, if it is no failure.
    pub(super) fn refusal(&self, at: &At, refused: Refused) -> Result<Refusal, Error> {
        let Refused { failure, tries } = refused;
        // Only a cursor of an earlier process may have expired. A fresh one is refused for another
        // reason. Of pages by number or offset, an archive has it where the page before was requested
        // once more.
        let may_be_gone = at.page > 0
            && match self.pages.hashes_pages() {
                true => self.answers.are_replayed(),
                false => {
                    (self.is_resumed || self.answers.are_replayed())
                        && self.pages.has_cursors()
                        && !at.run.restarted
                }
            };
        let status = failure.error.status();
        if failure.again == Again::End || status.is_some_and(|s| self.pages.is_end(at, s)) {
            // A server may refuse an expired cursor as it refuses one behind the last page.
            let is_doubtful = self.is_resumed && !self.keeps_all && !self.answers.are_replayed();
            return Ok(match may_be_gone && is_doubtful {
                true => Refusal::Gone(failure.error),
                false => Refusal::End(failure.error),
            });
        }
        match failure.again {
            Again::Gone if may_be_gone => Ok(Refusal::Gone(failure.error)),
            Again::Absent if self.skips_absent && at.page == 0 => {
                tracing::warn!(error = %failure.error, "the value does not exist: it is skipped");
                Ok(Refusal::Absent)
            }
            _ => Err(failure.after(tries)),
        }
    }

    /// Returns the empty page of a refusal.
    pub(super) fn page_after_refusal(
        &mut self,
        at: At,
        request: Request,
        refusal: Refusal,
    ) -> Result<Page, Error> {
        match refusal {
            Refusal::End(error) => {
                tracing::info!(%error, "no page exists after the last one");
                self.answers.keep_end(self.ahead.http(), &request, &error);
                self.is_resumed = false;
                let (next, _) = self.after(at, &mut Contents::nothing(request.url))?;
                self.deepen(&next);
                Ok(page(Vec::new(), next))
            }
            Refusal::Gone(error) => {
                self.answers.keep_gone(self.ahead.http(), &request, &error);
                self.restart(at.run, &error)
            }
            Refusal::Absent => Ok(self.absent(at.run)),
        }
    }

    /// A slice that the server knows nothing of.
    fn absent(&mut self, run: PageRun) -> Page {
        let is_read_once = !self.answers.are_asked_again() && self.incremental.is_none();
        let ledger = self.plan.as_ref().zip(run.ledger);
        let of = ledger.as_ref().filter(|_| is_read_once);
        if let Some(message) = of.and_then(|(plan, ledger)| plan.describe_lost_value(ledger)) {
            let key = "for_each.missing";
            self.warnings.raise(VALUES_BEYOND_LIMIT, key, message);
        }
        let next = ledger.map_or(Position::Start, |(plan, ledger)| {
            ended(run.number, plan.advance_absent(*ledger))
        });
        let crawled = Crawled {
            urls: 1,
            skipped: [("not_found", 1)].into(),
            ..Crawled::default()
        };
        Page {
            records: Vec::new(),
            next,
            crawled: Some(crawled),
            parts: Vec::new(),
        }
    }

    /// Restarts a page run whose cursor the server no longer knows. The caller skips its landed
    /// records when they are returned again.
    fn restart(&self, run: PageRun, error: &Error) -> Result<Page, Error> {
        if self.keeps_all {
            let reason = format!(
                "is 0, which keeps equal records; {error}: the cursor seems to have expired, and a restart would land every record twice; set `dedup_window`, or remove the source's landing folder"
            );
            return Err(Error::config("batch.dedup_window", reason));
        }
        tracing::warn!(%error, "the cursor has expired, so the page run restarts");
        Ok(restarted_page(run))
    }
}

/// The empty page behind which a page run restarts at its first page.
pub(super) fn restarted_page(run: PageRun) -> Page {
    let next = begin(PageRun {
        number: run.number + 1,
        restarted: true,
        records: 0,
        boundary: Vec::new(),
        ..run
    });
    page(Vec::new(), next)
}
