//! Shard manifest, `manifest-<generation, 6 digits>.json`, immutable; `CURRENT` holds the name of the one to read.
//!
//! Shards are Arrow IPC files, uncompressed, buffers aligned to 64 bytes, one record batch per block. Order of writes:
//! shards, transform artefact, tokenizer, manifest, `CURRENT`; a crash in between leaves only files that nothing names.
//!
//! Columns of a shard, in any order, none nullable:
//!
//! | layout | columns |
//! |---|---|
//! | [`Layout::Dense`] | `x: fixed_size_list<float32>[features]`, `y`, `key`, `origin` |
//! | [`Layout::Images`] | `image: binary` or `large_binary` (one whole JPEG, PNG, WebP, PGM or PPM file a row), `y`, `key`, `origin` |
//! | [`Layout::Tokens`] | `tokens: list<uint16>` or `list<uint32>` (one document a row, not cut), `key`, `origin` |
//! | [`Layout::Multi`] | those of `x`, `image` and `tokens` (at most `length` ids a row) that rows have, `y`, `key`, `origin` |
//!
//! With [`DatasetCounts::boxes`], rows with images have a last column `boxes: large_utf8`
//! too: a JSON list of `{"bbox": [x, y, width, height], "label": ...}` in pixels of the image as it
//! is decoded, upright, from its left upper corner; the label is text, an integer, or absent.
//!
//! Columns of [`Manifest::kept`] come after all of these, under their own names and as they landed:
//! `bool`, `int64`, `float64`, `utf8`, `binary`, `timestamp[us, UTC]` or `decimal128(38, 18)`,
//! nullable, each field with metadata [`KEPT_FIELD`]. They are for programs that read shards
//! themselves.
//!
//! `y` is `float32` (regression), `fixed_size_list<float32>` (several numbers) or `int32` (class id), and absent without a target. `key: uint64` is the first 8 bytes
//! of the content hash, `origin: uint64` an [`crate::ids::Origin`].
//!
//! Token shards store the lengths of their documents apart from the documents, so that windows and
//! bins are planned before any of them is read: [`Block::tokens`] has the sum of each block, and
//! the file of [`Shard::lengths`] the length of every document as a little-endian `u32`, in row
//! order and without a header, under its own checksum.
//!
//! A split of more than [`MOST_LISTED_SHARDS`] shards has them in a table of their own, [`SplitShards::table`], which is
//! written before the manifest; see [`crate::shard_table`].
//!
//! Versions: fields that were added are absent from manifests without them, so that older manifests keep their
//! fingerprint. The fingerprint leaves out the hashes of log entries, which contain times and ids of runs, so that equal inputs
//! have equal fingerprints on every machine.

mod counts;
mod layout;
mod naive;
mod shards;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::{DocumentConfig, NearDupConfig},
    edit::EditReference,
    format::{MANIFEST, versioned},
    ids::{Hash128, Name, Seed, Sequence, TableName},
    profile::ProfileReference,
    record::ColumnType,
    shard_table::{self, TableError},
    transform::TransformReference,
    warning::Warning,
};

use self::shards::chained;
pub use self::{
    counts::{
        BoxCounts, ClassCounts, ConflictCounts, CutCounts, DatasetCounts, GroupCounts, JoinCounts,
        NearDupCounts, NearImageCounts, RedactedCounts, SequenceCounts, TokenCounts,
    },
    layout::{Layout, RowTokens, TargetKind, TokenType, TokensReference},
    naive::{NaiveForecast, NaiveMethod, NaiveMetrics},
    shards::{Block, Lengths, Shard, SplitContent, SplitShards},
};
pub use crate::{shard_table::MOST_LISTED_SHARDS, split::Split};

/// Metadata key of a shard's field that is a column of [`Manifest::kept`].
pub const KEPT_FIELD: &str = "feedline.kept";

