//! `[dataset.expect]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the columns of a dataset are expected to hold, and what happens where they do not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectConfig {
    /// Path or URL of the file of expectations, such as `expect.toml`. `feedline shards expect PIPELINE` writes one from the
    /// training split of a dataset that was built with `dataset.profile`; edit it as you know the data.
    pub file: String,
    /// `reject` (default), `stop` or `warn`.
    #[serde(default, skip_serializing_if = "OnViolation::is_reject")]
    pub on_violation: OnViolation,
}

/// What happens to data that are not as expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnViolation {
    /// Rows with such a cell are set aside and count for `max_reject_fraction`; a column that is not as expected stops the build.
    #[default]
    Reject,
    /// The build stops and publishes nothing.
    Stop,
    /// Rows are kept; violations are counted and told.
    Warn,
}

impl OnViolation {
    /// Whether rows are set aside.
    #[must_use]
    pub const fn is_reject(&self) -> bool {
        matches!(self, Self::Reject)
    }
}
