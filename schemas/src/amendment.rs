//! Changes that an entry of a commit log makes besides landing a batch: settings, withdrawn files, a reset.
//!
//! An amendment is an entry like any other, so it is written completely or not at all. A run that was at work at that
//! moment finds its position taken and stops.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::Sequence, report::IngestReport};

/// The settings of a source that decide what is fetched and how it is read, and what changed in them.
///
/// In the first entry of a log, and in each that another follows with other settings. No secret is in it, and of headers,
/// parameters and queries there are hashes only, since they may hold a key in plain text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingsRecord {
    /// Settings by their keys below `[[source]]`, as compact JSON.
    pub values: BTreeMap<String, String>,
    /// Changes against the record before; they hold from this entry on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<SettingChange>,
}

/// A setting that was changed after records had landed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingChange {
    /// Key below `[[source]]`.
    pub key: String,
    /// Value before, as compact JSON; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Value from then on; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Effect on the landed records and on the next reading.
    pub effect: String,
}

/// The newest change of settings in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingsChanged {
    /// First entry that the new settings hold for.
    pub sequence: u64,
    /// Changed settings.
    pub changes: Vec<SettingChange>,
}

/// Files of an earlier entry that no longer count. They leave the landing folder after the entry that says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Withdrawn {
    /// The entry that landed them.
    pub sequence: Sequence,
    /// Reason of the withdrawal.
    pub reason: WithdrawnReason,
    /// Paths relative to the source's landing folder.
    pub files: Vec<String>,
}

/// Reason of a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WithdrawnReason {
    /// The batch was deleted.
    Deleted,
    /// The source of the batch is read again.
    Reread,
    /// Its rejected records were read again; the entry has those that land and those that still do not.
    Retried,
}

/// Report of `ingest reset`, `ingest reread`, `ingest rewind`, `ingest delete`, `ingest retry-rejects` and
/// `ingest compact`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AmendReport {
    /// The command: `reset`, `reread`, `rewind`, `delete`, `retry-rejects` or `compact`.
    pub command: String,
    /// Source name.
    pub source: String,
    /// True where only the outcome was computed and nothing was changed.
    pub dry_run: bool,
    /// The entry of the log that says so; absent where nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// Batches that no longer count, or whose rejected records were read again.
    pub batches: Vec<u64>,
    /// Rows that no longer count.
    pub rows: u64,
    /// Rejected records that no longer count, or were read again.
    pub rejected: u64,
    /// Bytes of the files that no longer count.
    pub bytes: u64,
    /// `retry-rejects`: records that land now.
    #[serde(default)]
    pub landed: u64,
    /// `retry-rejects`: records that equal landed ones.
    #[serde(default)]
    pub duplicates: u64,
    /// `retry-rejects`: records that still do not fit.
    #[serde(default)]
    pub still_rejected: u64,
    /// `retry-rejects`: those by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected_by_reason: BTreeMap<String, u64>,
    /// `rewind`: the last entry that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewound_to: Option<u64>,
    /// `compact`: what was merged, and what retention deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<CompactionReport>,
    /// `reread`: what is read again, as slices or files; `rewind`: the same, as files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<String>,
    /// Folder that what no longer counts is kept in; absent where it is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Work of the next run.
    pub next: String,
    /// Further notes for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// `reread`: what the run that followed landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingest: Option<IngestReport>,
}

/// Counts of a compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionReport {
    /// Data files that were merged.
    pub files_before: u64,
    /// Files that have taken their place.
    pub files_after: u64,
    /// Rows of both.
    pub rows: u64,
    /// Bytes of the files before.
    pub bytes_before: u64,
    /// Bytes of the files after; 0 with `--dry-run`, which writes none.
    pub bytes_after: u64,
    /// Entries that were added to the log, one for each merged file and one for retention.
    pub entries: Vec<u64>,
    /// Superseded files whose bytes retention has deleted.
    pub expired_files: u64,
    /// Their size in bytes.
    pub expired_bytes: u64,
    /// Superseded files that remain.
    pub superseded_files: u64,
    /// Their size in bytes.
    pub superseded_bytes: u64,
}
