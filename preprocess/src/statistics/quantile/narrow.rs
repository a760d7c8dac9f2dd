//! Order statistics of columns of 32-bit floats in one pass, guided by a sample of the rows.
//!
//! A [`Sample`] gives narrow windows of values that most likely contain the wanted ranks (see
//! [`super::windows`]). The pass counts for each column the values below, in and above each window,
//! and gathers the few inside. The counts cover all rows, so they prove whether a rank is in a
//! window; if it is, the gathered values give its value. If it is not, or if more values would be
//! gathered than fit, the pass finds nothing, and [`ShortSearch`](super::ShortSearch) counts the
//! column. The result is the same either way: the sample only affects time.
//!
//! A value that many cells share, such as a zero, has a window of its own in which values are counted and not gathered.
//!
//! Cost: a comparison and an addition per value and boundary, four at a time: about 2 ns per value
//! for three percentiles, where the two passes take 10. Memory: four bytes for each gathered value
//! (one of 20 for three percentiles and a sample of 32 thousand rows, one of 35 for four times as
//! many) and four for each sampled value.

use std::collections::BTreeMap;

use super::{
    Answer, OrderStatistic, Sample, Tally, Wanted, all_of, as_count, ranks_of,
    short::{key, value_of},
    windows::{Cut, Cuts, Span},
};

/// Rows that are looked at together.
const STRIP: usize = 64;
/// Columns that are processed together: neighbours are read at once and stay in the nearest cache.
const BLOCK: usize = 8;

/// Quantiles that are wanted of columns of rows.
#[derive(Clone, Debug)]
pub(crate) struct NarrowSearch {
    columns: Vec<(Vec<Wanted>, Column)>,
}

/// Counts and gathered values of the pass.
#[derive(Clone, Debug)]
pub(crate) struct Narrow {
    rows: u64,
    columns: Vec<Column>,
}

#[derive(Clone, Debug)]
struct Column {
    /// Index of the column in a row.
    place: usize,
    cuts: Cuts,
    /// Number of values up to each boundary.
    counts: Vec<u32>,
    /// Keys of the values in windows; absent if they were too many.
    gathered: Option<Vec<u32>>,
}

impl NarrowSearch {
    /// Looks for what is `wanted` of each column of a sample of `rows` rows.
    pub(crate) fn new(wanted: Vec<Vec<Wanted>>, sample: Sample, rows: u64) -> Self {
        let cuts = sample.into_cuts(wanted.iter().map(Vec::as_slice), rows);
        let columns: Vec<Column> = cuts.map(Column::new).collect();
        Self {
            columns: wanted.into_iter().zip(columns).collect(),
        }
    }

    /// Bytes that the pass gathers at most.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = self.columns.iter().map(|(_, column)| column.bytes());
        bytes.fold(0, usize::saturating_add)
    }

    /// The pass, before it.
    pub(crate) fn pass(&self) -> Narrow {
        Narrow {
            rows: 0,
            columns: self.columns.iter().map(|(_, c)| c.clone()).collect(),
        }
    }

    /// Kinds of cells of each column, and its quantiles in the order of the request, `None` without
    /// a finite value; `None` for a column with a wanted value outside the windows.
    pub(crate) fn into_quantiles(self, pass: Narrow) -> Vec<Option<Answer>> {
        let columns = self.columns.into_iter().zip(pass.columns);
        let found = columns.map(|((wanted, _), column)| {
            let tally = column.tally(pass.rows);
            let found = column.find(&ranks_of(&wanted, tally.finite))?;
            Some((tally, all_of(&wanted, tally.finite, &found)))
        });
        found.collect()
    }
}

impl Narrow {
    /// Looks at rows of `width` values.
    pub(crate) fn add(&mut self, rows: &[f32], width: usize) {
        for strip in rows.chunks(STRIP * width) {
            self.rows += as_count(strip.len() / width);
            for columns in self.columns.chunks_mut(BLOCK) {
                let mut cells = [[f32::NAN; STRIP]; BLOCK];
                let mut places = [columns[0].place; BLOCK];
                for (place, column) in places.iter_mut().zip(&*columns) {
                    *place = column.place;
                }
                for (at, row) in strip.chunks_exact(width).enumerate() {
                    for (cells, place) in cells.iter_mut().zip(places) {
                        cells[at] = row[place];
                    }
                }
                for (column, cells) in columns.iter_mut().zip(&cells) {
                    column.add(cells);
                }
            }
        }
    }

    /// Adds what was found in other rows.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        for (own, other) in self.columns.iter_mut().zip(&other.columns) {
            own.merge(other);
        }
    }
}

impl Column {
    fn new((place, cuts): (usize, Cuts)) -> Self {
        Self {
            place,
            counts: vec![0; cuts.cuts.len()],
            gathered: Some(Vec::new()),
            cuts,
        }
    }

    /// Bytes that are gathered at most: a strip is looked at before its values are counted.
    fn bytes(&self) -> usize {
        let most = self.cuts.limit.saturating_add(STRIP);
        most.saturating_mul(size_of::<u32>())
    }

