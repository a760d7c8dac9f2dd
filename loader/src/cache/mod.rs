//! Extents kept on a local disk, shared by ranks and jobs, in front of the store they come from.
//!
//! An extent is looked for in the folder ([`folder`]), and if it is not there one process fetches it ([`lease`]) while
//! the others wait. It is kept if the budget ([`ledger`]) has room or something that is needed later can go for it
//! ([`index`], [`foresight`]). Its file is written behind the reader's back and checked when it is read for the first
//! time in a run, from a memory map ([`map`]). When the disk fails, extents come from the store as if there were no
//! cache, with one warning.
//!
//! Extents in memory need no tier of their own: windows hold decoded blocks, and the pages of maps stay in memory as
//! long as there is room, for all processes together.

mod config;
mod counters;
mod disk;
mod folder;
mod foresight;
mod index;
mod lease;
mod ledger;
mod locked;
mod map;
mod memory;
mod name;
mod tier;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use feedline_schemas::ids::Hash128;
use feedline_storage::clock::Clock;
use tokio::task::JoinSet;

use crate::{
    Error,
    fetch::{Extent, Extents, FetchError},
};

pub use config::CacheConfig;
pub(crate) use counters::CacheCounters;
use name::Name;
use tier::{Obtained, Tier};

/// [`Extents`] behind a disk cache. Those without a checksum are not kept: nobody could tell whether they are right.
pub(crate) struct CachedExtents {
    inner: Arc<dyn Extents>,
    fingerprint: Hash128,
    counters: Arc<CacheCounters>,
    /// Absent when the folder could not be used at the start.
    tier: Option<Arc<Tier>>,
    /// Extents being written.
    writes: Mutex<JoinSet<()>>,
}

impl fmt::Debug for CachedExtents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedExtents")
            .field("inner", &self.inner)
            .field("tier", &self.tier)
            .finish_non_exhaustive()
    }
}

impl CachedExtents {
    /// Puts a cache in front of `inner`, the store of the dataset with `fingerprint`. `window_bytes` is what one set
    /// of open shuffle windows takes. A folder that cannot be used is a warning, and `inner` serves alone.
    ///
    /// # Errors
    /// [`Error::Config`], when the budget is below two windows or the cache's own folder belongs to somebody else.
    pub(crate) async fn open(
        config: &CacheConfig,
        fingerprint: Hash128,
        window_bytes: u64,
        inner: Arc<dyn Extents>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let least = window_bytes.saturating_mul(2);
        if config.bytes < least {
            return Err(Error::Config {
                key: "cache.bytes",
                reason: format!(
                    "it is `{}` and two shuffle windows need `{least}`; raise it, or lower `window_blocks` or \
                     `domains`",
                    config.bytes
                ),
            });
        }
        let counters = Arc::new(CacheCounters::default());
        let tier = Tier::open(config, clock, Arc::clone(&counters)).await?;
        Ok(Self {
            inner,
            fingerprint,
            counters,
            tier: tier.map(Arc::new),
            writes: Mutex::default(),
        })
    }

    /// Tells what will be read next, behind all that was told before: usually the needs of this epoch and the next at
    /// the start, and those of one more whenever an epoch begins. Without it, the extents unused for longest go first.
    pub(crate) fn foresee<'a>(&self, plan: impl IntoIterator<Item = &'a Extent>) {
        if let Some(tier) = &self.tier {
            let plan = plan.into_iter();
            tier.foresee(plan.filter_map(|extent| Name::of(self.fingerprint, extent)));
        }
    }

    /// What the cache did so far.
    pub(crate) fn counters(&self) -> &Arc<CacheCounters> {
        &self.counters
    }

    /// Waits until all that was fetched so far is on the disk, or was given up.
    pub(crate) async fn flush(&self) {
        let mut writes = std::mem::take(&mut *self.writes());
        while writes.join_next().await.is_some() {}
    }

    fn writes(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Extents for CachedExtents {
    async fn get(&self, extent: &Extent) -> Result<Bytes, FetchError> {
        let name = Name::of(self.fingerprint, extent);
        let (Some(tier), Some(name)) = (&self.tier, name) else {
            return self.inner.get(extent).await;
        };
        let held = match tier.obtain(name, extent).await {
            Obtained::Bytes(bytes) => return Ok(bytes),
            Obtained::Lease(held) => held,
            Obtained::Nothing => {
                self.counters.passed.add(1);
                return self.inner.get(extent).await;
            }
        };
        match tier::beating(&held.lease, self.inner.get(extent)).await {
            Ok(bytes) => {
                if let Some(write) = Tier::write_later(tier, held, &bytes) {
                    let mut writes = self.writes();
                    while writes.try_join_next().is_some() {}
                    writes.spawn(write);
                } else {
                    tier.settle().await;
                }
                Ok(bytes)
            }
            Err(error) => {
                drop(held);
                tier.settle().await;
                Err(error)
            }
        }
    }
}
