//! Exact order statistics by radix counting: no sort, no sketch, the same result for any order and
//! partitioning.
//!
//! A float becomes an order-preserving 64-bit [`key`]. A scan counts, for each wanted prefix of the
//! key, how often each value of the next 16 bits occurs; the counts show the bucket of a rank, and
//! the next scan looks only there. Four scans fix all 64 bits, but usually two suffice:
//!
//! - once the wanted buckets together hold at most [`COLLECT_LIMIT`] values, the next scan collects them and sorts them
//!   (so one scan is enough for a small column);
//! - a bucket whose smallest and largest key agree holds copies of one value, as with 70 % zeros.
//!
//! All decisions are made from counts over all rows, so they do not depend on how rows were partitioned.
//!
//! Cost: a scan costs a key, a comparison per wanted prefix and at most one counter increment per value: 2 to 3 ns for three
//! percentiles of heavy-tailed values on one core, where sorting them takes 35 ns. Memory: 512 KiB
//! per wanted prefix, at most two prefixes per percentile, or 512 KiB of collected keys; nothing grows with the rows.
//! [`Search`] drives the scans of one column; [`Scan`] is the mergeable state of one. Row-major
//! columns of 32-bit floats take one pass instead, guided by a sample ([`NarrowSearch`]), and two
//! over keys of 32 bits where the sample is wrong ([`ShortSearch`]).

mod narrow;
mod scan;
mod short;
mod tally;
mod windows;

use std::collections::BTreeMap;

pub(crate) use narrow::{Narrow, NarrowSearch};
pub(crate) use scan::{COLLECT_LIMIT, PREFIX_BYTES, Scan, ScanMode, ScanSpec};
pub(crate) use short::{HEAD_BYTES, Heads, ShortSearch, Tails};
pub(crate) use tally::Tally;
pub(crate) use windows::{Sample, sample_rows};

/// Bits a counting scan resolves.
const RADIX_BITS: u32 = 16;
/// Scans that resolve a whole key.
const DEPTHS: u32 = 64 / RADIX_BITS;

/// Order-preserving key of a value that is not NaN; -0.0 and 0.0 have one key.
#[inline]
pub(crate) fn key(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    }
}

/// The value of a key.
pub(crate) fn value_of(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 {
        key & !(1 << 63)
    } else {
        !key
    })
}

/// Order statistic of a column's finite values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wanted {
    /// The middle value, or the mean of the two middle ones.
    Median,
    /// The percentile at this share, 0 to 1, interpolated linearly between neighbours as numpy does by default:
    /// the value at the virtual index `share · (n - 1)`.
    Percentile(f64),
}

/// A quantile, and the numbers of values on either side of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantile {
    /// The quantile.
    pub(crate) value: f64,
    /// Finite values strictly below it.
    pub(crate) below: u64,
    /// Finite values strictly above it.
    pub(crate) above: u64,
}

/// Counts of each kind of cell of a column, and its quantiles in the order of the request; `None`
/// if it has no finite value.
pub(crate) type Answer = (Tally, Option<Vec<Quantile>>);

/// Value at a rank, with the number of values strictly below it and the number equal to it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OrderStatistic {
    value: f64,
    below: u64,
    equal: u64,
}

impl OrderStatistic {
    fn through(&self) -> u64 {
        self.below + self.equal
    }
}

/// Values that share a prefix, and the wanted ranks among them.
#[derive(Clone, Debug)]
struct Group {
    prefix: u64,
    /// Values below the prefix.
    base: u64,
    /// Values with the prefix.
    count: u64,
    /// Wanted ranks over all values, from 0.
    ranks: Vec<u64>,
}

/// Finds quantiles of one column over several scans.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    wanted: Vec<Wanted>,
    tally: Option<Tally>,
    depth: u32,
    groups: Vec<Group>,
    found: BTreeMap<u64, OrderStatistic>,
    collect: bool,
}

/// A scan that contradicts the one before: the rows have changed in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two scans of one column saw different values")]
pub(crate) struct Inconsistent;

impl Search {
    /// Starts a search in a column of at most `rows` values.
    pub(crate) fn new(wanted: Vec<Wanted>, rows: u64) -> Self {
        let everything = Group {
            prefix: 0,
            base: 0,
            count: rows,
            ranks: Vec::new(),
        };
        Self {
            wanted,
            tally: None,
            depth: 0,
            groups: vec![everything],
            found: BTreeMap::new(),
            collect: rows <= COLLECT_LIMIT,
        }
    }