/// Manifest of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// `feedline.manifest`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// xxh3-128 of the document with this field, `input_hash` and every `entry_hash` zero, and without `dropped_columns`,
    /// `warnings`, `naive`, `target`, `other_targets` and `counts.query_tables`; every resume state carries it.
    pub fingerprint: Hash128,
    /// Dataset name.
    pub dataset: Name,
    /// xxh3-128 over the inputs (log positions, configuration); equal inputs need no new build.
    pub input_hash: Hash128,
    /// xxh3-128 of the settings that decide what the columns of a row mean before the transform: the query, joins, features
    /// of series, windows, the target and how texts are prepared. Absent from manifests that feedline did not build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns_hash: Option<Hash128>,
    /// Layout of the shards.
    pub layout: Layout,
    /// The fitted transform.
    pub transform: TransformReference,
    /// Key of the shuffle the rows were written in; absent when order was kept.
    pub shuffle_seed: Option<Seed>,
    /// Sources that were read.
    pub sources: Vec<SourceReference>,
    /// Preparation of documents; absent when they were taken as they landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<DocumentConfig>,
    /// Search for near-duplicates; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_dup: Option<NearDupConfig>,
    /// Counts of the rows.
    pub counts: DatasetCounts,
    /// Splits, in the order train, validation, test.
    pub splits: Vec<SplitShards>,
    /// Files of rejected rows (JSON lines), relative to the dataset folder.
    pub rejects: Vec<String>,
    /// Tokenizer of the ids of [`Layout::Tokens`] and [`Layout::Multi`], and packing of ids into
    /// rows; absent without a tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensReference>,
    /// Edited dataset and model of the edit, when the training split is not what sources landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<EditReference>,
    /// Columns that the shards hold as they landed, beside those of the layout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptColumn>,
    /// Profile of the columns in each split; absent where it was not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileReference>,
    /// Rows that were added after the dataset was built, by the transform that it was built with, in the order in which they
    /// were added. What else the manifest says is about all rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additions: Vec<Addition>,
    /// Columns that landed and are no features although the configuration does not say so, each with the reason. No part of the
    /// fingerprint.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped_columns: BTreeMap<String, String>,
    /// Decisions of the build that change data or a result without a setting that asks for them. No part of the fingerprint: other words
    /// for the same data make no other dataset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Naive forecasts of windows, to compare a model with. No part of the fingerprint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub naive: Vec<NaiveForecast>,
    /// The numeric target over the training split as it is, appended rows included; absent where the target is no number, and in
    /// older manifests. The baseline predicts its mean. No part of the fingerprint: it follows from the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetSummary>,
    /// The same of the further targets, where the dataset has several. No part of the fingerprint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_targets: Vec<TargetSummary>,
}
versioned!(Manifest, MANIFEST);

/// A numeric target over the rows of the training split.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetSummary {
    /// Rows.
    pub rows: u64,
    /// Their mean, in the target's units.
    pub mean: f64,
}

/// Rows that were added to a dataset. Its shards of a split are those from `first_shards` on up to those of the next
/// addition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Addition {
    /// Earlier positions of the sources: only records that landed after them were read. In the
    /// order of [`Manifest::sources`].
    pub behind: Vec<SourceReference>,
    /// Rows read.
    pub rows_in: u64,
    /// Rows that were added to the splits, in the order train, validation, test.
    pub rows: [u64; 3],
    /// Number of shards that each split had before, in the same order.
    pub first_shards: [u64; 3],
}

/// A column that shards hold as it landed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptColumn {
    /// Its name, in the source and in the shards.
    pub name: String,
    /// Its type.
    pub r#type: ColumnType,
}

/// A source at a log position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceReference {
    /// Source name, with `.` and the child table's name for a child table; `files` for files that
    /// are read in place.
    pub name: TableName,
    /// Last log entry that added or withdrew rows; of files the last sequence of a row's origin.
    pub sequence: Sequence,
    /// xxh3-128 of that entry; of files that of their names, sizes and hashes.
    pub entry_hash: Hash128,
    /// Licence of the data, as configured.
    pub licence: Option<String>,
}

/// Path of the report of the dataset with this fingerprint, relative to the dataset folder. It exists where the dataset has a
/// profile.
#[must_use]
pub fn report_path(fingerprint: Hash128) -> String {
    format!("report-{}.html", fingerprint.short())
}

impl Manifest {
    /// The shards of `split`, or none when the manifest lacks it.
    #[must_use]
    pub fn split(&self, split: Split) -> Option<&SplitShards> {
        self.splits.iter().find(|s| s.split == split)
    }

    /// Gives every split of more than `most` shards a table, which is [`MOST_LISTED_SHARDS`] but for tests. Returns the
    /// path and the bytes of each: they are to be written before the manifest.
    ///
    /// # Errors
    /// [`TableError`] for shards that no table can describe.
    pub fn add_tables(&mut self, most: usize) -> Result<Vec<(String, Vec<u8>)>, TableError> {
        let mut files = Vec::new();
        for split in self.splits.iter_mut().filter(|s| s.shards.len() > most) {
            let (table, file) = shard_table::write(split.split, &split.shards)?;
            files.push((table.path.clone(), file));
            split.table = Some(table);
        }
        Ok(files)
    }

