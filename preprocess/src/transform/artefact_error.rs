//! Error of a transform artefact that contradicts itself.

use crate::Error;

/// A transform artefact that was damaged or edited, for `reason`.
pub(super) fn damaged(reason: String) -> Error {
    Error::input(
        "the transform artefact",
        reason,
        "it was damaged or edited: restore it, or rebuild the dataset with `--refit`",
    )
}
