//! Files that a `files` source has read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Hash128;

/// A file that records of a batch come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilePart {
    /// URL.
    pub url: String,
    /// Records of it in the batch, those that did not land counted: they have so many `_feedline_row`s.
    pub records: u64,
}

/// A file that was read to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileMark {
    /// URL.
    pub url: String,
    /// Size in bytes when it was read.
    pub bytes: u64,
    /// xxh3-128 of its bytes.
    pub hash: Hash128,
    /// When it was written, in milliseconds since 1970-01-01 UTC by the clock of its store; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_unix_ms: Option<u64>,
    /// Mark of its content that its store has; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}
