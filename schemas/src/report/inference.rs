//! Reports of `generate` and `predict`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::training::UsedRun;
use crate::{ids::Name, warning::Warning};

/// Report of `generate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GenerateReport {
    /// The run that the weights are of.
    pub run: UsedRun,
    /// Place of the weights.
    pub checkpoint: String,
    /// The prompt, prepared as the texts of the dataset.
    pub prompt: String,
    /// Its tokens.
    pub prompt_tokens: u64,
    /// Most tokens that the model reads.
    pub context: u64,
    /// Rule that the tokens were drawn by.
    #[serde(flatten)]
    pub rule: GeneratingRule,
    /// The texts.
    pub texts: Vec<GeneratedText>,
    /// Warnings, such as `prompt_cut`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Rule that the tokens of a text are drawn by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratingRule {
    /// Most tokens of a text.
    pub tokens: u32,
    /// Divisor of the scores before a token is drawn; 0 takes the most probable one.
    pub temperature: f64,
    /// Most tokens to draw from, the most probable ones; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Share of the probability to draw from, 0 to 1: the fewest tokens, most probable first, that have it; all of them
    /// when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Seed of the draws.
    pub seed: u64,
}

/// A generated text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratedText {
    /// Text after the prompt.
    pub text: String,
    /// Its tokens, without the one that ends a text.
    pub tokens: u64,
    /// Reason why it ends.
    pub end: GeneratedEnd,
}

/// Reason why a generated text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GeneratedEnd {
    /// The model gave the token that ends a text.
    EndOfText,
    /// It has the requested number of tokens.
    Length,
    /// It was stopped.
    Stopped,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Result of a join that was repeated for new rows. Rows that were rejected when they were read are
/// in neither count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedJoin {
    /// The joined source.
    pub source: Name,
    /// Rows with a match in it.
    pub matched: u64,
    /// Rows without a match.
    pub unmatched: u64,
}

/// Report of `predict`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictReport {
    /// Rows read, and written.
    pub rows: u64,
    /// Of these, rows without a prediction.
    pub rejected: u64,
    /// Those by reason.
    pub rejected_by_reason: BTreeMap<String, u64>,
    /// One of them and why.
    pub reject_sample: Option<String>,
    /// True if that row has a text in a column of timestamps that no format reads, for advice.
    #[serde(skip)]
    pub is_unread_time: bool,
    /// Rejected rows whose entity has another row that counts at their time, for advice.
    #[serde(skip)]
    pub same_time: u64,
    /// Columns of the file that are not used. Of NDJSON and JSON they are the keys of the rows, at
    /// most 256.
    pub ignored: Vec<String>,
    /// Decisions about the file of rows to review, such as the delimiter of CSV.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Inputs that no row had: they were missing everywhere.
    pub absent: Vec<String>,
    /// Missing cells of each input in the rows with a prediction. Inputs without any are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing_cells: BTreeMap<String, u64>,
    /// Rows of each category whose value the transform does not know. Categories without any are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_categories: BTreeMap<String, u64>,
    /// Cells of each number far outside of the training rows: beyond their range (`min_max`, `bin`) or the caps of `winsorize` by
    /// more than its width, or with neither (`standardize`) more standard deviations from the mean than the square root of the
    /// training rows, at least 10 and at most 100, or with `robust` alone 1,000 times its spread from the median. Numbers without
    /// any, and those without such a step, are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub far_outside: BTreeMap<String, u64>,
    /// Cells of each number that the caps of a `winsorize` step change, for a warning.
    #[serde(skip)]
    pub capped: BTreeMap<String, u64>,
    /// Fraction of the training rows whose numbers these caps change, by column.
    #[serde(skip)]
    pub capped_in_train: BTreeMap<String, f64>,
    /// Cells of each passthrough column that are not of the type which the contract declares. They
    /// are null in a Parquet file, with their text in `detail`. Columns without any are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub untyped_cells: BTreeMap<String, u64>,
    /// Joins that were repeated for the rows, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<PredictedJoin>,
    /// Rows that had joined columns of their own, to which nothing was joined.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub joined_before: u64,
    /// New rows of a series without a prediction of their own: duplicates of landed rows, or of one
    /// another.
    #[serde(default)]
    pub copies: u64,
    /// Rows of the past of a series that were rejected, as in a build, or when the history was read.
    #[serde(default)]
    pub rejected_before: u64,
    /// Columns that forecasts are ordered by, entity first, then time; none where predictions are in the order of a file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ordered_by: Vec<String>,
    /// Hash of the transform artefact.
    pub transform: String,
    /// Run that the weights are of; absent where only the transform was applied.
    pub run: Option<String>,
    /// Choice of that run, and its dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedRun>,
    /// File of the weights.
    pub checkpoint: Option<String>,
    /// File of the predictions; `-` is standard output.
    pub to: String,
}
