//! Intervals read by a batch, and earlier batches whose intervals touch them: their records may
//! come again.

use std::collections::BTreeSet;

use feedline_schemas::{
    commit::{Interval, Ledger, Position},
    ids::Hash128,
};

use super::{
    intervals::{Intervals, below, of_value},
    list_history::ListHistory,
};

/// Returns the indices of earlier batches whose slices touch those of the batch that ends at
/// `after`, for the same value. The earlier ones ended at `ends`, in log order.
///
/// The result depends only on the log and the batch. So a resumed run skips the same records as an
/// uninterrupted one.
pub(crate) fn neighbours<'a>(
    ends: impl Iterator<Item = &'a Position>,
    after: &Position,
) -> BTreeSet<usize> {
    let mut before = &Position::Start;
    let mut readings = Vec::new();
    for end in ends {
        readings.push(ReadIntervals::of(before, end));
        before = end;
    }
    let Some(batch) = ReadIntervals::of(before, after) else {
        return BTreeSet::new();
    };
    let is_near =
        |reading: &Option<ReadIntervals>| reading.as_ref().is_some_and(|r| r.touches(&batch));
    let near = readings.iter().enumerate();
    near.filter(|(_, reading)| is_near(reading))
        .map(|(index, _)| index)
        .collect()
}

/// An interval that has all those that a batch from `before` to `after` has read, of any value; `None`
/// if it has read none.
pub(crate) fn span(before: &Position, after: &Position) -> Option<Interval> {
    let reading = ReadIntervals::of(before, after)?;
    let absent = reading.absent.iter().flat_map(|(_, absent)| absent);
    let all = Intervals::of(absent.copied()).plus(&reading.of_some_values());
    let (mut all, first) = (all.iter(), all.first()?);
    let last = all.next_back().unwrap_or(first);
    Some([first[0], last[1]])
}

/// Intervals read by one batch.
pub(super) struct ReadIntervals {
    target: Intervals,
    /// Done before the pass, of the first `old` values.
    done: Intervals,
    old: u64,
    /// Absent parts of values in the pass before, which are requested again.
    absent: Vec<(u64, Vec<Interval>)>,
    /// The first value that it has read, and its intervals finished before.
    first: u64,
    first_done: Intervals,
    /// The value that it ended in, and the intervals of it begun by then; `None` if it ended with
    /// the pass.
    last: Option<(u64, Intervals)>,
    values: u64,
    /// Hash of the list at that time.
    list: Option<Hash128>,
}

impl ReadIntervals {
    pub(super) fn of(before: &Position, after: &Position) -> Option<Self> {
        let ended = after.ledger()?;
        let earlier = before.ledger();
        let is_same_pass = matches!(before, Position::Page { .. });
        let (done, old) = match (earlier, is_same_pass) {
            (Some(ledger), true) => (ledger.done.clone(), ledger.old),
            (Some(ledger), false) => (below(ledger.done.clone(), ended.reread), ledger.values),
            (None, _) => (Vec::new(), 0),
        };
        let at = earlier.filter(|_| is_same_pass);
        Some(Self {
            target: Intervals::of([ended.target]),
            done: Intervals::of(done),
            old,
            absent: earlier
                .map(|ledger| ledger.absent.clone())
                .unwrap_or_default(),
            first: at.map_or(0, |ledger| ledger.value),
            first_done: Intervals::of(at.into_iter().flat_map(|ledger| ledger.part.clone())),
            last: begun(ended).map(|begun| (ended.value, begun)),
            values: ended.values,
            list: ended.values_hash,
        })
    }

    /// Index after the last value that it has read.
    fn end(&self) -> u64 {
        self.last
            .as_ref()
            .map_or(self.values, |(value, _)| value + 1)
    }

    /// Intervals that it has read of a value.
    fn of_value(&self, value: u64) -> Intervals {
        let read = match &self.last {
            Some((last, begun)) if *last == value => begun.clone(),
            _ if value < self.old => {
                let absent = of_value(&self.absent, value);
                self.target.minus(&self.done.minus(&absent))
            }
            _ => self.target.clone(),
        };
        if value == self.first {
            read.minus(&self.first_done)
        } else {
            read
        }
    }

    /// The same up to `after`, where the batch ended. A slice without a requested page does not
    /// count.
    pub(super) fn without_unread_slice(mut self, after: &Position) -> Self {
        if let (Some((_, begun)), Position::Page { page: 0, run, .. }) = (&mut self.last, after)
            && let Some(ledger) = &run.ledger
        {
            *begun = Intervals::of(ledger.part.iter().copied());
        }
        self
    }

    /// Intervals that it has read of values that are still requested.
    pub(super) fn of_requested_values(&self, history: &ListHistory) -> Intervals {
        let is_requested =
            |value: u64| !history.is_left(value) && !history.was_removed(self.list, value);
        let absent = self.absent.iter().map(|(value, _)| *value);
        let absent = absent.filter(|value| self.has_begun(*value) && is_requested(*value));
        self.of_values(absent.chain(self.unlike_values(is_requested)))
    }

    /// Values that it has read some intervals of, and that are not requested any more.
    pub(super) fn left_values(&self, history: &ListHistory) -> BTreeSet<String> {
        let left = history.left_between(self.first, self.end());
        let left = left.filter(|(value, _)| {
            !history.was_removed(self.list, *value) && !self.of_value(*value).is_empty()
        });
        left.map(|(_, text)| text.clone()).collect()
    }

    /// Intervals that it has read of any value, but for those of values that were absent before.
    fn of_some_values(&self) -> Intervals {
        self.of_values(self.unlike_values(|_| true))
    }

    fn of_values(&self, values: impl Iterator<Item = u64>) -> Intervals {
        values.fold(Intervals::default(), |all, value| {
            all.plus(&self.of_value(value))
        })
    }

    fn has_begun(&self, value: u64) -> bool {
        (self.first..self.end()).contains(&value)
    }

    /// Some of the wanted values that it has read: the others have been read like one of them, except
    /// for those that were absent before.
    fn unlike_values(&self, is_wanted: impl Fn(u64) -> bool) -> impl Iterator<Item = u64> {
        let last = self.end().saturating_sub(1);
        let second = self.first + 1;
        let alike = [
            self.first..second,
            second..self.old.min(last),
            self.old.max(second)..last,
            last..last + 1,
        ];
        let found = alike
            .map(|mut values| values.find(|value| self.has_begun(*value) && is_wanted(*value)));
        found.into_iter().flatten()
    }

    fn touches(&self, other: &Self) -> bool {
        let first = self.first.max(other.first);
        let end = self.end().min(other.end());
        (first..end).any(|value| self.of_value(value).touches(&other.of_value(value)))
    }
}

/// Finished intervals of the current value and the current slice. A halved slice counts completely.
fn begun(ledger: &Ledger) -> Option<Intervals> {
    let [from, to] = ledger.slice?;
    let whole: Interval = [from, ledger.ends.first().copied().unwrap_or(to)];
    Some(Intervals::of(ledger.part.iter().copied().chain([whole])))
}
