//! `[train.lora]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[train.lora]`: low-rank adaptation (Hu et al. 2021, arXiv 2106.09685). The fully connected
/// layers in `targets` compute `x W + b + alpha / rank * (x A) B` with `A: [in, rank]`,
/// `B: [rank, out]`. These matrices are trained, and of all other parameters only those in `train`.
/// `A` begins uniform in `±1 / sqrt(in)` and `B` as 0, so training begins with the unchanged model.
/// `feedline weights export --merge-lora` adds the products to the weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraConfig {
    /// Rank of the products, 1 to 65,536. Default 8.
    pub rank: u32,
    /// Scale of the products: they are multiplied by `alpha / rank`; above 0. Default 16.
    pub alpha: f64,
    /// Fraction of the inputs of the adapted layers that is dropped for the products in training, 0
    /// to below 1. Default 0.
    pub dropout: f64,
    /// Names of the fully connected layers to adapt, such as `["*.qkv", "*.up"]`; `*` matches any
    /// text. Default: all.
    pub targets: Vec<String>,
    /// Names of other parameters that are trained, such as `["last.*"]` for a new head. Default:
    /// none.
    pub train: Vec<String>,
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self {
            rank: 8,
            alpha: 16.0,
            dropout: 0.0,
            targets: vec!["*".into()],
            train: Vec::new(),
        }
    }
}
