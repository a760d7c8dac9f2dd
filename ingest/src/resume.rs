//! Early end of deferrals.

use feedline_schemas::{
    config::{PipelineConfig, SourceConfig},
    ids::Name,
    report::{ResumeReport, ResumedSource},
};
use tracing::info;

use crate::{
    commit_log::{Commit, CommitLog},
    context::Context,
    error::Error,
    settings::{choose, config_hash},
};

/// Ends the deferrals of the pipeline's sources; with `only`, that of this source alone. Appends an
/// entry without the waiting time to the log, and the next run sends requests at once. A source
/// that is not deferred stays unchanged.
///
/// # Errors
/// [`Error::Config`] as for [`crate::ingest`], [`Error::Log`] for a damaged log, [`Error::Fenced`]
/// when a run commits at the same time, [`Error::Storage`].
pub async fn resume(
    config: &PipelineConfig,
    only: Option<&Name>,
    context: &Context,
) -> Result<ResumeReport, Error> {
    let mut report = ResumeReport::default();
    for (index, source) in choose(config, only)? {
        let resumed = resume_source(source, context).await;
        let resumed = resumed.map_err(|error| error.under(&format!("source.{index}")))?;
        report.sources.push(resumed);
    }
    Ok(report)
}

async fn resume_source(config: &SourceConfig, context: &Context) -> Result<ResumedSource, Error> {
    let hash = config_hash(config);
    let log = CommitLog::open_tail(&context.root, &config.name, &context.run_id, hash).await?;
    let mut log = log.with_delta(context);
    let name = config.name.to_string();
    let now_s = context.clock.unix().as_secs();
    let last = log.last();
    let until = last.and_then(|last| last.state.not_before_unix_s);
    let Some((last, until)) = last.zip(until).filter(|(_, until)| *until > now_s) else {
        return Ok(ResumedSource {
            name,
            lifted_until_unix_s: None,
        });
    };
    let mut commit = Commit::amending(last);
    commit.state.not_before_unix_s = None;
    commit.state.not_before_wait_s = None;
    log.append(commit).await?;
    info!(source = %config.name, until, "its deferral is ended");
    Ok(ResumedSource {
        name,
        lifted_until_unix_s: Some(until),
    })
}
