//! The blocks in memory, and until when they are needed.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
};

use super::block_types::{LoadedBlock, LoadedWindow};
use crate::{
    Error, block_table::BlockId, fetch::prefetch::Arrival, input::block_rows::BlockRows,
    order::ShuffleWindow, source_block::SourceBlock,
};

/// Blocks that have arrived and are still needed, by themselves and by window.
#[derive(Debug, Default)]
pub(crate) struct ActiveBlocks {
    blocks: HashMap<SourceBlock, (Arc<LoadedBlock>, u64)>,
    failures: HashMap<SourceBlock, Error>,
    /// Last batch that needs a block.
    leaving: BinaryHeap<Reverse<(u64, SourceBlock)>>,
    /// Windows with all of their blocks, and the first batch after which one of them leaves.
    windows: HashMap<u64, (Arc<LoadedWindow>, u64)>,
}

impl ActiveBlocks {
    /// Returns true if a block is loaded.
    pub(crate) fn has(&self, block: SourceBlock) -> bool {
        self.blocks.contains_key(&block)
    }

    /// Token ids in a block that is here.
    pub(crate) fn tokens(&self, block: SourceBlock) -> u64 {
        self.blocks
            .get(&block)
            .map_or(0, |(block, _)| match &block.rows {
                BlockRows::Tokens(rows) => rows.ids.len() as u64,
                _ => 0,
            })
    }

    /// Reason that the block will not come, if that is known.
    pub(crate) fn take_failure(&mut self, block: SourceBlock) -> Option<Error> {
        self.failures.remove(&block)
    }

    /// The window, if it is known to be here whole.
    pub(crate) fn whole_window(&self, window: &ShuffleWindow) -> Option<&Arc<LoadedWindow>> {
        self.windows.get(&window.id).map(|(loaded, _)| loaded)
    }

    /// The window with those of its blocks that are here; kept for the next time when these are all.
    pub(crate) fn window(&mut self, window: &Arc<ShuffleWindow>) -> Arc<LoadedWindow> {
        let mut until = u64::MAX;
        let mut whole = true;
        let mut find = |block: &BlockId| {
            let found = self.blocks.get(&(window.source, *block));
            whole &= found.is_some();
            found.map(|(block, last)| {
                until = until.min(*last);
                Arc::clone(block)
            })
        };
        let loaded = Arc::new(LoadedWindow {
            window: Arc::clone(window),
            blocks: window.blocks.iter().map(&mut find).collect(),
        });
        if whole {
            self.windows.insert(window.id, (Arc::clone(&loaded), until));
        }
        loaded
    }

    /// Takes a block in, or notes that it will not come.
    pub(crate) fn insert(&mut self, arrival: Arrival) {
        let Arrival { need, rows } = arrival;
        let block = (need.source, need.block);
        match rows {
            Ok(rows) => {
                self.blocks.insert(block, (rows, need.last));
                self.leaving.push(Reverse((need.last, block)));
            }
            Err(error) => {
                self.failures.insert(block, error);
            }
        }
    }

    /// Lets go of the blocks that no batch after `batch` needs.
    pub(crate) fn release(&mut self, batch: u64) {
        let mut any = false;
        while let Some(Reverse((last, block))) = self.leaving.peek().copied() {
            if last > batch {
                break;
            }
            self.leaving.pop();
            // It may have come again, for later batches.
            if self
                .blocks
                .get(&block)
                .is_some_and(|(_, last)| *last <= batch)
            {
                self.blocks.remove(&block);
                any = true;
            }
        }
        if any {
            self.windows.retain(|_, (_, until)| *until > batch);
        }
    }
}
