//! Amendments of a source: a reset, a rewind, deleted batches, ranges to re-read, compaction.
//!
//! An amendment is one entry of the log that names the entries and files that no longer count. It
//! is atomic. A concurrent run finds its position in the log taken and stops. Files are removed
//! from the landing folder after the entry is written. After a kill, the next command removes the
//! remaining files. Before the entry is written, everything that a reset or a reread replaces is
//! saved in a folder beside the landing folder. Deleted data is not saved.

mod compact;
mod delete;
mod keep;
mod reread;
mod reset;
mod retain;
mod rewind;

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{
    amendment::{AmendReport, WithdrawnReason},
    commit::{BatchCounts, CommitEntry, DataFile, SourceState},
    config::{PipelineConfig, SourceConfig},
    ids::Name,
};
use feedline_storage::Store;

pub(crate) use self::compact::compact_when_due;
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
    delta::copied_from,
    error::Error,
    landing_files::{ORPHANS, sequence_of},
    settings::{choose, config_hash},
    standing,
    supersede::ASIDE,
};

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
        standing::next(self.config, Some(state), high.as_slice(), now_s)
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

/// The source called `name`, with its index.
pub(crate) fn one<'a>(
    config: &'a PipelineConfig,
    name: &Name,
) -> Result<(usize, &'a SourceConfig), Error> {
    let chosen = choose(config, Some(name))?;
    chosen
        .into_iter()
        .next()
        .ok_or_else(|| Error::config("source", format!("no source is called `{name}`")))
}

/// Iterates over the files that an entry names, except those of the frontier and of validators. A
/// crawl resumes with these.
fn files(entry: &CommitEntry) -> impl Iterator<Item = &DataFile> {
    let children = entry.children.values().flat_map(|table| &table.files);
    let own = entry.files.iter().chain(&entry.rejects).chain(&entry.raw);
    own.chain(children)
}

/// Adds the counts of an entry to those that no longer count.
fn count(report: &mut AmendReport, entry: &CommitEntry) {
    let sum = |files: &[DataFile]| files.iter().map(|file| file.rows).sum::<u64>();
    report.batches.push(entry.sequence.get());
    report.rows += sum(&entry.files);
    report.rejected += sum(&entry.rejects);
    report.bytes += files(entry).map(|file| file.bytes).sum::<u64>();
}

/// Subtracts a deleted batch from the totals. Its pages still count as read.
fn without(totals: &mut BatchCounts, entry: &CommitEntry) {
    let sum = |files: &[DataFile]| files.iter().map(|file| file.rows).sum::<u64>();
    let counts = &entry.counts;
    totals.rows = totals.rows.saturating_sub(sum(&entry.files));
    totals.duplicates = totals.duplicates.saturating_sub(counts.duplicates);
    // Rejected records that were retried count where they landed.
    if !entry.rejects.is_empty() {
        totals.rejected = totals.rejected.saturating_sub(counts.rejected);
        subtract(&mut totals.rejected_by_reason, &counts.rejected_by_reason);
    }
    subtract(&mut totals.coerced, &counts.coerced);
    subtract(&mut totals.nulled, &counts.nulled);
    subtract(&mut totals.children, &counts.children);
    for (kind, paths) in &counts.decisions {
        let Some(total) = totals.decisions.get_mut(kind) else {
            continue;
        };
        for (path, noted) in paths {
            if let Some(sum) = total.get_mut(path) {
                sum.count = sum.count.saturating_sub(noted.count);
            }
        }
        total.retain(|_, noted| noted.count > 0);
    }
    totals.decisions.retain(|_, paths| !paths.is_empty());
}

/// Subtracts counts by name and removes those that become zero.
pub(crate) fn subtract(totals: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, count) in counts {
        if let Some(total) = totals.get_mut(name) {
            *total = total.saturating_sub(*count);
        }
    }
    totals.retain(|_, total| *total > 0);
}

/// Removes the files that amendments of the log withdraw, and after a reset all files of earlier
/// entries, with the copies that Delta tables have of them. This includes withdrawn files that a
/// killed command left, and that the next start moved to `orphans/`. Files in `superseded/` are
/// removed if they have rows of deleted batches. All others stay there, in `orphans/` and in
/// `damaged/`, for inspection and repair.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn sweep(landing: &Store, entries: &[CommitEntry]) -> Result<(), Error> {
    let others = entries.iter().flat_map(|entry| {
        entry
            .frontier
            .iter()
            .chain(&entry.validators)
            .chain(&entry.marks)
    });
    let named = entries.iter().flat_map(files).chain(others);
    let named: BTreeSet<&str> = named.map(|file| file.path.as_str()).collect();
    let (mut withdrawn, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for own in entries.iter().flat_map(|entry| &entry.withdrawn) {
        withdrawn.extend(own.files.iter().map(String::as_str));
        if own.reason == WithdrawnReason::Deleted {
            deleted.extend(own.files.iter().map(String::as_str));
        }
    }
    let resets = entries.iter().filter(|entry| entry.reset_to.is_some());
    let reset = resets.map(|entry| entry.sequence.get()).max();
    for found in landing.list("").await? {
        let inside = |folder: &str| found.path.strip_prefix(folder)?.strip_prefix('/');
        if let Some(path) = inside(ASIDE) {
            if deleted.contains(path) {
                landing.delete(&found.path).await?;
            }
            continue;
        }
        let path = inside(ORPHANS).unwrap_or(&found.path);
        let is_before_reset = sequence_of(path)
            .zip(reset)
            .is_some_and(|(own, reset)| own < reset);
        let is_gone = is_before_reset || withdrawn.contains(path);
        let is_copy = copied_from(path).is_some_and(|own| !named.contains(own.as_str()));
        if is_copy || (is_gone && !named.contains(found.path.as_str())) {
            landing.delete(&found.path).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod tests;
