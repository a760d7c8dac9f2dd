//! Re-reads a range, or some files.

use std::collections::BTreeSet;

use feedline_readers::glob;
use feedline_schemas::{
    amendment::{AmendReport, WithdrawnReason},
    commit::{CommitEntry, PageRun, Position},
    config::{PipelineConfig, SourceKind},
    ids::Name,
    log_effect::holder,
};

use super::{
    Amending, count,
    delete::withdrawn,
    keep::KeptFolder,
    withdrawn_files::{files, sweep},
};
use crate::{
    batch::Encoded,
    batch_counts::without,
    commit_log::{Commit, CommitLog},
    context::Context,
    error::Error,
    file_marks::{MOST_LISTED, expand, fold, listed},
    ledger::{self, BatchRange},
    setting_changes::adopt,
    watermark::Mark,
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
}

/// Makes the next run re-read a range of a source with slices, a part of an incremental source, or
/// some files. With `dry_run` nothing is changed.
///
/// A source with a `key` keeps its landed rows: a dataset reads the latest version of each key.
/// Without a key, the batches of the range no longer count, and are saved in
/// `landing/<source>.<n>`. A batch that covers more than the range is re-read completely. An
/// incremental source lands the changed records in addition to the landed ones.
///
/// # Errors
/// [`Error::Config`] for a range that the source does not have, or a source that has none;
/// [`Error::Log`] for a damaged log, [`Error::Fenced`] if a run committed meanwhile,
/// [`Error::Storage`].
pub async fn reread(
    config: &PipelineConfig,
    source: &Name,
    what: &Reread,
    context: &Context,
    dry_run: bool,
) -> Result<AmendReport, Error> {
    let mut amending = Amending::open(config, source, context).await?;
    if !dry_run {
        // Changed settings apply to the re-read data.
        adopt(amending.config, &mut amending.log)
            .await
            .map_err(|e| e.under(&format!("source.{}", amending.index)))?;
    }
    let mut report = amending.report("reread", dry_run);
    let position = match amending.log.last() {
        Some(last) => expand(amending.log.landing(), &last.state).await?,
        None => Position::Start,
    };
    let planned = plan(&amending, &position, what, &mut report).map_err(|e| amending.under(e))?;
    let log = &mut amending.log;
    let (Some(last), Some((position, batches))) = (log.last().cloned(), planned) else {
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
    let folded = fold_again(log, &mut commit).await?;
    let mut paths = Vec::new();
    for index in &batches {
        let entry = &log.entries()[*index];
        if files(entry).next().is_none() && entry.merged_into.is_none() {
            continue;
        }
        count(&mut report, entry);
        without(&mut commit.state.totals, entry);
        paths.extend(files(entry).map(|file| file.path.clone()));
        commit
            .withdrawn
            .push(withdrawn(entry, WithdrawnReason::Reread));
    }
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

/// Position to resume from, and the batches that no longer count.
type Plan = (Position, BTreeSet<usize>);

fn plan(
    amending: &Amending<'_>,
    position: &Position,
    what: &Reread,
    report: &mut AmendReport,
) -> Result<Option<Plan>, Error> {
    let (config, entries) = (amending.config, amending.log.entries());
    if entries.is_empty() {
        return Ok(None);
    }
    match (config.r#type, &what.files) {
        (SourceKind::Files, Some(pattern)) if what.from.is_none() && what.to.is_none() => {
            return Ok(plan_files(entries, position, pattern, report));
        }
        (SourceKind::Files, _) => {
            let reason = "is read by file: select files with `--file PATTERN`, such as `--file '2026-03-*.csv'`";
            return Err(Error::config("type", reason));
        }
        (_, Some(_)) => {
            let reason =
                "is not `files`: `--file` is for files; set a range with `--from` and `--to`";
            return Err(Error::config("type", reason));
        }
        (_, None) => {}
    }
    let in_work = |position: &Position| !matches!(position, Position::Done { .. });
    let finish = "has an unfinished page run: run `feedline ingest` first, then rerun this command";
    if config.slices.is_some() {
        let Some(ledger) = position.ledger().filter(|_| !in_work(position)) else {
            return Err(Error::config("slices", finish));
        };
        let range = ledger::range_of(config, what.from.as_deref(), what.to.as_deref(), ledger)?;
        let has_key = !config.key.is_empty();
        let widened = match has_key {
            true => BatchRange::of(range),
            false => ledger::widen(entries, range, &mut |batches| {
                retried_with(entries, batches)
            }),
        };
        if widened.is_empty(ledger) {
            return Ok(None);
        }
        report.ranges = ledger::show_ranges(config, &widened, ledger)?;
        if has_key {
            report.notes.push("the source has a `key`: landed rows stay, and a dataset reads the latest version of each key".into());
        } else {
            report
                .notes
                .push("batches are re-read completely, with all of their slices".into());
        }
        let mut run = position.run().cloned().unwrap_or_default();
        run.ledger = Some(Box::new(ledger::undone(ledger, &widened)));
        let Position::Done { pages, .. } = position else {
            return Ok(None);
        };
        let next = Position::Done {
            pages: *pages,
            files: Vec::new(),
            run,
        };
        return Ok(Some((next, widened.batches)));
    }
    if config.incremental.is_some() {
        if what.to.is_some() {
            let reason = "has a lower bound only, so `--to` does not apply: remove it";
            return Err(Error::config("incremental", reason));
        }
        let Some(from) = &what.from else {
            return Err(Error::config(
                "incremental",
                "set the cursor to begin at with `--from`",
            ));
        };
        Mark::parse(from).map_err(|reason| Error::config("--from", reason))?;
        let Some(run) = position.run().filter(|_| !in_work(position)) else {
            return Err(Error::config("incremental", finish));
        };
        if config.dedup_window() == 0 {
            let reason = "is 0, which keeps equal records: all of them would land twice; set it";
            return Err(Error::config("batch.dedup_window", reason));
        }
        let next = Position::Page {
            page: 0,
            cursor: None,
            run: PageRun {
                number: run.number + 1,
                restarted: true,
                since: Some(from.clone()),
                high: run.high.clone(),
                ahead: run.ahead.clone(),
                ..PageRun::default()
            },
        };
        report.ranges = vec![format!("from `{from}` on")];
        report.notes.push("landed records are skipped as duplicates, and changed ones land in addition to the old ones; with a `key` a dataset reads the latest versions".into());
        return Ok(Some((next, BTreeSet::new())));
    }
    let reason = format!(
        "has no ranges: `ingest reread` is for `files`, `slices` and `incremental`; `feedline ingest reset PIPELINE.toml {}` re-reads everything",
        config.name
    );
    Err(Error::config("type", reason))
}

/// Batches that depend on `batches`: their retried rejects have landed in a later batch, together
/// with those of others, or a compaction has merged their rows with those of others.
fn retried_with(entries: &[CommitEntry], batches: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut all = batches.clone();
    for (index, entry) in entries.iter().enumerate() {
        let retried = entry.withdrawn.iter();
        let retried = retried.filter(|withdrawn| withdrawn.reason == WithdrawnReason::Retried);
        let of: BTreeSet<usize> = retried
            .filter_map(|withdrawn| usize::try_from(withdrawn.sequence.get()).ok())
            .collect();
        if !of.is_empty() && (all.contains(&index) || !of.is_disjoint(&all)) {
            all.insert(index);
            all.extend(of);
        }
    }
    let holders: BTreeSet<usize> = all.iter().map(|index| holder(entries, *index)).collect();
    let merged = (0..entries.len()).filter(|index| holders.contains(&holder(entries, *index)));
    all.extend(merged);
    all
}

/// Files whose address matches, and those that share batches with them.
fn plan_files(
    entries: &[CommitEntry],
    position: &Position,
    pattern: &str,
    report: &mut AmendReport,
) -> Option<Plan> {
    let urls = |position: &Position| -> BTreeSet<String> {
        let (done, current) = match position {
            Position::File { done, current } => (done, current.as_ref()),
            Position::Done { files, .. } => (files, None),
            Position::Start | Position::Page { .. } => return BTreeSet::new(),
        };
        let current = current.map(|file| file.url.clone());
        done.iter()
            .map(|mark| mark.url.clone())
            .chain(current)
            .collect()
    };
    let begun = |position: &Position| match position {
        Position::File { current, .. } => current.as_ref().map(|file| file.url.clone()),
        _ => None,
    };
    // The files that each batch was read from.
    let mut before = &Position::Start;
    let mut read = Vec::with_capacity(entries.len());
    for entry in entries {
        let after = &entry.state.position;
        let parts = entry.parts.iter().map(|part| part.url.clone());
        let mut of: BTreeSet<String> = parts.collect();
        // An entry of version 1 does not name the files of its records, but its position lists all of them.
        if of.is_empty() && !entry.is_amendment() && entry.version < 2 {
            of = urls(after).difference(&urls(before)).cloned().collect();
            of.extend(begun(before));
        }
        read.push(of);
        before = after;
    }
    let mut files: BTreeSet<String> = urls(position);
    files.retain(|url| is_match(pattern, url));
    if files.is_empty() {
        return None;
    }
    let mut batches = BTreeSet::new();
    loop {
        let touching = read.iter().enumerate();
        let touching = touching.filter(|(_, of)| !of.is_disjoint(&files));
        batches.extend(touching.map(|(index, _)| index));
        batches = retried_with(entries, &batches);
        let known = files.len();
        for index in &batches {
            files.extend(read[*index].iter().cloned());
        }
        if files.len() == known {
            break;
        }
    }
    report.ranges = files.iter().cloned().collect();
    report
        .notes
        .push("batches are re-read completely, with all of their files".into());
    let mut next = position.clone();
    match &mut next {
        Position::File { done, current } => {
            done.retain(|mark| !files.contains(&mark.url));
            if current
                .as_ref()
                .is_some_and(|file| files.contains(&file.url))
            {
                *current = None;
            }
        }
        Position::Done { files: done, .. } => done.retain(|mark| !files.contains(&mark.url)),
        Position::Start | Position::Page { .. } => {}
    }
    Some((next, batches))
}

/// Returns true if a pattern matches an address, or as many of its last segments as the pattern
/// has.
fn is_match(pattern: &str, url: &str) -> bool {
    let segments = pattern.split('/').count();
    let mut starts: Vec<usize> = url.rmatch_indices('/').map(|(at, _)| at + 1).collect();
    starts.push(0);
    let end = starts.get(segments - 1).map(|at| &url[*at..]);
    glob::matches(pattern, url) || end.is_some_and(|end| glob::matches(pattern, end))
}
