//! Error of a key of a source.

/// A key whose value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: {reason}")]
pub struct InvalidKey {
    /// Path of the key in the source, such as `csv.quote`.
    pub key: &'static str,
    /// The problem and its remedy.
    pub reason: String,
}

impl InvalidKey {
    /// The `reason` why the value of `key` cannot be used.
    pub fn new(key: &'static str, reason: impl Into<String>) -> Self {
        Self {
            key,
            reason: reason.into(),
        }
    }
}
