//! Joined documents: a disjoint-set forest whose roots do not depend on the order of joining.

/// Disjoint sets of documents; the root of each is the first of its documents by the order the caller gives.
#[derive(Debug)]
pub(super) struct Forest {
    parents: Vec<u32>,
}

impl Forest {
    /// Every document alone.
    pub(super) fn new(documents: u32) -> Self {
        Self {
            parents: (0..documents).collect(),
        }
    }

    /// The first document of the set.
    pub(super) fn root(&mut self, document: u32) -> u32 {
        let mut at = document;
        loop {
            let parent = self.parents[at as usize];
            if parent == at {
                return at;
            }
            // Path halving (Tarjan and van Leeuwen 1984).
            let above = self.parents[parent as usize];
            self.parents[at as usize] = above;
            at = above;
        }
    }

    /// Returns true if two documents are joined.
    pub(super) fn is_joined(&mut self, a: u32, b: u32) -> bool {
        self.root(a) == self.root(b)
    }

    /// Joins two sets; `is_before` decides which root comes first.
    pub(super) fn join(&mut self, a: u32, b: u32, is_before: impl Fn(u32, u32) -> bool) {
        let (a, b) = (self.root(a), self.root(b));
        let (first, second) = if is_before(a, b) { (a, b) } else { (b, a) };
        self.parents[second as usize] = first;
    }
}
