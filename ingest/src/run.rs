//! The loop of a source: position -> pages -> batch -> commit, until everything is read.

mod deferral;
mod order;
mod position_warnings;
mod reading;
mod recall;
pub(crate) mod replay;
pub(crate) mod retry_rejects;
mod superseded;
mod telling;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    mem,
    sync::Arc,
};

use feedline_schemas::{
    commit::{
        BatchCounts, ChildTable, CommitEntry, DataFile, Ledger, PageRun, Position, SourceState,
        note,
    },
    config::{Bounded, PipelineConfig, SourceConfig, SourceKind},
    csv_cell::CellFormat,
    ids::{Name, Sequence},
    log_snapshot::LogSums,
    record::ColumnType,
    report::{IngestReport, SourceReport, Warning, replace_warning},
};
use feedline_storage::Store;
use futures::future::{Either, join_all, select};
use tokio::{sync::Semaphore, time::Instant};
use tracing::{info, warn};

use self::{
    deferral::check_deferral,
    reading::{Gathered, GatheredPages, Reading},
    superseded::Superseded,
};
use crate::{
    amend::{compact_when_due, subtract},
    batch::{Batch, Decided, Encoded},
    blocking::computing,
    commit_log::{Commit, CommitLog, landing},
    context::Context,
    contract::{self, Before},
    dedup::{Window, read_rows},
    error::Error,
    failures, fetch,
    file_marks::{self, Folded},
    files, html,
    infer::{self, Inferred, Types},
    known::{
        ahead, is_below_bound, is_bounded, is_earlier, known_from_bound, known_of_all, page_run,
    },
    landing_files::report_damage,
    log_entries::{Kept, LogEntries},
    log_snapshots,
    raw::{self, Exchange, Tape},
    report::{add, reject_sample, source_report},
    rest,
    setting_changes::adopt,
    settings::{choose, config_hash, looks_for_more},
    source::{Requests, Source},
    supersede, warnings,
    watermark::Incremental,
};

/// Sources that run concurrently by default: most wait for their servers. Each holds a batch.
const PARALLEL_SOURCES: u32 = 8;
/// Most sources of them that read files, which they decode without waiting for anything.
const PARALLEL_FILES: usize = 4;

/// Records after which the fraction of rejects is checked at every batch; before, only at the end.
const JUDGED_AFTER: u64 = 1_000;

/// Runs the pipeline's sources, some at a time; only the source called `only`, if given. A source
/// that gets values from another runs after it, even if that one failed, with the values that have
/// landed.
///
/// For a complete source, only its log is read.
///
/// # Errors
/// After all sources have run: the error of the first source in order that failed, else
/// [`Error::Cancelled`] if the run was stopped before its end, else [`Error::Deferred`] for the
/// first deferred one. Batches committed before that stay, and the next call resumes after them.
/// Settings out of range and duplicate names are reported before anything runs.
pub async fn ingest(
    config: &PipelineConfig,
    only: Option<&Name>,
    context: &Context,
) -> Result<IngestReport, Error> {
    // Boxed: the future of all sources is large.
    let IngestEnd { report, error } = Box::pin(ingest_all(config, only, context)).await?;
    error.map_or(Ok(report), Err)
}

/// Result of a run of several sources.
#[derive(Debug)]
pub struct IngestEnd {
    /// Report of all sources; for a failed source, with its error and the state of its log.
    pub report: IngestReport,
    /// Error that ends the run: see [`ingest`].
    pub error: Option<Error>,
}

