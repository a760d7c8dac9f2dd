//! Batches to the device, ahead of the training step.
//!
//! There are a few device buffers and one copy stream, made once and kept for the run. A batch's memory goes through
//! these states, and its state is where it is, as in the ring:
//!
//! ```text
//! Free -> Filling -> Ready      a slab in the loader's ring
//!   Copying                     its lease is in `copies`, until the buffer's event `done` has fired: then Free again
//!   OnDevice                    a `DeviceBatch`, in `ahead` or in the trainer's hands
//!   Consumed                    the buffer is in `free`, its event `consumed` recorded behind the trainer's kernels
//! ```
//!
//! The caller never waits for the device inside an epoch; the streams wait for each other:
//!
//! ```text
//! copy.wait(consumed); copy the parts; copy.record(done)          // when a batch is ready and a buffer free
//! compute.wait(done); the trainer's kernels; compute.record(consumed)
//! ```
//!
//! So the copy of a batch runs beside the step before it, a buffer is not written while kernels read it, and a slab is
//! not filled again while the device reads it. After an error it may be unknown whether a copy still runs; the slabs it
//! reads are then kept for good rather than given back.

use std::{collections::VecDeque, fmt, ops::Range, sync::Arc};

use crossbeam_channel::{Receiver, Sender, bounded};
use serde::Serialize;

use super::{
    DeviceFault, Driver,
    copies::{CopyStream, LandingMemory},
    fault::Health,
};
use crate::Error;

/// Parts of a batch start at multiples of this many bytes of device memory.
pub const PART_ALIGNMENT: usize = 256;

/// Source of the uploader's batches.
pub trait HostBatches: Iterator<Item = Result<Self::Batch, Error>> {
    /// A batch in host memory.
    type Batch: HostBatch;

    /// Returns true if `next` gives a batch, an error or the end without waiting.
    fn is_ready(&mut self) -> bool;
}

/// A batch in host memory. Dropping it frees its memory for the next.
pub trait HostBatch: Send + Sync + 'static {
    /// Description of a batch beside its bytes.
    type Info: fmt::Debug + Send;

    /// Description that the trainer gets with the batch on the device.
    fn info(&self) -> Self::Info;

    /// Parts to copy.
    fn parts(&self) -> Vec<&[u8]>;

    /// Offset at which `part`, one of the parts, is split into two copies, because page-locked
    /// memory ends there: no copy may cross that edge. By default it is not split.
    fn edge(&self, part: &[u8]) -> usize {
        part.len()
    }
}

/// Copies batches to the device, some ahead of the one in use.
///
/// As an iterator it gives the batches in order. An error of the device is given to this and every later call; an error
/// of the loader is given once, behind the batches made before it, and then `None`.
pub struct Uploader<D: Driver, S: HostBatches> {
    /// Empty once it has ended.
    host: Option<S>,
    /// The error it ended with, until that is given.
    host_error: Option<Error>,
    device: Arc<Device<D>>,
    copies: CopyStream<D, S::Batch>,
    free: Buffers<D>,
    /// Batches that are on the device, or will be when their event has fired, oldest first.
    ahead: VecDeque<DeviceBatch<D, <S::Batch as HostBatch>::Info>>,
    totals: UploadTotals,
}

/// Totals of an uploader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UploadTotals {
    /// Batches copied, or being copied.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Times the caller asked for a batch and none was ahead.
    pub starved: u64,
}

/// Free buffers come out of it.
pub(super) type Buffers<D> = Receiver<Arc<LandingMemory<D>>>;

/// State that batches need once they are on the device.
#[derive(Debug)]
pub(super) struct Device<D: Driver> {
    pub(super) compute: D::Stream,
    /// Channel that returns buffers when their batch is dropped.
    back: Sender<Arc<LandingMemory<D>>>,
    pub(super) health: Health,
}

impl<D: Driver, S: HostBatches> Uploader<D, S> {
    /// Allocates `buffers` device buffers of `bytes` bytes each. Kernels that read batches are to be queued to
    /// `compute`.
    ///
    /// Two buffers let one copy run beside the step; three also even out steps of unequal length.
    ///
    /// # Errors
    ///
    /// The device has not enough memory or failed.
    pub fn new(
        driver: Arc<D>,
        compute: D::Stream,
        host: S,
        buffers: u32,
        bytes: usize,
    ) -> Result<Self, Error> {
        let copies = CopyStream::new(&driver, driver.copy_stream()?);
        let (device, free) = Device::new(&driver, compute, Health::default(), buffers, bytes)?;
        Ok(Self::of_parts(host, copies, device, free))
    }

    pub(super) fn of_parts(
        host: S,
        copies: CopyStream<D, S::Batch>,
        device: Arc<Device<D>>,
        free: Buffers<D>,
    ) -> Self {
        Self {
            host: Some(host),
            host_error: None,
            device,
            copies,
            free,
            ahead: VecDeque::new(),
            totals: UploadTotals::default(),
        }
    }

    /// Totals so far.
    #[must_use]
    pub fn totals(&self) -> UploadTotals {
        self.totals
    }