    /// Adds cells. No boundary is above NaN.
    fn add(&mut self, cells: &[f32; STRIP]) {
        // Without a branch, so that the compiler compares several cells at a time.
        let mut inside = [0_u32; STRIP];
        for (cut, count) in self.cuts.cuts.iter().zip(&mut self.counts) {
            let is_below = |cell: &f32| if *cell <= cut.through { u32::MAX } else { 0 };
            // All bits are minus one.
            let mut below = 0_u32;
            if cut.turns {
                for (inside, cell) in inside.iter_mut().zip(cells) {
                    below = below.wrapping_sub(is_below(cell));
                    *inside ^= is_below(cell);
                }
            } else {
                for cell in cells {
                    below = below.wrapping_sub(is_below(cell));
                }
            }
            *count += below;
        }
        let Some(gathered) = &mut self.gathered else {
            return;
        };
        if gathered.capacity() == 0 {
            gathered.reserve_exact(self.cuts.limit + STRIP);
        }
        let inside: [u8; STRIP] = inside.map(|mask| u8::from(mask != 0));
        let (inside, _) = inside.as_chunks::<8>();
        let (cells, _) = cells.as_chunks::<8>();
        for (inside, cells) in inside.iter().zip(cells) {
            let mut inside = u64::from_le_bytes(*inside);
            while inside != 0 {
                gathered.push(key(cells[(inside.trailing_zeros() / 8) as usize]));
                inside &= inside - 1;
            }
        }
        if gathered.len() > self.cuts.limit {
            self.gathered = None;
        }
    }

    fn merge(&mut self, other: &Self) {
        for (own, other) in self.counts.iter_mut().zip(&other.counts) {
            *own += other;
        }
        let both = self.gathered.take().zip(other.gathered.as_deref());
        let limit = self.cuts.limit;
        let fits = both.filter(|(own, other)| own.len() + other.len() <= limit);
        self.gathered = fits.map(|(mut own, other)| {
            own.extend_from_slice(other);
            own
        });
    }

    /// Counts of each kind of cell in `rows` rows.
    fn tally(&self, rows: u64) -> Tally {
        let count = |at: usize| u64::from(self.counts[at]);
        let (low_infinite, numbers) = (count(0), count(self.counts.len() - 1));
        let below_infinite = count(self.counts.len() - 2);
        Tally {
            finite: below_infinite - low_infinite,
            missing: rows - numbers,
            low_infinite,
            high_infinite: numbers - below_infinite,
        }
    }

    /// The values of ascending `ranks` among the finite values; `None` where one is not in a window.
    fn find(&self, ranks: &[u64]) -> Option<BTreeMap<u64, OrderStatistic>> {
        let mut found = BTreeMap::new();
        let low_infinite = self.counts[0];
        let mut ranks = ranks.iter().peekable();
        let mut base = 0;
        for at in 1..self.counts.len() {
            let end = u64::from(self.counts[at] - low_infinite);
            let mut inside = Vec::new();
            while let Some(rank) = ranks.next_if(|rank| **rank < end) {
                inside.push(*rank);
            }
            if !inside.is_empty() {
                let known = self.values(at, base, &inside)?;
                found.extend(inside.into_iter().zip(known));
            }
            base = end;
        }
        Some(found)
    }

    /// Values of `ranks`, which are between the boundary at `at` and the one before; `base` values
    /// are below.
    fn values(&self, at: usize, base: u64, ranks: &[u64]) -> Option<Vec<OrderStatistic>> {
        let Cut { through, span, .. } = self.cuts.cuts[at];
        match span {
            Span::Counted => None,
            Span::Single => {
                let statistic = OrderStatistic {
                    value: value_of(key(through)),
                    below: base,
                    equal: u64::from(self.counts[at] - self.counts[at - 1]),
                };
                Some(vec![statistic; ranks.len()])
            }
            Span::Gathered => {
                let (low, high) = (key(self.cuts.cuts[at - 1].through), key(through));
                let gathered = self.gathered.as_ref()?.iter().copied();
                let mut keys: Vec<u32> = gathered.filter(|k| low < *k && *k <= high).collect();
                let statistics = ranks.iter().map(|rank| select(&mut keys, base, *rank));
                Some(statistics.collect())
            }
        }
    }
}

/// Value of a rank among `keys`; `base` values are below all of them.
fn select(keys: &mut [u32], base: u64, rank: u64) -> OrderStatistic {
    let at = usize::try_from(rank - base).expect("a rank in memory");
    let (below, key, above) = keys.select_nth_unstable(at);
    let key = *key;
    let same_below = below.iter().filter(|other| **other == key).count();
    let same_above = above.iter().filter(|other| **other == key).count();
    OrderStatistic {
        value: value_of(key),
        below: rank - as_count(same_below),
        equal: as_count(same_below + 1 + same_above),
    }
}

#[cfg(test)]
mod tests;
