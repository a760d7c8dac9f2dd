//! Merging small data files into large ones, and deleting superseded files.
//!
//! A merge is one entry of the log for each merged file ([`Compacted`]), so memory holds one of them. A
//! killed command leaves whole merges, and the next one continues. Rows, their order and their
//! provenance stay: each row keeps the sequence number and the row number of its batch. Rejects,
//! archived responses and the frontier of a crawl stay in their files.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{array::RecordBatch, datatypes::Schema};
use feedline_schemas::{
    amendment::{AmendReport, CompactionReport},
    commit::{CommitEntry, Compacted, DataFile},
    config::PipelineConfig,
    ids::{Name, Sequence},
    record::RecordSchema,
    report::{SourceReport, Warning},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tracing::warn;

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
    superseded_files::set_aside,
};

/// Size of merged files in bytes, unless another is given.
pub const TARGET_BYTES: u64 = 128 << 20;
/// Files that are read at the same time, in their order, if they are small.
const READS: u64 = 8;
/// Bytes of files that are read at the same time, unless one file has more.
const READ_BYTES: u64 = 32 << 20;
/// Most entries that one merge covers.
const MOST_ENTRIES: u64 = 10_000;

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
    let mut amending = Amending::open_tail(config, source, context).await?;
    let mut report = amending.report("compact", dry_run);
    if amending.log.last().is_none() {
        report
            .notes
            .push("nothing has landed yet, so there is nothing to merge".into());
        report.next = amending.next(&Default::default());
        return Ok(report);
    }
    let log = &mut amending.log;
    let mut counts = CompactionReport::default();
    if dry_run {
        for group in groups(log, target_bytes).await? {
            add(&mut counts, &group);
        }
        let now = context.clock.unix();
        expire(config, log, &mut counts, now, true).await?;
    } else {
        let holding = Holding::of(log.landing(), source, context);
        // Boxed: the future of an amendment is large.
        let work = Box::pin(merge_and_expire(config, log, target_bytes, context));
        counts = holding.during(work).await?;
    }
    report.compacted = Some(counts);
    let state = amending.log.last().map(|last| last.state.clone());
    amending.finish(&mut report, &state.unwrap_or_default());
    Ok(report)
}

/// Merges the files of a source after its run, if `ingest.compact` is set and they are many. The run
/// holds the lease, or none: a program that commits meanwhile ends the compaction. Its failure is a
/// warning, since it does not affect the run.
pub(crate) async fn compact_when_due(
    config: &PipelineConfig,
    source: &Name,
    context: &Context,
    report: &mut SourceReport,
) {
    let compact = config.ingest.as_ref();
    let Some(compact) = compact.and_then(|ingest| ingest.compact.as_ref()) else {
        return;
    };
    let target_bytes = compact.target_bytes.get().bytes();
    // Files of half the size stay.
    let large = (2 * report.bytes).div_ceil(target_bytes);
    if report.files.saturating_sub(large) <= compact.files.get() || context.is_cancelled() {
        return;
    }
    let work = async {
        let mut amending = Amending::open_tail(config, source, context).await?;
        let log = &mut amending.log;
        let counts = merge_and_expire(config, log, target_bytes, context).await?;
        let sums = log.sums().await?;
        let warnings: Vec<Warning> = log.delta_warnings().cloned().collect();
        Ok::<_, Error>((counts, sums, warnings))
    };
    // Boxed: the future of an amendment is large.
    match Box::pin(work).await {
        Ok((counts, sums, warnings)) => {
            (report.files, report.bytes) = (sums.files, sums.bytes);
            report.warnings.extend(warnings);
            report.compacted = Some(counts);
        }
        Err(Error::Cancelled) => {}
        Err(error) => {
            warn!(%source, %error, "small files were not merged");
            let message = format!("small files were not merged after the run: {error}");
            let warning = Warning::new("compaction_failed", message).with_key("ingest.compact");
            report.warnings.push(warning);
        }
    }
}

async fn merge_and_expire(
    config: &PipelineConfig,
    log: &mut CommitLog,
    target_bytes: u64,
    context: &Context,
) -> Result<CompactionReport, Error> {
    let mut counts = CompactionReport::default();
    sweep(log.landing()).await;
    for group in groups(log, target_bytes).await? {
        if context.is_cancelled() {
            return Err(Error::Cancelled);
        }
        merge_group(log, &group, &mut counts).await?;
    }
    expire(config, log, &mut counts, context.clock.unix(), false).await?;
    if !counts.entries.is_empty() {
        log.cover_amendments().await;
    }
    Ok(counts)
}

