//! The disk as seen from async code: waiting for the lock and for other processes, and what to do when it fails.

use std::{
    fs::{File, TryLockError},
    io::{self, ErrorKind},
    path::PathBuf,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use feedline_storage::clock::Clock;
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard, Semaphore},
    task::spawn_blocking,
    time::{Instant, interval_at, sleep},
};

use super::{
    config::CacheConfig,
    counters::CacheCounters,
    extent_files::{Disk, FoundExtent, HeldLease, MissingExtentStep},
    folder::{CacheFolder, OWN, Unusable},
    lease::{BEAT, Claim, EXPIRY, ExtentLease},
    locked::Locked,
    name::Name,
};
use crate::{Error, fetch::Extent};

/// Interval of checking a lock or a lease of another process.
const POLL: Duration = Duration::from_millis(20);
/// Longest wait for another process to unlock the folder before an extent bypasses the cache.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// The same at the start, when another one may be counting a million files.
const OPEN_PATIENCE: Duration = Duration::from_secs(120);
/// Longest wait for another process to fetch an extent.
const FETCH_PATIENCE: Duration = Duration::from_secs(30);
/// Pause of writing after the disk was full.
const FULL_PAUSE: Duration = Duration::from_secs(60);
/// Most KiB of extents in memory that wait to be written. Those beyond it are not kept: a slow disk must not hold up
/// the reader.
const WRITE_KIB: u32 = 256 << 10;

/// A cache's disk.
#[derive(Debug)]
pub(super) struct Tier {
    disk: Arc<Disk>,
    lock: Arc<AsyncMutex<File>>,
    clock: Arc<dyn Clock>,
    writing: Arc<Semaphore>,
    stores: Mutex<Stores>,
    root: PathBuf,
}

/// State of writing to the disk. Cached extents are read in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stores {
    On,
    /// The disk was full; until then, on the clock.
    Paused(Duration),
    Off,
}

/// Source of an extent.
#[derive(Debug)]
pub(super) enum Obtained {
    /// From the disk: here it is.
    Bytes(Bytes),
    /// From the store, to be kept.
    Lease(HeldLease),
    /// From the store.
    Nothing,
}

/// A folder that this process has locked.
struct FolderLock(OwnedMutexGuard<File>);

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Unlocking a file of one's own cannot fail; closing it would unlock it too.
        self.0.unlock().ok();
    }
}

impl Tier {
    /// Opens the cache's folder; `None`, and a warning, when that cannot be done.
    pub(super) async fn open(
        config: &CacheConfig,
        clock: Arc<dyn Clock>,
        counters: Arc<CacheCounters>,
    ) -> Result<Option<Self>, Error> {
        match Self::try_open(config.clone(), clock, counters).await {
            Ok(tier) => Ok(Some(tier)),
            Err(Unusable::Foreign(path)) => Err(Error::Config {
                key: "cache.dir",
                reason: format!(
                    "`{}` holds files that are not of a cache; name another folder, or move them away",
                    path.display()
                ),
            }),
            Err(Unusable::Io(error)) => {
                warn_off(&config.dir.join(OWN), &error);
                Ok(None)
            }
        }
    }

    async fn try_open(
        config: CacheConfig,
        clock: Arc<dyn Clock>,
        counters: Arc<CacheCounters>,
    ) -> Result<Self, Unusable> {
        let dir = config.dir.clone();
        let opened = spawn_blocking(move || {
            let folder = CacheFolder::open(&dir)?;
            let lock = folder.open_lock()?;
            Ok::<_, Unusable>((folder, lock))
        });
        let (folder, lock) = opened.await.map_err(io::Error::other)??;
        let root = folder.root().to_owned();
        let lock = Arc::new(AsyncMutex::new(lock));
        let guard = acquire(Arc::clone(&lock), clock.as_ref(), OPEN_PATIENCE).await?;
        let of_disk = Arc::clone(&clock);
        let begun = spawn_blocking(move || {
            let disk = Disk::new(folder, config.bytes, of_disk, counters)?;
            Locked::with(&disk, &guard.0, Locked::begin)?;
            drop(guard);
            Ok::<_, io::Error>(disk)
        });
        Ok(Self {
            disk: Arc::new(begun.await.map_err(io::Error::other)??),
            lock,
            clock,
            writing: Arc::new(Semaphore::new(WRITE_KIB as usize)),
            stores: Mutex::new(Stores::On),
            root,
        })
    }

    pub(super) fn foresee(&self, plan: impl Iterator<Item = Name>) {
        self.disk.foresee(plan);
    }

