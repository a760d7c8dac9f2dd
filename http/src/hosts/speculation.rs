//! Requests for pages that may not exist.

use std::{
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Mark of a request for a page that may not exist.
///
/// Its failure is no evidence against the host, and it is not sent while the host fails. The mark is removed from a request on
/// its way when the page turns out to be needed. It is not part of a request's identity: all marks are equal.
#[derive(Clone, Debug, Default)]
pub struct Speculation(Arc<AtomicBool>);

impl Speculation {
    /// Creates a mark.
    #[must_use]
    pub fn new(is_speculative: bool) -> Self {
        Self(Arc::new(AtomicBool::new(is_speculative)))
    }

    /// Changes the mark, for clones too.
    pub fn set(&self, is_speculative: bool) {
        self.0.store(is_speculative, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl PartialEq for Speculation {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Speculation {}

impl Hash for Speculation {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
