//! Copies to the device that continue after the call that started them.

use std::{
    collections::VecDeque,
    fmt,
    mem::{self, ManuallyDrop},
    ops::Range,
    sync::Arc,
};

use super::{DeviceFault, Driver, HostBatch};

/// One stream of copies, and what it may be reading.
pub(super) struct CopyStream<D: Driver, B> {
    driver: Arc<D>,
    stream: D::Stream,
    /// Oldest first.
    under_way: VecDeque<UnderWay<D, B>>,
}

/// A batch that the device may be reading.
struct UnderWay<D: Driver, B> {
    /// Never looked at again, and behind an `Arc` so that it does not move: the device reads its parts.
    _batch: Arc<B>,
    to: Arc<LandingMemory<D>>,
}

/// Some device memory that batches are copied to, one after another.
pub(super) struct LandingMemory<D: Driver> {
    driver: Arc<D>,
    memory: ManuallyDrop<Arc<D::Memory>>,
    /// The part of the memory it has.
    range: Range<usize>,
    /// The copy to it is done.
    done: D::Event,
    /// The kernels that read it are done.
    consumed: D::Event,
}

impl<D: Driver, B: HostBatch> CopyStream<D, B> {
    pub(super) fn new(driver: &Arc<D>, stream: D::Stream) -> Self {
        Self {
            stream,
            driver: Arc::clone(driver),
            under_way: VecDeque::new(),
        }
    }

    /// Batches that the device may be reading.
    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Queues copies of a batch's parts to their offsets, counted from the start of the landing,
    /// behind the kernels that read the previous content.
    ///
    /// The places must be within the landing.
    pub(super) fn send(
        &mut self,
        batch: &Arc<B>,
        places: &[Range<usize>],
        to: &Arc<LandingMemory<D>>,
    ) -> Result<(), DeviceFault> {
        let parts = batch.parts();
        // From here on the device may be reading the batch, whatever fails.
        self.under_way.push_back(UnderWay {
            _batch: Arc::clone(batch),
            to: Arc::clone(to),
        });
        self.driver.wait(&self.stream, &to.consumed)?;
        for (part, place) in parts.iter().zip(places) {
            assert!(part.len() == place.len() && place.end <= to.range.len());
            let start = to.range.start + place.start;
            let (front, back) = part.split_at(batch.edge(part).min(part.len()));
            for (run, offset) in [(front, start), (back, start + front.len())] {
                if run.is_empty() {
                    continue;
                }
                #[expect(unsafe_code, reason = "the one call that starts a copy")]
                // SAFETY: the batch, and so its parts, which it lends from behind an `Arc`, stays in `under_way` until
                // `done` is complete or the stream is drained, and for good if that fails. The landing keeps its
                // memory until `done` is complete. The part fits.
                unsafe {
                    self.driver.copy(run, &to.memory, offset, &self.stream)?;
                }
            }
        }
        self.driver.record(&to.done, &self.stream)
    }

    /// Lets go of the batches whose copy is done.
    pub(super) fn reap(&mut self) -> Result<(), DeviceFault> {
        while let Some(oldest) = self.under_way.front() {
            if !self.driver.is_complete(&oldest.to.done)? {
                break;
            }
            self.under_way.pop_front();
        }
        Ok(())
    }

    /// Waits for the oldest copy and lets go of its batch.
    pub(super) fn settle_oldest(&mut self) -> Result<(), DeviceFault> {
        if let Some(oldest) = self.under_way.front() {
            self.driver.settle(&oldest.to.done)?;
            self.under_way.pop_front();
        }
        Ok(())
    }
}

impl<D: Driver, B> Drop for CopyStream<D, B> {
    fn drop(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        if let Err(fault) = self.driver.drain(&self.stream) {
            tracing::error!(
                batches = self.under_way.len(), %fault,
                "the device failed and may still be reading batches: their memory is kept until the process ends"
            );
            self.under_way.drain(..).for_each(mem::forget);
        }
    }
}

impl<D: Driver> LandingMemory<D> {
    pub(super) fn new(
        driver: &Arc<D>,
        memory: &Arc<D::Memory>,
        range: Range<usize>,
    ) -> Result<Self, DeviceFault> {
        Ok(Self {
            driver: Arc::clone(driver),
            done: driver.event()?,
            consumed: driver.event()?,
            memory: ManuallyDrop::new(Arc::clone(memory)),
            range,
        })
    }

    pub(super) fn memory(&self) -> &D::Memory {
        &self.memory
    }

    /// The part of the memory it has.
    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Lets kernels queued to `compute` from now on find there what was sent last.
    pub(super) fn await_copy(&self, compute: &D::Stream) -> Result<(), DeviceFault> {
        self.driver.wait(compute, &self.done)
    }

    /// Records that all kernels that read the sent data are in `compute`; the next copy waits for
    /// them. After an error it is not known when they are done: the landing must not be used again,
    /// and its memory is never freed.
    pub(super) fn consume(self: &Arc<Self>, compute: &D::Stream) -> Result<(), DeviceFault> {
        self.driver
            .record(&self.consumed, compute)
            .inspect_err(|_| mem::forget(Arc::clone(self)))
    }
}

impl<D: Driver> Drop for LandingMemory<D> {
    fn drop(&mut self) {
        let settled = self
            .driver
            .settle(&self.done)
            .and_then(|()| self.driver.settle(&self.consumed));
        // After a failure the device may still use it; the context frees it when it is destroyed.
        if settled.is_ok() {
            #[expect(unsafe_code, reason = "freed only where the device is done with it")]
            // SAFETY: nothing uses `memory` after `drop`, and it is dropped once.
            unsafe {
                ManuallyDrop::drop(&mut self.memory);
            }
        }
    }
}

impl<D: Driver> fmt::Debug for LandingMemory<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Landing")
            .field("memory", &*self.memory)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}
