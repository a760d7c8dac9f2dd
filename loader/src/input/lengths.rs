//! Lengths of the documents of a split.

use arrow::buffer::ScalarBuffer;

use crate::block_table::{BlockId, BlockTable};

/// Length of every document of a split, in token ids: 4 bytes each.
#[derive(Clone, Debug)]
pub(crate) struct DocumentLengths {
    /// By shard.
    lengths: Vec<ScalarBuffer<u32>>,
    /// Shard, first row in it, and rows, of every block.
    blocks: Vec<(usize, usize, usize)>,
}

impl DocumentLengths {
    /// Puts the lengths of every shard, in row order, to the blocks of `block_table`.
    pub(super) fn new(block_table: &BlockTable, lengths: Vec<ScalarBuffer<u32>>) -> Self {
        let mut blocks = Vec::with_capacity(block_table.block_count() as usize);
        let mut before = (usize::MAX, 0);
        for block in 0..block_table.block_count() {
            let shard = block_table.file_number(block) as usize;
            let rows = block_table.rows(block) as usize;
            let first = if before.0 == shard { before.1 } else { 0 };
            blocks.push((shard, first, rows));
            before = (shard, first + rows);
        }
        Self { lengths, blocks }
    }

    /// `[rows]`: lengths of the documents of a block.
    pub(crate) fn of(&self, block: BlockId) -> &[u32] {
        let (shard, first, rows) = self.blocks[block as usize];
        &self.lengths[shard][first..first + rows]
    }
}
