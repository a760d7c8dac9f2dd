//! The fetch thread: reads the blocks of a plan in the order of first need, as far ahead as the budget allows. Blocks
//! that were dealt together and touch are read together, where that costs fewer requests.

use std::{
    fmt,
    iter::Peekable,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use crossbeam_channel::Sender;
use futures::future::join_all;
use tokio::{
    runtime::{self, Runtime},
    sync::oneshot,
    task::{JoinError, JoinHandle, JoinSet, spawn_blocking},
    time::timeout,
};

use super::{
    Extents,
    budget::{Budget, Permit},
};
use crate::{
    Error,
    assembly::block_types::LoadedBlock,
    cache::epoch_cache::EpochCache,
    metrics::Meters,
    order::{Need, PassOrder, RankShare},
    sources::Sources,
};

/// Name of the stage in errors.
pub(crate) const STAGE: &str = "fetch";

/// Longest delay of the thread's end by a read that cannot be cancelled.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// A block that has come, or cannot.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Its use.
    pub(crate) need: Need,
    /// Its content. A failure is reported only when a batch needs the block, so that the batches
    /// before it are delivered no matter how far ahead it was read.
    pub(crate) rows: Result<Arc<LoadedBlock>, Error>,
}

/// Inputs of the fetch thread.
pub(crate) struct Prefetcher {
    pub(crate) sources: Arc<Sources>,
    pub(crate) epoch_cache: Arc<EpochCache>,
    pub(crate) needs: Peekable<Box<dyn Iterator<Item = Need> + Send>>,
    /// Plans for the caches: orders, and the batches they begin with.
    pub(crate) foresee: Vec<(PassOrder, u64)>,
    pub(crate) share: RankShare,
    pub(crate) budget: Arc<Budget>,
    /// Reads that may be under way at one time.
    pub(crate) reads: Arc<AtomicU32>,
    pub(crate) arrived: Sender<Result<Arrival, Error>>,
    /// Ends the thread when its other end is dropped.
    pub(crate) stop: oneshot::Receiver<()>,
    pub(crate) meters: Arc<Meters>,
}

impl Prefetcher {
    /// Fetches until the plan is done, an error has been delivered, or somebody says stop.
    pub(crate) fn run(mut self) {
        let arrived = self.arrived.clone();
        // A receiver that is gone has no use for the error.
        match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let told = self.tell_caches(&runtime);
                if let Err(error) = runtime.block_on(self.fetch_all()) {
                    arrived.send(Err(error)).ok();
                }
                // The next pass relies on these plans. The timer has to be made inside of the
                // runtime.
                runtime
                    .block_on(async { timeout(SHUTDOWN / 2, told).await })
                    .ok();
                runtime.shutdown_timeout(SHUTDOWN);
            }
            Err(source) => {
                arrived
                    .send(Err(Error::Thread {
                        stage: STAGE,
                        source,
                    }))
                    .ok();
            }
        }
    }

    /// Gives the caches the plan of reads, while the first read is under way.
    fn tell_caches(&mut self, runtime: &Runtime) -> JoinHandle<()> {
        let (sources, share) = (Arc::clone(&self.sources), self.share);
        let foresee = std::mem::take(&mut self.foresee);
        runtime.spawn(async move {
            for (order, start) in foresee {
                let planner = Arc::clone(&sources);
                let plan = spawn_blocking(move || planner.plans(order.needs(start, share)));
                let Ok(plans) = plan.await else { return };
                sources.learn(&plans).await;
                let teller = Arc::clone(&sources);
                // After a panic the caches lack the plan, which costs hits.
                spawn_blocking(move || teller.foresee(&plans)).await.ok();
            }
        })
    }

    async fn fetch_all(mut self) -> Result<(), Error> {
        let mut reads = JoinSet::new();
        let mut next = self.next_run();
        while !next.is_empty() || !reads.is_empty() {
            let first = next.first().map_or(0, |need| need.first);
            let bytes = next.iter().map(|need| self.bytes(*need)).sum();
            let may_read = !next.is_empty() && reads.len() < self.reads.load(Relaxed) as usize;
            let since = self.meters.now();
            let is_blocked = reads.is_empty();
            tokio::select! {
                biased;
                _ = &mut self.stop => return Ok(()),
                Some(read) = reads.join_next() => {
                    for arrival in finished(read)? {
                        if self.arrived.send(Ok(arrival)).is_err() {
                            return Ok(());
                        }
                    }
                }
                permit = self.budget.take(first, bytes), if may_read => {
                    self.meters.peak_bytes.raise(permit.held);
                    let (sources, epoch_cache) = (Arc::clone(&self.sources), Arc::clone(&self.epoch_cache));
                    reads.spawn(read_run(sources, epoch_cache, std::mem::take(&mut next), permit));
                    next = self.next_run();
                }
            }
            let timer = match is_blocked {
                true => &self.meters.fetch_blocked,
                false => &self.meters.fetch_busy,
            };
            timer.add(self.meters.since(since));
        }
        // What was read is not to be read again by the next run.
        timeout(SHUTDOWN, self.sources.flush()).await.ok();
        Ok(())
    }

    fn bytes(&self, need: Need) -> u64 {
        self.sources.block_bytes((need.source, need.block))
    }

    /// The next blocks to read, those that are read together; none at the end of the plan.
    fn next_run(&mut self) -> Vec<Need> {
        let mut run: Vec<_> = self.next_unkept().into_iter().collect();
        while let Some(first) = run.first()
            && let Some(next) = self.needs.peek()
            && self.sources.joins(first, run.len(), next)
            && self.epoch_cache.get((next.source, next.block)).is_none()
        {
            run.extend(self.needs.next());
        }
        run
    }

    /// The next block to read. Those in memory from an earlier pass arrive at once.
    fn next_unkept(&mut self) -> Option<Need> {
        loop {
            let need = self.needs.next()?;
            let Some(rows) = self.epoch_cache.get((need.source, need.block)) else {
                return Some(need);
            };
            self.meters.kept_blocks.add(1);
            if self
                .arrived
                .send(Ok(Arrival {
                    need,
                    rows: Ok(rows),
                }))
                .is_err()
            {
                return None;
            }
        }
    }
}

impl fmt::Debug for Prefetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefetcher").finish_non_exhaustive()
    }
}

/// Reads blocks that are of one source, together if there are several.
async fn read_run(
    sources: Arc<Sources>,
    epoch_cache: Arc<EpochCache>,
    run: Vec<Need>,
    mut permit: Permit,
) -> Vec<Arrival> {
    if let [need] = run[..] {
        let extents = sources.extents(need);
        return vec![read(&sources, &epoch_cache, need, permit, extents).await];
    }
    let ahead = sources.read_ahead(&run).await;
    let reads = run.into_iter().map(|need| {
        let part = permit.split(sources.block_bytes((need.source, need.block)));
        read(&sources, &epoch_cache, need, part, &ahead)
    });
    join_all(reads).await
}

async fn read(
    sources: &Sources,
    epoch_cache: &EpochCache,
    need: Need,
    permit: Permit,
    extents: &dyn Extents,
) -> Arrival {
    let rows = sources.load(need, permit, extents).await.map(Arc::new);
    if let Ok(rows) = &rows {
        epoch_cache.put((need.source, need.block), rows);
    }
    Arrival { need, rows }
}

fn finished(read: Result<Vec<Arrival>, JoinError>) -> Result<Vec<Arrival>, Error> {
    read.map_err(|e| Error::Worker {
        stage: STAGE,
        reason: e.to_string(),
    })
}
