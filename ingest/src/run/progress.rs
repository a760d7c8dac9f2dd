//! Progress, logs and metrics of a run, including its waits.

use std::{pin::pin, time::Duration};

use feedline_schemas::{
    commit::{CommitEntry, Position},
    progress::Event,
};
use feedline_storage::{Store, log::entry_path};
use tokio::time::sleep;

use super::{batch_reader::BatchReader, source_run::Run};
use crate::{
    context::Context,
    error::Error,
    metrics::LogTotals,
    source::{Page, Source},
};

/// A wait is logged when it has lasted so long, and again when it changes.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Records metrics of the log of a source with the newest entry `entry`. An unknown commit time is
/// no reason to stop.
pub(super) async fn record_log_totals(context: &Context, landing: &Store, entry: &CommitEntry) {
    let path = entry_path(entry.sequence.get());
    let committed = landing.modified(&path).await.unwrap_or_default();
    let meter = context.metrics.of(entry.source.as_str());
    meter.record_totals(LogTotals::of(entry, committed.as_secs()));
}

impl BatchReader<'_> {
    /// Reads the page at `position` and reports waits meanwhile. `open` records are in the batch
    /// already.
    pub(super) async fn next_page(
        &self,
        source: &mut dyn Source,
        position: &Position,
        open: u64,
    ) -> Result<Page, Error> {
        let meter = self.context.metrics.of(self.config.name.as_str());
        let mut page = pin!(source.next_page(position));
        let mut is_reported = false;
        loop {
            tokio::select! {
                biased;
                page = &mut page => return page,
                () = sleep(REPORT_INTERVAL) => {
                    let waits = meter.requests().waits_for();
                    if waits.is_some() || is_reported {
                        self.report_progress(open, waits.as_deref().unwrap_or_default());
                    }
                    is_reported = waits.is_some();
                }
            }
        }
    }

    /// Reports the number of records read, the `open` ones of the batch included, and the current
    /// file.
    pub(super) fn report(&self, open: u64, position: &Position) {
        let note = match position {
            Position::File {
                current: Some(file),
                ..
            } => &file.url,
            _ => "",
        };
        self.report_progress(open, note);
    }

    fn report_progress(&self, open: u64, note: &str) {
        self.context.progress.report(Event {
            stage: &format!("ingest {}", self.config.name),
            done: self.read + open,
            total: None,
            unit: "records",
            note,
        });
    }
}

impl Run<'_> {
    /// Records metrics of the newest entry, which was committed after `took`.
    pub(super) fn record_commit(&self, took: Duration) {
        if let Some(entry) = self.log.last() {
            let totals = LogTotals::of(entry, self.context.clock.unix().as_secs());
            let meter = self.context.metrics.of(self.config.name.as_str());
            meter.record_commit(totals, took);
        }
    }
}
