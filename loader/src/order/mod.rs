//! The order of a pass: a pure function of the sources' geometry, the seed, the epoch and the step.
//!
//! Two levels, so that a batch mixes samples from many places while only a bounded window of blocks is in memory.
//! Version 2, with `G` the global batch, `D` domains and `W` units (extents) per window:
//!
//! ```text
//! deal     unit PRP(i) of the source is the i-th that is dealt; its n samples, counted in this order, are cut into D
//!          domains whose sizes differ by one sample at most
//! window   a domain's units in runs of W, the last of every second domain first; the first run of domain d is cut to
//!          ceil((d + 1) * W / D) units, so that domains change windows at different steps
//! shuffle  position i of a window with m samples holds its sample PRP(i), counted in dealt order
//! epoch    sample p of 0..n is the next one of the domain whose turn is p % D
//! step t   samples [t * G, (t + 1) * G) fill the slots of the global batch, those of domain 0 first
//! ```
//!
//! So every sample is in exactly one slot of one batch, and the world size appears nowhere. A rank's share of a batch
//! is a run of neighbouring slots and so reads few domains, whether or not `D` divides `G`.
//!
//! `D` is the largest number up to the configured domains for which there are enough samples in a batch and enough
//! units. Windows then grow by the same factor: how well a batch is mixed depends on the number of units in all windows
//! together.
//!
//! Any change of this order is a new [`ORDER_VERSION`].

mod batches;
mod blocks;
mod cursor;
mod deal;
mod permutation;
mod plan;
mod schedule;
mod source;
mod window;

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError, Weak},
};

pub(crate) use batches::{Batches, Share};
pub(crate) use blocks::Blocks;
pub(crate) use cursor::{Cursor, Run};
pub(crate) use plan::Need;
pub(crate) use source::{Arrangement, Source};
pub(crate) use window::{Window, WindowPlace};

use crate::{geometry::BlockId, index::index};
use cursor::{Lane, lanes};
use plan::Needs;
use schedule::Schedule;
use source::WindowName;

/// Version of the order's definition, part of every loader state.
pub(crate) const ORDER_VERSION: u32 = 2;

/// What the order depends on besides the geometry and the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderSpec {
    /// Seed.
    pub(crate) seed: u64,
    /// Domains in use.
    pub(crate) domains: u32,
    /// Blocks per window of a domain.
    pub(crate) window_blocks: u32,
    /// Samples of a global batch.
    pub(crate) global_batch: u32,
}

impl OrderSpec {
    /// Fits the wanted domains and window to a source.
    pub(crate) fn fit(
        seed: u64,
        domains: u32,
        window_blocks: u32,
        global_batch: u32,
        blocks: &Blocks,
    ) -> Self {
        let samples = u32::try_from(blocks.samples()).unwrap_or(u32::MAX);
        let fitted = domains
            .min(global_batch)
            .min(blocks.unit_count())
            .min(samples)
            .max(1);
        let window = (u64::from(domains) * u64::from(window_blocks)).div_ceil(u64::from(fitted));
        Self {
            seed,
            domains: fitted,
            window_blocks: u32::try_from(window).unwrap_or(u32::MAX),
            global_batch,
        }
    }

    /// The source with `blocks` as this spec shuffles it.
    pub(crate) fn source(self, blocks: Arc<Blocks>) -> Source {
        let arrangement = Arrangement::Shuffled { seed: self.seed };
        Source::new(0, blocks, arrangement, self.domains, self.window_blocks)
    }
}

/// The order of one pass. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Order(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sources: Vec<Arc<Source>>,
    schedule: Schedule,
    lanes: Vec<Lane>,
    /// Epoch of each source at the begin of the pass.
    first_epochs: Vec<u64>,
    /// Windows that some cursor holds, by id.
    windows: Mutex<HashMap<u64, Weak<Window>>>,
}

impl Order {
    /// All samples of a source once: its epoch `epoch`.
    pub(crate) fn epoch(source: Arc<Source>, global_batch: u32, epoch: u64) -> Self {
        let batches = Batches::new(source.samples(), global_batch);
        Self::new(vec![source], Schedule::single(batches, epoch))
    }

    /// All samples as they were written, block after block.
    pub(crate) fn sequential(blocks: Arc<Blocks>, global_batch: u32) -> Self {
        let source = Source::new(0, blocks, Arrangement::Sequential, 1, 1);
        Self::epoch(Arc::new(source), global_batch, 0)
    }