/// Entries whose data files become one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MergeGroup {
    first: Sequence,
    last: Sequence,
    files: Vec<DataFile>,
    /// Files of each child table. A single one moves to the last entry too, so that child rows are in
    /// files of the entry that has their records.
    children: BTreeMap<Name, Vec<DataFile>>,
}

impl MergeGroup {
    /// Lists of files that become one each.
    fn tables(&self) -> impl Iterator<Item = &Vec<DataFile>> {
        let lists = std::iter::once(&self.files).chain(self.children.values());
        lists.filter(|files| files.len() > 1)
    }
}

fn add(counts: &mut CompactionReport, group: &MergeGroup) {
    for files in group.tables() {
        counts.files_before += files.len() as u64;
        counts.files_after += 1;
        counts.rows += files.iter().map(|file| file.rows).sum::<u64>();
        counts.bytes_before += files.iter().map(|file| file.bytes).sum::<u64>();
    }
}

/// Groups of the log's entries whose files are merged.
async fn groups(log: &mut CommitLog, target_bytes: u64) -> Result<Vec<MergeGroup>, Error> {
    let start = || Grouping::new(target_bytes);
    let grouping = log.fold(start, Grouping::add).await?;
    Ok(grouping.finish())
}

/// Neighbouring entries whose files are small and have the same columns, found entry by entry.
#[derive(Debug, Default)]
struct Grouping {
    target_bytes: u64,
    groups: Vec<MergeGroup>,
    open: Option<OpenGroup>,
    /// The entry that has the files of merged ones, and the first of these.
    merged: Option<(Sequence, Sequence)>,
    /// Such an entry, if some of the merged ones have files left: earlier releases moved no single
    /// file of a child table.
    incomplete: Option<Sequence>,
}

/// A group that takes in further entries.
#[derive(Debug)]
struct OpenGroup {
    group: MergeGroup,
    bytes: u64,
    schema: RecordSchema,
    /// Schemas of the child tables that have files.
    tables: BTreeMap<Name, RecordSchema>,
}

impl OpenGroup {
    fn fits(&self, entry: &CommitEntry, bytes: u64, target_bytes: u64) -> bool {
        // The files count as those of the last entry, so it has all tables, with the schemas of the files.
        let is_same = self.tables.iter().all(|(name, own)| {
            let table = entry.children.get(name);
            table.is_some_and(|table| table.schema == *own)
        });
        let count = entry.sequence.get() - self.group.first.get();
        self.schema == entry.schema
            && is_same
            && self.bytes + bytes <= target_bytes
            && count < MOST_ENTRIES
    }
}

impl Grouping {
    fn new(target_bytes: u64) -> Self {
        Self {
            target_bytes,
            ..Self::default()
        }
    }

    /// Adds the next entry of the log.
    fn add(&mut self, entry: &CommitEntry) {
        let first = self.first_of(entry);
        let tables = || entry.children.values().flat_map(|table| &table.files);
        let bytes: u64 = entry.files.iter().chain(tables()).map(|f| f.bytes).sum();
        if bytes == 0 {
            return;
        }
        if entry.merged_into.is_some() {
            self.incomplete = entry.merged_into;
        }
        // A part of a merged range cannot be merged with others.
        let is_incomplete = entry.merged_into.is_some() || self.incomplete == Some(entry.sequence);
        let is_large = bytes.saturating_mul(2) >= self.target_bytes && entry.files.len() <= 1;
        let stays = is_large || is_incomplete;
        let open = self.open.as_ref();
        if stays || !open.is_some_and(|open| open.fits(entry, bytes, self.target_bytes)) {
            self.close();
        }
        if stays {
            return;
        }
        let open = self.open.get_or_insert_with(|| OpenGroup {
            group: MergeGroup {
                first,
                last: entry.sequence,
                files: Vec::new(),
                children: BTreeMap::new(),
            },
            bytes: 0,
            schema: entry.schema.clone(),
            tables: BTreeMap::new(),
        });
        open.bytes += bytes;
        open.group.last = entry.sequence;
        open.group.files.extend(entry.files.iter().cloned());
        let used = entry.children.iter();
        for (name, table) in used.filter(|(_, table)| !table.files.is_empty()) {
            open.tables
                .entry(name.clone())
                .or_insert_with(|| table.schema.clone());
            let files = open.group.children.entry(name.clone()).or_default();
            files.extend(table.files.iter().cloned());
        }
    }

