//! Page runs and passes over slices and values: the page to request, and the position after one.

use feedline_http::server_time::Clocks;
use feedline_schemas::{
    commit::{Ledger, PageRun, Position},
    report::Warning,
};

use super::Rest;
use crate::{
    error::Error,
    pagination::{At, Contents},
    warnings::VALUES_BEYOND_LIMIT,
    watermark::Incremental,
};

impl Rest {
    /// Returns the page to request at `position`, which is `before` with the current list of values.
    /// `None` if everything has been read, and if all values that a pass had left are not in the list
    /// any more: its end is committed before another pass begins.
    pub(super) fn place_after(
        &mut self,
        before: &Position,
        position: &Position,
    ) -> Result<Option<At>, Error> {
        match (before, position) {
            (Position::Page { .. }, Position::Done { .. }) => Ok(None),
            _ => self.place(position),
        }
    }

    /// Returns the page to request; `None` if everything has been read.
    pub(super) fn place(&mut self, at: &Position) -> Result<Option<At>, Error> {
        if let (Some(plan), Position::Start | Position::Done { .. }) = (&self.plan, at) {
            let is_again = (self.answers.are_asked_again() || self.incremental.is_some())
                && !self.is_pass_resumed
                && matches!(at, Position::Done { .. });
            let number = at.run().map_or(0, |run| run.number) + u64::from(is_again);
            let pass = plan.begin(at.ledger(), is_again);
            if is_again {
                // It requests all values.
                self.warnings.lift(VALUES_BEYOND_LIMIT);
            }
            self.is_our_pass = true;
            if pass.is_some() {
                self.failed.clear();
            }
            let first = pass.map(|ledger| first_page(run_of(number, ledger)));
            return first.map(|first| self.with_bound(first)).transpose();
        }
        match at {
            Position::Start => {
                let incremental = self.incremental.as_ref();
                let run = incremental.map(Incremental::first_run);
                Ok(Some(first_page(run.unwrap_or_default())))
            }
            Position::Page { page, cursor, run } => {
                let at = At {
                    page: *page,
                    cursor: cursor.clone(),
                    run: run.clone(),
                };
                self.with_bound(at).map(Some)
            }
            Position::Done { run, .. } => Ok(self.run_after(run)?.map(first_page)),
            Position::File { .. } => {
                let reason = "is `rest`, but the landed data comes from files; give this source another name";
                Err(Error::config("type", reason))
            }
        }
    }

    /// Returns the page `at`. With `incremental`, the first page of a value gets the bound from the newest
    /// cursor of the value.
    ///
    /// # Errors
    /// [`Error::Config`] if the lookback does not fit the cursor.
    pub(super) fn with_bound(&self, mut at: At) -> Result<At, Error> {
        let plan = self.plan.as_ref().zip(at.run.ledger.as_deref());
        let (Some(incremental), Some((plan, ledger))) = (&self.incremental, plan) else {
            return Ok(at);
        };
        if at.page > 0 || at.run.since.is_some() {
            return Ok(at);
        }
        let value = plan.value_of(ledger);
        let newest = value.and_then(|value| self.cursors.newest(&value));
        let before = PageRun {
            high: newest.map(ToOwned::to_owned),
            ..PageRun::default()
        };
        let bound = incremental.next_run(&before, &[], self.clock.unix())?;
        (at.run.since, at.run.high) = (bound.since, bound.high);
        Ok(at)
    }

    /// Warns that values were requested without their newest cursors.
    pub(super) fn warn_of_lost_cursors(&self) -> Option<Warning> {
        self.has_lost_cursors.then(|| {
            let message = "the file of the newest cursors in `cursors/` of the landing folder is missing or damaged, as after a rewind by many entries: all values were requested from `incremental.start` on; records that have landed are dropped as duplicates";
            Warning::new("cursors_missing", message).with_key("for_each")
        })
    }

    /// Notes the newest cursor of the value of `run`, whose pages have ended.
    fn note_cursor(&mut self, run: &PageRun) {
        let plan = self.plan.as_ref().zip(run.ledger.as_deref());
        let value = plan.and_then(|(plan, ledger)| plan.value_of(ledger));
        if let Some(value) = value.filter(|_| self.incremental.is_some()) {
            self.cursors.note(value, run);
        }
    }

    /// Returns the position `at` for a list of values that has changed since; `None` if it is the
    /// same.
    pub(super) fn with_list(&mut self, at: &Position) -> Option<Position> {
        let plan = self.plan.as_ref()?;
        self.is_pass_resumed |= !self.is_our_pass && matches!(at, Position::Page { .. });
        let (before, number) = (at.ledger()?, at.run()?.number);
        let ledger = plan.with_list(before)?;
        if (ledger.value, ledger.slice) != (before.value, before.slice) {
            return Some(ended(number, ledger));
        }
        let mut at = at.clone();
        if let Position::Page { run, .. } | Position::Done { run, .. } = &mut at {
            run.ledger = Some(Box::new(ledger));
        }
        Some(at)
    }

    /// Returns the page run after a finished one; `None` if nothing can be new.
    fn run_after(&self, run: &PageRun) -> Result<Option<PageRun>, Error> {
        match &self.incremental {
            Some(incremental) => incremental
                .next_run(run, &self.highs, self.clock.unix())
                .map(Some),
            None if self.answers.are_asked_again() => Ok(Some(PageRun {
                number: run.number + 1,
                ..PageRun::default()
            })),
            None => Ok(None),
        }
    }

