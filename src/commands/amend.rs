//! Subcommands of `feedline ingest` that amend the log of a source: `reset`, `reread`, `rewind`,
//! `compact`, `retry-rejects` and `delete`.

use std::path::Path;

use feedline_schemas::{amendment::AmendReport, count::counted};

use super::{tools::Tools, work::PipelineWork};
use crate::{
    cli::{
        CompactSource, DeleteBatches, RejectRule, RereadSource, ResetSource, RetryRejects,
        RewindSource,
    },
    exit::Outcome,
};

pub(super) async fn reset_source(options: &ResetSource, tools: &Tools) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let (name, context) = (work.source(&options.source)?, work.ingesting());
    let config = &work.loaded.config;
    let reset = feedline_ingest::reset(config, &name, &context, options.dry_run).await;
    work.finish_amendment(reset, RejectRule::default())
}

/// Withdraws a part of a source and reads it again.
pub(super) async fn reread_source(options: RereadSource, tools: &Tools) -> anyhow::Result<Outcome> {
    let RereadSource {
        pipeline,
        source,
        from,
        to,
        files,
        missing_too,
        dry_run,
        rejects,
    } = options;
    let work = PipelineWork::load(&pipeline, tools)?;
    let what = feedline_ingest::Reread {
        from,
        to,
        files,
        missing_files: missing_too,
    };
    let name = work.source(&source)?;
    let (config, context) = (&work.loaded.config, work.ingesting());
    let reread = Box::pin(feedline_ingest::reread(
        config, &name, &what, &context, dry_run,
    ))
    .await;
    let mut report = reread.map_err(|e| work.ingest_error(e))?;
    // Rows of missing files are dropped, and a run would only fail to find them.
    let has_files = what.files.is_none() || !report.ranges.is_empty();
    if report.sequence.is_some() && has_files {
        let (ingested, error) = match work.ingest_or_stop(Some(&name)).await {
            Ok((ingested, error)) => (Some(ingested), error),
            Err(error) => (None, Some(error)),
        };
        report.ingest = ingested;
        if let Some(error) = error {
            // The report of the withdrawn part stays valid even if the second read fails.
            let index = config.source.iter().position(|source| source.name == name);
            let note = note_of_failed_read(&report, &pipeline.file, index.unwrap_or(0));
            report.notes.extend(note);
            tools.print(&report, work.json)?;
            return Err(error);
        }
    }
    work.finish_amendment(Ok(report), rejects)
}

/// Note on the withdrawn rows, after the read of the source at `index` has failed.
fn note_of_failed_read(report: &AmendReport, file: &Path, index: usize) -> Option<String> {
    let kept = report.kept.as_ref().filter(|_| report.rows > 0)?;
    Some(format!(
        "the read did not end well, so {} that no longer count may have no rows in their place until `feedline ingest {}` does: correct the source first, or, if too many records are rejected, add `--set source.{index}.contract.max_reject_fraction=1` to land the others; `rewind` does not restore the rows, and their files stay in `{kept}`",
        counted(report.rows, "row"),
        file.display()
    ))
}

pub(super) async fn rewind_source(
    options: &RewindSource,
    tools: &Tools,
) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let (name, context) = (work.source(&options.source)?, work.ingesting());
    let config = &work.loaded.config;
    let rewound = feedline_ingest::rewind(config, &name, options.to, &context, options.dry_run);
    work.finish_amendment(Box::pin(rewound).await, RejectRule::default())
}

pub(super) async fn compact_source(
    options: &CompactSource,
    tools: &Tools,
) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let (name, context) = (work.source(&options.source)?, work.ingesting());
    let (config, bytes) = (&work.loaded.config, options.target_bytes.bytes());
    let merged = feedline_ingest::compact(config, &name, bytes, &context, options.dry_run);
    work.finish_amendment(Box::pin(merged).await, RejectRule::default())
}

pub(super) async fn retry_rejects(
    options: &RetryRejects,
    tools: &Tools,
) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let (name, context) = (work.source(&options.source)?, work.ingesting());
    let config = &work.loaded.config;
    let retried = feedline_ingest::retry_rejects(config, &name, &context, options.dry_run);
    work.finish_amendment(Box::pin(retried).await, options.rejects)
}

pub(super) async fn delete_batches(
    options: &DeleteBatches,
    tools: &Tools,
) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let (name, context) = (work.source(&options.source)?, work.ingesting());
    let (config, batches) = (&work.loaded.config, &options.batch);
    let deleted = feedline_ingest::delete(config, &name, batches, &context, options.dry_run).await;
    work.finish_amendment(deleted, RejectRule::default())
}

impl PipelineWork<'_> {
    /// Prints the result of an amendment of a log.
    fn finish_amendment(
        &self,
        report: Result<AmendReport, feedline_ingest::Error>,
        rejects: RejectRule,
    ) -> anyhow::Result<Outcome> {
        let report = report.map_err(|e| self.ingest_error(e))?;
        self.tools.print(&report, self.json)?;
        let read = report.ingest.as_ref().and_then(|read| read.new_rejected);
        let read = read.unwrap_or(0);
        Ok(rejects.outcome(report.still_rejected + read))
    }
}
