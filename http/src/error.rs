//! Errors of requests.

use crate::{http_cause::HttpCause, retry::failed_try::TriedError};

/// Error of a request, or of its settings. A caller converts each of them into its own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is invalid.
    #[error("`{key}`: {reason}")]
    Config {
        /// Key path relative to the table of the source.
        key: String,
        /// The problem and its remedy.
        reason: String,
    },
    /// A request failed for good: not retryable, or out of tries.
    #[error("cannot fetch `{url}`: {what}; {advice}")]
    Http {
        /// URL without secrets.
        url: String,
        /// Cause of the failure.
        cause: HttpCause,
        /// The event.
        what: String,
        /// The remedy.
        advice: String,
    },
    /// A complete body does not have the expected content.
    #[error("cannot use the body of `{url}`: {reason}")]
    Body {
        /// URL without secrets.
        url: String,
        /// The problem and its remedy.
        reason: String,
    },
    /// The server asks for a longer wait than `retry.max_wait_s`.
    #[error("source `{source}` is deferred for {wait_s} s: {reason}")]
    Deferred {
        /// Source name.
        r#source: String,
        /// Time when the source may be requested again, Unix time in seconds.
        until_unix_s: u64,
        /// Wait until then in seconds, independent of later changes of the wall clock.
        wait_s: u64,
        /// The server's message.
        reason: String,
    },
    /// The run was asked to stop.
    #[error("stopped")]
    Cancelled,
}

impl Error {
    /// Status of the response that it is about, where there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.failed_request()?.1.status()
    }

    pub(crate) fn config(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config {
            key: key.into(),
            reason: reason.into(),
        }
    }
}

impl TriedError for Error {
    fn failed_request(&self) -> Option<(&str, HttpCause)> {
        match self {
            Self::Http { url, cause, .. } => Some((url, *cause)),
            Self::Body { url, .. } => Some((url, HttpCause::Other)),
            _ => None,
        }
    }

    fn with_tries(mut self, tries: &str) -> Self {
        if let Self::Http { what: reason, .. } | Self::Body { reason, .. } = &mut self {
            reason.push_str(tries);
        }
        self
    }
}
