//! Reports of `ingest` and its commands.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    amendment::{CompactionReport, SettingsChanged},
    commit::{Decisions, Position},
    failures::FailedRuns,
    lease::LastRun,
    warning::Warning,
};

/// Report of ingest, over all sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IngestReport {
    /// Rows in the landing zone (all runs).
    pub rows: u64,
    /// Records left out as identical to a landed one (all runs).
    pub duplicates: u64,
    /// Rejected records that are open: of all runs, without those that landed by a retry, were superseded or deleted.
    pub rejected: u64,
    /// Rows landed by this run; absent in `ingest status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_rows: Option<u64>,
    /// Records that this run rejected; absent in `ingest status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_rejected: Option<u64>,
    /// HTTP requests of this run, retries included.
    pub requests: u64,
    /// Requests of this run that were repeated.
    pub retries: u64,
    /// Batches committed (all runs).
    pub batches: u64,
    /// Landing zone.
    pub url: String,
    /// True when the run was asked to stop before its end; the next one resumes there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Per source.
    pub sources: Vec<SourceReport>,
}

/// Report of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceReport {
    /// Source name.
    pub name: String,
    /// `complete`, `partial`, `deferred` or `empty`; `failed` where this run of the source ended by an error, `damaged` where
    /// landed files are missing or damaged.
    pub status: String,
    /// The error that this run of the source ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Rows landed by all runs.
    pub rows: u64,
    /// Rows landed by this run; absent in `ingest status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_rows: Option<u64>,
    /// Keys that have a run look for more, where this run read nothing because an earlier one had read the source to its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recheck_keys: Vec<String>,
    /// Rows landed in each child table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<String, u64>,
    /// Duplicates left out.
    pub duplicates: u64,
    /// Rejected records that are open: of all runs, without those that landed by a retry, were superseded or deleted.
    pub rejected: u64,
    /// Records that this run rejected, those that it rejected again included; absent in `ingest status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_rejected: Option<u64>,
    /// Open rejected records by reason.
    pub rejected_by_reason: BTreeMap<String, u64>,
    /// One rejected record and why.
    pub reject_sample: Option<String>,
    /// Configuration keys that decide which records are rejected, for each reason that has such keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reject_keys: BTreeMap<String, Vec<String>>,
    /// Pages that gave no record for a reason that is no failure, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<String, u64>,
    /// Pages of a crawl that failed and that the next run requests again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_pages: u64,
    /// Values converted without loss to their column's type.
    pub coerced: u64,
    /// Values that did not fit their column and were landed as null.
    pub nulled: u64,
    /// Decisions of the contract, by kind and column, with the first value of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub decisions: Decisions,
    /// Warnings that hold as of the newest entry of the log, and those of this run; in `ingest status` those of the last one,
    /// whose codes `standing` has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Slices and values; absent where a source has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<SlicesReport>,
    /// Batches committed.
    pub batches: u64,
    /// Pages or files read.
    pub pages: u64,
    /// Requests of this run.
    pub requests: u64,
    /// Retries of this run.
    pub retries: u64,
    /// Bytes landed.
    pub bytes: u64,
    /// Data files, those of child tables included.
    #[serde(default)]
    pub files: u64,
    /// Landed files of all kinds that this start, or `ingest status`, has compared with the log: those that are new since
    /// another start, and in a run also a slice of the older ones that differs from run to run.
    #[serde(default)]
    pub compared_files: u64,
    /// Compaction after the run, if `ingest.compact` is set and files were many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<CompactionReport>,
    /// Version of the record schema.
    pub schema_version: u32,
    /// Landing folder.
    pub url: String,
    /// `ingest status`: landed files that are missing or have another size than the log says, and of the newest ones those that do
    /// not end as they should. `ingest verify` reads the files themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
    /// Settings that were changed after records had landed: in a run those that it found changed, in `ingest status` the
    /// newest change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_changed: Option<SettingsChanged>,
    /// `ingest status`: Delta tables over what has landed, and how far they are behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delta: Vec<DeltaTableReport>,
    /// `ingest status`: the source's schedule and last runs, and the plan of its next run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
}

/// Schedule and last runs of a source, as reported by `ingest status`. Times are seconds since
/// 1970-01-01 UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Standing {
    /// Time of the commit of the newest batch with rows, by the clock of the store: entries of the log hold no times, so that
    /// equal pages make equal entries. Absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed_unix_s: Option<u64>,
    /// Seconds since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_s: Option<u64>,
    /// Records that the newest run with a batch rejected. Absent before the first batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_rejected: Option<u64>,
    /// Incremental: the highest cursor of all records so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Seconds from it to now, where it is a time or a day (which begins at midnight UTC); absent for one of the future.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor_lag_s: Option<u64>,
    /// `incremental` with `for_each`: the newest cursors of the values of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_cursors: Option<ValueCursorsReport>,
    /// Until when a server asked to be left alone, where that is not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before_unix_s: Option<u64>,
    /// The last run that `serve` made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRun>,
    /// Its runs that failed since the last one that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<FailedRuns>,
    /// Those of the source's warnings that are of its last run, and not of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_warnings: Option<LastRunWarnings>,
    /// Program that runs it now, where a lease that has not ended says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// Versions of the record schema so far.
    pub schema_versions: u32,
    /// Columns of the newest one.
    pub columns: u64,
    /// Plan of the next run, for a person.
    pub next: String,
}