    /// Returns the position after a page. If a page run ends or cannot return all records, that is
    /// the position of the next slice or value. The result is true with it if the position is known
    /// without the page, once it has not changed.
    pub(super) fn after(
        &mut self,
        at: At,
        contents: &mut Contents,
    ) -> Result<(Position, bool), Error> {
        let (Some(plan), Some(ledger)) = (&self.plan, at.run.ledger.clone()) else {
            let next = self.pages.next(at, contents)?;
            let is_known = self.pages.is_known_unread(&next);
            return Ok((next, is_known));
        };
        let (number, run) = (at.run.number, at.run.clone());
        if self.pages.is_beyond_cap(contents.total)
            && let Some(halves) = plan.cut(&ledger)
        {
            // They will be returned again.
            contents.records.clear();
            return Ok((self.begun_again(&ledger, halves, number), false));
        }
        let next = self.pages.next(at, contents);
        plan.mark(&ledger, &mut contents.records);
        match next {
            Err(Error::Incomplete { url, reason }) => match plan.cut(&ledger) {
                Some(halves) if !self.keeps_all => {
                    Ok((self.begun_again(&ledger, halves, number), false))
                }
                cut => {
                    let why = if cut.is_some() {
                        "is not halved, since with `batch.dedup_window` = 0 its landed records would land again"
                    } else {
                        "cannot be halved further"
                    };
                    let reason = format!("{} {why}, and {reason}", plan.show(&ledger));
                    Err(Error::Incomplete { url, reason })
                }
            },
            Ok(next) => {
                let is_known = self.pages.is_known_unread(&next);
                if matches!(next, Position::Done { .. }) {
                    self.note_cursor(&run);
                }
                Ok((self.behind_slice(next, number, Some(ledger)), is_known))
            }
            Err(error) => Err(error),
        }
    }

    /// The position `next`, or where a page run ends there, that of the slice or value behind the one
    /// of `ledger`.
    pub(super) fn behind_slice(
        &self,
        next: Position,
        number: u64,
        ledger: Option<Box<Ledger>>,
    ) -> Position {
        match (next, &self.plan, ledger) {
            (Position::Done { .. }, Some(plan), Some(ledger)) => {
                ended(number, plan.advance(*ledger))
            }
            (next, ..) => next,
        }
    }

    /// Ends a pass over slices at the current time of the server's clock, taken from its newest
    /// response. Changes `at` to the pass that ends there. Where the requested slice reaches beyond
    /// that time, its page does not count, and the result is the position to resume from. The same
    /// holds where this machine's clock proves to be behind and nothing has to be read again.
    pub(super) fn end_by_server(
        &self,
        at: &mut At,
        position: &Position,
        clocks: Clocks,
    ) -> Result<Option<Position>, Error> {
        let (Some(plan), Some(ledger), 0) = (&self.plan, &at.run.ledger, at.page) else {
            return Ok(None);
        };
        let server = clocks.server.filter(|_| plan.asks_server());
        if let (Some(server), Some(before), Position::Done { .. }) =
            (server, position.ledger(), position)
            && ledger.reread.is_some()
            && plan.doubt(before, server).is_none()
        {
            return Ok(Some(position.clone()));
        }
        let now = server.map_or(clocks.local, |server| server.min(clocks.local));
        let cut = plan.end_at(ledger, now, self.is_our_pass);
        if self.keeps_all
            && (ledger.reread.is_some() || cut.as_ref().is_some_and(|cut| cut.reread.is_some()))
        {
            let reason = "is 0, which keeps equal records; by the log, future slices were read, so a clock was ahead then, and re-reading them would land records twice: set `dedup_window`";
            return Err(Error::config("batch.dedup_window", reason));
        }
        let Some(cut) = cut else { return Ok(None) };
        let is_same = cut.slice == ledger.slice;
        if is_same {
            at.run.ledger = Some(Box::new(cut));
            return Ok(None);
        }
        Ok(Some(ended(at.run.number, cut)))
    }

    /// Position at the lower half of a slice that has more records than the API returns.
    fn begun_again(&self, cut: &Ledger, halves: Ledger, number: u64) -> Position {
        if let Some(plan) = &self.plan {
            let (slice, half) = (plan.show(cut), plan.show(&halves));
            tracing::info!(
                slice,
                half,
                "more records than the API returns: the slice is halved"
            );
        }
        begin(run_of(number, halves))
    }
}

/// The first page of a run of pages.
fn first_page(run: PageRun) -> At {
    At {
        run,
        ..At::default()
    }
}

/// The position at the first page of a run of pages.
pub(super) fn begin(run: PageRun) -> Position {
    Position::Page {
        page: 0,
        cursor: None,
        run,
    }
}

/// Position after a slice: at the next one, or at the end of the pass.
pub(super) fn ended(number: u64, ledger: Ledger) -> Position {
    let is_over = ledger.slice.is_none();
    let run = run_of(number, ledger);
    if !is_over {
        return begin(run);
    }
    // The batch has the number of pages.
    Position::Done {
        pages: 0,
        files: Vec::new(),
        run,
    }
}

/// A run of pages of a slice.
pub(super) fn run_of(number: u64, ledger: Ledger) -> PageRun {
    PageRun {
        number,
        ledger: Some(Box::new(ledger)),
        ..PageRun::default()
    }
}
