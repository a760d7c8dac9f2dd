//! Equal classes: an epoch in which every class has the same number of samples.
//!
//! Each class has `T` samples, the split's samples over the number of classes, rounded up. They are spread over its
//! rows in the order in which they lie: block `b`, before which the class has `x` of its `n` rows, gives
//! `floor(T (x + m) / n) - floor(T x / n)` samples of it for the `m` rows it has. So rows of a small class come several
//! times, and of the rows of a large one some are left out; which, moves on from epoch to epoch, so that over the
//! epochs all rows of a block and class come equally often. All else is as in an ordinary order over blocks with these
//! numbers of samples: each block is read once, and an epoch takes no more memory.

use std::sync::Arc;

use super::blocks::Blocks;
use crate::{geometry::BlockId, index::index};

/// Where a sample of a class lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassPlace {
    /// Index of its block among [`Window::blocks`](super::Window::blocks).
    pub(crate) block: u32,
    /// Class.
    pub(crate) class: u32,
    /// Which of the rows of this class in the block, from 0.
    pub(crate) nth: u32,
}

/// What each block has and gives of each class: 12 bytes for each class of each block.
#[derive(Debug)]
pub(crate) struct Balance {
    entries: Vec<Entry>,
    /// First entry of each block, and their number.
    firsts: Vec<usize>,
    blocks: Arc<Blocks>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    class: u32,
    /// Rows of the class in the block.
    rows: u32,
    /// Samples of an epoch in the block up to this class, itself included.
    until: u32,
}

impl Balance {
    /// Balances blocks with these numbers of rows by class, in these [extents](Blocks::in_extents).
    ///
    /// # Errors
    /// A block would give more samples than 32 bits count: a class is all too small.
    pub(crate) fn new<B>(
        counts: impl Iterator<Item = B>,
        extents: Option<Vec<BlockId>>,
    ) -> Result<Self, String>
    where
        B: IntoIterator<Item = (u32, u32)>,
    {
        let mut entries = Vec::new();
        let mut firsts = vec![0];
        let mut classes: Vec<u64> = Vec::new();
        for block in counts {
            for (class, rows) in block.into_iter().filter(|(_, rows)| *rows > 0) {
                let needed = class as usize + 1;
                if classes.len() < needed {
                    classes.resize(needed, 0);
                }
                classes[class as usize] += u64::from(rows);
                entries.push(Entry {
                    class,
                    rows,
                    until: 0,
                });
            }
            firsts.push(entries.len());
        }
        let present = classes.iter().filter(|rows| **rows > 0).count().max(1) as u64;
        let each = classes.iter().sum::<u64>().div_ceil(present);
        let mut seen = vec![0; classes.len()];
        let mut rows = Vec::with_capacity(firsts.len() - 1);
        for ends in firsts.windows(2) {
            let mut until = 0;
            for entry in &mut entries[ends[0]..ends[1]] {
                let class = entry.class as usize;
                let quota = |before: u64| {
                    u64::try_from(
                        u128::from(each) * u128::from(before) / u128::from(classes[class]),
                    )
                    .unwrap_or(u64::MAX)
                };
                let after = seen[class] + u64::from(entry.rows);
                until += quota(after) - quota(seen[class]);
                seen[class] = after;
                entry.until = u32::try_from(until).map_err(|_| {
                    format!("class `{class}` has too few samples to be as frequent as others")
                })?;
            }
            rows.push(
                entries[ends[0]..ends[1]]
                    .last()
                    .map_or(0, |last| last.until),
            );
        }
        Ok(Self {
            entries,
            firsts,
            blocks: Arc::new(Blocks::new(rows).in_extents(extents)),
        })
    }

    /// Samples of each block.
    pub(crate) fn blocks(&self) -> &Arc<Blocks> {
        &self.blocks
    }

    /// Which row of which class sample `sample` of `block` is in an epoch; `at` is the block's index in its window.
    pub(crate) fn place(&self, block: BlockId, at: u32, sample: u32, epoch: u64) -> ClassPlace {
        let block = index(block.into());
        let entries = &self.entries[self.firsts[block]..self.firsts[block + 1]];
        let found = entries.partition_point(|entry| entry.until <= sample);
        let entry = entries[found];
        let before = found.checked_sub(1).map_or(0, |e| entries[e].until);
        let quota = u128::from(entry.until - before);
        let turn =
            (u128::from(epoch) * quota + u128::from(sample - before)) % u128::from(entry.rows);
        ClassPlace {
            block: at,
            class: entry.class,
            nth: u32::try_from(turn).expect("a remainder is below the rows of a block"),
        }
    }
}
