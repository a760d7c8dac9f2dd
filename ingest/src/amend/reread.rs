//! Re-reads a range, or some files.

mod reread_batches;
mod reread_files;
mod reread_ranges;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use feedline_schemas::{
    amendment::{AmendReport, WithdrawnReason},
    commit::{CommitEntry, Position},
    config::PipelineConfig,
    ids::{Hash128, Name},
};

use self::{
    reread_batches::RereadPlan,
    reread_files::plan_files,
    reread_ranges::{plan_incremental, plan_slices},
};
use super::{
    Amending, count,
    delete::withdrawn,
    keep::KeptFolder,
    missing_files::{check_ranges, list_files, urls_of},
    withdrawn_files::{files, sweep},
};
use crate::{
    backfill::ListHistory,
    batch::Encoded,
    batch_counts::without,
    commit_log::{Commit, CommitLog},
    context::Context,
    error::Error,
    file_list::Found,
    file_marks::{MOST_LISTED, expand, fold, listed},
    files::{check_missing_files, check_new_contents},
    log_entries::ComparedColumns,
    setting_changes::adopt,
    settings::config_hash,
    source_table::unit_of,
    source_type::ReadUnit,
};

/// Selection of data to re-read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reread {
    /// `slices`: lower end of the range. `incremental`: cursor to begin at.
    pub from: Option<String>,
    /// `slices`: upper end of the range.
    pub to: Option<String>,
    /// `files`: pattern of the files, matched against their addresses or the ends of them.
    pub files: Option<String>,
    /// `files`: true if files to be re-read may be missing, which drops their rows.
    pub missing_files: bool,
}

/// Makes the next run re-read a range of a source with slices, a part of an incremental source, or
/// some files. With `dry_run` nothing is changed.
///
/// A source with a `key` keeps its landed rows: a dataset reads the latest version of each key.
/// Without a key, the batches of the range no longer count, and are saved in
/// `landing/<source>.<n>`. A batch that covers more than the range is re-read completely. One of
/// values that have left the list of the source stays. An incremental source lands the changed records
/// in addition to the landed ones.
///
/// # Errors
/// [`Error::Config`] for a range that the source does not have, a source that has none, a missing
/// file that `what` does not allow, or a batch with rows of a value that has left the list beside
/// others;
/// [`Error::Log`] for a damaged log, [`Error::Fenced`] if a run committed meanwhile,
/// [`Error::Storage`].
pub async fn reread(
    config: &PipelineConfig,
    source: &Name,
    what: &Reread,
    context: &Context,
    dry_run: bool,
) -> Result<AmendReport, Error> {
    let mut amending = Box::pin(Amending::open(config, source, context)).await?;
    let found = match what.files.is_some() {
        true => Box::pin(list_files(amending.config, context)).await,
        false => Ok(None),
    };
    let found = found.map_err(|e| amending.under(e))?;
    let existing = found.as_deref().map(urls_of);
    if let Some(existing) = existing.as_ref().filter(|_| amending.config.is_web()) {
        check_missing(&amending, what, existing).await?;
    }
    if !dry_run {
        if existing.is_some() {
            // Missing files are refused before the first entry.
            let mut unused = amending.report("reread", true);
            let planned = plan_existing(&amending, what, existing.as_ref(), &mut unused);
            Box::pin(planned).await?;
        }
        // Changed settings apply to the re-read data.
        Box::pin(adopt(amending.config, &mut amending.log, &*context.secrets))
            .await
            .map_err(|e| e.under(&format!("source.{}", amending.index)))?;
    }
    let mut report = amending.report("reread", dry_run);
    let planned = plan_existing(&amending, what, existing.as_ref(), &mut report);
    let planned = Box::pin(planned).await?;
    if let Some(found) = found.filter(|_| planned.is_some()) {
        let files = (found.as_slice(), report.ranges.as_slice());
        let checked = Box::pin(check_contents(&mut amending, files, dry_run)).await;
        checked.map_err(|e| amending.under(e))?;
    }
    let log = &mut amending.log;
    let (Some(last), Some(RereadPlan { position, batches })) = (log.last().cloned(), planned)
    else {
        report
            .notes
            .push("nothing has landed of it, so there is nothing to re-read".into());
        report.next = amending.next(
            &amending
                .log
                .last()
                .map(|last| last.state.clone())
                .unwrap_or_default(),
        );
        return Ok(report);
    };
    let mut commit = Commit::amending(&last);
    commit.state.position = position;
    let folded = Box::pin(fold_again(log, &mut commit)).await?;
    let paths = withdraw(log.entries(), &batches, &mut commit, &mut report);
    let state = commit.state.clone();
    let sequence = log.next_sequence();
    if !commit.withdrawn.is_empty() {
        let folder = KeptFolder::next(log, context).await?;
        report.kept = Some(folder.url());
        if !dry_run {
            folder.fill(log, paths, sequence.get()).await?;
        }
    }
    if !dry_run {
        if let Some(encoded) = folded {
            log.put(encoded).await?;
        }
        log.append(commit).await?;
        sweep(log.landing(), log.entries()).await?;
        log.cover_amendments().await;
        report.sequence = Some(sequence.get());
    }
    amending.finish(&mut report, &state);
    Ok(report)
}

