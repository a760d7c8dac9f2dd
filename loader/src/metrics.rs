//! Times and counts of a loader.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use feedline_storage::clock::Clock;
use serde::Serialize;

use crate::{
    cache::CacheCounters,
    count::Count,
    device::Pinning,
    fetch::{FetchMeters, FetchMetrics},
};

/// Totals of a loader since it was opened, over all of its passes.
///
/// Reading them together is not atomic: one stage may be a batch ahead of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LoaderMetrics {
    /// Reading blocks and checking them. It never starves: the plan of what to read is always ahead. Blocked: the
    /// budget of bytes is used up.
    pub fetch: StageMetrics,
    /// Seconds of the fetch stage's busy time that went into checksums.
    pub check_seconds: f64,
    /// Planning batches. Starved: waiting for a block. Blocked: waiting for the caller to drop a batch.
    pub assemble: StageMetrics,
    /// Filling batches: copying rows and tokens, decoding images. Summed over the threads. Starved: no batch to
    /// fill.
    pub decode: StageMetrics,
    /// Seconds the caller waited for a batch: what the loader cost the trainer.
    pub consumer_wait_seconds: f64,
    /// Seconds the caller waited for the first batch of the pass that waited longest for it.
    pub first_batch_seconds: f64,
    /// Batches handed out.
    pub batches: u64,
    /// Samples handed out.
    pub samples: u64,
    /// Bytes of the batches handed out: features or pixels or tokens, and targets.
    pub batch_bytes: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Bytes of the blocks read.
    pub block_bytes: u64,
    /// Blocks that were still in memory from an earlier pass.
    pub kept_blocks: u64,
    /// Blocks and shard heads that had to be asked for a second time because they were damaged; requests that failed are
    /// counted in `fetches`.
    pub refetches: u64,
    /// Most bytes of blocks that were in memory or on their way at one time.
    pub peak_bytes: u64,
    /// Samples of the dataset that could not be used so far, they or their block; see
    /// [`Loader::quarantine`](crate::Loader::quarantine).
    pub quarantined: u64,
    /// Rows handed out with another sample in the place of one that could not be used, over all passes; see
    /// [`Batch::substituted`](crate::Batch::substituted). Rows in the place of those of a damaged block are among them.
    pub substituted: u64,
    /// Rows handed out that hold the beginning of a longer document, over all passes; see
    /// [`TokenLayout::Documents`](crate::TokenLayout::Documents).
    pub truncated_documents: u64,
    /// Shards that were left out when the loader was opened because their files are incomplete; see
    /// [`BadShards`](crate::BadShards).
    pub skipped_shards: u64,
    /// Rows in them.
    pub skipped_samples: u64,
    /// The disk cache.
    pub cache: CacheMetrics,
    /// Threads that may fill batches now.
    pub decode_threads: u32,
    /// Reads that may be under way at one time.
    pub reads: u32,
    /// Batches that may be filled or ready at one time.
    pub slabs_ahead: u32,
    /// Extent of page-locking of the batches' memory for a device.
    pub pinning: Pinning,
    /// Reading extents from the stores, without what came from a cache.
    pub fetches: FetchMetrics,
}

/// Counters of the disk cache; all zero without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheMetrics {
    /// Extents that came from the disk.
    pub hits: u64,
    /// Bytes of them.
    pub hit_bytes: u64,
    /// Extents that were not in the cache.
    pub misses: u64,
    /// Bytes written to the disk.
    pub stored_bytes: u64,
    /// Extents removed to make room.
    pub evictions: u64,
    /// Extents that another process was fetching, and that were waited for.
    pub waits: u64,
    /// Files that were dropped because they were not what was written.
    pub damaged: u64,
    /// Extents that were fetched and not kept.
    pub passed: u64,
}

impl CacheMetrics {
    /// These and those of another cache.
    pub(crate) fn plus(self, cache: &CacheCounters) -> Self {
        Self {
            hits: self.hits + cache.hits.get(),
            hit_bytes: self.hit_bytes + cache.hit_bytes.get(),
            misses: self.misses + cache.misses.get(),
            stored_bytes: self.stored_bytes + cache.stored_bytes.get(),
            evictions: self.evictions + cache.evictions.get(),
            waits: self.waits + cache.waits.get(),
            damaged: self.damaged + cache.damaged.get(),
            passed: self.passed + cache.passed.get(),
        }
    }
}

/// Seconds of one stage, on the clock the loader was opened with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StageMetrics {
    /// Seconds at work.
    pub busy_seconds: f64,
    /// Seconds without work to do, because the stage before is slower.
    pub starved_seconds: f64,
    /// Seconds without room for the result, because the stage behind is slower.
    pub blocked_seconds: f64,
}