    /// Computes the fingerprint this manifest should carry. It covers the tables through their hashes, and leaves out what is
    /// said about the data for people, and the hashes of log entries and of inputs: they contain times, ids of runs and
    /// paths, which the data does not depend on.
    #[must_use]
    pub fn compute_fingerprint(&self) -> Hash128 {
        let zero = Hash128::new(0);
        let mut zeroed = Self {
            fingerprint: zero,
            input_hash: zero,
            dropped_columns: BTreeMap::new(),
            warnings: Vec::new(),
            naive: Vec::new(),
            target: None,
            other_targets: Vec::new(),
            ..self.clone()
        };
        zeroed.counts.query_tables.clear();
        let behind = zeroed.additions.iter_mut().flat_map(|a| &mut a.behind);
        for source in zeroed.sources.iter_mut().chain(behind) {
            source.entry_hash = zero;
        }
        Hash128::of(&crate::encode(&zeroed))
    }

    /// Rows of a split and the hash of its content.
    #[must_use]
    pub fn split_content(&self, split: Split) -> Option<SplitContent> {
        let split = self.split(split)?;
        let hash = match &split.table {
            Some(table) => table.hash,
            None => split.shards.iter().fold(Hash128::new(0), chained),
        };
        Some(SplitContent {
            rows: split.rows,
            hash,
        })
    }

    /// Returns whether a split has this content, alone or with further shards behind it.
    #[must_use]
    pub fn split_continues(&self, split: Split, content: SplitContent) -> bool {
        let Some(split) = self.split(split) else {
            return false;
        };
        if let Some(table) = &split.table {
            return table.hash == content.hash;
        }
        let mut hash = Hash128::new(0);
        hash == content.hash
            || split.shards.iter().any(|shard| {
                hash = chained(hash, shard);
                hash == content.hash
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::TransformReference;

    fn shard(hash: u128) -> Shard {
        Shard {
            path: format!("shards/{hash}"),
            rows: 5,
            bytes: 10,
            hash: Hash128::new(hash),
            blocks: Vec::new(),
            head_crc32c: None,
            lengths: None,
        }
    }

    fn manifest(hash_of_log: u128, shards: &[u128]) -> Manifest {
        let dataset = Name::new("d").unwrap();
        let source = SourceReference {
            name: TableName::from(Name::new("s").unwrap()),
            sequence: Sequence::new(3),
            entry_hash: Hash128::new(hash_of_log),
            licence: None,
        };
        Manifest {
            format: MANIFEST.format.into(),
            version: MANIFEST.version,
            fingerprint: Hash128::new(0),
            dataset: dataset.clone(),
            input_hash: Hash128::new(hash_of_log),
            columns_hash: None,
            layout: Layout::Images {
                target: TargetKind::None,
            },
            transform: TransformReference {
                path: "transform.json".into(),
                hash: Hash128::new(1),
                dataset,
            },
            shuffle_seed: None,
            sources: vec![source.clone()],
            text: None,
            near_dup: None,
            counts: DatasetCounts::default(),
            splits: vec![SplitShards {
                split: Split::Train,
                rows: 5 * shards.len() as u64,
                shards: shards.iter().copied().map(shard).collect(),
                table: None,
            }],
            rejects: Vec::new(),
            tokens: None,
            edit: None,
            kept: Vec::new(),
            profile: None,
            additions: vec![Addition {
                behind: vec![source],
                rows_in: 1,
                rows: [1, 0, 0],
                first_shards: [1, 0, 0],
            }],
            dropped_columns: BTreeMap::new(),
            warnings: Vec::new(),
            naive: Vec::new(),
            target: None,
            other_targets: Vec::new(),
        }
    }

    #[test]
    fn logs_of_other_machines_do_not_change_the_fingerprint() {
        let of = |log, shards| manifest(log, shards).compute_fingerprint();
        assert_eq!(of(7, &[1]), of(8, &[1]));
        assert_ne!(of(7, &[1]), of(7, &[2]));
    }

    #[test]
    fn tables_of_a_query_do_not_change_the_fingerprint() {
        let plain = manifest(0, &[1]);
        let mut made = plain.clone();
        made.counts.query_tables.insert("s".to_owned(), 5);
        assert!(made.counts.are_of_query() && !plain.counts.are_of_query());
        assert_eq!(made.compute_fingerprint(), plain.compute_fingerprint());
    }

    #[test]
    fn a_split_continues_one_that_has_its_first_shards() {
        let content = |shards: &[u128]| manifest(0, shards).split_content(Split::Train).unwrap();
        let grown = manifest(0, &[1, 2, 3]);
        for (shards, expected) in [
            (&[1, 2][..], true),
            (&[1, 2, 3], true),
            (&[2, 1], false),
            (&[1, 2, 3, 4], false),
        ] {
            let continues = grown.split_continues(Split::Train, content(shards));
            assert_eq!(continues, expected, "{shards:?}");
        }
        assert!(!grown.split_continues(Split::Test, content(&[1])));
        assert_eq!(content(&[1, 2]).rows, 10);
    }
}
