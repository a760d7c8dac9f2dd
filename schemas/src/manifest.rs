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

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct as _};

use crate::{
    config::{DocumentConfig, NearDupConfig, PackMode},
    edit::EditReference,
    format::{MANIFEST, versioned},
    ids::{Hash128, Name, Seed, Sequence, TableName},
    profile::ProfileReference,
    record::ColumnType,
    shard_table::{self, TableError},
    transform::TransformReference,
    warning::Warning,
};

pub use crate::split::Split;

pub use crate::shard_table::MOST_LISTED_SHARDS;

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
    /// `warnings`, `naive`, `target` and `other_targets`; every resume state carries it.
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

/// Layout of the shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Layout {
    /// Rows of numbers.
    Dense {
        /// Elements of `x`.
        features: u32,
        /// Type of `y`.
        target: TargetKind,
    },
    /// Whole image files; PGM and PPM ones hold raw pixels.
    Images {
        /// Type of `y`.
        target: TargetKind,
    },
    /// Documents as token ids.
    Tokens {
        /// Type of an id.
        id: TokenType,
        /// Number of ids there are: every id is below it.
        vocabulary: u32,
    },
    /// Rows of several parts.
    Multi {
        /// Elements of `x`; without any there is no such column.
        features: u32,
        /// True when each row has an image file.
        images: bool,
        /// The ids of each row's text, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens: Option<RowTokens>,
        /// Type of `y`.
        target: TargetKind,
    },
}

impl Layout {
    /// Type of `y`.
    #[must_use]
    pub const fn target(&self) -> TargetKind {
        match self {
            Self::Dense { target, .. } | Self::Images { target } | Self::Multi { target, .. } => {
                *target
            }
            Self::Tokens { .. } => TargetKind::None,
        }
    }
}

/// The token ids of a row of [`Layout::Multi`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RowTokens {
    /// Type of an id.
    pub id: TokenType,
    /// Number of ids there are: every id is below it.
    pub vocabulary: u32,
    /// Most ids of a row: what a text had beyond them was left out.
    pub length: u32,
}

/// The tokenizer of a dataset, and how its documents are meant to become rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokensReference {
    /// Path of the `tokenizer.json`, relative to the dataset folder.
    pub tokenizer: String,
    /// xxh3-128 of that file.
    pub hash: Hash128,
    /// Id behind each document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_of_text: Option<u32>,
    /// Default number of ids that a model reads of a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Default packing of documents into rows.
    pub pack: PackMode,
}

/// Type of a token id in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenType {
    /// `uint16`.
    U16,
    /// `uint32`.
    U32,
}

/// Type of the target column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum TargetKind {
    /// No `y` column.
    None,
    /// `float32`.
    Regression,
    /// `fixed_size_list<float32>`, one for each of several targets.
    Regressions {
        /// Number of targets, 2 or more.
        targets: u32,
    },
    /// `int32` class ids from 0.
    Classification {
        /// Number of classes.
        classes: u32,
    },
}

/// A source at a log position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceReference {
    /// Source name, with `.` and the child table's name for a child table; `files` for files that
    /// are read in place.
    pub name: TableName,
    /// Last log entry that was read; of files the last sequence of a row's origin.
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

/// Counts of the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetCounts {
    /// Rows read.
    pub rows_in: u64,
    /// Rows dropped as copies of a kept row.
    pub duplicates: u64,
    /// Rejected rows, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Rows in the training split.
    pub train: u64,
    /// Rows in the validation split.
    pub validation: u64,
    /// Rows in the test split.
    pub test: u64,
    /// Token ids in the shards, when the layout has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenCounts>,
    /// Ids truncated from texts that were longer than a row, when the layout is [`Layout::Multi`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutCounts>,
    /// Rows rejected since one of several targets is missing or no number as it landed, by the first such target; empty where
    /// there is one target.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected_targets: BTreeMap<String, u64>,
    /// Rows left out because the configuration says so, by reason; they are listed with the rejected ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub filtered: BTreeMap<String, u64>,
    /// Result of the search for near-duplicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_dup: Option<NearDupCounts>,
    /// Personal data that was replaced in the documents that were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<RedactedCounts>,
    /// Results of the joins, in the order of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<JoinCounts>,
    /// Images whose embeddings are near; absent when they are not looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_images: Option<NearImageCounts>,
    /// Boxes in the images that were kept; absent when none are carried along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boxes: Option<BoxCounts>,
    /// Rows that are not as expected and were kept, by column and expectation (`price.max`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unexpected: BTreeMap<String, u64>,
    /// Rows that were equal but for their target; absent where the target is part of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<ConflictCounts>,
    /// Groups of the split's key; absent where no `dataset.split.tolerance` asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupCounts>,
    /// Counts of windows over series; absent where every row is a sample. Then `train`,
    /// `validation` and `test` count windows, and the `features` of the layout are those of all
    /// rows of one, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<SequenceCounts>,
    /// Classes of the target by id, with their rows; none where the target is no class. Loaders take the names from here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassCounts>,
}

