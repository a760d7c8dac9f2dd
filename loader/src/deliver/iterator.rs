//! The batches of one pass, made ahead by the loader's threads.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, unbounded};
use feedline_schemas::loader_state::LoaderState;
use futures::task::AtomicWaker;
use tokio::sync::oneshot;

use crate::{
    Batch, Error,
    assembly::{
        active_blocks::ActiveBlocks,
        assemble::{self, Assembler, States},
        progress::{Progress, WaitCause},
        ready_queue::{Outcome, ready_queue},
        ring::Ring,
        turns::Turns,
    },
    engine::LoaderEngine,
    fetch::{
        budget::Budget,
        prefetch::{self, Prefetcher},
    },
    guard::catching,
    order::PassOrder,
};

/// Interval at which a waiting caller looks at the clock.
const LOOK: Duration = Duration::from_millis(200);

/// The batches of the rest of an epoch, or of a sequential pass, in order.
///
/// The loader's threads read and fill ahead of the caller; `next` blocks until a batch is ready.
/// The caller may hold all but one of the loader's batches
/// ([`LoaderConfig::slabs`](crate::LoaderConfig::slabs)) while it asks for the next; holding all of
/// them gives [`Error::BatchesHeld`], after which it may drop one and continue. Any other error
/// ends the iteration: it is given once, then `None`. Dropping the iterator in mid-pass ends its
/// threads, within about a second.
pub struct EpochBatches {
    engine: Arc<LoaderEngine>,
    ring: Ring,
    /// The loader's position, if this pass moves it.
    position: Option<Arc<Mutex<LoaderState>>>,
    /// State after the batch handed out last.
    last: Option<LoaderState>,
    next: u64,
    end: u64,
    workers: Option<PassWorkers>,
    /// Batches that were done before their turn.
    early: BTreeMap<u64, Result<Batch, Error>>,
    fatal: Arc<Mutex<Option<Error>>>,
    progress: Arc<Progress>,
    process: u32,
    waited: Duration,
    is_first: bool,
    /// The ring was kept for the next pass: this one takes no more slabs.
    gave_ring: bool,
}

/// Parts of a pass.
pub(crate) struct PassParts {
    pub(crate) engine: Arc<LoaderEngine>,
    pub(crate) order: PassOrder,
    pub(crate) start: u64,
    pub(crate) states: States,
    /// Plans for the caches: orders, and the batches they begin with.
    pub(crate) foresee: Vec<(PassOrder, u64)>,
    pub(crate) position: Option<Arc<Mutex<LoaderState>>>,
}

struct PassWorkers {
    done: Receiver<Outcome>,
    waker: Arc<AtomicWaker>,
    turns: Arc<Turns>,
    /// Nothing is ever sent: dropping it is the signal.
    stop: Sender<Infallible>,
    threads: Vec<JoinHandle<()>>,
}

impl EpochBatches {
    pub(crate) fn start(parts: PassParts) -> Result<Self, Error> {
        let engine = Arc::clone(&parts.engine);
        let mut batches = Self {
            ring: engine.take_ring(),
            engine,
            position: parts.position.clone(),
            last: None,
            next: parts.start,
            end: parts.order.batch_count().max(parts.start),
            workers: None,
            early: BTreeMap::new(),
            fatal: Arc::default(),
            progress: Arc::default(),
            process: std::process::id(),
            waited: Duration::ZERO,
            is_first: true,
            gave_ring: false,
        };
        if batches.remaining() > 0 {
            batches.start_workers(parts)?;
        }
        Ok(batches)
    }

    fn start_workers(&mut self, parts: PassParts) -> Result<(), Error> {
        let engine = &self.engine;
        engine.pool.start()?;
        let budget = Arc::new(Budget::new(engine.prefetch_bytes, parts.start));
        let (arrived_in, arrived) = unbounded();
        let turns = Arc::new(Turns::default());
        let (stop, stopped) = bounded(0);
        let (fetch_stop, fetch_stopped) = oneshot::channel();
        let (ready_queue, done, waker) = ready_queue();
        let prefetcher = Prefetcher {
            sources: Arc::clone(&engine.sources),
            epoch_cache: Arc::clone(&engine.epoch_cache),
            needs: parts.order.needs(parts.start, engine.share).peekable(),
            foresee: parts.foresee,
            share: engine.share,
            budget: Arc::clone(&budget),
            reads: Arc::clone(&engine.reads),
            arrived: arrived_in,
            stop: fetch_stopped,
            meters: Arc::clone(&engine.meters),
        };
        let assembler = Assembler {
            order: parts.order,
            start: parts.start,
            share: engine.share,
            states: parts.states,
            active_blocks: ActiveBlocks::default(),
            budget,
            ring: self.ring.clone(),
            ahead: Arc::clone(&engine.ahead),
            pool: Arc::clone(&engine.pool),
            filler: Arc::clone(&engine.filler),
            arrived,
            done: ready_queue,
            turns: Arc::clone(&turns),
            stop: stopped,
            _fetch: fetch_stop,
            progress: Arc::clone(&self.progress),
            meters: Arc::clone(&engine.meters),
        };
        let fatal = Arc::clone(&self.fatal);
        let workers = self.workers.insert(PassWorkers {
            done,
            waker,
            turns,
            stop,
            threads: Vec::new(),
        });
        workers.spawn(prefetch::STAGE, move || run_prefetch(prefetcher))?;
        workers.spawn(assemble::STAGE, move || {
            run_assemble(assembler, &fatal);
        })
    }

