//! What processes that train one model together share: sums whose bits do not depend on how many they are.

mod tree;

pub(crate) use self::tree::Tree;

/// This process among those that train together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// From 0.
    pub(crate) rank: usize,
    /// Number of ranks, at least 1.
    pub(crate) world: usize,
}

impl Place {
    /// The only one.
    pub(crate) const ALONE: Self = Self { rank: 0, world: 1 };
}
