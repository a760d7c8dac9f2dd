//! Windows of a flat stream of tokens as samples.
//!
//! The stream is all tokens of all blocks, in their order. Window `i` is the `L + 1` tokens from `i * L` on, so that
//! each token but the first is once what is to be predicted; the last window may be shorter, and has two tokens at
//! least. A window belongs to the block in which it begins and reads on in those that follow it.

use std::sync::Arc;

use super::blocks::Blocks;
use crate::{block_table::BlockId, index::index};

/// Position of a window of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenPlace {
    /// Index of the block in which it begins, among [`ShuffleWindow::blocks`](super::ShuffleWindow::blocks).
    pub(crate) block: u32,
    /// Its first token, counted in that block.
    pub(crate) start: u32,
    /// Its tokens, `L + 1` but for the stream's last window.
    pub(crate) tokens: u32,
}

/// The windows of a source.
#[derive(Debug)]
pub(crate) struct TokenWindows {
    length: u64,
    /// Tokens before each block, and the total.
    before: Vec<u64>,
    blocks: Arc<Blocks>,
}

impl TokenWindows {
    /// The windows that predict `length` tokens, at least 1, over blocks of these numbers of tokens in these
    /// [extents](Blocks::in_extents).
    pub(crate) fn new(
        tokens: impl Iterator<Item = u32>,
        extents: Option<Vec<BlockId>>,
        length: u32,
    ) -> Self {
        let mut before = vec![0];
        let mut total = 0;
        for tokens in tokens {
            total += u64::from(tokens);
            before.push(total);
        }
        let length = u64::from(length);
        // The last token begins no window: there is nothing to predict after it.
        let starts = |end: u64| end.min(total.saturating_sub(1)).div_ceil(length);
        let rows = before
            .windows(2)
            .map(|ends| u32::try_from(starts(ends[1]) - starts(ends[0])))
            .map(|rows| rows.expect("a block has no more windows than tokens"))
            .collect();
        Self {
            length,
            before,
            blocks: Arc::new(Blocks::new(rows).in_extents(extents)),
        }
    }

    /// Windows of each block.
    pub(crate) fn blocks(&self) -> &Arc<Blocks> {
        &self.blocks
    }

    /// The blocks in which windows of `block` read on.
    pub(crate) fn halo(&self, block: BlockId) -> std::ops::Range<BlockId> {
        let rows = self.blocks.rows(block);
        let end = if rows == 0 {
            0
        } else {
            (self.start(block, rows - 1) + self.length + 1).min(self.total())
        };
        let mut next = block + 1;
        while (next as usize) < self.before.len() - 1 && self.before[next as usize] < end {
            next += 1;
        }
        block + 1..next
    }

    /// The block whose windows read on in `block`, if there is one.
    pub(crate) fn reads_on_in(&self, block: BlockId) -> Option<BlockId> {
        let first = self.before[block as usize];
        if first == 0 || first == self.total() {
            return None;
        }
        let start = (first.div_ceil(self.length) - 1) * self.length;
        let at = self.before.partition_point(|before| *before <= start) - 1;
        Some(BlockId::try_from(at).expect("it is the number of a block"))
    }

    /// Position of row `row` of `block`, which is `index` in its window.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a block has fewer than 2^32 tokens, and a window was given 32 bits"
    )]
    pub(crate) fn place(&self, block: BlockId, index: u32, row: u32) -> TokenPlace {
        let start = self.start(block, row);
        TokenPlace {
            block: index,
            start: (start - self.before[block as usize]) as u32,
            tokens: (self.length + 1).min(self.total() - start) as u32,
        }
    }

    fn total(&self) -> u64 {
        self.before[self.before.len() - 1]
    }

    /// First token of a row, counted in the stream.
    fn start(&self, block: BlockId, row: u32) -> u64 {
        let before = self.before[index(block.into())];
        (before.div_ceil(self.length) + u64::from(row)) * self.length
    }
}
