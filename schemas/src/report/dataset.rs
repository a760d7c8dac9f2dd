//! Reports of builds, checks and edits of a dataset.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    edit::EditReference,
    manifest::{
        BoxCounts, ClassCounts, ConflictCounts, CutCounts, GroupCounts, JoinCounts, NaiveForecast,
        NearDupCounts, NearImageCounts, RedactedCounts, SequenceCounts, TokenCounts,
    },
    warning::Warning,
};

/// Report of a shard build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DatasetReport {
    /// Rows read.
    pub rows_in: u64,
    /// Rows dropped as duplicates.
    pub duplicates: u64,
    /// Rejected rows.
    pub rejected: u64,
    /// Rejected rows by reason.
    pub rejected_by_reason: BTreeMap<String, u64>,
    /// Rows rejected since one of several targets is missing or no number as it landed, by the first such target.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected_targets: BTreeMap<String, u64>,
    /// One rejected row and why.
    pub reject_sample: Option<String>,
    /// Columns that landed and are no features although the configuration does not say so, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped_columns: BTreeMap<String, String>,
    /// Rows left out because the configuration says so, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub filtered: BTreeMap<String, u64>,
    /// Rows that are not as expected and were kept, by column and expectation (`price.max`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unexpected: BTreeMap<String, u64>,
    /// Rows that were equal but for their target, where one of them is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<ConflictCounts>,
    /// Groups of the split's key, where a tolerance asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupCounts>,
    /// Result of the search for near-duplicates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_dup: Option<NearDupCounts>,
    /// Personal data that was replaced in the documents that were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redacted: Option<RedactedCounts>,
    /// Results of the joins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<JoinCounts>,
    /// Images whose embeddings are near.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_images: Option<NearImageCounts>,
    /// Boxes in the images that were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxes: Option<BoxCounts>,
    /// Classes of the target by id, with their rows; none where the target is no class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassCounts>,
    /// Training rows.
    pub train: u64,
    /// Validation rows.
    pub validation: u64,
    /// Test rows.
    pub test: u64,
    /// Token ids of each split, where rows are documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenCounts>,
    /// Ids truncated from texts that were longer than a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutCounts>,
    /// Counts of windows over series; then the splits count windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<SequenceCounts>,
    /// Naive forecasts of these windows, to compare a model with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub naive: Vec<NaiveForecast>,
    /// Shards written or found.
    pub shards: u64,
    /// Bytes of the shards.
    pub bytes: u64,
    /// True when the shards of an earlier build with the same inputs were found and kept.
    pub up_to_date: bool,
    /// Manifest fingerprint.
    pub fingerprint: String,
    /// Dataset folder.
    pub url: String,
    /// Page about the dataset (HTML), where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// Rows that this build appended to an existing dataset; absent where it made all of it, or
    /// nothing. The other figures are of the complete dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<AddedReport>,
    /// Reason that an existing dataset was rebuilt and refitted from all rows; absent where it was
    /// not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anew: Option<String>,
    /// Decisions of the build that a person should know of; of the earlier build where `up_to_date` is true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

impl DatasetReport {
    /// Rows that this build rejected: all of the dataset, those of the appended rows, or none where
    /// an earlier build was kept.
    #[must_use]
    pub fn new_rejected(&self) -> u64 {
        match &self.added {
            _ if self.up_to_date => 0,
            Some(added) => added.rejected,
            None => self.rejected,
        }
    }
}

/// Rows that a build appended to an existing dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AddedReport {
    /// Rows that had landed since.
    pub rows_in: u64,
    /// Duplicates among these, of one another or of earlier rows.
    pub duplicates: u64,
    /// Rejected rows among these.
    pub rejected: u64,
    /// Training rows added.
    pub train: u64,
    /// Validation rows added.
    pub validation: u64,
    /// Test rows added.
    pub test: u64,
    /// Shards added.
    pub shards: u64,
    /// Shards that stay as they were.
    pub kept_shards: u64,
    /// True if the appended rows may equal earlier rows of other splits in all that a model sees, such as under another id: a
    /// build of all rows (`--refit`) looks for those (`equal_rows`), and an append compares whole rows only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub equal_rows_not_compared: bool,
    /// Features, the target of a regression and the shares of classes (`<column>=<class>`) whose
    /// appended training rows differ from those that the transform was fitted on. The most
    /// different first, at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shifts: Vec<FeatureShift>,
}

/// A feature whose appended training rows differ from those before, in the units of the shards:
/// after all steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FeatureShift {
    /// Name of the feature, or of the target.
    pub feature: String,
    /// Mean of the training rows that the transform was fitted on.
    pub before: f64,
    /// Mean of those that were added.
    pub after: f64,
    /// Difference of the means, in standard deviations of the rows before; of a fraction of rows, such as that of a class, in
    /// the root of the mean of both variances. At most 1,000 either way.
    pub deviations: f64,
}

impl FeatureShift {
    /// Most deviations of a report: a feature that was the same in all rows has none to count in.
    pub const MOST_DEVIATIONS: f64 = 1000.0;

    /// Text of the deviations without a sign, for a message.
    #[must_use]
    pub fn deviations_text(&self) -> String {
        let deviations = self.deviations.abs();
        match deviations < Self::MOST_DEVIATIONS {
            true => format!("{deviations:.2}"),
            false => "over 1,000".to_owned(),
        }
    }
}

/// Report of `shards expect`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExpectReport {
    /// Columns with expectations.
    pub columns: u64,
    /// The file that was written.
    pub file: String,
}

/// Report of `shards verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifyReport {
    /// Dataset folder.
    pub url: String,
    /// Manifest fingerprint.
    pub fingerprint: String,
    /// Shards checked.
    pub shards: u64,
    /// Blocks checked.
    pub blocks: u64,
    /// Rows counted.
    pub rows: u64,
    /// Keys found in more than one split.
    pub leaked_keys: u64,
    /// Problems found; empty when there are none.
    pub problems: Vec<String>,
}

/// Report of `shards prune`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PruneReport {
    /// Dataset folder.
    pub url: String,
    /// True if nothing was removed.
    pub dry_run: bool,
    /// Manifests that are kept with their files, the current one first.
    pub kept: Vec<String>,
    /// Number of removed files, or with `dry_run` of those to remove.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Files that no kept manifest names, and that stay since they are young.
    pub young: u64,
    /// Paths of files in the folders of builds whose names are not those of a build. They stay.
    pub foreign: Vec<String>,
    /// Paths of the removed files in the dataset folder.
    pub removed: Vec<String>,
}

/// Report of editing a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EditReport {
    /// Edited dataset, model, counts of tokens, and figures before and after.
    #[serde(flatten)]
    pub edit: EditReference,
    /// Signs that the text became narrower, and warnings of the weights of the model; empty where there are none.
    pub warnings: Vec<Warning>,
    /// True when the dataset of an earlier edit of the same was found and kept.
    pub up_to_date: bool,
    /// Fingerprint of the new dataset.
    pub fingerprint: String,
    /// Its folder.
    pub url: String,
}
