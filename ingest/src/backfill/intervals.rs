//! Sets of integers as intervals, with union and difference.

use feedline_schemas::commit::Interval;

/// The range of a source without slices: each value is done at once.
pub(super) const WHOLE: Interval = [0, 1];

/// A set of integers: half-open intervals (the start is included, the end is not), in order, none
/// empty, and none that touches the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals(Vec<Interval>);

impl Intervals {
    /// Union of any intervals; empty and reversed ones add nothing.
    pub(crate) fn of(intervals: impl IntoIterator<Item = Interval>) -> Self {
        let mut sorted: Vec<Interval> = intervals.into_iter().collect();
        sorted.retain(|[from, to]| from < to);
        sorted.sort_unstable();
        let mut merged: Vec<Interval> = Vec::with_capacity(sorted.len());
        for [from, to] in sorted {
            match merged.last_mut() {
                Some([_, end]) if from <= *end => *end = to.max(*end),
                _ => merged.push([from, to]),
            }
        }
        Self(merged)
    }

    /// Union of both.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied())
    }

    /// Difference of both.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut others = other.0.iter().peekable();
        for &[mut from, to] in &self.0 {
            // Intervals that end before this one begins also end before all later ones.
            while others.next_if(|[_, end]| *end <= from).is_some() {}
            let mut ahead = others.clone();
            while let Some(&[begin, end]) = ahead.next_if(|[begin, _]| *begin < to) {
                if from < begin {
                    left.push([from, begin]);
                }
                from = from.max(end);
            }
            if from < to {
                left.push([from, to]);
            }
        }
        Self(left)
    }

    /// Returns true if the two overlap or touch: the end of an interval counts as part of it.
    pub(crate) fn touches(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some([from, to]), Some([begin, end])) = (ours.peek(), theirs.peek()) {
            if to < begin {
                ours.next();
            } else if end < from {
                theirs.next();
            } else {
                return true;
            }
        }
        false
    }

    /// The lowest interval.
    pub(crate) fn first(&self) -> Option<Interval> {
        self.0.first().copied()
    }

    /// Returns true if it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The intervals in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Interval> + '_ {
        self.0.iter().copied()
    }

    /// The same.
    pub(crate) fn into_vec(self) -> Vec<Interval> {
        self.0
    }
}

/// The intervals of a value.
pub(super) fn of_value(all: &[(u64, Vec<Interval>)], value: u64) -> Intervals {
    let found = all.iter().find(|(of, _)| *of == value);
    Intervals::of(found.into_iter().flat_map(|(_, of)| of.iter().copied()))
}

/// Returns the parts of the intervals below `bound`; without a bound, all of them.
pub(super) fn below(intervals: Vec<Interval>, bound: Option<i64>) -> Vec<Interval> {
    match bound {
        None => intervals,
        Some(bound) => Intervals::of(intervals)
            .minus(&Intervals::of([[bound, i64::MAX]]))
            .into_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn numbers(intervals: &[Interval]) -> BTreeSet<i64> {
        intervals.iter().flat_map(|[from, to]| *from..*to).collect()
    }

    fn check(found: &Intervals, expected: &BTreeSet<i64>) {
        let found: Vec<Interval> = found.iter().collect();
        assert_eq!(numbers(&found), *expected);
        assert!(found.iter().all(|[from, to]| from < to), "{found:?}");
        let apart = found.windows(2).all(|pair| pair[0][1] < pair[1][0]);
        assert!(apart, "{found:?}");
    }

    fn any_intervals() -> impl Strategy<Value = Vec<Interval>> {
        proptest::collection::vec((-3_i64..40, -4_i64..12), 0..12)
            .prop_map(|pairs| pairs.into_iter().map(|(at, n)| [at, at + n]).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn they_are_the_sets_of_their_numbers(a in any_intervals(), b in any_intervals()) {
            let (ours, theirs) = (numbers(&a), numbers(&b));
            let (a, b) = (Intervals::of(a), Intervals::of(b));
            check(&a, &ours);
            check(&a.plus(&b), &(&ours | &theirs));
            check(&a.minus(&b), &(&ours - &theirs));
            prop_assert_eq!(a.is_empty(), ours.is_empty());
            prop_assert_eq!(a.first().map(|[from, _]| from), ours.first().copied());
            let closed = |set: &Intervals| -> BTreeSet<i64> {
                set.iter().flat_map(|[from, to]| from..=to).collect()
            };
            prop_assert_eq!(a.touches(&b), !closed(&a).is_disjoint(&closed(&b)));
        }
    }

    #[test]
    fn the_outermost_numbers_do_no_harm() {
        let all = Intervals::of([[i64::MIN, i64::MAX]]);
        assert_eq!(
            all.minus(&Intervals::of([[0, 1]])).into_vec(),
            [[i64::MIN, 0], [1, i64::MAX]]
        );
        assert!(all.touches(&all) && all.minus(&all).is_empty());
    }
}
