//! Reports of a training, its evaluation and its export.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    checkpoint::WorstSample,
    diagnostics::Diagnostics,
    ids::Hash128,
    performance::Performance,
    run::{ContinuedFrom, RunState},
    warning::Warning,
};

/// Parameters that Muon updates, and those that it leaves to AdamW.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MuonParameters {
    /// Matrices and kernels inside the model, which Muon updates.
    pub matrices: u64,
    /// Parameters in these matrices.
    pub muon: u64,
    /// Parameters that AdamW updates: embeddings, the last layer, biases and scales of norms.
    pub adamw: u64,
}

/// End of a training whose validation loss did not improve for `train.patience` epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EarlyStop {
    /// Epochs that it would have had (`train.epochs`).
    pub planned_epochs: u64,
    /// Epochs without a lower validation loss after which it stopped (`train.patience`).
    pub patience: u32,
}

/// Report of training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainReport {
    /// Steps, one per batch, with those that were left out (`dropped_steps`, `skipped_batches`).
    pub steps: u64,
    /// Steps left out, since their gradient overflowed f16: they moved no weight. Absent where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_steps: u64,
    /// Step of the checkpoint that the command began with: at `steps`, it trained nothing. Absent
    /// for a run that began at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<u64>,
    /// Seed.
    pub seed: u64,
    /// Epochs finished.
    pub epochs: u64,
    /// Reason why training stopped before its last epoch; absent where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_early: Option<EarlyStop>,
    /// Epoch whose weights were kept, from 1.
    pub best_epoch: u64,
    /// Trainable parameters.
    pub parameters: u64,
    /// Parameters by the algorithm that updates them; absent for optimizers other than `muon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub muon: Option<MuonParameters>,
    /// Device that computed, such as `cpu` or `NVIDIA H200 (cuda:0)`.
    #[serde(default)]
    pub device: String,
    /// Names of the classes by id; none where the model predicts no class. Of two, `f1` is about the second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Names of the targets where the model predicts several numbers of each row. The metrics of each have its name behind a dot; without
    /// one, `rmse` and `mae` are over the targets as stored (standardized, unless `dataset.scale_target` is false), and `r2` is the mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Metrics on the test split, in the target's units; none where a loss on it is not finite.
    pub test: BTreeMap<String, f64>,
    /// The same metrics of the baseline: always the training mean, or the most frequent training class; of a quantile
    /// the best constant of the other rows of the split.
    pub baseline: BTreeMap<String, f64>,
    /// Metrics on the validation split of the kept weights.
    pub validation: BTreeMap<String, f64>,
    /// The same metrics of the baseline on the validation split.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub validation_baseline: BTreeMap<String, f64>,
    /// Tokens of the test split that were predicted, which its metrics are means over; absent where the model predicts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_tokens: Option<u64>,
    /// Warnings about the model, such as `worse_than_baseline`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// The 20 validation samples with the largest losses under the kept weights; none for tokens.
    #[serde(default)]
    pub worst: Vec<WorstSample>,
    /// Diagnostics on the test split; absent where tokens or the features themselves are predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_diagnostics: Option<Diagnostics>,
    /// Diagnostics on the validation split of the kept weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_diagnostics: Option<Diagnostics>,
    /// Batches left out, since their loss or gradient was not finite.
    #[serde(default)]
    pub skipped_batches: u64,
    /// Times that the weights went back, since the loss had diverged.
    #[serde(default)]
    pub rollbacks: u64,
    /// Samples that cannot be used, such as images that cannot be decoded: another was trained on in the place of each, and no metric counts
    /// them. Counted since the training began or resumed. `train.loader.max_bad_fraction` limits their number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub quarantined: u64,
    /// Treatment of images; absent where the dataset has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<ImagesReport>,
    /// Samples that each dataset of a mixture gave, in the order of the loader: the one that is trained on, then the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mixture: Vec<MixedSource>,
    /// Share of the training time the trainer waited for batches, 0 to 1.
    pub data_wait_share: f64,
    /// Speed of the steps that this command took, and use of the device; absent where it took none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub performance: Option<Performance>,
    /// Checkpoint with the kept weights.
    pub checkpoint: String,
    /// Metrics file (JSON lines).
    pub metrics: String,
    /// Page with the curves and everything else about the run (HTML).
    #[serde(default)]
    pub report: String,
    /// The checkpoint of another run that this one began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_from: Option<ContinuedFrom>,
    /// Reason why `--resume` found no checkpoint to continue from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_over: Option<String>,
}

