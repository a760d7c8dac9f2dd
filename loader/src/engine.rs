//! State that the passes of a loader share: inputs, threads, slabs, knobs and meters.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicU32, Ordering::Relaxed},
};
use std::{ops::Range, time::Duration};

use feedline_schemas::{ids::Step, loader_state::LoaderState};

use crate::{
    Error, LoaderConfig, LoaderMetrics,
    assembly::{
        fill::{FillScratch, Filler},
        pool::ThreadPool,
        ring::Ring,
        slab::SlabShape,
    },
    autotune::{Controller, Knobs, Totals},
    cache::epoch_cache::EpochCache,
    device::{HostLock, Pinning},
    metrics::Meters,
    order::RankShare,
    sources::Sources,
};

/// Reads under way before the controller has learnt more.
const FIRST_READS: u32 = 32;

/// Batches filled or ready at one time before the controller has learnt more: three, or as many small ones as fill
/// the time that a thread may wait for its turn on a busy processor, about 4 MiB.
fn first_ahead(shape: SlabShape) -> u32 {
    let bytes = shape.rows * shape.row_bytes.iter().sum::<usize>();
    u32::try_from((4 << 20) / bytes.max(1)).map_or(3, |count| count.max(3))
}

/// Bytes that the slabs of small batches take together, and the most that they are.
const SMALL_RING: u64 = 4 << 20;
const MOST_SMALL: u32 = 64;

/// Slabs of a ring: as many as are configured, or more of small batches, so that the assemble thread is seldom woken. They
/// are few enough that the blocks of all batches ahead are a small part of those that may be held.
fn ring_slabs(config: &LoaderConfig, shape: SlabShape) -> u32 {
    let bytes = shape.rows * shape.row_bytes.iter().sum::<usize>();
    let room = SMALL_RING.min(config.prefetch_bytes / 64);
    let small = u32::try_from(room / (bytes as u64).max(1)).unwrap_or(u32::MAX);
    small.min(MOST_SMALL).max(config.slabs)
}

/// Shared by the passes of a loader, one after the other or side by side.
#[derive(Debug)]
pub(crate) struct LoaderEngine {
    pub(crate) sources: Arc<Sources>,
    pub(crate) epoch_cache: Arc<EpochCache>,
    pub(crate) filler: Arc<Filler>,
    pub(crate) pool: Arc<ThreadPool<FillScratch>>,
    pub(crate) share: RankShare,
    pub(crate) rank: u32,
    pub(crate) prefetch_bytes: u64,
    pub(crate) stall_timeout: Option<Duration>,
    /// Reads that may be under way at one time.
    pub(crate) reads: Arc<AtomicU32>,
    /// Batches that may be filled or ready at one time.
    pub(crate) ahead: Arc<AtomicU32>,
    pub(crate) meters: Arc<Meters>,
    controller: Mutex<Controller>,
    /// One past the last epoch that the caches know of.
    foreseen: Mutex<u64>,
    shape: SlabShape,
    /// Batches that can be filled, ready or in use, as configured.
    pub(crate) slabs: u32,
    /// Slabs of a ring: more than `slabs` where batches are small.
    ring_slabs: u32,
    /// Page-locks slabs.
    lock: OnceLock<Arc<dyn HostLock>>,
    /// Extent of page-locking of the newest ring.
    pinning: Mutex<Pinning>,
    /// The ring of the last pass that ended, for the next.
    spare: Mutex<Option<Ring>>,
}

