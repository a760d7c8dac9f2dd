//! `[train.guard]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[train.guard]`: actions for numbers that are not finite and for loss spikes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GuardConfig {
    /// Action for a training batch whose loss or gradient is NaN or infinite: the run ends (`stop`),
    /// or the batch is skipped, counted and named (`skip`). Neither changes the weights. Such a loss
    /// on the validation split always ends the run; on the test split, the report has a warning and
    /// no test metrics. Default `stop`.
    pub not_finite: NotFinitePolicy,
    /// Most batches that are skipped in `window_steps` steps before the run ends, 0 to 10,000.
    /// Default 10.
    pub max_skipped: u32,
    /// Number of steps over which `max_skipped` is counted, at least 1. Default 1,000.
    pub window_steps: u64,
    /// Factor for loss spikes: a spike is a loss over this factor times the mean of the last
    /// `spike_window` losses. It must also exceed that mean plus three standard deviations. At
    /// least 1, or 0 to disable the check. Default 3.
    pub spike_factor: f64,
    /// Number of losses in the mean, 2 to 10,000. No loss can be a spike before this many losses.
    /// Default 100.
    pub spike_window: u32,
    /// Number of spikes that cause a rollback, without a loss between them that is at most the
    /// mean; 1 to 10,000, and 1 rolls back at the first. The weights return to the last checkpoint
    /// that was followed by as many steps without a spike, and the batches since then are skipped.
    /// Fewer spikes are only reported: a batch of rare samples is no reason for a rollback. Default
    /// 5.
    pub spike_steps: u32,
    /// Most rollbacks before the run ends, 0 to 10,000. Default 3.
    pub max_rollbacks: u32,
    /// Factor for gradient warnings: a gradient norm is reported if it exceeds this factor times
    /// the mean of the last `spike_window` norms. At least 1, or 0 to disable the check. Default
    /// 10.
    pub gradient_factor: f64,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            not_finite: NotFinitePolicy::Stop,
            max_skipped: 10,
            window_steps: 1_000,
            spike_factor: 3.0,
            spike_window: 100,
            spike_steps: 5,
            max_rollbacks: 3,
            gradient_factor: 10.0,
        }
    }
}

impl GuardConfig {
    /// Returns these settings with only the keys that determine the weights; the others have their
    /// defaults. Keys that only end a run are not among them: a run that ended may resume with
    /// other limits.
    #[must_use]
    pub fn of_weights(&self) -> Self {
        let plain = Self::default();
        if self.spike_factor == 0.0 {
            return Self {
                spike_factor: 0.0,
                ..plain
            };
        }
        Self {
            spike_factor: self.spike_factor,
            spike_window: self.spike_window,
            spike_steps: self.spike_steps,
            ..plain
        }
    }
}

/// Action for a batch whose loss or gradient is not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotFinitePolicy {
    /// The run ends.
    #[default]
    Stop,
    /// The batch is skipped.
    Skip,
}