/// Newest cursors of the values of a list; each has its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ValueCursorsReport {
    /// Values of the list that have a cursor. The others have had no record with one.
    pub values: u64,
    /// The smallest one.
    pub smallest: ValueCursor,
    /// The greatest one.
    pub greatest: ValueCursor,
}

/// Newest cursor of a value of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ValueCursor {
    /// The value, one of those with this cursor.
    pub value: String,
    /// Its cursor.
    pub cursor: String,
    /// Seconds from it to now, where it is a time or a day (which begins at midnight UTC); absent for one of the future.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_s: Option<u64>,
}

/// Warnings of the last run of a source that its log does not have. A run that has nothing to read, or
/// ends early without such warnings, leaves those of the run before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastRunWarnings {
    /// Id of the first run in a row whose warnings had the same codes.
    pub run_id: String,
    /// When that run ended.
    pub since_unix_s: u64,
    /// Their codes.
    pub codes: Vec<String>,
}

/// Progress of the slices and values of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlicesReport {
    /// Slices that are done, over all values, counted by the configured step.
    pub done: u64,
    /// Slices that are open. Where the range ends now, those of the pass that is under way.
    pub open: u64,
    /// Values that are done; of a source without a list there is one.
    pub values_done: u64,
    /// Values that are open. Of a list that another source gives, as many as were known when the last pass began.
    pub values_open: u64,
    /// Intervals that are done of the values with the least progress, such as
    /// `2026-01-01 to 2026-03-01`.
    pub ranges: Vec<String>,
    /// The slice or value that is being read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_work: Option<String>,
}

/// Report of `ingest delta`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeltaReport {
    /// True if the tables were removed and written again.
    pub rebuilt: bool,
    /// Per table: of each source its records, and its child tables.
    pub tables: Vec<DeltaTableReport>,
}

/// A Delta table over landed files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeltaTableReport {
    /// `SOURCE`, or `SOURCE.TABLE` for a child table.
    pub table: String,
    /// Folder of the table, as Delta readers open it.
    pub url: String,
    /// Newest version; absent for a table that cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Entry of the commit log that it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// Entries of the commit log after that one.
    pub behind: u64,
    /// `ingest delta`: files of the table.
    pub files: u64,
    /// `ingest delta`: files that were written again, since a column has a wider type by now.
    pub copies: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
    /// Reason why the table cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Decisions about the table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Report of `ingest resume`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResumeReport {
    /// Per source.
    pub sources: Vec<ResumedSource>,
}

/// A source whose deferral was ended, if there was one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResumedSource {
    /// Source name.
    pub name: String,
    /// When the deferral would have ended, Unix time in seconds; absent for a source that was not deferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted_until_unix_s: Option<u64>,
}

/// Report of `ingest repair`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepairReport {
    /// True when nothing was changed.
    pub dry_run: bool,
    /// Per source.
    pub sources: Vec<RepairedSource>,
}

/// Repair of the commit log of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepairedSource {
    /// Source name.
    pub name: String,
    /// Damage of the first bad entry; absent for an intact log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// Good entries, which stay.
    pub kept: u64,
    /// Entries from the first damaged one on.
    pub set_aside: u64,
    /// Rows that the good entries landed.
    pub rows: u64,
    /// Pages or files that they read.
    pub pages: u64,
    /// Position that the next run resumes from.
    pub position: Position,
    /// Folder that the removed entries were moved to.
    pub url: String,
    /// Rows that the removed entries had landed, as far as these can be read: the next run requests them again.
    #[serde(default)]
    pub rows_set_aside: u64,
    /// Pages or files that they had read.
    #[serde(default)]
    pub pages_set_aside: u64,
    /// Landed files that were lost or damaged and were restored from a copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restored: Vec<String>,
    /// Files that no entry names, which were moved: to `orphans/`, or beside the removed entries.
    #[serde(default)]
    pub unnamed: u64,
}

/// Report of `ingest verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LandingVerifyReport {
    /// Per source.
    pub sources: Vec<VerifiedSource>,
}

/// The commit log of a source, with every file that it names read and hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedSource {
    /// Source name.
    pub name: String,
    /// Landing folder.
    pub url: String,
    /// Entries that are good and follow one another.
    pub entries: u64,
    /// Files that they name and that are as they say.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Rows that these entries landed.
    pub rows: u64,
    /// All that is wrong, in the order of the log; empty for a landing zone that is intact.
    pub damage: Vec<Damage>,
    /// Files of batches that no entry names: of a run that was killed, or that is under way. The next run moves them.
    pub unnamed: Vec<String>,
    /// Files in `orphans/`, where files go that no entry names; nothing needs them.
    pub orphans: u64,
}

/// A part of a landing zone that is not as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Damage {
    /// File or log entry, relative to the landing folder.
    pub path: String,
    /// Number of the entry that names the file, or that is damaged itself.
    pub entry: u64,
    /// Description of the damage.
    pub reason: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}
