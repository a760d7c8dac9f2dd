//! Pages without records while the API's total says that more follow: requested again.

use std::sync::{Mutex, PoisonError};

use super::{
    Rest,
    fetcher::{FetchOutcome, Fetched},
};
use feedline_http::{Again, Failure, Request};

use crate::{error::Error, pagination::At};

/// Most tries of such a page, with the backoff of `retry`. Fewer than those of a failure: totals are
/// often estimates, and then the page is the end.
const TRIES: u32 = 3;

impl Rest {
    /// Returns the response to the request of the page at `at`, and the request. A page that seems
    /// to be a hole is requested again. If it stays one, it is returned as it is.
    pub(super) async fn fetched_whole(&mut self, at: &At) -> Result<(Request, Fetched), Error> {
        let (request, fetched) = self.fetched(at).await?;
        let may_repeat = request.is_repeatable && !self.answers.are_replayed();
        if !may_repeat || !self.is_hole(at, &fetched) {
            return Ok((request, fetched));
        }
        let fetched = Box::pin(self.fetch_again(at, &request, fetched)).await?;
        Ok((request, fetched))
    }

    fn is_hole(&self, at: &At, fetched: &Fetched) -> bool {
        match &fetched.outcome {
            Ok(FetchOutcome::Answered(Some(answered))) => {
                self.pages.is_hole(at, &answered.contents)
            }
            _ => false,
        }
    }

    /// Requests a page again after its first try came as the hole `first`.
    async fn fetch_again(
        &mut self,
        at: &At,
        request: &Request,
        first: Fetched,
    ) -> Result<Fetched, Error> {
        let end_status = self.pages.end_status(at);
        let mut retry = self.ahead.retry();
        // The newest hole, and the number of tries that gave one.
        let holes = Mutex::new((Some(first), 0));
        let locked = || holes.lock().unwrap_or_else(PoisonError::into_inner);
        let this = &*self;
        let tried = retry.run(|| async {
            let begun = {
                let mut holes = locked();
                holes.1 += 1;
                holes.1
            };
            if begun > 1 {
                let origin = this.answers.origin();
                let again = this.ahead.fetch_now(origin, request, &end_status).await;
                if begun == TRIES || !this.is_hole(at, &again) {
                    return Ok(again);
                }
                locked().0 = Some(again);
            }
            Err(Failure {
                error: Box::new(Error::Incomplete {
                    url: this.ahead.http().shown(&request.url),
                    reason: format!(
                        "page {} has no record, and the API's total says that more follow",
                        at.page
                    ),
                }),
                again: Again::Backoff,
            })
        });
        let tried = Box::pin(tried).await;
        let last = holes.into_inner().unwrap_or_else(PoisonError::into_inner).0;
        self.ahead.add_retries(retry.retries());
        match (tried, last) {
            // `retry` allows no more tries: the page is taken as the end.
            (Err(Error::Incomplete { .. }), Some(hole)) => Ok(hole),
            (tried, _) => tried,
        }
    }
}