    /// The scan to make next, or `None` when all is found.
    pub(crate) fn next_scan(&self) -> Option<ScanSpec> {
        let mode = if self.collect {
            ScanMode::Collect
        } else {
            ScanMode::Count
        };
        let prefixes: Vec<u64> = self.groups.iter().map(|group| group.prefix).collect();
        (!prefixes.is_empty()).then_some(ScanSpec {
            mode,
            depth: self.depth,
            prefixes,
        })
    }

    /// Takes in the merged result of the scan that [`Self::next_scan`] named.
    ///
    /// # Errors
    /// [`Inconsistent`] when the counts contradict those of the scan before.
    pub(crate) fn absorb(&mut self, scan: Scan) -> Result<(), Inconsistent> {
        if self.tally.is_none() {
            let count = scan.tally().finite;
            self.tally = Some(scan.tally());
            self.groups[0].count = count;
            self.groups[0].ranks = self
                .wanted
                .iter()
                .flat_map(|wanted| wanted.ranks(count))
                .collect();
            self.groups.retain(|group| !group.ranks.is_empty());
        } else if self.tally != Some(scan.tally()) {
            return Err(Inconsistent);
        }
        let groups = std::mem::take(&mut self.groups);
        match self.collect {
            true => self.absorb_keys(&groups, scan.into_sorted_keys()),
            false => self.absorb_counts(&groups, &scan),
        }
    }

    /// The quantiles in the order they were asked for, or `None` if the column has no finite value.
    ///
    /// Call it when [`Self::next_scan`] has nothing left to ask.
    pub(crate) fn quantiles(&self) -> Option<Vec<Quantile>> {
        let count = self
            .tally
            .map(|tally| tally.finite)
            .filter(|count| *count > 0)?;
        self.wanted
            .iter()
            .map(|wanted| wanted.quantile(count, &self.found))
            .collect()
    }

    /// Counts of each kind of cell; all zero before the first scan.
    pub(crate) fn tally(&self) -> Tally {
        self.tally.unwrap_or_default()
    }

    fn absorb_keys(&mut self, groups: &[Group], keys: Vec<u64>) -> Result<(), Inconsistent> {
        let shift = 64 - RADIX_BITS * self.depth;
        for group in groups {
            // A shift by 64 means that everything belongs to the one group.
            let prefix_of = |key: u64| key.checked_shr(shift).unwrap_or(0);
            let start = keys.partition_point(|key| prefix_of(*key) < group.prefix);
            let end = keys.partition_point(|key| prefix_of(*key) <= group.prefix);
            if u64::try_from(end - start) != Ok(group.count) {
                return Err(Inconsistent);
            }
            let keys = &keys[start..end];
            for rank in &group.ranks {
                let key = usize::try_from(rank - group.base)
                    .ok()
                    .and_then(|i| keys.get(i))
                    .ok_or(Inconsistent)?;
                let first = keys.partition_point(|k| k < key);
                let past = keys.partition_point(|k| k <= key);
                let statistic = OrderStatistic {
                    value: value_of(*key),
                    below: group.base + as_count(first),
                    equal: as_count(past - first),
                };
                self.found.insert(*rank, statistic);
            }
        }
        Ok(())
    }

    fn absorb_counts(&mut self, groups: &[Group], scan: &Scan) -> Result<(), Inconsistent> {
        for (i, group) in groups.iter().enumerate() {
            let total: u64 = scan.counts(i).iter().sum();
            if total != group.count {
                return Err(Inconsistent);
            }
            match scan.only_key(i) {
                Some(key) => self.resolve(group, key),
                None => self.descend(group, scan.counts(i))?,
            }
        }
        self.depth += 1;
        if self.depth == DEPTHS {
            for group in std::mem::take(&mut self.groups) {
                self.resolve(&group, group.prefix);
            }
        }
        self.collect = self.groups.iter().map(|group| group.count).sum::<u64>() <= COLLECT_LIMIT;
        Ok(())
    }

