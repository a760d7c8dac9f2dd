//! Current state of a scheduler's sources.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use feedline_schemas::{
    lease::{LastRun, RunOutcome},
    report::SourceReport,
};

use crate::metrics::SourceMetrics;

/// A source that is served. Times are seconds since 1970-01-01 UTC.
#[derive(Clone, Debug, Default)]
pub struct ServedSource {
    /// Name of its pipeline.
    pub pipeline: String,
    /// Name.
    pub source: String,
    /// Time since when it is served.
    pub since_unix_s: u64,
    /// Time of the next run, with its jitter.
    pub next_unix_s: Option<i64>,
    /// Start of the current run.
    pub running_since_unix_s: Option<i64>,
    /// Current wait, other than for its next tick.
    pub waits_for: Option<String>,
    /// The last run that ended, by this program or another.
    pub last: Option<LastRun>,
    /// Time when the source was last complete.
    pub complete_unix_s: Option<i64>,
    /// Runs in a row that could not begin or be recorded, since the store cannot be used. They count
    /// as failed runs.
    pub store_failures: u64,
    /// Error of the last of them.
    pub store_error: Option<String>,
    /// Runs of this program, by outcome.
    pub runs: BTreeMap<RunOutcome, u64>,
    /// Report of the source from its log, after the last run that ended well.
    pub report: Option<SourceReport>,
    /// Waits and work of its runs since this program began.
    pub meter: Arc<SourceMetrics>,
    /// Reason why it is no longer served: a bug.
    pub dead: Option<String>,
}

impl ServedSource {
    /// Returns the failed runs since the last complete one, including those that could not begin.
    #[must_use]
    pub fn failures(&self) -> u64 {
        let last = self.last.as_ref().map_or(0, |last| last.failures);
        last.saturating_add(self.store_failures)
    }
}

/// All of them, in the order of the pipelines.
#[derive(Debug, Default)]
pub struct ScheduleStatus(Mutex<Vec<ServedSource>>);

impl ScheduleStatus {
    /// Returns a copy of the current state.
    #[must_use]
    pub fn read(&self) -> Vec<ServedSource> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns true if a source of the pipeline is served.
    pub(super) fn has(&self, pipeline: &str) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|served| served.pipeline == pipeline)
    }

    pub(super) fn add(&self, served: ServedSource) -> usize {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(served);
        all.len() - 1
    }

    pub(super) fn update(&self, at: usize, change: impl FnOnce(&mut ServedSource)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(served) = all.get_mut(at) {
            change(served);
        }
    }
}
