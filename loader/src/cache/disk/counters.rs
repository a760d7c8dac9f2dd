//! Counters of the cache.

use crate::count::Count;

/// Totals of a cache since it was opened.
#[derive(Debug, Default)]
pub(crate) struct CacheCounters {
    /// Extents served from the disk.
    pub(crate) hits: Count,
    /// Bytes of them.
    pub(crate) hit_bytes: Count,
    /// Extents that were not in the cache.
    pub(crate) misses: Count,
    /// Extents written to the disk.
    pub(crate) stored: Count,
    /// Bytes of them.
    pub(crate) stored_bytes: Count,
    /// Extents removed to make room.
    pub(crate) evictions: Count,
    /// Disk bytes of them.
    pub(crate) evicted_bytes: Count,
    /// Extents that another process was fetching, and that were waited for.
    pub(crate) waits: Count,
    /// Files that were dropped because they were not what was written.
    pub(crate) damaged: Count,
    /// Extents that were fetched and not kept: all that would have had to go for them is needed earlier, the disk was
    /// too slow, or the cache was switched off.
    pub(crate) passed: Count,
}
