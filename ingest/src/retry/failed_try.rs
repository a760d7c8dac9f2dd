//! A failed try of a request, and the decision about another one.

use std::time::Duration;

use crate::{error::Error, http_cause::HttpCause};

/// A failed try.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Error to return if no further try succeeds.
    pub error: Box<Error>,
    /// Retry decision.
    pub again: Again,
}

/// Retry decision after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
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
    pub(crate) fn is_retried(self) -> bool {
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

    /// Error of the last of so many tries.
    pub(crate) fn after(self, tries: u32) -> Error {
        out_of_tries(self, tries, "")
    }
}

/// Returns the last error; `over` names the limit that ended the tries, if not their number.
pub(super) fn out_of_tries(failure: Failure, tries: u32, over: &str) -> Error {
    let tried = match (tries, over) {
        (1, "") => String::new(),
        (1, over) => format!(" (the first try{over})"),
        (tries, over) => format!(" (the last of {tries} tries{over})"),
    };
    match *failure.error {
        Error::Http {
            url,
            cause,
            what,
            advice,
        } => Error::Http {
            url,
            cause,
            what: what + &tried,
            advice,
        },
        Error::Body { url, reason } => Error::Body {
            url,
            reason: reason + &tried,
        },
        Error::Incomplete { url, reason } => Error::Incomplete {
            url,
            reason: reason + &tried,
        },
        other => other,
    }
}