const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The run whose model a command used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsedRun {
    /// Name.
    pub name: String,
    /// Manner of the choice.
    pub chosen: ChosenBy,
    /// Dataset folder that it was trained on.
    pub dataset: String,
    /// Fingerprint of that dataset's manifest.
    pub fingerprint: String,
    /// Rows of that dataset's training split; absent where the run's record does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Relation of that dataset to the one at hand; absent where the command used none, or where `predict` and `generate` found
    /// that other settings built it than the configuration has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<DatasetRelation>,
    /// Keys of `[train]` whose values in the run differ from the configuration, with those of the run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub differs: BTreeMap<String, String>,
    /// Last known state of the run, where it has not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<RunState>,
    /// Observations about the choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Manner in which a run was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChosenBy {
    /// It is the run of the configuration and dataset.
    Configuration,
    /// There is none of these, and it is the newest finished run that fits.
    Default,
    /// `--run newest`.
    Newest,
    /// `--run best`.
    Best,
    /// `--run` with the beginning of its name.
    Name,
}

/// The dataset that a run was trained on, beside another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatasetRelation {
    /// They are the same.
    Same,
    /// The other is it with rows that were added: those of a split were in the same split.
    Grown,
    /// They are two datasets: rows that are measured may have been trained on.
    Other,
}

/// Report of `weights export`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportReport {
    /// The run that the weights are of.
    pub run: UsedRun,
    /// File that was written.
    pub to: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Treatment of images by a training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImagesReport {
    /// Mean of red, green and blue that is subtracted, as shares of 255; of one channel, the first.
    pub mean: [f32; 3],
    /// Standard deviation that is divided by, as a share of 255; of one channel, the first.
    pub deviation: [f32; 3],
    /// Origin of both.
    pub normalized_by: NormalizedBy,
    /// True where training images change at random (`train.images.augment`).
    pub augmented: bool,
    /// True where training images are mixed in pairs (`train.images.mix`): the training loss is then that of mixed targets.
    pub mixed: bool,
}

/// Origin of the mean and the standard deviation that images are normalised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormalizedBy {
    /// The training split of the dataset.
    Dataset,
    /// ImageNet.
    Imagenet,
    /// The run that the weights of `train.init` are of.
    Init,
    /// `train.images.mean` and `train.images.deviation`.
    Given,
}

/// Dataset of a mixture, and the samples that it gave to a training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MixedSource {
    /// Its folder.
    pub dataset: String,
    /// Fingerprint of its manifest.
    pub fingerprint: Hash128,
    /// Share of the samples that its weight asks for, 0 to 1.
    pub share: f64,
    /// Samples of its training split.
    pub samples: u64,
    /// Samples that it gave in all epochs, rows that came again included.
    pub given: u64,
}

/// Report of `eval`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalReport {
    /// Split.
    pub split: String,
    /// Rows that were measured.
    pub rows: u64,
    /// Rows of the split that cannot be used, such as images that cannot be decoded: no metric and no prediction counts them.
    /// `train.loader.max_bad_fraction` limits their number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub quarantined: u64,
    /// Names of the classes by id; none where the model predicts no class. Of two, `f1` is about the second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Names of the targets where the model predicts several numbers of each row. The metrics of each have its name behind a dot; without
    /// one, `rmse` and `mae` are over the targets as stored (standardized, unless `dataset.scale_target` is false), and `r2` is the mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Tokens that were predicted, which the metrics are means over; absent where the model predicts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Metrics in the target's units.
    pub metrics: BTreeMap<String, f64>,
    /// Metrics of the baseline.
    pub baseline: BTreeMap<String, f64>,
    /// Warnings about the figures, such as `worse_than_baseline`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// The 20 samples with the largest losses; none for tokens.
    #[serde(default)]
    pub worst: Vec<WorstSample>,
    /// Diagnostics; absent where tokens or the features themselves are predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Diagnostics>,
    /// Checkpoint.
    pub checkpoint: String,
    /// Dataset that was measured.
    #[serde(default)]
    pub dataset: String,
    /// The run that the weights are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<UsedRun>,
    /// File with the predictions of all rows, where one was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictions: Option<String>,
}
