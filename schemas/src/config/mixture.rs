//! `[train.mixture]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Hash128;

/// `[train.mixture]`: several datasets whose training splits are mixed by weight. The validation
/// and test splits are those of the main dataset, which is one entry of `sources`. All must hold
/// the same kind of records with the same transform, tokenizer and classes.
///
/// An epoch has `samples_per_epoch` samples. Without that key, it lasts until every source with
/// `end = "stop"` has ended. If all sources repeat, it has as many samples as all sources together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainMixture {
    /// Order: the datasets, up to 4,096.
    pub sources: Vec<TrainSource>,
    /// Order: if true, each batch has the same composition, to within one sample of each source; a
    /// weight must then give at least two samples of a batch. Default false: batches vary as if
    /// each sample were drawn by weight.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stratified: bool,
    /// Order: number of samples in an epoch, at least 1. Default: an epoch lasts until every source
    /// with `end = "stop"` has ended; if all repeat, as many samples as all have together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_per_epoch: Option<u64>,
}

/// One of `train.mixture.sources`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainSource {
    /// URL of the dataset folder. Exactly one entry has none: the main dataset (`train.dataset`, or
    /// the dataset of the pipeline).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// Order: relative frequency of the source's samples, at least 0; 0 excludes the source. Give
    /// all sources a weight, or none. Default: the number of samples of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Order: action after the last sample of the source: `repeat` (default) or `stop`.
    #[serde(default, skip_serializing_if = "SourceAtEnd::is_repeat")]
    pub end: SourceAtEnd,
    /// Required fingerprint of the dataset, for entries with `dataset` only. Default: any. The
    /// record of a run has the actual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Hash128>,
}

/// Action after all samples of a source of a mixture were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceAtEnd {
    /// The source begins again, in a new order.
    #[default]
    Repeat,
    /// The source gives no more samples in this epoch; the others replace it by their weights.
    Stop,
}

impl SourceAtEnd {
    const fn is_repeat(&self) -> bool {
        matches!(self, Self::Repeat)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}
