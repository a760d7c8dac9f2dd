//! The assemble thread: finds out what each batch holds, waits until that is in memory, and has the pool fill it.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use crossbeam_channel::{Receiver, select};
use feedline_schemas::{ids::Step, loader_state::LoaderState};
use tokio::sync::oneshot;

use super::{
    active_blocks::ActiveBlocks,
    batch_task::BatchTask,
    block_types::LoadedRun,
    fill::{FillScratch, Filler},
    mixup_plan::MixupPlan,
    pool::ThreadPool,
    progress::{Progress, WaitCause},
    ready_queue::ReadyQueue,
    ring::{Ring, SlabLease},
    turns::{AwaitedTurn, Turns},
};
use crate::{
    Error, TokenLayout,
    deliver::batch::Place,
    fetch::{
        budget::Budget,
        prefetch::{self, Arrival},
    },
    index::index,
    metrics::Meters,
    order::{Cursor, PassOrder, RankShare, ShuffleWindow, SlotRun},
    source_block::SourceBlock,
};

/// Name of the stage in errors.
pub(crate) const STAGE: &str = "assemble";

/// Inputs of the assemble thread.
pub(crate) struct Assembler {
    pub(crate) order: PassOrder,
    pub(crate) start: u64,
    pub(crate) share: RankShare,
    pub(crate) states: States,
    pub(crate) active_blocks: ActiveBlocks,
    pub(crate) budget: Arc<Budget>,
    pub(crate) ring: Ring,
    /// Batches that may be filled or ready at one time.
    pub(crate) ahead: Arc<AtomicU32>,
    pub(crate) pool: Arc<ThreadPool<FillScratch>>,
    pub(crate) filler: Arc<Filler>,
    pub(crate) arrived: Receiver<Result<Arrival, Error>>,
    pub(crate) done: ReadyQueue,
    /// Batches under way, which the caller counts down.
    pub(crate) turns: Arc<Turns>,
    /// Ends the thread when its other end is dropped.
    pub(crate) stop: Receiver<Infallible>,
    /// Dropped with the assembler, which ends the fetch thread.
    pub(crate) _fetch: oneshot::Sender<()>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) meters: Arc<Meters>,
}

/// Source of the state that a batch carries.
#[derive(Debug)]
pub(crate) enum States {
    /// The one after it.
    Advance(LoaderState),
    /// Always the same: the pass moves no position.
    Stay(LoaderState),
}

/// Reason of an early end of the thread.
enum Halt {
    Stopped,
    Failed(Error),
}

impl Assembler {
    /// Assembles until the pass is over or something ends it. An error comes in place of its batch.
    pub(crate) fn run(mut self) {
        let mut cursor = self.order.cursor();
        let mut runs = Vec::new();
        for batch in self.start..self.order.batch_count() {
            match self.assemble(&mut cursor, batch, &mut runs) {
                Ok(()) => {}
                Err(Halt::Stopped) => return,
                Err(Halt::Failed(error)) => return self.done.send((batch, Err(error))),
            }
        }
    }

    fn assemble(
        &mut self,
        cursor: &mut Cursor,
        batch: u64,
        runs: &mut Vec<SlotRun>,
    ) -> Result<(), Halt> {
        let since = self.meters.now();
        self.budget.demand(batch);
        while let Ok(arrival) = self.arrived.try_recv() {
            self.active_blocks.insert(arrival.map_err(Halt::Failed)?);
        }
        let all = self.order.slots(batch);
        let slots = self.share.slots(all);
        let padding = padding(&slots, self.order.rows(batch));
        let place = Place {
            first_row: index(slots.start),
            global_rows: index(all),
        };
        let mixing = self.mixing(batch, all);
        let slots = match &mixing {
            Some(_) => self.share.reads(all),
            None => slots,
        };
        let rows = index(slots.end - slots.start);
        runs.clear();
        cursor.runs(batch, slots, runs);
        let mut waited = Duration::ZERO;
        let loaded = self.load(runs, &mut waited)?;
        waited += self.wait_for_turn()?;
        let (lease, blocked) = self.free_slab()?;
        waited += blocked;
        let task_rows = match &mixing {
            // A pair.
            Some(_) => 2,
            None => self.filler.kind.task_rows(rows, self.pool.active()),
        };
        BatchTask {
            number: batch,
            rows,
            padding,
            place,
            mixing,
            state: self.states.after(batch),
            lease,
            filler: Arc::clone(&self.filler),
            done: self.done.clone(),
            progress: Arc::clone(&self.progress),
        }
        .submit(&self.pool, self.ring.shape(), loaded, task_rows);
        self.active_blocks.release(batch);
        self.meters
            .assemble_busy
            .add(self.meters.since(since).saturating_sub(waited));
        Ok(())
    }

    /// Mixing of a batch of `slots`; `None` where it is not mixed.
    fn mixing(&self, batch: u64, slots: u64) -> Option<MixupPlan> {
        let States::Advance(state) = &self.states else {
            return None;
        };
        let key = (self.filler.seed, state.epoch.get(), batch);
        MixupPlan::new(self.filler.images.as_ref()?, key, slots, self.share)
    }

