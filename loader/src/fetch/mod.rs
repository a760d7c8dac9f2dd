//! Reading parts of files.
//!
//! [`Extents`] is the seam between an input, which knows the ranges of its blocks, and the tiers
//! their bytes come from. Behind it: a cache, or [`StoreExtents`] itself, which has one way for
//! local files and one for remote stores. The latter makes one request at a time for the caller's
//! extents, be it one or several that touch, and decides what follows from each failure:
//!
//! | file | decides |
//! |---|---|
//! | `permits` | how many requests are under way |
//! | `attempt` | when a single one is given up, and what its failure means |
//! | `hedges`, `latency` | when a second request is made for the same bytes |
//! | `backoff` | how long to wait before the next try |
//! | `pins` | whether an object is still the one that the run began with |
//!
//! Above it, the thread of `prefetch` reads the blocks of a pass ahead, within the `budget` of bytes.

mod ahead;
mod attempt;
mod backoff;
pub(crate) mod budget;
mod config;
mod error;
mod hedges;
mod joined;
mod latency;
mod local;
mod memory;
mod meters;
mod permits;
mod pins;
pub(crate) mod prefetch;
mod remote;
mod store;

use std::{ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;

pub(crate) use ahead::Ahead;
pub use config::FetchConfig;
pub use error::FetchError;
pub(crate) use meters::FetchMeters;
pub use meters::{FetchMetrics, RetryMetrics};
pub(crate) use store::StoreExtents;

/// Part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Extent {
    /// File, relative to the dataset folder.
    pub(crate) path: Arc<str>,
    /// Bytes of it.
    pub(crate) range: Range<u64>,
    /// CRC32C that these bytes must have, if that is known.
    pub(crate) crc32c: Option<u32>,
    /// Identity of these bytes in another run.
    pub(crate) identity: Identity,
    /// First batch that needs it.
    pub(crate) first: u64,
}

/// By what a cache that outlives the run may know bytes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// Their checksum, which is part of the dataset's description. Without one they are not to be kept.
    Checksum,
    /// The version of their file.
    Version,
    /// They are read once, and not to be kept.
    Passing,
}

impl Extent {
    /// Number of its bytes, which have to fit into memory.
    fn bytes(&self) -> usize {
        usize::try_from(self.range.end.saturating_sub(self.range.start)).unwrap_or(usize::MAX)
    }
}

/// Source of parts of files.
#[async_trait]
pub(crate) trait Extents: Send + Sync + std::fmt::Debug {
    /// Reads exactly the bytes of `extent`, with the right checksum if it has one.
    ///
    /// May be dropped at any time; what was under way is then given up.
    ///
    /// # Errors
    /// [`FetchError`], after everything that could be tried was tried: the caller need not try again.
    async fn get(&self, extent: &Extent) -> Result<Bytes, FetchError>;

    /// As [`get`](Self::get) for each of some extents that touch, which are of one file and in its order.
    async fn get_run(&self, run: &[Extent]) -> Vec<Result<Bytes, FetchError>> {
        join_all(run.iter().map(|extent| self.get(extent))).await
    }

    /// Version of the file of `extent`, which differs from that of any other file that was or will
    /// be under its name; requested once for each file. `None` where the store has none. All reads
    /// of the file in this run are of this version.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    async fn version(&self, _extent: &Extent) -> Result<Option<String>, FetchError> {
        Ok(None)
    }

    /// Returns true if read extents stay available for another run.
    fn keeps(&self) -> bool {
        false
    }

    /// Returns true if a run costs less than its extents one by one.
    fn joins(&self) -> bool {
        false
    }
}
