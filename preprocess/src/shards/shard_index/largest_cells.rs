//! Largest cells of the features of training rows.

use super::ShardIndex;

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
}
