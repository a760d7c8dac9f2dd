//! Progress of one pass.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use feedline_schemas::progress::{Event, Progress};

/// Counts the rows of one pass and reports them to the receiver.
#[derive(Debug)]
pub(crate) struct PassProgress {
    progress: Arc<dyn Progress>,
    stage: &'static str,
    total: u64,
    done: AtomicU64,
}

impl PassProgress {
    pub(crate) fn new(progress: &Arc<dyn Progress>, stage: &'static str, total: u64) -> Self {
        let meter = Self {
            progress: Arc::clone(progress),
            stage,
            total,
            done: AtomicU64::new(0),
        };
        meter.add(0);
        meter
    }

    pub(crate) fn add(&self, rows: u64) {
        let done = self.done.fetch_add(rows, Ordering::Relaxed) + rows;
        self.progress.report(Event {
            stage: self.stage,
            done,
            total: Some(self.total),
            unit: "rows",
            note: "",
        });
    }
}