    /// Batches still to come.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.end - self.next
    }

    /// Returns true if `next` gives something other than [`Error::BatchesHeld`], the end included,
    /// without waiting.
    pub fn is_ready(&mut self) -> bool {
        while let Some(workers) = &self.workers
            && let Ok((number, outcome)) = workers.done.try_recv()
        {
            self.early.insert(number, outcome);
        }
        self.remaining() == 0
            || self.ring.in_use() < self.holdable() && self.early.contains_key(&self.next)
    }

    /// Batches that the caller may not hold all of. The ring has more where batches are small.
    fn holdable(&self) -> u32 {
        self.engine.slabs.min(self.ring.slabs())
    }

    /// Moves the loader's position along with this pass.
    pub(crate) fn with_position(mut self, position: Arc<Mutex<LoaderState>>) -> Self {
        self.position = Some(position);
        self
    }

    /// Keeps the ring for the next pass.
    fn give_ring(&mut self) {
        if !std::mem::replace(&mut self.gave_ring, true) {
            self.engine.return_ring(self.ring.clone());
        }
    }

    /// Result that is known before waiting for a batch. `None`: wait.
    fn before_next(&mut self) -> Option<Option<Result<Batch, Error>>> {
        if let (Some(position), Some(state)) = (&self.position, self.last.take()) {
            *position.lock().unwrap_or_else(PoisonError::into_inner) = state;
        }
        if self.remaining() == 0 {
            self.finish();
            return Some(None);
        }
        let used_in = std::process::id();
        if used_in != self.process {
            let started_in = self.process;
            self.finish();
            return Some(Some(Err(Error::Forked {
                started_in,
                used_in,
            })));
        }
        if self.ring.in_use() >= self.holdable() {
            return Some(Some(Err(Error::BatchesHeld {
                slabs: self.holdable(),
            })));
        }
        None
    }

    /// Takes in what is done without waiting; the next batch, if it is there.
    fn poll_done(&mut self) -> Option<Result<Batch, Error>> {
        loop {
            if let Some(outcome) = self.early.remove(&self.next) {
                return Some(outcome);
            }
            let Some(workers) = &self.workers else {
                return Some(Err(self.ended_early()));
            };
            match workers.done.try_recv() {
                Ok((number, outcome)) => {
                    self.early.insert(number, outcome);
                }
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => return Some(Err(self.ended_early())),
            }
        }
    }

    /// As `next`, but does not wait for longer than `most`. [`Poll::Pending`] when no batch was ready by then; ask again.
    /// For callers that must look at something else in between, such as signals.
    ///
    /// # Errors
    /// As `next`: in the place of a batch.
    pub fn next_within(&mut self, most: Duration) -> Poll<Option<Result<Batch, Error>>> {
        if let Some(known) = self.before_next() {
            return Poll::Ready(known);
        }
        match self.wait(Some(most)) {
            Some(outcome) => Poll::Ready(Some(self.after_next(outcome))),
            None => Poll::Pending,
        }
    }

    /// Waits for the next batch; `None` when it has not come after `most`.
    fn wait(&mut self, most: Option<Duration>) -> Option<Result<Batch, Error>> {
        let since = self.engine.meters.now();
        let before = self.waited;
        loop {
            let done = self.poll_done();
            let now = self.engine.meters.since(since);
            self.waited = before + now;
            if done.is_some() {
                return done;
            }
            if self
                .engine
                .stall_timeout
                .is_some_and(|most| self.waited > most)
            {
                return Some(Err(self.stalled(self.waited)));
            }
            if most.is_some_and(|most| now >= most) {
                return None;
            }
            let look = most.map_or(LOOK, |most| LOOK.min(most - now));
            let Some(workers) = &self.workers else {
                return Some(Err(self.ended_early()));
            };
            match workers.done.recv_timeout(look) {
                Ok((number, outcome)) => {
                    self.early.insert(number, outcome);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Some(Err(self.ended_early())),
            }
        }
    }

    /// Books a batch, or the end.
    fn after_next(&mut self, outcome: Result<Batch, Error>) -> Result<Batch, Error> {
        let meters = &self.engine.meters;
        let waited = std::mem::take(&mut self.waited);
        meters.consumer_wait.add(waited);
        if std::mem::take(&mut self.is_first) {
            meters.first_batch.raise(waited);
        }
        match outcome {
            Ok(mut batch) => {
                batch.hand_out(&self.ring);
                if let Some(workers) = &self.workers {
                    workers.turns.give_back();
                }
                self.next += 1;
                let substituted = batch.substituted().count();
                meters.count(
                    batch.rows() as u64,
                    batch.bytes() as u64,
                    substituted as u64,
                );
                meters.truncated_documents.add(batch.truncated() as u64);
                self.last = Some(if self.remaining() == 0 {
                    self.give_ring();
                    self.engine.next_epoch(batch.state())
                } else {
                    batch.state().clone()
                });
                self.engine.control()?;
                Ok(batch)
            }
            Err(error) => {
                self.finish();
                Err(error)
            }
        }
    }

    /// The next batch for an async caller.
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<Option<Result<Batch, Error>>> {
        if let Some(known) = self.before_next() {
            return Poll::Ready(known);
        }
        if let Some(workers) = &self.workers {
            workers.waker.register(context.waker());
        }
        match self.poll_done() {
            Some(outcome) => Poll::Ready(Some(self.after_next(outcome))),
            None => Poll::Pending,
        }
    }

    fn ended_early(&self) -> Error {
        let fatal = self
            .fatal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        fatal.unwrap_or_else(|| Error::Worker {
            stage: assemble::STAGE,
            reason: "it ended before the last batch".into(),
        })
    }

    fn stalled(&self, waited: Duration) -> Error {
        let (stage, detail) = match self.progress.get() {
            Some(WaitCause::Block((source, block))) => (
                prefetch::STAGE,
                format!(
                    "{} has not arrived",
                    self.engine.sources.name(source, block)
                ),
            ),
            Some(WaitCause::Caller) if self.ring.in_use() > 0 => (
                "caller",
                format!("which holds `{}` batches", self.ring.in_use()),
            ),
            _ => (
                crate::assembly::pool::STAGE,
                format!("with `{}` threads at work", self.engine.pool.active()),
            ),
        };
        Error::Stalled {
            rank: self.engine.rank,
            batch: self.next,
            seconds: waited.as_secs(),
            stage,
            detail,
        }
    }

    /// Ends the threads and waits for them.
    fn finish(&mut self) {
        self.end = self.next;
        self.progress.cancel();
        // Batches that are no longer wanted go back to the ring.
        self.early.clear();
        let here = std::process::id() == self.process;
        if let Some(PassWorkers {
            done,
            stop,
            threads,
            turns,
            ..
        }) = self.workers.take()
        {
            drop(stop);
            turns.end();
            // After a fork the threads are those of another process, and waiting for them would never end.
            for thread in threads.into_iter().filter(|_| here) {
                // Its panics are caught inside, and no caller is left to report to.
                thread.join().ok();
            }
            drop(done);
        }
    }
}

