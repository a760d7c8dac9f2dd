//! `[train.parallel]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[train.parallel]`: how a batch is shared among threads and ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParallelConfig {
    /// Fewest parts that a batch is cut into, a power of two up to 1,024; larger batches are cut into more by their
    /// shape. Runs on 1, 2, 4 and so on up to this many ranks end with the same bits. Changing it makes another run.
    /// Default 1.
    pub parts: u32,
}

impl Default for ParallelConfig {
    fn default() -> Self {
        Self { parts: 1 }
    }
}

impl ParallelConfig {
    /// These settings as far as they decide what a run computes; the rest has its defaults.
    #[must_use]
    pub fn numbers(&self) -> Self {
        Self { parts: self.parts }
    }
}
