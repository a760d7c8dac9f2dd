//! `feedline ingest`: landing the records of sources, and the state of their landing zone.

use anyhow::Context as _;
use feedline_schemas::{ids::Name, report::IngestReport};

use super::{amend, delta, tools::Tools, work::PipelineWork};
use crate::{
    cli::{
        Ingest, IngestCommand, Pipeline, RepairLogs, ReplayArchive, ResumeSources, VerifyLanding,
    },
    exit::Outcome,
    formatted_times,
};

/// Runs a subcommand, or ingests if there is none.
pub(super) async fn run_ingest(mut options: Ingest, tools: &Tools) -> anyhow::Result<Outcome> {
    let Some(command) = options.command.take() else {
        return ingest_sources(options, tools).await;
    };
    match command {
        IngestCommand::Status(pipeline) => show_status(&pipeline, tools).await,
        IngestCommand::Verify(options) => verify_landing(options, tools).await,
        IngestCommand::Repair(options) => repair_logs(options, tools).await,
        IngestCommand::Resume(options) => resume_sources(options, tools).await,
        IngestCommand::Reset(options) => amend::reset_source(&options, tools).await,
        IngestCommand::Reread(options) => Box::pin(amend::reread_source(options, tools)).await,
        IngestCommand::Rewind(options) => amend::rewind_source(&options, tools).await,
        IngestCommand::Compact(options) => amend::compact_source(&options, tools).await,
        IngestCommand::Delta(options) => delta::write_delta(options, tools).await,
        IngestCommand::RetryRejects(options) => amend::retry_rejects(&options, tools).await,
        IngestCommand::Delete(options) => Box::pin(amend::delete_batches(&options, tools)).await,
        IngestCommand::Replay(options) => replay_archive(options, tools).await,
    }
}

async fn ingest_sources(options: Ingest, tools: &Tools) -> anyhow::Result<Outcome> {
    let file = options.file.context("the pipeline file is missing")?;
    let pipeline = Pipeline {
        file,
        options: options.options,
    };
    let work = PipelineWork::load(&pipeline, tools)?;
    let only = work.only_source(options.source)?;
    let (report, error) = work.ingest_or_stop(only.as_ref()).await?;
    work.print(&report, options.detail, None)?;
    match error {
        Some(error) => Err(error),
        None => Ok(options.rejects.outcome(report.new_rejected.unwrap_or(0))),
    }
}

async fn show_status(pipeline: &Pipeline, tools: &Tools) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(pipeline, tools)?;
    let now = tools.clock.unix();
    let config = &work.loaded.config;
    let report = feedline_ingest::status_with_lag(config, &work.root, now).await;
    let mut report = report.map_err(|e| work.ingest_error(e))?;
    formatted_times::remove_warnings_of_report(config, &mut report);
    feedline_ingest::mask_secrets(config, &*tools.environment, &mut report);
    tools.print(&report, work.json)?;
    let is_bad = report.sources.iter().any(|s| !s.damage.is_empty());
    Ok(if is_bad { Outcome::Bad } else { Outcome::Done })
}

async fn verify_landing(options: VerifyLanding, tools: &Tools) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let only = work.only_source(options.source)?;
    let verify = feedline_ingest::verify(&work.loaded.config, only.as_ref(), &work.root).await;
    let report = verify.map_err(|e| work.ingest_error(e))?;
    let is_bad = report.sources.iter().any(|s| !s.damage.is_empty());
    tools.print(&report, work.json)?;
    Ok(if is_bad { Outcome::Bad } else { Outcome::Done })
}

/// Repairs logs; the outcome is bad if a dry run finds damage.
async fn repair_logs(options: RepairLogs, tools: &Tools) -> anyhow::Result<Outcome> {
    let RepairLogs {
        pipeline,
        source,
        dry_run,
    } = options;
    let work = PipelineWork::load(&pipeline, tools)?;
    let only = work.only_source(source)?;
    let (config, context) = (&work.loaded.config, work.ingesting());
    let repair = feedline_ingest::repair(config, only.as_ref(), &context, dry_run).await;
    let report = repair.map_err(|e| work.ingest_error(e))?;
    let is_bad = dry_run && report.sources.iter().any(|source| source.damage.is_some());
    tools.print(&report, work.json)?;
    Ok(if is_bad { Outcome::Bad } else { Outcome::Done })
}

async fn resume_sources(options: ResumeSources, tools: &Tools) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let only = work.only_source(options.source)?;
    let (config, context) = (&work.loaded.config, work.ingesting());
    let report = feedline_ingest::resume(config, only.as_ref(), &context).await;
    tools.print(&report.map_err(|e| work.ingest_error(e))?, work.json)?;
    Ok(Outcome::Done)
}

async fn replay_archive(options: ReplayArchive, tools: &Tools) -> anyhow::Result<Outcome> {
    let ReplayArchive {
        pipeline,
        from,
        source,
        rejects,
    } = options;
    let work = PipelineWork::load(&pipeline, tools)?;
    let only = work.only_source(source)?;
    let from = tools.open(&from)?;
    let (config, context) = (&work.loaded.config, work.ingesting());
    let replay = feedline_ingest::replay(config, only.as_ref(), &from, &context).await;
    let report = replay.map_err(|e| work.ingest_error(e))?;
    tools.print(&report, work.json)?;
    Ok(rejects.outcome(report.new_rejected.unwrap_or(0)))
}

impl PipelineWork<'_> {
    /// Runs all sources. Returns their report, and the error that ends the run once the report is
    /// printed.
    pub(super) async fn ingest(&self) -> anyhow::Result<(IngestReport, Option<anyhow::Error>)> {
        self.has_sources()?;
        let (config, context) = (&self.loaded.config, self.ingesting());
        let end = feedline_ingest::ingest_all(config, None, &context).await;
        let mut end = end.map_err(|e| self.ingest_error(e))?;
        formatted_times::remove_warnings_of_report(config, &mut end.report);
        let error = end.error.map(|e| self.ingest_error(e));
        Ok((end.report, error))
    }

    /// Runs all sources, or the one called `only`. A stop by SIGTERM is no failure, since the next
    /// run resumes from there.
    pub(super) async fn ingest_or_stop(
        &self,
        only: Option<&Name>,
    ) -> anyhow::Result<(IngestReport, Option<anyhow::Error>)> {
        self.has_sources()?;
        let (config, context) = (&self.loaded.config, self.ingesting());
        let end = feedline_ingest::ingest_all(config, only, &context).await;
        let mut end = end.map_err(|e| self.ingest_error(e))?;
        formatted_times::remove_warnings_of_report(config, &mut end.report);
        let error = match end.error {
            Some(feedline_ingest::Error::Cancelled) if self.tools.stop.is_terminated() => None,
            error => error.map(|e| self.ingest_error(e)),
        };
        Ok((end.report, error))
    }
}