/// Runs the sources like [`ingest`], and returns the report even if some of them failed.
///
/// # Errors
/// [`Error::Config`] for settings that are refused before any source runs.
pub async fn ingest_all(
    config: &PipelineConfig,
    only: Option<&Name>,
    context: &Context,
) -> Result<IngestEnd, Error> {
    let chosen = choose(config, only)?;
    let mut report = IngestReport {
        url: context.root.url_of("landing"),
        ..IngestReport::default()
    };
    let mut all_ended = Vec::with_capacity(chosen.len());
    let most = config.pipeline.parallel_sources;
    let places = SourcePlaces::new(most.map_or(PARALLEL_SOURCES, Bounded::get) as usize);
    for wave in order::waves(&chosen, &config.source) {
        // Boxed: the future of a source is large.
        let runs = wave
            .iter()
            .map(|(_, source)| Box::pin(places.run(config, source, context)));
        let ended: Vec<_> = join_all(runs).await;
        all_ended.extend(wave.into_iter().zip(ended));
    }
    all_ended.sort_by_key(|((index, _), _)| *index);
    let (mut failed, mut stopped, mut deferred) = (None, None, None);
    for ((index, source), ended) in all_ended {
        let under = |error: Error| error.under(&format!("source.{index}"));
        let ended = ended.map_err(under);
        failures::note(context, &source.name, ended.as_ref().err()).await;
        match &ended {
            Ok(ended) => add(&mut report, ended.clone()),
            Err(error) => add(&mut report, failed_report(source, error, context).await),
        }
        match ended {
            Ok(_) => {}
            Err(e @ Error::Deferred { .. }) => deferred = deferred.or(Some(e)),
            // A wish to stop must not hide that another source failed.
            Err(e @ Error::Cancelled) => stopped = Some(e),
            Err(e) => {
                if failed.is_some() {
                    tracing::error!(source = %source.name, error = %e, "this source failed too");
                }
                failed = failed.or(Some(e));
            }
        }
    }
    Ok(IngestEnd {
        report,
        error: failed.or(stopped).or(deferred),
    })
}

/// Places for sources that run concurrently.
struct SourcePlaces {
    all: Semaphore,
    files: Semaphore,
}

impl SourcePlaces {
    fn new(most: usize) -> Self {
        Self {
            all: Semaphore::new(most),
            files: Semaphore::new(most.min(PARALLEL_FILES)),
        }
    }

    /// Runs a source when there is a place for it, and merges its small files if that is configured.
    async fn run(
        &self,
        config: &PipelineConfig,
        source: &SourceConfig,
        context: &Context,
    ) -> Result<SourceReport, Error> {
        let is_files = source.r#type == SourceKind::Files;
        // A source of files takes no place while it waits for another of files.
        let _file = if is_files {
            Some(self.files.acquire().await)
        } else {
            None
        };
        let _place = self.all.acquire().await;
        let mut report = run_source(source, context).await?;
        compact_when_due(config, &source.name, context, &mut report).await;
        Ok(report)
    }
}

/// Report of a source whose run ended with `error`.
async fn failed_report(config: &SourceConfig, error: &Error, context: &Context) -> SourceReport {
    // An unreadable log is the subject of this error or of the next one.
    let read = read_for_report(&context.root, &config.name).await;
    let (last, sums) = read.unwrap_or_default();
    let made = context.meters.of(config.name.as_str()).read();
    let requests = Requests {
        requests: made.requests.values().sum(),
        retries: made.retries,
    };
    let folder = landing(&context.root, &config.name);
    let mut report = source_report(config, &folder, last.as_ref(), sums, requests).await;
    match error {
        Error::Cancelled => return report,
        Error::Deferred { .. } => "deferred".clone_into(&mut report.status),
        _ => "failed".clone_into(&mut report.status),
    }
    report.error = Some(error.to_string());
    report
}

/// Reports what a stopped run has landed, with the requests it sent. Reports only the source called
/// `only`, if given; `context` is that of the run.
///
/// # Errors
/// [`Error::Log`] for a damaged log, [`Error::Storage`].
pub async fn stopped(
    config: &PipelineConfig,
    only: Option<&Name>,
    context: &Context,
) -> Result<IngestReport, Error> {
    let mut report = IngestReport {
        url: context.root.url_of("landing"),
        stopped: true,
        ..IngestReport::default()
    };
    for (_, source) in choose(config, only)? {
        let (last, sums) = read_for_report(&context.root, &source.name).await?;
        let made = context.meters.of(source.name.as_str()).read();
        let requests = Requests {
            requests: made.requests.values().sum(),
            retries: made.retries,
        };
        let folder = landing(&context.root, &source.name);
        add(
            &mut report,
            source_report(source, &folder, last.as_ref(), sums, requests).await,
        );
    }
    Ok(report)
}

