//! Largest cells of the features of training rows, and their targets.

use super::{Measured, ShardIndex};

impl ShardIndex {
    /// Largest cell of each of the first `features` features of the training rows that were measured, without its sign.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "cells of shards have 32 bits"
    )]
    pub(crate) fn largest_cells(&self, features: usize) -> Vec<f32> {
        let features = self.moments.iter().take(features);
        let largest = features.map(|cells| cells.least.abs().max(cells.greatest.abs()));
        largest.map(|cell| cell as f32).collect()
    }

    /// Numeric targets of the same rows, as stored, behind their first `features` features.
    pub(crate) fn measured_targets(&self, features: usize) -> Vec<Measured> {
        let targets = self.moments.iter().skip(features);
        targets.map(|cells| Measured::of(*cells)).collect()
    }
}
