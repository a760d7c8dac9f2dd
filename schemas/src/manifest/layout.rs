//! Layout of the shards of a dataset: the columns of a row, and their types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{config::PackMode, ids::Hash128};

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
