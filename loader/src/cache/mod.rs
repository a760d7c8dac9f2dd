//! Caches of a loader: extents on a local disk, and blocks in memory over epochs.

mod disk;
pub(crate) mod epoch_cache;

pub use disk::CacheConfig;
pub(crate) use disk::{CacheCounters, CachedExtents, is_on_local_disk};
