//! Rows that get a prediction: those of a source, or the last ones of each entity.

/// Rows that get a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskedRows {
    /// Those of a source.
    Source(u64),
    /// The last ones of each entity.
    Last(usize),
}
