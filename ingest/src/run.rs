//! Runs of sources, some at a time, and reports of the landed data.

mod batch_commit;
mod batch_reader;
mod deferral;
mod overtaken;
mod position_warnings;
mod prepare;
mod progress;
mod reject_limit;
pub(crate) mod replay;
pub(crate) mod required_columns;
pub(crate) mod retry_rejects;
mod source_order;
mod source_run;
mod superseded;

use std::{collections::BTreeMap, mem};

use feedline_http::SecretMasks;
use feedline_schemas::{
    config::{Bounded, PipelineConfig, SourceConfig},
    ids::Name,
    report::{IngestReport, SourceReport, Warning, replace_warning},
};
use futures::future::join_all;
use tokio::sync::Semaphore;
use tracing::info;

pub use self::reject_limit::READ_REJECTS;
use self::{deferral::check_deferral, source_run::Run};
use crate::{
    amend::compact_when_due,
    backfill::rereads_failed,
    commit_log::CommitLog,
    context::Context,
    error::Error,
    failures, log_snapshots,
    report::{add, source_report},
    run_warnings::{self, FoundWarnings},
    setting_changes::adopt,
    settings::{choose, config_hash, has_requests},
    source::{Requests, Source},
    source_table::{source_type, unit_of},
    source_type::ReadUnit,
    status::report_failed_run,
    warnings::mask_warning,
};

/// Sources that run concurrently by default: most wait for their servers. Each holds a batch.
const PARALLEL_SOURCES: u32 = 8;
/// Most sources of them that read files, which they decode without waiting for anything.
const PARALLEL_FILES: usize = 4;

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
    /// Report of all sources; for a failed source, with its error, its warnings and the state of its
    /// log.
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
    for wave in source_order::waves(&chosen, &config.source) {
        // Boxed: the future of a source is large.
        let runs = wave
            .iter()
            .map(|&(index, source)| Box::pin(places.run(config, (index, source), context)));
        let ended: Vec<_> = join_all(runs).await;
        all_ended.extend(wave.into_iter().zip(ended));
    }
    all_ended.sort_by_key(|((index, _), _)| *index);
    let (mut failed, mut stopped, mut deferred) = (None, None, None);
    for ((_, source), (ended, error)) in all_ended {
        failures::note(context, source, error.as_ref()).await;
        add(&mut report, ended);
        match error {
            None => {}
            Some(e @ Error::Deferred { .. }) => deferred = deferred.or(Some(e)),
            // A wish to stop must not hide that another source failed.
            Some(e @ Error::Cancelled) => stopped = Some(e),
            Some(e) => {
                if failed.is_some() {
                    let masks = SecretMasks::configured(source, &*context.secrets);
                    let error = masks.mask_message(&e.to_string());
                    tracing::error!(source = %source.name, error, "this source failed too");
                }
                failed = failed.or(Some(e));
            }
        }
    }
    report.stopped = stopped.is_some();
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

    /// Runs a source with its index when there is a place for it. Unless the run failed or was stopped,
    /// merges its small files if that is configured. Records the warnings that its log does not have.
    /// Returns its report, and the error that ended it.
    async fn run(
        &self,
        config: &PipelineConfig,
        (index, source): (usize, &SourceConfig),
        context: &Context,
    ) -> (SourceReport, Option<Error>) {
        let is_files = unit_of(source) == ReadUnit::File;
        // A source of files takes no place while it waits for another of files.
        let _file = if is_files {
            Some(self.files.acquire().await)
        } else {
            None
        };
        let _place = self.all.acquire().await;
        let mut found = FoundWarnings::default();
        let (mut report, error) = match run_source(source, context, &mut found).await {
            Ok(report) => (report, None),
            Err(error) => {
                let error = error.under(&format!("source.{index}"));
                let report = report_failed_run(source, &error, &found, context).await;
                (report, Some(error))
            }
        };
        // Failed values leave a complete run. A server with a quota may defer every run of a long pass.
        let is_deferred = matches!(error, Some(Error::Deferred { .. }));
        if error.is_none() || is_deferred || found.is_complete {
            let of_run = report.warnings.len();
            compact_when_due(config, &source.name, context, &mut report).await;
            let added = report.warnings.get(of_run..).unwrap_or_default();
            found.add(source, None, added);
        }
        run_warnings::note(context, &source.name, &found).await;
        (report, error)
    }
}