/// Newest entry of a source's log, and the sums over all entries.
async fn read_for_report(
    root: &Store,
    source: &Name,
) -> Result<(Option<CommitEntry>, LogSums), Error> {
    let mut entries = LogEntries::open(&landing(root, source), source, Kept::All).await?;
    let sums = entries.sums().await?;
    Ok((entries.last().cloned(), sums))
}

/// Reports what the pipeline's sources have landed, from their commit logs alone.
///
/// # Errors
/// [`Error::Log`] for a damaged log, [`Error::Storage`].
pub async fn status(config: &PipelineConfig, root: &Store) -> Result<IngestReport, Error> {
    let mut report = IngestReport {
        url: root.url_of("landing"),
        ..IngestReport::default()
    };
    for source in &config.source {
        let folder = landing(root, &source.name);
        let mut entries = LogEntries::open(&folder, &source.name, Kept::All).await?;
        let sums = entries.sums().await?;
        let last = entries.last();
        let mut told = source_report(source, &folder, last, sums, Requests::default()).await;
        told.warnings.extend(entries.warning());
        report_damage(&folder, &mut entries, &mut told).await?;
        add(&mut report, told);
    }
    Ok(report)
}

async fn run_source(config: &SourceConfig, context: &Context) -> Result<SourceReport, Error> {
    let mut log = CommitLog::open_tail(
        &context.root,
        &config.name,
        &context.run_id,
        config_hash(config),
    )
    .await?
    .with_delta(context);
    log.catch_up_delta().await;
    let begun = log.next_sequence().get();
    adopt(config, &mut log).await?;
    if let Some(entry) = log.last() {
        telling::stands(context, log.landing(), entry).await;
    }
    let (mut requests, mut unlanded) = (Requests::default(), BTreeMap::new());
    let mut warnings = Vec::new();
    let is_done = log
        .last()
        .is_some_and(|entry| matches!(entry.state.position, Position::Done { .. }));
    if is_done && !looks_for_more(config) {
        let source = &config.name;
        info!(%source, "finished by an earlier run; only `files`, `incremental`, `refresh` and `crawl.refresh` look for more");
    } else {
        log = Box::pin(check_deferral(config, context, log)).await?;
        let mut source = open_restored(config, context, &mut log).await?;
        let mut run = Box::pin(Run::begin(config, context, log)).await?;
        let goes_on = run.is_in_pass();
        Box::pin(run.drive(source.as_mut())).await?;
        if goes_on {
            // That pass keeps its initial range; the wanted range may be larger now.
            Box::pin(run.drive(source.as_mut())).await?;
        }
        (log, unlanded, warnings) = (run.log, run.unlanded, run.unlanded_warnings);
        warnings.extend(source.run_warnings());
        requests = source.requests();
    }
    let sums = log.sums().await?;
    let mut report = source_report(config, log.landing(), log.last(), sums, requests).await;
    warnings.extend(log.tidied().iter().cloned());
    warnings.extend(log.delta_warnings().cloned());
    // The report of a run has only the changes that this run found.
    report.new_rows = Some(log.appended_rows());
    report.compared_files = log.compared_files();
    let found = report.settings_changed.take();
    report.settings_changed = found.filter(|changed| changed.sequence >= begun);
    for (reason, count) in unlanded {
        *report.skipped.entry(reason).or_default() += count;
    }
    for warning in warnings {
        replace_warning(&mut report.warnings, warning);
    }
    Ok(report)
}

