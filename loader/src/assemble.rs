//! The assemble thread: copies the rows of each batch from the blocks in memory straight into a slab.

use std::{convert::Infallible, ops::Range, sync::Arc, time::Duration};

use arrow::buffer::ScalarBuffer;
use crossbeam_channel::{Receiver, Sender, select};
use feedline_schemas::{ids::Step, loader_state::LoaderState};
use tokio::sync::oneshot;

use crate::{
    Batch, Error,
    block::{BlockRows, BlockTarget, DenseRows},
    budget::Budget,
    fetcher::{self, Arrival},
    geometry::BlockId,
    metrics::Meters,
    order::{Cursor, Order, Run, Share, WindowPlace},
    resident::Resident,
    ring::{Lease, Ring},
    slab::{Slab, SlabShape, SlabTarget},
};

/// Name of the stage in errors.
pub(crate) const STAGE: &str = "assemble";

/// What the assemble thread works with.
pub(crate) struct Assembler {
    pub(crate) order: Order,
    pub(crate) start: u64,
    pub(crate) share: Share,
    pub(crate) shape: SlabShape,
    pub(crate) states: States,
    pub(crate) resident: Resident,
    pub(crate) budget: Arc<Budget>,
    pub(crate) ring: Ring,
    pub(crate) arrived: Receiver<Result<Arrival, Error>>,
    pub(crate) ready: Sender<Result<Batch, Error>>,
    /// Ends the thread when its other end is dropped.
    pub(crate) stop: Receiver<Infallible>,
    /// Dropped with the assembler, which ends the fetch thread.
    pub(crate) _fetch: oneshot::Sender<()>,
    pub(crate) meters: Arc<Meters>,
}

/// Which state a batch carries.
#[derive(Debug)]
pub(crate) enum States {
    /// The one after it.
    Advance(LoaderState),
    /// Always the same: the pass moves no position.
    Stay(LoaderState),
}

/// Why the thread ends early.
pub(crate) enum Halt {
    Stopped,
    Failed(Error),
}

impl Assembler {
    /// Assembles until the pass is over or something ends it.
    pub(crate) fn run(mut self) -> Result<(), Halt> {
        let mut lookup = Lookup {
            cursor: self.order.cursor(),
            runs: Vec::new(),
            in_window: Vec::new(),
        };
        let mut places = Vec::new();
        for batch in self.start..self.order.batch_count() {
            let since = self.meters.now();
            let mut waited = self.place(&mut lookup, batch, &mut places)?;
            let (mut lease, blocked) = self.free_slab()?;
            waited += blocked;
            fill(
                lease.slab_mut(),
                self.shape.features,
                self.resident.rows(),
                &places,
            );
            self.resident.release(batch, &self.budget);
            let batch = Batch::new(
                lease,
                places.len(),
                self.shape.features,
                self.states.after(batch),
            );
            self.meters
                .assemble_busy
                .add(self.meters.now().saturating_sub(since + waited));
            if self.ready.send(Ok(batch)).is_err() {
                return Err(Halt::Stopped);
            }
        }
        Ok(())
    }

    /// Finds the places of a batch, with the seats of their blocks in place of the blocks' ids. Returns the time spent
    /// waiting for blocks.
    fn place(
        &mut self,
        lookup: &mut Lookup,
        batch: u64,
        places: &mut Vec<Place>,
    ) -> Result<Duration, Halt> {
        self.budget.demand(batch);
        while let Ok(arrival) = self.arrived.try_recv() {
            self.resident
                .insert(arrival.map_err(Halt::Failed)?, &self.budget);
        }
        places.clear();
        lookup.append(batch, self.share.slots(self.order.slots(batch)), places);
        let mut waited = Duration::ZERO;
        for place in places {
            place.block = match self.resident.seat(place.block) {
                Some(seat) => seat,
                None => self.wait_for(place.block, &mut waited)?,
            };
        }
        Ok(waited)
    }

