//! Batches that are built on the device, from blocks in its memory.
//!
//! ```text
//! assemble thread   gives slots to blocks, and has the pool note the places of each batch's rows in a slab
//! upload thread     block -> staging -> copy stream -> slot of the window          records `done`
//! caller            places -> copy stream -> device; compute waits for `done` of its blocks and places;
//!                   gather kernel -> a device buffer; compute records `consumed` of slots that no later batch reads
//! ```
//!
//! The kernels run in the trainer's own stream, so a device buffer needs no event: what wrote it and what reads it are
//! queued one behind the other.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use crossbeam_channel::{Receiver, Sender};
use feedline_schemas::manifest::TargetKind;

use super::{
    BatchInfo, DeviceBatch, Driver, Gather, HostBatch, HostBatches, PART_ALIGNMENT, UploadTotals,
    Uploader,
    feed::Feeder,
    fit::DeviceFit,
    slots::Leave,
    staging::STAGE,
    uploader::{Buffers, Device},
    window::DeviceWindow,
};
use crate::{
    Batch, BatchKind, EpochBatches, Error, assembly::fill::PlaceKind, engine::LoaderEngine,
};

/// Positions of the rows of batches, batch by batch.
pub(super) struct PlaceBatches(pub(super) EpochBatches);

/// Positions of the rows of one batch.
pub(super) struct PlaceBatch(Batch);

/// Description of a batch before it is built.
#[derive(Debug)]
pub(super) struct PlaceInfo {
    batch: BatchInfo,
    /// The last upload it reads.
    uploads: u64,
}

impl HostBatch for PlaceBatch {
    type Info = PlaceInfo;

    fn info(&self) -> PlaceInfo {
        PlaceInfo {
            batch: self.0.info(),
            uploads: self.0.uploads(),
        }
    }

    fn parts(&self) -> Vec<&[u8]> {
        self.0.parts()
    }

    fn edge(&self, part: &[u8]) -> usize {
        self.0.edge(part)
    }
}

impl Iterator for PlaceBatches {
    type Item = Result<PlaceBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|batch| batch.map(PlaceBatch))
    }
}

impl HostBatches for PlaceBatches {
    type Batch = PlaceBatch;

    fn is_ready(&mut self) -> bool {
        self.0.is_ready()
    }
}

/// Builds the batches of a pass.
pub(super) struct GatheredBatches<D: Gather> {
    /// Before all else: dropping it ends the threads of the pass, and then the upload thread has nothing to wait for.
    pub(super) places: Option<Uploader<D, PlaceBatches>>,
    pub(super) feeder: FeederHandle,
    pub(super) engine: Arc<LoaderEngine>,
    pub(super) fit: DeviceFit,
    /// Device that builds the batches.
    pub(super) device: Arc<Device<D>>,
    pub(super) buffers: Buffers<D>,
    pub(super) reader: WindowReader<D>,
    /// Places for which there was no buffer.
    pub(super) waiting: Option<DeviceBatch<D, PlaceInfo>>,
    /// Number of the next batch.
    pub(super) next: u64,
    /// Last: kernels that use it may run until the memory above is given back.
    pub(super) kernels: D::Kernels,
}

/// The upload thread, from outside.
pub(super) struct FeederHandle {
    thread: Option<JoinHandle<()>>,
    bytes: Arc<AtomicU64>,
    process: u32,
}

impl FeederHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub(super) fn start<D: Driver>(feeder: Feeder<D>) -> Result<Self, Error> {
        let bytes = Arc::clone(&feeder.bytes);
        let thread = thread::Builder::new()
            .name(format!("feedline-{STAGE}"))
            .spawn(move || feeder.run())
            .map_err(|source| Error::Thread {
                stage: STAGE,
                source,
            })?;
        Ok(Self {
            thread: Some(thread),
            bytes,
            process: std::process::id(),
        })
    }
}

