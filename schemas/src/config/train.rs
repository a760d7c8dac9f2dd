//! `[train]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    average::AverageConfig,
    dataset::PackMode,
    device::DeviceChoice,
    guard::GuardConfig,
    init::InitConfig,
    lora::LoraConfig,
    loss::{self, LossConfig},
    mixture::TrainMixture,
    model::{self, ImagesConfig, ModelConfig},
    optimizer::{self, OptimizerConfig},
    parallel::ParallelConfig,
    precision::{LossScaleConfig, Precision},
    schedule::{self, ScheduleConfig},
};
use crate::{ids::Seed, units::ByteSize};

/// Training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// URL of the dataset folder to train on. Default: the dataset of the pipeline,
    /// `<root>/dataset`.
    pub dataset: Option<String>,
    /// Datasets whose training splits are mixed by weight. Default: none, only the one dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixture: Option<TrainMixture>,
    /// Device that computes the model: `"auto"`, `"cpu"`, `"cuda"` (NVIDIA), `"wgpu"` (any GPU with
    /// a driver for Vulkan, Metal or DirectX 12), or one of several by its number, `"cuda:1"`.
    /// Results of different devices differ in their last bits; a run may resume on another device.
    /// Default `"auto"`: an NVIDIA GPU if this program was built with `cuda` and the machine has one
    /// that computes in `precision`, otherwise the CPU; never `wgpu`. The log names the choice.
    #[serde(skip_serializing_if = "DeviceChoice::is_auto")]
    pub device: DeviceChoice,
    /// Model.
    #[serde(deserialize_with = "model::read")]
    #[schemars(schema_with = "model::schema")]
    pub model: ModelConfig,
    /// Preparation of encoded images for the model.
    pub images: ImagesConfig,
    /// Loss.
    #[serde(deserialize_with = "loss::read")]
    #[schemars(schema_with = "loss::schema")]
    pub loss: LossConfig,
    /// Samples in a global batch, 1 to 1,048,576. Default 256.
    pub batch_size: u32,
    /// Most samples that one thread computes at a time, 1 to 1,048,576; fewer samples take less
    /// memory. The batch keeps its size and its gradients are accumulated. The order of summation
    /// changes, so the last bits of the weights change. Batch norm normalises over at most this
    /// many samples at a time: below `model.ghost_batch`, training has another result. Changing it
    /// makes another run. Default: chosen by the shape of the samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<u32>,
    /// Most epochs, at least 1. Default 20.
    pub epochs: u64,
    /// Seed of initialization, dropout and order. Default 0.
    pub seed: Seed,
    /// Peak learning rate, above 0. Default 0.001.
    pub learning_rate: f64,
    /// Learning rate schedule.
    #[serde(deserialize_with = "schedule::read")]
    #[schemars(schema_with = "schedule::schema")]
    pub schedule: ScheduleConfig,
    /// Initial weights from a file. Default: none, random ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<InitConfig>,
    /// Names of parameters that are not trained, such as `["tokens.*", "block.*"]`; `*` matches any
    /// text. They have no gradient and no optimizer state. Layers below the first trained parameter
    /// keep nothing for the backward pass. Running statistics of batch norm are still updated by
    /// the batches. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<String>,
    /// Low-rank adaptation. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
    /// Optimizer.
    #[serde(deserialize_with = "optimizer::read")]
    #[schemars(schema_with = "optimizer::schema")]
    pub optimizer: OptimizerConfig,
    /// Number type of matrix products: `f32`, `bf16` or `f16`. Default `f32`.
    #[serde(skip_serializing_if = "Precision::is_f32")]
    pub precision: Precision,
    /// Loss scaling; with `precision = "f16"` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScaleConfig>,
    /// Moving average of the weights. Default: none.
    pub average: Option<AverageConfig>,
    /// Largest global norm of the gradient; 0 disables clipping. Default 1.
    pub clip_norm: f64,
    /// Number of epochs without a better validation loss before training ends; 0 runs all epochs.
    /// Default 5.
    pub patience: u32,
    /// Policy for a model that is no better than a baseline on the validation split, or without one
    /// on the test split. The baseline looks at no feature: it predicts the mean, or the most
    /// frequent class, of the training split; for a quantile other than 0.5, whose `pinball` loss is
    /// compared, the best constant of the split's other rows; for tokens, the frequencies of the
    /// split's other ids. `warn` reports it; `fail` also ends the command with exit code 1 after
    /// everything is saved; `ignore` reports nothing. A forecast with a larger error than the best
    /// naive forecast of the dataset is a warning, unless `ignore`. Default `warn`.
    #[serde(skip_serializing_if = "BaselinePolicy::is_warn")]
    pub require_better_than_baseline: BaselinePolicy,
    /// Number of steps between lines of metrics. Default 50.
    pub log_every: u64,
    /// Address that serves the metrics of the running training to Prometheus, at `/metrics`, such
    /// as `"127.0.0.1:9464"`. Port 0 takes any free port and logs it. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_listen: Option<String>,
    /// Checkpoints.
    pub checkpoint: CheckpointConfig,
    /// Actions for numbers that are not finite and for loss spikes.
    pub guard: GuardConfig,
    /// Reading of the dataset.
    pub loader: LoaderSettings,
    /// Distribution of a batch over threads and ranks.
    pub parallel: ParallelConfig,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            dataset: None,
            mixture: None,
            device: DeviceChoice::default(),
            model: ModelConfig::default(),
            images: ImagesConfig::default(),
            loss: LossConfig::default(),
            batch_size: 256,
            micro_batch: None,
            epochs: 20,
            seed: Seed::new(0),
            learning_rate: 1e-3,
            schedule: ScheduleConfig::default(),
            init: None,
            freeze: Vec::new(),
            lora: None,
            optimizer: OptimizerConfig::default(),
            precision: Precision::default(),
            loss_scale: None,
            average: None,
            clip_norm: 1.0,
            patience: 5,
            require_better_than_baseline: BaselinePolicy::default(),
            log_every: 50,
            metrics_listen: None,
            checkpoint: CheckpointConfig::default(),
            guard: GuardConfig::default(),
            loader: LoaderSettings::default(),
            parallel: ParallelConfig::default(),
        }
    }
}

