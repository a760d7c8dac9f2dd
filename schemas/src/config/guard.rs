//! `[train.guard]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[train.guard]`: what a run does about numbers that are not finite and about losses that jump.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GuardConfig {
    /// What becomes of a batch whose loss or gradient is NaN or infinite: the run ends (`stop`), or the batch is left
    /// out, counted and named (`skip`). The weights are not changed by either. Default `stop`.
    pub not_finite: NotFinitePolicy,
    /// Most batches left out in `window_steps` steps before the run ends, 0 to 10,000. Default 10.
    pub max_skipped: u32,
    /// Steps that `max_skipped` is counted over, at least 1. Default 1,000.
    pub window_steps: u64,
    /// A loss is a spike when it is over this many times the mean of the last `spike_window` losses, and over that mean
    /// and three times their standard deviation; at least 1, or 0 for none. Default 3.
    pub spike_factor: f64,
    /// Losses that the mean is taken of, and that must have been seen before one can be a spike, 2 to 10,000.
    /// Default 100.
    pub spike_window: u32,
    /// Spikes, without a loss between them that is no higher than the mean, after which the weights go back to the last
    /// checkpoint that was followed by as many steps without one, and the batches since are stepped past; 1 to 10,000, and
    /// 1 goes back at the first. Fewer are told of and nothing else: a batch of rare samples is no reason to go back.
    /// Default 5.
    pub spike_steps: u32,
    /// Most times that the weights go back before the run ends, 0 to 10,000. Default 3.
    pub max_rollbacks: u32,
    /// A gradient whose norm is over this many times the mean of the last `spike_window` norms is told of; at least 1, or
    /// 0 for none. Default 10.
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
    /// These settings as far as they decide what the weights become; the rest has its defaults. What only says when a run
    /// ends has no part in that: a run that ended may go on with other limits.
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

/// What becomes of a batch whose loss or gradient is not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotFinitePolicy {
    /// The run ends.
    #[default]
    Stop,
    /// It is left out.
    Skip,
}
