//! Counts that several threads add to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number of things.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn raise(&self, to: u64) {
        self.0.fetch_max(to, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