/// The plan, with the files that are not `existing` in the notes of `report`.
async fn plan_existing(
    amending: &Amending<'_>,
    what: &Reread,
    existing: Option<&BTreeSet<String>>,
    report: &mut AmendReport,
) -> Result<Option<RereadPlan>, Error> {
    let position = match amending.log.last() {
        Some(last) => expand(amending.log.landing(), &last.state).await?,
        None => Position::Start,
    };
    let history = load_history(amending, &position).await;
    let history = history.map_err(|e| amending.under(e))?;
    let planned = plan(amending, (&position, &history), what, report);
    let planned = planned.map_err(|e| amending.under(e))?;
    if let Some(existing) = existing.filter(|_| planned.is_some()) {
        let checked = check_ranges(existing, what.missing_files, report);
        checked.map_err(|e| amending.under(e))?;
    }
    Ok(planned)
}

/// Checks that the files to be re-read that are not `existing` are missing.
///
/// # Errors
/// [`Error::File`] for one that is not known to be missing.
async fn check_missing(
    amending: &Amending<'_>,
    what: &Reread,
    existing: &BTreeSet<String>,
) -> Result<(), Error> {
    let mut unused = amending.report("reread", true);
    plan_existing(amending, what, None, &mut unused).await?;
    let mut missing = unused.ranges;
    missing.retain(|url| !existing.contains(url));
    let checked = check_missing_files(amending.config, amending.context, &missing).await;
    checked.map_err(|e| amending.under(e))
}

/// The values of a source that is read in slices of each, as they were at its batches.
async fn load_history(amending: &Amending<'_>, position: &Position) -> Result<ListHistory, Error> {
    let (config, landing) = (amending.config, amending.log.landing());
    match position.ledger() {
        Some(ledger) if config.slices.is_some() => {
            // Boxed: the future that reads a list of landed values is large.
            Box::pin(ListHistory::load(config, amending.context, landing, ledger)).await
        }
        _ => Ok(ListHistory::default()),
    }
}