/// Opens the source that `config` describes, and restores what it resumes from.
async fn open_restored(
    config: &SourceConfig,
    context: &Context,
    log: &mut CommitLog,
) -> Result<Box<dyn Source>, Error> {
    let mut source = open(config, context).await?;
    let resumed = log.resumed().await?;
    let restored = source.restore(log.landing(), &resumed).await;
    match restored {
        // What a snapshot has is in the files of entries too.
        Err(Error::Landed { url, reason }) if log_snapshots::is_own(log.landing(), &url) => {
            log.read_log(format!("`{url}`: {reason}")).await?;
            source = open(config, context).await?;
            let resumed = log.resumed().await?;
            source.restore(log.landing(), &resumed).await?;
        }
        restored => restored?,
    }
    Ok(source)
}

/// Opens the source that `config` describes.
pub(crate) async fn open(
    config: &SourceConfig,
    context: &Context,
) -> Result<Box<dyn Source>, Error> {
    Ok(match config.r#type {
        SourceKind::Rest => rest::open(config, context).await?,
        SourceKind::Html => html::open(config, context)?,
        SourceKind::Files => match &config.fetch {
            None => files::open(config, context)?,
            Some(fetch) => fetch::open(config, fetch, context)?,
        },
    })
}

/// A batch ready to be written.
struct Prepared {
    decided: Decided,
    /// Planned types of columns without a value so far.
    planned: Types,
    data: Option<Encoded>,
    rejects: Option<Encoded>,
    frontier: Option<Encoded>,
    validators: Option<Encoded>,
    raw: Option<Encoded>,
    children: BTreeMap<Name, (ChildTable, Option<Encoded>)>,
}

/// Time before which no request may be made.
#[derive(Clone, Copy, Debug)]
struct NotBefore {
    until_unix_s: u64,
    /// Length of the wait as the server asked for it: the wall clock may jump before the entry is
    /// written.
    wait_s: u64,
}

/// One source being run.
struct Run<'a> {
    config: &'a SourceConfig,
    context: &'a Context,
    log: CommitLog,
    window: Window,
    /// True if the dedup window has been loaded.
    knows: bool,
    /// Pages without a record, by reason, of batches that were not worth an entry of the log.
    unlanded: BTreeMap<String, u64>,
    /// Warnings of batches that were not worth an entry of the log.
    unlanded_warnings: Vec<Warning>,
    /// Archive of responses to replay. The batches are then those of the archive.
    tape: Option<Arc<Tape>>,
    /// Slices: batches whose records the window contains.
    recalled: BTreeSet<Sequence>,
    /// Columns inferred from a sample, before anything landed.
    sample: Option<Arc<Inferred>>,
    /// Marks of read files for the next entry to name.
    folded: Option<Folded>,
}

