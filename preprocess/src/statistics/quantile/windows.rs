//! Windows of keys that likely contain the quantiles of a column, estimated from a sample of rows.
//!
//! The rank of a fraction `s` among `n` sampled values has a standard error of `√(n·s·(1 − s))`. A
//! window reaches [`ERRORS`] of these to either side, so it misses a quantile of rows in random
//! order about once in a million times. A bad window only costs time: the caller checks whether it
//! contains the wanted ranks.

use super::{
    Wanted, as_count,
    short::{finite_keys, key, number_of},
};

/// Rows that are sampled at least, if there are so many.
pub(crate) const SAMPLE_ROWS: usize = 1 << 15;

/// One of so many rows is sampled. What is gathered then grows with the root of the rows.
const SAMPLED: u64 = 128;

/// Number of rows to sample from `rows`, if the keys of `columns` columns may take `bytes` bytes.
pub(crate) fn sample_rows(rows: u64, columns: usize, bytes: usize) -> usize {
    let most = bytes / columns.max(1) / size_of::<u32>();
    let share = usize::try_from(rows / SAMPLED).unwrap_or(usize::MAX);
    share.min(most).max(SAMPLE_ROWS)
}

/// Standard errors that a window reaches over, to either side.
const ERRORS: u64 = 5;

/// A value that one of so many sampled cells has is counted, and not gathered.
const HEAVY: usize = 256;

/// Values are gathered where they are at most one of so many.
const GATHERED: usize = 4;

/// Some rows of a split.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    rows: usize,
    columns: Vec<(usize, Vec<u32>)>,
}

/// Boundaries that divide the values of a column, and the handling of the values between two of
/// them.
#[derive(Clone, Debug)]
pub(super) struct Cuts {
    /// Ascending. The first is -inf, the last but one the greatest finite value, and the last inf.
    pub(super) cuts: Vec<Cut>,
    /// Values that are gathered at most.
    pub(super) limit: usize,
}

/// Values up to a boundary, and above the boundary before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The greatest of them.
    pub(super) through: f32,
    pub(super) span: Span,
    /// True if the values above are gathered and those below are not, or the other way round.
    pub(super) turns: bool,
}

/// Handling of the values between two boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// Only counted.
    Counted,
    /// They are all equal.
    Single,
    /// Each of them.
    Gathered,
}

impl Sample {
    /// An empty sample of the columns at these places of a row.
    pub(crate) fn new(places: impl IntoIterator<Item = usize>) -> Self {
        Self {
            rows: 0,
            columns: places.into_iter().map(|at| (at, Vec::new())).collect(),
        }
    }

    /// Takes rows of `width` values.
    pub(crate) fn add(&mut self, rows: &[f32], width: usize) {
        self.rows += rows.len() / width;
        for (place, keys) in &mut self.columns {
            let cells = rows.iter().skip(*place).step_by(width);
            keys.extend(cells.filter(|cell| cell.is_finite()).map(|cell| key(*cell)));
        }
    }

    /// Index of each column, and the boundaries around its `wanted` values among all `rows` rows.
    pub(super) fn into_cuts<'a>(
        self,
        wanted: impl Iterator<Item = &'a [Wanted]>,
        rows: u64,
    ) -> impl Iterator<Item = (usize, Cuts)> {
        let (sampled, columns) = (as_count(self.rows).max(1), self.columns);
        columns
            .into_iter()
            .zip(wanted)
            .map(move |((place, mut keys), wanted)| {
                keys.sort_unstable();
                (place, Cuts::around(&keys, wanted, sampled, rows))
            })
    }
}

impl Cuts {
    /// Boundaries around the `wanted` values, from the sorted `keys` of the finite cells among
    /// `sampled` of `rows`.
    fn around(keys: &[u32], wanted: &[Wanted], sampled: u64, rows: u64) -> Self {
        let (cuts, gathered) = Self::of(keys, &windows(keys, wanted), sampled, rows);
        // To sort out more is slower than to count them all.
        let is_worth = gathered <= keys.len() / GATHERED;
        if is_worth {
            cuts
        } else {
            Self::of(keys, &[], sampled, rows).0
        }
    }

