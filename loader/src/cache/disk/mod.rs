//! Extents kept on a local disk, shared by ranks and jobs, in front of the store they come from.
//!
//! An extent of a dataset of ours is identified by its checksum, which the manifest has. Other
//! formats have none: their extents are identified by the version of their file ([`versions`]),
//! which all requests of a run ask for, and a checksum written beside the bytes shows whether the
//! disk has kept them intact. Where a store reports no versions, such extents bypass the cache.
//!
//! An extent is looked up in the folder ([`folder`]); if it is missing, one process fetches it
//! ([`lease`]) while the others wait. It is kept if the budget ([`ledger`]) has room or an extent
//! that is needed later can be evicted ([`index`], [`foresight`]). Its file is written in the
//! background and checked when it is read for the first time in a run, from a memory map ([`map`]).
//! When the disk fails, extents come from the store as if there were no cache, with one warning.
//!
//! Extents in memory need no tier of their own: windows hold decoded blocks, and the pages of maps stay in memory as
//! long as there is room, for all processes together.

mod config;
mod counters;
mod extent_files;
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
mod versions;

#[cfg(test)]
mod tests;

use std::{
    fmt, slice,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use feedline_schemas::ids::Hash128;
use feedline_storage::clock::Clock;
use futures::future::join_all;
use tokio::task::JoinSet;

use crate::{
    Error,
    fetch::{Extent, Extents, FetchError, Identity},
};

pub use config::CacheConfig;
pub(crate) use counters::CacheCounters;
use extent_files::HeldLease;
pub(crate) use folder::is_on_local_disk;
use name::Name;
use tier::{Obtained, Tier};
use versions::Versions;

/// [`Extents`] behind a disk cache. Those that cannot be known again are not kept.
pub(crate) struct CachedExtents {
    inner: Arc<dyn Extents>,
    fingerprint: Hash128,
    /// URL of the dataset.
    url: String,
    versions: Versions,
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
    /// Puts a cache in front of `inner`, the store at `url` of the dataset with `fingerprint`. `window_bytes` is what one set
    /// of open shuffle windows takes. A folder that cannot be used is a warning, and `inner` serves alone.
    ///
    /// # Errors
    /// [`Error::Config`], when the budget is below two windows or the cache's own folder belongs to somebody else.
    pub(crate) async fn open(
        config: &CacheConfig,
        (url, fingerprint): (String, Hash128),
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
            url,
            versions: Versions::default(),
            counters,
            tier: tier.map(Arc::new),
            writes: Mutex::default(),
        })
    }

    /// Finds out the versions of the files that `plan` is of, as far as extents are known by them.
    pub(crate) async fn learn<'a>(&self, plan: impl IntoIterator<Item = &'a Extent>) {
        if self.tier.is_some() {
            let plan = plan.into_iter();
            let by_version = plan.filter(|extent| extent.identity == Identity::Version);
            self.versions.learn(&*self.inner, by_version).await;
        }
    }

    /// Registers the next reads, after all that were registered before: usually those of this epoch
    /// and the next at the start, and those of one more whenever an epoch begins. Without it, the
    /// extents unused for longest are evicted first. Files of unknown version are left out.
    pub(crate) fn foresee<'a>(&self, plan: impl IntoIterator<Item = &'a Extent>) {
        if let Some(tier) = &self.tier {
            let name = |extent: &'a Extent| match extent.identity {
                Identity::Version => {
                    let version = self.versions.known(&extent.path)?;
                    Some(self.name_of(extent, &version))
                }
                _ => Name::of(self.fingerprint, extent),
            };
            tier.foresee(plan.into_iter().filter_map(name));
        }
    }

    /// The name of an extent, if it may be kept.
    async fn name(&self, extent: &Extent) -> Option<Name> {
        match extent.identity {
            Identity::Checksum => Name::of(self.fingerprint, extent),
            Identity::Version => {
                let version = self.versions.of(&*self.inner, extent).await?;
                Some(self.name_of(extent, &version))
            }
            Identity::Passing => None,
        }
    }

    fn name_of(&self, extent: &Extent, version: &str) -> Name {
        Name::of_version(self.fingerprint, &self.url, extent, version)
    }

    /// Counters of the cache since it was opened.
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

/// Next step for an extent of a run.
enum ExtentStep {
    Done(Bytes),
    /// To be fetched, and to be kept if there is a lease.
    Fetch(Option<HeldLease>),
    /// Somebody else is fetching it.
    Wait(Name),
}

