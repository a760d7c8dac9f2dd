//! Position of a loader: a few integers from which the rest of the order follows on any number of ranks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    format::{LOADER_STATE, versioned},
    ids::{Epoch, Hash128, Seed, Step},
};

/// State after the last batch the trainer finished. Resuming with another fingerprint, seed, order version or
/// geometry is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    /// `feedline.loader-state`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// Manifest the order is over.
    pub fingerprint: Hash128,
    /// Version of the order's definition.
    pub order_version: u32,
    /// Seed of the order.
    pub seed: Seed,
    /// Locality domains.
    pub domains: u32,
    /// Blocks per shuffle window of a domain.
    pub window_blocks: u32,
    /// Samples in a global batch.
    pub global_batch: u32,
    /// Epoch in progress.
    pub epoch: Epoch,
    /// Global batches of that epoch already consumed.
    pub batch: Step,
}
versioned!(LoaderState, LOADER_STATE);
