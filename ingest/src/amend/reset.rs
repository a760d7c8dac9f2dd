//! Restarts a source from its beginning, and saves its landed data under another name.

use feedline_schemas::{
    amendment::{AmendReport, SettingsRecord},
    commit::SourceState,
    config::PipelineConfig,
    failures::FAILED_RUNS,
    ids::{Name, SchemaVersion},
    record::RecordSchema,
    run_warnings::WARNINGS_FILE,
};
use feedline_storage::Store;

use super::{Amending, count, keep::KeptFolder, missing_files::describe_reset, withdrawn_files};
use crate::{
    commit_log::Commit, context::Context, error::Error, failures, run_warnings,
    setting_changes::recorded,
};

/// Resets a source: landed data moves to `landing/<source>.<n>` with its log, the warnings of its last
/// run and its failed runs. The next run re-reads everything under the current settings, whatever they
/// are. With `dry_run` nothing is changed.
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
            forget_runs(log.landing()).await?;
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
    paths.extend(find_run_files(log.landing()).await?);
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
    forget_runs(log.landing()).await?;
    withdrawn_files::sweep(log.landing(), log.entries()).await?;
    log.cover_amendments().await;
    report.sequence = Some(sequence.get());
    amending.finish(&mut report, &SourceState::default());
    Ok(report)
}

/// Paths of the failed runs and of the warnings of the last run, where they exist.
async fn find_run_files(landing: &Store) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for path in [FAILED_RUNS, WARNINGS_FILE] {
        if landing.get_opt(path).await?.is_some() {
            found.push(path.to_owned());
        }
    }
    Ok(found)
}

/// Removes the failed runs and the warnings of the last run: their rows no longer count.
async fn forget_runs(landing: &Store) -> Result<(), Error> {
    failures::forget(landing).await?;
    run_warnings::forget(landing).await
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{config::load, report::Warning};

    use super::*;
    use crate::{
        landing_folder::landing, run::ingest, run_warnings::FoundWarnings, status::status_with_lag,
        testing,
    };

    #[tokio::test]
    async fn what_runs_stored_beside_the_log_is_saved_with_the_rows_and_reported_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        std::fs::write(&file, "n\n1\n").unwrap();
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{}\"\n",
            file.display()
        );
        let config = load("p.toml", &text, &[]).unwrap().config;
        let context = Context {
            root: Store::memory(),
            ..testing::context()
        };
        ingest(&config, None, &context).await.unwrap();
        let source = &config.source[0];
        let mut found = FoundWarnings::default();
        found.add(source, None, &[Warning::new("files_gone", "about rows")]);
        run_warnings::note(&context, &source.name, &found).await;
        failures::note(&context, source, Some(&Error::config("url", "wrong"))).await;
        let landing = landing(&context.root, &source.name);
        let stored = async |of: &Store| {
            let failed = of.get_opt(FAILED_RUNS).await.unwrap();
            let warnings = of.get_opt(WARNINGS_FILE).await.unwrap();
            [failed.is_some(), warnings.is_some()]
        };
        reset(&config, &source.name, &context, true).await.unwrap();
        assert_eq!(stored(&landing).await, [true; 2]);
        reset(&config, &source.name, &context, false).await.unwrap();
        assert_eq!(stored(&landing).await, [false; 2]);
        assert_eq!(stored(&context.root.child("landing/s.1")).await, [true; 2]);
        let now = context.clock.unix();
        let status = status_with_lag(&config, &context.root, now).await.unwrap();
        let standing = status.sources[0].standing.as_ref().unwrap();
        assert_eq!(standing.failures, None);
        assert!(standing.run_warnings.is_none(), "{standing:?}");
    }
}
