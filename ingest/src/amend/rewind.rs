//! Going back to an earlier entry of the log.

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{
    amendment::{AmendReport, SettingsRecord},
    commit::{CommitEntry, Compacted, DataFile, Replaced},
    config::PipelineConfig,
    decode,
    ids::{Hash128, Name, Sequence},
    log_effect::{self, index_of},
};

use super::{Amending, count, pages_to_read, withdrawn_files::files};
use crate::{
    backfill::{note_lost_cursors, note_unsaved_list},
    batch::Encoded,
    commit_log::{Commit, CommitLog},
    context::Context,
    error::Error,
    log_entries::{Kept, LogEntries},
    schedule::Holding,
    supersede::only_batches,
    superseded_files::{aside, set_aside},
};
use feedline_storage::log::entry_path;

/// Takes a source back to its entry `to`: rows of later entries no longer count, and the next run
/// reads from the position after that entry. One entry of the log says so; files that no longer count
/// move to `superseded/`, until retention deletes them. With `dry_run` nothing is changed.
///
/// A file of rows from both sides, as a compaction makes it, is written again without the later ones.
/// Data files that were superseded by a changed file after `to` count again, if they still exist.
///
/// # Errors
/// [`Error::Config`] for an entry that the source cannot return to, [`Error::Running`] while another
/// program holds the source's lease, [`Error::Log`] for a damaged log, [`Error::Fenced`] if a run
/// committed meanwhile, [`Error::Storage`].
pub async fn rewind(
    config: &PipelineConfig,
    source: &Name,
    to: u64,
    context: &Context,
    dry_run: bool,
) -> Result<AmendReport, Error> {
    let mut amending = Amending::open(config, source, context).await?;
    if dry_run || amending.log.last().is_none() {
        return Box::pin(rewind_log(&mut amending, Sequence::new(to), true)).await;
    }
    let holding = Holding::of(amending.log.landing(), source, context);
    // Boxed: the future of an amendment is large.
    let work = Box::pin(rewind_log(&mut amending, Sequence::new(to), false));
    holding.during(work).await
}

async fn rewind_log(
    amending: &mut Amending<'_>,
    to: Sequence,
    dry_run: bool,
) -> Result<AmendReport, Error> {
    let mut report = amending.report("rewind", dry_run);
    let entries = amending.log.entries();
    let Some(last) = entries.last() else {
        return Err(Error::config("--to", "nothing has landed yet"));
    };
    check(entries, to)?;
    report.rewound_to = Some(to.get());
    describe(entries, to, &mut report);
    if last.sequence == to {
        report
            .notes
            .push("it is the last entry of the log, so there is nothing to take back".into());
        report.next = amending.next(&last.state);
        return Ok(report);
    }
    let target = written(&amending.log, to).await?;
    let pages = last
        .state
        .totals
        .pages
        .saturating_sub(target.state.totals.pages);
    report.notes.push(format!("{} again", pages_to_read(pages)));
    report.notes.push(
        "files that no longer count move to `superseded/` of the source's landing folder".into(),
    );
    let landing = amending.log.landing();
    let unsaved = note_unsaved_list(landing, &target.state.position).await?;
    report.notes.extend(unsaved);
    let lost = note_lost_cursors(landing, &target.state.position).await?;
    report.notes.extend(lost);
    let planned = plan(amending, to, target).await?;
    // A merged file has rows of both sides.
    for kept in &planned.commit.compacted {
        let files = kept.files.iter();
        report.rows = report
            .rows
            .saturating_sub(files.map(|file| file.rows).sum());
    }
    report.next = amending.next(&planned.commit.state);
    if dry_run {
        return Ok(report);
    }
    let log = &mut amending.log;
    for encoded in planned.encoded {
        log.put(encoded).await?;
    }
    report.sequence = Some(log.next_sequence().get());
    let state = planned.commit.state.clone();
    log.append(planned.commit).await?;
    let gone = log.take_gone();
    set_aside(log.landing(), &gone).await?;
    log.cover_amendments().await;
    amending.finish(&mut report, &state);
    Ok(report)
}

