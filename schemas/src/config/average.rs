//! `[train.average]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[train.average]`: a moving average of the weights, which is validated and saved in place of the
/// weights themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AverageConfig {
    /// Decay: the factor of the previous average in each step, 0 to below 1. Default 0.999.
    pub decay: f64,
    /// If true, the decay after `t` steps is at most `(1 + t) / (10 + t)`, so that the initial
    /// weights lose their influence early. Default true.
    pub warmup: bool,
}

impl Default for AverageConfig {
    fn default() -> Self {
        Self {
            decay: 0.999,
            warmup: true,
        }
    }
}
