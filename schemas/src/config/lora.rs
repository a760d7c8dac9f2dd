//! `[train.lora]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[train.lora]`: low-rank adaptation (Hu et al. 2021, arXiv 2106.09685). Fully connected layers that are named compute
/// `x W + b + alpha / rank * (x A) B` with `A: [in, rank]`, `B: [rank, out]`; these are trained, and of all other
/// parameters only those that `train` names. `A` begins uniform in `±1 / sqrt(in)`, `B` as 0, so that training begins with
/// the model as it was. `feedline weights export --merge-lora` adds the products to the weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraConfig {
    /// Rank of the products, 1 to 65,536. Default 8.
    pub rank: u32,
    /// What the products are multiplied by, times the rank; above 0. Default 16.
    pub alpha: f64,
    /// Share of the adapted layers' inputs that the products do not see in training, 0 to below 1. Default 0.
    pub dropout: f64,
    /// Names of fully connected layers, such as `["*.qkv", "*.up"]`; `*` stands for any text. Default all.
    pub targets: Vec<String>,
    /// Names of other parameters that are trained, such as `["last.*"]` for a new head. Default none.
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
