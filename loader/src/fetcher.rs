//! The fetch thread: reads the blocks of a plan in the order of first need, as far ahead as the budget allows.

use std::{sync::Arc, time::Duration};

use crossbeam_channel::Sender;
use tokio::{
    runtime,
    sync::oneshot,
    task::{JoinError, JoinSet},
};

use crate::{
    Error, block::BlockRows, budget::Budget, fetch::Extents, input::Input, metrics::Meters,
    order::Need,
};

/// Name of the stage in errors.
pub(crate) const STAGE: &str = "fetch";

/// Reads under way at one time. One stream of an object store gives a few dozen MB/s, so that many are needed to fill
/// a network; on a local disk they are threads, and more would only queue.
const MOST_READS: usize = 32;

/// How long a read that cannot be called back may hold up the end of the thread.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// A block that has come, or cannot.
pub(crate) struct Arrival {
    /// What it is for.
    pub(crate) need: Need,
    /// Permits it holds.
    pub(crate) bytes: u64,
    /// Its content. A failure is told only when a batch needs the block, so that the batches before it are delivered
    /// no matter how far ahead it was read.
    pub(crate) rows: Result<BlockRows, Error>,
}

/// What the fetch thread works with.
pub(crate) struct Fetcher {
    pub(crate) input: Arc<Input>,
    pub(crate) extents: Arc<dyn Extents>,
    pub(crate) plan: Box<dyn Iterator<Item = (Need, u64)> + Send>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) arrived: Sender<Result<Arrival, Error>>,
    /// Ends the thread when its other end is dropped.
    pub(crate) stop: oneshot::Receiver<()>,
    pub(crate) meters: Arc<Meters>,
}

impl Fetcher {
    /// Fetches until the plan is done, an error has been delivered, or somebody says stop.
    pub(crate) fn run(self) {
        let arrived = self.arrived.clone();
        // A receiver that is gone has no use for the error.
        match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                if let Err(error) = runtime.block_on(self.fetch_all()) {
                    arrived.send(Err(error)).ok();
                }
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

    async fn fetch_all(mut self) -> Result<(), Error> {
        let mut reads = JoinSet::new();
        let mut next = self.plan.next();
        while next.is_some() || !reads.is_empty() {
            let (first, bytes) = next.map_or((0, 0), |(need, bytes)| (need.first, bytes));
            let since = self.meters.now();
            let timer = if reads.is_empty() {
                &self.meters.fetch_blocked
            } else {
                &self.meters.fetch_busy
            };
            tokio::select! {
                biased;
                _ = &mut self.stop => return Ok(()),
                Some(read) = reads.join_next() => {
                    if self.arrived.send(Ok(finished(read)?)).is_err() {
                        return Ok(());
                    }
                }
                held = self.budget.take(first, bytes), if next.is_some() && reads.len() < MOST_READS => {
                    self.meters.peak_bytes.raise(held);
                    if let Some((need, bytes)) = next {
                        reads.spawn(self.read(need, bytes));
                    }
                    next = self.plan.next();
                }
            }
            timer.add(self.meters.now().saturating_sub(since));
        }
        Ok(())
    }

    fn read(&self, need: Need, bytes: u64) -> impl Future<Output = Arrival> + 'static {
        let (input, extents) = (Arc::clone(&self.input), Arc::clone(&self.extents));
        let meters = Arc::clone(&self.meters);
        async move {
            let rows = input.read(need.block, need.first, extents.as_ref()).await;
            if rows.is_ok() {
                meters.blocks.add(1);
                meters.block_bytes.add(bytes);
            }
            Arrival { need, bytes, rows }
        }
    }
}

fn finished(read: Result<Arrival, JoinError>) -> Result<Arrival, Error> {
    read.map_err(|e| Error::Worker {
        stage: STAGE,
        reason: e.to_string(),
    })
}