/// The caller's side of the window.
pub(super) struct WindowReader<D: Gather> {
    window: Arc<DeviceWindow<D>>,
    compute: D::Stream,
    landed: Receiver<Result<u32, Error>>,
    leaves: Receiver<Leave>,
    freed: Option<Sender<u32>>,
    /// Uploads that kernels from now on wait for.
    awaited: u64,
    /// Batches whose kernels are queued.
    launched: u64,
    /// Slots with such an upload, which kernels may be reading.
    held: Vec<bool>,
    /// Slots to be freed that are not yet.
    leaving: Vec<Leave>,
}

impl<D: Gather> GatheredBatches<D> {
    /// Totals of the copies, of places and blocks.
    pub(super) fn totals(&self) -> UploadTotals {
        let places = self.places.as_ref().map(Uploader::totals);
        let places = places.unwrap_or_default();
        UploadTotals {
            bytes: places.bytes + self.feeder.bytes.load(Relaxed),
            ..places
        }
    }

    /// Starts copies of places for which there is room, without waiting.
    pub(super) fn pump(&mut self) -> Result<(), Error> {
        self.device.health.check()?;
        self.places.as_mut().map_or(Ok(()), Uploader::pump)
    }

    /// The next batch.
    pub(super) fn advance(&mut self) -> Result<Option<DeviceBatch<D, BatchInfo>>, Error> {
        self.device.health.check()?;
        let Some(places) = &mut self.places else {
            return Ok(None);
        };
        let waiting = match self.waiting.take() {
            Some(waiting) => Some(waiting),
            None => places.next().transpose()?,
        };
        let Some(places) = waiting else {
            return Ok(None);
        };
        if self.buffers.is_empty() {
            self.waiting = Some(places);
            return Err(Error::DeviceBatchesHeld);
        }
        let built = self.build(places);
        if !matches!(built, Ok(_) | Err(Error::Device { .. })) {
            // An error that is not the device's is given once.
            self.places = None;
        }
        self.device.health.note(built).map(Some)
    }

    fn build(
        &mut self,
        places: DeviceBatch<D, PlaceInfo>,
    ) -> Result<DeviceBatch<D, BatchInfo>, Error> {
        let since = self.engine.meters.now();
        let awaited = self.reader.await_uploads(places.info().uploads);
        let meters = &self.engine.meters;
        meters.consumer_wait.add(meters.since(since));
        awaited?;
        let info = BatchInfo {
            kind: self.engine.filler.kind,
            target: self.engine.filler.target,
            ..places.info().batch.clone()
        };
        let parts = parts(info.kind, info.target, info.rows);
        let bytes: usize = parts.iter().map(Range::len).sum();
        let noted: usize = places.parts().iter().map(Range::len).sum();
        meters.batch_bytes.add(bytes.saturating_sub(noted) as u64);
        let buffer = self.buffers.recv().expect("the other end is held here");
        // From here on the buffer is given back behind the kernels that are queued, whatever fails.
        let batch = DeviceBatch::new(info, parts, buffer, Arc::clone(&self.device));
        if let Some(noted) = places.parts().first() {
            self.gather((places.memory(), noted.clone()), &batch)?;
        }
        drop(places);
        self.next += 1;
        self.reader.let_go(self.next)?;
        Ok(batch)
    }

    /// Queues the kernels.
    fn gather(
        &self,
        places: (&D::Memory, Range<usize>),
        batch: &DeviceBatch<D, BatchInfo>,
    ) -> Result<(), Error> {
        let Some(window) = self.reader.window.memory() else {
            return Ok(());
        };
        for (number, part) in batch.parts().iter().enumerate() {
            let column = self.fit.column(number, &self.reader.window);
            let (places, out) = (places.clone(), (batch.memory(), part.clone()));
            let (kernels, compute) = (&self.kernels, &self.reader.compute);
            match self.fit.places {
                PlaceKind::Row => D::gather_rows(kernels, compute, window, &column, places, out)?,
                PlaceKind::Tokens { .. } => {
                    let pad = self
                        .engine
                        .filler
                        .tokens
                        .map_or(0, |tokens| tokens.padding_id);
                    D::gather_tokens(kernels, compute, window, &column, places, pad, out)?;
                }
            }
        }
        Ok(())
    }
}

