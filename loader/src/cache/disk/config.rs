//! Settings of the disk cache.

use std::path::PathBuf;

/// A cache of the dataset's bytes on a local disk.
///
/// It is for datasets that are far away: one on a disk of this machine is read from there. Datasets of other formats than
/// ours are cached where their store gives files a version, a strong ETag; otherwise they are not, with a warning.
///
/// Ranks of one machine and other jobs may share it; all should name the same budget, since each keeps the folder as a
/// whole below its own. What was fetched in one run is there in the next. A cache that cannot be used (disk full,
/// folder read-only or gone) costs speed and a warning, never the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Folder in which the cache makes its own, `feedline-cache-v1`, readable by the user alone. Nothing outside of
    /// that one is written or removed, and it can be deleted at any time. A fast local disk serves best; on a network
    /// file system it works, with a copy of each read.
    pub dir: PathBuf,
    /// Most bytes of disk that all jobs together use in this folder, at least two shuffle windows. Extents whose next
    /// use is farthest are removed first.
    pub bytes: u64,
}
