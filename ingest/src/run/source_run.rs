//! The loop of a source: position -> pages -> batch -> commit, until everything is read.

use std::{collections::BTreeMap, mem, sync::Arc};

use feedline_http::SecretMasks;
use feedline_schemas::{
    commit::{BatchCounts, DataFile, Position},
    config::SourceConfig,
    report::Warning,
};
use futures::future::{Either, select};
use tracing::warn;

use super::{
    batch_reader::{BatchReader, Gathered, begins_again},
    reject_limit::ReadBefore,
    required_columns::MissingRequired,
};
use crate::{
    blocking::computing,
    commit_log::CommitLog,
    context::Context,
    dedup::{
        Window,
        repeat_loader::{RepeatLoader, key_columns},
    },
    error::Error,
    file_list::OF_ONE_RUN,
    file_marks::{self, Folded},
    infer::{Inferred, Survey},
    raw::Tape,
    source::Source,
    source_table::unit_of,
    source_type::ReadUnit,
    watermark::note_interruption,
};

/// Time before which no request may be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotBefore {
    pub(super) until_unix_s: u64,
    /// Length of the wait as the server asked for it: the wall clock may jump before the entry is
    /// written.
    pub(super) wait_s: u64,
}

/// One source being run.
pub(super) struct Run<'a> {
    pub(super) config: &'a SourceConfig,
    pub(super) context: &'a Context,
    pub(super) log: CommitLog,
    pub(super) window: Window,
    pub(super) repeats: RepeatLoader,
    /// Pages without a record, by reason, of batches that were not worth an entry of the log.
    pub(super) unlanded: BTreeMap<String, u64>,
    /// Warnings of batches that were not worth an entry of the log.
    pub(super) unlanded_warnings: Vec<Warning>,
    /// Records that landed in this run without a value in a required column.
    pub(super) missing_required: MissingRequired,
    /// Counts of the interrupted runs of the same read, once they are known.
    pub(super) read_before: Option<ReadBefore>,
    /// Archive of responses to replay. The batches are then those of the archive.
    pub(super) tape: Option<Arc<Tape>>,
    /// Columns inferred from a sample, before anything landed.
    pub(super) sample: Option<Arc<Inferred>>,
    /// Marks of read files for the next entry to name.
    pub(super) folded: Option<Folded>,
    /// Secrets to mask in warnings and samples.
    pub(super) masks: SecretMasks,
}

impl<'a> Run<'a> {
    pub(super) async fn begin(
        config: &'a SourceConfig,
        context: &'a Context,
        mut log: CommitLog,
    ) -> Result<Self, Error> {
        log.load_rows(config.dedup_window()).await?;
        let window = Window::rebuild(
            log.landing(),
            log.entries(),
            config.dedup_window(),
            key_columns(config),
        )
        .await?;
        let mut run = Self {
            config,
            context,
            log,
            window,
            repeats: RepeatLoader::default(),
            unlanded: BTreeMap::new(),
            unlanded_warnings: Vec::new(),
            missing_required: MissingRequired::default(),
            read_before: None,
            tape: None,
            sample: None,
            folded: None,
            masks: SecretMasks::default(),
        };
        // For an unchanged feed, the landed records are not read.
        if config.refresh.is_never() {
            run.load_repeats().await?;
        }
        Ok(run)
    }

    /// Loads the landed records that the page run may return again.
    pub(super) async fn load_repeats(&mut self) -> Result<(), Error> {
        let now = self.context.clock.unix();
        self.repeats
            .load_for_page_run(self.config, &mut self.log, &mut self.window, now)
            .await
    }

    /// Returns true if a pass over slices and values is in progress, or a crawl with pages that failed.
    pub(super) fn is_in_pass(&self) -> bool {
        let position = self.position();
        let has_next_pass = position.ledger().is_some() || position.failed_pages().is_some();
        matches!(position, Position::Page { .. }) && has_next_pass
    }

    /// The last committed position.
    pub(super) fn position(&self) -> Position {
        self.log
            .last()
            .map(|entry| entry.state.position.clone())
            .unwrap_or_default()
    }

    pub(super) fn totals(&self) -> BatchCounts {
        self.log
            .last()
            .map(|entry| entry.state.totals.clone())
            .unwrap_or_default()
    }

