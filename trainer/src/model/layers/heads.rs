//! Numbers of heads of an attention layer.

/// Numbers of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Of queries; a divisor of the width.
    pub queries: usize,
    /// Of keys and values; a divisor of those of queries.
    pub keys: usize,
}

impl Heads {
    /// As many of keys as of queries.
    #[must_use]
    pub const fn equal(heads: usize) -> Self {
        Self {
            queries: heads,
            keys: heads,
        }
    }
}
