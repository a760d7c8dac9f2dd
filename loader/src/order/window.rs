//! A window: a run of blocks whose samples are shuffled together.

use std::{collections::HashMap, ops::Range, sync::Arc};

use super::{
    balance::ClassRows,
    blocks::Blocks,
    deal::{Deal, WindowSpan},
    packing::{BinPiece, Bins, PackedBins},
    permutation::Permutation,
    source::Units,
    tokens::{TokenPlace, TokenWindows},
};
use crate::{block_table::BlockId, index::index};

/// Position of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowPlace {
    /// Index of its block among [`ShuffleWindow::blocks`].
    pub(crate) block: u32,
    /// Its row in the block.
    pub(crate) row: u32,
}

/// The samples of some blocks in keyed order.
#[derive(Debug)]
pub(crate) struct ShuffleWindow {
    /// Unique in a pass.
    pub(crate) id: u64,
    /// Source of the blocks.
    pub(crate) source: u32,
    /// Epoch of that source.
    pub(crate) epoch: u64,
    /// The blocks that hold its samples, and those in which samples read on.
    pub(crate) blocks: Vec<BlockId>,
    permutation: Permutation,
    content: Content,
}

/// Kind of the samples.
#[derive(Debug)]
enum Content {
    Rows(WindowRows),
    Tokens {
        rows: WindowRows,
        windows: Arc<TokenWindows>,
        /// Index of the block that follows each block, where it is here.
        next: Vec<u32>,
    },
    Classes {
        rows: WindowRows,
        classes: ClassRows,
    },
    Bins {
        bins: Bins,
        /// Bins of the first unit that are in another window.
        skipped: u64,
    },
}

/// No block.
const NONE: u32 = u32::MAX;

/// Block of each sample, counted through the blocks in their order.
#[derive(Debug)]
enum WindowRows {
    Equal(EqualRows),
    Any(AnyRows),
}

/// All blocks have the same number of rows, except that the first may lack some at its front and the last at its end.
/// Samples are counted as if the first were whole.
#[derive(Clone, Copy, Debug)]
struct EqualRows {
    skipped: u64,
    rows: u64,
    /// `ceil(2^64 / rows)`: multiplying by it divides numbers below 2^32 by `rows`.
    reciprocal: u64,
}

/// Any blocks.
#[derive(Debug)]
struct AnyRows {
    /// Samples before each block, and the total.
    before: Vec<u64>,
    /// First row of the first block.
    skipped: u32,
    /// `hints[sample >> shift]` is the block of the first sample with these high bits.
    hints: Vec<u32>,
    shift: u32,
}

impl ShuffleWindow {
    /// The window `span` of `deal`; `permutation` gives the order of its samples.
    pub(crate) fn new(
        (id, source, epoch): (u64, u32, u64),
        units: &Units,
        deal: &Deal,
        span: &WindowSpan,
        permutation: Permutation,
    ) -> Self {
        let (blocks, content) = match units {
            Units::Rows(blocks) => {
                let (list, rows) = WindowRows::new(blocks, deal, span);
                (list, Content::Rows(rows))
            }
            Units::Tokens(windows) => tokens(windows, deal, span),
            Units::Classes(balance) => {
                let (list, rows) = WindowRows::new(deal.blocks(), deal, span);
                let classes = balance.rows(&list, epoch);
                (list, Content::Classes { rows, classes })
            }
            Units::Bins(packing) => bins(packing, deal, span),
        };
        Self {
            id,
            source,
            epoch,
            blocks,
            permutation,
            content,
        }
    }

    /// Appends the positions of the rows at `positions` to `places`; [by class](Self::is_by_class)
    /// if so.
    ///
    /// # Panics
    /// When the samples are no rows.
    pub(crate) fn places(&self, positions: Range<u64>, places: &mut Vec<WindowPlace>) {
        places.reserve(index(positions.end - positions.start));
        match &self.content {
            // The kind of rows is looked at once, not for each sample.
            Content::Rows(WindowRows::Equal(rows)) => self
                .permutation
                .for_each(positions, |sample| places.push(rows.place(sample))),
            Content::Rows(WindowRows::Any(rows)) => self
                .permutation
                .for_each(positions, |sample| places.push(rows.place(sample))),
            Content::Classes { rows, classes } => self.permutation.for_each(positions, |sample| {
                let WindowPlace { block, row } = rows.place(sample);
                let row = classes.row(block, row).rank;
                places.push(WindowPlace { block, row });
            }),
            _ => unreachable!("an order has rows or another kind of sample, not both"),
        }
    }

