//! State that a pass waits in, for its waiting caller.

use super::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use crate::source_block::SourceBlock;

/// Cause of a wait of the assemble thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitCause {
    /// A block that has not been read yet.
    Block(SourceBlock),
    /// The caller has to take or drop a batch.
    Caller,
}

/// Cause of the current wait of a pass's assemble thread, if any, and the cancelled flag.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    waiting: Mutex<Option<WaitCause>>,
    cancelled: AtomicBool,
}

/// Until dropped, something is waited for.
#[derive(Debug)]
pub(crate) struct WaitGuard<'a>(&'a Progress);

impl Progress {
    /// Notes that `what` is waited for.
    pub(crate) fn wait(&self, what: WaitCause) -> WaitGuard<'_> {
        self.set(Some(what));
        WaitGuard(self)
    }

    /// Cause of the current wait.
    pub(crate) fn get(&self) -> Option<WaitCause> {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that the caller is gone: what is not begun need not be done.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// Returns true if the caller is gone.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    fn set(&self, what: Option<WaitCause>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}
