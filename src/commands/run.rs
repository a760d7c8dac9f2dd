//! `feedline run`: all stages of a pipeline.

use feedline_schemas::report::RunReport;
use feedline_trainer::Resume;

use super::{tools::Tools, work::PipelineWork};
use crate::{check, cli::RunOptions, exit::Outcome};

/// Ingests, builds and trains, whatever sections the pipeline has, and prints one report.
pub(super) async fn run_pipeline(options: RunOptions, tools: &Tools) -> anyhow::Result<Outcome> {
    let RunOptions {
        pipeline,
        building,
        ranks,
        rejects,
        detail,
    } = options;
    let work = PipelineWork::load(&pipeline, tools)?;
    let config = &work.loaded.config;
    work.check_settings()?;
    work.check_expectations().await?;
    if let Some(reason) = check::missing_dataset(config, &work.root).await {
        return Err(work.loaded.error("train", reason).into());
    }
    let mut report = RunReport::default();
    if !config.source.is_empty() {
        let (ingest, error) = work.ingest().await?;
        let mut sources = ingest.sources.iter();
        let has_warnings = sources.any(|source| !source.warnings.is_empty());
        report.ingest = Some(ingest);
        if let Some(error) = error {
            // A failed command reports no result, unless other sources have one, there are warnings, or
            // a program reads it.
            if config.source.len() > 1 || has_warnings || work.json {
                work.print(&report, detail, None)?;
            }
            return Err(error);
        }
    }
    if config.dataset.is_some() {
        report.dataset = Some(work.build(building).await?);
    }
    if config.train.is_some() {
        report.train = Some(work.train_with(&pipeline, ranks, Resume::Continue).await?);
    }
    let next = report
        .train
        .is_some()
        .then(|| work.next_commands(&pipeline));
    work.print(&report, detail, next)?;
    let landing = report.ingest.and_then(|ingest| ingest.new_rejected);
    let dataset = report.dataset.map_or(0, |dataset| dataset.new_rejected());
    let rejected = landing.unwrap_or(0) + dataset;
    let train = report.train.as_ref();
    let behind = train.and_then(|train| work.check_baseline(&train.warnings));
    Ok(behind.unwrap_or(rejects.outcome(rejected)))
}
