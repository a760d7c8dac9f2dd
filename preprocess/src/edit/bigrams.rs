//! Counts of pairs of neighbours, exact, in bounded memory.
//!
//! Pairs are counted in a table; when it is full, its counts become a run of an external sort. The
//! final merge adds up the counts of equal pairs and only keeps the number of pairs for each count,
//! which is small.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use feedline_schemas::edit::Bigrams;

use crate::{
    Error,
    engine::external_sort::{ExternalSort, Record},
};

/// Most pairs in the table, about 50 MB.
const TABLE: usize = 1 << 20;

/// Memory for counts on their way to the disk.
const MEMORY: u64 = 16 << 20;

/// A pair and how often it was found: 16 bytes in a file, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Count {
    pair: u64,
    count: u64,
}

impl Record for Count {
    type Bytes = [u8; 16];

    const NAME: &'static str = "pairs";

    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.pair.to_le_bytes());
        bytes[8..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; 16]) -> Self {
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            pair: long(0),
            count: long(8),
        }
    }
}

/// Counts the pairs of documents.
#[derive(Debug)]
pub(super) struct BigramCounts {
    table: HashMap<u64, u64>,
    limit: usize,
    runs: ExternalSort<Count>,
}

impl BigramCounts {
    /// Makes `folder` for what does not fit in memory.
    pub(super) fn new(folder: &Path) -> Result<Self, Error> {
        Self::with_limits(folder, TABLE, MEMORY)
    }

    fn with_limits(folder: &Path, limit: usize, memory: u64) -> Result<Self, Error> {
        fs::create_dir(folder).map_err(|e| Error::scratch(folder, e))?;
        Ok(Self {
            table: HashMap::new(),
            limit,
            runs: ExternalSort::new(folder, memory),
        })
    }

    /// Counts the pairs of a document.
    pub(super) fn add(&mut self, ids: &[u32]) -> Result<(), Error> {
        for pair in ids.windows(2) {
            let pair = u64::from(pair[0]) << 32 | u64::from(pair[1]);
            *self.table.entry(pair).or_default() += 1;
            if self.table.len() >= self.limit {
                self.spill()?;
            }
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<(), Error> {
        for (pair, count) in self.table.drain() {
            self.runs.push(Count { pair, count })?;
        }
        Ok(())
    }

    /// Statistics of all bigrams.
    pub(super) fn finish(mut self) -> Result<Bigrams, Error> {
        self.spill()?;
        let mut by_count: BTreeMap<u64, u64> = BTreeMap::new();
        let mut open: Option<Count> = None;
        let sorted = self.runs.sort()?;
        for found in sorted.iter()? {
            let found = found?;
            match &mut open {
                Some(open) if open.pair == found.pair => open.count += found.count,
                _ => {
                    if let Some(done) = open.replace(found) {
                        *by_count.entry(done.count).or_default() += 1;
                    }
                }
            }
        }
        if let Some(done) = open {
            *by_count.entry(done.count).or_default() += 1;
        }
        Ok(figures(&by_count))
    }
}

/// Of how many pairs there are with each count.
#[expect(
    clippy::cast_precision_loss,
    reason = "a share and an entropy need no 53 bits"
)]
fn figures(by_count: &BTreeMap<u64, u64>) -> Bigrams {
    let total: u64 = by_count.iter().map(|(count, pairs)| count * pairs).sum();
    let distinct: u64 = by_count.values().sum();
    if total == 0 {
        return Bigrams::default();
    }
    let mut left = distinct.div_ceil(100);
    let mut top = 0;
    for (count, pairs) in by_count.iter().rev() {
        let taken = left.min(*pairs);
        top += count * taken;
        left -= taken;
    }
    // H = log2 N - sum(c log2 c) / N over the pairs.
    let logs: f64 = by_count
        .iter()
        .map(|(count, pairs)| (count * pairs) as f64 * (*count as f64).log2())
        .sum();
    Bigrams {
        total,
        distinct,
        top_share: top as f64 / total as f64,
        entropy_bits: ((total as f64).log2() - logs / total as f64).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs (i, j) of ids below `n`, written so that pair number k of a fixed order comes k % 7 + 1 times.
    fn documents(n: u32) -> Vec<[u32; 2]> {
        let pairs = (0..n * n).map(|k| ([k / n, k % n], k % 7 + 1));
        pairs
            .flat_map(|(pair, times)| (0..times).map(move |_| pair))
            .collect()
    }

    fn counted(documents: &[[u32; 2]], limit: usize, memory: u64) -> Bigrams {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("pairs");
        let mut counts = BigramCounts::with_limits(&folder, limit, memory).unwrap();
        documents.iter().for_each(|ids| counts.add(ids).unwrap());
        counts.finish().unwrap()
    }

    #[test]
    fn figures_are_those_of_the_counts() {
        // 400 pairs, 57 or 58 of each count from 1 to 7; the top 4 come 7 times each.
        let documents = documents(20);
        let found = counted(&documents, 1 << 20, 1 << 20);
        assert_eq!((found.total, found.distinct), (documents.len() as u64, 400));
        let total = f64::from(u32::try_from(documents.len()).unwrap());
        assert!((found.top_share - 28.0 / total).abs() < 1e-15);
        let entropy: f64 = (0..400_u32)
            .map(|k| f64::from(k % 7 + 1) / total)
            .map(|p| -p * p.log2())
            .sum();
        assert!((found.entropy_bits - entropy).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn counts_that_do_not_fit_in_memory_are_the_same() {
        let documents = documents(20);
        let whole = counted(&documents, 1 << 20, 1 << 20);
        let mut other_order = documents.clone();
        other_order.reverse();
        // A table of 30 pairs, and runs of 8.
        assert_eq!(counted(&documents, 30, 128), whole);
        assert_eq!(counted(&other_order, 30, 128), whole);
    }

    #[test]
    fn texts_without_pairs_have_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut counts = BigramCounts::new(&folder.path().join("pairs")).unwrap();
        counts.add(&[]).unwrap();
        counts.add(&[5]).unwrap();
        assert_eq!(counts.finish().unwrap(), Bigrams::default());
    }

    #[test]
    fn one_pair_alone_has_all_and_no_entropy() {
        let found = counted(&[[1, 2]; 9], 10, 1 << 10);
        let expected = Bigrams {
            total: 9,
            distinct: 1,
            top_share: 1.0,
            entropy_bits: 0.0,
        };
        assert_eq!(found, expected);
    }
}
