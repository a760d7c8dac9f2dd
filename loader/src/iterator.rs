//! The batches of one pass, made ahead by two threads.

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use tokio::sync::oneshot;

use crate::{
    Batch, Error,
    assemble::{self, Assembler, Halt, States},
    budget::Budget,
    fetch::Extents,
    fetcher::{self, Fetcher},
    geometry::Geometry,
    guard::catching,
    input::Input,
    metrics::Meters,
    order::{Order, Share},
    resident::Resident,
    ring::Ring,
    slab::SlabShape,
};

/// The batches of the rest of an epoch, or of a sequential pass, in order.
///
/// Two threads read and assemble ahead of the caller; `next` blocks until a batch is ready. The caller may hold all but one of the loader's batches
/// ([`LoaderConfig::slabs`](crate::LoaderConfig::slabs)) while it asks for the next; holding all of them gives
/// [`Error::BatchesHeld`], after which it may drop one and go on. Any other error ends the iteration: it is given once,
/// then `None`. Dropping the iterator in mid-pass ends its threads, within about a second.
pub struct EpochBatches {
    ready: Option<Receiver<Result<Batch, Error>>>,
    ring: Ring,
    /// Where the ring waits for the next pass.
    home: Arc<Mutex<Option<Ring>>>,
    workers: Option<Workers>,
    remaining: u64,
    meters: Arc<Meters>,
}

/// What a pass is made of.
pub(crate) struct Parts {
    pub(crate) order: Order,
    pub(crate) start: u64,
    pub(crate) share: Share,
    pub(crate) states: States,
    pub(crate) geometry: Arc<Geometry>,
    pub(crate) input: Arc<Input>,
    pub(crate) extents: Arc<dyn Extents>,
    pub(crate) shape: SlabShape,
    pub(crate) prefetch_bytes: u64,
    pub(crate) ring: Ring,
    pub(crate) home: Arc<Mutex<Option<Ring>>>,
    pub(crate) meters: Arc<Meters>,
}

struct Workers {
    /// Nothing is ever sent: dropping it is the signal.
    stop: Sender<Infallible>,
    threads: Vec<JoinHandle<()>>,
}

impl EpochBatches {
    pub(crate) fn start(parts: Parts) -> Result<Self, Error> {
        let remaining = parts.order.batch_count().saturating_sub(parts.start);
        let (ring, home, meters) = (
            parts.ring.clone(),
            Arc::clone(&parts.home),
            Arc::clone(&parts.meters),
        );
        let mut batches = Self {
            ready: None,
            ring,
            home,
            workers: None,
            remaining,
            meters,
        };
        if remaining > 0 {
            batches.start_workers(parts)?;
        }
        Ok(batches)
    }

    fn start_workers(&mut self, parts: Parts) -> Result<(), Error> {
        let budget = Arc::new(Budget::new(parts.prefetch_bytes, parts.start));
        let (arrived_in, arrived) = unbounded();
        // One more than there are slabs: the error that ends a pass never waits.
        let (ready_in, ready) = bounded(self.ring.slabs() as usize + 1);
        let (stop, stopped) = bounded(0);
        let (fetch_stop, fetch_stopped) = oneshot::channel();
        let input = Arc::clone(&parts.input);
        let plan = parts.order.needs(parts.start, parts.share);
        let plan = plan.map(move |need| (need, input.block_bytes(need.block)));
        let fetcher = Fetcher {
            input: parts.input,
            extents: parts.extents,
            plan: Box::new(plan),
            budget: Arc::clone(&budget),
            arrived: arrived_in,
            stop: fetch_stopped,
            meters: Arc::clone(&parts.meters),
        };
        let assembler = Assembler {
            order: parts.order,
            start: parts.start,
            share: parts.share,
            shape: parts.shape,
            states: parts.states,
            resident: Resident::new(parts.geometry.block_count()),
            budget,
            ring: parts.ring,
            arrived,
            ready: ready_in,
            stop: stopped,
            _fetch: fetch_stop,
            meters: parts.meters,
        };
        self.ready = Some(ready);
        let workers = self.workers.insert(Workers {
            stop,
            threads: Vec::new(),
        });
        workers.spawn(fetcher::STAGE, move || run_fetch(fetcher))?;
        workers.spawn(assemble::STAGE, move || run_assemble(assembler))
    }

    /// Batches still to come.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    fn receive(&mut self) -> Result<Batch, Error> {
        let Some(ready) = &self.ready else {
            return Err(assemble_is_gone());
        };
        let since = self.meters.now();
        let received = ready.recv();
        self.meters
            .consumer_wait
            .add(self.meters.now().saturating_sub(since));
        let mut batch = received.unwrap_or_else(|_| Err(assemble_is_gone()))?;
        batch.hand_out(&self.ring);
        Ok(batch)
    }

    /// Ends the threads and waits for them.
    fn finish(&mut self) {
        self.remaining = 0;
        // Batches that nobody will ask for go back to the ring.
        self.ready = None;
        if let Some(Workers { stop, threads }) = self.workers.take() {
            drop(stop);
            for thread in threads {
                // Its panics are caught inside, and there is nobody left to tell.
                thread.join().ok();
            }
        }
    }
}

impl Iterator for EpochBatches {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Result<Batch, Error>> {
        if self.remaining == 0 {
            self.finish();
            return None;
        }
        if self.ring.in_use() >= self.ring.slabs() {
            return Some(Err(Error::BatchesHeld {
                slabs: self.ring.slabs(),
            }));
        }
        let received = self.receive();
        match &received {
            Ok(batch) => {
                self.remaining -= 1;
                self.meters.count(batch);
            }
            Err(_) => self.finish(),
        }
        Some(received)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.remaining).ok())
    }
}

impl Drop for EpochBatches {
    fn drop(&mut self) {
        self.finish();
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.ring.clone());
    }
}

impl fmt::Debug for EpochBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpochBatches")
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

impl Workers {
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

fn run_fetch(fetcher: Fetcher) {
    let arrived = fetcher.arrived.clone();
    if let Err(reason) = catching(move || fetcher.run()) {
        // A receiver that is gone has no use for the error.
        arrived
            .send(Err(Error::Worker {
                stage: fetcher::STAGE,
                reason,
            }))
            .ok();
    }
}

fn run_assemble(assembler: Assembler) {
    let ready = assembler.ready.clone();
    let error = match catching(move || assembler.run()) {
        Ok(Ok(()) | Err(Halt::Stopped)) => return,
        Ok(Err(Halt::Failed(error))) => error,
        Err(reason) => Error::Worker {
            stage: assemble::STAGE,
            reason,
        },
    };
    ready.send(Err(error)).ok();
}

fn assemble_is_gone() -> Error {
    Error::Worker {
        stage: assemble::STAGE,
        reason: "it ended before the last batch".into(),
    }
}
