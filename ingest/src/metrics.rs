//! Waits, requests and commits of sources. Observability only: no control flow reads these values.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use feedline_http::meter::{Cause, MeteredWait, RequestMeter, RequestReading};
use feedline_schemas::commit::{BatchCounts, CommitEntry};

/// A meter for each source of a pipeline, by name.
#[derive(Debug, Default)]
pub struct PipelineMetrics(Mutex<BTreeMap<String, Arc<SourceMetrics>>>);

impl PipelineMetrics {
    /// Returns the meter of the source called `source`.
    #[must_use]
    pub fn of(&self, source: &str) -> Arc<SourceMetrics> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(source) {
            Some(meter) => Arc::clone(meter),
            None => Arc::clone(all.entry(source.to_owned()).or_default()),
        }
    }
}

/// Waits and work of one source since this program began.
#[derive(Debug, Default)]
pub struct SourceMetrics {
    requests: Arc<RequestMeter>,
    commits: Mutex<Commits>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Commits {
    count: u64,
    rows: u64,
    rejected: u64,
    took: Duration,
    landed: Option<LogTotals>,
}

/// Snapshot of a meter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSnapshot {
    /// Requests by the status of their responses; `None` for those without one.
    pub requests: BTreeMap<Option<u16>, u64>,
    /// Tries beyond the first.
    pub retries: u64,
    /// Time waited, summed over concurrent requests; current waits count so far.
    pub waited: BTreeMap<Cause, Duration>,
    /// Description of the current wait, the longest of several.
    pub waits_for: Option<String>,
    /// Batches that were committed.
    pub commits: u64,
    /// Rows landed in these batches.
    pub rows: u64,
    /// Records rejected in these batches.
    pub rejected: u64,
    /// Time that they took, from the last page of each to its entry in the log.
    pub committing: Duration,
    /// Totals of its log; `None` before it is read.
    pub landed: Option<LogTotals>,
}

/// Totals of the newest entry of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogTotals {
    /// Rows of all batches.
    pub rows: u64,
    /// Records skipped as duplicates.
    pub duplicates: u64,
    /// Rejected records.
    pub rejected: u64,
    /// Entries.
    pub batches: u64,
    /// Version of the record schema.
    pub schema_version: u32,
    /// Commit time of the newest batch with rows, in seconds since 1970-01-01 UTC; `None` if no rows
    /// have landed.
    pub committed_unix_s: Option<u64>,
}

impl LogTotals {
    pub(crate) fn of(entry: &CommitEntry, committed_unix_s: Option<u64>) -> Self {
        let totals = &entry.state.totals;
        Self {
            rows: totals.rows,
            duplicates: totals.duplicates,
            rejected: totals.rejected,
            batches: entry.sequence.get() + 1,
            schema_version: entry.schema.version.get(),
            committed_unix_s,
        }
    }
}

impl SourceMetrics {
    /// Takes a snapshot.
    #[must_use]
    pub fn read(&self) -> MetricsSnapshot {
        let RequestReading {
            requests,
            retries,
            waited,
            waits_for,
        } = self.requests.read();
        let commits = *self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        MetricsSnapshot {
            requests,
            retries,
            waited,
            waits_for,
            commits: commits.count,
            rows: commits.rows,
            rejected: commits.rejected,
            committing: commits.took,
            landed: commits.landed,
        }
    }

    /// Its part about requests and waits.
    pub(crate) fn requests(&self) -> &Arc<RequestMeter> {
        &self.requests
    }

    /// Records that the source waits for `what`, until the returned value is dropped.
    pub(crate) fn wait(&self, cause: Cause, what: String) -> MeteredWait {
        self.requests.wait(cause, what)
    }

    /// Records the totals of the log.
    pub(crate) fn record_totals(&self, landed: LogTotals) {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        commits.landed = Some(landed);
    }

    /// Records a batch with these counts, which was committed after `took`. One without rows has no
    /// time.
    pub(crate) fn record_commit(&self, landed: LogTotals, counts: &BatchCounts, took: Duration) {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        commits.count += 1;
        commits.rows += counts.rows;
        commits.rejected += counts.rejected;
        commits.took += took;
        let known = commits.landed.and_then(|known| known.committed_unix_s);
        commits.landed = Some(LogTotals {
            committed_unix_s: landed.committed_unix_s.or(known),
            ..landed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_without_rows_leaves_the_time_of_the_last_one_with_rows() {
        let meter = SourceMetrics::default();
        let landed = LogTotals {
            rows: 7,
            committed_unix_s: Some(100),
            ..LogTotals::default()
        };
        let counts = BatchCounts {
            rows: 7,
            ..BatchCounts::default()
        };
        meter.record_commit(landed, &counts, Duration::ZERO);
        let deferred = LogTotals {
            batches: 2,
            committed_unix_s: None,
            ..landed
        };
        meter.record_commit(deferred, &BatchCounts::default(), Duration::ZERO);
        assert_eq!((meter.read().commits, meter.read().rows), (2, 7));
        let totals = meter.read().landed.unwrap();
        assert_eq!((totals.batches, totals.committed_unix_s), (2, Some(100)));
    }

    #[test]
    fn a_source_has_one_meter() {
        let meters = PipelineMetrics::default();
        meters.of("a").requests().asked(Some(200));
        meters.of("a").requests().asked(None);
        meters.of("b").requests().tried_again();
        let read = |source| meters.of(source).read();
        assert_eq!(
            read("a").requests,
            BTreeMap::from([(None, 1), (Some(200), 1)])
        );
        assert_eq!((read("a").retries, read("b").retries), (0, 1));
    }
}
