//! Blocks and windows in memory, as the workers see them.

use std::{ops::Range, sync::Arc};

use crate::{block::BlockRows, budget::Permit, geometry::BlockId, order::Window};

/// A block in memory. Counts as held until the last batch that reads from it is gone.
#[derive(Debug)]
pub(crate) struct LoadedBlock {
    /// Its rows.
    pub(crate) rows: BlockRows,
    /// Source it is of.
    pub(crate) source: u32,
    /// The block whose rows these are: another than was asked for when that one is damaged.
    pub(crate) block: BlockId,
    /// What it counts as held.
    pub(crate) _permit: Permit,
}

/// The blocks of a window, as far as they are in memory.
#[derive(Debug)]
pub(crate) struct LoadedWindow {
    /// The window.
    pub(crate) window: Arc<Window>,
    /// Its blocks, in its order.
    pub(crate) blocks: Vec<Option<Arc<LoadedBlock>>>,
}

/// Consecutive slots of a batch that hold consecutive positions of one window.
#[derive(Clone, Debug)]
pub(crate) struct LoadedRun {
    pub(crate) window: Arc<LoadedWindow>,
    pub(crate) positions: Range<u64>,
}

impl LoadedWindow {
    /// A block by its number in the window. Whoever asks has waited for it.
    pub(crate) fn block(&self, number: u32) -> &LoadedBlock {
        self.blocks[number as usize]
            .as_deref()
            .expect("a batch is filled when its blocks are there")
    }
}

impl LoadedRun {
    /// Number of slots.
    pub(crate) fn len(&self) -> usize {
        crate::index::index(self.positions.end - self.positions.start)
    }
}
