//! The loop of a source: position -> pages -> batch -> commit, until everything is read.

mod order;
mod reading;
mod recall;
pub(crate) mod replay;
mod telling;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use feedline_schemas::{
    commit::{BatchCounts, ChildTable, CommitEntry, DataFile, Position, SourceState, note},
    config::{PipelineConfig, SourceConfig, SourceKind},
    ids::{Name, Sequence},
    report::{IngestReport, SourceReport},
};
use feedline_storage::Store;
use futures::{
    StreamExt as _,
    future::{Either, select},
    stream,
};
use tokio::time::Instant;
use tracing::{info, warn};

use self::reading::{Gathered, Reading};
use crate::{
    batch::{Batch, Decided, Encoded},
    blocking::computing,
    commit_log::{Commit, CommitLog, landed, landing},
    context::Context,
    contract::{self, Before},
    dedup::Window,
    error::Error,
    fetch, files, html,
    known::known,
    raw::{self, Exchange, Tape},
    report::{add, reject_sample, source_report},
    rest,
    settings::{choose, config_hash, looks_for_more},
    source::{Requests, Source},
    watermark::Incremental,
};

/// Sources that are run at a time: one waits for its server while another decodes. Each holds a batch.
const AT_ONCE: usize = 4;

/// Records after which the share of rejected ones is judged at every batch; before, only at the end.
const JUDGED_AFTER: u64 = 1_000;

/// Runs the pipeline's sources, some at a time; only the one called `only`, if given. A source that gets values from another
/// is run after it, whether or not that one has failed, with the values that have landed.
///
/// A source that is complete already costs the reading of its log.
///
/// # Errors
/// After all sources have run: the error of the first source in order that failed, else [`Error::Cancelled`] where the run was
/// asked to stop before its end, else [`Error::Deferred`] for the first that was deferred. Batches committed until then stay, and the next call goes on from them. Numbers out of their range and
/// names that stand twice are told before anything is run.
pub async fn ingest(
    config: &PipelineConfig,
    only: Option<&Name>,
    context: &Context,
) -> Result<IngestReport, Error> {
    let chosen = choose(config, only)?;
    let mut report = IngestReport {
        url: context.root.url_of("landing"),
        ..IngestReport::default()
    };
    let mut all_ended = Vec::with_capacity(chosen.len());
    for wave in order::waves(&chosen, &config.source) {
        // Boxed: the future of a source is large.
        let runs = wave
            .iter()
            .map(|(_, source)| Box::pin(run_source(source, context)));
        let runs: Vec<_> = runs.collect();
        let ended: Vec<_> = stream::iter(runs).buffered(AT_ONCE).collect().await;
        all_ended.extend(wave.into_iter().zip(ended));
    }
    all_ended.sort_by_key(|((index, _), _)| *index);
    let (mut failed, mut stopped, mut deferred) = (None, None, None);
    for ((index, source), ended) in all_ended {
        match ended {
            Ok(source) => add(&mut report, source),
            Err(e @ Error::Deferred { .. }) => deferred = deferred.or(Some(e)),
            // A wish to stop must not hide that another source failed.
            Err(e @ Error::Cancelled) => stopped = Some(e),
            Err(e) => {
                if failed.is_some() {
                    tracing::error!(source = %source.name, error = %e, "this source failed too");
                }
                failed = failed.or_else(|| Some(e.under(&format!("source.{index}"))));
            }
        }
    }
    failed.or(stopped).or(deferred).map_or(Ok(report), Err)
}

/// What a run that was asked to stop leaves: what its sources have landed, and the requests that were answered. Only of the
/// source called `only`, if given; `context` is that of the run.
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
        let landed = landed(&context.root, &source.name).await?;
        let entries = landed.map(|landed| landed.entries).unwrap_or_default();
        let made = context.meters.of(source.name.as_str()).read();
        let requests = Requests {
            requests: made.requests.values().sum(),
            retries: made.retries,
        };
        let folder = landing(&context.root, &source.name);
        add(
            &mut report,
            source_report(source, &folder, &entries, requests).await,
        );
    }
    Ok(report)
}

