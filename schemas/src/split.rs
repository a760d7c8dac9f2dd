//! Splits of a dataset.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A split.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Rows that models and transforms are fitted on.
    Train,
    /// Rows that choose among models.
    Validation,
    /// Rows read once, at the end.
    Test,
}

impl Split {
    /// All splits, in manifest order.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// The split's name in paths and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }
}

impl std::fmt::Display for Split {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