    /// The first entry whose rows the files of `entry` have.
    fn first_of(&mut self, entry: &CommitEntry) -> Sequence {
        match (entry.merged_into, self.merged) {
            (Some(holder), Some((of, _))) if of == holder => {}
            (Some(holder), _) => self.merged = Some((holder, entry.sequence)),
            (None, Some((holder, first))) if holder == entry.sequence => return first,
            (None, _) => {}
        }
        entry.sequence
    }

    fn close(&mut self) {
        let Some(OpenGroup { group, .. }) = self.open.take() else {
            return;
        };
        if group.tables().next().is_some() {
            self.groups.push(group);
        }
    }

    fn finish(mut self) -> Vec<MergeGroup> {
        self.close();
        self.groups
    }
}

/// Writes the merged files of a group and the entry that names them.
async fn merge_group(
    log: &mut CommitLog,
    group: &MergeGroup,
    counts: &mut CompactionReport,
) -> Result<(), Error> {
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
        let mut files = files.clone();
        if files.len() > 1 {
            let merged = merge(log, &files, sequence).await?;
            files = vec![merged.file.clone()];
            bytes_after += merged.file.bytes;
            log.put(merged).await?;
        }
        compacted.children.insert(name.clone(), files);
    }
    commit.compacted = vec![compacted];
    log.append(commit).await?;
    // Older entries may not be in memory, so the log does not name all files that are gone.
    log.take_gone();
    let gone: Vec<DataFile> = group.tables().flatten().cloned().collect();
    set_aside(log.landing(), &gone).await?;
    add(counts, group);
    counts.bytes_after += bytes_after;
    counts.entries.push(sequence.get());
    Ok(())
}

/// Writes the rows of `files` as one file that the entry `sequence` names.
async fn merge(log: &CommitLog, files: &[DataFile], sequence: Sequence) -> Result<Encoded, Error> {
    let mut merged: OpenMerge = None;
    let rows: u64 = files.iter().map(|file| file.rows).sum();
    let landing = log.landing();
    let largest = files.iter().map(|file| file.bytes).max().unwrap_or(1);
    let at_once = (READ_BYTES / largest.max(1)).clamp(1, READS);
    let reads: Vec<_> = files
        .iter()
        .map(|file| landed_file::read_whole(landing, file))
        .collect();
    let at_once = usize::try_from(at_once).unwrap_or(1);
    let mut reads = stream::iter(reads).buffered(at_once);
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

/// The merged file so far, with its columns.
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
    use feedline_schemas::{
        decode,
        ids::{Hash128, SchemaVersion},
    };

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
        let mut grouping = Grouping::new(target);
        entries.iter().for_each(|entry| grouping.add(entry));
        let groups = grouping.finish();
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

    #[test]
    fn each_child_table_of_a_group_has_one_schema() {
        let table = |version: u32, files: usize| {
            let mut entry: CommitEntry = decode("sample", SAMPLE.as_bytes()).unwrap();
            let (_, mut table) = entry.children.pop_first().unwrap();
            table.schema.version = SchemaVersion::new(version);
            table.files.truncate(files);
            table
        };
        let mut entries: Vec<CommitEntry> = (0..6).map(|i| entry(i, 10)).collect();
        let name = Name::new("tags").unwrap();
        // It is not in the first entries, and two entries have no rows of it.
        for (index, version, files) in [(1, 1, 0), (2, 1, 1), (3, 2, 0), (4, 2, 1), (5, 2, 1)] {
            let table = table(version, files);
            entries[index].children.insert(name.clone(), table);
        }
        // Files of the first version would count as those of an entry with the second one.
        assert_eq!(ends(&entries, 100_000), [(0, 2), (3, 5)]);
        // Nor do they count as those of an entry without the table.
        entries[3].children.clear();
        assert_eq!(ends(&entries, 100_000), [(0, 2), (3, 5)]);
    }

    #[test]
    fn a_merged_range_with_files_left_in_it_stays_as_it_is() {
        let mut entries: Vec<CommitEntry> = (0..7).map(|i| entry(i, 10)).collect();
        let sample: CommitEntry = decode("sample", SAMPLE.as_bytes()).unwrap();
        for entry in &mut entries[2..4] {
            entry.files.clear();
            entry.merged_into = Some(Sequence::new(4));
        }
        entries[3].children = sample.children;
        assert_eq!(ends(&entries, 100_000), [(0, 1), (5, 6)]);
    }
}
