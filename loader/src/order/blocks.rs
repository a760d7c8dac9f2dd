//! Number of samples in each block of a source, and groups of blocks that stay together.

use std::{ops::Range, sync::Arc};

use crate::{
    block_table::{BlockId, BlockTable},
    compact::CompactNumbers,
};

/// The blocks of a source as units of shuffling: two bytes for each, four when some have 2^16 samples, and four for each
/// extent. Those of rows are shared with the [`BlockTable`].
///
/// A unit is an extent: some consecutive blocks of one shard, which are read and dealt together.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    samples: u64,
    /// Samples of each block.
    rows: Arc<CompactNumbers>,
    /// First block of each extent, and the end; none when every block is an extent of its own.
    extents: Option<Vec<BlockId>>,
}

impl Blocks {
    /// Blocks of these numbers of samples, each on its own.
    pub(crate) fn new(rows: Vec<u32>) -> Self {
        Self {
            samples: rows.iter().map(|rows| u64::from(*rows)).sum(),
            rows: Arc::new(rows.into_iter().map(u64::from).collect()),
            extents: None,
        }
    }

    /// The blocks of a split, in extents of up to `extent_bytes`; a larger block is alone.
    pub(crate) fn of(block_table: &BlockTable, extent_bytes: u64) -> Self {
        Self {
            samples: block_table.samples(),
            rows: Arc::clone(block_table.all_rows()),
            extents: block_table.extents(extent_bytes),
        }
    }

    /// The same blocks in these extents: the first block of each, and the number of blocks.
    pub(crate) fn in_extents(self, extents: Option<Vec<BlockId>>) -> Self {
        Self { extents, ..self }
    }

    /// Blocks in the same extents with other numbers of samples.
    pub(crate) fn with_rows(&self, rows: Vec<u32>) -> Self {
        debug_assert_eq!(rows.len(), self.rows.len());
        Self::new(rows).in_extents(self.extents.clone())
    }

    /// Bytes held.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.rows.bytes() + 4 * self.extents.as_ref().map_or(0, Vec::capacity)
    }

    /// Samples of all blocks.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Samples of a block.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "they were 32-bit numbers when they were put there"
    )]
    pub(crate) fn rows(&self, block: BlockId) -> u32 {
        self.rows.get(block as usize) as u32
    }

    /// Number of blocks.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a block table has no more blocks than `BlockId` counts"
    )]
    pub(crate) fn block_count(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Number of units.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are at least as many blocks"
    )]
    pub(crate) fn unit_count(&self) -> u32 {
        match &self.extents {
            None => self.block_count(),
            Some(firsts) => firsts.len() as u32 - 1,
        }
    }

    /// The blocks of a unit.
    pub(crate) fn unit(&self, unit: u32) -> Range<BlockId> {
        match &self.extents {
            None => unit..unit + 1,
            Some(firsts) => firsts[unit as usize]..firsts[unit as usize + 1],
        }
    }

    /// The unit that a block belongs to.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are at least as many blocks"
    )]
    pub(crate) fn unit_of(&self, block: BlockId) -> u32 {
        match &self.extents {
            None => block,
            Some(firsts) => firsts.partition_point(|first| *first <= block) as u32 - 1,
        }
    }

    /// Samples in some consecutive blocks.
    pub(crate) fn samples_in(&self, blocks: Range<BlockId>) -> u64 {
        self.rows.sum(blocks.start as usize..blocks.end as usize)
    }
}
