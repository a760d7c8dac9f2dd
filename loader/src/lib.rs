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

mod assemble;
mod balanced;
mod batch;
mod block;
mod budget;
mod builder;
mod by_class;
mod cache;
mod compact;
mod config;
mod control;
pub mod device;
mod engine;
mod error;
mod fetch;
mod fill;
mod filling;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod geometry;
mod headspace;
pub mod image;
mod index;
mod input;
mod iterator;
mod kept;
mod kind;
mod loaded;
mod loader;
mod metrics;
mod mixing;
mod open;
mod order;
mod outbox;
mod pool;
mod prefetch;
mod preview;
mod progress;
mod quarantine;
mod resident;
mod ring;
mod slab;
mod source_block;
mod sources;
mod state;
mod stream;
mod sync;
mod turns;

#[cfg(test)]
mod pool_tests;
#[cfg(test)]
mod ring_tests;

#[cfg(test)]
#[allow(dead_code, reason = "the tests of whole passes use more of it")]
#[path = "../tests/it/dataset.rs"]
mod dataset;

#[cfg(test)]
#[path = "../tests/it/foreign.rs"]
mod foreign;

pub use batch::{Batch, Place, Target};
pub use builder::LoaderBuilder;
pub use cache::CacheConfig;
pub use config::{BadShards, LoaderConfig, TokenLayout, TokensConfig};
pub use error::{Difference, Error};
use feedline_schemas::guard;
pub use feedline_schemas::{
    ids::{Rank, Seed},
    loader_state::{LastBatch, LoaderState},
    manifest::Split,
};
pub use fetch::{FetchConfig, FetchError, FetchMetrics, RetryMetrics};
pub use headspace::Headspace;
pub use input::{
    config::{BadValues, ColumnMap, InputConfig, InputFormat},
    read_manifest,
    splits::SplitChoice,
};
pub use iterator::EpochBatches;
pub use kind::BatchKind;
pub use loader::{Loader, LoaderSource};
pub use metrics::{CacheMetrics, LoaderMetrics, StageMetrics};
pub use order::{ClassBalance, MixtureConfig, ShuffleQuality, SourceEnd, SourceWeight};
pub use preview::LoaderPlan;
pub use quarantine::Quarantined;
pub use stream::BatchStream;
