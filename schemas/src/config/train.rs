//! `[train]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Seed;

/// Training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// URL of the dataset folder to train on. Default: the pipeline's own, `<root>/dataset`.
    pub dataset: Option<String>,
    /// Model.
    pub model: ModelConfig,
    /// `mse` or `cross_entropy`. Default: by the dataset's task.
    pub loss: Option<LossKind>,
    /// Samples in a global batch, 1 to 1,048,576. Default 256.
    pub batch_size: u32,
    /// Most epochs, at least 1. Default 20.
    pub epochs: u64,
    /// Seed of initialization, dropout and order. Default 0.
    pub seed: Seed,
    /// Peak learning rate, above 0. Default 0.001.
    pub learning_rate: f64,
    /// Steps over which the rate rises from 0 to the peak. Default 100.
    pub warmup_steps: u64,
    /// Rate at the end of the cosine, as a share of the peak, 0 to 1. Default 0.01.
    pub final_rate_share: f64,
    /// AdamW: decay of the first moment, 0 to below 1. Default 0.9.
    pub beta1: f64,
    /// AdamW: decay of the second moment, 0 to below 1. Default 0.999.
    pub beta2: f64,
    /// AdamW: added to the root of the second moment, above 0. Default 1e-8.
    pub epsilon: f64,
    /// AdamW: decoupled weight decay, at least 0; biases are not decayed. Default 0.01.
    pub weight_decay: f64,
    /// Largest global norm of the gradient; 0 does not clip. Default 1.
    pub clip_norm: f64,
    /// Epochs without a better validation loss before training ends; 0 runs all epochs. Default 5.
    pub patience: u32,
    /// Steps between lines of metrics. Default 50.
    pub log_every: u64,
    /// Checkpoints.
    pub checkpoint: CheckpointConfig,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            dataset: None,
            model: ModelConfig::default(),
            loss: None,
            batch_size: 256,
            epochs: 20,
            seed: Seed::new(0),
            learning_rate: 1e-3,
            warmup_steps: 100,
            final_rate_share: 0.01,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            clip_norm: 1.0,
            patience: 5,
            log_every: 50,
            checkpoint: CheckpointConfig::default(),
        }
    }
}

/// `[train.model]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// `mlp`.
    pub r#type: ModelKind,
    /// `mlp`: widths of the hidden layers, 1 to 65,536 each; `[]` is a linear model. Default `[128, 128]`.
    pub hidden: Vec<u32>,
    /// Share of activations dropped in training, 0 to below 1. Default 0.
    pub dropout: f64,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            r#type: ModelKind::Mlp,
            hidden: vec![128, 128],
            dropout: 0.0,
        }
    }
}

/// Kind of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// Fully connected layers with GELU between them.
    Mlp,
}

/// Kind of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Mean squared error, on the stored (scaled) target.
    Mse,
    /// Cross-entropy over classes.
    CrossEntropy,
}

/// `[train.checkpoint]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Steps between checkpoints; one is also written after each epoch. 0: only after epochs. Default 0.
    pub every_steps: u64,
    /// Newest checkpoints kept besides the best, at least 1. Default 3.
    pub keep: u32,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            every_steps: 0,
            keep: 3,
        }
    }
}
