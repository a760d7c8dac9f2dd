//! Assembly of batches: from blocks in memory to filled slabs.
//!
//! ```text
//! active_blocks (blocks that have come) -> assemble (one thread: rows and blocks of each batch)
//!     -> batch_task, pool (many threads) -> fill (samples into the pieces of a slab) -> ready_queue
//! ring (slabs: free, being filled, ready, in use, free again), turns (batches under way)
//! ```

pub(crate) mod active_blocks;
pub(crate) mod assemble;
mod batch_task;
pub(crate) mod block_types;
pub(crate) mod fill;
pub(crate) mod mixup_plan;
pub(crate) mod pool;
pub(crate) mod progress;
pub(crate) mod ready_queue;
pub(crate) mod ring;
pub(crate) mod slab;
mod sync;
pub(crate) mod turns;

#[cfg(test)]
mod pool_tests;
#[cfg(test)]
mod ring_tests;
