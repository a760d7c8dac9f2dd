//! `feedline runs`: the trainings of a pipeline.

use std::fs;

use anyhow::Context as _;

use super::{tools::Tools, work::PipelineWork};
use crate::{
    cli::{CompareRuns, Pipeline, RunsCommand},
    exit::Outcome,
    runs::ShownRuns,
};

/// Lists or compares trainings.
pub(super) async fn show_runs(command: RunsCommand, tools: &Tools) -> anyhow::Result<Outcome> {
    let now_ms = u64::try_from(tools.clock.unix().as_millis())?;
    match command {
        RunsCommand::List { pipeline, all } => list_runs(&pipeline, all, now_ms, tools).await,
        RunsCommand::Compare(options) => compare_runs(options, now_ms, tools).await,
    }
}

async fn list_runs(
    pipeline: &Pipeline,
    all: bool,
    now_ms: u64,
    tools: &Tools,
) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(pipeline, tools)?;
    let list = feedline_trainer::runs::list(&work.root.child("train"), now_ms).await?;
    tools.print(&ShownRuns::new(list, all), work.json)?;
    Ok(Outcome::Done)
}

async fn compare_runs(options: CompareRuns, now_ms: u64, tools: &Tools) -> anyhow::Result<Outcome> {
    let CompareRuns {
        file,
        runs,
        html,
        options,
    } = options;
    let work = PipelineWork::load(&Pipeline { file, options }, tools)?;
    let folder = work.root.child("train");
    let found = feedline_trainer::runs::compare(&folder, &runs, now_ms).await?;
    if let Some(path) = html {
        fs::write(&path, found.html())
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    tools.print(&found, work.json)?;
    Ok(Outcome::Done)
}