impl LoaderEngine {
    /// The engine of a loader with these parts.
    pub(crate) fn new(
        config: &LoaderConfig,
        share: RankShare,
        rows: usize,
        sources: Sources,
        filler: Filler,
        epoch_cache: EpochCache,
    ) -> Self {
        let meters = Arc::clone(&sources.meters);
        let shape = SlabShape {
            rows,
            row_bytes: filler.row_bytes(),
        };
        let ring_slabs = ring_slabs(config, shape);
        let most = Knobs {
            reads: config.reads,
            threads: u32::try_from(config.most_threads()).unwrap_or(u32::MAX),
            ahead: (ring_slabs - 1).max(1),
        };
        let knobs = Knobs {
            reads: FIRST_READS.min(most.reads),
            ahead: most.ahead.min(first_ahead(shape)),
            ..most
        };
        let threads = config.most_threads();
        Self {
            shape,
            sources: Arc::new(sources),
            epoch_cache: Arc::new(epoch_cache),
            filler: Arc::new(filler),
            pool: Arc::new(ThreadPool::new(threads, threads, Arc::clone(&meters))),
            share,
            rank: config.rank.get(),
            prefetch_bytes: config.prefetch_bytes,
            stall_timeout: config.stall_timeout,
            reads: Arc::new(AtomicU32::new(knobs.reads)),
            ahead: Arc::new(AtomicU32::new(knobs.ahead)),
            meters,
            controller: Mutex::new(Controller::new(knobs, most)),
            slabs: config.slabs,
            ring_slabs,
            foreseen: Mutex::default(),
            lock: OnceLock::new(),
            pinning: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    /// The ring of an earlier pass; a new one at first, and while another pass uses it.
    pub(crate) fn take_ring(&self) -> Ring {
        let spare = self.spare().take();
        spare.unwrap_or_else(|| {
            let lock = self.lock.get();
            let slabs = match lock {
                // Memory that can be page-locked is scarce.
                Some(_) => self.slabs,
                None => self.ring_slabs,
            };
            let ring = Ring::new(self.shape, slabs, lock);
            *self.pinning.lock().unwrap_or_else(PoisonError::into_inner) = ring.pinning();
            ring
        })
    }

    /// Page-locks the rings that are made from now on. Says whether it is the first to do so; only that one counts.
    pub(crate) fn lock_slabs(&self, lock: Arc<dyn HostLock>) -> bool {
        self.lock.set(lock).is_ok()
    }

    /// Those of epoch `epoch` and the next one that the caches do not know of, when the former
    /// begins.
    pub(crate) fn unforeseen(&self, epoch: u64) -> Range<u64> {
        if !self.sources.has_cache() {
            return 0..0;
        }
        let mut foreseen = self.foreseen.lock().unwrap_or_else(PoisonError::into_inner);
        let first = if *foreseen == epoch + 1 {
            epoch + 1
        } else {
            epoch
        };
        *foreseen = epoch + 2;
        first..epoch + 2
    }

    /// Keeps a ring for the next pass.
    pub(crate) fn return_ring(&self, ring: Ring) {
        *self.spare() = Some(ring);
    }

    /// The state before the first batch of the epoch after that of `state`.
    pub(crate) fn next_epoch(&self, state: &LoaderState) -> LoaderState {
        LoaderState {
            epoch: state.epoch.next(),
            batch: Step::new(0),
            ..state.clone()
        }
    }

    /// Moves a knob, when it is time to.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub(crate) fn control(&self) -> Result<(), Error> {
        let now = self.meters.now();
        let mut controller = self
            .controller
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !controller.is_due(now) {
            return Ok(());
        }
        let before = controller.knobs();
        let knobs = controller.decide(Totals {
            now,
            consumer_wait: self.meters.consumer_wait.total(),
            block_wait: self.meters.assemble_starved.total(),
            budget_wait: self.meters.fetch_blocked.total(),
            slab_wait: self.meters.assemble_blocked.total(),
            busy: self.meters.decode_busy.total(),
        });
        drop(controller);
        if knobs == before {
            return Ok(());
        }
        tracing::debug!(?before, ?knobs, "moved a knob of the loader");
        self.reads.store(knobs.reads, Relaxed);
        self.ahead.store(knobs.ahead, Relaxed);
        self.pool.set_active(knobs.threads as usize)
    }

    /// Metrics of all passes so far.
    pub(crate) fn metrics(&self) -> LoaderMetrics {
        LoaderMetrics {
            refetches: self.meters.refetches.get() + self.sources.rereads(),
            cache: self.sources.cache_metrics(),
            decode_threads: u32::try_from(self.pool.active()).unwrap_or(u32::MAX),
            reads: self.reads.load(Relaxed),
            slabs_ahead: self.ahead.load(Relaxed),
            pinning: *self.pinning.lock().unwrap_or_else(PoisonError::into_inner),
            ..self.meters.totals()
        }
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, Option<Ring>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
