//! Shards of a dataset and its manifest: written, indexed, audited and verified.

pub(crate) mod audit;
pub(crate) mod footer;
pub(crate) mod manifest;
pub(crate) mod open_shard;
pub(crate) mod passthrough_rows;
pub(crate) mod prune;
pub(crate) mod shard_index;
pub(crate) mod shard_layout;
mod stored_shard;
pub(crate) mod verify;
pub(crate) mod writer;