/// Runs a source, and adds its warnings that its log does not have to `found`, also if it fails.
async fn run_source(
    config: &SourceConfig,
    context: &Context,
    found: &mut FoundWarnings,
) -> Result<SourceReport, Error> {
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
    adopt(config, &mut log, &*context.secrets).await?;
    progress::record_log_totals(context, log.landing(), log.log_entries()).await;
    let (mut requests, mut unlanded) = (Requests::default(), BTreeMap::new());
    // A source that is not opened has no others.
    let mut masks = SecretMasks::configured(config, &*context.secrets);
    let mut warnings = Vec::new();
    let mut read = Ok(None);
    let is_finished = log
        .last()
        .is_some_and(|entry| !has_requests(config, &entry.state.position));
    if is_finished {
        let source = &config.name;
        info!(%source, "finished by an earlier run; only `files`, `incremental`, `refresh` and `crawl.refresh` look for more");
    } else {
        log = Box::pin(check_deferral(config, context, log)).await?;
        let mut source = Box::pin(open_restored(config, context, &mut log)).await?;
        let mut run = Box::pin(Run::begin(config, context, log)).await?;
        read = Box::pin(read_passes(&mut run, source.as_mut())).await;
        masks = source.secret_masks();
        warnings = take_warnings(&mut run, source.as_ref(), &masks);
        requests = source.requests();
        (log, unlanded) = (run.log, run.unlanded);
    }
    warnings.extend(log.tidied().iter().cloned());
    warnings.extend(log.delta_warnings().cloned());
    found.add(config, log.last(), &warnings);
    found.is_complete = !is_finished && read.is_ok();
    if let Some(failed_values) = read? {
        return Err(failed_values);
    }
    let sums = log.sums().await?;
    let mut report = source_report(config, log.landing(), log.last(), sums, requests).await;
    let sample = report.reject_sample.take();
    report.reject_sample = sample.map(|sample| masks.mask(&sample));
    // The report of a run has only the changes that this run found.
    report.new_rows = Some(log.appended_rows());
    report.new_rejected = Some(log.appended_rejects());
    if is_finished {
        let keys = source_type(config).recheck_keys(config).iter();
        report.recheck_keys = keys.map(|key| (*key).to_owned()).collect();
    }
    report.compared_files = log.compared_files();
    let changed = report.settings_changed.take();
    report.settings_changed = changed.filter(|changed| changed.sequence >= begun);
    for (reason, count) in unlanded {
        *report.skipped.entry(reason).or_default() += count;
    }
    for warning in warnings {
        replace_warning(&mut report.warnings, warning);
    }
    // A run that adds no entry replaces a snapshot of an earlier format version.
    Box::pin(log.snapshot_if_due()).await;
    Ok(report)
}

/// Reads a source to its end, after the pass or the crawl that an earlier run has begun: pages of a crawl
/// that failed in it are requested again. Returns the error about values that failed, if there are some
/// and all others were read.
///
/// # Errors
/// Those of reading and landing.
async fn read_passes(run: &mut Run<'_>, source: &mut dyn Source) -> Result<Option<Error>, Error> {
    let is_in_pass = run.is_in_pass();
    Box::pin(run.drive(source)).await?;
    if is_in_pass {
        if run.position().ledger().is_some_and(rereads_failed) {
            // That pass may have landed records of values that failed later.
            Box::pin(run.load_repeats()).await?;
        }
        // That pass keeps its initial range; the wanted range may be larger now.
        Box::pin(run.drive(source)).await?;
    }
    Ok(source.failed_values())
}

/// Takes the warnings of a run that ended, with masks in place of secrets.
fn take_warnings(run: &mut Run<'_>, source: &dyn Source, masks: &SecretMasks) -> Vec<Warning> {
    let mut warnings = mem::take(&mut run.unlanded_warnings);
    warnings.extend(run.missing_required.warning());
    warnings.extend(source.run_warnings());
    for warning in &mut warnings {
        mask_warning(warning, masks);
    }
    warnings
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
    source.save(log.landing()).await?;
    Ok(source)
}

/// Opens the source that `config` describes.
pub(crate) async fn open(
    config: &SourceConfig,
    context: &Context,
) -> Result<Box<dyn Source>, Error> {
    source_type(config).open(config, context).await
}

#[cfg(test)]
mod tests;