    fn new(sources: Vec<Arc<Source>>, schedule: Schedule) -> Self {
        let domains: Vec<_> = sources.iter().map(|s| s.domains().count()).collect();
        let mut before = Vec::new();
        schedule.before(0, &mut before);
        let first_epochs = before
            .iter()
            .zip(&sources)
            .map(|(before, source)| before / source.samples());
        Self(Arc::new(Inner {
            first_epochs: first_epochs.collect(),
            lanes: lanes(&domains),
            sources,
            schedule,
            windows: Mutex::default(),
        }))
    }

    /// Global batches of the pass.
    pub(crate) fn batch_count(&self) -> u64 {
        self.0.schedule.batches().count()
    }

    /// Global slots in use in a batch, among which ranks share it.
    pub(crate) fn slots(&self, batch: u64) -> u64 {
        self.rows(batch)
    }

    /// Samples of a batch, over all ranks. Slots from there on are padding.
    pub(crate) fn rows(&self, batch: u64) -> u64 {
        self.0.schedule.batches().rows(batch)
    }

    /// The blocks that `share` needs from batch `start` on, in the order of their first need. A block comes again only
    /// after the last batch for which it was listed before.
    pub(crate) fn needs(&self, start: u64, share: Share) -> Box<dyn Iterator<Item = Need> + Send> {
        Box::new(Needs::new(self.clone(), start, share))
    }

    /// Starts looking up slots.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor::new(self.clone())
    }

    fn lanes(&self) -> &[Lane] {
        &self.0.lanes
    }

    fn source(&self, source: u32) -> &Source {
        &self.0.sources[source as usize]
    }

    /// The samples each source gives to a batch, counted through its epochs.
    fn samples(&self, batch: u64) -> Vec<Range<u64>> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        self.0.schedule.before(batch, &mut before);
        self.0.schedule.before(batch + 1, &mut after);
        before.into_iter().zip(after).map(|(b, a)| b..a).collect()
    }

    /// The window that holds a position of a lane, and its positions in the lane's domain. Cursors share windows.
    fn window(&self, lane: Lane, epoch: u64, position: u64) -> (Range<u64>, Arc<Window>) {
        let source = self.source(lane.source);
        let deal = source.deal(epoch);
        let span = deal.span(source.domains(), lane.domain, position);
        let id = self.window_id(lane, epoch, source.window_number(lane.domain, &span));
        if let Some(window) = self.windows().get(&id).and_then(Weak::upgrade) {
            return (span.positions, window);
        }
        let name = WindowName {
            id,
            epoch,
            domain: lane.domain,
        };
        let made = Arc::new(source.window(&deal, &span, name));
        let mut windows = self.windows();
        let known = windows.get(&id).and_then(Weak::upgrade);
        let window = known.unwrap_or_else(|| {
            if windows.len() >= 2 * self.lanes().len() + 64 {
                windows.retain(|_, window| window.strong_count() > 0);
            }
            windows.insert(id, Arc::downgrade(&made));
            made
        });
        (span.positions, window)
    }

    fn windows(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Weak<Window>>> {
        self.0
            .windows
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn window_id(&self, lane: Lane, epoch: u64, number: u64) -> u64 {
        let before: u64 = self.0.sources[..index(lane.source.into())]
            .iter()
            .map(|source| source.window_numbers())
            .sum();
        let all: u64 = self.0.sources.iter().map(|s| s.window_numbers()).sum();
        (epoch - self.0.first_epochs[lane.source as usize]) * all + before + number
    }

    /// A batch not after the one in which an epoch of a source begins.
    fn epoch_begins(&self, source: u32, epoch: u64) -> u64 {
        let first = epoch * self.source(source).samples();
        self.0.schedule.batches_around(source as usize, first).0
    }

    /// The batches between which windows of an epoch of a source use a block; a batch too many is possible.
    fn uses(&self, source: u32, epoch: u64, block: BlockId) -> Vec<(u64, u64)> {
        let first = epoch * self.source(source).samples();
        let around = |sample| {
            self.0
                .schedule
                .batches_around(source as usize, first + sample)
        };
        let mut uses = Vec::new();
        self.source(source).uses(epoch, block, |from, to| {
            uses.push((around(from).0, around(to).1))
        });
        uses
    }
}

#[cfg(test)]
mod tests;