    /// Says that an extent is being read.
    pub(super) fn note(&self, name: Name) {
        self.disk.note(name);
    }

    /// Looks for an extent without waiting for anybody who is fetching it: `None` says that there is one.
    pub(super) async fn look(&self, name: Name, extent: &Extent) -> Option<Obtained> {
        let counters = &self.disk.counters;
        if let Some(bytes) = self.find(name, extent).await {
            counters.hits.add(1);
            counters.hit_bytes.add(bytes.len() as u64);
            return Some(Obtained::Bytes(bytes));
        }
        let obtained = match self.turn(name, extent, None).await {
            Some(MissingExtentStep::Follow(_) | MissingExtentStep::Again) => return None,
            Some(MissingExtentStep::Lead(held)) => Obtained::Lease(held),
            Some(MissingExtentStep::Pass) | None => Obtained::Nothing,
        };
        counters.misses.add(1);
        Some(obtained)
    }

    /// Looks for an extent, waits for another process that is fetching it, or says that it has to be fetched.
    pub(super) async fn obtain(&self, name: Name, extent: &Extent) -> Obtained {
        let counters = &self.disk.counters;
        let until = self.clock.monotonic() + FETCH_PATIENCE;
        let is_early = || self.clock.monotonic() < until;
        let mut stale = None;
        let mut has_waited = false;
        loop {
            if let Some(bytes) = self.find(name, extent).await {
                counters.hits.add(1);
                counters.hit_bytes.add(bytes.len() as u64);
                return Obtained::Bytes(bytes);
            }
            match self.turn(name, extent, stale).await {
                Some(MissingExtentStep::Lead(held)) => {
                    counters.misses.add(1);
                    return Obtained::Lease(held);
                }
                Some(MissingExtentStep::Follow(claim)) if is_early() => {
                    if !std::mem::replace(&mut has_waited, true) {
                        counters.waits.add(1);
                    }
                    stale = self.follow(name, claim, until).await;
                }
                Some(MissingExtentStep::Again) if is_early() => {}
                _ => {
                    counters.misses.add(1);
                    return Obtained::Nothing;
                }
            }
        }
    }

    /// The bytes of an extent, if its file is there and good. A damaged one is removed.
    async fn find(&self, name: Name, extent: &Extent) -> Option<Bytes> {
        let disk = Arc::clone(&self.disk);
        let bytes = extent.range.end.saturating_sub(extent.range.start);
        let crc32c = extent.crc32c;
        let found = spawn_blocking(move || disk.read(name, bytes, crc32c)).await;
        match found.map_err(io::Error::other).flatten() {
            Ok(FoundExtent::Good(bytes)) => return Some(bytes),
            Ok(FoundExtent::Nothing) => {}
            Ok(FoundExtent::Damaged { file, reason }) => {
                let path = self.disk.folder.extent(name);
                tracing::warn!(path = %path.display(), reason, "dropping a damaged file of the disk cache");
                self.disk.counters.damaged.add(1);
                let discarded = self.locked(move |locked| locked.discard(name, file));
                if let Err(error) = discarded.await {
                    self.fail(&error);
                }
            }
            Err(error) => self.fail(&error),
        }
        None
    }

    async fn turn(
        &self,
        name: Name,
        extent: &Extent,
        stale: Option<Claim>,
    ) -> Option<MissingExtentStep> {
        if !self.may_store() {
            return None;
        }
        let disk = Arc::clone(&self.disk);
        let bytes = extent.range.end.saturating_sub(extent.range.start);
        let turn = self.locked(move |locked| locked.turn(&disk, name, bytes, stale));
        turn.await.inspect_err(|error| self.fail(error)).ok()
    }

