//! From the shards of a dataset to shuffled batches in host memory, ahead of the trainer.
//!
//! The order of an epoch is a pure function of (manifest, seed, epoch, step). So a run resumes exactly, on any number
//! of ranks, from a [`LoaderState`] of a few integers; see [`Batch::state`]. Blocks are checked before any of their
//! samples is handed out.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use feedline_loader::{Loader, LoaderConfig, Target};
//! # use feedline_schemas::{ids::Seed, manifest::Split};
//! # use feedline_storage::{Store, StoreOptions, clock::SystemClock};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let dataset = Store::open("out/dataset", &StoreOptions::default())?;
//! let config = LoaderConfig::new(Split::Train, Seed::new(0), 256);
//! let loader = Loader::open(&dataset, &config, Arc::new(SystemClock)).await?;
//! let mut state = loader.start_state();
//! for batch in loader.epoch(state.clone())? {
//!     let batch = batch?;
//!     assert_eq!(batch.x().len(), batch.rows() * batch.features());
//!     state = batch.state().clone();
//! }
//! println!("next: {:?}, waited {} s", loader.next_epoch(&state), loader.metrics().consumer_wait_seconds);
//! # Ok(()) }
//! ```
//!
//! A pass has two threads: `fetch` reads blocks in the order of first need within a budget of bytes, `assemble` copies
//! rows into one of three slabs that go round between it and the caller.

mod assemble;
mod batch;
mod block;
mod budget;
mod cache;
mod config;
pub mod device;
mod error;
mod fetch;
mod fetcher;
mod geometry;
mod guard;
mod index;
mod input;
mod iterator;
mod loader;
mod metrics;
mod order;
pub mod picture;
mod resident;
mod ring;
mod slab;
mod state;

#[cfg(test)]
#[expect(dead_code, reason = "the tests of whole passes use more of it")]
#[path = "../tests/it/dataset.rs"]
mod dataset;

pub use batch::{Batch, Target};
pub use cache::CacheConfig;
pub use config::LoaderConfig;
pub use error::{Difference, Error};
pub use feedline_schemas::loader_state::LoaderState;
pub use fetch::FetchError;
pub use iterator::EpochBatches;
pub use loader::Loader;
pub use metrics::{LoaderMetrics, StageMetrics};