/// Checks that everything that counted after the entry `to` can count again.
fn check(entries: &[CommitEntry], to: Sequence) -> Result<(), Error> {
    let wrong = |reason: String| Err(Error::config("--to", reason));
    if index_of(entries, to).is_none() {
        return wrong(format!(
            "{to} is no entry of the log, which has 0 to {}; the column `_feedline_seq` of landed rows names their entry",
            entries.len().saturating_sub(1)
        ));
    }
    for entry in entries.iter().filter(|entry| entry.sequence > to) {
        let by = entry.sequence;
        if let Some(folder) = &entry.reset_to {
            return wrong(format!(
                "entry {by} has reset the source: what had landed before is in the folder `landing/{folder}` of the pipeline; choose entry {by} or a later one"
            ));
        }
        if entry.rewound_to.is_some_and(|rewound| rewound < to) {
            return wrong(format!(
                "entry {to} was taken back by the rewind of entry {by}; choose an entry before the one that it names, or to {by} or a later one"
            ));
        }
        if let Some(lost) = entry.withdrawn.iter().find(|lost| lost.sequence <= to) {
            return wrong(format!(
                "entry {by} has withdrawn files of entry {}, and they are gone; choose entry {by} or a later one",
                lost.sequence
            ));
        }
    }
    Ok(())
}

/// Adds to a report what no longer counts after a rewind to `to`, and the files that are read again.
fn describe(entries: &[CommitEntry], to: Sequence, report: &mut AmendReport) {
    let mut urls = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.sequence > to) {
        if files(entry).next().is_some() || !entry.parts.is_empty() {
            count(report, entry);
        }
        urls.extend(entry.parts.iter().map(|part| part.url.clone()));
    }
    report.ranges = urls.into_iter().collect();
}

/// The entry `sequence` as it was written: with the state after it.
pub(super) async fn written(log: &CommitLog, sequence: Sequence) -> Result<CommitEntry, Error> {
    let path = entry_path(sequence.get());
    let bytes = log.landing().get(&path).await?;
    Ok(decode(&log.landing().url_of(&path), &bytes)?)
}

/// An entry that takes the source back, and the files that it names.
struct PlannedRewind {
    commit: Commit,
    encoded: Vec<Encoded>,
}

async fn plan(
    amending: &Amending<'_>,
    to: Sequence,
    target: CommitEntry,
) -> Result<PlannedRewind, Error> {
    let log = &amending.log;
    let mut planned = PlannedRewind {
        commit: Commit {
            rewound_to: Some(to),
            settings: settings(log.entries(), to),
            ..Commit::amending(&target)
        },
        encoded: Vec::new(),
    };
    planned.commit.state.not_before_unix_s = None;
    planned.commit.state.not_before_wait_s = None;
    split(log, to, &mut planned).await?;
    bring_back(log, to, &mut planned).await?;
    Ok(planned)
}

/// Settings that held after the entry `to`. The next run compares its own with them, and so repeats
/// the effect of a change that was made later.
fn settings(entries: &[CommitEntry], to: Sequence) -> Option<SettingsRecord> {
    let before = entries.iter().rev().filter(|entry| entry.sequence <= to);
    let mut records = before.filter_map(|entry| entry.settings.as_ref());
    let record = records.next()?;
    Some(SettingsRecord {
        values: record.values.clone(),
        changes: Vec::new(),
    })
}

/// Writes merged files with rows from both sides of `to` again, without the later rows.
async fn split(log: &CommitLog, to: Sequence, planned: &mut PlannedRewind) -> Result<(), Error> {
    let (entries, next) = (log.entries(), log.next_sequence());
    // First and last batch with rows before the cut, by the later entry that has them. The last one
    // gets the file, so it must have rows: an entry that has none can be deleted alone.
    let mut across: BTreeMap<Sequence, (Sequence, Sequence)> = BTreeMap::new();
    let before = entries.iter().enumerate();
    let before = before.filter(|(_, entry)| entry.sequence <= to && entry.counts.rows > 0);
    for (index, entry) in before {
        if let Some(holder) = holder_of(entries, index).filter(|holder| *holder > to) {
            let ends = across
                .entry(holder)
                .or_insert((entry.sequence, entry.sequence));
            ends.1 = entry.sequence;
        }
    }
    for (holder, (first, last)) in across {
        let Some(holder) = index_of(entries, holder).and_then(|index| entries.get(index)) else {
            continue;
        };
        let batches = first.get()..=last.get();
        let (files, encoded) =
            only_batches(log.landing(), &holder.files, batches.clone(), next).await?;
        planned.encoded.extend(encoded);
        let mut children = BTreeMap::new();
        for (name, files) in child_files(entries, holder.sequence) {
            if !is_merged(entries, (first, last), &name) {
                continue;
            }
            let batches = batches.clone();
            let (files, encoded) = only_batches(log.landing(), &files, batches, next).await?;
            planned.encoded.extend(encoded);
            children.insert(name, files);
        }
        planned.commit.compacted.push(Compacted {
            first,
            last,
            files,
            children,
        });
    }
    Ok(())
}

/// The entry whose files have the rows of the one at `index`.
fn holder_of(entries: &[CommitEntry], index: usize) -> Option<Sequence> {
    let holder = entries.get(log_effect::holder(entries, index));
    holder.map(|holder| holder.sequence)
}

