//! `[tune]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::Seed;

/// A search for the keys of `[train]` that give the best validation metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TuneConfig {
    /// What is searched; at least one.
    pub parameter: Vec<TuneParameter>,
    /// How. Default `tpe`.
    pub strategy: TuneStrategy,
    /// Trainings, 1 to 10,000; raising it later continues the search. Default 20.
    pub trials: u32,
    /// Seed of the search; each training has the seed of `[train]`. Default 0.
    pub seed: Seed,
    /// Compared value: `loss`, or a metric of the validation split, such as `rmse` or `accuracy`. Losses of different kinds do
    /// not compare: where a key of `train.loss` is searched, `loss` is refused. Default `loss`; where a key of `train.loss` is
    /// searched, `rmse` or `cross_entropy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Which trainings are ended before their last epoch. Default `median`.
    pub early_stop: TuneStop,
}

impl Default for TuneConfig {
    fn default() -> Self {
        Self {
            parameter: Vec::new(),
            strategy: TuneStrategy::default(),
            trials: 20,
            seed: Seed::new(0),
            metric: None,
            early_stop: TuneStop::default(),
        }
    }
}

/// A key and its values: either `values`, or all between `low` and `high`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TuneParameter {
    /// Key of `[train]`, such as `train.learning_rate`.
    pub key: String,
    /// Lowest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Highest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// How values lie between `low` and `high`. Default `linear`.
    #[serde(default)]
    pub scale: TuneScale,
    /// Whether only whole numbers are tried. Default false.
    #[serde(default)]
    pub integer: bool,
    /// Values of a grid between `low` and `high`, 2 to 1,000. Default 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points: Option<u32>,
    /// The values, of any kind, such as `["sgd", "adamw"]` or `[[64], [128, 128]]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<Value>>,
}

/// How values lie in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TuneScale {
    /// Evenly.
    #[default]
    Linear,
    /// Evenly in their logarithm.
    Log,
}

/// How values are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TuneStrategy {
    /// Every combination once.
    Grid,
    /// At random.
    Random,
    /// At random at first, then where good values are likely: a tree-structured Parzen estimator (Bergstra et al. 2011).
    #[default]
    Tpe,
}

/// Which trainings are ended early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TuneStop {
    /// Those whose best epoch so far is worse than the median of earlier trainings after as many epochs.
    #[default]
    Median,
    /// Those that are not in the best third after 1, 3, 9, ... epochs (successive halving, Li et al. 2020).
    Halving,
    /// None.
    None,
}
