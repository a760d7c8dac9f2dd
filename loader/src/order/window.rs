//! A window: a run of blocks whose samples are shuffled together.

use std::ops::Range;

use super::{
    blocks::Blocks,
    deal::{Deal, Span},
    permutation::Permutation,
};
use crate::{geometry::BlockId, index::index};

/// Where a sample lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowPlace {
    /// Index of its block among [`Window::blocks`].
    pub(crate) block: u32,
    /// Its row in the block.
    pub(crate) row: u32,
}

/// The samples of some blocks in keyed order.
#[derive(Debug)]
pub(crate) struct Window {
    /// Unique in a pass.
    pub(crate) id: u64,
    /// Source of the blocks.
    pub(crate) source: u32,
    /// Epoch of that source.
    pub(crate) epoch: u64,
    /// The blocks that hold its samples.
    pub(crate) blocks: Vec<BlockId>,
    permutation: Permutation,
    rows: Rows,
}

/// Which block holds a sample, counted through the blocks in their order.
#[derive(Debug)]
enum Rows {
    /// All blocks have the same number of rows, except that the first may lack some at its front and the last at its
    /// end. Samples are counted as if the first were whole.
    Equal {
        skipped: u64,
        rows: u64,
        /// `ceil(2^64 / rows)`: multiplying by it divides numbers below 2^32 by `rows`.
        reciprocal: u64,
    },
    /// Any blocks.
    Any {
        /// Samples before each block, and the total.
        before: Vec<u64>,
        /// First row of the first block.
        skipped: u32,
        /// `hints[sample >> shift]` is the block of the first sample with these high bits, or one before it.
        hints: Vec<u32>,
        shift: u32,
    },
}

impl Window {
    /// The window `span` of `deal`; `permutation` tells the order of its samples.
    pub(crate) fn new(
        (id, source, epoch): (u64, u32, u64),
        blocks: &Blocks,
        deal: &Deal,
        span: &Span,
        permutation: Permutation,
    ) -> Self {
        let mut list = Vec::new();
        let mut before = Vec::new();
        let mut skipped = 0;
        deal.blocks_of(span.units.clone(), |block, samples| {
            let end = samples + u64::from(blocks.rows(block));
            if end <= span.samples.start || samples >= span.samples.end || end == samples {
                return;
            }
            if list.is_empty() {
                skipped = span.samples.start - samples;
            }
            list.push(block);
            before.push(samples.max(span.samples.start) - span.samples.start);
        });
        before.push(span.samples.end - span.samples.start);
        let rows = Rows::equal(blocks, &list, skipped, &before)
            .unwrap_or_else(|| Rows::any(skipped, before));
        Self {
            id,
            source,
            epoch,
            blocks: list,
            permutation,
            rows,
        }
    }

    /// Where the sample at `position` of the window lies.
    #[cfg(test)]
    pub(crate) fn place(&self, position: u64) -> WindowPlace {
        self.rows.place(self.permutation.forward(position))
    }

    /// Appends to `places` where the samples at `positions` lie. Cheaper for each than [`Window::place`].
    pub(crate) fn places(&self, positions: Range<u64>, places: &mut Vec<WindowPlace>) {
        places.reserve(index(positions.end - positions.start));
        // The kind of rows is looked at once, not for each sample.
        match &self.rows {
            Rows::Equal {
                skipped,
                rows,
                reciprocal,
            } => self.permutation.for_each(positions, |sample| {
                places.push(divided(sample + skipped, *rows, *reciprocal));
            }),
            Rows::Any { .. } => self
                .permutation
                .for_each(positions, |sample| places.push(self.rows.place(sample))),
        }
    }
}

