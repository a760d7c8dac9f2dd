//! A range of slices to re-read, and the batches that were read from it.

use std::collections::BTreeSet;

use feedline_schemas::{
    amendment::{Withdrawn, WithdrawnReason},
    commit::{CommitEntry, Interval, Ledger, Position},
    config::SourceConfig,
    ids::Sequence,
};

use super::{
    intervals::Intervals, list_history::ListHistory, read_intervals::ReadIntervals, slices::Slices,
};
use crate::error::Error;

/// Range to re-read, with the batches that no longer count.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchRange {
    intervals: Intervals,
    /// Batches that no longer count, by their indices in the log.
    pub(crate) batches: BTreeSet<usize>,
    /// Values that are not requested any more, with rows in these batches.
    pub(crate) left: BTreeSet<String>,
}

impl BatchRange {
    /// A range without batches.
    pub(crate) fn of(range: Interval) -> Self {
        Self {
            intervals: Intervals::of([range]),
            ..Self::default()
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

/// Collects the batches with rows of `range` that are requested again, and widens it until no batch
/// is covered only in part. Batches of values that are not requested any more stay. `with` returns
/// the batches that must go together.
pub(crate) fn widen(
    entries: &[CommitEntry],
    range: Interval,
    history: &ListHistory,
    with: &mut impl FnMut(&BTreeSet<usize>) -> BTreeSet<usize>,
) -> BatchRange {
    let read_by = readings_of(entries);
    let requested: Vec<Intervals> = read_by
        .iter()
        .map(|reading| match reading {
            Some(reading) => reading.of_requested_values(history),
            None => Intervals::default(),
        })
        .collect();
    let mut all = BatchRange::of(range);
    loop {
        let touching = requested.iter().enumerate();
        let touching = touching.filter(|(_, read)| !common(read, &all.intervals).is_empty());
        let mut batches: BTreeSet<usize> = touching.map(|(index, _)| index).collect();
        batches.extend(&all.batches);
        batches = with(&batches);
        let mut intervals = all.intervals.clone();
        for read in batches.iter().filter_map(|index| requested.get(*index)) {
            intervals = intervals.plus(read);
        }
        if intervals == all.intervals && batches == all.batches {
            let readings = batches.iter();
            let readings = readings.filter_map(|index| read_by.get(*index)?.as_ref());
            let left = readings.flat_map(|reading| reading.left_values(history));
            all.left = left.collect();
            return all;
        }
        (all.intervals, all.batches) = (intervals, batches);
    }
}

/// Intervals that the entries of a log have read; `None` for one without rows or rejects that count,
/// and for one that has read nothing itself.
fn readings_of(entries: &[CommitEntry]) -> Vec<Option<ReadIntervals>> {
    let is_retried = |withdrawn: &&Withdrawn| withdrawn.reason == WithdrawnReason::Retried;
    let retries = entries.iter().filter(|entry| has_rows(entry));
    let retries = retries.flat_map(|entry| entry.withdrawn.iter().filter(is_retried));
    let retried: BTreeSet<Sequence> = retries.map(|withdrawn| withdrawn.sequence).collect();
    let mut before = &Position::Start;
    let mut readings = Vec::with_capacity(entries.len());
    for entry in entries {
        let after = &entry.state.position;
        let is_retry = entry.withdrawn.iter().any(|own| is_retried(&own));
        let is_batch = !is_retry && !entry.is_amendment();
        let counts = has_rows(entry) || retried.contains(&entry.sequence);
        let reading = (is_batch && counts).then(|| ReadIntervals::of(before, after));
        let reading = reading.flatten();
        readings.push(reading.map(|reading| reading.without_unread_slice(after)));
        before = after;
    }
    readings
}

/// Returns true for an entry with rows or rejects that count, in its files or in merged ones.
fn has_rows(entry: &CommitEntry) -> bool {
    let has_files = !entry.files.is_empty() || !entry.rejects.is_empty();
    let mut tables = entry.children.values();
    has_files || entry.merged_into.is_some() || tables.any(|table| !table.files.is_empty())
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
