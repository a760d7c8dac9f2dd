//! `[dataset.expect]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Expectations for the columns of a dataset, and the action for violations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectConfig {
    /// Path or URL of the file of expectations, such as `expect.toml`.
    /// `feedline shards expect PIPELINE` writes one from the training split of a dataset that was
    /// built with `dataset.profile`. Then edit it to match your knowledge of the data.
    pub file: String,
    /// Action for violations: `reject` (default), `stop` or `warn`.
    #[serde(default, skip_serializing_if = "OnViolation::is_reject")]
    pub on_violation: OnViolation,
}

/// Action for data that violate an expectation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnViolation {
    /// Rows with a violation are rejected and count for `max_reject_fraction`. A violation that
    /// concerns a column and not single rows stops the build.
    #[default]
    Reject,
    /// The build stops and publishes nothing.
    Stop,
    /// Rows are kept; violations are counted and reported.
    Warn,
}

impl OnViolation {
    /// Returns true if rows are rejected.
    #[must_use]
    pub const fn is_reject(&self) -> bool {
        matches!(self, Self::Reject)
    }
}