/// Policy for a model that is no better than its baseline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BaselinePolicy {
    /// A warning in the report.
    #[default]
    Warn,
    /// A warning, and exit code 1 once everything is saved.
    Fail,
    /// Nothing.
    Ignore,
}

impl BaselinePolicy {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde hands out references"
    )]
    const fn is_warn(&self) -> bool {
        matches!(self, Self::Warn)
    }
}

/// `[train.checkpoint]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Number of steps between checkpoints; one is also written after each epoch. 0: only after
    /// epochs. Training continues while a checkpoint is saved, so 1,000 steps take less than 1 %
    /// longer. Lower it if 1,000 steps take longer than you can afford to lose. A rollback
    /// (`train.guard`) returns to one of these checkpoints. Default 1,000.
    pub every_steps: u64,
    /// Number of newest checkpoints to keep besides the best, at least 1. One or two more are kept
    /// if a rollback (`train.guard`) may need them. Default 3.
    pub keep: u32,
    /// Interval of permanent checkpoints in steps: a checkpoint after each multiple of it is
    /// written and never deleted; 0 for none. Default 0.
    pub keep_every_steps: u64,
}

impl CheckpointConfig {
    /// Default number of steps between checkpoints.
    pub const EVERY_STEPS: u64 = 1_000;
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            every_steps: Self::EVERY_STEPS,
            keep: 3,
            keep_every_steps: 0,
        }
    }
}