impl CachedExtents {
    /// Next step for an extent, without waiting for others.
    async fn step(&self, extent: &Extent) -> ExtentStep {
        let (Some(tier), Some(name)) = (&self.tier, self.name(extent).await) else {
            return ExtentStep::Fetch(None);
        };
        tier.note(name);
        match tier.look(name, extent).await {
            Some(Obtained::Bytes(bytes)) => ExtentStep::Done(bytes),
            Some(Obtained::Lease(held)) => ExtentStep::Fetch(Some(held)),
            Some(Obtained::Nothing) => {
                self.counters.passed.add(1);
                ExtentStep::Fetch(None)
            }
            None => ExtentStep::Wait(name),
        }
    }

    /// Waits for an extent that somebody else is fetching, or fetches it after all.
    async fn wait(&self, name: Name, extent: &Extent) -> Result<Bytes, FetchError> {
        let Some(tier) = &self.tier else {
            return self.inner.get(extent).await;
        };
        let held = match tier.obtain(name, extent).await {
            Obtained::Bytes(bytes) => return Ok(bytes),
            Obtained::Lease(held) => Some(held),
            Obtained::Nothing => {
                self.counters.passed.add(1);
                None
            }
        };
        let mut fetched = self.fetch(slice::from_ref(extent), vec![held]).await;
        fetched.swap_remove(0)
    }

    /// Fetches extents that touch, and has those kept that there is a lease for.
    async fn fetch(
        &self,
        run: &[Extent],
        held: Vec<Option<HeldLease>>,
    ) -> Vec<Result<Bytes, FetchError>> {
        let leases = held.iter().flatten();
        let leases: Vec<_> = leases.map(|held| Arc::clone(&held.lease)).collect();
        let fetch = async {
            match run {
                [extent] => vec![self.inner.get(extent).await],
                run => self.inner.get_run(run).await,
            }
        };
        let fetched = tier::beating(&leases, fetch).await;
        let Some(tier) = &self.tier else {
            return fetched;
        };
        let mut has_given_up = false;
        for (held, fetched) in held.into_iter().zip(&fetched) {
            let (Some(held), Ok(bytes)) = (held, fetched) else {
                has_given_up = true;
                continue;
            };
            match Tier::write_later(tier, held, bytes) {
                Some(write) => {
                    let mut writes = self.writes();
                    while writes.try_join_next().is_some() {}
                    writes.spawn(write);
                }
                None => has_given_up = true,
            }
        }
        if has_given_up && !leases.is_empty() {
            tier.settle().await;
        }
        fetched
    }
}

#[async_trait]
impl Extents for CachedExtents {
    async fn get(&self, extent: &Extent) -> Result<Bytes, FetchError> {
        let mut got = self.get_run(slice::from_ref(extent)).await;
        got.swap_remove(0)
    }

    /// Those that have to be fetched are fetched first, and only then are others waited for: who waits holds no lease,
    /// so that two who want the same extents never wait for each other.
    async fn get_run(&self, run: &[Extent]) -> Vec<Result<Bytes, FetchError>> {
        let mut steps = join_all(run.iter().map(|extent| self.step(extent))).await;
        let mut got: Vec<Option<Result<Bytes, FetchError>>> = Vec::with_capacity(run.len());
        let mut at = 0;
        while let Some(step) = steps.get_mut(at) {
            match step {
                ExtentStep::Done(bytes) => got.push(Some(Ok(std::mem::take(bytes)))),
                ExtentStep::Wait(_) => got.push(None),
                ExtentStep::Fetch(_) => {
                    let held: Vec<_> = steps[at..]
                        .iter_mut()
                        .map_while(ExtentStep::fetch)
                        .collect();
                    let fetched = self.fetch(&run[at..at + held.len()], held).await;
                    got.extend(fetched.into_iter().map(Some));
                }
            }
            at = got.len();
        }
        for ((got, step), extent) in got.iter_mut().zip(&steps).zip(run) {
            if let ExtentStep::Wait(name) = step {
                *got = Some(self.wait(*name, extent).await);
            }
        }
        got.into_iter().flatten().collect()
    }

    async fn version(&self, extent: &Extent) -> Result<Option<String>, FetchError> {
        self.inner.version(extent).await
    }

    fn keeps(&self) -> bool {
        self.tier.is_some()
    }

    fn joins(&self) -> bool {
        self.inner.joins()
    }
}

impl ExtentStep {
    /// The lease with which to fetch, if it is to be fetched.
    fn fetch(&mut self) -> Option<Option<HeldLease>> {
        match self {
            Self::Fetch(held) => Some(held.take()),
            _ => None,
        }
    }
}
