//! Blocks that a rank needs, with the first and last batch that need them, in the order of their
//! first need.
//!
//! A window's blocks are needed from the first to the last batch with a slot of this rank that the
//! window fills: its samples are shuffled, so nearly all of its blocks are in use in between. A
//! block that another window needs too before then, of the next domain or of the source's next
//! epoch, is kept for both.

use std::collections::HashMap;

use super::{
    PassOrder,
    batches::RankShare,
    cursor::{Cursor, SlotRun},
};
use crate::block_table::BlockId;

/// So many epochs of a source are looked through for another need of a block that would be held until then; a block
/// that is needed in all of them is held to the end of the pass.
const EPOCHS_AHEAD: u64 = 16;

/// For so many batches a window is known that has no slots in them.
const WINDOW_MEMORY: u64 = 256;

/// A block and the batches that need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Source.
    pub(crate) source: u32,
    /// Block.
    pub(crate) block: BlockId,
    /// First batch that may need it.
    pub(crate) first: u64,
    /// Last batch that may need it.
    pub(crate) last: u64,
}

/// The needs of one share in a pass, in order of `first`. A block that comes again does so after the `last` batch of
/// its earlier need.
#[derive(Debug)]
pub(crate) struct Needs {
    order: PassOrder,
    cursor: Cursor,
    share: RankShare,
    batch: u64,
    runs: Vec<SlotRun>,
    /// The window that was last seen in each domain of each source.
    seen: HashMap<(u32, u64), u64>,
    /// Until when blocks are held.
    held: HashMap<(u32, BlockId), u64>,
    prune_at: usize,
    ready: std::vec::IntoIter<Need>,
}

impl Needs {
    /// The needs from batch `start` on.
    pub(crate) fn new(order: PassOrder, start: u64, share: RankShare) -> Self {
        Self {
            cursor: order.cursor(),
            order,
            share,
            batch: start,
            runs: Vec::new(),
            seen: HashMap::new(),
            held: HashMap::new(),
            prune_at: 1024,
            ready: Vec::new().into_iter(),
        }
    }

    fn plan_batch(&mut self) {
        let batch = self.batch;
        self.batch += 1;
        self.runs.clear();
        let slots = self.share.reads(self.order.slots(batch));
        self.cursor.runs(batch, slots, &mut self.runs);
        let mut needs = Vec::new();
        for run in std::mem::take(&mut self.runs) {
            let window = &run.window;
            if self
                .seen
                .insert((window.source, window.id), batch)
                .is_some()
            {
                continue;
            }
            for block in &window.blocks {
                let held = self.held.get(&(window.source, *block));
                if held.is_some_and(|last| *last >= batch) {
                    continue;
                }
                let last = self.held_until(window.source, window.epoch, *block, batch);
                self.held.insert((window.source, *block), last);
                needs.push(Need {
                    source: window.source,
                    block: *block,
                    first: batch,
                    last,
                });
            }
        }
        self.prune(batch);
        self.ready = needs.into_iter();
    }

    /// The last batch until which windows need the block without a break, from `first` on.
    fn held_until(&self, source: u32, epoch: u64, block: BlockId, first: u64) -> u64 {
        let end = self.order.batch_count() - 1;
        let mut last = first;
        for epoch in epoch..epoch + EPOCHS_AHEAD {
            if self.order.epoch_begins(source, epoch) > last {
                return last;
            }
            let mut uses = self.order.uses(source, epoch, block);
            uses.sort_unstable();
            for (from, to) in uses {
                if from <= last {
                    last = last.max(to);
                }
            }
            if last >= end {
                return end;
            }
        }
        end
    }

    /// Forgets what is over, now and then.
    fn prune(&mut self, batch: u64) {
        if self.held.len() + self.seen.len() > self.prune_at {
            self.held.retain(|_, last| *last >= batch);
            // A window that is forgotten too early is only looked at once more.
            self.seen.retain(|_, seen| *seen + WINDOW_MEMORY >= batch);
            self.prune_at = 2 * (self.held.len() + self.seen.len()).max(512);
        }
    }
}

impl Iterator for Needs {
    type Item = Need;

    fn next(&mut self) -> Option<Need> {
        loop {
            if let Some(need) = self.ready.next() {
                return Some(need);
            }
            if self.batch >= self.order.batch_count() {
                return None;
            }
            self.plan_batch();
        }
    }
}
