//! `feedline preview`: the columns of sources as they would land.

use super::{tools::Tools, work::PipelineWork};
use crate::{cli::PreviewOptions, exit::Outcome, output::PreviewReport};

/// Previews sources, or a data file; the outcome is bad if one cannot be read.
pub(super) async fn preview_sources(
    options: PreviewOptions,
    tools: &Tools,
) -> anyhow::Result<Outcome> {
    let PreviewOptions {
        pipeline,
        source,
        rows,
    } = options;
    let is_pipeline = pipeline.file.extension().is_some_and(|end| end == "toml");
    let work = match is_pipeline {
        true => PipelineWork::load(&pipeline, tools)?,
        false => PipelineWork::of_table(&pipeline, tools)?,
    };
    work.has_sources()?;
    let only = work.only_source(source)?;
    let rows = rows.map_or(0, usize::from);
    let (config, context) = (&work.loaded.config, work.ingesting());
    let previews = feedline_ingest::preview(config, only.as_ref(), rows, &context).await;
    let sources = previews.map_err(|e| work.ingest_error(e))?;
    let is_bad = sources.iter().any(|source| source.error.is_some());
    tools.print(&PreviewReport { sources }, work.json)?;
    Ok(if is_bad { Outcome::Bad } else { Outcome::Done })
}
