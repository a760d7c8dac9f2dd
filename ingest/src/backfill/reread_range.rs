//! A range of slices to re-read, and the batches that were read from it.

use std::collections::BTreeSet;

use feedline_schemas::{
    amendment::WithdrawnReason,
    commit::{CommitEntry, Interval, Ledger, Position},
    config::SourceConfig,
};

use super::{intervals::Intervals, read_intervals::ReadIntervals, slices::Slices};
use crate::error::Error;

/// Range to re-read, with the batches that no longer count.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchRange {
    intervals: Intervals,
    /// Batches that no longer count, by their indices in the log.
    pub(crate) batches: BTreeSet<usize>,
}

impl BatchRange {
    /// A range without batches.
    pub(crate) fn of(range: Interval) -> Self {
        Self {
            intervals: Intervals::of([range]),
            batches: BTreeSet::new(),
        }
    }

    /// Returns true if no part of the range is done.
    pub(crate) fn is_empty(&self, ledger: &Ledger) -> bool {
        common(&self.intervals, &Intervals::of(ledger.done.iter().copied())).is_empty()
    }
}

fn common(a: &Intervals, b: &Intervals) -> Intervals {
    a.minus(&a.minus(b))
}

/// Parses the range from `from` to `to`, in the configured format; by default that of the source.
///
/// # Errors
/// [`Error::Config`].
pub(crate) fn range_of(
    config: &SourceConfig,
    from: Option<&str>,
    to: Option<&str>,
    ledger: &Ledger,
) -> Result<Interval, Error> {
    let slices = slices(config)?;
    let end = |key: &str, text: Option<&str>, other: i64| match text {
        None => Ok(other),
        Some(text) => slices
            .read(text)
            .map_err(|reason| Error::config(key, reason)),
    };
    let [start, stop] = ledger.target;
    let range = [end("--from", from, start)?, end("--to", to, stop)?];
    if range[0] >= range[1] {
        let reason = format!("`{}` is not after `--from`", slices.show(range));
        return Err(Error::config("--to", reason));
    }
    Ok(range)
}

/// Collects the batches that were read from `range`, and widens it until no batch is covered only
/// in part. `with` returns the batches that must go together.
pub(crate) fn widen(
    entries: &[CommitEntry],
    range: Interval,
    with: &mut impl FnMut(&BTreeSet<usize>) -> BTreeSet<usize>,
) -> BatchRange {
    let mut before = &Position::Start;
    let mut readings = Vec::with_capacity(entries.len());
    for entry in entries {
        let after = &entry.state.position;
        let is_retry = entry
            .withdrawn
            .iter()
            .any(|withdrawn| withdrawn.reason == WithdrawnReason::Retried);
        let has_read = !is_retry && !entry.is_amendment();
        let reading = has_read.then(|| ReadIntervals::of(before, after)).flatten();
        readings.push(reading.map(|reading| reading.of_all_values(after)));
        before = after;
    }
    let mut all = BatchRange::of(range);
    loop {
        let touching = readings.iter().enumerate().filter(|(_, read)| {
            read.as_ref()
                .is_some_and(|read| !common(read, &all.intervals).is_empty())
        });
        let mut batches: BTreeSet<usize> = touching.map(|(index, _)| index).collect();
        batches.extend(&all.batches);
        batches = with(&batches);
        let mut intervals = all.intervals.clone();
        for read in batches.iter().filter_map(|index| readings[*index].as_ref()) {
            intervals = intervals.plus(read);
        }
        let is_stable = intervals == all.intervals && batches == all.batches;
        all = BatchRange { intervals, batches };
        if is_stable {
            return all;
        }
    }
}

/// The ledger with a range that is not done.
pub(crate) fn undone(ledger: &Ledger, range: &BatchRange) -> Ledger {
    let done = Intervals::of(ledger.done.iter().copied());
    Ledger {
        done: done.minus(&range.intervals).into_vec(),
        ..ledger.clone()
    }
}

/// Formats the finished parts of a range for messages.
///
/// # Errors
/// [`Error::Config`].
pub(crate) fn show_ranges(
    config: &SourceConfig,
    range: &BatchRange,
    ledger: &Ledger,
) -> Result<Vec<String>, Error> {
    let slices = slices(config)?;
    let done = Intervals::of(ledger.done.iter().copied());
    let parts = common(&range.intervals, &done);
    Ok(parts.iter().map(|part| slices.show(part)).collect())
}

fn slices(config: &SourceConfig) -> Result<Slices, Error> {
    match &config.slices {
        Some(slices) => Slices::new(slices),
        None => Err(Error::config("slices", "is not set")),
    }
}
