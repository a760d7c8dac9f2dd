//! Page-locking of memory that is already there.

use std::fmt;

use feedline_schemas::{Classified, ErrorKind};
use thiserror::Error;

/// Page-locks host memory, so that a device can copy from it directly and without waiting for the processor.
///
/// The loader asks for it once per slab when it is opened, never inside an epoch. With feature `cuda` there is one for
/// NVIDIA GPUs; others can be had by implementing this trait over a driver of one's own.
pub trait HostLock: fmt::Debug + Send + Sync {
    /// Locks `bytes` bytes from `address` on. Both are multiples of 64 KiB. The memory stays allocated, at this
    /// address, until [`HostLock::unlock`] has returned, and no part of it is locked already.
    ///
    /// # Errors
    ///
    /// The system may refuse: a limit on locked memory, too little memory, no device. Nothing is locked then.
    fn lock(&self, address: usize, bytes: usize) -> Result<(), LockRefused>;

    /// Unlocks what was locked at `address`. The caller made sure that no device reads it any more.
    fn unlock(&self, address: usize);
}

/// Reason that memory could not be page-locked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct LockRefused {
    /// Message of the system.
    pub reason: String,
}

impl Classified for LockRefused {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Retry
    }
}

impl LockRefused {
    /// A refusal with its reason.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}
