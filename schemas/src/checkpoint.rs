//! Checkpoint header, kept as the metadata entry `feedline` of a safetensors file.
//!
//! The file's tensors are `parameter.<name>` (f32), `optimizer.all.<state>` (f32, flat, such as `first_moment`),
//! `average.<name>` where an average is kept, and,
//! when they differ from the current ones, `best.<name>` (f32). The file is complete or absent: temporary name, sync,
//! rename. `tensor_hash` covers the tensor bytes and `header_hash` the header, so a damaged file is refused and the
//! previous one is taken.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    diagnostics::{Diagnostics, TargetValue},
    format::{CHECKPOINT, versioned},
    ids::{Epoch, Hash128, Seed, Sequence, Step},
    loader_state::LoaderState,
    manifest::Layout,
};

/// The header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointHeader {
    /// `feedline.checkpoint`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// Steps, one per batch, with those that were left out.
    pub step: Step,
    /// Epoch in progress.
    pub epoch: Epoch,
    /// Seed of initialization, dropout and order.
    pub seed: Seed,
    /// Position to resume the loader from.
    pub loader: LoaderState,
    /// Fingerprint of the dataset's manifest.
    pub fingerprint: Hash128,
    /// Hash of the file of weights that the run began with, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Hash128>,
    /// Layout the model was built for.
    pub layout: Layout,
    /// Names of the classes by id, that is, by output of the model; none where it predicts no class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Names of the features in the order that the model reads them; none where it reads no rows of features, and in
    /// checkpoints of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Names of the targets by output of the model, where it predicts several numbers of each row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Meaning of the token ids of a text; absent where the model reads no text, and in checkpoints of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_ids: Option<TextIds>,
    /// Hashes of the transform that makes features and targets; absent where the model reads no rows of features, and in
    /// checkpoints of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<TransformHashes>,
    /// Resolved training configuration.
    pub config: crate::config::TrainConfig,
    /// Early-stopping state.
    pub early_stopping: EarlyStopping,
    /// State of the schedule.
    pub plateau: Plateau,
    /// Scale of the loss, with f16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// Hashes of the files of the optimizer's shares, in rank order, where ranks hold its state in
    /// shares. Such a file is stored beside this one and ends with
    /// `.state-<rank>-of-<ranks>.safetensors`. The state is then not in this file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state_shards: Vec<Hash128>,
    /// Sums of the epoch in progress, so that its mean loss is exact after a resume.
    pub running: RunningLoss,
    /// State of the guard.
    #[serde(default)]
    pub guard: GuardState,
    /// xxh3-128 over the tensors' names and bytes, in name order.
    pub tensor_hash: Hash128,
    /// xxh3-128 of the header with this field zero.
    pub header_hash: Hash128,
}
versioned!(CheckpointHeader, CHECKPOINT);

/// Meaning of the token ids of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextIds {
    /// xxh3-128 of the `tokenizer.json` that makes them.
    Tokenizer(Hash128),
    /// Known characters in the order of their ids; the first has id 1.
    Characters(String),
}

/// Hashes of what a transform has fitted, whatever the order of its columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransformHashes {
    /// xxh3-128 of the inputs and steps that make the features.
    pub features: Hash128,
    /// xxh3-128 of the scales of the targets that are numbers; absent without such targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Hash128>,
}

/// State of early stopping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyStopping {
    /// Best validation loss so far and the epoch after which it was measured.
    pub best: Option<BestEpoch>,
    /// Evaluations since the best.
    pub evaluations_since_best: u32,
    /// True when training has ended.
    pub finished: bool,
}

/// The best epoch.
///
/// Files count epochs from 0, in `checkpoints`, `run.json` and `metrics.jsonl`; reports, pages and messages count them from 1,
/// by [`BestEpoch::number`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BestEpoch {
    /// Epoch, from 0.
    pub epoch: Epoch,
    /// Step after which it was measured.
    pub step: Step,
    /// Validation loss.
    pub loss: f64,
    /// Validation metrics.
    pub metrics: BTreeMap<String, f64>,
    /// The same of a baseline that looks at no feature.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub baseline: BTreeMap<String, f64>,
    /// Validation samples with the largest losses.
    #[serde(default)]
    pub worst: Vec<WorstSample>,
    /// Diagnostics on the validation split; absent where tokens or the features themselves are predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Diagnostics>,
}

impl BestEpoch {
    /// Its number as reports, pages and messages count: the first epoch is 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.epoch.next().get()
    }
}

/// A sample that a model does badly on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorstSample {
    /// Its loss, in the units of the stored target.
    pub loss: f64,
    /// Its key, 16 hexadecimal digits.
    pub key: String,
    /// Index of its source in the manifest's `sources`; absent, as are `sequence` and `row`, where `dataset.sql` made the rows:
    /// they have no place in the landing zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<u64>,
    /// Log sequence of the batch of that source that it was landed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    /// Its row in that batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// Its target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetValue>,
    /// Its prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<TargetValue>,
}

/// State of the schedule `plateau`; as at the start with every other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plateau {
    /// Validation loss that the next must be clearly below.
    pub best: Option<f64>,
    /// Evaluations since then or since the rate last fell.
    pub evaluations_since_best: u32,
    /// Times the rate has fallen.
    pub falls: u32,
}

/// State of the loss scaling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// Scale of the next step.
    pub scale: f64,
    /// Steps with finite gradients since it last changed.
    pub good_steps: u64,
    /// Steps left out so far, which moved neither weights nor optimizer.
    pub dropped: u64,
}

/// Sum of losses since the epoch began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunningLoss {
    /// Sum of losses.
    pub loss_sum: f64,
    /// The same without label smoothing, as validation measures them; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsmoothed_sum: Option<f64>,
    /// Divisor of the mean: the number of samples, or the sum of their weights.
    pub weight: f64,
    /// Updates of the weights before the epoch; absent in the first one, and where the weights went back in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updates_before: Option<u64>,
}

/// State of the guard against numbers that are not finite and losses that jump.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuardState {
    /// Steps that the weights know nothing of: their batches were left out, or stepped past when the weights went back.
    pub dropped: u64,
    /// Steps whose batches were left out, as far as they still count.
    pub skipped: Vec<Step>,
    /// Batches left out since the start.
    pub skipped_in_all: u64,
    /// Losses that the mean is taken of, oldest first.
    pub losses: Vec<f64>,
    /// Norms of gradients that the mean is taken of, oldest first.
    pub norms: Vec<f64>,
    /// Learning rate of the last step.
    pub rate: f64,
    /// Losses that were spikes, since one was no higher than the mean.
    pub spikes: Vec<f64>,
    /// Steps without a spike since the candidate or the last spike.
    pub calm: u32,
    /// Step of the checkpoint that is the next to go back to, once it turns out to be clean.
    pub candidate: Option<Step>,
    /// Step of the checkpoint to go back to; 0 is the start.
    pub anchor: Step,
    /// When the weights went back.
    pub rollbacks: Vec<Rollback>,
    /// Step of the last alarm.
    pub alarmed: Option<Step>,
    /// Mean of the first losses; absent before there are as many as the mean is taken of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_loss: Option<f64>,
    /// Mean of the first norms of gradients; absent as `first_loss`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_norm: Option<f64>,
}

/// Weights that went back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// Step after which they did.
    pub step: Step,
    /// Step whose weights were taken.
    pub to: Step,
}
