//! `[train.optimizer]`.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use super::tagged::KeyTable;

/// `[train.optimizer]`. A key that the chosen type does not have is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerConfig {
    /// Kind of the optimizer: `sgd`, `adam`, `adamw`, `lamb`, `lars`, `adafactor` or `muon`.
    /// Default `adamw`.
    pub r#type: OptimizerKind,
    /// `sgd`, `lars`, `muon`: momentum, the factor of the previous update, 0 to below 1. Default 0
    /// for `sgd`, 0.9 for `lars`, 0.95 for `muon`.
    pub momentum: Option<f64>,
    /// `sgd`: dampening, a fraction that is removed from each gradient before it enters the
    /// momentum, 0 to 1. Default 0.
    pub dampening: Option<f64>,
    /// `sgd`, `muon`: if true, Nesterov momentum is used; needs `momentum` above 0 and, for `sgd`,
    /// `dampening = 0`. Default false for `sgd`, true for `muon`.
    pub nesterov: Option<bool>,
    /// `adam`, `adamw`, `lamb`, `muon`: decay of the first moment, 0 to below 1. Default 0.9. `muon`
    /// uses it for the parameters that AdamW updates.
    pub beta1: Option<f64>,
    /// `adam`, `adamw`, `lamb`, `muon`: decay of the second moment, 0 to below 1. Default 0.999.
    pub beta2: Option<f64>,
    /// `adam`, `adamw`, `lamb`, `muon`: number added to the root of the second moment, above 0.
    /// Default 1e-8, for `lamb` 1e-6.
    pub epsilon: Option<f64>,
    /// `lars`: norm of an update as a fraction of the norm of the weights, above 0. Default 0.001.
    pub trust: Option<f64>,
    /// `adafactor`: exponent of the step in the decay of the second moment, below 0. Default -0.8.
    pub beta2_decay: Option<f64>,
    /// `adafactor`: smallest scale of an update, for weights that are near 0; above 0. Default
    /// 0.001.
    pub epsilon_scale: Option<f64>,
    /// `adafactor`: root mean square above which an update is scaled down, above 0. Default 1.
    pub update_clip: Option<f64>,
    /// All but `adam`: decoupled weight decay, at least 0; biases are not decayed. `lamb` and
    /// `lars` include it in the norm of the update, as their papers do. Default 0.01 for `adamw`
    /// and `lamb`, 0.1 for `muon`, 0 for the others.
    pub weight_decay: Option<f64>,
    /// L2 penalty `l2 / 2 * |w|²`, at least 0; its gradient `l2 * w` is added to the gradient of
    /// the loss. Biases have none. PyTorch calls it the weight decay of `SGD` and `Adam`. Default
    /// 0.
    pub l2: f64,
    /// L1 penalty `l1 * |w|₁`, at least 0; its gradient `l1 * sign(w)` is added to the gradient of
    /// the loss. Biases have none. Default 0.
    pub l1: f64,
    /// Parameter groups with settings of their own; a parameter belongs to the first group that
    /// names it. Default: none.
    pub group: Vec<ParameterGroup>,
}

/// The keys of each type.
const KEYS: KeyTable = KeyTable {
    tag: "type",
    default: "adamw",
    common: &["l2", "l1", "group"],
    variants: &[
        (
            "sgd",
            &["momentum", "dampening", "nesterov", "weight_decay"],
        ),
        ("adam", &["beta1", "beta2", "epsilon"]),
        ("adamw", &["beta1", "beta2", "epsilon", "weight_decay"]),
        ("lamb", &["beta1", "beta2", "epsilon", "weight_decay"]),
        ("lars", &["momentum", "trust", "weight_decay"]),
        (
            "muon",
            &[
                "momentum",
                "nesterov",
                "beta1",
                "beta2",
                "epsilon",
                "weight_decay",
            ],
        ),
        (
            "adafactor",
            &[
                "beta2_decay",
                "epsilon_scale",
                "update_clip",
                "weight_decay",
            ],
        ),
    ],
};

/// Reads the section, and refuses a key of another type.
pub(super) fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<OptimizerConfig, D::Error> {
    KEYS.read(deserializer)
}

pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    KEYS.schema::<OptimizerConfig>(generator)
}

/// Kind of an optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// Stochastic gradient descent, optionally with momentum.
    Sgd,
    /// Adam (Kingma and Ba 2015).
    Adam,
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    #[default]
    Adamw,
    /// Adam with updates scaled by the norm of the layer's weights (You et al. 2020), for large
    /// batches.
    Lamb,
    /// Momentum with updates scaled by the norm of the layer's weights (You et al. 2017), for large
    /// batches.
    Lars,
    /// Second moments factored into rows and columns (Shazeer and Stern 2018), for less memory.
    Adafactor,
    /// Momentum made orthogonal (Jordan et al. 2024, Liu et al. 2025) for the matrices inside a
    /// model: weights of fully connected, LSTM and convolution layers. Embeddings, the last fully
    /// connected layer, biases and norms are updated by AdamW with the same learning rate.
    Muon,
}

/// `[[train.optimizer.group]]`: settings of a parameter group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParameterGroup {
    /// Pattern of the names of its parameters; `*` matches any text, as in `layer.0.*` or `*.bias`.
    pub parameters: String,
    /// Factor of the learning rate, at least 0; 0 leaves the parameters unchanged. Default 1.
    #[serde(default = "one")]
    pub rate_factor: f64,
    /// Weight decay of these parameters, biases too, in place of the optimizer's. Default: the
    /// optimizer's.
    pub weight_decay: Option<f64>,
    /// L2 penalty of these parameters, biases too, in place of the optimizer's. Default: the
    /// optimizer's.
    pub l2: Option<f64>,
    /// L1 penalty of these parameters, biases too, in place of the optimizer's. Default: the
    /// optimizer's.
    pub l1: Option<f64>,
}

const fn one() -> f64 {
    1.0
}
