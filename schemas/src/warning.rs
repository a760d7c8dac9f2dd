//! Warnings: automatic decisions and observations that end nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A decision or an observation that a person should know of, as commands show it.
///
/// Unlike an error it ends nothing. A source has at most one of each `code`; the newest holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// Fixed word in snake case, such as `total_above_rows`.
    pub code: String,
    /// One sentence with the figures.
    pub message: String,
    /// Configuration key that changes the decision, such as `dataset.dedup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl Warning {
    /// A warning that no key changes.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            key: None,
        }
    }

    /// The same warning with the configuration key that changes the decision.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }
}

/// Adds `warning` to `warnings`, in place of one with its code.
pub fn replace_warning(warnings: &mut Vec<Warning>, warning: Warning) {
    match warnings.iter_mut().find(|old| old.code == warning.code) {
        Some(old) => *old = warning,
        None => warnings.push(warning),
    }
}
