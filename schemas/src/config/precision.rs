//! `train.precision` and `[train.loss_scale]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Number type of matrix products. Weights, gradients, optimizer state, norms, sums and losses are
/// always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 24 bits of precision.
    #[default]
    F32,
    /// 8 bits of precision, and the range of f32.
    Bf16,
    /// 11 bits of precision; numbers below 6e-8 become 0, those above 65,504 become infinite.
    F16,
}

impl Precision {
    /// Returns true for the default.
    #[must_use]
    pub fn is_f32(&self) -> bool {
        *self == Self::F32
    }
}

/// `[train.loss_scale]`, for `train.precision = "f16"`. The loss is multiplied by a scale, so that
/// small gradients do not become 0. The gradient is divided by the scale before it is used. The
/// scale grows while gradients are finite. A step whose gradient is not finite is skipped, and the
/// scale shrinks (Micikevicius et al. 2018, arXiv 1710.03740, with the rule of PyTorch's
/// `GradScaler`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LossScaleConfig {
    /// Initial scale, at least `floor`. Default 65,536.
    pub initial: f64,
    /// Factor of the scale after `growth_steps` steps with finite gradients, at least 1. Default 2.
    pub growth: f64,
    /// Number of consecutive steps with finite gradients after which the scale grows, at least 1.
    /// Default 2,000.
    pub growth_steps: u64,
    /// Factor of the scale after a step whose gradient is not finite, above 0 and below 1. Default
    /// 0.5.
    pub backoff: f64,
    /// Lowest scale, above 0; a gradient that is not finite at this scale ends the run. Default 1.
    pub floor: f64,
}

impl Default for LossScaleConfig {
    fn default() -> Self {
        Self {
            initial: 65_536.0,
            growth: 2.0,
            growth_steps: 2_000,
            backoff: 0.5,
            floor: 1.0,
        }
    }
}
