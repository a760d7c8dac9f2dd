//! Order statistics of columns of 32-bit floats: two passes, whatever the values are.
//!
//! A value becomes an order-preserving 32-bit key. The first pass counts the upper halves of the
//! keys, which shows the halves with the wanted ranks; the second counts the lower halves of those
//! few, and knows the values. Both look at rows of all columns at a time, so that neighbours in
//! memory go to counters of their own and none waits for another.
//!
//! Cost: about 1 ns per value and pass. Memory: [`HEAD_BYTES`] a column in the first pass, as much for each wanted upper half in
//! the second; at most two for each quantile.

use std::collections::BTreeMap;

use super::{Answer, Inconsistent, OrderStatistic, Tally, Wanted, all_of, ranks_of};

/// Halves of keys there are.
const HALVES: usize = 1 << 16;

/// Memory that counting the halves of one column's keys takes.
pub(crate) const HEAD_BYTES: usize = HALVES * size_of::<u32>();

/// Upper halves of -inf, the first and the last of finite values, and inf.
const LOW_INFINITE: usize = 0x007f;
const FIRST: usize = 0x0080;
const LAST: usize = 0xff7f;
const HIGH_INFINITE: usize = 0xff80;

/// Counters of halves.
type Counts = [u32; HALVES];

/// Order-preserving key; -0.0 and 0.0 have one. All NaN have the last.
#[inline]
pub(super) fn key(value: f32) -> u32 {
    let bits = (value + 0.0).to_bits();
    // All bits of a negative value are turned, of another the first one.
    let sign = (bits.cast_signed() >> 31).cast_unsigned();
    let nan = if value.is_nan() { u32::MAX } else { 0 };
    bits ^ (sign | 1 << 31) | nan
}

/// The value of a key.
pub(super) fn value_of(key: u32) -> f64 {
    f64::from(number_of(key))
}

/// The same, as it was in the column.
pub(super) fn number_of(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key ^ 1 << 31 } else { !key })
}

/// Keys of the least and the greatest finite value.
pub(super) fn finite_keys() -> (u32, u32) {
    (key(f32::MIN), key(f32::MAX))
}

#[inline]
fn upper(key: u32) -> usize {
    (key >> 16) as usize
}

#[inline]
fn lower(key: u32) -> usize {
    (key & 0xffff) as usize
}

/// Quantiles that are wanted of columns of rows.
#[derive(Clone, Debug)]
pub(crate) struct ShortSearch {
    columns: Vec<Column>,
}

#[derive(Clone, Debug)]
struct Column {
    /// Index of the column in a row.
    place: usize,
    wanted: Vec<Wanted>,
    tally: Tally,
    /// Upper halves that hold wanted ranks, ascending, with the values below and in each.
    heads: Vec<Head>,
    found: BTreeMap<u64, OrderStatistic>,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    upper: usize,
    below: u64,
    count: u64,
}

/// Counters of the first pass.
#[derive(Clone, Debug)]
pub(crate) struct Heads {
    places: Vec<usize>,
    counts: Vec<u32>,
}

/// Counters of the second pass.
#[derive(Clone, Debug)]
pub(crate) struct Tails {
    places: Vec<usize>,
    /// Index of the counters for each column and upper half; unwanted halves share the first
    /// counters, which are never read.
    slots: Vec<u16>,
    counts: Vec<u32>,
}

impl ShortSearch {
    /// Looks for `wanted` in columns, which are at these places of a row.
    pub(crate) fn new(columns: impl IntoIterator<Item = (usize, Vec<Wanted>)>) -> Self {
        let column = |(place, wanted)| Column {
            place,
            wanted,
            tally: Tally::default(),
            heads: Vec::new(),
            found: BTreeMap::new(),
        };
        Self {
            columns: columns.into_iter().map(column).collect(),
        }
    }

    fn places(&self) -> Vec<usize> {
        self.columns.iter().map(|column| column.place).collect()
    }

    /// The first pass, before it.
    pub(crate) fn heads(&self) -> Heads {
        Heads {
            places: self.places(),
            counts: vec![0; self.columns.len() * HALVES],
        }
    }

    /// Takes in what the first pass counted over all rows.
    pub(crate) fn absorb_heads(&mut self, heads: &Heads) {
        let (counts, _) = heads.counts.as_chunks::<HALVES>();
        for (column, counts) in self.columns.iter_mut().zip(counts) {
            column.absorb_heads(counts);
        }
    }

    /// Bytes that the counters of the second pass take.
    pub(crate) fn tail_bytes(&self) -> usize {
        let heads = self.columns.iter().map(|column| column.heads.len());
        (heads.sum::<usize>() + 1) * HEAD_BYTES
    }