/// `[train.loader]`. Keys marked "Order" determine the samples of a batch, so changing one makes
/// another run. The other keys affect only time and memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoaderSettings {
    /// Order: number of domains, 1 to 4,096. A domain is a part of the order that is shuffled by
    /// itself. Default 64.
    pub domains: u32,
    /// Order: number of blocks per shuffle window of each domain, 1 to 65,536. Samples are shuffled
    /// among `domains * window_blocks` blocks at a time. Default 8.
    pub window_blocks: u32,
    /// Order: bytes of neighbouring blocks that are assigned to a domain and read together, up to 1
    /// GiB; 0 assigns each block by itself. 8 MiB suits object stores. Default 0.
    pub extent_bytes: ByteSize,
    /// Most bytes of blocks in memory or being read. Default 1 GiB.
    pub prefetch_bytes: ByteSize,
    /// Number of batches that can be filled, ready or in use at one time, 2 to 64. For small
    /// batches the number is higher: up to 64 batches that together take 4 MiB, or a 64th of
    /// `prefetch_bytes` if that is less. Default 4.
    pub slabs: u32,
    /// Batches that are copied to a GPU before the step that needs them, 0 to 64; 0 copies each in
    /// its step. They are in memory in addition to `slabs`. No effect on the processor. Default 2.
    #[serde(skip_serializing_if = "is_default_prefetch")]
    pub device_prefetch: u32,
    /// Most threads that fill batches, up to 1,024; 0 means one per processor. Default 0.
    pub threads: u32,
    /// Most parallel reads, 1 to 1,024. Default 128.
    pub reads: u32,
    /// Seconds that a step may wait for its batch before the run ends with the cause of the delay;
    /// 0 sets no limit. Default 600.
    pub stall_s: u64,
    /// Largest fraction of the samples of a split that may be replaced by others because they are
    /// damaged, 0 to 1. Default 0.001.
    pub max_bad_fraction: f64,
    /// Order: action for a shard that is missing or whose length differs from the manifest: `fail`
    /// ends the run; `skip` leaves the shard out, counted and named. Default `fail`.
    pub bad_shards: BadShardsPolicy,
    /// Seconds after which the run ends if a read still fails, 1 to 86,400. Default 300.
    pub deadline_s: u64,
    /// Cache of the dataset on a local disk, for remote stores. Default: none.
    pub cache: Option<LoaderCache>,
    /// Order: packing of documents of tokens into rows. Default: that of the dataset, or
    /// `best_fit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack: Option<PackMode>,
    /// Order: frequency of each class in an epoch of training, for targets that are classes:
    /// `"equal"`, or a table of relative frequencies by class name, such as
    /// `{ fraud = 1, other = 3 }`. Each is at least 0; a class that is not named has 1, and 0
    /// excludes a class. An epoch has as many samples as the split has rows, or a few more. If a
    /// class is more frequent than in the rows, its rows occur several times. If it is less
    /// frequent, its rows do not occur in every epoch. In a mixture, each dataset is balanced by
    /// itself. Evaluation uses each row once. Default: each row once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<ClassBalanceConfig>,
}

/// Batches that are copied to a GPU before the step that needs them.
const DEVICE_PREFETCH: u32 = 2;

/// Returns true for the default, which has no part in the names of runs.
const fn is_default_prefetch(batches: &u32) -> bool {
    *batches == DEVICE_PREFETCH
}

/// Relative frequencies of the classes in an epoch of training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`equal`, or a table of shares by class name")]
pub enum ClassBalanceConfig {
    /// By a rule.
    Rule(BalanceRule),
    /// By class name; the others have 1.
    Named(BTreeMap<String, f64>),
}

/// Rule for the relative frequencies of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BalanceRule {
    /// The same frequency for all classes.
    Equal,
}

impl Default for LoaderSettings {
    fn default() -> Self {
        Self {
            domains: 64,
            window_blocks: 8,
            extent_bytes: ByteSize::new(0),
            prefetch_bytes: ByteSize::mib(1024),
            slabs: 4,
            device_prefetch: DEVICE_PREFETCH,
            threads: 0,
            reads: 128,
            stall_s: 600,
            max_bad_fraction: 0.001,
            bad_shards: BadShardsPolicy::Fail,
            deadline_s: 300,
            cache: None,
            pack: None,
            balance: None,
        }
    }
}

