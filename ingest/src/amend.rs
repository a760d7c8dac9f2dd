//! Amendments of a source: a reset, a rewind, deleted batches, ranges to re-read, compaction.
//!
//! An amendment is one entry of the log that names the entries and files that no longer count. It
//! is atomic. A concurrent run finds its position in the log taken and stops. Files are removed
//! from the landing folder after the entry is written. After a kill, the next command removes the
//! remaining files. Before the entry is written, everything that a reset or a reread replaces is
//! saved in a folder beside the landing folder. Deleted data is not saved.

mod batch_files;
mod compact;
mod delete;
mod keep;
mod missing_files;
mod reread;
mod reset;
mod retain;
mod rewind;
pub(crate) mod withdrawn_files;

use feedline_schemas::{
    amendment::AmendReport,
    commit::{CommitEntry, DataFile, SourceState},
    config::{PipelineConfig, SourceConfig},
    ids::Name,
};

pub(crate) use self::compact::compact_when_due;
use self::withdrawn_files::files;
pub use self::{
    compact::{TARGET_BYTES, compact},
    delete::delete,
    reread::{Reread, reread},
    reset::reset,
    rewind::rewind,
};
pub use crate::run::retry_rejects::retry_rejects;
use crate::{
    commit_log::CommitLog,
    context::Context,
    error::Error,
    settings::{config_hash, one},
    status::describe_next_run,
};

/// A number of pages or files that are read, with the verb.
fn pages_to_read(pages: u64) -> String {
    match pages {
        1 => "1 page or file is read".to_owned(),
        many => format!("{many} pages or files are read"),
    }
}

/// Source whose log is being amended.
struct Amending<'a> {
    config: &'a SourceConfig,
    context: &'a Context,
    /// Index in the configuration.
    index: usize,
    log: CommitLog,
}

impl<'a> Amending<'a> {
    /// Opens the log with all entries in memory.
    async fn open(
        config: &'a PipelineConfig,
        source: &Name,
        context: &'a Context,
    ) -> Result<Self, Error> {
        let (index, config) = one(config, source)?;
        let hash = config_hash(config);
        let log = CommitLog::open_whole(&context.root, &config.name, &context.run_id, hash).await?;
        let log = log.with_delta(context);
        Ok(Self {
            config,
            context,
            index,
            log,
        })
    }

    /// Opens the log with its newest entries in memory.
    async fn open_tail(
        config: &'a PipelineConfig,
        source: &Name,
        context: &'a Context,
    ) -> Result<Self, Error> {
        let (index, config) = one(config, source)?;
        let hash = config_hash(config);
        let log = CommitLog::open_tail(&context.root, &config.name, &context.run_id, hash).await?;
        let log = log.with_delta(context);
        Ok(Self {
            config,
            context,
            index,
            log,
        })
    }

    /// Creates an empty report.
    fn report(&self, command: &str, dry_run: bool) -> AmendReport {
        AmendReport {
            command: command.to_owned(),
            source: self.config.name.to_string(),
            dry_run,
            ..AmendReport::default()
        }
    }

    /// The next run's work from `state` on.
    fn next(&self, state: &SourceState) -> String {
        let now_s = self.context.clock.unix().as_secs();
        let high = state.position.run().and_then(|run| run.high.clone());
        describe_next_run(self.config, Some(state), high.as_slice(), now_s)
    }

    fn under(&self, error: Error) -> Error {
        error.under(&format!("source.{}", self.index))
    }

    /// Completes a report: the next run's work from `state` on, and warnings about Delta tables.
    fn finish(&self, report: &mut AmendReport, state: &SourceState) {
        report.next = self.next(state);
        let warnings = self.log.delta_warnings();
        report
            .notes
            .extend(warnings.map(|warning| warning.message.clone()));
    }
}

/// Adds the counts of an entry to those that no longer count.
fn count(report: &mut AmendReport, entry: &CommitEntry) {
    let sum = |files: &[DataFile]| files.iter().map(|file| file.rows).sum::<u64>();
    report.batches.push(entry.sequence.get());
    report.rows += sum(&entry.files);
    report.rejected += sum(&entry.rejects);
    report.bytes += files(entry).map(|file| file.bytes).sum::<u64>();
}

#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod merged_batch_tests;
#[cfg(test)]
mod merged_children_tests;
#[cfg(test)]
mod reread_tests;
#[cfg(test)]
mod tests;
