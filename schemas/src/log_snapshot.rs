//! Snapshot of a commit log: `snapshots/<sequence, 20 digits>-<first 16 digits of its hash>.json`, and its parts.
//!
//! A snapshot has what the entries of a log amount to up to `sequence`, so that a reader need not read each of them. The log
//! remains the only truth: a snapshot that is missing or does not fit is passed over.
//!
//! - The **head** is this document. It counts only if its bytes have the hash in its name, and the log's entry `sequence` has
//!   the bytes with `entry_hash`.
//! - A **part** is `snapshot-parts/<first>-<last>-<hash>.ndjson.zst`: entries as they count now, one a line, in order, after
//!   [`crate::log_effect::apply`] and [`crate::log_effect::settle`], compressed with zstd. Parts follow each other from
//!   sequence 0 without a gap.
//! - A **merged file** is `snapshot-parts/<sequence>-<hash>.parquet`: what many entries have added to the frontier of a crawl,
//!   or the validators of many entries, of each page the latest.
//!
//! Parts and merged files are written before the head that names them, all are created only if absent, and none ever changes.
//! A writer removes old heads, then parts that no head names.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    amendment::{SettingsChanged, SettingsRecord},
    commit::{CommitEntry, DataFile, Interval},
    format::{LOG_SNAPSHOT, versioned},
    ids::{Hash128, Name, Sequence},
};

/// Most elements of [`LogSums::highs`] and [`LogSums::ends`]: the newest ones.
pub const MOST_HIGHS: usize = 16;

/// Head of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogSnapshot {
    /// `feedline.log-snapshot`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// Oldest format version whose readers may use it.
    pub min_reader: u32,
    /// The source.
    pub source: Name,
    /// Last entry that it covers.
    pub sequence: Sequence,
    /// xxh3-128 of that entry's bytes.
    pub entry_hash: Hash128,
    /// Its parts, in order.
    pub parts: Vec<LogPart>,
    /// The two newest entries that it covers, complete as they count now; fewer where the log has fewer.
    pub newest: Vec<CommitEntry>,
    /// Files whose names begin with a lower number were compared with the log.
    pub tidied: Sequence,
    /// `html`: merged files of the frontier, in the order of the discoveries: all that the covered entries have added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frontier: Vec<MergedList>,
    /// With `refresh`: merged files of validators of the covered entries; of a page the latest counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validators: Vec<MergedList>,
}
versioned!(LogSnapshot, LOG_SNAPSHOT);

/// Merged file of what a range of entries has added to a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MergedList {
    /// Last entry of the range; the first one follows on that of the file before.
    pub last: Sequence,
    /// The file.
    pub file: DataFile,
}

impl LogSnapshot {
    /// Sums over all entries that it covers.
    #[must_use]
    pub fn sums(&self) -> LogSums {
        let parts = self.parts.iter();
        parts.fold(LogSums::default(), |sums, part| sums.join(&part.sums))
    }

    /// Highest cursors: the newest ones of each part, so that there are some of all times.
    #[must_use]
    pub fn highs(&self) -> Vec<String> {
        let highs = self.parts.iter().flat_map(|part| &part.sums.highs);
        let mut highs: Vec<String> = highs.cloned().collect();
        highs.dedup();
        highs
    }

    /// Ends of passes over slices: the newest ones of each part, so that there are some of all times.
    #[must_use]
    pub fn ends(&self) -> Vec<i64> {
        let ends = self.parts.iter().flat_map(|part| &part.sums.ends);
        let mut ends: Vec<i64> = ends.copied().collect();
        ends.dedup();
        ends
    }

    /// Paths of the parts and merged files that it names.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let parts = self.parts.iter().map(|part| part.path.as_str());
        let lists = self.frontier.iter().chain(&self.validators);
        parts.chain(lists.map(|list| list.file.path.as_str()))
    }
}

/// Part of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogPart {
    /// Path relative to the source's landing folder.
    pub path: String,
    /// First entry.
    pub first: Sequence,
    /// Last entry.
    pub last: Sequence,
    /// Rows of the data files that they name.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// xxh3-128 of the part.
    pub hash: Hash128,
    /// Sums over its entries.
    pub sums: LogSums,
    /// `slices`: an interval that has all those that its batches have read; absent if they have read none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Interval>,
}

impl LogPart {
    /// Number of its entries.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.last.get() - self.first.get() + 1
    }
}