    /// The second pass, before it.
    pub(crate) fn tails(&self) -> Tails {
        let mut slots = vec![0; self.columns.len() * HALVES];
        let mut last = 0;
        for (column, slots) in self.columns.iter().zip(slots.chunks_exact_mut(HALVES)) {
            for head in &column.heads {
                last += 1;
                slots[head.upper] = last;
            }
        }
        Tails {
            places: self.places(),
            slots,
            counts: vec![0; (usize::from(last) + 1) * HALVES],
        }
    }

    /// Takes in what the second pass counted over all rows.
    ///
    /// # Errors
    /// [`Inconsistent`] when that contradicts the first.
    pub(crate) fn absorb_tails(&mut self, tails: &Tails) -> Result<(), Inconsistent> {
        let (counts, _) = tails.counts.as_chunks::<HALVES>();
        let mut counts = &counts[1..];
        for column in &mut self.columns {
            let own;
            (own, counts) = counts.split_at(column.heads.len());
            column.absorb_tails(own)?;
        }
        Ok(())
    }

    /// Tally and quantiles of each column.
    pub(crate) fn into_quantiles(self) -> Vec<Answer> {
        let quantiles = |column: &Column| {
            let count = column.tally.finite;
            (column.tally, all_of(&column.wanted, count, &column.found))
        };
        self.columns.iter().map(quantiles).collect()
    }
}

impl Column {
    fn absorb_heads(&mut self, counts: &Counts) {
        let sum = |counts: &[u32]| counts.iter().copied().map(u64::from).sum::<u64>();
        let (finite, all) = (sum(&counts[FIRST..=LAST]), sum(counts));
        let low_infinite = u64::from(counts[LOW_INFINITE]);
        let high_infinite = u64::from(counts[HIGH_INFINITE]);
        self.tally = Tally {
            finite,
            missing: all - finite - low_infinite - high_infinite,
            low_infinite,
            high_infinite,
        };
        let ranks = ranks_of(&self.wanted, self.tally.finite);
        let mut ranks = ranks.iter().peekable();
        let mut below = 0;
        for (upper, count) in (FIRST..).zip(&counts[FIRST..=LAST]) {
            let count = u64::from(*count);
            let mut is_wanted = false;
            while ranks.next_if(|rank| **rank < below + count).is_some() {
                is_wanted = true;
            }
            if is_wanted {
                self.heads.push(Head {
                    upper,
                    below,
                    count,
                });
            }
            below += count;
        }
    }

    fn absorb_tails(&mut self, counts: &[Counts]) -> Result<(), Inconsistent> {
        let ranks = ranks_of(&self.wanted, self.tally.finite);
        let mut ranks = ranks.iter().peekable();
        for (head, counts) in self.heads.iter().zip(counts) {
            let mut below = head.below;
            for (lower, count) in (0_u32..).zip(counts) {
                let equal = u64::from(*count);
                while let Some(rank) = ranks.next_if(|rank| **rank < below + equal) {
                    let upper = u32::try_from(head.upper).expect("16 bits fit");
                    let statistic = OrderStatistic {
                        value: value_of(upper << 16 | lower),
                        below,
                        equal,
                    };
                    self.found.insert(*rank, statistic);
                }
                below += equal;
            }
            if below != head.below + head.count {
                return Err(Inconsistent);
            }
        }
        Ok(())
    }
}

impl Heads {
    /// Looks at rows of `width` values.
    pub(crate) fn add(&mut self, rows: &[f32], width: usize) {
        let (counts, _) = self.counts.as_chunks_mut::<HALVES>();
        for row in rows.chunks_exact(width) {
            for (place, counts) in self.places.iter().zip(&mut *counts) {
                counts[upper(key(row[*place]))] += 1;
            }
        }
    }

    /// Adds what was counted in other rows.
    pub(crate) fn merge(&mut self, other: &Self) {
        add_to(&mut self.counts, &other.counts);
    }
}

impl Tails {
    /// Looks at rows of `width` values.
    pub(crate) fn add(&mut self, rows: &[f32], width: usize) {
        // Of what is not wanted a few counters are used, which stay in the nearest cache.
        const FEW: usize = 0xff;
        let (slots, _) = self.slots.as_chunks::<HALVES>();
        for row in rows.chunks_exact(width) {
            for (place, slots) in self.places.iter().zip(slots) {
                let key = key(row[*place]);
                let slot = usize::from(slots[upper(key)]);
                // No branch: whether a value is wanted cannot be foreseen.
                let mask = usize::from(slot > 0).wrapping_neg() | FEW;
                self.counts[slot * HALVES + (lower(key) & mask)] += 1;
            }
        }
    }

    /// Adds what was counted in other rows.
    pub(crate) fn merge(&mut self, other: &Self) {
        add_to(&mut self.counts, &other.counts);
    }
}

