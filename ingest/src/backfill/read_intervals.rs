//! Intervals read by a batch, and earlier batches whose intervals touch them: their records may
//! come again.

use std::collections::BTreeSet;

use feedline_schemas::commit::{Interval, Ledger, Position};

use super::intervals::{Intervals, below, of_value};

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

    /// Returns the intervals of any value that it has read, up to `after`. A slice without a
    /// requested page does not count.
    pub(super) fn of_all_values(mut self, after: &Position) -> Intervals {
        if let (Some((_, begun)), Position::Page { page: 0, run, .. }) = (&mut self.last, after)
            && let Some(ledger) = &run.ledger
        {
            *begun = Intervals::of(ledger.part.iter().copied());
        }
        self.of_some_values()
    }

    /// Intervals that it has read of any value, but for those of values that were absent before.
    fn of_some_values(&self) -> Intervals {
        // Values between these have been read like one of them.
        let last = self.end().saturating_sub(1);
        let some = [
            self.first,
            self.first + 1,
            self.old.saturating_sub(1),
            self.old,
            last.saturating_sub(1),
            last,
        ];
        let some = some
            .into_iter()
            .filter(|value| (self.first..self.end()).contains(value));
        some.fold(Intervals::default(), |all, value| {
            all.plus(&self.of_value(value))
        })
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
