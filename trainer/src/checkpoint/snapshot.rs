//! Content of a checkpoint, and names of its parts in the file.

use feedline_schemas::checkpoint::CheckpointHeader;

use crate::optim::optimizer::StateBucket;

/// Metadata entry of the header.
pub(crate) const METADATA_KEY: &str = "feedline";

/// Content of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    /// The header; its hashes are filled in when it is written.
    pub(crate) header: CheckpointHeader,
    /// All parameters.
    pub(crate) parameters: Vec<f32>,
    /// State of the optimizer; none in `best.safetensors`, and where it is in files of its own.
    pub(crate) state: Vec<StateBucket>,
    /// The average of the weights, where one is kept.
    pub(crate) average: Option<Vec<f32>>,
    /// The best weights, when they are not `parameters`.
    pub(crate) best: Option<Vec<f32>>,
}

/// Name of the tensor of a bucket of the optimizer's state.
pub(super) fn state_name(bucket: &str) -> String {
    format!("optimizer.all.{bucket}")
}
