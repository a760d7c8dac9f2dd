//! Balanced classes: an epoch in which every class has its share of the samples, whatever its share of the rows.
//!
//! Of `N` rows, a class of weight `w` (those of all classes with rows together 1) gives
//! `T = ceil(w N)` samples of an epoch. They are spread evenly over its `n` rows, in stored order:
//! row `r` gives in epoch `e`
//!
//! ```text
//! floor(T (r + e + 1) / n) - floor(T (r + e) / n)
//! ```
//!
//! samples, which is `T / n` rounded down or up. The sum over epochs telescopes, so that after any number of them all
//! rows of a class were given equally often, to one. A block holds the samples of its rows; all else is as in an ordinary
//! order over blocks of these numbers of samples: each block is read once in an epoch, and a window takes as many
//! blocks.
//!
//! Each class as a source of a mixture would fix the make-up of every batch, but would read a block once for each class
//! in it, and all of them again each time that the rows of a rare class come round. Here the repeats of a row are no
//! farther apart than its window is long.

use std::{collections::BTreeMap, sync::Arc};

use feedline_schemas::ids::Hash128;

use super::{blocks::Blocks, dataset_mixture::parts};
use crate::{block_table::BlockId, index::index};

/// Sampling rate of each class, whatever its share of the rows.
///
/// An epoch has as many samples as the split has rows, or a few more: each class has its share of them rounded up. Rows
/// of a class whose share is larger than that of its rows come several times in an epoch, other rows not in every one;
/// over the epochs, all rows of a class come equally often. A class without rows is left out.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassBalance {
    /// All classes equally often.
    Equal,
    /// Each class by its weight, in the order of their ids: finite, not negative, and 0 leaves the class out. Kept to
    /// one part in 2^30 of all weights together.
    Weighted(Vec<f64>),
}

/// Rows of each class in each block: 16 bytes for each class of each block.
#[derive(Debug)]
pub(crate) struct Balance {
    classes: Vec<BalancedClass>,
    entries: Vec<ClassEntry>,
    /// First entry of each block, and their number.
    firsts: Vec<usize>,
    /// The blocks with their samples in epoch 0.
    blocks: Arc<Blocks>,
}

#[derive(Clone, Copy, Debug, Default)]
struct BalancedClass {
    rows: u64,
    /// Samples of an epoch.
    samples: u64,
}

#[derive(Clone, Copy, Debug)]
struct ClassEntry {
    class: u32,
    /// Rows of the class in the block.
    rows: u32,
    /// Rows of the class in the blocks before.
    before: u64,
}

/// The samples of some blocks in an epoch.
#[derive(Debug)]
pub(crate) struct ClassRows {
    parts: Vec<ClassPart>,
    /// First part of each block, and their number.
    firsts: Vec<usize>,
}

/// The samples of a class in a block.
#[derive(Clone, Copy, Debug)]
struct ClassPart {
    class: BalancedClass,
    /// Samples of the block up to these, themselves included.
    until: u32,
    /// Rows of the block in the classes before.
    rank: u32,
    /// Number of the first row of the class in the block, moved on by the epoch.
    first: u64,
}

/// Row of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassRow {
    /// The row, counted through those of the block in the order of their classes.
    pub(crate) rank: u32,
    /// Number of samples of the epoch with this row, before this one.
    pub(crate) again: u32,
}

impl BalancedClass {
    /// Samples of the first `rows` rows, going round.
    fn until(self, rows: u64) -> u64 {
        muldiv(self.samples, rows, self.rows)
    }
}

impl Balance {
    /// Balances blocks with these numbers of rows by class, in ascending order of classes, in these
    /// [extents](Blocks::in_extents).
    ///
    /// # Errors
    /// Description of the error in the weights.
    pub(crate) fn new(
        counts: impl IntoIterator<Item = Vec<(u32, u32)>>,
        weights: &ClassBalance,
        extents: Option<Vec<BlockId>>,
    ) -> Result<Self, String> {
        let mut rows = BTreeMap::<u32, u64>::new();
        let (mut entries, mut firsts) = (Vec::new(), vec![0]);
        for block in counts {
            for (class, count) in block.into_iter().filter(|(_, count)| *count > 0) {
                let before = rows.entry(class).or_default();
                entries.push(ClassEntry {
                    class,
                    rows: count,
                    before: *before,
                });
                *before += u64::from(count);
            }
            firsts.push(entries.len());
        }
        let mut balance = Self {
            classes: shares(&rows, weights)?,
            blocks: Arc::new(Blocks::new(vec![0; firsts.len() - 1]).in_extents(extents)),
            entries,
            firsts,
        };
        balance.check()?;
        balance.blocks = balance.in_epoch(0);
        Ok(balance)
    }

    /// In no epoch does a block give more samples than 32 bits count.
    fn check(&self) -> Result<(), String> {
        for ends in self.firsts.windows(2) {
            let mut most = 0u64;
            for entry in &self.entries[ends[0]..ends[1]] {
                let class = self.classes[entry.class as usize];
                most = most.saturating_add(class.until(entry.rows.into()) + 1);
                if u32::try_from(most).is_err() {
                    return Err(format!(
                        "class `{}` has too few rows to come so often, give it a smaller weight",
                        entry.class
                    ));
                }
            }
        }
        Ok(())
    }

    /// The blocks with their samples in epoch 0. There are as many in every epoch, but in other blocks.
    pub(crate) fn blocks(&self) -> &Arc<Blocks> {
        &self.blocks
    }

