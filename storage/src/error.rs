//! Errors of stores.

use std::io;

use feedline_schemas::{Classified, ErrorKind};
use object_store::path;

/// Reason and remedy where a bucket is missing.
pub(crate) const NO_BUCKET: &str =
    "the store has no such bucket or container; create it, or correct the URL";
/// Codes of responses by stores that have no such bucket or container.
const NO_BUCKET_CODES: [&str; 2] = [
    "<Code>NoSuchBucket</Code>",
    "<Code>ContainerNotFound</Code>",
];

/// An error of a store. Its URLs carry no credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such object.
    #[error("`{url}` does not exist; check the path, and that the command that writes it has run")]
    NotFound {
        /// URL of the object.
        url: String,
    },
    /// The disk is full or a quota is used up.
    #[error(
        "no space left to write `{url}`; earlier commits are intact: free space and run the same command again"
    )]
    Full {
        /// URL of the object.
        url: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Access was refused.
    #[error(
        "access to `{url}` was refused; check the folder's permissions or the store's credentials"
    )]
    Denied {
        /// URL of the object.
        url: String,
        /// Cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The URL cannot be used.
    #[error("cannot use `{url}` as a location: {reason}")]
    Location {
        /// URL as given.
        url: String,
        /// Reason of the error and remedy.
        reason: String,
    },
    /// Fewer bytes arrived than requested.
    #[error(
        "`{url}` returned {got} bytes of the {wanted} requested; the object is shorter than its manifest says, or the transfer ended early: run the same command again"
    )]
    Short {
        /// URL of the object.
        url: String,
        /// Requested bytes.
        wanted: u64,
        /// Bytes received.
        got: u64,
    },
    /// A request was not sent, or its redirect not followed.
    #[error("cannot {operation} `{url}`: {reason}")]
    Refused {
        /// The operation.
        operation: &'static str,
        /// URL of the object.
        url: String,
        /// Reason and remedy.
        reason: String,
    },
    /// A local file operation failed.
    #[error("cannot {operation} `{url}`")]
    Io {
        /// The operation.
        operation: &'static str,
        /// URL of the object.
        url: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A request to the store failed.
    #[error("cannot {operation} `{url}`")]
    Remote {
        /// The operation.
        operation: &'static str,
        /// URL of the object.
        url: String,
        /// Cause.
        #[source]
        source: object_store::Error,
    },
    /// A fault injected by a test.
    #[error("injected fault: {operation} of `{url}` {when} it was applied")]
    Injected {
        /// The operation.
        operation: &'static str,
        /// URL of the object.
        url: String,
        /// `before` or `after`.
        when: &'static str,
    },
}

impl Classified for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Location { .. } => ErrorKind::Config,
            Self::NotFound { .. } | Self::Refused { .. } => ErrorKind::Data,
            Self::Full { .. }
            | Self::Denied { .. }
            | Self::Short { .. }
            | Self::Io { .. }
            | Self::Remote { .. }
            | Self::Injected { .. } => ErrorKind::Retry,
        }
    }
}

impl Error {
    /// Returns true if the object is absent.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Returns true if the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Remote { .. } | Self::Short { .. } | Self::Injected { .. }
        )
    }

    /// Returns true if space ran out.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// Classifies an I/O error by the caller's options.
    pub(crate) fn io(operation: &'static str, url: String, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { url },
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::Full { url, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Denied {
                url,
                source: Box::new(source),
            },
            _ => Self::Io {
                operation,
                url,
                source,
            },
        }
    }

    /// Classifies a store's error by the caller's options.
    pub(crate) fn remote(
        operation: &'static str,
        url: String,
        source: object_store::Error,
    ) -> Self {
        if lacks_bucket(&source) {
            return Self::Refused {
                operation,
                url,
                reason: NO_BUCKET.to_owned(),
            };
        }
        match source {
            object_store::Error::NotFound { .. } => Self::NotFound { url },
            object_store::Error::PermissionDenied { source, .. }
            | object_store::Error::Unauthenticated { source, .. } => Self::Denied { url, source },
            object_store::Error::InvalidPath { source } => Self::Refused {
                operation,
                url,
                reason: describe_invalid_key(&source),
            },
            source => match feedline_http::refusal(&source) {
                Some(reason) => Self::Refused {
                    operation,
                    url,
                    reason,
                },
                None => Self::Remote {
                    operation,
                    url,
                    source,
                },
            },
        }
    }
}

/// Returns true if the store has no such bucket or container. The body of the response is in a private type of
/// object_store, which shows it in the text of the error.
fn lacks_bucket(error: &object_store::Error) -> bool {
    let text = error.to_string();
    NO_BUCKET_CODES.iter().any(|code| text.contains(code))
}

/// Reason and remedy where the key of an object is no path: a listing of an object store ends at it.
fn describe_invalid_key(cause: &path::Error) -> String {
    let (key, fault) = match cause {
        path::Error::EmptySegment { path } => (path, "an empty part between two `/`"),
        path::Error::BadSegment { path, .. } => (
            path,
            "a part that is `.` or `..`, or has a control character",
        ),
        other => return format!("an object there has a key that is no path: {other}"),
    };
    format!(
        "the key `{}` of an object there has {fault}, and objects with such keys cannot be listed or read; rename or delete it, or choose a folder that it is not in",
        key.escape_debug()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_no_path_is_named_with_a_remedy_and_not_retried() {
        for (key, part) in [
            (
                "in//a.csv",
                "the key `in//a.csv` of an object there has an empty part",
            ),
            (
                "in/../a.csv",
                "the key `in/../a.csv` of an object there has a part that is",
            ),
        ] {
            let source = path::Path::parse(key).unwrap_err().into();
            let error = Error::remote("list", "s3://b/in".to_owned(), source);
            let text = error.to_string();
            assert!(
                text.starts_with("cannot list `s3://b/in`: the key"),
                "{text}"
            );
            assert!(text.contains(part), "{text}");
            assert!(!error.is_retryable() && !error.is_not_found());
        }
    }
}

#[cfg(test)]
mod snapshots;