/// Rows of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassCounts {
    /// Name of the class: its label as the target has it.
    pub name: String,
    /// Rows in the training split.
    pub train: u64,
    /// Rows in the validation split.
    pub validation: u64,
    /// Rows in the test split.
    pub test: u64,
}

/// Rows that were equal but for their target, among those that could be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConflictCounts {
    /// Contents that stood there with several targets.
    pub contents: u64,
    /// Rows of these contents.
    pub rows: u64,
}

/// Groups of rows that share a split, as `dataset.split.key` makes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupCounts {
    /// Groups in the training split.
    pub train: u64,
    /// Groups in the validation split.
    pub validation: u64,
    /// Groups in the test split.
    pub test: u64,
    /// Rows of the largest group.
    pub largest: u64,
}

/// Counts of windows over series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SequenceCounts {
    /// Rows of a window.
    pub length: u32,
    /// Rows from the last one of a window to that of its target.
    pub horizon: u32,
    /// Windows.
    pub windows: u64,
    /// Rows that are no target since their window would reach beyond their entity or split, over a
    /// gap, or over a rejected row.
    pub incomplete: u64,
    /// Rows that are no target because of the stride.
    pub skipped: u64,
}

/// A forecast that needs no model, measured on the windows of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NaiveForecast {
    /// Method.
    pub method: NaiveMethod,
    /// Rows from that whose target is the forecast to that of the target.
    pub lag: u32,
    /// Metrics of each split that has a window with such a row before.
    pub splits: BTreeMap<Split, NaiveMetrics>,
}

/// Method of a forecast without a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NaiveMethod {
    /// The newest target that is known when the forecast is made.
    LastValue,
    /// The newest known target that is a multiple of the season earlier
    /// (`dataset.sequence.season`).
    Seasonal,
}

impl NaiveMethod {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LastValue => "last_value",
            Self::Seasonal => "seasonal",
        }
    }
}

/// Errors of a naive forecast, in the units of the target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NaiveMetrics {
    /// Windows with a known value.
    pub windows: u64,
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Mean absolute error.
    pub mae: f64,
    /// Share of the variance about the mean of the same windows that is explained; absent where that is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
}

/// Ids truncated from texts that have more ids than a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CutCounts {
    /// Rows whose text was cut.
    pub rows: u64,
    /// Ids that were left out of them: those after the first `length`.
    pub tokens: u64,
}

/// Result of a join, before duplicates were dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinCounts {
    /// The source that was joined on.
    pub source: Name,
    /// Rows of the dataset that found a row of it.
    pub matched: u64,
    /// Rows of the dataset that found none.
    pub unmatched: u64,
    /// Rows of the source that no row of the dataset asked for.
    pub unused: u64,
}

/// Result of the search for images of near embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NearImageCounts {
    /// Bands of a signature.
    pub bands: u32,
    /// Bits of a band.
    pub bits: u32,
    /// Images that were compared: those with an embedding that is not all zeros, copies included.
    pub images: u64,
    /// Clusters of two images or more.
    pub clusters: u64,
    /// Images of the largest cluster.
    pub largest: u64,
    /// Bands so common that not all of their pairs were looked at.
    pub hubs: u64,
}

/// Boxes in the images that were kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoxCounts {
    /// Those that the shards have.
    pub kept: u64,
    /// Boxes that were lost: outside of the stored part, or without area.
    pub lost: u64,
}

