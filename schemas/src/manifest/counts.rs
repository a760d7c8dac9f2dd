//! Counts of the rows of a dataset.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Name;

#[cfg(doc)]
use super::Layout;

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
    /// Landed rows of each table of `dataset.sql`; empty without a query. With one, the origin of a row is its number among the
    /// rows of the query, and names no landed row. No part of the fingerprint.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub query_tables: BTreeMap<String, u64>,
}

impl DatasetCounts {
    /// Returns true if `dataset.sql` made the rows, so that their origins name no landed rows.
    #[must_use]
    pub fn are_of_query(&self) -> bool {
        !self.query_tables.is_empty()
    }
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
    /// Rows of the dataset that found a row of it. Rows that an earlier join rejects or drops do not
    /// count.
    pub matched: u64,
    /// Rows of the dataset that found none, without those of earlier joins.
    pub unmatched: u64,
    /// Rows of the source that no row of the dataset found.
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
