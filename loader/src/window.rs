//! A window: a run of blocks whose samples are shuffled together.

use crate::{
    geometry::{BlockId, Place},
    permutation::{Key, Permutation},
};

/// Up to this many blocks are searched by counting without branches, which beats a binary search's mispredictions.
const COUNTED_BLOCKS: usize = 16;

/// The samples of some blocks in keyed order.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    permutation: Permutation,
    blocks: Vec<BlockId>,
    /// Samples before each block.
    samples_before: Vec<u64>,
}

impl Window {
    /// The window over `blocks`; `samples_before` has the samples before each of them and after the last, counted
    /// from anywhere.
    pub(crate) fn new(blocks: &[BlockId], samples_before: &[u64], key: Key) -> Self {
        debug_assert_eq!(blocks.len() + 1, samples_before.len());
        let origin = samples_before[0];
        let samples = samples_before[blocks.len()] - origin;
        Self {
            permutation: Permutation::new(samples, key),
            blocks: blocks.to_vec(),
            samples_before: samples_before[..blocks.len()]
                .iter()
                .map(|before| before - origin)
                .collect(),
        }
    }

    /// Where the sample at `position` of the shuffled window lies.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the rows of a block fit in 32 bits"
    )]
    pub(crate) fn place(&self, position: u64) -> Place {
        let sample = self.permutation.forward(position);
        let block = self.block_of(sample);
        Place {
            block: self.blocks[block],
            row: (sample - self.samples_before[block]) as u32,
        }
    }

    fn block_of(&self, sample: u64) -> usize {
        if self.samples_before.len() <= COUNTED_BLOCKS {
            self.samples_before
                .iter()
                .map(|before| usize::from(*before <= sample))
                .sum::<usize>()
                - 1
        } else {
            self.samples_before
                .partition_point(|before| *before <= sample)
                - 1
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_of_every_block_has_one_position() {
        for blocks in [1, 3, 16, 17, 40] {
            let numbers: Vec<BlockId> = (0..blocks).map(|b| 100 + b).collect();
            let before: Vec<u64> = (0..=u64::from(blocks))
                .map(|b| 1_000 + b * (b + 1) / 2)
                .collect();
            let window = Window::new(&numbers, &before, Key::derive(1, "window", &[0]));
            let samples = before[before.len() - 1] - 1_000;
            let places: BTreeSet<_> = (0..samples)
                .map(|i| window.place(i))
                .map(|p| (p.block, p.row))
                .collect();
            let expected: BTreeSet<_> = (0..blocks)
                .flat_map(|b| (0..=b).map(move |r| (100 + b, r)))
                .collect();
            assert_eq!(places, expected);
        }
    }
}
