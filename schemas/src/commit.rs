//! Commit log of a source: `log/<sequence, 20 digits>.json`, one object per committed batch.
//!
//! An entry names the batch's files and carries the state to resume from, so data and state move in
//! one atomic step: the creation of the entry. Files are written (and made durable) before the
//! entry that names them; a file that no entry names is garbage, which the next start moves to
//! `orphans/`. Entries are created only if absent, contiguous from sequence 0, and chained by
//! `prev_hash`.

mod page_run;
mod presence;
mod read_files;
mod replaced;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    amendment::{SettingsRecord, Withdrawn},
    format::{COMMIT, COMMIT_MIN_READER, versioned},
    ids::{Hash128, Name, Sequence, WriterEpoch},
    record::{ColumnType, RecordSchema},
    warning::Warning,
};

pub use self::{
    page_run::{CursorAhead, FailedPages, Interruption, PageRun, ShortPage},
    presence::{Missing, Presence},
    read_files::{FileMark, FilePart},
    replaced::{Compacted, Replaced},
};

/// One entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitEntry {
    /// `feedline.commit`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// Oldest format version whose readers may use the entry and resume from it, without the fields that they do not know;
    /// absent in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_reader: Option<u32>,
    /// The source.
    pub source: Name,
    /// Position in the log.
    pub sequence: Sequence,
    /// xxh3-128 of the previous entry's bytes; absent in the first.
    pub prev_hash: Option<Hash128>,
    /// Epoch of the writer; a writer that finds a higher one than its own stops.
    pub epoch: WriterEpoch,
    /// Unique id of the process run that wrote the entry.
    pub run_id: String,
    /// Unique id of this write; by it a writer recognises its own entry after an unknown outcome.
    pub batch_id: String,
    /// Hash of the part of the source's configuration that decides what is fetched and how it is parsed.
    pub config_hash: Hash128,
    /// Schema the files of this batch have.
    pub schema: RecordSchema,
    /// Landed data files (Parquet); empty when the batch had no rows to land.
    pub files: Vec<DataFile>,
    /// Files of rejected records (Parquet).
    pub rejects: Vec<DataFile>,
    /// `html`: files of what the batch added to the frontier (Parquet). The frontier of the crawl is what all entries
    /// added, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frontier: Vec<DataFile>,
    /// With `refresh`: files of validators, which show that the batch's pages are unchanged
    /// (Parquet); of a page the latest counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validators: Vec<DataFile>,
    /// With `archive_raw`: files of the responses that the batch was made of (Parquet).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raw: Vec<DataFile>,
    /// Tables made of lists in the records (`contract.children`), by name: what they have had so far, and the files that
    /// this batch adds to them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<Name, ChildTable>,
    /// `files`: the files that the records of the batch come from, in the order of the records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<FilePart>,
    /// Data files of earlier entries that no longer count, since what they hold has been superseded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<Replaced>,
    /// `ingest compact`: ranges of earlier entries whose data files were merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compacted: Vec<Compacted>,
    /// `files`: files with the marks of read files that the position no longer lists (Parquet), as far as this entry
    /// adds them; see [`SourceState::marks`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<DataFile>,
    /// Counts of this batch alone.
    pub counts: BatchCounts,
    /// Settings of the source that hold from this entry on, where none are recorded before or others are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsRecord>,
    /// Files of earlier entries that no longer count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withdrawn: Vec<Withdrawn>,
    /// `ingest reset`: the folder beside the landing folder that all earlier entries and their files went to; none of them
    /// counts any more, and reading begins at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_to: Option<String>,
    /// `ingest rewind`: the last entry that counts; those between it and this one have landed nothing, and the state is
    /// the one after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewound_to: Option<Sequence>,
    /// Retention and `ingest delete`: files that no longer count and whose bytes are deleted once this entry is there, by
    /// the paths that they had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expired: Vec<String>,
    /// In memory and in snapshots, never in the log: the entry whose files have the rows of this one, after a compaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<Sequence>,
    /// State after this batch.
    pub state: SourceState,
}
versioned!(CommitEntry, COMMIT);

impl CommitEntry {
    /// True for an entry that landed no batch and only records a change.
    #[must_use]
    pub fn is_amendment(&self) -> bool {
        let has_changes = self
            .settings
            .as_ref()
            .is_some_and(|settings| !settings.changes.is_empty());
        let landed = self.counts.pages + self.counts.rows + self.counts.rejected;
        let is_other = !self.withdrawn.is_empty()
            || self.reset_to.is_some()
            || self.rewound_to.is_some()
            || !self.compacted.is_empty()
            || !self.expired.is_empty();
        landed == 0 && (has_changes || is_other)
    }

