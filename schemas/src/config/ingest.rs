//! `[ingest]`: the landing zones of all sources.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BoundedCount, Seconds};

/// `[ingest]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IngestConfig {
    /// Retention of superseded files.
    #[serde(skip_serializing_if = "RetentionConfig::is_default")]
    pub retention: RetentionConfig,
}

/// Retention of the files in `superseded/` of each source: files that were merged by `feedline ingest compact`, that a
/// changed file has superseded, or that a rewind took back. Without `age_s` and `files` all of them are kept.
///
/// Files are deleted by `feedline ingest compact`, after an entry of the log that names them. Log entries are never deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionConfig {
    /// Seconds after which a superseded file is deleted, at least 0. Counted from when it was superseded to the newest
    /// commit of the source, by the clock of its store. Not set by default: age deletes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<Seconds<0, { u64::MAX }>>,
    /// Most superseded files of a source, at least 0; the oldest are deleted first. Not set by default: their number deletes
    /// nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<BoundedCount<0>>,
    /// Seconds in which no superseded file is deleted, 0 to 31,536,000. Default 3600. A build or a query that opened the
    /// landing zone before reads it meanwhile: set it to more than the longest one takes.
    pub grace_s: Seconds<0, 31_536_000>,
}

impl RetentionConfig {
    /// Returns true for the defaults.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            age_s: None,
            files: None,
            grace_s: Seconds::literal::<3_600>(),
        }
    }
}
