//! Reasons for rejecting an image.

use serde::{Deserialize, Serialize};

use crate::Bound;

/// An encoded image that cannot be used. The five kinds are the names under which they are counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ImageError {
    /// There are no bytes.
    #[error("the image has 0 bytes; fetch it again or remove it")]
    Empty,
    /// It exceeds a limit, by what its header says.
    #[error(
        "the image has `{found}` {} and the limit is `{limit}`; make it smaller, or raise `image.limits.{}`", .bound.what(), .bound.key()
    )]
    TooLarge {
        /// Exceeded limit.
        bound: Bound,
        /// Amount found.
        found: u64,
        /// Amount allowed.
        limit: u64,
    },
    /// It ends before its last pixel.
    #[error("the image is truncated: {reason}; fetch it again")]
    Truncated {
        /// Position of the end.
        reason: String,
    },
    /// It is of a kind that is not read.
    #[error(
        "the image is {reason}, which is not supported; convert it to an 8-bit JPEG, PNG or WebP"
    )]
    Unsupported {
        /// Description of the kind.
        reason: String,
    },
    /// It contradicts its format.
    #[error("the image is damaged: {reason}; fetch it again or remove it")]
    Corrupt {
        /// Description of the contradiction.
        reason: String,
    },
}

impl ImageError {
    /// Name of the kind, as counted in metrics: `empty`, `too_large`, `truncated`, `unsupported` or `corrupt`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooLarge { .. } => "too_large",
            Self::Truncated { .. } => "truncated",
            Self::Unsupported { .. } => "unsupported",
            Self::Corrupt { .. } => "corrupt",
        }
    }

    pub(crate) fn truncated(reason: impl Into<String>) -> Self {
        Self::Truncated {
            reason: reason.into(),
        }
    }

    pub(crate) fn unsupported(reason: impl Into<String>) -> Self {
        Self::Unsupported {
            reason: reason.into(),
        }
    }

    pub(crate) fn corrupt(reason: impl Into<String>) -> Self {
        Self::Corrupt {
            reason: reason.into(),
        }
    }
}
