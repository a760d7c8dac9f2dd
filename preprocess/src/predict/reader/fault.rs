//! Reason why a new row cannot be used.

/// Reason why a row cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A fixed word, as ingest or the build gives it, such as `type_conflict` or `integer_too_large`.
    pub reason: &'static str,
    /// Location and details.
    pub detail: String,
    /// True for a text in a column of timestamps that no format reads.
    pub is_unread_time: bool,
}

impl Fault {
    /// A fault that is no time of an unknown format.
    #[must_use]
    pub const fn new(reason: &'static str, detail: String) -> Self {
        Self {
            reason,
            detail,
            is_unread_time: false,
        }
    }

    pub(super) fn at(self, place: &str) -> Self {
        Self {
            detail: format!("{place}: {}", self.detail),
            ..self
        }
    }
}