/// What the pipeline's sources have landed, from their commit logs alone.
///
/// # Errors
/// [`Error::Log`] for a damaged log, [`Error::Storage`].
pub async fn status(config: &PipelineConfig, root: &Store) -> Result<IngestReport, Error> {
    let mut report = IngestReport {
        url: root.url_of("landing"),
        ..IngestReport::default()
    };
    for source in &config.source {
        let entries = landed(root, &source.name)
            .await?
            .map(|landed| landed.entries)
            .unwrap_or_default();
        let folder = landing(root, &source.name);
        add(
            &mut report,
            source_report(source, &folder, &entries, Requests::default()).await,
        );
    }
    Ok(report)
}

async fn run_source(config: &SourceConfig, context: &Context) -> Result<SourceReport, Error> {
    let mut log = CommitLog::open(
        &context.root,
        &config.name,
        &context.run_id,
        config_hash(config),
    )
    .await?;
    if let Some(entry) = log.last() {
        telling::stands(context, log.landing(), entry).await;
    }
    let (mut requests, mut unlanded) = (Requests::default(), BTreeMap::new());
    let is_done = log
        .last()
        .is_some_and(|entry| matches!(entry.state.position, Position::Done { .. }));
    if is_done && !looks_for_more(config) {
        let source = &config.name;
        info!(%source, "finished by an earlier run; only `files`, `incremental`, `again` and `crawl.again` look for more");
    } else {
        still_deferred(config, context, log.last())?;
        let mut source = open(config, context).await?;
        source.restore(log.landing(), log.entries()).await?;
        let mut run = Run::begin(config, context, log).await?;
        let goes_on = run.is_in_pass();
        run.drive(source.as_mut()).await?;
        if goes_on {
            // That pass has the range it began with; what is wanted now may be more.
            run.drive(source.as_mut()).await?;
        }
        (log, unlanded) = (run.log, run.unlanded);
        requests = source.requests();
    }
    let mut report = source_report(config, log.landing(), log.entries(), requests).await;
    for (reason, count) in unlanded {
        *report.skipped.entry(reason).or_default() += count;
    }
    Ok(report)
}

/// Opens the source that `config` describes.
async fn open(config: &SourceConfig, context: &Context) -> Result<Box<dyn Source>, Error> {
    Ok(match config.r#type {
        SourceKind::Rest => rest::open(config, context).await?,
        SourceKind::Html => html::open(config, context)?,
        SourceKind::Files => match &config.fetch {
            None => files::open(config, context)?,
            Some(fetch) => fetch::open(config, fetch, context)?,
        },
    })
}

/// Ends a run that begins before the time a server asked an earlier one to wait for.
fn still_deferred(
    config: &SourceConfig,
    context: &Context,
    last: Option<&CommitEntry>,
) -> Result<(), Error> {
    let now = context.clock.unix().as_secs();
    let until = last.and_then(|entry| entry.state.not_before_unix_s);
    match until.filter(|until| *until > now) {
        None => Ok(()),
        Some(until_unix_s) => Err(Error::Deferred {
            source: config.name.to_string(),
            until_unix_s,
            reason: format!(
                "the server asked an earlier run to wait, {} s of it are left, and nothing was asked of it",
                until_unix_s - now
            ),
        }),
    }
}

/// A batch ready to be written.
struct Prepared {
    decided: Decided,
    data: Option<Encoded>,
    rejects: Option<Encoded>,
    frontier: Option<Encoded>,
    validators: Option<Encoded>,
    raw: Option<Encoded>,
    children: BTreeMap<Name, (ChildTable, Option<Encoded>)>,
}