    /// Appends the places of the windows of tokens at `positions` to `places`.
    ///
    /// # Panics
    /// When the samples are something else.
    pub(crate) fn token_places(&self, positions: Range<u64>, places: &mut Vec<TokenPlace>) {
        let Content::Tokens { rows, windows, .. } = &self.content else {
            unreachable!("an order has windows of tokens or another kind of sample, not both")
        };
        self.permutation.for_each(positions, |sample| {
            let place = rows.place(sample);
            let block = self.blocks[place.block as usize];
            places.push(windows.place(block, place.block, place.row));
        });
    }

    /// The index of the block that follows a block in a stream of tokens, if windows read on in it.
    pub(crate) fn next_block(&self, block: u32) -> Option<u32> {
        match &self.content {
            Content::Tokens { next, .. } => Some(next[block as usize]).filter(|next| *next != NONE),
            _ => None,
        }
    }

    /// Returns true if the rows of [`places`](Self::places) are counted through those of their
    /// block in the order of their classes: these rows are known once the block is loaded.
    pub(crate) fn is_by_class(&self) -> bool {
        matches!(self.content, Content::Classes { .. })
    }

    /// Number of samples of the epoch with the same row as the one at `position` that come before
    /// it in the count.
    pub(crate) fn again(&self, position: u64) -> u32 {
        let Content::Classes { rows, classes } = &self.content else {
            return 0;
        };
        let mut again = 0;
        self.permutation.for_each(position..position + 1, |sample| {
            let WindowPlace { block, row } = rows.place(sample);
            again = classes.row(block, row).again;
        });
        again
    }

    /// Returns true if the samples are bins.
    #[cfg(test)]
    pub(crate) fn has_bins(&self) -> bool {
        matches!(self.content, Content::Bins { .. })
    }

    /// The pieces of the bin at `position`.
    ///
    /// # Panics
    /// When the samples are no bins.
    pub(crate) fn bin(&self, position: u64) -> &[BinPiece] {
        let Content::Bins { bins, skipped } = &self.content else {
            unreachable!("an order has bins or another kind of sample, not both")
        };
        let mut number = 0;
        self.permutation
            .for_each(position..position + 1, |sample| number = sample + skipped);
        bins.bin(index(number))
    }
}

fn tokens(windows: &Arc<TokenWindows>, deal: &Deal, span: &WindowSpan) -> (Vec<BlockId>, Content) {
    let (mut list, rows) = WindowRows::new(windows.blocks(), deal, span);
    let mut numbers: HashMap<BlockId, u32> = list.iter().copied().zip(0..).collect();
    for block in list.clone() {
        for halo in windows.halo(block) {
            let number = u32::try_from(list.len()).expect("blocks are counted in 32 bits");
            numbers.entry(halo).or_insert_with(|| {
                list.push(halo);
                number
            });
        }
    }
    let next = |block: &BlockId| numbers.get(&(block + 1)).copied().unwrap_or(NONE);
    let content = Content::Tokens {
        rows,
        windows: Arc::clone(windows),
        next: list.iter().map(next).collect(),
    };
    (list, content)
}

fn bins(packing: &PackedBins, deal: &Deal, span: &WindowSpan) -> (Vec<BlockId>, Content) {
    let mut packer = packing.packer();
    let mut list = Vec::new();
    let mut bins = Bins::default();
    let mut skipped = 0;
    deal.units_of(span.units.clone(), |unit, before| {
        let blocks = packing.blocks().unit(unit);
        let end = before + packing.blocks().samples_in(blocks.clone());
        if end <= span.samples.start || before >= span.samples.end || end == before {
            return;
        }
        if list.is_empty() {
            skipped = span.samples.start - before;
        }
        let first = u32::try_from(list.len()).expect("blocks are counted in 32 bits");
        bins.extend(&packing.pack(&mut packer, unit, first));
        list.extend(blocks);
    });
    (list, Content::Bins { bins, skipped })
}

