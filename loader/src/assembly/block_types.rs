//! Blocks and windows in memory, as the workers see them.

use std::{ops::Range, sync::Arc};

use crate::{
    block_table::BlockId,
    class_balance::rows_by_class::ByClass,
    fetch::budget::Permit,
    input::block_rows::BlockRows,
    order::{ShuffleWindow, WindowPlace},
};

/// A block in memory. Counts as held until the last batch that reads from it is gone.
#[derive(Debug)]
pub(crate) struct LoadedBlock {
    /// Its rows.
    pub(crate) rows: BlockRows,
    /// Source it is of.
    pub(crate) source: u32,
    /// The block whose rows these are: another than was asked for when that one is damaged.
    pub(crate) block: BlockId,
    /// Its rows by class, where classes are balanced.
    pub(crate) by_class: Option<ByClass>,
    /// Its bytes, as counted in the budget.
    pub(crate) _permit: Permit,
}

/// The blocks of a window, as far as they are in memory.
#[derive(Debug)]
pub(crate) struct LoadedWindow {
    /// The window.
    pub(crate) window: Arc<ShuffleWindow>,
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

    /// Returns true if the rows of a block, by its number in the window, are those of another one, since it is damaged.
    pub(crate) fn is_replaced(&self, number: u32) -> bool {
        self.block(number).block != self.window.blocks[number as usize]
    }
}

impl LoadedRun {
    /// Appends the positions of its rows to `places`.
    pub(crate) fn places(&self, places: &mut Vec<WindowPlace>) {
        let first = places.len();
        let window = &self.window.window;
        window.places(self.positions.clone(), places);
        if window.is_by_class() {
            for place in &mut places[first..] {
                let by_class = self.window.block(place.block).by_class.as_ref();
                // A block that replaces another may have no rows of classes, but has as many rows.
                place.row = by_class
                    .and_then(|rows| rows.row(place.row))
                    .unwrap_or(place.row);
            }
        }
    }

    /// Number of slots.
    pub(crate) fn len(&self) -> usize {
        crate::index::index(self.positions.end - self.positions.start)
    }
}