/// Personal data that was replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedactedCounts {
    /// E-mail addresses.
    pub emails: u64,
    /// Telephone numbers.
    pub phones: u64,
    /// Payment cards.
    pub cards: u64,
}

/// Result of the search for near-duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NearDupCounts {
    /// Bands of a signature.
    pub bands: u32,
    /// Rows of a band.
    pub rows: u32,
    /// Documents of the dataset that were compared.
    pub documents: u64,
    /// Documents without a word, frozen ones included: they are near to nothing.
    pub empty: u64,
    /// Clusters of two documents or more.
    pub clusters: u64,
    /// Documents of the largest cluster.
    pub largest: u64,
    /// Documents that are nearly an earlier one.
    pub copies: u64,
    /// Frozen documents.
    pub frozen: u64,
    /// Documents that are nearly a frozen one.
    pub of_frozen: u64,
    /// Bands so common that not all of their pairs were looked at.
    pub hubs: u64,
}

/// Token ids in the splits. Together they are all documents that were kept: their characters, or their tokens and what is
/// put behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCounts {
    /// In the training split.
    pub train: u64,
    /// In the validation split.
    pub validation: u64,
    /// In the test split.
    pub test: u64,
    /// Cells among all of them with a value that the training split lacks.
    pub unknown: u64,
}

impl TokenCounts {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.train + self.validation + self.test
    }
}

/// The shards of a split.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitShards {
    /// Split.
    pub split: Split,
    /// Rows.
    pub rows: u64,
    /// Shards in order; of rows of numbers, every shard but the last, and the last before each of [`Manifest::additions`], has
    /// full blocks only. Not written when there is a table: a manifest that was just parsed then has none here until the table
    /// is read.
    pub shards: Vec<Shard>,
    /// The file that lists the shards, when there are many: its rows are shards, see [`crate::shard_table`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<Shard>,
}

impl Serialize for SplitShards {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let listed = if self.table.is_some() {
            &[]
        } else {
            &self.shards[..]
        };
        let mut fields = serializer.serialize_struct("SplitShards", 3)?;
        fields.serialize_field("split", &self.split)?;
        fields.serialize_field("rows", &self.rows)?;
        fields.serialize_field("shards", listed)?;
        match &self.table {
            Some(table) => fields.serialize_field("table", table)?,
            None => fields.skip_field("table")?,
        }
        fields.end()
    }
}

impl SplitShards {
    /// Number of shards, whether or not the table has been read.
    #[must_use]
    pub fn shard_count(&self) -> u64 {
        match &self.table {
            Some(table) => table.rows,
            None => self.shards.len() as u64,
        }
    }
}

/// One shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// Path relative to the dataset folder; it contains the file's hash.
    pub path: String,
    /// Rows.
    pub rows: u64,
    /// File size in bytes.
    pub bytes: u64,
    /// xxh3-128 of the file.
    pub hash: Hash128,
    /// Blocks in order.
    pub blocks: Vec<Block>,
    /// CRC32C of the bytes before the first block: the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_crc32c: Option<u32>,
    /// Lengths of the documents, when the layout is [`Layout::Tokens`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lengths: Option<Lengths>,
}

/// The file that holds the lengths of a shard's documents: 4 bytes for each row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lengths {
    /// Path relative to the dataset folder.
    pub path: String,
    /// CRC32C of the file.
    pub crc32c: u32,
}

/// One block: a record batch's message in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// Offset of the message in the file.
    pub offset: u64,
    /// Length of the message's metadata, padding included.
    pub metadata_bytes: u32,
    /// Length of the body that follows.
    pub body_bytes: u64,
    /// Rows.
    pub rows: u32,
    /// CRC32C of metadata and body.
    pub crc32c: u32,
    /// Token ids in the block, over all of its documents, when the layout has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

impl Block {
    /// Length of metadata and body.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.body_bytes.saturating_add(self.metadata_bytes as u64)
    }
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

/// The hash of shards that have `before`, with one more behind them.
fn chained(before: Hash128, shard: &Shard) -> Hash128 {
    Hash128::of(format!("{before}{}", shard.hash).as_bytes())
}

/// Rows and content of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitContent {
    /// Rows.
    pub rows: u64,
    /// Hash over the hashes of its shards, in order; of a split whose shards are listed in a table,
    /// the table's.
    pub hash: Hash128,
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