fn add_to(all: &mut [u32], some: &[u32]) {
    for (all, some) in all.iter_mut().zip(some) {
        *all += some;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::statistics::quantile::{Quantile, Scan, Search};

    /// Result of the search over 64 bits.
    pub(in crate::statistics::quantile) fn expected(values: &[f64], wanted: &[Wanted]) -> Answer {
        let mut search = Search::new(wanted.to_vec(), u64::MAX);
        while let Some(spec) = search.next_scan() {
            let mut scan = Scan::new(spec);
            scan.add_all(values);
            search.absorb(scan).unwrap();
        }
        (search.tally(), search.quantiles())
    }

    /// Two columns of rows of three, in two parts.
    fn found(columns: &[Vec<f32>; 2], wanted: &[Wanted], cut: usize) -> Vec<Answer> {
        let rows = columns[0].iter().zip(&columns[1]);
        let rows: Vec<f32> = rows.flat_map(|(a, b)| [*b, 7.0, *a]).collect();
        let parts = rows.split_at(3 * cut.min(columns[0].len()));
        let mut search = ShortSearch::new([(2, wanted.to_vec()), (0, wanted.to_vec())]);
        let (mut heads, mut others) = (search.heads(), search.heads());
        heads.add(parts.0, 3);
        others.add(parts.1, 3);
        heads.merge(&others);
        search.absorb_heads(&heads);
        let (mut tails, mut others) = (search.tails(), search.tails());
        tails.add(parts.0, 3);
        others.add(parts.1, 3);
        tails.merge(&others);
        search.absorb_tails(&tails).unwrap();
        search.into_quantiles()
    }

    fn check(columns: &[Vec<f32>; 2], wanted: &[Wanted], cut: usize) {
        let found = found(columns, wanted, cut);
        for (column, found) in columns.iter().zip(found) {
            let values: Vec<f64> = column.iter().map(|x| f64::from(*x)).collect();
            assert_same(found, expected(&values, wanted));
        }
    }

    /// Asserts that two results agree to the bit.
    pub(in crate::statistics::quantile) fn assert_same(found: Answer, expected: Answer) {
        let bits = |quantiles: Option<Vec<Quantile>>| {
            let quantiles = quantiles.into_iter().flatten();
            let bits = quantiles.map(|q| (q.value.to_bits(), q.below, q.above));
            bits.collect::<Vec<_>>()
        };
        assert_eq!(found.0, expected.0);
        assert_eq!(found.1.is_some(), expected.1.is_some());
        assert_eq!(bits(found.1), bits(expected.1));
    }

    #[test]
    fn keys_keep_the_order_and_give_the_value_back() {
        let ordered = [
            f32::NEG_INFINITY,
            f32::MIN,
            -1.0,
            -f32::from_bits(1),
            0.0,
            f32::from_bits(1),
            1.0,
            1.5,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
        ];
        for pair in ordered.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
        }
        for value in &ordered[..10] {
            assert_eq!(value_of(key(*value)).to_bits(), f64::from(*value).to_bits());
        }
        assert_eq!(value_of(key(-0.0)).to_bits(), 0);
        assert_eq!(
            [f32::NEG_INFINITY, f32::MIN, f32::MAX, f32::INFINITY].map(|x| upper(key(x))),
            [LOW_INFINITE, FIRST, LAST, HIGH_INFINITE]
        );
    }

    #[test]
    fn columns_without_numbers_have_no_quantiles() {
        let nothing = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        let columns = [nothing, vec![2.5, f32::NAN, 2.5, 2.5]];
        check(&columns, &[Wanted::Median, Wanted::Percentile(0.99)], 1);
        check(&[vec![], vec![]], &[Wanted::Median], 0);
    }

    #[test]
    fn a_pass_that_sees_other_values_is_refused() {
        let mut search = ShortSearch::new([(0, vec![Wanted::Median])]);
        let mut heads = search.heads();
        heads.add(&[1.0, 2.0, 3.0], 1);
        search.absorb_heads(&heads);
        let mut tails = search.tails();
        tails.add(&[1.0, 3.0, 3.0], 1);
        assert_eq!(search.absorb_tails(&tails), Err(Inconsistent));
    }

    proptest! {
        // Each case counts in megabytes.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn two_passes_find_what_the_search_of_64_bits_finds(
            rows in prop::collection::vec((any_cell(), any_cell()), 1..200),
            shares in prop::collection::vec(0f64..=1.0, 0..4),
            cut in 0_usize..200,
        ) {
            let columns = [rows.iter().map(|r| r.0).collect(), rows.iter().map(|r| r.1).collect()];
            let wanted: Vec<Wanted> =
                shares.into_iter().map(Wanted::Percentile).chain([Wanted::Median]).collect();
            check(&columns, &wanted, cut);
        }
    }

    pub(in crate::statistics::quantile) fn any_cell() -> impl Strategy<Value = f32> {
        prop_oneof![
            any::<u32>().prop_map(f32::from_bits),
            (-3i8..3).prop_map(f32::from),
            Just(-0.0),
            Just(f32::NAN),
            Just(f32::INFINITY),
            // Neighbours that differ only in the last bits.
            (0u32..9).prop_map(|i| f32::from_bits(1f32.to_bits() + i)),
        ]
    }
}