/// Sums over the entries of a log, as reports need them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogSums {
    /// Batches since the last reset; amendments are none.
    pub batches: u64,
    /// Data files, those of child tables included.
    #[serde(skip_serializing_if = "is_zero")]
    pub files: u64,
    /// Bytes of the data files, those of child tables included.
    pub bytes: u64,
    /// Newest file of rejected records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejects: Option<DataFile>,
    /// Newest record of settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsRecord>,
    /// Newest change of settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<SettingsChanged>,
    /// Schema versions of entries with columns.
    pub schema_versions: BTreeSet<u32>,
    /// Folders that resets have moved earlier data to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept_folders: Vec<String>,
    /// Highest cursors of the source, each once, at most [`MOST_HIGHS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub highs: Vec<String>,
    /// Ends of the passes over slices, each once, at most [`MOST_HIGHS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<i64>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Appends the elements of `more`, each once if equal ones follow each other, and keeps the newest [`MOST_HIGHS`].
fn append_newest<T: Clone + PartialEq>(list: &mut Vec<T>, more: &[T]) {
    list.extend_from_slice(more);
    list.dedup();
    let surplus = list.len().saturating_sub(MOST_HIGHS);
    list.drain(..surplus);
}

impl LogSums {
    /// Adds the next entry.
    pub fn add(&mut self, entry: &CommitEntry) {
        if let Some(folder) = &entry.reset_to {
            self.begin_again();
            self.kept_folders.push(folder.clone());
        }
        self.batches += u64::from(entry.is_batch());
        let children = entry.children.values().flat_map(|table| &table.files);
        for file in entry.files.iter().chain(children) {
            self.files += 1;
            self.bytes += file.bytes;
        }
        if let Some(file) = entry.rejects.last() {
            self.rejects = Some(file.clone());
        }
        if let Some(record) = &entry.settings {
            self.settings = Some(record.clone());
            if !record.changes.is_empty() {
                self.change = Some(SettingsChanged {
                    sequence: entry.sequence.get(),
                    changes: record.changes.clone(),
                });
            }
        }
        if !entry.schema.columns.is_empty() {
            self.schema_versions.insert(entry.schema.version.get());
        }
        let position = &entry.state.position;
        let high = position.run().and_then(|run| run.high.clone());
        append_newest(&mut self.highs, high.as_slice());
        let end = position.ledger().map(|ledger| ledger.target[1]);
        append_newest(&mut self.ends, end.as_slice());
    }

    /// Forgets what a reset ends.
    fn begin_again(&mut self) {
        self.batches = 0;
        self.highs.clear();
        self.ends.clear();
    }

    /// Sums over the entries of `self` and, after them, those of `next`.
    #[must_use]
    pub fn join(mut self, next: &Self) -> Self {
        if !next.kept_folders.is_empty() {
            self.begin_again();
        }
        let next = next.clone();
        self.batches += next.batches;
        self.files += next.files;
        self.bytes += next.bytes;
        self.rejects = next.rejects.or(self.rejects);
        self.settings = next.settings.or(self.settings);
        self.change = next.change.or(self.change);
        self.schema_versions.extend(next.schema_versions);
        self.kept_folders.extend(next.kept_folders);
        append_newest(&mut self.highs, &next.highs);
        append_newest(&mut self.ends, &next.ends);
        self
    }

    /// Sums over `entries`, after those that `self` has.
    #[must_use]
    pub fn with(mut self, entries: &[CommitEntry]) -> Self {
        entries.iter().for_each(|entry| self.add(entry));
        self
    }
}

/// Path of a head with these bytes.
#[must_use]
pub fn head_path(sequence: Sequence, bytes: &[u8]) -> String {
    format!(
        "{HEADS}/{:020}-{}.json",
        sequence.get(),
        Hash128::of(bytes).short()
    )
}

/// Folder of the heads.
pub const HEADS: &str = "snapshots";
/// Folder of the parts.
pub const PARTS: &str = "snapshot-parts";

/// Sequence and hash digits in the path of a head.
#[must_use]
pub fn parse_head_path(path: &str) -> Option<(Sequence, &str)> {
    let name = path.strip_prefix(HEADS)?.strip_prefix('/')?;
    let (sequence, hash) = name.strip_suffix(".json")?.split_once('-')?;
    let is_ours = sequence.len() == 20 && hash.len() == 16;
    let sequence = is_ours.then(|| sequence.parse().ok()).flatten()?;
    Some((Sequence::new(sequence), hash))
}

/// Path of a part with these bytes.
#[must_use]
pub fn part_path(first: Sequence, last: Sequence, bytes: &[u8]) -> String {
    format!(
        "{PARTS}/{:020}-{:020}-{}.ndjson.zst",
        first.get(),
        last.get(),
        Hash128::of(bytes).short()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_head_gives_its_sequence_and_hash() {
        let path = head_path(Sequence::new(64), b"bytes");
        let hash = Hash128::of(b"bytes").short();
        assert_eq!(parse_head_path(&path), Some((Sequence::new(64), &*hash)));
        for other in [
            "snapshots/64.json",
            "log/00000000000000000064.json",
            "snapshots/",
        ] {
            assert_eq!(parse_head_path(other), None);
        }
    }
}
