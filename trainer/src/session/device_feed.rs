//! Batches on their way to a device, ahead of the steps that compute them.
//!
//! A thread takes batches from the loader and orders their copies on a stream of its own, so they run beside the kernels of
//! the steps before. It waits for the copies of a batch before it takes the next one: by then the device has read the memory
//! of the loader, which is lent to it without a copy in between. A step that uses the numbers waits for their copies on the
//! device itself, as the tensor library orders streams by events.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use burn::tensor::{Device, StreamId};
use feedline_schemas::loader_state::LoaderState;

use crate::{
    data::samples::{Batches, RankBatch, Samples},
    device::{BusBytes, add_bus_bytes, take_bus_bytes},
    error::Error,
    model::{
        engine::ModelEngine,
        input::{ColumnBytes, LentColumns, UploadedBatch},
    },
};

/// Time between two looks for a batch that was used up.
const WAIT: Duration = Duration::from_millis(1);

/// Copies of batches to a device, which run in the order in which they were ordered.
trait CopyQueue {
    /// A batch on the device.
    type Copied: Send;

    /// Orders the copies of a batch, and returns before they have run. The memory that `columns` lends is kept until they
    /// have ended. Panics where the device has failed.
    fn order(&self, samples: Samples<'_>, columns: &dyn ColumnBytes) -> Self::Copied;

    /// Waits for the end of all copies that were ordered before the last flush, and gives back the memory that was lent to
    /// them.
    ///
    /// # Errors
    /// Reason that one of them failed.
    fn flush(&self) -> Result<(), String>;
}

/// The copies of the tensor library, on a stream of their own.
#[derive(Clone, Debug)]
struct DeviceCopies {
    device: Device,
    stream: StreamId,
}

impl CopyQueue for DeviceCopies {
    type Copied = UploadedBatch;

    fn order(&self, samples: Samples<'_>, columns: &dyn ColumnBytes) -> UploadedBatch {
        let order = || UploadedBatch::of(samples, columns, &self.device);
        self.stream.executes(order)
    }

    fn flush(&self) -> Result<(), String> {
        let flushed = self.stream.executes(|| self.device.flush());
        flushed.map_err(|error| error.to_string())
    }
}

/// Settings of the copies to a device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFeed {
    /// The copies to a device; `None` for the processor, or to copy a batch in its step.
    copies: Option<DeviceCopies>,
    /// Batches that are copied before they are asked for.
    ahead: usize,
}

impl DeviceFeed {
    /// Copies `ahead` batches before they are asked for to the device of `engine`, if it is not the processor.
    pub(crate) fn new(engine: &ModelEngine, ahead: u32) -> Self {
        let is_fed = engine.kind().is_gpu() && ahead > 0;
        Self {
            copies: is_fed.then(|| DeviceCopies {
                device: engine.device().clone(),
                stream: engine.copy_stream(),
            }),
            ahead: ahead as usize,
        }
    }

    /// Calls `use_all` with the batches in their order, each with its numbers on the device.
    ///
    /// # Errors
    /// [`Error::Runtime`] if the system gives no thread; what `use_all` says.
    pub(crate) fn feed<B, T>(
        &self,
        batches: Batches<'_, B>,
        use_all: impl FnOnce(&mut dyn Iterator<Item = Result<FedBatch<B>, Error>>) -> Result<T, Error>,
    ) -> Result<T, Error>
    where
        B: RankBatch + Send + Sync + 'static,
    {
        match &self.copies {
            Some(copies) => copy_ahead(copies, self.ahead, batches, use_all),
            None => use_all(&mut batches.map(|batch| batch.map(FedBatch::in_host_memory))),
        }
    }
}

/// Calls `use_all` with batches that a thread copies, `ahead` of them before they are asked for.
fn copy_ahead<B, Q, T>(
    copies: &Q,
    ahead: usize,
    batches: Batches<'_, B>,
    use_all: impl FnOnce(
        &mut dyn Iterator<Item = Result<FedBatch<B, Q::Copied>, Error>>,
    ) -> Result<T, Error>,
) -> Result<T, Error>
where
    B: RankBatch + Send + Sync + 'static,
    Q: CopyQueue + Sync,
{
    thread::scope(|scope| {
        let (copied, fed) = sync_channel(ahead - 1);
        thread::Builder::new()
            .name("device feed".to_owned())
            .spawn_scoped(scope, move || copy_all(batches, copies, &copied))
            .map_err(Error::Runtime)?;
        use_all(&mut Fed(fed))
    })
}

/// Copied batches. Those that are not asked for are dropped with it, which ends the thread.
struct Fed<B, C>(Receiver<Result<FedBatch<B, C>, Error>>);

impl<B, C> Iterator for Fed<B, C> {
    type Item = Result<FedBatch<B, C>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.0.recv().ok()?;
        if let Ok(batch) = &batch {
            add_bus_bytes(batch.bytes);
        }
        Some(batch)
    }
}

