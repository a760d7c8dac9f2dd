//! Pages without records while the API's total says that more follow, and later pages with null in
//! place of the list: requested again.

use std::sync::{Mutex, PoisonError};

use super::{
    Rest,
    fetcher::{FetchOutcome, Fetched},
    response_origin::Answered,
};
use feedline_http::{Again, Failure, Request};

use crate::{error::Error, pagination::At};

/// Most tries of such a page, with the backoff of `retry`. Fewer than those of a failure: totals are
/// often estimates, and some APIs write an empty list as null. Then the page is the end.
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
        answered_of(fetched).is_some_and(|answered| {
            is_later_null(at, answered) || self.pages.is_hole(at, &answered.contents)
        })
    }

    /// Warns that null was read as an empty list of records.
    pub(super) fn warn_of_null(&mut self) {
        let message = "a response has null where the list of records should be, and no field at `error_path` that shows whether it is an error; it was read as an empty page; if it is an error, set `error_path` to the path of the error in it, or set `error_path = \"\"` if null means that there are no records";
        self.warnings
            .raise("null_list", "error_path", message.to_owned());
    }

    /// Requests a page again after its first try came as the hole `first`.
    async fn fetch_again(
        &mut self,
        at: &At,
        request: &Request,
        first: Fetched,
    ) -> Result<Fetched, Error> {
        let end_status = self.pages.end_status(at);
        let is_null = answered_of(&first).is_some_and(|answered| is_later_null(at, answered));
        let number = self.pages.page_number(at.page);
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
                let page = (request, at.page == 0);
                let again = this.ahead.fetch_now(origin, page, &end_status).await;
                if begun == TRIES || !this.is_hole(at, &again) {
                    return Ok(again);
                }
                locked().0 = Some(again);
            }
            Err(Failure {
                error: Box::new(Error::Incomplete {
                    url: this.ahead.http().shown(&request.url),
                    reason: match is_null {
                        true => format!("page {number} has null where its list should be"),
                        false => format!(
                            "page {number} has no record, and the API's total says that more follow"
                        ),
                    },
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

/// The response, unless the page was refused or has not changed.
fn answered_of(fetched: &Fetched) -> Option<&Answered> {
    match &fetched.outcome {
        Ok(FetchOutcome::Answered(answered)) => answered.as_deref(),
        _ => None,
    }
}

/// Returns true for a page after the first one with null in place of its list.
fn is_later_null(at: &At, answered: &Answered) -> bool {
    at.page > 0 && answered.is_null
}