/// One source being run.
struct Run<'a> {
    config: &'a SourceConfig,
    context: &'a Context,
    log: CommitLog,
    window: Window,
    /// Whether the window knows what may come again.
    knows: bool,
    /// Pages without a record, by reason, of batches that were not worth an entry of the log.
    unlanded: BTreeMap<String, u64>,
    /// Where answers come from, if not from servers: batches are then those of the archive.
    tape: Option<Arc<Tape>>,
    /// Slices: the entries whose records the window knows.
    recalled: BTreeSet<usize>,
}

impl<'a> Run<'a> {
    async fn begin(
        config: &'a SourceConfig,
        context: &'a Context,
        log: CommitLog,
    ) -> Result<Self, Error> {
        let window =
            Window::rebuild(log.landing(), log.entries(), config.batch.dedup_window).await?;
        let mut run = Self {
            config,
            context,
            log,
            window,
            knows: false,
            unlanded: BTreeMap::new(),
            tape: None,
            recalled: BTreeSet::new(),
        };
        // A feed that has not changed costs no reading of what has landed.
        if config.again.is_never() {
            run.know().await?;
        }
        Ok(run)
    }

    /// Finds out what may come again in the run of pages that begins or goes on.
    async fn know(&mut self) -> Result<(), Error> {
        if self.config.slices.is_some() || self.config.for_each.is_some() {
            // Each batch finds it out for itself.
            return Ok(());
        }
        let incremental = self.config.incremental.as_ref().map(Incremental::new);
        let incremental = incremental.transpose()?;
        let (landing, entries) = (self.log.landing(), self.log.entries());
        let is_again = !self.config.again.is_never();
        let known = known(landing, entries, incremental.as_ref(), is_again).await?;
        self.window.know(known);
        self.knows = true;
        Ok(())
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

    /// Reads and commits to the end of the source. While a batch is written the next one is read.
    async fn drive(&mut self, source: &mut dyn Source) -> Result<(), Error> {
        let mut read = self.reading(0).gather(source, self.position()).await?;
        loop {
            let Gathered {
                batch,
                answers,
                from,
                next,
                ended,
            } = read;
            let is_done = matches!(next, Position::Done { .. });
            let is_empty = batch.len() == 0 && next == from && !batch.has_skipped();
            let not_before = match &ended {
                Some(Error::Deferred { until_unix_s, .. }) => Some(*until_unix_s),
                _ => None,
            };
            if is_done || is_empty || ended.is_some() {
                // A time to wait for is landed even when nothing else is: a later run must not ask before it.
                if !is_empty || not_before.is_some() {
                    self.commit(batch, answers, next, not_before).await?;
                }
                return ended.map_or(Ok(()), Err);
            }
            let reading = self.reading(batch.len());
            if begins_again(&from, &next) {
                self.commit(batch, answers, next.clone(), None).await?;
                self.know().await?;
                read = reading.gather(source, next).await?;
                continue;
            }
            let gather = Box::pin(reading.gather(source, next.clone()));
            let commit = Box::pin(self.commit(batch, answers, next, None));
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

    /// What it takes to read on behind a batch of `open` records that is not in the log yet.
    fn reading(&self, open: u64) -> Reading<'a> {
        let totals = self.totals();
        Reading {
            config: self.config,
            context: self.context,
            tape: self.tape.clone(),
            read: totals.rows + totals.duplicates + totals.rejected + open,
        }
    }

    /// Lands a batch: its files first, then the entry that names them and the time to wait for, if there is one.
    async fn commit(
        &mut self,
        batch: Batch,
        answers: Vec<Exchange>,
        mut position: Position,
        not_before_unix_s: Option<u64>,
    ) -> Result<(), Error> {
        if !self.knows && batch.len() > 0 {
            self.know().await?;
        }
        let began = Instant::now();
        let sequence = self.log.next_sequence();
        self.recall(&position).await?;
        let Prepared {
            decided,
            data,
            rejects,
            frontier,
            validators,
            raw,
            children: child_files,
        } = self.prepare(batch, answers, sequence).await?;
        let counts = decided.counts();
        let is_still = counts.rows + counts.rejected == 0 && not_before_unix_s.is_none();
        // Each batch of an archive becomes an entry, so that the two logs stay side by side.
        let is_replay = self.tape.is_some();
        if is_still && !is_replay && is_no_news(&self.position(), &position) {
            for (reason, count) in counts.skipped {
                *self.unlanded.entry(reason).or_default() += count;
            }
            let (source, duplicates) = (&self.config.name, counts.duplicates);
            info!(%source, duplicates, "nothing new");
            return Ok(());
        }
        let totals = sum(self.totals(), &counts);
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
        let mut children = BTreeMap::new();
        for (name, (table, encoded)) in child_files {
            self.put(encoded).await?;
            children.insert(name, table);
        }
        let (rows, rejected, pages) = (counts.rows, counts.rejected, counts.pages);
        let presence = decided.presence;
        let state = SourceState {
            totals,
            position,
            not_before_unix_s,
            presence,
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
                counts,
                state,
            })
            .await?;
        self.committed(began.elapsed());
        info!(source = %self.config.name, %sequence, rows, rejected, pages, "batch landed");
        self.warn(sequence);
        Ok(())
    }

    /// Tells of what the last batch has lost.
    fn warn(&self, sequence: Sequence) {
        let mut newest = self.log.entries().iter().rev();
        let newest = [newest.next(), newest.next()];
        for kind in contract::ALARMS {
            let [now, before] =
                newest.map(|entry| entry.and_then(|entry| entry.counts.decisions.get(kind)));
            for (column, noted) in now.into_iter().flatten() {
                // Told once while it lasts.
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
        // An entry without columns is one that landed nothing: the first columns make the first version.
        let before = self.log.last().map(|entry| Before {
            schema: entry.schema.clone(),
            presence: entry.state.presence.clone(),
        });
        let before = before.filter(|before| !before.schema.columns.is_empty());
        let children = self.log.last().map(|entry| entry.children.clone());
        batch.follow(children.unwrap_or_default());
        let SourceConfig { name, contract, .. } = self.config.clone();
        let mut window = mem::take(&mut self.window);
        let work = move || {
            let decided = batch.decide(name.as_str(), &contract, before.as_ref(), &mut window)?;
            let data = decided.data_file(sequence)?;
            let rejects = decided.rejects_file(sequence)?;
            let frontier = decided.frontier_file(sequence)?;
            let validators = decided.validators_file(sequence)?;
            let raw = raw::file(&answers, sequence)?;
            let children = decided.child_files(sequence)?;
            Ok((
                window,
                Prepared {
                    decided,
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

    async fn put(&self, encoded: Option<Encoded>) -> Result<Vec<DataFile>, Error> {
        let Some(Encoded { file, bytes }) = encoded else {
            return Ok(Vec::new());
        };
        self.log.landing().put(&file.path, bytes).await?;
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
        let max_share = self.config.contract.max_reject_share;
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
            None => reject_sample(self.log.landing(), self.log.entries()).await?,
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

/// Whether a run of pages ended before its end and another one begins, which may bring what has landed again.
fn begins_again(from: &Position, to: &Position) -> bool {
    let number = |position: &Position| match position {
        Position::Page { run, .. } => Some(run.number),
        _ => None,
    };
    number(from).is_some_and(|before| number(to).is_some_and(|after| after != before))
}

/// Whether a finished source is as finished as before: an entry that says so would be one for each time it is asked.
fn is_no_news(from: &Position, to: &Position) -> bool {
    match (from, to) {
        (Position::Done { run: before, .. }, Position::Done { run: after, .. }) => {
            before.high == after.high && after.number > before.number
        }
        _ => false,
    }
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
    totals.rows += batch.rows;
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
