//! The shards of a split, and their blocks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct as _};

use crate::{ids::Hash128, split::Split};

#[cfg(doc)]
use super::{Layout, Manifest};

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

/// The hash of shards that have `before`, with one more behind them.
pub(super) fn chained(before: Hash128, shard: &Shard) -> Hash128 {
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