impl Iterator for EpochBatches {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Result<Batch, Error>> {
        if let Some(known) = self.before_next() {
            return known;
        }
        self.wait(None).map(|outcome| self.after_next(outcome))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.remaining()).ok())
    }
}

impl Drop for EpochBatches {
    fn drop(&mut self) {
        self.finish();
        self.give_ring();
    }
}

impl fmt::Debug for EpochBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpochBatches")
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl PassWorkers {
    fn spawn(
        &mut self,
        stage: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), Error> {
        let thread = thread::Builder::new()
            .name(format!("feedline-{stage}"))
            .spawn(work)
            .map_err(|source| Error::Thread { stage, source })?;
        self.threads.push(thread);
        Ok(())
    }
}

fn run_prefetch(prefetcher: Prefetcher) {
    let arrived = prefetcher.arrived.clone();
    if let Err(reason) = catching(move || prefetcher.run()) {
        // A receiver that is gone has no use for the error.
        arrived
            .send(Err(Error::Worker {
                stage: prefetch::STAGE,
                reason,
            }))
            .ok();
    }
}

/// Runs the assembler. A panic is reported after all batches that are under way.
fn run_assemble(assembler: Assembler, fatal: &Mutex<Option<Error>>) {
    // Closed only when the reason is known.
    let open = assembler.done.clone();
    if let Err(reason) = catching(move || assembler.run()) {
        let error = Error::Worker {
            stage: assemble::STAGE,
            reason,
        };
        *fatal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
    drop(open);
}

#[cfg(test)]
mod tests {
    use feedline_storage::{Store, clock::SystemClock};

    use super::*;
    use crate::{Loader, LoaderConfig, Seed, Split, dataset::publish_train};

    #[tokio::test]
    async fn fault_34_a_pass_used_after_a_fork_is_refused_and_waits_for_nobody() {
        let store = Store::memory();
        publish_train(&store, &[&[40; 8]]).await;
        let config = LoaderConfig::new(Split::Train, Seed::new(1), 16);
        let loader = Loader::open(&store, &config, Arc::new(SystemClock))
            .await
            .unwrap();
        let mut batches = loader.batches().unwrap();
        assert!(batches.next().unwrap().is_ok());
        // What a child sees: the memory of its parent, in another process.
        let parent = batches.process + 1;
        batches.process = parent;
        let error = batches.next().unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Forked { started_in, used_in } if started_in == parent && used_in == parent - 1)
        );
        assert!(
            error.to_string().contains("open the loader after the fork"),
            "{error}"
        );
        assert!(batches.next().is_none());
    }
}
