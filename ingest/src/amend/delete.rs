//! Deleting batches.

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{
    amendment::{AmendReport, Withdrawn, WithdrawnReason},
    commit::{CommitEntry, DataFile},
    config::{PipelineConfig, SourceConfig, SourceKind},
    count::counted,
    ids::{Name, Sequence},
};

use super::{
    Amending,
    batch_files::{BatchFiles, MergedRows, data_files, kept_elsewhere, superseded},
    count,
    withdrawn_files::{files, sweep},
};
use crate::{
    batch::encode_validators,
    batch_counts::without,
    commit_log::{Commit, CommitLog},
    context::Context,
    error::Error,
    validators::without_conditions,
};

/// Deletes batches of a source, by the sequence numbers of their entries. An entry records that
/// their files no longer count. Then the files are removed: rows, rows of child tables, rejected
/// records and archived responses. The position stays, so they are not re-read by themselves. A
/// deleted record that the source returns later lands again: the next requests of its pages have no
/// conditions, so that unchanged pages are returned too. With `dry_run` nothing is changed.
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
    let config = amending.config;
    let batches: BTreeSet<u64> = batches.iter().copied().collect();
    let log = &mut amending.log;
    let mut merged = MergedRows::default();
    let chosen = choose(log, &batches, &mut merged).await?;
    check_merged(&chosen, &merged, &batches)?;
    let Some(last) = log.last().cloned() else {
        return Err(Error::config("--batch", "nothing has landed yet"));
    };
    let mut commit = Commit::amending(&last);
    let superseded = superseded(log, &chosen).await?;
    for batch in &chosen {
        count(&mut report, &batch.entry);
        remove(log.entries(), batch, &superseded, &mut commit)?;
    }
    remove_from_others(log.entries(), &chosen, &mut commit, &mut report);
    // Several batches may have had rows in one merged file.
    commit.expired.sort_unstable();
    commit.expired.dedup();
    note(log.entries(), &batches, &superseded, &mut report);
    report.notes.push(describe_return(config).to_owned());
    if !dry_run {
        commit.validators = forget_validators(config.r#type, log, &batches).await?;
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

async fn choose(
    log: &CommitLog,
    batches: &BTreeSet<u64>,
    merged: &mut MergedRows,
) -> Result<Vec<BatchFiles>, Error> {
    let mut chosen = Vec::with_capacity(batches.len());
    for batch in batches {
        let entry = find(log.entries(), *batch)?;
        chosen.push(BatchFiles::of(log, entry, merged).await?);
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

/// Withdraws data files with rows of the chosen batches that count as files of other entries: a merged
/// file may count as that of an entry without rows in it.
fn remove_from_others(
    entries: &[CommitEntry],
    chosen: &[BatchFiles],
    commit: &mut Commit,
    report: &mut AmendReport,
) {
    let with_rows = || chosen.iter().filter(|batch| batch.has_rows);
    let own: BTreeSet<Sequence> = with_rows().map(|batch| batch.entry.sequence).collect();
    let holders: BTreeSet<Sequence> = with_rows().map(|batch| batch.holder).collect();
    let paths = with_rows().flat_map(|batch| &batch.paths);
    let paths: BTreeSet<&str> = paths.map(String::as_str).collect();
    for entry in entries
        .iter()
        .filter(|entry| !own.contains(&entry.sequence))
    {
        let is_holder = holders.contains(&entry.sequence);
        let is_gone = |file: &&DataFile| is_holder || paths.contains(file.path.as_str());
        let gone: Vec<&DataFile> = data_files(entry).filter(is_gone).collect();
        if gone.is_empty() {
            continue;
        }
        let rows: u64 = entry
            .files
            .iter()
            .filter(is_gone)
            .map(|file| file.rows)
            .sum();
        let totals = &mut commit.state.totals;
        totals.rows = totals.rows.saturating_sub(rows);
        report.rows += rows;
        report.bytes += gone.iter().map(|file| file.bytes).sum::<u64>();
        let files = gone.iter().map(|file| file.path.clone());
        let mut withdrawn = commit.withdrawn.iter_mut();
        match withdrawn.find(|own| own.sequence == entry.sequence) {
            Some(own) => own.files.extend(files),
            None => commit.withdrawn.push(Withdrawn {
                sequence: entry.sequence,
                reason: WithdrawnReason::Deleted,
                files: files.collect(),
            }),
        }
    }
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
}

/// The condition under which records of a deleted batch land again, for a note.
fn describe_return(config: &SourceConfig) -> &'static str {
    match config.r#type {
        SourceKind::Files => {
            "a record of a deleted batch lands again once its file is read again: when it changes, or after `feedline ingest reread --file`"
        }
        SourceKind::Rest if config.incremental.is_some() => {
            "a record of a deleted batch lands again if the source returns it: requests begin at the highest cursor that has landed, less `incremental.lookback`; `feedline ingest reset` reads all records"
        }
        SourceKind::Rest | SourceKind::Html => {
            "a record of a deleted batch lands again if a later run requests it and the source returns it; `feedline ingest reset` reads all records"
        }
    }
}

/// Writes a file that removes the validators of pages that may have deleted records. A record of an API
/// may have moved to any page since, so all of its pages lose them; a crawled page keeps its URL.
async fn forget_validators(
    kind: SourceKind,
    log: &mut CommitLog,
    batches: &BTreeSet<u64>,
) -> Result<Vec<DataFile>, Error> {
    let known: Vec<DataFile> = match kind {
        SourceKind::Files => return Ok(Vec::new()),
        SourceKind::Html => {
            let entries = log.entries().iter();
            let chosen = entries.filter(|entry| batches.contains(&entry.sequence.get()));
            chosen.flat_map(|entry| entry.validators.clone()).collect()
        }
        SourceKind::Rest => log.resumed().await?.validators,
    };
    let all = without_conditions(log.landing(), &known).await?;
    let Some(encoded) = encode_validators(&all, log.next_sequence())? else {
        return Ok(Vec::new());
    };
    let file = encoded.file.clone();
    log.put(encoded).await?;
    Ok(vec![file])
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
    chosen: &[BatchFiles],
    merged: &MergedRows,
    batches: &BTreeSet<u64>,
) -> Result<(), Error> {
    let mut checked = BTreeSet::new();
    for batch in chosen.iter().filter(|batch| batch.has_rows) {
        let Some(together) = merged.batches(batch.holder) else {
            continue;
        };
        if !checked.insert(batch.holder) || together.is_subset(batches) {
            continue;
        }
        let batch = batch.entry.sequence.get();
        let (first, last) = (together.first(), together.last());
        return Err(Error::config(
            "--batch",
            format!(
                "the rows of batch {batch} are in one file with those of {} batches from {} to {}, since `feedline ingest compact` has merged them; delete all of them, or use `feedline ingest rewind`",
                together.len(),
                first.unwrap_or(&batch),
                last.unwrap_or(&batch)
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

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    #[test]
    fn a_deleted_record_lands_again_only_if_a_later_run_requests_it() {
        let check = |more: &str, part: &str| {
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\nurl = \"http://h.example/\"\n{more}"
            );
            let config = load("p", &text, &[]).unwrap().config;
            let note = describe_return(&config.source[0]);
            assert!(note.contains(part), "{more}: {note}");
        };
        // Of a finished source nothing is requested.
        check("type = \"rest\"", "if a later run requests it");
        let crawl = "type = \"html\"\ncrawl = { refresh = \"if_changed\" }";
        check(crawl, "if a later run requests it");
        check(
            "type = \"rest\"\nincremental = { cursor = \"d\", param = \"from\" }",
            "the highest cursor",
        );
    }
}
