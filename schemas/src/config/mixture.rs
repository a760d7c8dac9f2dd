//! `[train.mixture]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Hash128;

/// `[train.mixture]`: several datasets whose training splits are mixed by weight. Validation and test are those of the
/// dataset that is trained on, which one entry of `sources` stands for. All must hold the same kind of records under the
/// same transform, tokenizer and classes.
///
/// An epoch is `samples_per_epoch` samples. Without it, it lasts until every source with `end = "stop"` has ended; where
/// all repeat, it has as many samples as all sources together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainMixture {
    /// Order: the datasets, up to 4,096.
    pub sources: Vec<TrainSource>,
    /// Order: whether each batch has the same make-up, to one sample of a source; a weight must then be at least two
    /// samples of a batch. Default false: batches vary as if each sample were drawn by weight.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stratified: bool,
    /// Order: samples in an epoch, at least 1. Default: see above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_per_epoch: Option<u64>,
}

/// One of `train.mixture.sources`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainSource {
    /// URL of the dataset folder. One entry has none: the dataset that is trained on (`train.dataset`, or the pipeline's own).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// Order: share of the samples relative to those of the others, at least 0; 0 leaves the source out. Give all sources
    /// one, or none. Default: the number of the source's samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Order: what comes after the source's last sample: `repeat` (default) or `stop`.
    #[serde(default, skip_serializing_if = "SourceAtEnd::is_repeat")]
    pub end: SourceAtEnd,
    /// Fingerprint that the dataset must have; of a dataset that is named only. Default: any. The record of a run has the
    /// one that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Hash128>,
}

/// End of a source of a mixture, when all its samples were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceAtEnd {
    /// It begins again, in a new order.
    #[default]
    Repeat,
    /// It gives nothing more in this epoch; the others fill its place by their weights.
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
