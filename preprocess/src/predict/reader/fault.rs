//! Reason why a new row cannot be used.

/// Reason why a row cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A fixed word, as ingest or the build gives it, such as `type_conflict` or `integer_too_large`.
    pub reason: &'static str,
    /// Location and details.
    pub detail: String,
}

impl Fault {
    pub(super) fn new(reason: &'static str, detail: String) -> Self {
        Self { reason, detail }
    }

    pub(super) fn at(self, place: &str) -> Self {
        Self::new(self.reason, format!("{place}: {}", self.detail))
    }
}