/// The running totals, shared by the threads of a loader.
#[derive(Debug)]
pub(crate) struct Meters {
    clock: Arc<dyn Clock>,
    pub(crate) fetches: FetchMeters,
    pub(crate) fetch_busy: Timer,
    pub(crate) fetch_blocked: Timer,
    pub(crate) check: Timer,
    pub(crate) assemble_busy: Timer,
    pub(crate) assemble_starved: Timer,
    pub(crate) assemble_blocked: Timer,
    pub(crate) decode_busy: Timer,
    pub(crate) decode_starved: Timer,
    pub(crate) consumer_wait: Timer,
    pub(crate) first_batch: Timer,
    pub(crate) batches: Count,
    pub(crate) samples: Count,
    pub(crate) batch_bytes: Count,
    pub(crate) blocks: Count,
    pub(crate) block_bytes: Count,
    pub(crate) kept_blocks: Count,
    pub(crate) refetches: Count,
    pub(crate) peak_bytes: Count,
    pub(crate) quarantined: Count,
    pub(crate) substituted: Count,
    pub(crate) truncated_documents: Count,
    pub(crate) skipped_shards: Count,
    pub(crate) skipped_samples: Count,
}

/// Time spent, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Timer(AtomicU64);

impl Timer {
    pub(crate) fn add(&self, time: Duration) {
        self.0.fetch_add(nanoseconds(time), Relaxed);
    }

    pub(crate) fn raise(&self, to: Duration) {
        self.0.fetch_max(nanoseconds(to), Relaxed);
    }

    pub(crate) fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }

    fn seconds(&self) -> f64 {
        self.total().as_secs_f64()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Meters {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            fetches: FetchMeters::default(),
            fetch_busy: Timer::default(),
            fetch_blocked: Timer::default(),
            check: Timer::default(),
            assemble_busy: Timer::default(),
            assemble_starved: Timer::default(),
            assemble_blocked: Timer::default(),
            decode_busy: Timer::default(),
            decode_starved: Timer::default(),
            consumer_wait: Timer::default(),
            first_batch: Timer::default(),
            batches: Count::default(),
            samples: Count::default(),
            batch_bytes: Count::default(),
            blocks: Count::default(),
            block_bytes: Count::default(),
            kept_blocks: Count::default(),
            refetches: Count::default(),
            peak_bytes: Count::default(),
            quarantined: Count::default(),
            substituted: Count::default(),
            truncated_documents: Count::default(),
            skipped_shards: Count::default(),
            skipped_samples: Count::default(),
        }
    }

    /// The clock's time.
    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Time since `since`.
    pub(crate) fn since(&self, since: Duration) -> Duration {
        self.now().saturating_sub(since)
    }

    /// Runs `work` and adds the time it took to `timer`.
    pub(crate) fn time<T>(&self, timer: &Timer, work: impl FnOnce() -> T) -> T {
        let start = self.now();
        let result = work();
        timer.add(self.since(start));
        result
    }

    /// Counts a batch that is handed out, of whose rows some are substituted.
    pub(crate) fn count(&self, rows: u64, bytes: u64, substituted: u64) {
        self.batches.add(1);
        self.samples.add(rows);
        self.batch_bytes.add(bytes);
        self.substituted.add(substituted);
    }

    /// Everything but what others count: threads, reads, slabs and second reads.
    pub(crate) fn totals(&self) -> LoaderMetrics {
        LoaderMetrics {
            fetch: StageMetrics {
                busy_seconds: self.fetch_busy.seconds(),
                starved_seconds: 0.0,
                blocked_seconds: self.fetch_blocked.seconds(),
            },
            check_seconds: self.check.seconds(),
            assemble: StageMetrics {
                busy_seconds: self.assemble_busy.seconds(),
                starved_seconds: self.assemble_starved.seconds(),
                blocked_seconds: self.assemble_blocked.seconds(),
            },
            decode: StageMetrics {
                busy_seconds: self.decode_busy.seconds(),
                starved_seconds: self.decode_starved.seconds(),
                blocked_seconds: 0.0,
            },
            consumer_wait_seconds: self.consumer_wait.seconds(),
            first_batch_seconds: self.first_batch.seconds(),
            batches: self.batches.get(),
            samples: self.samples.get(),
            batch_bytes: self.batch_bytes.get(),
            blocks: self.blocks.get(),
            block_bytes: self.block_bytes.get(),
            kept_blocks: self.kept_blocks.get(),
            refetches: self.refetches.get(),
            peak_bytes: self.peak_bytes.get(),
            quarantined: self.quarantined.get(),
            substituted: self.substituted.get(),
            truncated_documents: self.truncated_documents.get(),
            skipped_shards: self.skipped_shards.get(),
            skipped_samples: self.skipped_samples.get(),
            cache: CacheMetrics::default(),
            decode_threads: 0,
            reads: 0,
            slabs_ahead: 0,
            pinning: Pinning::default(),
            fetches: self.fetches.totals(),
        }
    }
}