/// Files of child tables with rows of the batches that were merged into the entry `holder`. Earlier
/// releases have left some with other entries of the range.
fn child_files(entries: &[CommitEntry], holder: Sequence) -> BTreeMap<Name, Vec<DataFile>> {
    let mut found: BTreeMap<Name, Vec<DataFile>> = BTreeMap::new();
    let of_range = entries.iter().enumerate();
    let of_range = of_range.filter(|(index, _)| holder_of(entries, *index) == Some(holder));
    for (name, table) in of_range.flat_map(|(_, entry)| &entry.children) {
        let files = found.entry(name.clone()).or_default();
        files.extend(table.files.iter().cloned());
    }
    found
}

/// Returns true if files of a child table of the entries from `first` to `last` were merged.
fn is_merged(entries: &[CommitEntry], (first, last): (Sequence, Sequence), table: &Name) -> bool {
    let merged = entries.iter().flat_map(|entry| &entry.compacted);
    let mut merged = merged.filter(|merged| merged.first <= last && first <= merged.last);
    merged.any(|merged| merged.children.contains_key(table))
}

/// Names files again that changed files have superseded after `to`.
async fn bring_back(
    log: &CommitLog,
    to: Sequence,
    planned: &mut PlannedRewind,
) -> Result<(), Error> {
    let entries = log.entries();
    let later = entries.iter().filter(|entry| entry.sequence > to);
    let superseded: BTreeMap<Sequence, Sequence> = later
        .flat_map(|entry| {
            let earlier = entry.replaced.iter().map(|replaced| replaced.sequence);
            earlier.map(move |earlier| (earlier, entry.sequence))
        })
        .filter(|(earlier, _)| *earlier <= to)
        .collect();
    if superseded.is_empty() {
        return Ok(());
    }
    let source = log.source();
    let mut then = LogEntries::open_at(log.landing(), source, Kept::All, Some(to)).await?;
    then.load_all().await?;
    for (sequence, by) in superseded {
        let both = index_of(then.all(), sequence).zip(index_of(entries, sequence));
        let Some((then, now)) = both.map(|(then_at, now)| (&then.all()[then_at], &entries[now]))
        else {
            continue;
        };
        let is_held = |entry: &CommitEntry| {
            let holds = entries
                .iter()
                .any(|e| e.merged_into == Some(entry.sequence));
            entry.merged_into.is_some() || holds
        };
        if is_held(now) || then.merged_into.is_some() {
            return Err(Error::config(
                "--to",
                format!(
                    "entry {by} has superseded rows of entry {sequence}, which a compaction has merged with others; choose entry {by} or a later one"
                ),
            ));
        }
        let mut replaced = Replaced::same_rows(sequence, Vec::new());
        let own: Vec<&DataFile> = now.named_files().collect();
        let known = (&own[..], by);
        replaced.files = restore(log, &then.files, known, &mut planned.encoded).await?;
        let rejects = restore(log, &then.rejects, known, &mut planned.encoded).await?;
        replaced.rejects = Some(rejects);
        for (name, table) in &then.children {
            let files = restore(log, &table.files, known, &mut planned.encoded).await?;
            replaced.children.insert(name.clone(), files);
        }
        planned.commit.replaced.push(replaced);
    }
    Ok(())
}

/// The files under names that they can have now: those of the entry that are in place, `own`, keep
/// theirs, and copies of those that the entry `by` has superseded are added to `encoded`.
async fn restore(
    log: &CommitLog,
    files: &[DataFile],
    (own, by): (&[&DataFile], Sequence),
    encoded: &mut Vec<Encoded>,
) -> Result<Vec<DataFile>, Error> {
    let landing = log.landing();
    let mut found = Vec::with_capacity(files.len());
    for file in files {
        // An earlier rewind may have given it another name.
        if let Some(own) = own.iter().find(|own| own.hash == file.hash) {
            found.push((*own).clone());
            continue;
        }
        let copy = landing.get_opt(&aside(file)).await?;
        let copy = copy.filter(|bytes| Hash128::of(bytes) == file.hash);
        let Some(bytes) = copy else {
            return Err(Error::config(
                "--to",
                format!(
                    "entry {by} has superseded `{}`, and retention or `ingest delete` has removed it since; choose entry {by} or a later one",
                    file.path
                ),
            ));
        };
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let path = format!(
            "{folder}/{:020}-{}.parquet",
            log.next_sequence().get(),
            file.hash.short()
        );
        let file = DataFile {
            path,
            ..file.clone()
        };
        found.push(file.clone());
        encoded.push(Encoded { file, bytes });
    }
    Ok(found)
}