impl LoaderSettings {
    /// Returns these settings with only the keys that determine the samples of a batch; the others
    /// have their defaults.
    #[must_use]
    pub fn order(&self) -> Self {
        Self {
            domains: self.domains,
            window_blocks: self.window_blocks,
            extent_bytes: self.extent_bytes,
            bad_shards: self.bad_shards,
            // The default has no part in the names of runs.
            pack: self.pack.filter(|pack| *pack != PackMode::default()),
            balance: self.balance.clone(),
            ..Self::default()
        }
    }
}

/// Action for shards that are missing or have another length than the manifest states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BadShardsPolicy {
    /// The run ends.
    #[default]
    Fail,
    /// They are skipped.
    Skip,
}

/// `[train.loader.cache]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoaderCache {
    /// Folder on a local disk; jobs may share it.
    pub dir: String,
    /// Most bytes of the cache, such as `"100 GiB"`; at least two shuffle windows.
    pub bytes: ByteSize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    fn refused(train: &str) -> String {
        let text = format!("[pipeline]\nname = \"p\"\n\n[train]\n{train}\n");
        load("p.toml", &text, &[]).unwrap_err().to_string()
    }

    #[test]
    fn a_key_of_another_type_is_refused_with_its_line_and_owners() {
        for (train, expected) in [
            (
                "[train.optimizer]\nmomentum = 0.9",
                "p.toml:6: `train.optimizer.momentum`: this key belongs to `type = \"sgd\"`, `type = \"lars\"` and `type = \
                 \"muon\"`; `type = \"adamw\"` has the keys `type`, `l2`, `l1`, `group`, `beta1`, `beta2`, `epsilon`, `weight_decay`",
            ),
            (
                "[train.optimizer]\nlr = 0.9",
                "p.toml:6: `train.optimizer.lr`: unknown key `lr`",
            ),
            (
                "[train.schedule]\ntype = \"constant\"\nfinal_fraction = 0.1",
                "p.toml:7: `train.schedule.final_fraction`: this key belongs to `type = \"cosine\"`, ",
            ),
            (
                "loss = { type = \"mae\", delta = 2 }",
                "p.toml:5: `train.loss.delta`: this key belongs to `type = \"huber\"`; `type = \"mae\"` has the keys `type`",
            ),
            (
                "loss = { delta = 2 }",
                "p.toml:5: `train.loss.delta`: this key belongs to `type = \"huber\"`; a table without `type` has the keys `type`, \
                 `label_smoothing`, `class_weights`",
            ),
            (
                "[train.model]\ntype = \"transformer\"\nkernel = 3",
                "p.toml:7: `train.model.kernel`: this key belongs to `type = \"cnn\"`; `type = \"transformer\"` has the keys \
                 `type`, `dropout`, `checkpoint`, `layers`, `width`, `heads`, `kv_heads`, `positions`, `norm`, `activation`, `bias`, `context`, `tied`",
            ),
            (
                "[train.model]\ntype = \"multi\"\n[[train.model.branches]]\ntype = \"dense\"\nheads = 3",
                "p.toml:9: `train.model.branches.0.heads`: this key belongs to `type = \"vit\"` and `type = \"transformer\"`; ",
            ),
            (
                "[train.model]\ntype = \"transfomer\"",
                "p.toml:6: `train.model.type`: unknown value `transfomer`, did you mean `transformer`?",
            ),
        ] {
            let error = refused(train);
            assert!(error.starts_with(expected), "{error}\n{expected}");
        }
    }

    #[test]
    fn a_record_with_the_keys_of_other_types_as_null_is_read() {
        let config = TrainConfig::default();
        let text = serde_json::to_string(&config).unwrap();
        assert!(text.contains("\"momentum\":null"), "{text}");
        assert_eq!(serde_json::from_str::<TrainConfig>(&text).unwrap(), config);
    }
}
