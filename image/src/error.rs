//! Reasons to reject an image.

use feedline_schemas::{Classified, ErrorKind};
use serde::{Deserialize, Serialize};

use crate::Bound;

/// An encoded image that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ImageError {
    /// The file has no bytes.
    #[error("the image has 0 bytes; fetch it again or remove it")]
    Empty,
    /// The file exceeds a limit, by its header.
    #[error(
        "the image has `{found}` {} and the limit is `{limit}`; make it smaller, or raise `images.limits.{}` of the loader, of a \
         dataset that feedline builds `dataset.image.{}`",
        .bound.what(),
        .bound.key(),
        .bound.dataset_key()
    )]
    TooLarge {
        /// The limit.
        bound: Bound,
        /// Amount found.
        found: u64,
        /// Amount allowed.
        limit: u64,
    },
    /// The file ends before its last pixel.
    #[error("the image is truncated: {reason}; fetch it again or remove it")]
    Truncated {
        /// End that was found.
        reason: String,
    },
    /// The format is not supported.
    #[error(
        "the image is {reason}, which is not supported; convert it to an 8-bit JPEG, PNG or WebP"
    )]
    Unsupported {
        /// Format found.
        reason: String,
    },
    /// The file contradicts its format.
    #[error("the image is damaged: {reason}; fetch it again or remove it")]
    Corrupt {
        /// Contradiction found.
        reason: String,
    },
}

impl Classified for ImageError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Data
    }
}

impl ImageError {
    /// Word that counts and reject reasons use: `empty`, `too_large`, `truncated`, `unsupported` or `corrupt`.
    #[must_use]
    pub const fn code(&self) -> &'static str {
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

#[cfg(test)]
mod snapshots;