/// Copies batches until there are no more, one fails, or none is wanted any more.
fn copy_all<B, Q>(
    mut batches: Batches<'_, B>,
    copies: &Q,
    copied: &SyncSender<Result<FedBatch<B, Q::Copied>, Error>>,
) where
    B: RankBatch + Send + Sync + 'static,
    Q: CopyQueue,
{
    let mut held = Vec::new();
    while let Some(batch) = next_batch(&mut batches, &mut held) {
        let copy = || {
            let in_use = Arc::new(());
            held.push(Arc::downgrade(&in_use));
            let counted = CountedBatch {
                batch: batch?,
                _in_use: in_use,
            };
            FedBatch::copy(counted, copies)
        };
        // The tensor library panics where a device fails.
        let batch = catch_unwind(AssertUnwindSafe(copy)).unwrap_or_else(|panic| {
            Err(Error::Device {
                reason: message(&*panic),
            })
        });
        let failed = batch.is_err();
        if copied.send(batch).is_err() || failed {
            return;
        }
    }
}

/// The next batch. Where the loader has page-locked less memory than it was asked for, a batch that is `held` has to be used
/// up before.
fn next_batch<B>(
    batches: &mut Batches<'_, B>,
    held: &mut Vec<Weak<()>>,
) -> Option<Result<B, Error>> {
    loop {
        // Counted before the loader is asked: one that is used up meanwhile is a reason to ask again.
        let in_use = count_in_use(held);
        let batch = batches.next();
        let asked_early = matches!(
            &batch,
            Some(Err(Error::Loader(
                feedline_loader::Error::BatchesHeld { .. }
            )))
        );
        if !asked_early || in_use == 0 {
            return batch;
        }
        while count_in_use(held) == in_use {
            thread::park_timeout(WAIT);
        }
    }
}

fn count_in_use(held: &mut Vec<Weak<()>>) -> usize {
    held.retain(|batch| batch.strong_count() > 0);
    held.len()
}

/// A batch in memory of the loader, counted as in use until that memory was given back.
#[derive(Debug)]
struct CountedBatch<B> {
    batch: B,
    /// Dropped after `batch`, as the fields of a struct are dropped in their order.
    _in_use: Arc<()>,
}

impl<B: RankBatch> RankBatch for CountedBatch<B> {
    fn samples(&self) -> Samples<'_> {
        self.batch.samples()
    }

    fn keys(&self) -> &[u64] {
        self.batch.keys()
    }

    fn origins(&self) -> &[u64] {
        self.batch.origins()
    }

    fn substituted(&self) -> Vec<usize> {
        self.batch.substituted()
    }

    fn state(&self) -> &LoaderState {
        self.batch.state()
    }

    fn is_page_locked(&self, bytes: &[u8]) -> bool {
        self.batch.is_page_locked(bytes)
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a batch could not be copied to it")
        .to_owned()
}

/// A batch whose numbers are on a device, or in host memory only.
#[derive(Debug)]
pub(crate) struct FedBatch<B, C = UploadedBatch> {
    batch: Arc<CountedBatch<B>>,
    uploaded: Option<C>,
    /// Bytes that crossed the bus for it.
    bytes: BusBytes,
}

impl<B> FedBatch<B> {
    fn in_host_memory(batch: B) -> Self {
        let counted = CountedBatch {
            batch,
            _in_use: Arc::default(),
        };
        Self {
            batch: Arc::new(counted),
            uploaded: None,
            bytes: BusBytes::default(),
        }
    }
}

impl<B: RankBatch + Send + Sync + 'static, C> FedBatch<B, C> {
    /// Copies a batch, and waits until the device has read its memory.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn copy(counted: CountedBatch<B>, copies: &impl CopyQueue<Copied = C>) -> Result<Self, Error> {
        let batch = Arc::new(counted);
        // Subscribers that look at it learn the rate of copies, as `benches/steps.rs` does.
        let span = tracing::debug_span!("copy_batch", bytes = tracing::field::Empty).entered();
        let uploaded = copies.order(batch.samples(), &LentColumns(&batch));
        // The second flush after the copies were ordered waits for their end.
        for _ in 0..2 {
            copies.flush().map_err(|reason| Error::Device { reason })?;
        }
        let bytes = take_bus_bytes();
        span.record("bytes", bytes.uploaded);
        Ok(Self {
            batch,
            uploaded: Some(uploaded),
            bytes,
        })
    }
}

impl<B: RankBatch> RankBatch for FedBatch<B> {
    fn samples(&self) -> Samples<'_> {
        let samples = self.batch.samples();
        match &self.uploaded {
            Some(uploaded) => samples.with_upload(uploaded),
            None => samples,
        }
    }

    fn keys(&self) -> &[u64] {
        self.batch.keys()
    }

    fn origins(&self) -> &[u64] {
        self.batch.origins()
    }

    fn substituted(&self) -> Vec<usize> {
        self.batch.substituted()
    }

    fn state(&self) -> &LoaderState {
        self.batch.state()
    }
}

#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod tests;
