//! `feedline serve`: the sources of several pipelines by their schedules.

use std::sync::Arc;

use super::{tools::Tools, work::PipelineWork};
use crate::{
    cli::{Options, Pipeline, Serve},
    exit::Outcome,
    serve,
};

/// Runs the sources until a signal ends it.
pub(super) async fn serve_schedules(options: Serve, tools: &Tools) -> anyhow::Result<Outcome> {
    let mut scheduler = feedline_ingest::Scheduler::new(usize::from(options.at_once));
    for file in options.files {
        let set = options.set.clone();
        let pipeline = Pipeline {
            file,
            options: Options { set, json: false },
        };
        let work = PipelineWork::load(&pipeline, tools)?;
        let (config, context) = (&work.loaded.config, work.ingesting());
        let added = scheduler.add(config.clone(), &context);
        added.map_err(|e| work.ingest_error(e))?;
        // A missing secret would let each run fail, the first of them perhaps tomorrow.
        let checked = Box::pin(feedline_ingest::check_scheduled(config, &context)).await;
        checked.map_err(|e| work.ingest_error(e))?;
    }
    let (listen, unhealthy_after) = (options.listen, options.unhealthy_after);
    serve::serve(scheduler, listen, unhealthy_after, Arc::clone(&tools.clock)).await?;
    Ok(Outcome::Done)
}
