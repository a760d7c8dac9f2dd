//! OpenMerge small data files into large ones, and deleting superseded files.
//!
//! A merge is one entry of the log for each merged file ([`Compacted`]), so memory holds one of them. A
//! killed command leaves whole merges, and the next one continues. Rows, their order and their
//! provenance stay: each row keeps the sequence number and the row number of its batch. Rejects,
//! archived responses and the frontier of a crawl stay in their files.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{array::RecordBatch, datatypes::Schema};
use feedline_schemas::{
    amendment::{AmendReport, CompactionReport},
    commit::{ChildTable, CommitEntry, Compacted, DataFile},
    config::PipelineConfig,
    ids::{Name, Sequence},
    log_effect::holder,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{Amending, retain::expire};
use crate::{
    batch::{Encoded, MergedFile},
    blocking::computing,
    commit_log::{Commit, CommitLog},
    context::Context,
    error::Error,
    landed_file,
    landing_files::sweep,
    schedule::Holding,
    supersede::set_aside,
};

/// Size of merged files in bytes, unless another is given.
pub const TARGET_BYTES: u64 = 128 << 20;
/// Files that are read at the same time, in their order.
const READS: usize = 8;
/// Most entries that one merge covers.
const MOST_ENTRIES: usize = 10_000;

/// Merges the small data files of a source into files of about `target_bytes` bytes, and then deletes
/// superseded files as `ingest.retention` says. Neighbouring files of one schema version are merged,
/// those of child tables too; files of at least half the size stay. With `dry_run` nothing is changed.
///
/// The old files move to `superseded/`. A reader that opened the log before finds them there, until
/// retention deletes them.
///
/// # Errors
/// [`Error::Config`], [`Error::Running`] while another program holds the source's lease,
/// [`Error::Log`] and [`Error::Landed`] for damage, [`Error::Fenced`] if a run committed meanwhile,
/// [`Error::Storage`].
pub async fn compact(
    config: &PipelineConfig,
    source: &Name,
    target_bytes: u64,
    context: &Context,
    dry_run: bool,
) -> Result<AmendReport, Error> {
    let mut amending = Amending::open(config, source, context).await?;
    let mut report = amending.report("compact", dry_run);
    if amending.log.last().is_none() {
        report
            .notes
            .push("nothing has landed yet, so there is nothing to merge".into());
        report.next = amending.next(&Default::default());
        return Ok(report);
    }
    sweep(amending.log.landing()).await;
    let mut counts = CompactionReport::default();
    if dry_run {
        for group in groups(amending.log.entries(), target_bytes) {
            add(&mut counts, &group);
        }
        expire(config, &mut amending.log, &mut counts, true).await?;
    } else {
        let holding = Holding::of(amending.log.landing(), source, context);
        let log = &mut amending.log;
        // Boxed: the future of an amendment is large.
        let work = Box::pin(async {
            merge_all(log, target_bytes, context, &mut counts).await?;
            expire(config, log, &mut counts, false).await?;
            log.cover_amendments().await;
            Ok(())
        });
        holding.during(work).await?;
    }
    report.compacted = Some(counts);
    let state = amending.log.last().map(|last| last.state.clone());
    report.next = amending.next(&state.unwrap_or_default());
    Ok(report)
}

/// Entries whose data files become one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MergeGroup {
    first: Sequence,
    last: Sequence,
    files: Vec<DataFile>,
    children: BTreeMap<Name, Vec<DataFile>>,
}

impl MergeGroup {
    fn files(&self) -> impl Iterator<Item = &DataFile> {
        self.files.iter().chain(self.children.values().flatten())
    }

    fn tables(&self) -> impl Iterator<Item = &Vec<DataFile>> {
        let lists = std::iter::once(&self.files).chain(self.children.values());
        lists.filter(|files| !files.is_empty())
    }
}

fn add(counts: &mut CompactionReport, group: &MergeGroup) {
    counts.files_before += group.files().count() as u64;
    counts.files_after += group.tables().count() as u64;
    counts.rows += group.files().map(|file| file.rows).sum::<u64>();
    counts.bytes_before += group.files().map(|file| file.bytes).sum::<u64>();
}

