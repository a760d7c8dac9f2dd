//! A batch while it is being filled.

use std::fmt;

use feedline_schemas::loader_state::LoaderState;

use super::{
    block_types::LoadedRun,
    fill::{FillScratch, Filled, Filler},
    mixup_plan::MixupPlan,
    pool::{self, ThreadPool},
    progress::Progress,
    ready_queue::ReadyQueue,
    ring::SlabLease,
    slab::{SlabPiece, SlabShape},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::AcqRel},
    },
};
use crate::{
    Batch, Error,
    deliver::batch::{BatchParts, Place},
    guard::catching,
};

/// A batch to be filled.
pub(crate) struct BatchTask {
    pub(crate) number: u64,
    /// Rows to fill.
    pub(crate) rows: usize,
    pub(crate) padding: usize,
    pub(crate) place: Place,
    pub(crate) mixing: Option<MixupPlan>,
    pub(crate) state: LoaderState,
    pub(crate) lease: SlabLease,
    pub(crate) filler: Arc<Filler>,
    pub(crate) done: ReadyQueue,
    pub(crate) progress: Arc<Progress>,
}

/// State that the tasks of a batch share.
struct SharedBatch {
    filler: Arc<Filler>,
    progress: Arc<Progress>,
    number: u64,
    mixing: Option<MixupPlan>,
    done: ReadyQueue,
    /// Tasks that are not done.
    left: AtomicUsize,
    /// Taken by the last task.
    rest: Mutex<Option<Rest>>,
}

/// Everything of a batch that waits for the last task.
struct Rest {
    lease: SlabLease,
    rows: usize,
    padding: usize,
    place: Place,
    state: LoaderState,
    pieces: Vec<SlabPiece>,
    filled: Vec<Filled>,
    failure: Option<Error>,
}

impl BatchTask {
    /// Cuts the batch into tasks of `task_rows` rows and gives them to the pool. The last one sends the batch.
    pub(crate) fn submit(
        mut self,
        pool: &ThreadPool<FillScratch>,
        shape: SlabShape,
        runs: Vec<LoadedRun>,
        task_rows: usize,
    ) {
        let sizes = (0..self.rows)
            .step_by(task_rows)
            .map(|first| task_rows.min(self.rows - first));
        let pieces = self.lease.slab_mut().split(shape, sizes);
        let tasks = pieces.len();
        let shared = Arc::new(SharedBatch {
            filler: self.filler,
            progress: self.progress,
            number: self.number,
            mixing: self.mixing,
            done: self.done,
            left: AtomicUsize::new(tasks),
            rest: Mutex::new(Some(Rest {
                lease: self.lease,
                rows: self.rows,
                padding: self.padding,
                place: self.place,
                state: self.state,
                pieces: Vec::with_capacity(tasks),
                filled: Vec::with_capacity(tasks),
                failure: None,
            })),
        });
        if tasks == 0 {
            shared.finish();
            return;
        }
        let mut runs = Cutter::new(runs);
        pool.submit(pieces.into_iter().map(|piece| {
            let (shared, runs) = (Arc::clone(&shared), runs.take(piece.rows));
            let task: Box<dyn FnOnce(&mut FillScratch) + Send> =
                Box::new(move |scratch| shared.fill(piece, runs, scratch));
            task
        }));
    }
}

impl SharedBatch {
    fn fill(&self, mut piece: SlabPiece, runs: Vec<LoadedRun>, scratch: &mut FillScratch) {
        // Whatever happens inside, the piece goes back.
        let filled = catching(|| {
            if self.progress.is_cancelled() {
                return Ok(Filled::default());
            }
            self.filler
                .fill(&mut piece, runs, self.mixing.as_ref(), scratch)
        });
        let filled = filled.unwrap_or_else(|reason| {
            *scratch = FillScratch::default();
            Err(Error::Worker {
                stage: pool::STAGE,
                reason,
            })
        });
        if let Some(rest) = &mut *self.rest() {
            rest.pieces.push(piece);
            match filled {
                Ok(filled) => rest.filled.push(filled),
                Err(error) => rest.failure = Some(error),
            }
        }
        if self.left.fetch_sub(1, AcqRel) == 1 {
            self.finish();
        }
    }

    fn finish(&self) {
        let Some(mut rest) = self.rest().take() else {
            return;
        };
        rest.lease.slab_mut().join(rest.pieces);
        rest.filled.sort_by_key(Filled::first);
        let outcome = match rest.failure {
            Some(error) => Err(error),
            None => Ok(Batch::new(BatchParts {
                lease: rest.lease,
                kind: self.filler.kind,
                target: self.filler.target,
                rows: rest.rows,
                row_bytes: self.filler.row_bytes(),
                mixing: self.mixing.clone(),
                padding: rest.padding,
                place: rest.place,
                state: rest.state,
                filled: rest.filled,
            })),
        };
        self.done.send((self.number, outcome));
    }

    fn rest(&self) -> MutexGuard<'_, Option<Rest>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedBatch {
    /// When tasks were dropped undone, their pieces of the slab are gone.
    fn drop(&mut self) {
        if let Some(rest) = self.rest().take() {
            rest.lease.discard();
            let reason = "it dropped a task".into();
            self.done.send((
                self.number,
                Err(Error::Worker {
                    stage: pool::STAGE,
                    reason,
                }),
            ));
        }
    }
}

/// Hands out runs by numbers of slots.
struct Cutter {
    runs: std::vec::IntoIter<LoadedRun>,
    current: Option<LoadedRun>,
}

impl Cutter {
    fn new(runs: Vec<LoadedRun>) -> Self {
        let mut runs = runs.into_iter();
        let current = runs.next();
        Self { runs, current }
    }

    /// The runs of the next `slots` slots.
    fn take(&mut self, slots: usize) -> Vec<LoadedRun> {
        let mut taken = Vec::new();
        let mut left = slots as u64;
        while left > 0
            && let Some(run) = &mut self.current
        {
            let end = run.positions.end.min(run.positions.start + left);
            left -= end - run.positions.start;
            if end == run.positions.end {
                taken.extend(std::mem::replace(&mut self.current, self.runs.next()));
            } else {
                taken.push(LoadedRun {
                    window: Arc::clone(&run.window),
                    positions: run.positions.start..end,
                });
                run.positions.start = end;
            }
        }
        taken
    }
}

impl fmt::Debug for BatchTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchTask")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