impl<'a> Run<'a> {
    async fn begin(
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
    async fn know(&mut self) -> Result<(), Error> {
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
    fn position(&self) -> Position {
        self.log
            .last()
            .map(|entry| entry.state.position.clone())
            .unwrap_or_default()
    }

    fn totals(&self) -> BatchCounts {
        self.log
            .last()
            .map(|entry| entry.state.totals.clone())
            .unwrap_or_default()
    }

    /// Reads and commits to the end of the source. Reads the next batch while one is written.
    async fn drive(&mut self, source: &mut dyn Source) -> Result<(), Error> {
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
    fn marks(&self) -> Vec<DataFile> {
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
    fn reading(&self, open: u64) -> Reading<'a> {
        let totals = self.totals();
        Reading {
            config: self.config,
            context: self.context,
            tape: self.tape.clone(),
            read: totals.rows + totals.duplicates + totals.rejected + open,
        }
    }

    /// Lands a batch: its files first, then the entry that names them and the delay, if there is
    /// one.
    async fn commit(
        &mut self,
        pages: GatheredPages,
        mut position: Position,
        not_before: Option<NotBefore>,
    ) -> Result<(), Error> {
        let GatheredPages {
            batch,
            answers,
            warnings,
        } = pages;
        if !self.knows && batch.len() > 0 {
            self.know().await?;
        }
        let began = Instant::now();
        let sequence = self.log.next_sequence();
        let mut batch = batch;
        let (parts, superseded) = batch.take_parts();
        let Superseded {
            replaced,
            child_rows,
            rejected_by_reason,
            warnings: about_files,
        } = self.supersede(&superseded).await?;
        batch.warn(about_files);
        self.recall(&position).await?;
        let Prepared {
            decided,
            planned,
            data,
            rejects,
            frontier,
            validators,
            raw,
            children: child_files,
        } = self.prepare(batch, answers, sequence).await?;
        let mut counts = decided.counts();
        counts.superseded = replaced.iter().map(|replaced| replaced.rows).sum();
        let known = self.known_warnings();
        let mut warnings = warnings::apply(known.clone(), warnings);
        let is_still =
            counts.rows + counts.rejected == 0 && not_before.is_none() && warnings == known;
        // Each batch of an archive becomes an entry, so the two logs correspond.
        let is_replay = self.tape.is_some();
        if is_still && !is_replay && is_no_news(&self.position(), &position) {
            for (reason, count) in counts.skipped {
                *self.unlanded.entry(reason).or_default() += count;
            }
            self.unlanded_warnings.extend(decided.warnings);
            let (source, duplicates) = (&self.config.name, counts.duplicates);
            info!(%source, duplicates, "nothing new");
            return Ok(());
        }
        let mut totals = sum(self.totals(), &counts);
        let rejected: u64 = rejected_by_reason.values().sum();
        totals.rejected = totals.rejected.saturating_sub(rejected);
        subtract(&mut totals.rejected_by_reason, &rejected_by_reason);
        for (name, rows) in child_rows {
            let total = totals.children.entry(name.to_string()).or_default();
            *total = total.saturating_sub(rows);
        }
        let is_done = matches!(position, Position::Done { .. });
        if let Position::Done { pages, .. } = &mut position {
            *pages = totals.pages;
        }
        self.judge(&totals, is_done, &decided).await?;
        let files = self.put(data).await?;
        let rejects = self.put(rejects).await?;
        let frontier = self.put(frontier).await?;
        let validators = self.put(validators).await?;
        let raw = self.put(raw).await?;
        let (marks, all_marks) = match self.folded.take() {
            Some(Folded { encoded, all }) => (self.put(encoded).await?, all),
            None => (Vec::new(), self.marks()),
        };
        let mut children = BTreeMap::new();
        for (name, (table, encoded)) in child_files {
            self.put(encoded).await?;
            children.insert(name, table);
        }
        let (rows, rejected, pages) = (counts.rows, counts.rejected, counts.pages);
        let presence = decided.presence;
        for warning in decided.warnings {
            if !warnings.contains(&warning) {
                warn!(source = %self.config.name, "{}", warning.message);
            }
            replace_warning(&mut warnings, warning);
        }
        self.warn_of_position(&mut warnings, &position);
        let state = SourceState {
            totals,
            position,
            not_before_unix_s: not_before.map(|wait| wait.until_unix_s),
            not_before_wait_s: not_before.map(|wait| wait.wait_s),
            presence,
            planned,
            warnings,
            marks: all_marks,
        };
        self.log
            .append(Commit {
                schema: decided.schema,
                files,
                rejects,
                frontier,
                validators,
                raw,
                children,
                parts,
                replaced,
                compacted: Vec::new(),
                marks,
                counts,
                settings: None,
                withdrawn: Vec::new(),
                reset_to: None,
                rewound_to: None,
                expired: Vec::new(),
                state,
            })
            .await?;
        let gone = self.log.take_gone();
        supersede::set_aside(self.log.landing(), &gone).await?;
        self.log.snapshot_if_due().await;
        self.committed(began.elapsed());
        info!(source = %self.config.name, %sequence, rows, rejected, pages, "batch landed");
        self.warn(sequence);
        Ok(())
    }

    /// Returns the warnings of the last entry that still hold. Those about files hold for the run
    /// that read the files, those about types of columns until a reset.
    fn known_warnings(&self) -> Vec<Warning> {
        let Some(last) = self.log.last() else {
            return Vec::new();
        };
        let is_files = self.config.r#type == SourceKind::Files;
        let mut known = last.state.warnings.clone();
        if is_files && last.run_id != self.context.run_id {
            let codes = [&infer::TYPE_WARNINGS[..], &contract::IMAGE_WARNINGS].concat();
            known.retain(|warning| codes.contains(&warning.code.as_str()));
        }
        known
    }

    /// Warns of values that the last batch has lost.
    fn warn(&self, sequence: Sequence) {
        let mut newest = self.log.entries().iter().rev();
        let newest = [newest.next(), newest.next()];
        for kind in contract::ALARMS {
            let [now, before] =
                newest.map(|entry| entry.and_then(|entry| entry.counts.decisions.get(kind)));
            for (column, noted) in now.into_iter().flatten() {
                // Logged once while it lasts.
                if before.is_none_or(|before| !before.contains_key(column)) {
                    let what = kind.replace('_', " ");
                    warn!(source = %self.config.name, %sequence, "column `{column}` {what}: {}", noted.sample);
                }
            }
        }
    }

    /// Decides and encodes a batch. After an error the window is void: the run is over.
    async fn prepare(
        &mut self,
        mut batch: Batch,
        answers: Vec<Exchange>,
        sequence: Sequence,
    ) -> Result<Prepared, Error> {
        // An entry without columns landed nothing: the first columns make the first version.
        let before = self.log.last().map(|entry| Before {
            schema: entry.schema.clone(),
            presence: entry.state.presence.clone(),
        });
        let before = before.filter(|before| !before.schema.columns.is_empty());
        let children = self.log.last().map(|entry| entry.children.clone());
        batch.follow(children.unwrap_or_default());
        let config = self.config.clone();
        let last = self.log.last();
        let mut planned = last.map(|entry| entry.state.planned.clone());
        let sample = self.sample.clone();
        let mut window = mem::take(&mut self.window);
        let work = move || {
            let mut planned = planned.take().unwrap_or_default();
            match &before {
                None => {
                    let found = infer::of_first(batch.records(), &config, sample.as_deref());
                    planned = found.types;
                    batch.warn(found.warnings);
                }
                Some(before) => {
                    let columns = before.schema.columns.iter();
                    let columns = columns.map(|column| column.name.as_str());
                    let known: HashSet<&str> =
                        columns.chain(planned.keys().map(String::as_str)).collect();
                    let found = infer::of_new_columns(batch.records(), &config, &known);
                    planned.extend(found.types);
                    batch.warn(found.warnings);
                }
            }
            batch.plan(planned.clone(), CellFormat::new(&config.csv));
            let (name, contract) = (&config.name, &config.contract);
            let decided = batch.decide(name.as_str(), contract, before.as_ref(), &mut window)?;
            let made = &decided.schema.columns;
            let is_open = |name: &String| {
                let found = made.iter().find(|column| column.name == *name);
                found.is_none_or(|column| column.r#type == ColumnType::Null)
            };
            planned.retain(|name, _| is_open(name));
            let data = decided.data_file(sequence)?;
            let settled = window.settle(data.as_ref().map(|data| &data.bytes));
            settled.map_err(|reason| Error::Landed {
                url: format!("the data file of batch {sequence}"),
                reason,
            })?;
            let rejects = decided.rejects_file(sequence)?;
            let frontier = decided.frontier_file(sequence)?;
            let validators = decided.validators_file(sequence)?;
            let raw = raw::file(&answers, sequence)?;
            let children = decided.child_files(sequence)?;
            Ok((
                window,
                Prepared {
                    decided,
                    planned,
                    data,
                    rejects,
                    frontier,
                    validators,
                    raw,
                    children,
                },
            ))
        };
        let (window, prepared) = computing(work).await?;
        self.window = window;
        Ok(prepared)
    }

    async fn put(&mut self, encoded: Option<Encoded>) -> Result<Vec<DataFile>, Error> {
        let Some(encoded) = encoded else {
            return Ok(Vec::new());
        };
        let file = encoded.file.clone();
        self.log.put(encoded).await?;
        Ok(vec![file])
    }

    /// Stops the run when too many records are rejected.
    async fn judge(
        &self,
        totals: &BatchCounts,
        is_done: bool,
        decided: &Decided,
    ) -> Result<(), Error> {
        let records = totals.rows + totals.duplicates + totals.rejected;
        let max_share = self.config.contract.max_reject_fraction.get();
        let is_over = share(totals.rejected, records) > max_share;
        if !is_over || (records < JUDGED_AFTER && !is_done) {
            return Ok(());
        }
        // The most frequent reason; of equally frequent ones the last in the alphabet.
        let most = totals
            .rejected_by_reason
            .iter()
            .max_by_key(|(_, count)| **count);
        let reason = most.map(|(reason, _)| reason.clone()).unwrap_or_default();
        let sample = decided
            .rejects()
            .iter()
            .find(|reject| reject.reason == reason);
        let sample = match sample.or(decided.rejects().first()) {
            Some(reject) => Some(reject.sample()),
            None => {
                let rejects = self.log.known_sums().rejects;
                reject_sample(self.log.landing(), rejects.as_ref()).await?
            }
        };
        Err(Error::TooManyRejects {
            source: self.config.name.to_string(),
            rejected: totals.rejected,
            records,
            max_share,
            reason,
            sample: sample.unwrap_or_default(),
        })
    }
}

/// Columns that distinguish rows of one key and version from others. Slices return the state of a
/// key at another time: there only the content distinguishes rows.
fn key_of(config: &SourceConfig) -> Vec<String> {
    if config.key.is_empty() || config.slices.is_some() || config.for_each.is_some() {
        return Vec::new();
    }
    config.key.iter().chain(&config.version).cloned().collect()
}

/// Returns true if a page run was abandoned and another one begins, which may return landed records
/// again.
fn begins_again(from: &Position, to: &Position) -> bool {
    let number = |position: &Position| match position {
        Position::Page { run, .. } => Some(run.number),
        _ => None,
    };
    number(from).is_some_and(|before| number(to).is_some_and(|after| after != before))
}

/// Returns true if a finished source is unchanged. Each check would otherwise add an entry to its
/// log.
fn is_no_news(from: &Position, to: &Position) -> bool {
    match (from, to) {
        (Position::Done { run: before, .. }, Position::Done { run: after, .. }) => {
            let is_same = before.high == after.high && before.ahead == after.ahead;
            match (&before.ledger, &after.ledger) {
                // Only time may have extended the range; the finished part has not changed.
                (Some(before), Some(after)) => is_same_ledger(before, after),
                _ => is_same && after.number > before.number,
            }
        }
        _ => false,
    }
}

fn is_same_ledger(before: &Ledger, after: &Ledger) -> bool {
    let what = |ledger: &Ledger| {
        let Ledger {
            done,
            values,
            values_hash,
            absent,
            ..
        } = ledger.clone();
        (done, values, values_hash, absent)
    };
    what(before) == what(after)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share of counts far below 2^53"
)]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn sum(mut totals: BatchCounts, batch: &BatchCounts) -> BatchCounts {
    totals.rows = (totals.rows + batch.rows).saturating_sub(batch.superseded);
    totals.superseded += batch.superseded;
    totals.duplicates += batch.duplicates;
    totals.rejected += batch.rejected;
    totals.pages += batch.pages;
    let maps = [
        (&mut totals.rejected_by_reason, &batch.rejected_by_reason),
        (&mut totals.coerced, &batch.coerced),
        (&mut totals.nulled, &batch.nulled),
        (&mut totals.skipped, &batch.skipped),
        (&mut totals.children, &batch.children),
    ];
    for (total, batch) in maps {
        batch
            .iter()
            .for_each(|(name, count)| *total.entry(name.clone()).or_default() += count);
    }
    for (kind, paths) in &batch.decisions {
        for (path, noted) in paths {
            let sample = || noted.sample.clone();
            note(&mut totals.decisions, kind, path, noted.count, sample);
        }
    }
    totals
}

#[cfg(test)]
mod tests;