/// Neighbouring entries whose files are small and have the same columns.
fn groups(entries: &[CommitEntry], target_bytes: u64) -> Vec<MergeGroup> {
    let mut groups = Vec::new();
    let mut open: Option<(MergeGroup, &CommitEntry, usize)> = None;
    let starts = starts(entries);
    for (index, entry) in entries.iter().enumerate() {
        let tables = || entry.children.values().flat_map(|table| &table.files);
        let bytes: u64 = entry.files.iter().chain(tables()).map(|f| f.bytes).sum();
        if bytes == 0 {
            continue;
        }
        let is_large = bytes.saturating_mul(2) >= target_bytes && entry.files.len() <= 1;
        let fits = |(group, of, began): &(MergeGroup, &CommitEntry, usize)| {
            let own: u64 = group.files().map(|file| file.bytes).sum();
            have_same_columns(of, entry)
                && own + bytes <= target_bytes
                && index - began < MOST_ENTRIES
        };
        if is_large || !open.as_ref().is_some_and(fits) {
            groups.extend(open.take().map(|(group, ..)| group));
        }
        if is_large {
            continue;
        }
        let start = starts[index];
        let (group, ..) = open.get_or_insert_with(|| {
            let group = MergeGroup {
                first: entries[start].sequence,
                last: entry.sequence,
                files: Vec::new(),
                children: BTreeMap::new(),
            };
            (group, entry, start)
        });
        group.last = entry.sequence;
        group.files.extend(entry.files.iter().cloned());
        for (name, table) in &entry.children {
            let files = group.children.entry(name.clone()).or_default();
            files.extend(table.files.iter().cloned());
        }
    }
    groups.extend(open.map(|(group, ..)| group));
    groups.iter_mut().for_each(|group| {
        group.children.retain(|_, files| files.len() > 1);
    });
    groups.retain(|group| group.files.len() > 1 || !group.children.is_empty());
    groups
}

/// For each entry, the first one whose rows its files have.
fn starts(entries: &[CommitEntry]) -> Vec<usize> {
    let mut starts: Vec<usize> = (0..entries.len()).collect();
    for index in 0..entries.len() {
        let holder = holder(entries, index);
        starts[holder] = starts[holder].min(index);
    }
    starts
}

fn have_same_columns(a: &CommitEntry, b: &CommitEntry) -> bool {
    let tables = a.children.iter();
    let mut tables = tables.filter_map(|(name, table)| Some((table, b.children.get(name)?)));
    let is_used = |table: &ChildTable| !table.files.is_empty();
    let is_same =
        |(a, b): (&ChildTable, &ChildTable)| a.schema == b.schema || !is_used(a) || !is_used(b);
    a.schema == b.schema && tables.all(is_same)
}

/// Merges group after group.
async fn merge_all(
    log: &mut CommitLog,
    target_bytes: u64,
    context: &Context,
    counts: &mut CompactionReport,
) -> Result<(), Error> {
    for group in groups(log.entries(), target_bytes) {
        if context.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let Some(last) = log.last() else {
            return Ok(());
        };
        let mut commit = Commit::amending(last);
        let sequence = log.next_sequence();
        let mut compacted = Compacted {
            first: group.first,
            last: group.last,
            files: group.files.clone(),
            children: BTreeMap::new(),
        };
        let mut bytes_after = 0;
        if group.files.len() > 1 {
            let merged = merge(log, &group.files, sequence).await?;
            compacted.files = vec![merged.file.clone()];
            bytes_after += merged.file.bytes;
            log.put(merged).await?;
        }
        for (name, files) in &group.children {
            let merged = merge(log, files, sequence).await?;
            let file = merged.file.clone();
            bytes_after += file.bytes;
            compacted.children.insert(name.clone(), vec![file]);
            log.put(merged).await?;
        }
        commit.compacted = vec![compacted];
        log.append(commit).await?;
        let gone = log.take_gone();
        set_aside(log.landing(), &gone).await?;
        add(counts, &group);
        counts.bytes_after += bytes_after;
        counts.entries.push(sequence.get());
    }
    Ok(())
}

