//! A failed try of a request, and the decision about another one.

use std::{fmt::Display, time::Duration};

use crate::{error::Error, http_cause::HttpCause};

/// A failed try.
#[derive(Debug)]
pub struct Failure<E = Error> {
    /// Error to return if no further try succeeds.
    pub error: Box<E>,
    /// Retry decision.
    pub again: Again,
}

/// Retry decision after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The response would be the same.
    Never,
    /// No retry: the server does not know the requested resource (any more) (status 400 or 410).
    Gone,
    /// No retry: the resource does not exist (status 404).
    Absent,
    /// Neither: an archive records that no page follows the last one.
    End,
    /// After our own backoff.
    Backoff,
    /// The same, for a request that the server did not process: it was not sent, or refused by a
    /// rate limit.
    Unprocessed,
    /// A retry after the delay that the server asked for.
    After(Duration),
}

impl Again {
    /// Returns true if the request is tried again.
    #[must_use]
    pub fn is_retried(self) -> bool {
        matches!(self, Self::Backoff | Self::Unprocessed | Self::After(_))
    }
}

impl Failure {
    /// The failure with this cause, if a request has failed.
    pub(crate) fn caused_by(mut self, own: HttpCause) -> Self {
        if let Error::Http { cause, .. } = &mut *self.error {
            *cause = own;
        }
        self
    }

    /// The failure with the error of a caller.
    #[must_use]
    pub fn into_error_of<E: From<Error>>(self) -> Failure<E> {
        Failure {
            error: Box::new(E::from(*self.error)),
            again: self.again,
        }
    }
}

impl<E: TriedError> Failure<E> {
    /// Error of the last of so many tries.
    #[must_use]
    pub fn after(self, tries: u32) -> E {
        out_of_tries(self, tries, "")
    }
}

/// Error of requests that are tried several times.
pub trait TriedError: Display + From<Error> {
    /// URL without secrets and cause of a failed request.
    fn failed_request(&self) -> Option<(&str, HttpCause)>;

    /// The error with `tries`, a note about the number of tries, at the end of its reason.
    #[must_use]
    fn with_tries(self, tries: &str) -> Self;
}

/// Returns the last error; `over` names the limit that ended the tries, if not their number.
pub(super) fn out_of_tries<E: TriedError>(failure: Failure<E>, tries: u32, over: &str) -> E {
    let tried = match (tries, over) {
        (1, "") => String::new(),
        (1, over) => format!(" (the first try{over})"),
        (tries, over) => format!(" (the last of {tries} tries{over})"),
    };
    failure.error.with_tries(&tried)
}