    fn wait_for(&mut self, block: BlockId, waited: &mut Duration) -> Result<u32, Halt> {
        let since = self.meters.now();
        let seat = loop {
            if let Some(error) = self.resident.take_failure(block) {
                return Err(Halt::Failed(error));
            }
            if let Some(seat) = self.resident.seat(block) {
                break seat;
            }
            let arrival = select! {
                recv(self.arrived) -> arrival => arrival.unwrap_or_else(|_| Err(fetch_is_gone())),
                recv(self.stop) -> _ => return Err(Halt::Stopped),
            };
            self.resident
                .insert(arrival.map_err(Halt::Failed)?, &self.budget);
        };
        let time = self.meters.now().saturating_sub(since);
        self.meters.assemble_starved.add(time);
        *waited += time;
        Ok(seat)
    }

    fn free_slab(&self) -> Result<(Lease, Duration), Halt> {
        if let Ok(slab) = self.ring.free().try_recv() {
            return Ok((self.ring.lease(slab), Duration::ZERO));
        }
        let since = self.meters.now();
        let slab = select! {
            recv(self.ring.free()) -> slab => slab.map_err(|_| Halt::Stopped)?,
            recv(self.stop) -> _ => return Err(Halt::Stopped),
        };
        let time = self.meters.now().saturating_sub(since);
        self.meters.assemble_blocked.add(time);
        Ok((self.ring.lease(slab), time))
    }
}

/// Where a sample lies.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Block, or its seat.
    block: u32,
    /// Row in the block.
    row: u32,
}

/// Finds the places of a batch's samples.
struct Lookup {
    cursor: Cursor,
    runs: Vec<Run>,
    in_window: Vec<WindowPlace>,
}

impl Lookup {
    /// Appends to `places` where the samples in `slots` lie, in slot order.
    fn append(&mut self, batch: u64, slots: Range<u64>, places: &mut Vec<Place>) {
        self.runs.clear();
        self.cursor.runs(batch, slots, &mut self.runs);
        let first = places.len();
        for run in &self.runs {
            debug_assert_eq!(places.len() - first, run.slot as usize);
            self.in_window.clear();
            run.window
                .places(run.positions.clone(), &mut self.in_window);
            places.extend(self.in_window.iter().map(|place| Place {
                block: run.window.blocks[place.block as usize],
                row: place.row,
            }));
        }
    }
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
        stage: fetcher::STAGE,
        reason: "it ended before every block was read".into(),
    }
}

/// Copies the rows at `places`, whose blocks are seats in `blocks`, to the front of `slab`. Column by column, so that
/// each loop is short enough for the processor to have many cache misses under way at once.
fn fill(slab: &mut Slab, features: usize, blocks: &[BlockRows], places: &[Place]) {
    for (to, place) in slab.x.as_mut_slice().chunks_exact_mut(features).zip(places) {
        let start = place.row as usize * features;
        to.copy_from_slice(&dense(&blocks[place.block as usize]).x[start..start + features]);
    }
    match &mut slab.y {
        SlabTarget::None => {}
        SlabTarget::Regression(to) => {
            gather(to.as_mut_slice(), blocks, places, |block| match &block.y {
                BlockTarget::Regression(y) => y,
                _ => unreachable!("blocks are decoded by the layout that the slab was made for"),
            })
        }
        SlabTarget::Classification(to) => {
            gather(to.as_mut_slice(), blocks, places, |block| match &block.y {
                BlockTarget::Classification(y) => y,
                _ => unreachable!("blocks are decoded by the layout that the slab was made for"),
            })
        }
    }
    gather(slab.keys.as_mut_slice(), blocks, places, |block| {
        &block.keys
    });
    gather(slab.origins.as_mut_slice(), blocks, places, |block| {
        &block.origins
    });
}

fn gather<T: arrow::datatypes::ArrowNativeType>(
    to: &mut [T],
    blocks: &[BlockRows],
    places: &[Place],
    column: impl Fn(&DenseRows) -> &ScalarBuffer<T>,
) {
    for (to, place) in to.iter_mut().zip(places) {
        *to = column(dense(&blocks[place.block as usize]))[place.row as usize];
    }
}

fn dense(rows: &BlockRows) -> &DenseRows {
    rows.as_dense()
        .expect("a loader opens splits of numbers only")
}