/// Byte ranges of the parts of a batch of `rows` rows; those without bytes are left out.
pub(super) fn parts(kind: BatchKind, target: TargetKind, rows: usize) -> Vec<Range<usize>> {
    let mut end = 0_usize;
    let place = |bytes: usize| {
        let start = end.next_multiple_of(PART_ALIGNMENT);
        end = start + bytes;
        start..end
    };
    let bytes = kind.row_bytes(target).map(|bytes| bytes * rows);
    bytes
        .into_iter()
        .filter(|bytes| *bytes > 0)
        .map(place)
        .collect()
}

impl<D: Gather> WindowReader<D> {
    pub(super) fn new(
        window: Arc<DeviceWindow<D>>,
        compute: D::Stream,
        landed: Receiver<Result<u32, Error>>,
        leaves: Receiver<Leave>,
        freed: Sender<u32>,
    ) -> Self {
        Self {
            held: vec![false; window.slots() as usize],
            window,
            compute,
            landed,
            leaves,
            freed: Some(freed),
            awaited: 0,
            launched: 0,
            leaving: Vec::new(),
        }
    }

    /// Lets kernels queued from now on find what uploads up to `upload` bring. Waits until these copies are queued, not
    /// until they are done.
    fn await_uploads(&mut self, upload: u64) -> Result<(), Error> {
        while self.awaited < upload {
            let slot = self.landed.recv().unwrap_or_else(|_| {
                Err(Error::Worker {
                    stage: STAGE,
                    reason: "it ended before every block was sent".into(),
                })
            })?;
            self.held[slot as usize] = true;
            self.window.await_copy(slot, &self.compute)?;
            self.awaited += 1;
            self.free()?;
        }
        Ok(())
    }

    /// Frees the slots that no batch from `next` on reads, as far as their upload is known of. All kernels of the batches
    /// before are queued.
    fn let_go(&mut self, next: u64) -> Result<(), Error> {
        self.launched = next;
        self.leaving.extend(self.leaves.try_iter());
        self.free()
    }

    fn free(&mut self) -> Result<(), Error> {
        let (launched, awaited) = (self.launched, self.awaited);
        let is_over = |leave: &mut Leave| leave.batch < launched && leave.upload <= awaited;
        for Leave { slot, .. } in self.leaving.extract_if(.., is_over) {
            self.held[slot as usize] = false;
            self.window.consume(slot, &self.compute)?;
            if let Some(freed) = &self.freed {
                // An upload thread that is gone has nothing to send there.
                freed.send(slot).ok();
            }
        }
        Ok(())
    }
}

impl<D: Gather> Drop for WindowReader<D> {
    /// Kernels may still read slots that were not freed.
    fn drop(&mut self) {
        let held = (0..).zip(&self.held).filter(|(_, held)| **held);
        for (slot, _) in held {
            // After an error the slot keeps its memory for good.
            self.window.consume(slot, &self.compute).ok();
        }
    }
}

impl<D: Gather> Drop for GatheredBatches<D> {
    fn drop(&mut self) {
        self.places = None;
        self.reader.freed = None;
        // After a fork the thread is that of another process, and waiting for it would never end.
        let here = std::process::id() == self.feeder.process;
        if let Some(thread) = self.feeder.thread.take().filter(|_| here) {
            // Its panics are caught inside.
            thread.join().ok();
        }
    }
}

impl<D: Gather> fmt::Debug for GatheredBatches<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathered")
            .field("next", &self.next)
            .field("fit", &self.fit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "gathered_tests/mod.rs"]
mod tests;
