//! Deleting batches.

use std::collections::BTreeSet;

use feedline_schemas::{
    amendment::{AmendReport, Withdrawn, WithdrawnReason},
    commit::{CommitEntry, DataFile},
    config::PipelineConfig,
    ids::{Name, Sequence},
    log_effect::{holder, index_of},
};

use super::{
    Amending, count,
    rewind::written,
    withdrawn_files::{files, sweep},
};
use crate::{
    batch_counts::without,
    commit_log::{Commit, CommitLog},
    context::Context,
    error::Error,
};

/// Deletes batches of a source, by the sequence numbers of their entries. An entry records that
/// their files no longer count. Then the files are removed: rows, rows of child tables, rejected
/// records and archived responses. The position stays, so they are not re-read by themselves. A
/// deleted record that the source returns later lands again. With `dry_run` nothing is changed.
///
/// # Errors
/// [`Error::Config`] for a number without a batch, [`Error::Log`] for a damaged log,
/// [`Error::Fenced`] if a run committed meanwhile, [`Error::Storage`].
pub async fn delete(
    config: &PipelineConfig,
    source: &Name,
    batches: &[u64],
    context: &Context,
    dry_run: bool,
) -> Result<AmendReport, Error> {
    let mut amending = Amending::open(config, source, context).await?;
    let mut report = amending.report("delete", dry_run);
    let batches: BTreeSet<u64> = batches.iter().copied().collect();
    let log = &mut amending.log;
    check_merged(log.entries(), &batches)?;
    let mut chosen = Vec::new();
    for batch in &batches {
        chosen.push(find(log.entries(), *batch)?.clone());
    }
    let Some(last) = log.last().cloned() else {
        return Err(Error::config("--batch", "nothing has landed yet"));
    };
    let mut commit = Commit::amending(&last);
    for entry in &chosen {
        count(&mut report, entry);
        without(&mut commit.state.totals, entry);
        let mut own = withdrawn(entry, WithdrawnReason::Deleted);
        for path in earlier_files(log, entry.sequence).await? {
            if !own.files.contains(&path) {
                own.files.push(path);
            }
        }
        commit.withdrawn.push(own);
    }
    for entry in log.entries() {
        let mut retried = entry.withdrawn.iter();
        let is_of_chosen = |withdrawn: &Withdrawn| {
            withdrawn.reason == WithdrawnReason::Retried
                && batches.contains(&withdrawn.sequence.get())
        };
        if retried.any(is_of_chosen) && !batches.contains(&entry.sequence.get()) {
            report.notes.push(format!(
                "batch {} has records that were rejected in a deleted one and have landed since; delete it too if they should go",
                entry.sequence
            ));
        }
    }
    report
        .notes
        .push("a record of a deleted batch lands again if the source returns it".into());
    if !dry_run {
        let sequence = log.next_sequence();
        let state = commit.state.clone();
        log.append(commit).await?;
        sweep(log.landing(), log.entries()).await?;
        log.cover_amendments().await;
        report.sequence = Some(sequence.get());
        amending.finish(&mut report, &state);
    } else {
        report.next = amending.next(&last.state);
    }
    Ok(report)
}

/// Files that have had rows or rejects of a batch: what was merged or rewritten since is in
/// `superseded/`, and is removed too.
async fn earlier_files(log: &CommitLog, batch: Sequence) -> Result<Vec<String>, Error> {
    let entry = written(log, batch).await?;
    let mut all: Vec<DataFile> = files(&entry).cloned().collect();
    for later in log.entries() {
        let merged = later.compacted.iter().filter(|_| entry.counts.rows > 0);
        for merged in merged.filter(|merged| (merged.first..=merged.last).contains(&batch)) {
            all.extend(merged.files.iter().cloned());
            all.extend(merged.children.values().flatten().cloned());
        }
        let replaced = later.replaced.iter();
        for replaced in replaced.filter(|replaced| replaced.sequence == batch) {
            all.extend(replaced.files.iter().cloned());
            all.extend(replaced.rejects.iter().flatten().cloned());
            all.extend(replaced.children.values().flatten().cloned());
        }
    }
    Ok(all.into_iter().map(|file| file.path).collect())
}

/// Withdrawal of the files of a batch, for the log entry.
pub(super) fn withdrawn(entry: &CommitEntry, reason: WithdrawnReason) -> Withdrawn {
    Withdrawn {
        sequence: entry.sequence,
        reason,
        files: files(entry).map(|file| file.path.clone()).collect(),
    }
}

/// Refuses to delete some of the batches whose rows a compaction has merged.
fn check_merged(entries: &[CommitEntry], batches: &BTreeSet<u64>) -> Result<(), Error> {
    for batch in batches {
        let index = index_of(entries, Sequence::new(*batch));
        let Some(index) = index.filter(|index| entries[*index].counts.rows > 0) else {
            continue;
        };
        let of = holder(entries, index);
        let together = (0..=of).filter(|other| holder(entries, *other) == of);
        let with_rows = together.filter(|other| entries[*other].counts.rows > 0);
        let with_rows: Vec<u64> = with_rows.map(|i| entries[i].sequence.get()).collect();
        if with_rows.iter().all(|other| batches.contains(other)) {
            continue;
        }
        let (first, last) = (with_rows.first(), with_rows.last());
        return Err(Error::config(
            "--batch",
            format!(
                "the rows of batch {batch} are in one file with those of {} batches from {} to {}, since `feedline ingest compact` has merged them; delete all of them, or use `feedline ingest rewind`",
                with_rows.len(),
                first.unwrap_or(batch),
                last.unwrap_or(batch)
            ),
        ));
    }
    Ok(())
}

/// The batch with this sequence number.
fn find(entries: &[CommitEntry], batch: u64) -> Result<&CommitEntry, Error> {
    let index = usize::try_from(batch).unwrap_or(usize::MAX);
    let wrong = |reason: String| Err(Error::config("--batch", reason));
    let Some(entry) = entries.get(index) else {
        return wrong(format!(
            "{batch} is no entry of the log, which has 0 to {}; the column `_feedline_seq` of landed rows names their batch",
            entries.len().saturating_sub(1)
        ));
    };
    if files(entry).next().is_none() && entry.merged_into.is_none() {
        return wrong(format!(
            "entry {batch} has no files: it landed nothing, or was deleted or reset before"
        ));
    }
    Ok(entry)
}