    /// Waits until an extent's lease is gone. Returns what it says when it no longer beats or time is up.
    async fn follow(&self, name: Name, claim: Claim, until: Duration) -> Option<Claim> {
        let mut last = (claim, self.clock.monotonic());
        loop {
            let now = self.clock.monotonic();
            if now.saturating_sub(last.1) >= EXPIRY {
                return Some(last.0);
            }
            if now >= until {
                return None;
            }
            sleep(POLL).await;
            let path = self.disk.folder.lease(name);
            let read = spawn_blocking(move || Claim::read(&path)).await;
            match read.map_err(io::Error::other).flatten() {
                Ok(Some(claim)) if claim == last.0 => {}
                Ok(Some(claim)) => last = (claim, self.clock.monotonic()),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// The work of writing an extent and giving it its name; `None` when too many are waiting already.
    pub(super) fn write_later(
        tier: &Arc<Self>,
        held: HeldLease,
        bytes: &Bytes,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let kib = u32::try_from(bytes.len().div_ceil(1024)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&tier.writing)
            .try_acquire_many_owned(kib.min(WRITE_KIB))
            .ok();
        let Some(permit) = permit else {
            tier.disk.counters.passed.add(1);
            return None;
        };
        let (tier, bytes) = (Arc::clone(tier), bytes.clone());
        Some(async move {
            let lease = [Arc::clone(&held.lease)];
            if let Err(error) = beating(&lease, tier.write(held, bytes)).await {
                tier.fail(&error);
                tier.settle().await;
            }
            drop(permit);
        })
    }

    async fn write(&self, held: HeldLease, bytes: Bytes) -> io::Result<()> {
        let length = bytes.len() as u64;
        let written = spawn_blocking(move || {
            let temporary = held.disk.write(&held.lease, &bytes)?;
            Ok::<_, io::Error>((held, temporary))
        });
        let (held, temporary) = written.await.map_err(io::Error::other).flatten()?;
        let counters = &self.disk.counters;
        if self
            .locked(move |locked| locked.keep(held, temporary))
            .await?
        {
            counters.stored.add(1);
            counters.stored_bytes.add(length);
        } else {
            counters.passed.add(1);
        }
        Ok(())
    }

    /// Gives back the leases that were dropped.
    pub(super) async fn settle(&self) {
        if let Err(error) = self.locked(|_| Ok(())).await {
            self.fail(&error);
        }
    }

    /// Runs `work` with the folder locked.
    async fn locked<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Locked<'_>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let guard = acquire(Arc::clone(&self.lock), self.clock.as_ref(), LOCK_PATIENCE).await?;
        let disk = Arc::clone(&self.disk);
        let done = spawn_blocking(move || {
            let result = Locked::with(&disk, &guard.0, work);
            drop(guard);
            result
        });
        done.await.map_err(io::Error::other)?
    }

    fn may_store(&self) -> bool {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        match *stores {
            Stores::On => true,
            Stores::Off => false,
            Stores::Paused(until) => {
                let is_over = self.clock.monotonic() >= until;
                if is_over {
                    *stores = Stores::On;
                }
                is_over
            }
        }
    }

    /// Reacts to an error of the disk: nothing is written any more, or for a while.
    pub(super) fn fail(&self, error: &io::Error) {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        match error.kind() {
            // Another process holds the lock: this extent goes past the cache, the next need not.
            ErrorKind::TimedOut => {}
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                if *stores == Stores::On {
                    tracing::warn!(
                        folder = %self.root.display(),
                        %error,
                        pause_seconds = FULL_PAUSE.as_secs(),
                        "the disk cache takes nothing more for a while, since its disk is full: what is not in it \
                         comes from the dataset's store; make room, or lower `cache.bytes`"
                    );
                    *stores = Stores::Paused(self.clock.monotonic() + FULL_PAUSE);
                }
            }
            _ if *stores == Stores::Off => {}
            _ => {
                warn_off(&self.root, error);
                *stores = Stores::Off;
            }
        }
    }
}

fn warn_off(folder: &std::path::Path, error: &io::Error) {
    tracing::warn!(
        folder = %folder.display(),
        %error,
        "the disk cache is off for this run: what is not in it comes from the dataset's store; see that `cache.dir` \
         is on a disk that works and can be written to"
    );
}

/// Locks the folder, among the tasks of this process and among processes.
///
/// # Errors
/// [`ErrorKind::TimedOut`], when another process has kept it locked for too long.
async fn acquire(
    lock: Arc<AsyncMutex<File>>,
    clock: &dyn Clock,
    patience: Duration,
) -> io::Result<FolderLock> {
    let file = lock.lock_owned().await;
    let until = clock.monotonic() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(FolderLock(file)),
            Err(TryLockError::WouldBlock) if clock.monotonic() < until => sleep(POLL).await,
            Err(error) => return Err(busy(error)),
        }
    }
}

fn busy(error: TryLockError) -> io::Error {
    match error {
        TryLockError::WouldBlock => ErrorKind::TimedOut.into(),
        TryLockError::Error(error) => error,
    }
}

/// Awaits `work` and lets leases beat meanwhile.
pub(super) async fn beating<T>(leases: &[Arc<ExtentLease>], work: impl Future<Output = T>) -> T {
    let mut beats = interval_at(Instant::now() + BEAT, BEAT);
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = beats.tick() => {
                let leases = leases.to_vec();
                // A beat that fails looks like a dead holder, which is what the others should see.
                drop(spawn_blocking(move || leases.iter().for_each(|lease| drop(lease.beat()))));
            }
        }
    }
}