impl Rows {
    fn equal(blocks: &Blocks, list: &[BlockId], skipped: u64, before: &[u64]) -> Option<Self> {
        let rows = u64::from(blocks.rows(*list.first()?));
        let (last, others) = list.split_last()?;
        let equal = others
            .iter()
            .all(|block| u64::from(blocks.rows(*block)) == rows)
            && u64::from(blocks.rows(*last)) <= rows;
        let total = before.last()? + skipped;
        (equal && total <= u64::from(u32::MAX)).then(|| Self::Equal {
            skipped,
            rows,
            reciprocal: (u64::MAX / rows).wrapping_add(1),
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a window has no more blocks than `BlockId` counts; skipped rows are rows of a block"
    )]
    fn any(skipped: u64, before: Vec<u64>) -> Self {
        let total = before.last().copied().unwrap_or(0);
        let bits = u64::BITS - total.leading_zeros();
        let wanted = u64::BITS - (before.len() as u64).leading_zeros() + 2;
        let shift = bits.saturating_sub(wanted);
        let hint = |high: u64| before.partition_point(|b| *b <= high << shift) as u32 - 1;
        let hints = (0..=total >> shift).map(hint).collect();
        Self::Any {
            before,
            skipped: skipped as u32,
            hints,
            shift,
        }
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the rows of a block fit in 32 bits"
    )]
    fn place(&self, sample: u64) -> WindowPlace {
        match self {
            Self::Equal {
                skipped,
                rows,
                reciprocal,
            } => divided(sample + skipped, *rows, *reciprocal),
            Self::Any {
                before,
                skipped,
                hints,
                shift,
            } => {
                let mut block = hints[index(sample >> shift)] as usize;
                while before[block + 1] <= sample {
                    block += 1;
                }
                let skipped = if block == 0 { *skipped } else { 0 };
                WindowPlace {
                    block: block as u32,
                    row: (sample - before[block]) as u32 + skipped,
                }
            }
        }
    }
}

/// `sample / rows` and the remainder, by Lemire's direct computation: exact for 32-bit numbers.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the quotient of a 32-bit number has 32 bits, and so has the remainder"
)]
fn divided(sample: u64, rows: u64, reciprocal: u64) -> WindowPlace {
    let block = if rows == 1 {
        sample
    } else {
        ((u128::from(sample) * u128::from(reciprocal)) >> 64) as u64
    };
    WindowPlace {
        block: block as u32,
        row: (sample - block * rows) as u32,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use super::*;
    use crate::order::{deal::Domains, permutation::Key};

    /// Every place of every window of a source in two domains.
    fn check(rows: Vec<u32>, window_units: u64) {
        let blocks = Arc::new(Blocks::new(rows));
        let deal = Deal::new(
            Arc::clone(&blocks),
            Permutation::new(blocks.unit_count().into(), Key::derive(3, "deal", &[])),
        );
        let domains = Domains::new(blocks.samples(), 2, window_units);
        let mut seen = BTreeSet::new();
        for domain in 0..2 {
            let mut position = 0;
            while position < domains.taken(domain, blocks.samples()) {
                let span = deal.span(&domains, domain, position);
                let samples = span.samples.end - span.samples.start;
                let permutation = Permutation::new(samples, Key::derive(1, "window", &[position]));
                let window = Window::new((0, 0, 0), &blocks, &deal, &span, permutation);
                let mut places = Vec::new();
                window.places(0..samples / 2, &mut places);
                window.places(samples / 2..samples, &mut places);
                for (at, place) in (0..).zip(places) {
                    assert_eq!(window.place(at), place);
                    let block = window.blocks[place.block as usize];
                    assert!(place.row < blocks.rows(block));
                    assert!(seen.insert((block, place.row)), "a row comes twice");
                }
                position = span.positions.end;
            }
        }
        assert_eq!(seen.len() as u64, blocks.samples());
    }

    #[test]
    fn every_row_of_every_block_has_one_position() {
        for window in [1, 3, 16, 1000] {
            check(vec![10; 33], window);
            check(vec![1; 33], window);
            check([vec![10; 33], vec![3]].concat(), window);
            check((0..40).map(|b| b * b % 23).collect(), window);
            check(vec![1, 1000, 1, 0, 0, 1], window);
        }
    }
}