    /// Splits a group by the next bits, keeping the buckets that hold wanted ranks.
    fn descend(&mut self, group: &Group, counts: &[u64]) -> Result<(), Inconsistent> {
        let mut ranks = group.ranks.clone();
        ranks.sort_unstable();
        ranks.dedup();
        let mut ranks = ranks.into_iter().peekable();
        let mut base = group.base;
        for (bucket, count) in (0u64..).zip(counts) {
            let mut inside = Vec::new();
            while let Some(rank) = ranks.next_if(|rank| *rank < base + count) {
                inside.push(rank);
            }
            if !inside.is_empty() {
                let prefix = group.prefix << RADIX_BITS | bucket;
                self.groups.push(Group {
                    prefix,
                    base,
                    count: *count,
                    ranks: inside,
                });
            }
            base += count;
        }
        // A rank past the last bucket can only come from a count that has changed.
        if ranks.next().is_some() {
            Err(Inconsistent)
        } else {
            Ok(())
        }
    }

    fn resolve(&mut self, group: &Group, key: u64) {
        let statistic = OrderStatistic {
            value: value_of(key),
            below: group.base,
            equal: group.count,
        };
        self.found
            .extend(group.ranks.iter().map(|rank| (*rank, statistic)));
    }
}

impl Wanted {
    /// The one or two ranks, from 0, that the quantile of `count` values is made of.
    pub(crate) fn ranks(self, count: u64) -> Vec<u64> {
        if count == 0 {
            return Vec::new();
        }
        let (low, high, _) = self.position(count);
        vec![low, high]
    }

    /// Ranks of the neighbours and the way from the lower to the upper, 0 to 1. `count` is not 0.
    fn position(self, count: u64) -> (u64, u64, f64) {
        match self {
            Self::Median => ((count - 1) / 2, count / 2, 0.5),
            Self::Percentile(share) => {
                #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
                let last = (count - 1) as f64;
                let index = last * share;
                if index >= last {
                    return (count - 1, count - 1, 0.0);
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "between 0 and count - 1"
                )]
                let low = index.max(0.0).floor() as u64;
                (low, low + 1, index.max(0.0).fract())
            }
        }
    }

    /// Quantile of `count` values, from the values `found` at its ranks; `None` if one of them is
    /// absent.
    pub(crate) fn of_found(self, count: u64, found: &BTreeMap<u64, f64>) -> Option<f64> {
        let (low, high, way) = self.position(count);
        let (low, high) = (*found.get(&low)?, *found.get(&high)?);
        Some(self.value(low, high, way))
    }

    fn value(self, low: f64, high: f64, way: f64) -> f64 {
        match self {
            Self::Median => middle(low, high),
            Self::Percentile(_) => between(low, high, way),
        }
    }

    fn quantile(self, count: u64, found: &BTreeMap<u64, OrderStatistic>) -> Option<Quantile> {
        let (low, high, way) = self.position(count);
        let (low, high) = (found.get(&low)?, found.get(&high)?);
        let value = self.value(low.value, high.value, way);
        let below = if value > low.value {
            high.below
        } else {
            low.below
        };
        let through = if value < high.value {
            low.through()
        } else {
            high.through()
        };
        Some(Quantile {
            value,
            below,
            above: count - through,
        })
    }
}

