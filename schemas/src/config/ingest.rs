//! `[ingest]`: the landing zones of all sources.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bounded, BoundedCount, Bytes, Seconds};

/// `[ingest]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IngestConfig {
    /// Compaction after runs. Not set by default: files are merged by `feedline ingest compact` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact: Option<CompactConfig>,
    /// Writes a Delta table behind each commit, for each source and child table: `_delta_log/` in
    /// `landing/<source>/data` and `landing/<source>/children/<table>`. Default false:
    /// `feedline ingest delta` writes the tables when they are wanted. Set it if other tools should
    /// see rows as soon as they have landed. It costs one small object for each commit and table,
    /// and a copy of all files of a table whose column gets a wider type.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub delta: bool,
    /// Retention of superseded files.
    #[serde(skip_serializing_if = "RetentionConfig::is_default")]
    pub retention: RetentionConfig,
}

/// Compaction after a run of a source that has many small files, as `feedline ingest compact` does it. It is part of the
/// run: of `ingest`, `run` and `serve`. If it fails, the run has succeeded all the same, with a warning.
///
/// It moves files: a program that reads the folder of data files without the log has to be able to read it again. And it
/// keeps the old files until `retention` deletes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CompactConfig {
    /// Number of small data files of a source, those of child tables included, that are not merged yet; with more, they
    /// are. 1 or more. Default 256. Small files are those beyond what the bytes of the source need at half of
    /// `target_bytes` each.
    pub files: BoundedCount<1>,
    /// Size of merged files, 1 MiB to 1 GiB. Default 128 MiB. One of them is in memory at a time.
    pub target_bytes: Bytes<{ 1 << 20 }, { 1 << 30 }>,
}

impl Default for CompactConfig {
    fn default() -> Self {
        Self {
            files: Bounded::literal::<256>(),
            target_bytes: Bounded::literal::<{ 128 << 20 }>(),
        }
    }
}

/// Retention of the files in `superseded/` of each source: files that were merged by `feedline ingest compact`, that a
/// changed file has superseded, or that a rewind took back. Without `age_s` and `files` all of them are kept.
///
/// Files are deleted by a compaction, after an entry of the log that names them. Log entries are never deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionConfig {
    /// Seconds after which a superseded file is deleted, at least 0. Counted from when it was superseded to the newest
    /// commit of the source, by the clock of its store, and to now at most. Not set by default: age deletes nothing.
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

#[expect(clippy::derivable_impls, reason = "the default is no zero")]
impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            age_s: None,
            files: None,
            grace_s: Seconds::literal::<3_600>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::load;

    fn ingest(text: &str) -> Result<super::IngestConfig, String> {
        let text = format!("[pipeline]\nname = \"p\"\n[ingest]\n{text}\n");
        let loaded = load("p.toml", &text, &[]).map_err(|e| e.to_string())?;
        Ok(loaded.config.ingest.unwrap())
    }

    #[test]
    fn compaction_after_runs_is_off_by_default_and_has_bounds() {
        let none = ingest("retention = { files = 3 }").unwrap();
        assert_eq!(none.compact, None);
        let some = ingest("compact = {}").unwrap().compact.unwrap();
        assert_eq!(some, super::CompactConfig::default());
        assert_eq!(some.files.get(), 256);
        let some = ingest("compact = { files = 9, target_bytes = \"1 MiB\" }").unwrap();
        assert_eq!(some.compact.unwrap().target_bytes.get().bytes(), 1 << 20);
        assert!(ingest("compact = { files = 0 }").is_err());
        assert!(ingest("compact = { target_bytes = \"2 GiB\" }").is_err());
    }
}