    /// True for an entry of a batch: it is no amendment, and no rewind or reset has taken it back.
    #[must_use]
    pub fn is_batch(&self) -> bool {
        let is_forgotten =
            self.state == SourceState::default() && self.counts == BatchCounts::default();
        !self.is_amendment() && !is_forgotten
    }

    /// Oldest format version whose builds may read the entry and resume from it: older ones know neither what
    /// `compacted`, `rewound_to` and `expired` do to earlier entries, nor where `marks` are, nor the bound after an
    /// `interrupted` run of pages, nor that `failed` values may have landed some records, nor `failed_pages`.
    #[must_use]
    pub fn oldest_reader(&self) -> u32 {
        let has_new = !self.compacted.is_empty()
            || self.rewound_to.is_some()
            || !self.expired.is_empty()
            || !self.marks.is_empty()
            || !self.state.marks.is_empty()
            || self
                .state
                .position
                .run()
                .is_some_and(|run| run.interrupted.is_some())
            || self.state.position.has_failures();
        match has_new {
            true => COMMIT.version,
            false => COMMIT_MIN_READER,
        }
    }

    /// All files that the entry names, of whatever kind, but for those in `replaced` and `compacted`: readers of a log put
    /// them into the entries that they belong to ([`Replaced::put_into`]). A file of a landing zone's folders that no entry
    /// names is garbage.
    pub fn named_files(&self) -> impl Iterator<Item = &DataFile> {
        // Every field is looked at here, so that a new list of files cannot be forgotten.
        let Self {
            files,
            rejects,
            frontier,
            validators,
            raw,
            children,
            marks,
            replaced: _,
            compacted: _,
            parts: _,
            format: _,
            version: _,
            min_reader: _,
            source: _,
            sequence: _,
            prev_hash: _,
            epoch: _,
            run_id: _,
            batch_id: _,
            config_hash: _,
            schema: _,
            counts: _,
            settings: _,
            withdrawn: _,
            reset_to: _,
            rewound_to: _,
            expired: _,
            merged_into: _,
            state: _,
        } = self;
        let lists = [files, rejects, frontier, validators, raw, marks];
        let tables = children.values().map(|table| &table.files);
        lists.into_iter().chain(tables).flatten()
    }
}

/// A table of the items of a list in a source's records.
///
/// Its files have the columns `_feedline_seq`, `_feedline_row` (its own row in the batch, from 0), `_feedline_hash` and
/// `_feedline_parent` (hash and row of the record that the item is in), `_feedline_index` (place in the list, from 0; for a
/// list inside the items of another one more, see [`crate::record::system::index`]), and then its own. Rows are in the order
/// of the records and of their lists. Items that are no objects are stored in the column `value`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChildTable {
    /// Path of the list, from the outermost: in the record, in the items of that list, and so on.
    pub lists: Vec<String>,
    /// Kind of its items; absent as long as all of them were null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<ItemKind>,
    /// Schema that its files of this batch have; its versions are its own.
    pub schema: RecordSchema,
    /// Files that the batch landed (Parquet).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<DataFile>,
    /// Columns that had values in the rows landed so far.
    #[serde(default, skip_serializing_if = "Presence::is_empty")]
    pub presence: Presence,
}

/// Kind of the items of a child table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// Objects; their keys are columns.
    Objects,
    /// Scalars or lists, in one column `value`.
    Values,
}

/// A file of the landing zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataFile {
    /// Path relative to the source's landing folder.
    pub path: String,
    /// Rows.
    pub rows: u64,
    /// File size in bytes.
    pub bytes: u64,
    /// xxh3-128 of the file.
    pub hash: Hash128,
}

/// Counts of the records of one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchCounts {
    /// Records landed; as a total of several batches, less those that were superseded.
    pub rows: u64,
    /// Rows of earlier batches that this one supersedes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub superseded: u64,
    /// Records left out because an identical one had landed shortly before.
    pub duplicates: u64,
    /// Rejected records.
    pub rejected: u64,
    /// Rejected records by reason.
    pub rejected_by_reason: BTreeMap<String, u64>,
    /// Values converted without loss to the column's type (such as `"12"` in an integer column), by column.
    pub coerced: BTreeMap<String, u64>,
    /// Values that did not fit their column and were landed as null (contract `null_value`), by column.
    #[serde(default)]
    pub nulled: BTreeMap<String, u64>,
    /// Rows landed in each child table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<String, u64>,
    /// Pages (or files' parts) read.
    pub pages: u64,
    /// `html`, and `rest` with `for_each`: pages that gave no record for a reason that is no failure, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<String, u64>,
    /// Other decisions of the contract, by kind and column.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub decisions: Decisions,
}

