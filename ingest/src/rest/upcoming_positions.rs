//! Positions behind the one that is being read, as far as their requests are known.

use feedline_http::Request;
use feedline_schemas::commit::{PageRun, Position};

use super::{Rest, fetcher::Fetched, page_positions::run_of, requests_ahead::Wanted};
use crate::{error::Error, pagination::At};

impl Rest {
    /// Returns the response to the request of the page at `at`, and the request. Pages behind it are
    /// requested meanwhile.
    pub(super) async fn fetched(&mut self, at: &At) -> Result<(Request, Fetched), Error> {
        let request = self.request(at)?;
        loop {
            let wanted = self.wanted(at, &request);
            self.ahead.ask(self.answers.origin(), wanted);
            if let Some(fetched) = self.ahead.take(&request) {
                return Ok((request, fetched));
            }
            self.ahead.arrival().await?;
        }
    }

    /// The pages to request: the one at `at`, and those behind it. A request that may not be repeated
    /// is not sent before it is needed.
    fn wanted(&self, at: &At, request: &Request) -> Vec<Wanted> {
        let is_alone = self.answers.are_replayed() || !request.is_repeatable;
        let window = if is_alone { 1 } else { self.ahead.window() };
        let mut wanted = vec![self.want(at, request.clone(), false)];
        let (mut behind, mut request) = (at.clone(), request.clone());
        while wanted.len() < window {
            let Some((next, is_speculative)) = self.behind(at, &behind, &request) else {
                break;
            };
            let Ok(next_request) = self.request(&next) else {
                break;
            };
            (behind, request) = (next, next_request);
            wanted.push(self.want(&behind, request.clone(), is_speculative));
        }
        wanted
    }

    fn want(&self, at: &At, request: Request, is_speculative: bool) -> Wanted {
        Wanted {
            is_speculative,
            request,
            is_first: at.page == 0,
            end_status: self.pages.end_status(at),
        }
    }

    /// The page behind `at`, which `request` asks for, when that at `current` is being read; and
    /// true if it may not exist.
    fn behind(&self, current: &At, at: &At, request: &Request) -> Option<(At, bool)> {
        let came = self.ahead.peek(request).map(|answered| &answered.contents);
        let slice = || self.next_slice(at).map(|next| (next, false));
        if came.is_none() && !self.guesses_pages {
            return slice();
        }
        // Of a run whose first page was not read, nothing is known yet.
        let is_current = current.page > 0 && slice_of(&at.run) == slice_of(&current.run);
        let is_likely = at.page + 1 < current.page + self.depth;
        let foresee = |is_likely| self.pages.foresee(at, came, is_current, is_likely);
        if let Some(next) = foresee(false) {
            return Some((next, false));
        }
        let likely = if is_likely { foresee(true) } else { None };
        likely.map(|next| (next, true)).or_else(slice)
    }

    /// The first page of the slice or value behind that of `at`.
    fn next_slice(&self, at: &At) -> Option<At> {
        let (plan, ledger) = (self.plan.as_ref()?, at.run.ledger.as_ref()?);
        let next = plan.advance((**ledger).clone());
        next.slice?;
        if plan.asks_server() {
            // What a slice has is only known when it is over by the server's clock too.
            let server = self.ahead.http().server_time().server();
            let local = self.clock.unix();
            let now = server.map_or(local, |server| server.min(local));
            if self.is_resumed || plan.end_at(&next, now, self.is_our_pass).is_some() {
                return None;
            }
        }
        let next = At {
            run: run_of(at.run.number, next),
            ..At::default()
        };
        // The error is that of the page itself.
        self.with_bound(next).ok()
    }

    /// Notes that a page was read, and `next` follows. The more pages of a run were full, the more
    /// are requested without knowing that they exist.
    pub(super) fn deepen(&mut self, next: &Position) {
        self.depth = match next {
            Position::Page { page, .. } if *page > 0 && self.pages.expects_more(next) => {
                let window = self.ahead.window() as u64;
                self.depth.saturating_mul(2).min(window)
            }
            _ => 1,
        };
        if matches!(next, Position::Done { .. }) {
            self.ahead.ask(self.answers.origin(), Vec::new());
        }
    }
}

/// Slice and value of a run of pages.
fn slice_of(run: &PageRun) -> Option<(u64, Option<[i64; 2]>)> {
    let ledger = run.ledger.as_ref()?;
    Some((ledger.value, ledger.slice))
}