/// Ranks that are wanted of `count` values, ascending, each once.
fn ranks_of(wanted: &[Wanted], count: u64) -> Vec<u64> {
    let mut ranks: Vec<u64> = wanted.iter().flat_map(|w| w.ranks(count)).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Quantiles of `count` values, from the values `found` at their ranks; `None` if there are no
/// values.
fn all_of(
    wanted: &[Wanted],
    count: u64,
    found: &BTreeMap<u64, OrderStatistic>,
) -> Option<Vec<Quantile>> {
    let wanted = wanted.iter().filter(|_| count > 0);
    let quantiles = wanted.map(|wanted| wanted.quantile(count, found));
    quantiles.collect::<Option<Vec<_>>>().filter(|_| count > 0)
}

/// Mean of two values; exact for equal ones and free of overflow.
fn middle(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if sum.is_finite() {
        sum / 2.0
    } else {
        a / 2.0 + b / 2.0
    }
}

/// numpy's linear interpolation (`_lerp` in `numpy/lib/_function_base_impl.py`): from the nearer end, so that the
/// result is monotonic. Differs where `b - a` overflows, which gives infinity there.
fn between(a: f64, b: f64, way: f64) -> f64 {
    let difference = b - a;
    if !difference.is_finite() {
        a * (1.0 - way) + b * way
    } else if way >= 0.5 {
        b - difference * (1.0 - way)
    } else {
        a + difference * way
    }
}

fn as_count(length: usize) -> u64 {
    u64::try_from(length).expect("a length fits 64 bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs the scans over `parts`, each scanned on its own and merged through bytes in reverse order.
    fn search(parts: &[&[f64]], wanted: &[Wanted], rows: u64) -> (Option<Vec<Quantile>>, usize) {
        let mut search = Search::new(wanted.to_vec(), rows);
        let mut scans = 0;
        while let Some(spec) = search.next_scan() {
            let spec = ScanSpec::from_bytes(&spec.to_bytes()).unwrap();
            let mut merged = Scan::new(spec.clone());
            for part in parts.iter().rev() {
                let mut own = Scan::new(spec.clone());
                own.add_all(part);
                merged.merge_bytes(&own.to_bytes()).unwrap();
            }
            search.absorb(merged).unwrap();
            scans += 1;
        }
        (search.quantiles(), scans)
    }

    /// More rows than are collected at once, so that the search has to count.
    const MANY: u64 = COLLECT_LIMIT + 1;

    fn percentile(values: &[f64], share: f64) -> f64 {
        let wanted = [Wanted::Percentile(share)];
        let (collected, scans) = search(&[values], &wanted, as_count(values.len()));
        let (counted, _) = search(&[values], &wanted, MANY);
        assert_eq!(scans, 1);
        assert_eq!(collected, counted);
        collected.unwrap()[0].value
    }

    fn median(values: &[f64]) -> Option<f64> {
        search(&[values], &[Wanted::Median], MANY)
            .0
            .map(|q| q[0].value)
    }

    /// Plain reference: sort, then interpolate by the definition.
    fn reference(values: &[f64], wanted: Wanted) -> Quantile {
        let mut sorted: Vec<f64> = values.iter().map(|x| x + 0.0).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |rank: u64| sorted[usize::try_from(rank).unwrap()];
        let (low, high, way) = wanted.position(as_count(values.len()));
        let value = match wanted {
            Wanted::Median => middle(at(low), at(high)),
            Wanted::Percentile(_) => between(at(low), at(high), way),
        };
        Quantile {
            value,
            below: as_count(sorted.iter().filter(|x| **x < value).count()),
            above: as_count(sorted.iter().filter(|x| **x > value).count()),
        }
    }

    #[test]
    fn keys_keep_the_order_and_give_the_value_back() {
        let ordered = [
            -f64::MAX,
            -1e16,
            -1.0,
            -5e-324,
            0.0,
            5e-324,
            f64::MIN_POSITIVE,
            1.0,
            1.5,
            1e300,
            f64::MAX,
        ];
        for pair in ordered.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
        }
        for value in ordered {
            assert_eq!(value_of(key(value)).to_bits(), value.to_bits());
        }
        assert_eq!(key(-0.0), key(0.0));
        assert_eq!(value_of(key(-0.0)).to_bits(), 0.0f64.to_bits());
    }

    #[test]
    fn percentiles_are_those_of_numpy() {
        let check = |values: &[f64], share: f64, expected: f64| {
            let found = percentile(values, share);
            assert_eq!(
                found.to_bits(),
                expected.to_bits(),
                "{values:?} at {share}: {found:?}"
            );
        };
        check(&[1.0, 2.0, 3.0, 4.0, 1000.0], 0.99, 960.16);
        check(&[1.0, 2.0, 3.0, 4.0, 1000.0], 0.01, 1.04);
        check(&[1.0, 2.0, 3.0, 4.0], 0.5, 2.5);
        check(&[4.0, 1.0, 3.0, 2.0], 0.25, 1.75);
        check(&[0.1, 0.3], 0.9, 0.279_999_999_999_999_97);
        check(&[7.0], 0.37, 7.0);
        check(&[3.0, 1.0], 0.0, 1.0);
        check(&[3.0, 1.0], 1.0, 3.0);
        check(&[f64::MAX, -f64::MAX], 0.5, 0.0);
    }

    #[test]
    fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(median(&[f64::MAX, f64::MAX]), Some(f64::MAX));
    }

    #[test]
    fn a_percentile_rounded_to_its_upper_neighbour_has_nothing_of_it_above() {
        let values = [1.0, 1f64.next_up(), 1f64.next_up()];
        let (quantiles, _) = search(&[&values], &[Wanted::Percentile(0.375)], MANY);
        assert_eq!(
            quantiles.unwrap(),
            [Quantile {
                value: 1f64.next_up(),
                below: 1,
                above: 0
            }]
        );
    }

    #[test]
    fn extreme_values_are_found_exactly() {
        let values = [1e300, -1e300, 5e-324, -5e-324, 0.0, 1e16, 1e16 + 2.0];
        for (rank, expected) in [-1e300, -5e-324, 0.0, 5e-324, 1e16, 1e16 + 2.0, 1e300]
            .into_iter()
            .enumerate()
        {
            #[expect(clippy::cast_precision_loss, reason = "a small rank")]
            let share = rank as f64 / 6.0;
            assert_eq!(
                percentile(&values, share).to_bits(),
                f64::to_bits(expected),
                "rank {rank}"
            );
        }
    }

    #[test]
    fn heavy_ties_end_the_search_early() {
        let mut values = vec![0.0; 100_000];
        values.extend((0..40_000).map(f64::from));
        let wanted = [Wanted::Percentile(0.01), Wanted::Percentile(0.6)];
        let (quantiles, scans) = search(&[&values], &wanted, as_count(values.len()));
        assert_eq!(quantiles.unwrap(), wanted.map(|w| reference(&values, w)));
        assert_eq!(scans, 2, "the bucket of the zeros holds one value");
    }

    #[test]
    fn a_column_of_one_value_takes_one_scan() {
        let (quantiles, scans) = search(&[&[2.5; 10]], &[Wanted::Median], MANY);
        assert_eq!(
            quantiles.unwrap(),
            [Quantile {
                value: 2.5,
                below: 0,
                above: 0
            }]
        );
        assert_eq!(scans, 1);
    }

    #[test]
    fn many_close_values_need_every_bit_of_the_key() {
        // 70,001 neighbours of 1.0 that differ in the last 17 bits only, each three times.
        let values: Vec<f64> = (0..3 * 70_001u64)
            .map(|i| f64::from_bits(1f64.to_bits() + i % 70_001))
            .collect();
        let wanted = [
            Wanted::Median,
            Wanted::Percentile(0.01),
            Wanted::Percentile(0.99),
        ];
        let (quantiles, scans) = search(
            &[&values[..9], &values[9..]],
            &wanted,
            as_count(values.len()),
        );
        assert_eq!(quantiles.unwrap(), wanted.map(|w| reference(&values, w)));
        assert_eq!(scans, 4);
    }

    #[test]
    fn a_second_scan_that_sees_other_values_is_refused() {
        let values: Vec<f64> = (0..20).map(f64::from).collect();
        let mut search = Search::new(vec![Wanted::Median], MANY);
        let mut scan = Scan::new(search.next_scan().unwrap());
        scan.add_all(&values);
        search.absorb(scan).unwrap();
        let mut scan = Scan::new(search.next_scan().unwrap());
        scan.add_all(&values.iter().map(|x| x + 100.0).collect::<Vec<_>>());
        assert_eq!(search.absorb(scan), Err(Inconsistent));
    }

    fn any_finite() -> impl Strategy<Value = f64> {
        let anything = any::<u64>()
            .prop_map(f64::from_bits)
            .prop_filter("finite", |x| x.is_finite());
        prop_oneof![anything, (-3i8..3).prop_map(f64::from), Just(-0.0)]
    }

    proptest! {
        #[test]
        fn any_partitioning_and_order_agrees_with_sorting(
            values in prop::collection::vec((any_finite(), 0usize..3), 1..120),
            shares in prop::collection::vec(0f64..=1.0, 0..4),
        ) {
            let all: Vec<f64> = values.iter().map(|(x, _)| *x).collect();
            let parts: Vec<Vec<f64>> = (0..3)
                .map(|part| values.iter().rev().filter(|(_, p)| *p == part).map(|(x, _)| *x).collect())
                .collect();
            let parts: Vec<&[f64]> = parts.iter().map(Vec::as_slice).collect();
            let wanted: Vec<Wanted> =
                shares.into_iter().map(Wanted::Percentile).chain([Wanted::Median]).collect();
            let expected: Vec<Quantile> = wanted.iter().map(|w| reference(&all, *w)).collect();
            for rows in [as_count(all.len()), MANY] {
                prop_assert_eq!(search(&parts, &wanted, rows).0.unwrap(), expected.clone());
            }
        }
    }
}