/// Decisions by kind (a fixed word, such as `new_column`) and column. Of one kind at most
/// [`MOST_PATHS`] columns are listed; the others are counted together under [`OTHER_PATHS`].
pub type Decisions = BTreeMap<String, BTreeMap<String, Noted>>;

/// Most columns that are listed in [`Decisions`] of one kind.
pub const MOST_PATHS: usize = 50;
/// Name for all columns beyond [`MOST_PATHS`].
pub const OTHER_PATHS: &str = "...";

/// Count of a decision, with the details of the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Noted {
    /// Number of times.
    pub count: u64,
    /// The first one, for a person.
    pub sample: String,
}

/// Adds to `decisions`; `sample` is asked for the first time only.
pub fn note(
    decisions: &mut Decisions,
    kind: &str,
    path: &str,
    count: u64,
    sample: impl FnOnce() -> String,
) {
    if !decisions.contains_key(kind) {
        decisions.insert(kind.to_owned(), BTreeMap::new());
    }
    let Some(paths) = decisions.get_mut(kind) else {
        return;
    };
    let is_told = paths.contains_key(path) || paths.len() < MOST_PATHS;
    let path = if is_told { path } else { OTHER_PATHS };
    match paths.get_mut(path) {
        Some(noted) => noted.count += count,
        None => {
            let sample = sample();
            paths.insert(path.to_owned(), Noted { count, sample });
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// State of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceState {
    /// Totals of all batches so far.
    pub totals: BatchCounts,
    /// Position to resume reading from.
    pub position: Position,
    /// Unix time in seconds before which no request is made, since the server asked for a wait longer than
    /// `retry.max_wait_s`. An entry may have nothing else to say; the next one that lands something has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_unix_s: Option<u64>,
    /// Length of that wait from when the entry was written, in seconds: a clock that was ahead then must not hold the source up
    /// for longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_wait_s: Option<u64>,
    /// Columns that had values in the records landed so far.
    #[serde(default, skip_serializing_if = "Presence::is_empty")]
    pub presence: Presence,
    /// Warnings that hold as of this entry, at most one of each code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Types found before anything landed, of columns that no record has brought a value for yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub planned: BTreeMap<String, ColumnType>,
    /// `files`: files with the marks of read files that `position` does not list, from the oldest to the newest; of a file
    /// with several marks the latest counts, and one in `position` before all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<DataFile>,
}

/// Position to resume reading from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum Position {
    /// Nothing has been read yet.
    #[default]
    Start,
    /// In a run of pages.
    Page {
        /// Number of the next page, from 0: how many have been committed.
        page: u64,
        /// Cursor, offset, or next URL to request it with (the URL without its origin where that is
        /// the source's).
        cursor: Option<String>,
        /// `rest`: what it knows of the run of pages. `html`: pages that failed.
        #[serde(default, skip_serializing_if = "PageRun::is_default")]
        run: PageRun,
    },
    /// In a list of files.
    File {
        /// Files read to their end, by URL, in order; further ones are in [`SourceState::marks`].
        done: Vec<FileMark>,
        /// File being read and records already committed from it.
        current: Option<FileProgress>,
    },
    /// Everything has been read.
    Done {
        /// Pages read, in total.
        pages: u64,
        /// Files read, for a `files` source, and further ones in [`SourceState::marks`]; a later run reads only files that
        /// are not listed.
        files: Vec<FileMark>,
        /// `rest`: the run of pages that has ended. `html`: pages that failed.
        #[serde(default, skip_serializing_if = "PageRun::is_default")]
        run: PageRun,
    },
}

impl Position {
    /// The run of pages that it is in or at the end of.
    #[must_use]
    pub fn run(&self) -> Option<&PageRun> {
        match self {
            Self::Page { run, .. } | Self::Done { run, .. } => Some(run),
            Self::Start | Self::File { .. } => None,
        }
    }

    /// Progress of slices and values, where a source has them.
    #[must_use]
    pub fn ledger(&self) -> Option<&Ledger> {
        self.run().and_then(|run| run.ledger.as_deref())
    }

    /// Returns true if requests of some values of a list failed, and the next run sends them again.
    fn has_failed_values(&self) -> bool {
        let ledger = self.ledger();
        ledger.is_some_and(|ledger| !ledger.failed.is_empty())
    }

    /// `html`: the pages that failed; `None` if there are none.
    #[must_use]
    pub fn failed_pages(&self) -> Option<&FailedPages> {
        let pages = self.run().map(|run| &*run.failed_pages);
        pages.filter(|pages| !pages.is_default())
    }

    /// Returns true if values of a list or pages of a crawl failed, so that records are missing.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        self.has_failed_values() || self.failed_pages().is_some()
    }

    /// The ledger, to change it.
    pub fn ledger_mut(&mut self) -> Option<&mut Ledger> {
        match self {
            Self::Page { run, .. } | Self::Done { run, .. } => run.ledger.as_deref_mut(),
            Self::Start | Self::File { .. } => None,
        }
    }
}

