//! Progress, logs and metrics of a run, including its waits.

use std::{pin::pin, time::Duration};

use feedline_schemas::{commit::Position, progress::Event};
use feedline_storage::Store;
use tokio::time::sleep;

use super::{batch_reader::BatchReader, source_run::Run};
use crate::{
    context::Context,
    error::Error,
    landed_time::landed_unix_s,
    log_entries::LogEntries,
    metrics::LogTotals,
    source::{Page, Source},
};

/// A wait is logged when it has lasted so long, and again when it changes.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Records metrics of the log of a source, unless it is empty. An unknown commit time is no reason to
/// stop. A known one is kept while no rows land.
pub(super) async fn record_log_totals(context: &Context, landing: &Store, entries: &LogEntries) {
    let Some(entry) = entries.last() else { return };
    let meter = context.metrics.of(entry.source.as_str());
    let known = meter.read().landed;
    let known = known.filter(|known| known.rows == entry.state.totals.rows);
    let committed = match known.and_then(|known| known.committed_unix_s) {
        Some(known) if entry.counts.rows == 0 => Some(known),
        _ => landed_unix_s(landing, entries).await.unwrap_or_default(),
    };
    meter.record_totals(LogTotals::of(entry, committed));
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
            let now_s = self.context.clock.unix().as_secs();
            let totals = LogTotals::of(entry, (entry.counts.rows > 0).then_some(now_s));
            let meter = self.context.metrics.of(self.config.name.as_str());
            meter.record_commit(totals, &entry.counts, took);
        }
    }
}
