//! One batch again and again: what a trainer would do if data cost nothing.

use std::sync::Arc;

use crate::Batch;

/// Gives the same batch forever. A trainer that runs over it shows the most that any loader could let it reach; what
/// it reaches over the real batches, beside that, is what the data costs. See [`Batch::headspace`].
#[derive(Clone, Debug)]
pub struct Headspace(Arc<Batch>);

impl Batch {
    /// This batch forever.
    #[must_use]
    pub fn headspace(self) -> Headspace {
        Headspace(Arc::new(self))
    }
}

impl Iterator for Headspace {
    type Item = Arc<Batch>;

    fn next(&mut self) -> Option<Arc<Batch>> {
        Some(Arc::clone(&self.0))
    }
}