/// From the first to before the second: dates and times in the smallest units of the slices' format since 1970 UTC (such as
/// days), integers as they are. Without slices a value is the whole of `[0, 1]`.
pub type Interval = [i64; 2];

/// Progress of a source with slices or a list of values. A pass reads all values one after another,
/// and of each the slices that are not done; the next one begins when it is over. Between passes
/// all values have the same progress, so that the ledger does not grow with their number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ledger {
    /// Done by the passes before, of the first `old` values; in order, merged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<Interval>,
    /// The range of the pass, or of the last one.
    pub target: Interval,
    /// Number of values that the pass reads; 1 without a list of them.
    pub values: u64,
    /// xxh3-128 of these values, which shows that they are the same; absent without a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values_hash: Option<Hash128>,
    /// `for_each` with `incremental`: xxh3-128 of the file `cursors/HASH.txt` with the newest cursors of the
    /// values whose pages have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursors: Option<Hash128>,
    /// Number of them that earlier passes have read, as `done` says.
    #[serde(skip_serializing_if = "is_zero")]
    pub old: u64,
    /// The value in work, counted from 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: u64,
    /// Intervals that this pass has read of it; in order, merged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub part: Vec<Interval>,
    /// The slice in work; absent when the pass is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<Interval>,
    /// Upper ends of what is left of slices that were cut, the outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<i64>,
    /// From here on the pass, or the last one, has read again what was done by a clock that was ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reread: Option<i64>,
    /// Values that the server did not have (status 404) in the pass before; they are requested again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<(u64, Vec<Interval>)>,
    /// The same of this pass; absent when it is over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<(u64, Vec<Interval>)>,
    /// Those values of `absent` and `gone` whose requests failed otherwise, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<u64>,
}

/// A file that is being read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileProgress {
    /// URL.
    pub url: String,
    /// Records committed from it (landed, duplicate or rejected).
    pub records: u64,
    /// xxh3-128 of the file's bytes: a file that has changed since is continued only where it has grown.
    pub hash: Hash128,
    /// Size in bytes; absent in entries of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Byte that the reading began at, where an earlier one had read what is before it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub from: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, position: &Position) {
        assert_eq!(serde_json::from_str::<Position>(text).unwrap(), *position);
        assert_eq!(serde_json::to_string(position).unwrap(), text);
    }

    #[test]
    fn positions_without_a_run_of_pages_are_read_and_written_as_they_were() {
        let page = Position::Page {
            page: 7,
            cursor: Some("c".into()),
            run: PageRun::default(),
        };
        check(r#"{"at":"page","page":7,"cursor":"c"}"#, &page);
        let done = Position::Done {
            pages: 8,
            files: Vec::new(),
            run: PageRun::default(),
        };
        check(r#"{"at":"done","pages":8,"files":[]}"#, &done);
    }

    #[test]
    fn a_ledger_is_small() {
        let mut ledger = Ledger {
            done: vec![[0, 100]],
            target: [0, 200],
            values: 1,
            old: 1,
            ..Ledger::default()
        };
        let text = r#"{"done":[[0,100]],"target":[0,200],"values":1,"old":1}"#;
        assert_eq!(serde_json::to_string(&ledger).unwrap(), text);
        (ledger.slice, ledger.ends) = (Some([100, 125]), vec![200, 150]);
        let run = PageRun {
            ledger: Some(Box::new(ledger)),
            ..PageRun::default()
        };
        let text = serde_json::to_string(&run).unwrap();
        assert!(
            text.ends_with(r#""slice":[100,125],"ends":[200,150]}}"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<PageRun>(&text).unwrap(), run);
    }

    #[test]
    fn a_run_of_pages_keeps_what_is_needed() {
        let run = PageRun {
            number: 2,
            since: Some("5".into()),
            ..PageRun::default()
        };
        let page = Position::Page {
            page: 0,
            cursor: None,
            run,
        };
        let text = r#"{"at":"page","page":0,"cursor":null,"run":{"number":2,"since":"5"}}"#;
        check(text, &page);
    }
}
