//! Interface of a device's driver for the uploader.
#![expect(
    unsafe_code,
    reason = "a copy continues after the call that started it, which no borrow can express"
)]

use std::{
    fmt,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use feedline_schemas::{Classified, ErrorKind};
use thiserror::Error;

/// The calls to a device's driver that moving batches needs. Streams run their work in order and beside each other;
/// every call but [`Driver::allocate`], [`Driver::settle`] and [`Driver::drain`] returns at once.
///
/// As with CUDA, an error may belong to work that was queued earlier, and once there was one, all later calls may give
/// errors too. [`HostDriver`] is the twin without a device.
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// Memory of the device, freed when dropped. Nothing on the device uses it any more by then.
    type Memory: fmt::Debug + Send + Sync;
    /// A point in a stream. It is complete as long as it was never recorded.
    type Event: fmt::Debug + Send + Sync;
    /// A queue of work. Clones are the same queue.
    type Stream: Clone + fmt::Debug + Send + Sync;

    /// Allocates device memory.
    ///
    /// # Errors
    ///
    /// There is not enough of it, or the device failed.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, DeviceFault>;

    /// Makes an event.
    ///
    /// # Errors
    ///
    /// The device failed.
    fn event(&self) -> Result<Self::Event, DeviceFault>;

    /// Makes a stream whose work goes before that of others.
    ///
    /// # Errors
    ///
    /// The device failed.
    fn copy_stream(&self) -> Result<Self::Stream, DeviceFault>;

    /// Queues a copy of `from` to `to`, from byte `offset` on.
    ///
    /// # Errors
    ///
    /// The device failed; the copy may be under way all the same.
    ///
    /// # Safety
    ///
    /// Until an event recorded behind it in `stream` is complete, or [`Driver::drain`] of the stream has succeeded,
    /// `from` stays where it is, allocated and unchanged, and `to` allocated. `from.len()` bytes fit behind `offset`.
    unsafe fn copy(
        &self,
        from: &[u8],
        to: &Self::Memory,
        offset: usize,
        stream: &Self::Stream,
    ) -> Result<(), DeviceFault>;

    /// Sets `event` to the end of the work that is in `stream` now.
    ///
    /// # Errors
    ///
    /// The device failed.
    fn record(&self, event: &Self::Event, stream: &Self::Stream) -> Result<(), DeviceFault>;

    /// Lets work queued to `stream` from now on wait until what `event` marks now is done. The caller does not wait.
    ///
    /// # Errors
    ///
    /// The device failed.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), DeviceFault>;

    /// Returns true if the work before `event` is done.
    ///
    /// # Errors
    ///
    /// The device failed, and it is not known.
    fn is_complete(&self, event: &Self::Event) -> Result<bool, DeviceFault>;

    /// Waits until the work before `event` is done.
    ///
    /// # Errors
    ///
    /// The device failed, and it is not known whether the work is done.
    fn settle(&self, event: &Self::Event) -> Result<(), DeviceFault>;

    /// Waits until `stream` is empty. Never called inside an epoch.
    ///
    /// # Errors
    ///
    /// The device failed, and it is not known whether work is still under way.
    fn drain(&self, stream: &Self::Stream) -> Result<(), DeviceFault>;
}

/// A device, or its driver, failed. The device's context is lost with most of these; a new process can have another.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("cannot {doing}: {reason}")]
pub struct DeviceFault {
    doing: &'static str,
    reason: String,
}

impl Classified for DeviceFault {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Retry
    }
}

impl DeviceFault {
    /// A fault: what could not be done, and what the driver said.
    #[must_use]
    pub fn new(doing: &'static str, reason: impl Into<String>) -> Self {
        Self {
            doing,
            reason: reason.into(),
        }
    }
}

/// The twin of a device in host memory: every call is done when it returns, and none fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostDriver;

/// Memory of a [`HostDriver`].
#[derive(Debug)]
pub struct HostDriverMemory(pub(super) Mutex<Vec<u8>>);

impl HostDriverMemory {
    /// Copies bytes out.
    ///
    /// # Panics
    ///
    /// `range` is not within the memory.
    #[must_use]
    pub fn to_vec(&self, range: Range<usize>) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[range].to_vec()
    }
}

impl Driver for HostDriver {
    type Memory = HostDriverMemory;
    type Event = ();
    type Stream = ();

    fn allocate(&self, bytes: usize) -> Result<HostDriverMemory, DeviceFault> {
        Ok(HostDriverMemory(Mutex::new(vec![0; bytes])))
    }

    fn event(&self) -> Result<(), DeviceFault> {
        Ok(())
    }

    fn copy_stream(&self) -> Result<(), DeviceFault> {
        Ok(())
    }

    unsafe fn copy(
        &self,
        from: &[u8],
        to: &HostDriverMemory,
        offset: usize,
        (): &(),
    ) -> Result<(), DeviceFault> {
        let mut memory = to.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory[offset..offset + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn record(&self, (): &(), (): &()) -> Result<(), DeviceFault> {
        Ok(())
    }

    fn wait(&self, (): &(), (): &()) -> Result<(), DeviceFault> {
        Ok(())
    }

    fn is_complete(&self, (): &()) -> Result<bool, DeviceFault> {
        Ok(true)
    }

    fn settle(&self, (): &()) -> Result<(), DeviceFault> {
        Ok(())
    }

    fn drain(&self, (): &()) -> Result<(), DeviceFault> {
        Ok(())
    }
}