/// Writes the rows of `files` as one file that the entry `sequence` names.
async fn merge(log: &CommitLog, files: &[DataFile], sequence: Sequence) -> Result<Encoded, Error> {
    let mut merged: Option<(MergedFile, Arc<Schema>)> = None;
    let rows: u64 = files.iter().map(|file| file.rows).sum();
    let landing = log.landing();
    let reads: Vec<_> = files
        .iter()
        .map(|file| landed_file::read_whole(landing, file))
        .collect();
    let mut reads = stream::iter(reads).buffered(READS);
    for file in files {
        let Some(batches) = reads.try_next().await? else {
            break;
        };
        let url = landing.url_of(&file.path);
        merged = computing(move || push(merged, &batches, url)).await?;
    }
    let folder = files.first().and_then(|file| file.path.rsplit_once('/'));
    let folder = folder.map_or("", |(folder, _)| folder).to_owned();
    let damaged = |reason: &str| Error::Landed {
        url: log.landing().url_of(&folder),
        reason: reason.to_owned(),
    };
    let Some((merged, _)) = merged else {
        return Err(damaged("its files have no rows"));
    };
    let own = folder.clone();
    let encoded = computing(move || merged.finish(&own, sequence)).await?;
    if encoded.file.rows != rows {
        return Err(damaged("its files have other numbers of rows than the log"));
    }
    Ok(encoded)
}

type OpenMerge = Option<(MergedFile, Arc<Schema>)>;

fn push(merged: OpenMerge, batches: &[RecordBatch], url: String) -> Result<OpenMerge, Error> {
    let Some(first) = batches.first() else {
        return Ok(merged);
    };
    let (mut file, schema) = match merged {
        Some(merged) => merged,
        None => (MergedFile::begin(first.schema())?, first.schema()),
    };
    if first.schema() != schema {
        let reason = "its columns are not those of its entry in the log".to_owned();
        return Err(Error::Landed { url, reason });
    }
    for batch in batches {
        file.push(batch)?;
    }
    Ok(Some((file, schema)))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{decode, ids::Hash128};

    use super::*;

    const SAMPLE: &str = include_str!("../../../schemas/samples/commit-2.json");

    fn entry(sequence: u64, bytes: u64) -> CommitEntry {
        let mut entry: CommitEntry = decode("sample", SAMPLE.as_bytes()).unwrap();
        entry.sequence = Sequence::new(sequence);
        entry.children.clear();
        entry.files = vec![DataFile {
            path: format!("data/{sequence}"),
            rows: 1,
            bytes,
            hash: Hash128::of(&sequence.to_be_bytes()),
        }];
        entry
    }

    fn ends(entries: &[CommitEntry], target: u64) -> Vec<(u64, u64)> {
        let groups = groups(entries, target);
        let ends = |group: &MergeGroup| (group.first.get(), group.last.get());
        groups.iter().map(ends).collect()
    }

    #[test]
    fn neighbours_are_merged_up_to_the_target_and_large_files_stay() {
        let sizes = [10, 10, 60, 10, 10, 40, 40, 30, 5];
        let entries: Vec<CommitEntry> = (0..).zip(sizes).map(|(i, b)| entry(i, b)).collect();
        assert_eq!(ends(&entries, 100), [(0, 1), (3, 6), (7, 8)]);
        assert_eq!(ends(&entries, 1_000), [(0, 8)]);
        assert!(ends(&entries, 10).is_empty());
    }

    #[test]
    fn other_columns_end_a_group_and_entries_without_files_do_not() {
        let mut entries: Vec<CommitEntry> = (0..6).map(|i| entry(i, 10)).collect();
        entries[1].files.clear();
        for entry in &mut entries[3..] {
            entry.schema.version = entry.schema.version.next();
        }
        assert_eq!(ends(&entries, 1_000), [(0, 2), (3, 5)]);
    }

    #[test]
    fn a_merged_range_is_merged_again_as_a_whole() {
        let mut entries: Vec<CommitEntry> = (0..4).map(|i| entry(i, 10)).collect();
        for entry in &mut entries[..2] {
            entry.files.clear();
            entry.merged_into = Some(Sequence::new(2));
        }
        assert_eq!(ends(&entries, 1_000), [(0, 3)]);
    }
}
