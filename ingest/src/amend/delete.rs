//! Deleting batches.

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{
    amendment::{AmendReport, Withdrawn, WithdrawnReason},
    commit::CommitEntry,
    config::PipelineConfig,
    count::counted,
    ids::{Name, Sequence},
    log_effect::{holder, index_of},
};

use super::{
    Amending,
    batch_files::{BatchFiles, kept_elsewhere, superseded},
    count,
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
/// Superseded files of the batches are removed too. Of a batch that has no others, since a rewind or a
/// changed file, the entry names them as expired: nothing that counts changes.
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
    let chosen = choose(log, &batches).await?;
    check_merged(log.entries(), &chosen, &batches)?;
    let Some(last) = log.last().cloned() else {
        return Err(Error::config("--batch", "nothing has landed yet"));
    };
    let mut commit = Commit::amending(&last);
    let superseded = superseded(log, &chosen).await?;
    for batch in &chosen {
        count(&mut report, &batch.entry);
        remove(log.entries(), batch, &superseded, &mut commit)?;
    }
    // Several batches may have had rows in one merged file.
    commit.expired.sort_unstable();
    commit.expired.dedup();
    note(log.entries(), &batches, &superseded, &mut report);
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

async fn choose(log: &CommitLog, batches: &BTreeSet<u64>) -> Result<Vec<BatchFiles>, Error> {
    let mut chosen = Vec::with_capacity(batches.len());
    for batch in batches {
        let entry = find(log.entries(), *batch)?;
        chosen.push(BatchFiles::of(log, entry).await?);
    }
    Ok(chosen)
}

/// Adds the files of a batch to the entry that deletes it.
fn remove(
    entries: &[CommitEntry],
    batch: &BatchFiles,
    superseded: &BTreeMap<String, u64>,
    commit: &mut Commit,
) -> Result<(), Error> {
    let entry = &batch.entry;
    if batch.counts() {
        without(&mut commit.state.totals, entry);
        let mut own = withdrawn(entry, WithdrawnReason::Deleted);
        for path in &batch.paths {
            if !own.files.contains(path) {
                own.files.push(path.clone());
            }
        }
        commit.withdrawn.push(own);
        return Ok(());
    }
    let found = batch.paths.iter();
    let found = found.filter(|path| superseded.contains_key(path.as_str()));
    let found: Vec<String> = found.cloned().collect();
    if found.is_empty() {
        let number = entry.sequence;
        let reason = kept_elsewhere(entries, number).unwrap_or_else(|| {
            "it landed nothing, or its files were deleted before, by `ingest delete` or by retention"
                .to_owned()
        });
        let reason = format!("entry {number} has no files, also none in `superseded/`: {reason}");
        return Err(Error::config("--batch", reason));
    }
    commit.expired.extend(found);
    Ok(())
}

/// Adds notes about superseded files, rows elsewhere, and records that may land again.
fn note(
    entries: &[CommitEntry],
    batches: &BTreeSet<u64>,
    superseded: &BTreeMap<String, u64>,
    report: &mut AmendReport,
) {
    if !superseded.is_empty() {
        report.notes.push(format!(
            "this removes {} with rows, rejects or responses of these batches, {} bytes",
            counted(superseded.len() as u64, "superseded file"),
            superseded.values().sum::<u64>()
        ));
    }
    let elsewhere = batches.iter();
    let elsewhere = elsewhere.filter_map(|batch| kept_elsewhere(entries, Sequence::new(*batch)));
    report.notes.extend(elsewhere);
    for entry in entries {
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
fn check_merged(
    entries: &[CommitEntry],
    chosen: &[BatchFiles],
    batches: &BTreeSet<u64>,
) -> Result<(), Error> {
    for batch in chosen.iter().filter(|batch| batch.has_rows) {
        let batch = batch.entry.sequence;
        let index = index_of(entries, batch);
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
                first.unwrap_or(&batch.get()),
                last.unwrap_or(&batch.get())
            ),
        ));
    }
    Ok(())
}

/// The entry with this sequence number.
fn find(entries: &[CommitEntry], batch: u64) -> Result<&CommitEntry, Error> {
    let index = usize::try_from(batch).unwrap_or(usize::MAX);
    entries.get(index).ok_or_else(|| {
        let reason = format!(
            "{batch} is no entry of the log, which has 0 to {}; the column `_feedline_seq` of landed rows names their batch",
            entries.len().saturating_sub(1)
        );
        Error::config("--batch", reason)
    })
}
