//! Rows of a pipe, read on a thread of their own, so that complete rows need not wait for the next
//! ones.

use std::{
    panic,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use feedline_readers::notices::Notices;
use feedline_schemas::report::Warning;

use super::{
    new_rows::NewRows,
    pipe_reader::PauseHook,
    row_batcher::{RowBatcher, SharedAssembly},
};
use crate::Error;

/// Batches that wait to be taken.
const WAITING: usize = 1;

/// Rows, or `None` at the end of the pipe.
type NextBatch = Result<Option<NewRows>, Error>;

/// Both ends of the batches of a pipe, before its rows are read.
pub(super) struct BatchChannel {
    sender: SyncSender<NextBatch>,
    batches: Receiver<NextBatch>,
}

impl BatchChannel {
    pub(super) fn new() -> Self {
        let (sender, batches) = sync_channel(WAITING);
        Self { sender, batches }
    }

    /// Hook that hands out the complete rows of `assembly`, if there are any.
    pub(super) fn hook(&self, assembly: SharedAssembly) -> PauseHook {
        let sender = self.sender.clone();
        Box::new(move || {
            let taken = assembly.lock().take();
            if !matches!(taken, Ok(None)) {
                // Where the receiver is dropped, rows are of no use.
                let _gone: Result<(), _> = sender.send(taken);
            }
        })
    }
}

/// Rows of a pipe. The reading thread ends with the pipe, or with the next batch after this was
/// dropped.
pub(super) struct PipedRows {
    batches: Receiver<NextBatch>,
    thread: Option<JoinHandle<RowBatcher>>,
    /// The rows after their end.
    ended: Option<RowBatcher>,
    /// Ignored columns that are known before the first row.
    ignored: Vec<String>,
    notices: Notices,
}

impl PipedRows {
    /// Starts to read the rows of `batcher`.
    pub(super) fn spawn(mut batcher: RowBatcher, channel: BatchChannel) -> Self {
        let BatchChannel { sender, batches } = channel;
        let (ignored, notices) = (batcher.ignored(), batcher.notices.clone());
        let work = move || {
            loop {
                let batch = batcher.next_rows();
                let is_last = !matches!(batch, Ok(Some(_)));
                if sender.send(batch).is_err() || is_last {
                    return batcher;
                }
            }
        };
        Self {
            batches,
            thread: Some(thread::spawn(work)),
            ended: None,
            ignored,
            notices,
        }
    }

    /// The next rows, at least one; `None` at the end. Blocks.
    ///
    /// # Errors
    /// As [`RowBatcher::next_rows`].
    pub(super) fn next_rows(&mut self) -> NextBatch {
        if self.ended.is_some() {
            return Ok(None);
        }
        let batch = self.batches.recv().unwrap_or(Ok(None));
        if !matches!(batch, Ok(Some(_))) {
            let ended = self.thread.take().map(JoinHandle::join);
            self.ended = ended.map(|ended| ended.unwrap_or_else(|e| panic::resume_unwind(e)));
        }
        batch
    }

    pub(super) fn ignored(&self) -> Vec<String> {
        let ended = self.ended.as_ref().map(RowBatcher::ignored);
        ended.unwrap_or_else(|| self.ignored.clone())
    }

    pub(super) fn warnings(&self) -> Vec<Warning> {
        self.notices.all()
    }

    /// Warnings of local times that clocks show twice; none before the end of the rows.
    pub(super) fn repeated_times(&self) -> Vec<Warning> {
        let ended = self.ended.as_ref().map(RowBatcher::repeated_times);
        ended.unwrap_or_default()
    }

    /// Input columns that no row has had; none before the end of the rows.
    pub(super) fn absent(&self) -> Vec<String> {
        let ended = self.ended.as_ref().map(RowBatcher::absent);
        ended.unwrap_or_default()
    }
}