    /// Boundaries of windows, and the number of sampled values that would be gathered.
    pub(super) fn of(
        keys: &[u32],
        windows: &[(usize, usize)],
        sampled: u64,
        rows: u64,
    ) -> (Self, usize) {
        let mut borders = Borders::default();
        let gathered = windows.iter().map(|window| borders.add(keys, *window));
        let gathered: usize = gathered.sum();
        // Room for what the sample may be off by.
        let most = as_count(gathered) + 2 * ERRORS * as_count(gathered).isqrt() + 16;
        let limit = u128::from(most) * u128::from(rows) / u128::from(sampled);
        let limit = usize::try_from(limit.min(u128::from(rows)));
        let cuts = Self {
            cuts: borders.into_cuts(),
            limit: limit.unwrap_or(usize::MAX),
        };
        (cuts, gathered)
    }
}

/// Ranges of ranks among the sorted sampled `keys` that may contain the `wanted` values.
fn windows(keys: &[u32], wanted: &[Wanted]) -> Vec<(usize, usize)> {
    let count = as_count(keys.len());
    let rank = |rank: u64| usize::try_from(rank.min(count)).expect("a rank in memory");
    let around = |wanted: &Wanted| {
        let ranks = wanted.ranks(count);
        let (low, high) = (*ranks.first()?, *ranks.last()?);
        let error = (low * (count - low) / count).isqrt() + 1;
        let start = low.saturating_sub(ERRORS * error);
        Some((rank(start), rank(high + 1 + ERRORS * error)))
    };
    apart(keys, wanted.iter().filter_map(around).collect())
}

/// The same ranges, ascending and apart: equal keys are in one.
pub(super) fn apart(keys: &[u32], mut ranges: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    for (start, end) in &mut ranges {
        let (first, last) = (keys[*start], keys[*end - 1]);
        *start = keys.partition_point(|key| *key < first);
        *end = keys.partition_point(|key| *key <= last);
    }
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let meets = next.0 <= before.1;
        if meets {
            before.1 = before.1.max(next.1);
        }
        meets
    });
    ranges
}

/// Keys of boundaries, each with the span that ends there.
#[derive(Default)]
struct Borders(Vec<(u32, Span)>);

impl Borders {
    /// Adds those of a window of the sampled keys, and returns how many sampled values will be gathered.
    fn add(&mut self, keys: &[u32], (start, end): (usize, usize)) -> usize {
        // The outermost sampled value is not the outermost there is.
        let (first, last) = finite_keys();
        let low = if start == 0 { first } else { keys[start] };
        let high = if end == keys.len() {
            last
        } else {
            keys[end - 1]
        };
        self.through(before(low), Span::Counted);
        let mut gathered = 0;
        for equal in keys[start..end].chunk_by(|a, b| a == b) {
            if equal.len() > 1 && equal.len() >= keys.len() / HEAVY {
                self.through(before(equal[0]), Span::Gathered);
                self.through(equal[0], Span::Single);
            } else {
                gathered += equal.len();
            }
        }
        self.through(high, Span::Gathered);
        gathered
    }

    /// Adds one unless it is there.
    fn through(&mut self, key: u32, span: Span) {
        if self.0.last().is_none_or(|(last, _)| *last < key) {
            self.0.push((key, span));
        }
    }

    fn into_cuts(self) -> Vec<Cut> {
        let (first, last) = finite_keys();
        let mut all = Self(vec![(before(first), Span::Counted)]);
        self.0
            .into_iter()
            .for_each(|(key, span)| all.through(key, span));
        all.through(last, Span::Counted);
        all.through(last + 1, Span::Counted);
        let is_gathered = |at: usize| all.0.get(at).is_some_and(|cut| cut.1 == Span::Gathered);
        let cuts = all.0.iter().enumerate().map(|(at, (key, span))| Cut {
            through: number_of(*key),
            span: *span,
            turns: is_gathered(at) != is_gathered(at + 1),
        });
        cuts.collect()
    }
}

/// The key before that of a number: no number has the one of -0.0.
fn before(key: u32) -> u32 {
    const ZERO: u32 = 1 << 31;
    if key == ZERO { key - 2 } else { key - 1 }
}
