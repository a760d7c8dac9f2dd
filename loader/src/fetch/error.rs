//! Errors of reading an extent.

use std::{ops::Range, sync::Arc};

use feedline_schemas::{Classified, ErrorKind};

use crate::error::REBUILD;

/// Reason that bytes of a dataset could not be read. Cheap to clone, since several batches may wait
/// for the same bytes.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// There is no such object.
    #[error("`{url}` does not exist; restore the file or, where feedline built it, {REBUILD}")]
    Missing {
        /// URL of the object.
        url: String,
    },
    /// The object ends before the asked range does.
    #[error(
        "`{url}` is truncated: it has `{size}` bytes and bytes `{}` to `{}` were requested; restore the file or, \
         where feedline built it, {REBUILD}",
        range.start,
        range.end
    )]
    Truncated {
        /// URL of the object.
        url: String,
        /// Bytes asked for.
        range: Range<u64>,
        /// Bytes the object has.
        size: u64,
    },
    /// The bytes are not those that were written, also when read a second time.
    #[error(
        "bytes `{}` to `{}` of `{url}` are damaged: their checksum is `{found:08x}` and should be `{expected:08x}`; \
         they were read twice and none of them were used; restore the file or, where feedline built it, \
         {REBUILD}",
        range.start,
        range.end
    )]
    Corrupt {
        /// URL of the object.
        url: String,
        /// Bytes asked for.
        range: Range<u64>,
        /// CRC32C they should have.
        expected: u32,
        /// CRC32C they have.
        found: u32,
    },
    /// The object was replaced by another one during the run.
    #[error(
        "dataset changed: `{url}` is no longer the object that this run began with ({reason}); write new data under a \
         new path, and start the run again"
    )]
    Changed {
        /// URL of the object.
        url: String,
        /// Difference between the two.
        reason: String,
    },
    /// Access was refused, also after the credentials were refreshed.
    #[error(
        "access to `{url}` was refused; renew the store's credentials or the file's permissions, then resume"
    )]
    Denied {
        /// URL of the object.
        url: String,
        /// Cause.
        #[source]
        source: Arc<feedline_storage::Error>,
    },
    /// The store did not deliver before the deadline, whatever was tried.
    #[error(
        "cannot read bytes `{}` to `{}` of `{url}`: `{attempts}` attempts in `{seconds}` s failed ({failures}); check \
         the network and the store, then resume",
        range.start,
        range.end
    )]
    Unavailable {
        /// URL of the object.
        url: String,
        /// Bytes asked for.
        range: Range<u64>,
        /// Requests made.
        attempts: u32,
        /// Whole seconds since the first of them.
        seconds: u64,
        /// Failures by class, as in `3 throttled, 1 reset`.
        failures: String,
        /// The last of them.
        #[source]
        source: Arc<feedline_storage::Error>,
    },
    /// It cannot be read, and trying again cannot help.
    #[error("cannot read `{url}`")]
    Read {
        /// URL of the object.
        url: String,
        /// Cause.
        #[source]
        source: Arc<feedline_storage::Error>,
    },
}

impl Classified for FetchError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing { .. }
            | Self::Truncated { .. }
            | Self::Corrupt { .. }
            | Self::Changed { .. } => ErrorKind::Data,
            Self::Denied { .. } | Self::Unavailable { .. } => ErrorKind::Retry,
            Self::Read { source, .. } => source.kind(),
        }
    }
}

impl FetchError {
    /// Returns true if the same read may succeed later, once the network or the store has
    /// recovered.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_is_told_with_what_puts_it_back() {
        let url = || "file:///data/shards/train/00000.arrow".to_owned();
        for error in [
            FetchError::Missing { url: url() },
            FetchError::Truncated {
                url: url(),
                range: 0..9,
                size: 7,
            },
            FetchError::Corrupt {
                url: url(),
                range: 0..9,
                expected: 1,
                found: 2,
            },
        ] {
            let error = error.to_string();
            assert!(
                error.ends_with(
                    "restore the file or, where feedline built it, build the dataset again with `feedline shards build \
                     PIPELINE.toml --refit`"
                ),
                "{error}"
            );
        }
    }
}