    /// The blocks with their samples in `epoch`.
    pub(crate) fn in_epoch(&self, epoch: u64) -> Arc<Blocks> {
        let samples = self.firsts.windows(2).map(|ends| {
            let entries = &self.entries[ends[0]..ends[1]];
            let parts = entries.iter().map(|entry| self.samples(entry, epoch));
            parts.sum()
        });
        Arc::new(self.blocks.with_rows(samples.collect()))
    }

    /// Rows of each class in a block.
    pub(crate) fn counts(&self, block: BlockId) -> impl Iterator<Item = (u32, u32)> {
        let entries = self.entries_of(block).iter();
        entries.map(|entry| (entry.class, entry.rows))
    }

    /// Hash of the samples that each class has in an epoch, and of the rows that each block has of it.
    pub(crate) fn hash(&self) -> Hash128 {
        let samples = self.classes.iter().map(|class| class.samples);
        let rows = (0..self.blocks.block_count()).flat_map(|block| {
            let counts = self.counts(block);
            let pairs = counts.map(|(class, rows)| u64::from(class) << 32 | u64::from(rows));
            pairs.chain([u64::MAX])
        });
        let bytes: Vec<u8> = samples.chain(rows).flat_map(u64::to_le_bytes).collect();
        Hash128::of(&bytes)
    }

    /// The samples of `blocks` in `epoch`.
    pub(crate) fn rows(&self, blocks: &[BlockId], epoch: u64) -> ClassRows {
        let (mut parts, mut firsts) = (Vec::new(), vec![0]);
        for block in blocks {
            let (mut until, mut rank) = (0, 0);
            for entry in self.entries_of(*block) {
                until += self.samples(entry, epoch);
                parts.push(ClassPart {
                    class: self.classes[entry.class as usize],
                    until,
                    rank,
                    first: self.moved(entry, epoch),
                });
                rank += entry.rows;
            }
            firsts.push(parts.len());
        }
        ClassRows { parts, firsts }
    }

    fn entries_of(&self, block: BlockId) -> &[ClassEntry] {
        let block = index(block.into());
        &self.entries[self.firsts[block]..self.firsts[block + 1]]
    }

    /// Number of the first row of an entry among those of its class, moved on by the epoch.
    fn moved(&self, entry: &ClassEntry, epoch: u64) -> u64 {
        entry.before + epoch % self.classes[entry.class as usize].rows
    }

    /// Samples of an entry in an epoch.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "`check` has found that they fit for all classes of the block together"
    )]
    fn samples(&self, entry: &ClassEntry, epoch: u64) -> u32 {
        let (class, first) = (self.classes[entry.class as usize], self.moved(entry, epoch));
        (class.until(first + u64::from(entry.rows)) - class.until(first)) as u32
    }
}

impl ClassRows {
    /// The row of sample `sample` of the block with number `block` among those that were given.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the rows of a block and the samples of each fit in 32 bits"
    )]
    pub(crate) fn row(&self, block: u32, sample: u32) -> ClassRow {
        let block = block as usize;
        let parts = &self.parts[self.firsts[block]..self.firsts[block + 1]];
        let found = parts.partition_point(|part| part.until <= sample);
        let part = parts[found];
        let before = found.checked_sub(1).map_or(0, |at| parts[at].until);
        let BalancedClass { rows, samples } = part.class;
        // Number of the sample in its class, and the last row before whose end there are so many.
        let number = part.class.until(part.first) + u64::from(sample - before);
        let row = muldiv_up(number + 1, rows, samples) - 1;
        ClassRow {
            rank: part.rank + (row - part.first) as u32,
            again: (number - part.class.until(row)) as u32,
        }
    }
}

/// The classes, with their samples in an epoch.
fn shares(rows: &BTreeMap<u32, u64>, weights: &ClassBalance) -> Result<Vec<BalancedClass>, String> {
    let all: u64 = rows.values().sum();
    let parts = match weights {
        ClassBalance::Equal => None,
        ClassBalance::Weighted(weights) => Some(parts(weights)?),
    };
    let part = |class: u32| match &parts {
        None => Ok(1),
        Some(parts) => parts.get(class as usize).copied().ok_or_else(|| {
            format!(
                "it has `{}` weights and there are rows of class `{class}`, give each class one",
                parts.len()
            )
        }),
    };
    let mut total = 0;
    for class in rows.keys() {
        total += part(*class)?;
    }
    if total == 0 {
        return Err("no class with rows has a weight, give at least one".into());
    }
    let mut classes = Vec::new();
    for (class, rows) in rows {
        classes.resize(index((*class).into()) + 1, BalancedClass::default());
        classes[*class as usize] = BalancedClass {
            rows: *rows,
            samples: muldiv_up(all, part(*class)?, total),
        };
    }
    Ok(classes)
}

/// `a * b / c`, rounded down.
fn muldiv(a: u64, b: u64, c: u64) -> u64 {
    let exact = u128::from(a) * u128::from(b) / u128::from(c);
    u64::try_from(exact).unwrap_or(u64::MAX)
}

/// `a * b / c`, rounded up.
fn muldiv_up(a: u64, b: u64, c: u64) -> u64 {
    let exact = (u128::from(a) * u128::from(b)).div_ceil(u128::from(c));
    u64::try_from(exact).unwrap_or(u64::MAX)
}
