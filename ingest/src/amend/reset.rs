//! Restarts a source from its beginning, and saves its landed data under another name.

use feedline_schemas::{
    amendment::{AmendReport, SettingsRecord},
    commit::SourceState,
    config::PipelineConfig,
    ids::{Name, SchemaVersion},
    record::RecordSchema,
};

use super::{Amending, count, keep::KeptFolder, missing_files::describe_reset, withdrawn_files};
use crate::{commit_log::Commit, context::Context, error::Error, setting_changes::recorded};

/// Resets a source: landed data moves to `landing/<source>.<n>` with its log. The next run re-reads
/// everything under the current settings, whatever they are. With `dry_run` nothing is changed.
///
/// The log continues: one entry declares that nothing before it counts. So a concurrent run stops
/// at its next commit, and a kill leaves either the old state or the new one. A dataset of the old
/// rows is rebuilt and never mixes them with new ones.
///
/// # Errors
/// [`Error::Config`], [`Error::Log`] for a damaged log, [`Error::Fenced`] when a run committed
/// meanwhile, [`Error::Storage`].
pub async fn reset(
    config: &PipelineConfig,
    source: &Name,
    context: &Context,
    dry_run: bool,
) -> Result<AmendReport, Error> {
    let mut amending = Amending::open(config, source, context).await?;
    let mut report = amending.report("reset", dry_run);
    report.next = amending.next(&SourceState::default());
    let log = &mut amending.log;
    let Some(last) = log.last().cloned() else {
        report
            .notes
            .push("nothing has landed yet, so there is nothing to reset".into());
        return Ok(report);
    };
    if last.reset_to.is_some() {
        if !dry_run {
            withdrawn_files::sweep(log.landing(), log.entries()).await?;
        }
        report
            .notes
            .push("nothing has landed since the last reset, so there is nothing to reset".into());
        return Ok(report);
    }
    let named = |files: &mut Vec<String>| {
        for entry in log.entries() {
            let others = entry.frontier.iter().chain(&entry.validators);
            let others = others.chain(&entry.marks);
            files.extend(
                withdrawn_files::files(entry)
                    .chain(others)
                    .map(|file| file.path.clone()),
            );
        }
    };
    let mut paths = Vec::new();
    named(&mut paths);
    for entry in log.entries() {
        if withdrawn_files::files(entry).next().is_some() {
            count(&mut report, entry);
        }
    }
    report.rows = last.state.totals.rows;
    let note = describe_reset(amending.config, context, log.landing(), &last.state).await;
    report.notes.push(note);
    let folder = KeptFolder::next(log, context).await?;
    report.kept = Some(folder.url());
    if dry_run {
        return Ok(report);
    }
    let sequence = log.next_sequence();
    folder.fill(log, paths, sequence.get()).await?;
    let commit = Commit {
        schema: RecordSchema {
            version: SchemaVersion::new(1),
            columns: Vec::new(),
        },
        children: Default::default(),
        settings: Some(SettingsRecord {
            values: recorded(amending.config),
            changes: Vec::new(),
        }),
        reset_to: Some(folder.name.clone()),
        state: SourceState::default(),
        ..Commit::amending(&last)
    };
    log.append(commit).await?;
    withdrawn_files::sweep(log.landing(), log.entries()).await?;
    log.cover_amendments().await;
    report.sequence = Some(sequence.get());
    amending.finish(&mut report, &SourceState::default());
    Ok(report)
}
