//! Training and evaluation through the public interface, on shards read by the real loader.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod augment;
mod edit;
mod kept_weights;
mod memory;
mod models;
mod runs;
mod tracking;
mod tune;

use feedline_testkit::learnable_dataset as dataset;