    /// Reads and commits to the end of the source. Reads the next batch while one is written.
    pub(super) async fn drive(&mut self, source: &mut dyn Source) -> Result<(), Error> {
        let mut begin = self.position();
        note_interruption(self.config, &mut begin);
        let mut read = self.reading(0).gather(source, begin).await?;
        self.look_ahead(source, &read.next).await?;
        loop {
            let Gathered {
                pages,
                from,
                next,
                ended,
            } = read;
            self.masks = source.secret_masks();
            let batch = &pages.batch;
            let is_done = matches!(next, Position::Done { .. });
            let is_unread = next == from || self.has_read_no_file(&from, &next);
            let is_empty = batch.len() == 0 && is_unread && !batch.has_skipped();
            let next = self.fold_marks(source, next).await?;
            let not_before = match &ended {
                Some(Error::Deferred {
                    until_unix_s,
                    wait_s,
                    ..
                }) => Some(NotBefore {
                    until_unix_s: *until_unix_s,
                    wait_s: *wait_s,
                }),
                _ => None,
            };
            if is_done || is_empty || ended.is_some() {
                self.log_warnings_of_run(&*source);
                // A delay is committed even without data: a later run must not send requests before
                // it ends.
                if !is_empty || not_before.is_some() {
                    let committed = self.commit(pages, next, not_before).await;
                    if let (Err(_), Some(reason)) = (&committed, &ended) {
                        warn!(source = %self.config.name, %reason, "the pages read before this cannot land");
                    }
                    committed?;
                }
                return ended.map_or(Ok(()), Err);
            }
            let reading = self.reading(batch.len());
            if begins_again(&from, &next) {
                self.commit(pages, next.clone(), None).await?;
                self.load_repeats().await?;
                read = reading.gather(source, next).await?;
                continue;
            }
            let gather = Box::pin(reading.gather(source, next.clone()));
            let commit = Box::pin(self.commit(pages, next, None));
            read = match select(commit, gather).await {
                Either::Left((committed, gather)) => {
                    committed?;
                    gather.await?
                }
                Either::Right((gathered, commit)) => {
                    commit.await?;
                    gathered?
                }
            };
        }
    }

    /// Returns true if a first run of files, from `from` to `next`, has read none: all are left for a
    /// later run. An entry would say that the source was read, and has no record.
    fn has_read_no_file(&self, from: &Position, next: &Position) -> bool {
        let is_without_files = matches!(next, Position::Done { files, .. } if files.is_empty());
        let is_of_files = unit_of(self.config) == ReadUnit::File;
        is_of_files && *from == Position::Start && is_without_files
    }

    /// Logs the warnings about files that no entry of the log has.
    fn log_warnings_of_run(&self, source: &dyn Source) {
        let mut warnings = source.run_warnings();
        warnings.retain(|warning| OF_ONE_RUN.contains(&warning.code.as_str()));
        for warning in warnings {
            warn!(source = %self.config.name, code = warning.code.as_str(), "{}", warning.message);
        }
    }

    /// Moves the read files that `next` lists out of it, if these are many, for the next commit.
    async fn fold_marks(
        &mut self,
        source: &mut dyn Source,
        mut next: Position,
    ) -> Result<Position, Error> {
        let Some(listed) = file_marks::listed(&mut next) else {
            return Ok(next);
        };
        if listed.len() <= file_marks::MOST_LISTED {
            return Ok(next);
        }
        let marks = mem::take(listed);
        source.fold(&marks);
        let older = self.marks();
        let (landing, sequence) = (self.log.landing(), self.log.next_sequence());
        self.folded = Some(file_marks::fold(landing, older, marks, sequence).await?);
        Ok(next)
    }

    /// Files with the marks of read files that the newest entry names.
    pub(super) fn marks(&self) -> Vec<DataFile> {
        let last = self.log.last();
        last.map(|last| last.state.marks.clone())
            .unwrap_or_default()
    }

    /// Samples the records to be read, if nothing has landed yet and more follows the first batch,
    /// which ends at `next`.
    async fn look_ahead(&mut self, source: &mut dyn Source, next: &Position) -> Result<(), Error> {
        let is_over = matches!(next, Position::Done { .. });
        if is_over || self.config.infer.rows.get() == 0 || self.has_columns() {
            return Ok(());
        }
        if let Some(survey) = source.survey(Survey::new(self.config)).await? {
            let config = self.config.clone();
            let inferred = computing(move || Ok(survey.infer(&config))).await?;
            self.sample = Some(Arc::new(inferred));
        }
        Ok(())
    }

    /// Returns whether any column has landed.
    fn has_columns(&self) -> bool {
        let last = self.log.last();
        last.is_some_and(|entry| !entry.schema.columns.is_empty())
    }

    /// Creates the reader that continues after `open` records of an uncommitted batch.
    pub(super) fn reading(&self, open: u64) -> BatchReader<'a> {
        let totals = self.totals();
        BatchReader {
            config: self.config,
            context: self.context,
            tape: self.tape.clone(),
            read: totals.rows + totals.duplicates + totals.rejected + open,
        }
    }
}
