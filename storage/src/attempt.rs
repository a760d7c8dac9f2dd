//! Reads that are tried once, for callers that handle failures themselves.

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

/// Lane of a store. Each has connections of its own, so a request on one does not wait for a stuck
/// one on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// For most requests.
    First,
    /// For requests that failed on the first one.
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
    /// Version of the object, if the store has versions.
    pub etag: Option<String>,
    /// Size of the complete object in bytes.
    pub object_bytes: u64,
    /// Expected length of the body: less than requested if the object ends earlier.
    pub body_bytes: u64,
    /// The bytes. Dropping it closes the connection.
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
    /// Delay that the server asked for.
    pub retry_after: Option<Duration>,
    /// The failure itself.
    pub error: Error,
}

/// Classes of failures, by the state of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureClass {
    /// Too many requests: 429 or 503.
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
    /// No data arrived in time.
    TimedOut,
    /// Access was refused: 401 or 403.
    Denied,
    /// The object does not exist.
    Missing,
    /// The object has another ETag: 412.
    Changed,
    /// The object ends before the range begins: 416.
    PastEnd,
    /// Another failure before a request was sent; credentials that could not be fetched, for
    /// example.
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