impl WindowRows {
    /// The blocks with samples in `span`, in dealt order, and where the samples are in them.
    fn new(blocks: &Blocks, deal: &Deal, span: &WindowSpan) -> (Vec<BlockId>, Self) {
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
        let rows = match EqualRows::new(blocks, &list, skipped, &before) {
            Some(rows) => Self::Equal(rows),
            None => Self::Any(AnyRows::new(skipped, before)),
        };
        (list, rows)
    }

    fn place(&self, sample: u64) -> WindowPlace {
        match self {
            Self::Equal(rows) => rows.place(sample),
            Self::Any(rows) => rows.place(sample),
        }
    }
}

impl EqualRows {
    fn new(blocks: &Blocks, list: &[BlockId], skipped: u64, before: &[u64]) -> Option<Self> {
        let rows = u64::from(blocks.rows(*list.first()?));
        let (last, others) = list.split_last()?;
        let equal = others
            .iter()
            .all(|block| u64::from(blocks.rows(*block)) == rows)
            && u64::from(blocks.rows(*last)) <= rows;
        let total = before.last()? + skipped;
        (equal && total <= u64::from(u32::MAX)).then(|| Self {
            skipped,
            rows,
            reciprocal: (u64::MAX / rows).wrapping_add(1),
        })
    }

    /// By Lemire's direct computation, which is exact for 32-bit numbers.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the quotient of a 32-bit number has 32 bits, and so has the remainder"
    )]
    fn place(&self, sample: u64) -> WindowPlace {
        let sample = sample + self.skipped;
        let block = if self.rows == 1 {
            sample
        } else {
            ((u128::from(sample) * u128::from(self.reciprocal)) >> 64) as u64
        };
        WindowPlace {
            block: block as u32,
            row: (sample - block * self.rows) as u32,
        }
    }
}

impl AnyRows {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a window has no more blocks than `BlockId` counts; skipped rows are rows of a block"
    )]
    fn new(skipped: u64, before: Vec<u64>) -> Self {
        let total = before.last().copied().unwrap_or(0);
        let bits = u64::BITS - total.leading_zeros();
        let wanted = u64::BITS - (before.len() as u64).leading_zeros() + 2;
        let shift = bits.saturating_sub(wanted);
        let hint = |high: u64| before.partition_point(|b| *b <= high << shift) as u32 - 1;
        let hints = (0..=total >> shift).map(hint).collect();
        Self {
            before,
            skipped: skipped as u32,
            hints,
            shift,
        }
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a window has no more blocks than `BlockId` counts, and the rows of a block fit in 32 bits"
    )]
    fn place(&self, sample: u64) -> WindowPlace {
        let mut block = self.hints[index(sample >> self.shift)] as usize;
        while self.before[block + 1] <= sample {
            block += 1;
        }
        let skipped = if block == 0 { self.skipped } else { 0 };
        WindowPlace {
            block: block as u32,
            row: (sample - self.before[block]) as u32 + skipped,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::order::{deal::Domains, permutation::PermutationKey};

    /// Every place of every window of a source in two domains.
    fn check(rows: Vec<u32>, window_units: u64) {
        let blocks = Arc::new(Blocks::new(rows));
        let deal = Deal::new(
            Arc::clone(&blocks),
            Permutation::new(
                blocks.unit_count().into(),
                PermutationKey::derive(3, "deal", &[]),
            ),
        );
        let domains = Domains::new(blocks.samples(), 2, window_units);
        let mut seen = BTreeSet::new();
        for domain in 0..2 {
            let mut position = 0;
            while position < domains.taken(domain, blocks.samples()) {
                let span = deal.span(&domains, domain, position);
                let samples = span.samples.end - span.samples.start;
                let permutation =
                    Permutation::new(samples, PermutationKey::derive(1, "window", &[position]));
                let units = Units::Rows(Arc::clone(&blocks));
                let window = ShuffleWindow::new((0, 0, 0), &units, &deal, &span, permutation);
                let mut places = Vec::new();
                window.places(0..samples / 2, &mut places);
                window.places(samples / 2..samples, &mut places);
                for place in places {
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
