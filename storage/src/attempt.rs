//! Reads that are tried once, for callers who decide themselves what to do about a failure.

use std::{fmt, ops::Range, time::Duration};

use bytes::Bytes;
use futures::stream::BoxStream;

use crate::Error;

/// A read of part of an object, to be tried once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOnce {
    /// Bytes of the object; not empty.
    pub range: Range<u64>,
    /// The object must still have this ETag.
    pub if_match: Option<String>,
    /// Connections to use.
    pub lane: Lane,
}

/// Each lane of a store has connections of its own, so that a request on one does not wait for a stuck one on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// For most requests.
    First,
    /// For those that the first one failed.
    Second,
}

impl Lane {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// Head of a store's response; its body is still to come.
pub struct Answer {
    /// Version of the object, where the store has such a thing.
    pub etag: Option<String>,
    /// Size of the whole object in bytes.
    pub object_bytes: u64,
    /// Bytes the body should have: fewer than asked for when the object ends earlier.
    pub body_bytes: u64,
    /// The bytes. Dropping it gives up the connection.
    pub body: BoxStream<'static, Result<Bytes, ReadFailure>>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("etag", &self.etag)
            .field("object_bytes", &self.object_bytes)
            .field("body_bytes", &self.body_bytes)
            .finish_non_exhaustive()
    }
}

/// Failure of a read that was tried once.
#[derive(Debug)]
pub struct ReadFailure {
    /// Class of the failure.
    pub class: FailureClass,
    /// Time the server asked to wait.
    pub retry_after: Option<Duration>,
    /// The failure itself.
    pub error: Error,
}

/// Kinds of failures, by what they say about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureClass {
    /// The store is asked for too much: 429 or 503.
    Throttled,
    /// The store failed: 408, 500, 502, 504 and the like.
    Server,
    /// The host's name could not be resolved.
    Dns,
    /// The connection could not be made.
    Connect,
    /// The connection was made and could not be secured.
    Tls,
    /// The connection broke, or the body ended early.
    Broken,
    /// Nothing came in time.
    TimedOut,
    /// Access was refused: 401 or 403.
    Denied,
    /// There is no such object.
    Missing,
    /// The object has another ETag: 412.
    Changed,
    /// The object ends before the range begins: 416.
    PastEnd,
    /// It failed otherwise, before a request was made; credentials that could not be fetched, for example.
    Other,
    /// The same request will never succeed.
    Fatal,
}

impl FailureClass {
    /// Classifies an HTTP status.
    pub(crate) const fn of_status(status: u16) -> Self {
        match status {
            429 | 503 => Self::Throttled,
            401 | 403 => Self::Denied,
            404 | 410 => Self::Missing,
            412 => Self::Changed,
            416 => Self::PastEnd,
            408 | 500.. => Self::Server,
            _ => Self::Fatal,
        }
    }

    /// Classifies an error of the local disk or of a test.
    pub(crate) const fn of_error(error: &Error) -> Self {
        match error {
            Error::NotFound { .. } => Self::Missing,
            Error::Denied { .. } => Self::Denied,
            Error::Injected { .. } => Self::Broken,
            Error::Short { .. } => Self::PastEnd,
            _ => Self::Other,
        }
    }
}

impl From<Error> for ReadFailure {
    fn from(error: Error) -> Self {
        Self {
            class: FailureClass::of_error(&error),
            retry_after: None,
            error,
        }
    }
}
