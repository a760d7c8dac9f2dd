//! From the shards of a dataset to shuffled batches in host memory, ahead of the trainer.
//!
//! The order of an epoch is a pure function of (manifest, seed, epoch, step). So a run resumes exactly, on any number
//! of ranks, from a [`LoaderState`] of a few integers; see [`Batch::state`]. Blocks are checked before any of their
//! samples is handed out.
//!
//! ```
//! use feedline_loader::{Loader, Split};
//!
//! # fn example() -> Result<(), feedline_loader::Error> {
//! let loader = Loader::builder("out/dataset").split(Split::Train).batch_size(256).seed(7).open_blocking()?;
//! for batch in loader.batches()? {
//!     let batch = batch?;
//!     assert_eq!(batch.x().len(), batch.rows() * batch.features());
//! }
//! println!("resumes at {:?}, waited {} s", loader.state(), loader.metrics().consumer_wait_seconds);
//! # Ok(()) }
//! # assert!(matches!(example(), Err(feedline_loader::Error::NoDataset { .. })));
//! ```
//!
//! The way of a sample:
//!
//! ```text
//! order (integers) -> needs -> fetch thread, within a budget of bytes -> blocks in memory, each checked
//! -> assemble thread: rows and blocks of each batch -> pool of threads: fill the pieces of a slab
//!       -> batches, put in order -> the caller, who drops them -> the slab is free again
//! ```

mod assembly;
mod autotune;
mod baseline;
mod batch_kind;
mod block_table;
mod builder;
mod cache;
mod class_balance;
mod compact;
mod config;
mod count;
mod deliver;
pub mod device;
mod engine;
mod error;
mod fetch;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod image;
mod image_limits;
mod index;
mod input;
mod loader;
mod loader_plan;
mod metrics;
mod mixed_datasets;
mod open;
mod order;
mod quarantine;
mod sample_keys;
mod source_block;
mod sources;
mod state;

#[cfg(test)]
use feedline_testkit::{foreign_formats as foreign, numbered_dataset as dataset};

pub use baseline::Headspace;
pub use batch_kind::BatchKind;
pub use builder::LoaderBuilder;
pub use cache::CacheConfig;
pub use config::{BadShards, LoaderConfig, TokenLayout, TokensConfig};
pub use deliver::{
    batch::{Batch, Place, Target},
    iterator::EpochBatches,
    stream::BatchStream,
};
pub use error::{Difference, Error};
use feedline_schemas::guard;
pub use feedline_schemas::{
    ids::{Rank, Seed},
    loader_state::{LastBatch, LoaderState},
    manifest::Split,
};
pub use fetch::{FetchConfig, FetchError, FetchMetrics, RetryMetrics};
pub use image_limits::raise_limits;
pub use input::{
    config::{BadValues, ColumnMap, InputConfig, InputFormat},
    read_manifest,
    splits::SplitChoice,
};
pub use loader::{Loader, LoaderSource};
pub use loader_plan::LoaderPlan;
pub use metrics::{CacheMetrics, LoaderMetrics, StageMetrics};
pub use order::{ClassBalance, MixtureConfig, ShuffleQuality, SourceEnd, SourceWeight};
pub use quarantine::Quarantined;
pub use sample_keys::read_keys;