/// Checks that the `existing` files at `urls` can be read again, before their landed rows no longer count.
///
/// # Errors
/// [`Error::File`] for one that a run would refuse.
async fn check_contents(
    amending: &mut Amending<'_>,
    (existing, urls): (&[Found], &[String]),
    dry_run: bool,
) -> Result<(), Error> {
    let (config, context) = (amending.config, amending.context);
    let mut resumed = amending.log.resumed().await?;
    let hash = resumed.last.as_ref().map(|last| last.config_hash);
    if dry_run && hash != Some(config_hash(config)) {
        // Changed settings, which are not recorded yet, may name other columns.
        resumed.compared = ComparedColumns::None;
    }
    let mut position = match &resumed.last {
        Some(last) => expand(amending.log.landing(), &last.state).await?,
        None => Position::Start,
    };
    let marks = listed(&mut position).map(std::mem::take);
    let marks = marks.unwrap_or_default();
    let hashes: HashMap<&str, Hash128> = marks
        .iter()
        .map(|mark| (mark.url.as_str(), mark.hash))
        .collect();
    let parts = amending.log.entries().iter().flat_map(|entry| &entry.parts);
    let with_rows: BTreeMap<&str, Option<Hash128>> = parts
        .filter(|part| part.records > 0)
        .map(|part| (part.url.as_str(), hashes.get(part.url.as_str()).copied()))
        .collect();
    Box::pin(check_new_contents(
        config,
        context,
        &resumed,
        (existing, urls),
        &with_rows,
    ))
    .await
}

/// Withdraws batches; returns the paths of their files.
fn withdraw(
    entries: &[CommitEntry],
    batches: &BTreeSet<usize>,
    commit: &mut Commit,
    report: &mut AmendReport,
) -> Vec<String> {
    let mut paths = Vec::new();
    for index in batches {
        let entry = &entries[*index];
        if files(entry).next().is_none() && entry.merged_into.is_none() {
            continue;
        }
        count(report, entry);
        without(&mut commit.state.totals, entry);
        paths.extend(files(entry).map(|file| file.path.clone()));
        commit
            .withdrawn
            .push(withdrawn(entry, WithdrawnReason::Reread));
    }
    paths
}

/// Moves the read files of a position that lists all of them into a file of marks, if they are many.
async fn fold_again(log: &CommitLog, commit: &mut Commit) -> Result<Option<Encoded>, Error> {
    if commit.state.marks.is_empty() {
        return Ok(None);
    }
    commit.state.marks = Vec::new();
    let Some(listed) = listed(&mut commit.state.position) else {
        return Ok(None);
    };
    if listed.len() <= MOST_LISTED {
        return Ok(None);
    }
    let marks = std::mem::take(listed);
    let folded = fold(log.landing(), Vec::new(), marks, log.next_sequence()).await?;
    commit.state.marks = folded.all;
    commit.marks = folded
        .encoded
        .iter()
        .map(|encoded| encoded.file.clone())
        .collect();
    Ok(folded.encoded)
}

/// Returns the position to resume from and the batches that no longer count; `None` if nothing of
/// the selection has landed.
fn plan(
    amending: &Amending<'_>,
    (position, history): (&Position, &ListHistory),
    what: &Reread,
    report: &mut AmendReport,
) -> Result<Option<RereadPlan>, Error> {
    let (config, entries) = (amending.config, amending.log.entries());
    if entries.is_empty() {
        return Ok(None);
    }
    let range = (what.from.as_deref(), what.to.as_deref());
    match (unit_of(config), &what.files) {
        (ReadUnit::File, Some(pattern)) if range == (None, None) => {
            Ok(plan_files(entries, position, pattern, report))
        }
        (ReadUnit::File, _) => {
            let reason = "is read by file: select files with `--file PATTERN`, such as `--file '2026-03-*.csv'`";
            Err(Error::config("type", reason))
        }
        (_, Some(_)) => {
            let reason =
                "is not `files`: `--file` is for files; set a range with `--from` and `--to`";
            Err(Error::config("type", reason))
        }
        (_, None) if config.slices.is_some() => {
            plan_slices(config, entries, (position, history), range, report)
        }
        (_, None) if config.incremental.is_some() => {
            plan_incremental(config, position, range, report).map(Some)
        }
        (_, None) => {
            let reason = format!(
                "has no ranges: `ingest reread` is for `files`, `slices` and `incremental`; `feedline ingest reset PIPELINE.toml {}` re-reads everything",
                config.name
            );
            Err(Error::config("type", reason))
        }
    }
}
