//! `feedline ingest delta`: Delta tables over landed files.

use super::{tools::Tools, work::PipelineWork};
use crate::{cli::WriteDelta, exit::Outcome};

/// Writes the tables, or brings them up to the commit logs.
pub(super) async fn write_delta(options: WriteDelta, tools: &Tools) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let only = work.only_source(options.source)?;
    let (config, context) = (&work.loaded.config, work.ingesting());
    let report = feedline_ingest::delta(config, only.as_ref(), &context, options.rebuild);
    let report = Box::pin(report).await.map_err(|e| work.ingest_error(e))?;
    tools.print(&report, work.json)?;
    Ok(Outcome::Done)
}