    /// The runs with their windows in memory. Waits for the blocks that they need.
    fn load(&mut self, runs: &[SlotRun], waited: &mut Duration) -> Result<Vec<LoadedRun>, Halt> {
        let mut loaded: Vec<LoadedRun> = Vec::with_capacity(runs.len());
        let mut slots = 0;
        for run in runs {
            debug_assert_eq!(index(run.slot.into()), slots, "runs are in slot order");
            let window = match self.active_blocks.whole_window(&run.window) {
                Some(window) => Arc::clone(window),
                None => {
                    *waited += self.wait_for_run(run)?;
                    self.active_blocks.window(&run.window)
                }
            };
            let run = LoadedRun {
                window,
                positions: run.positions.clone(),
            };
            slots += run.len();
            loaded.push(run);
        }
        Ok(loaded)
    }

    /// Waits for the blocks that a run reads from.
    fn wait_for_run(&mut self, run: &SlotRun) -> Result<Duration, Halt> {
        let window = &run.window;
        let positions = run.positions.clone();
        let mut waited = Duration::ZERO;
        match self.filler.tokens.map(|tokens| tokens.layout) {
            None | Some(TokenLayout::Documents) => {
                let mut places = Vec::new();
                window.places(positions, &mut places);
                let blocks: BTreeSet<u32> = places.iter().map(|place| place.block).collect();
                for block in blocks {
                    waited += self.wait_for(window, block)?;
                }
            }
            Some(TokenLayout::Packed | TokenLayout::PackedOverlapping) => {
                for piece in positions.flat_map(|position| window.bin(position)) {
                    waited += self.wait_for(window, piece.block)?;
                }
            }
            Some(TokenLayout::Stream | TokenLayout::Filled) => {
                let mut places = Vec::new();
                window.token_places(positions, &mut places);
                for place in places {
                    let end = u64::from(place.start) + u64::from(place.tokens);
                    let (mut block, mut tokens) = (Some(place.block), 0);
                    while tokens < end
                        && let Some(number) = block
                    {
                        waited += self.wait_for(window, number)?;
                        tokens += self.active_blocks.tokens(source_block(window, number));
                        block = window.next_block(number);
                    }
                }
            }
        }
        Ok(waited)
    }

    fn wait_for(&mut self, window: &ShuffleWindow, block: u32) -> Result<Duration, Halt> {
        let block = source_block(window, block);
        if self.active_blocks.has(block) {
            return Ok(Duration::ZERO);
        }
        let since = self.meters.now();
        let waiting = self.progress.wait(WaitCause::Block(block));
        while !self.active_blocks.has(block) {
            if let Some(error) = self.active_blocks.take_failure(block) {
                return Err(Halt::Failed(error));
            }
            let arrival = select! {
                recv(self.arrived) -> arrival => arrival.unwrap_or_else(|_| Err(fetch_is_gone())),
                recv(self.stop) -> _ => return Err(Halt::Stopped),
            };
            self.active_blocks.insert(arrival.map_err(Halt::Failed)?);
        }
        drop(waiting);
        let time = self.meters.since(since);
        self.meters.assemble_starved.add(time);
        Ok(time)
    }

    /// Waits until no more batches are under way than may be.
    fn wait_for_turn(&self) -> Result<Duration, Halt> {
        // One slab is for the batch that the caller holds.
        let room = self.ring.slabs().saturating_sub(1);
        let most = self.ahead.load(Relaxed).min(room).max(1);
        let at_once = self.turns.try_take(most);
        let since = self.meters.now();
        let turn = at_once.unwrap_or_else(|| {
            let _waiting = self.progress.wait(WaitCause::Caller);
            self.turns.take(most)
        });
        if turn == AwaitedTurn::Over {
            return Err(Halt::Stopped);
        }
        if at_once.is_some() {
            return Ok(Duration::ZERO);
        }
        let time = self.meters.since(since);
        self.meters.assemble_blocked.add(time);
        Ok(time)
    }

    fn free_slab(&self) -> Result<(SlabLease, Duration), Halt> {
        if let Ok(slab) = self.ring.free().try_recv() {
            return Ok((self.ring.lease(slab), Duration::ZERO));
        }
        let since = self.meters.now();
        let _waiting = self.progress.wait(WaitCause::Caller);
        let slab = select! {
            recv(self.ring.free()) -> slab => slab.map_err(|_| Halt::Stopped)?,
            recv(self.stop) -> _ => return Err(Halt::Stopped),
        };
        let time = self.meters.since(since);
        self.meters.assemble_blocked.add(time);
        Ok((self.ring.lease(slab), time))
    }
}

/// The block with a number in a window.
fn source_block(window: &ShuffleWindow, number: u32) -> SourceBlock {
    (window.source, window.blocks[number as usize])
}

/// Number of `slots` at or after `samples`.
fn padding(slots: &Range<u64>, samples: u64) -> usize {
    index(slots.end.saturating_sub(samples.max(slots.start)))
}

impl States {
    fn after(&self, batch: u64) -> LoaderState {
        match self {
            Self::Advance(state) => LoaderState {
                batch: Step::new(batch).next(),
                ..state.clone()
            },
            Self::Stay(state) => state.clone(),
        }
    }
}

fn fetch_is_gone() -> Error {
    Error::Worker {
        stage: prefetch::STAGE,
        reason: "it ended before every block was read".into(),
    }
}
