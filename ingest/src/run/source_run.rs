//! The loop of a source: position -> pages -> batch -> commit, until everything is read.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    mem,
    sync::Arc,
};

use feedline_schemas::{
    commit::{BatchCounts, DataFile, PageRun, Position},
    config::SourceConfig,
    ids::Sequence,
    report::Warning,
};
use futures::future::{Either, select};

use super::batch_reader::{BatchReader, Gathered, begins_again};
use crate::{
    blocking::computing,
    commit_log::CommitLog,
    context::Context,
    dedup::page_runs::{
        ahead, is_below_bound, is_bounded, is_earlier, known_from_bound, known_of_all, page_run,
    },
    dedup::{Window, read_rows},
    error::Error,
    file_marks::{self, Folded},
    infer::Inferred,
    raw::Tape,
    source::Source,
    watermark::Incremental,
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
    /// True if the dedup window has been loaded.
    pub(super) knows: bool,
    /// Pages without a record, by reason, of batches that were not worth an entry of the log.
    pub(super) unlanded: BTreeMap<String, u64>,
    /// Warnings of batches that were not worth an entry of the log.
    pub(super) unlanded_warnings: Vec<Warning>,
    /// Archive of responses to replay. The batches are then those of the archive.
    pub(super) tape: Option<Arc<Tape>>,
    /// Slices: batches whose records the window contains.
    pub(super) recalled: BTreeSet<Sequence>,
    /// Columns inferred from a sample, before anything landed.
    pub(super) sample: Option<Arc<Inferred>>,
    /// Marks of read files for the next entry to name.
    pub(super) folded: Option<Folded>,
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
            key_of(config),
        )
        .await?;
        let mut run = Self {
            config,
            context,
            log,
            window,
            knows: false,
            unlanded: BTreeMap::new(),
            unlanded_warnings: Vec::new(),
            tape: None,
            recalled: BTreeSet::new(),
            sample: None,
            folded: None,
        };
        // For an unchanged feed, the landed records are not read.
        if config.refresh.is_never() {
            run.know().await?;
        }
        Ok(run)
    }

    /// Loads the hashes of landed records that this page run may return again.
    pub(super) async fn know(&mut self) -> Result<(), Error> {
        if self.config.slices.is_some() || self.config.for_each.is_some() {
            // Each batch finds it out for itself.
            return Ok(());
        }
        let incremental = self.config.incremental.as_ref().map(Incremental::new);
        let incremental = incremental.transpose()?;
        let highs = match incremental {
            Some(_) => self.log.highs().await?,
            None => Vec::new(),
        };
        let is_again = !self.config.refresh.is_never();
        let now = self.context.clock.unix();
        let last = self.log.last();
        let run = page_run(last, incremental.as_ref(), &highs, is_again, now)?;
        let (known, files) = match &run {
            Some(run) => self.known_of(run).await?,
            None => (HashSet::new(), Vec::new()),
        };
        // The keys of the window's own records are known already.
        let key = match known.is_empty() {
            true => Vec::new(),
            false => key_of(self.config),
        };
        self.window.know(known);
        for file in files.iter().filter(|_| !key.is_empty()) {
            let rows = read_rows(self.log.landing(), file, &key).await?;
            self.window.note_rows(rows);
        }
        self.knows = true;
        Ok(())
    }

    /// Loads the hashes of landed records that the page run `run` may return again. Also returns the
    /// data files whose keys decide about them. Of older entries, those are read that may have such
    /// records.
    async fn known_of(&mut self, run: &PageRun) -> Result<(HashSet<u128>, Vec<DataFile>), Error> {
        let mut known = ahead(run);
        let has_key = !key_of(self.config).is_empty();
        if run.number == 0 && (known.is_empty() || !has_key) {
            return Ok((known, Vec::new()));
        }
        if run.number > 0 && is_bounded(run) {
            self.log
                .load_until(|entry| is_below_bound(entry, run))
                .await?;
            let (found, files) =
                known_from_bound(self.log.landing(), self.log.entries(), run).await?;
            known.extend(found);
            return Ok((known, files));
        }
        let files = self
            .log
            .files_before(|entry| is_earlier(entry, run))
            .await?;
        known.extend(known_of_all(self.log.landing(), &files).await?);
        let all = files.all.into_iter().map(|(_, file)| file);
        Ok((known, all.collect()))
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
        let mut read = self.reading(0).gather(source, self.position()).await?;
        self.look_ahead(source, &read.next).await?;
        loop {
            let Gathered {
                pages,
                from,
                next,
                ended,
            } = read;
            let batch = &pages.batch;
            let is_done = matches!(next, Position::Done { .. });
            let is_empty = batch.len() == 0 && next == from && !batch.has_skipped();
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
                // A delay is committed even without data: a later run must not send requests before
                // it ends.
                if !is_empty || not_before.is_some() {
                    self.commit(pages, next, not_before).await?;
                }
                return ended.map_or(Ok(()), Err);
            }
            let reading = self.reading(batch.len());
            if begins_again(&from, &next) {
                self.commit(pages, next.clone(), None).await?;
                self.know().await?;
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
        if let Some(survey) = source.survey().await? {
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

/// Columns that distinguish rows of one key and version from others. Slices return the state of a
/// key at another time: there only the content distinguishes rows.
pub(super) fn key_of(config: &SourceConfig) -> Vec<String> {
    if config.key.is_empty() || config.slices.is_some() || config.for_each.is_some() {
        return Vec::new();
    }
    config.key.iter().chain(&config.version).cloned().collect()
}
