//! `[train.loss]`.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use super::tagged::KeyTable;

/// `[train.loss]`. A key that the chosen type does not have is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LossConfig {
    /// Kind of the loss. For numbers `mse`, `mae`, `huber` or `quantile`; for classes
    /// `cross_entropy`, or for two classes also `binary_cross_entropy`. Default: `mse` for numbers,
    /// `cross_entropy` for classes.
    pub r#type: Option<LossKind>,
    /// `huber`: error, in units of the stored (scaled) target, above which the loss is linear;
    /// above 0. Default 1.
    pub delta: Option<f64>,
    /// `quantile`: aimed fraction of the targets below the prediction, above 0 and below 1. Reports
    /// have the metrics `pinball` (this loss, in the target's units) and `coverage` (fraction of the
    /// targets up to the prediction). Default 0.5.
    pub quantile: Option<f64>,
    /// `cross_entropy`: fraction of the target that is spread over all classes, 0 to below 1. With
    /// `class_weights`, the part of each class is multiplied by its weight, as in PyTorch. A class
    /// with a very large weight may then count more in every row than the row's own class, which is
    /// a warning. Default 0.
    pub label_smoothing: Option<f64>,
    /// `cross_entropy`: `"balanced"`, or a table of weights above 0 by class name, such as
    /// `{ good = 1.0, bad = 5.0 }`; classes that are not named have the weight 1. A list has a
    /// weight for each class in the order of their ids, as `feedline shards inspect` shows them. If
    /// the ids change, a list applies to other classes, so prefer names. The sum of weighted losses
    /// is divided by the sum of the weights of the samples. Default: every class has the weight 1.
    pub class_weights: Option<ClassWeights>,
    /// `binary_cross_entropy`: weight of the samples of class 1, the second by id, above 0.
    /// `{ yes = 5.0 }` names the class, so that it is an error if class 1 is another one. Default
    /// 1.
    pub positive_weight: Option<PositiveWeight>,
}

/// The keys of each type.
const KEYS: KeyTable = KeyTable {
    tag: "type",
    default: "",
    common: &[],
    variants: &[
        ("mse", &[]),
        ("mae", &[]),
        ("huber", &["delta"]),
        ("quantile", &["quantile"]),
        ("cross_entropy", &["label_smoothing", "class_weights"]),
        ("binary_cross_entropy", &["positive_weight"]),
        ("", &["label_smoothing", "class_weights"]),
    ],
};

/// Reads the section, and refuses a key of another type.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LossConfig, D::Error> {
    KEYS.read(deserializer)
}

pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    KEYS.schema::<LossConfig>(generator)
}

/// Kind of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Mean squared error, on the stored (scaled) target.
    Mse,
    /// Mean absolute error, on the stored (scaled) target.
    Mae,
    /// Squared error, linear for large errors, on the stored (scaled) target.
    Huber,
    /// Absolute error, weighted by its sign, on the stored (scaled) target.
    Quantile,
    /// Cross-entropy over classes.
    CrossEntropy,
    /// Cross-entropy of two classes from one output.
    BinaryCrossEntropy,
}

/// Weights of classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "`balanced`, a table of weights by class name, or a list of weights by class id"
)]
pub enum ClassWeights {
    /// By a rule.
    Rule(ClassWeightRule),
    /// One weight for each class.
    Each(Vec<f64>),
    /// By class name; the others have the weight 1.
    Named(BTreeMap<String, f64>),
}

/// Weight of class 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a number, or a table of one by the name of its class"
)]
pub enum PositiveWeight {
    /// A weight, for any name of the class.
    Weight(f64),
    /// By the name of the class: one entry.
    Named(BTreeMap<String, f64>),
}

/// Rule for the weights of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClassWeightRule {
    /// The same total weight for each class: `rows / (classes * rows of the class)`, over the
    /// training split.
    Balanced,
}