    /// Starts copies for which there is a batch and a buffer, without waiting. Calling it in the middle of a long step
    /// gives slabs back to the loader earlier; calling `next` alone is enough otherwise.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn pump(&mut self) -> Result<(), Error> {
        self.device.health.check()?;
        let reaped = self.copies.reap().map_err(Error::from);
        let result = reaped.and_then(|()| self.read_ahead());
        self.device.health.note(result)
    }

    fn advance(&mut self) -> Result<Option<DeviceBatch<D, Info<S>>>, Error> {
        self.pump()?;
        if self.ahead.is_empty() && self.host.is_some() {
            self.totals.starved += 1;
            let result = self.wait_for_one();
            self.device.health.note(result)?;
        }
        let Some(batch) = self.ahead.pop_front() else {
            return self.host_error.take().map_or(Ok(None), Err);
        };
        let waiting = batch.buffer.await_copy(&self.device.compute);
        self.device.health.note(waiting.map_err(Into::into))?;
        Ok(Some(batch))
    }

    fn read_ahead(&mut self) -> Result<(), Error> {
        while !self.free.is_empty() && self.host.as_mut().is_some_and(S::is_ready) {
            self.take_batch()?;
        }
        Ok(())
    }

    /// Waits for a batch of the loader's.
    fn wait_for_one(&mut self) -> Result<(), Error> {
        if self.free.is_empty() {
            return Err(Error::DeviceBatchesHeld);
        }
        // The loader may be waiting for a slab whose copy is done but was not yet collected.
        // Collecting one is enough for it, and the copies behind continue.
        if self.host.as_mut().is_some_and(|host| !host.is_ready()) {
            self.copies.settle_oldest()?;
        }
        self.take_batch()
    }

    fn take_batch(&mut self) -> Result<(), Error> {
        match self.host.as_mut().and_then(Iterator::next) {
            Some(Ok(batch)) => self.submit(batch),
            ended => {
                self.host_error = ended.and_then(Result::err);
                self.host = None;
                Ok(())
            }
        }
    }

    /// Queues the copies of a batch into a free buffer.
    fn submit(&mut self, batch: S::Batch) -> Result<(), Error> {
        let buffer = self.free.recv().expect("the other end is held here");
        let batch = Arc::new(batch);
        let places = layout(&batch.parts(), buffer.range().len())?;
        self.copies.send(&batch, &places, &buffer)?;
        self.totals.batches += 1;
        self.totals.bytes += places.iter().map(|p| p.len() as u64).sum::<u64>();
        let device = Arc::clone(&self.device);
        self.ahead
            .push_back(DeviceBatch::new(batch.info(), places, buffer, device));
        Ok(())
    }
}

type Info<S> = <<S as HostBatches>::Batch as HostBatch>::Info;

impl<D: Driver, S: HostBatches> Iterator for Uploader<D, S> {
    type Item = Result<DeviceBatch<D, Info<S>>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

impl<D: Driver, S: HostBatches> fmt::Debug for Uploader<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uploader")
            .field("device", &self.device)
            .field("copying", &self.copies.len())
            .field("ahead", &self.ahead.len())
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

impl<D: Driver> Device<D> {
    /// Allocates `buffers` buffers of `bytes` bytes each; they come out of the receiver, and again when their batch is
    /// dropped.
    pub(super) fn new(
        driver: &Arc<D>,
        compute: D::Stream,
        health: Health,
        buffers: u32,
        bytes: usize,
    ) -> Result<(Arc<Self>, Buffers<D>), DeviceFault> {
        let (back, free) = bounded(buffers as usize);
        for _ in 0..buffers {
            let memory = Arc::new(driver.allocate(bytes)?);
            let buffer = LandingMemory::new(driver, &memory, 0..bytes)?;
            // There is room for every one.
            back.try_send(Arc::new(buffer)).ok();
        }
        let device = Self {
            compute,
            back,
            health,
        };
        Ok((Arc::new(device), free))
    }
}

/// A batch in the memory of the device.
///
/// Kernels queued to the stream the uploader was made with find the bytes there; no other work may read them. Dropping
/// it says that all such kernels are queued: the memory is used again when they are done.
pub struct DeviceBatch<D: Driver, I> {
    info: I,
    parts: Vec<Range<usize>>,
    buffer: Arc<LandingMemory<D>>,
    device: Arc<Device<D>>,
}

impl<D: Driver, I> DeviceBatch<D, I> {
    /// A batch whose parts are, or will be, in a buffer of the device's.
    pub(super) fn new(
        info: I,
        parts: Vec<Range<usize>>,
        buffer: Arc<LandingMemory<D>>,
        device: Arc<Device<D>>,
    ) -> Self {
        Self {
            info,
            parts,
            buffer,
            device,
        }
    }

    /// Description by the loader.
    pub fn info(&self) -> &I {
        &self.info
    }

    /// Byte ranges of its parts in [`DeviceBatch::memory`].
    pub fn parts(&self) -> &[Range<usize>] {
        &self.parts
    }

    /// The memory it is stored in.
    pub fn memory(&self) -> &D::Memory {
        self.buffer.memory()
    }
}

impl<D: Driver, I> Drop for DeviceBatch<D, I> {
    fn drop(&mut self) {
        match self.buffer.consume(&self.device.compute) {
            // There is room for every buffer; without an uploader left it is freed instead.
            Ok(()) => drop(self.device.back.try_send(Arc::clone(&self.buffer))),
            Err(fault) => self.device.health.fail(fault),
        }
    }
}

impl<D: Driver, I: fmt::Debug> fmt::Debug for DeviceBatch<D, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBatch")
            .field("info", &self.info)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

/// Places for the parts, one behind another in `bytes` bytes.
fn layout(parts: &[&[u8]], bytes: usize) -> Result<Vec<Range<usize>>, Error> {
    let mut end = 0_usize;
    let mut place = |part: &&[u8]| {
        let start = end.next_multiple_of(PART_ALIGNMENT);
        end = start + part.len();
        start..end
    };
    let places = parts.iter().map(&mut place).collect();
    if end > bytes {
        return Err(DeviceFault::new(
            "copy a batch",
            format!("it needs `{end}` bytes and the device buffers have `{bytes}`"),
        )
        .into());
    }
    Ok(places)
}

#[cfg(test)]
#[path = "uploader_tests.rs"]
mod tests;
