//! Caches in front of a store whose bytes are known.

mod children;
mod faults;
mod sharing;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use feedline_schemas::ids::Hash128;
use feedline_storage::clock::{Clock, SystemClock};
use tokio::sync::Notify;

use super::{folder::OWN, name::disk_bytes, *};

/// Bytes of the extents in these tests, which take two blocks of the disk each.
const BYTES: u64 = 5000;
const DISK_BYTES: u64 = disk_bytes(BYTES);
const FINGERPRINT: Hash128 = Hash128::new(77);

/// A clock that a test moves, and that goes up by a nanosecond at each look so that accesses have an order.
#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl HandClock {
    fn advance(&self, time: Duration) {
        self.0
            .fetch_add(u64::try_from(time.as_nanos()).unwrap(), SeqCst);
    }
}

impl Clock for HandClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.0.fetch_add(1, SeqCst))
    }

    fn unix(&self) -> Duration {
        self.monotonic()
    }
}

/// A store whose extent `n` holds what [`content`] says.
#[derive(Debug, Default)]
struct Origin {
    reads: Mutex<Vec<u64>>,
    /// Reads wait for `go_on`.
    is_held: AtomicBool,
    go_on: Notify,
    fails: AtomicBool,
}

impl Origin {
    fn reads(&self) -> u64 {
        self.reads.lock().unwrap().len() as u64
    }
}

#[async_trait]
impl Extents for Origin {
    async fn get(&self, extent: &Extent) -> Result<Bytes, FetchError> {
        let number = extent.range.start / BYTES;
        self.reads.lock().unwrap().push(number);
        if self.is_held.load(SeqCst) {
            self.go_on.notified().await;
        }
        if self.fails.load(SeqCst) {
            return Err(FetchError::Corrupt {
                url: extent.path.to_string(),
                range: extent.range.clone(),
                expected: 1,
                found: 2,
            });
        }
        Ok(content(number))
    }
}

/// Counts the warnings that this thread gives.
#[derive(Clone, Debug, Default)]
struct Warnings(Arc<AtomicU64>);

impl Warnings {
    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        crate::device::fake::keep_listening();
        tracing::subscriber::set_default(self.clone())
    }

    fn count(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, SeqCst);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

fn content(number: u64) -> Bytes {
    (0..BYTES)
        .map(|i| ((number * 31 + i) % 251) as u8)
        .collect()
}

fn extent(number: u64) -> Extent {
    Extent {
        path: "shards/train/00000.arrow".into(),
        range: number * BYTES..(number + 1) * BYTES,
        crc32c: Some(crc32c::crc32c(&content(number))),
        identity: Identity::Checksum,
        first: 0,
    }
}

fn place() -> (String, Hash128) {
    ("memory:///".into(), FINGERPRINT)
}

fn name(number: u64) -> Name {
    Name::of(FINGERPRINT, &extent(number)).unwrap()
}

fn plan(numbers: impl IntoIterator<Item = u64>) -> Vec<Extent> {
    numbers.into_iter().map(extent).collect()
}

/// Path of an extent's file.
fn file(dir: &Path, number: u64) -> PathBuf {
    dir.join(OWN).join("extents").join(name(number).file())
}

/// A cache of `extents` extents in `dir`.
async fn open_on(clock: Arc<dyn Clock>, dir: &Path, extents: u64) -> (CachedExtents, Arc<Origin>) {
    let origin = Arc::new(Origin::default());
    let config = CacheConfig {
        dir: dir.to_owned(),
        bytes: extents * DISK_BYTES,
    };
    let inner = Arc::clone(&origin) as Arc<dyn Extents>;
    let cache = CachedExtents::open(&config, place(), 0, inner, clock);
    (cache.await.unwrap(), origin)
}

async fn open(dir: &Path, extents: u64) -> (CachedExtents, Arc<Origin>) {
    open_on(Arc::new(SystemClock), dir, extents).await
}

/// Reads extents, each after the one before is on the disk, and checks their bytes.
async fn read(cache: &CachedExtents, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        assert_eq!(cache.get(&extent(number)).await.unwrap(), content(number));
        cache.flush().await;
    }
}

/// Hits and misses so far.
fn tally(cache: &CachedExtents) -> (u64, u64) {
    (cache.counters.hits.get(), cache.counters.misses.get())
}

/// Disk bytes of all extents, and what the ledger says.
fn usage(dir: &Path) -> (u64, u64) {
    let mut bytes = 0;
    for folder in fs::read_dir(dir.join(OWN).join("extents")).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            bytes += file
                .unwrap()
                .metadata()
                .unwrap()
                .len()
                .next_multiple_of(4096);
        }
    }
    let ledger = ledger::Ledger::read(&dir.join(OWN).join("ledger")).unwrap();
    (bytes, ledger.unwrap().used)
}

/// Files in one of the cache's folders.
fn count(dir: &Path, folder: &str) -> usize {
    fs::read_dir(dir.join(OWN).join(folder)).unwrap().count()
}

#[tokio::test]
async fn what_was_read_once_comes_from_the_disk_also_in_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, origin) = open(dir.path(), 100).await;
    read(&cache, 0..10).await;
    read(&cache, 0..10).await;
    assert_eq!(tally(&cache), (10, 10));
    assert_eq!(cache.counters.hit_bytes.get(), 10 * BYTES);
    assert_eq!(cache.counters.stored.get(), 10);
    assert_eq!(origin.reads(), 10);
    drop(cache);
    let (cache, origin) = open(dir.path(), 100).await;
    read(&cache, 0..10).await;
    assert_eq!(origin.reads(), 0);
    assert_eq!(usage(dir.path()), (10 * DISK_BYTES, 10 * DISK_BYTES));
    drop(cache);
    for folder in ["leases", "tmp", "sessions"] {
        assert_eq!(count(dir.path(), folder), 0, "{folder}");
    }
}

#[tokio::test]
async fn files_cannot_be_written_to_and_their_folder_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = tempfile::tempdir().unwrap();
    let (cache, _) = open(dir.path(), 100).await;
    read(&cache, 0..1).await;
    assert_eq!(mode(&file(dir.path(), 0)), 0o444);
    assert_eq!(mode(&dir.path().join(OWN)), 0o700);
}

#[tokio::test]
async fn extents_without_a_checksum_are_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, origin) = open(dir.path(), 100).await;
    let unknown = Extent {
        crc32c: None,
        ..extent(1)
    };
    for _ in 0..2 {
        assert_eq!(cache.get(&unknown).await.unwrap(), content(1));
        cache.flush().await;
    }
    assert_eq!(origin.reads(), 2);
    assert_eq!(usage(dir.path()).0, 0);
}

#[tokio::test]
async fn the_budget_holds_and_the_longest_unused_goes_when_nothing_is_planned() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, origin) = open_on(Arc::new(HandClock::default()), dir.path(), 3).await;
    read(&cache, [0, 1, 2, 0, 3, 4]).await;
    assert_eq!(usage(dir.path()), (3 * DISK_BYTES, 3 * DISK_BYTES));
    assert_eq!(cache.counters.evictions.get(), 2);
    assert_eq!(cache.counters.evicted_bytes.get(), 2 * DISK_BYTES);
    assert_eq!(origin.reads(), 5);
    read(&cache, [0, 3, 4]).await;
    assert_eq!(origin.reads(), 5);
    // The next run knows the order from the files.
    drop(cache);
    let (cache, origin) = open_on(Arc::new(HandClock((1 << 40).into())), dir.path(), 3).await;
    read(&cache, [5, 3, 4]).await;
    assert_eq!(*origin.reads.lock().unwrap(), [5]);
}

#[tokio::test]
async fn the_extent_needed_last_goes_and_one_needed_later_still_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, origin) = open(dir.path(), 2).await;
    cache.foresee(&plan([0, 1, 2, 3]));
    cache.foresee(&plan([2, 0, 3, 1]));
    // 2 is needed before 1, so it takes its place; 3 is needed after both 0 and 2.
    read(&cache, [0, 1, 2, 3]).await;
    assert_eq!(cache.counters.evictions.get(), 1);
    assert_eq!(cache.counters.passed.get(), 1);
    read(&cache, [2, 0, 3, 1]).await;
    assert_eq!(*origin.reads.lock().unwrap(), [0, 1, 2, 3, 3, 1]);
}

#[tokio::test]
async fn a_plan_made_later_covers_what_is_already_there() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, _) = open(dir.path(), 2).await;
    read(&cache, [0, 1]).await;
    drop(cache);
    let (cache, origin) = open(dir.path(), 2).await;
    cache.foresee(&plan([5, 1, 6, 0, 5]));
    read(&cache, [5, 1, 6, 0]).await;
    assert_eq!(*origin.reads.lock().unwrap(), [5, 6]);
}

#[tokio::test]
async fn farthest_next_use_beats_the_order_of_access() {
    let (extents, room, epochs) = (60, 30, 4);
    let mut order = Vec::new();
    let mut random = 1_u64;
    for _ in 0..epochs {
        let mut epoch: Vec<u64> = (0..extents).collect();
        for i in (1..epoch.len()).rev() {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            epoch.swap(i, usize::try_from(random >> 33).unwrap() % (i + 1));
        }
        order.push(epoch);
    }
    let mut hits = Vec::new();
    for is_planned in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (cache, _) = open_on(Arc::new(HandClock::default()), dir.path(), room).await;
        if is_planned {
            cache.foresee(&plan(order[0].clone()));
        }
        for epoch in 0..epochs {
            if let Some(next) = order.get(epoch + 1).filter(|_| is_planned) {
                cache.foresee(&plan(next.clone()));
            }
            read(&cache, order[epoch].clone()).await;
            assert!(usage(dir.path()).0 <= room * DISK_BYTES);
        }
        hits.push(cache.counters.hits.get());
    }
    // The most that any cache can hit is what Belady's rule gives; see `belady`.
    assert_eq!(hits[0], belady(&order.concat(), room));
    assert!(hits[0] > 2 * hits[1], "{hits:?}");
}

/// Hits of the best possible cache of `room` extents: a reference by plain search.
fn belady(reads: &[u64], room: u64) -> u64 {
    let mut held: Vec<u64> = Vec::new();
    let mut hits = 0;
    for (at, extent) in reads.iter().enumerate() {
        let next = |n: u64| reads[at + 1..].iter().position(|m| *m == n);
        if held.contains(extent) {
            hits += 1;
            continue;
        }
        held.push(*extent);
        if held.len() as u64 > room {
            let last = (0..held.len()).max_by_key(|i| next(held[*i]).unwrap_or(usize::MAX));
            held.swap_remove(last.unwrap());
        }
    }
    hits
}

#[tokio::test]
async fn a_failed_or_dropped_fetch_leaves_no_lease_and_no_bytes_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, origin) = open(dir.path(), 100).await;
    origin.fails.store(true, SeqCst);
    cache.get(&extent(0)).await.unwrap_err();
    assert_eq!((count(dir.path(), "leases"), usage(dir.path()).1), (0, 0));
    origin.fails.store(false, SeqCst);
    origin.is_held.store(true, SeqCst);
    {
        let wanted = extent(1);
        let mut get = std::pin::pin!(cache.get(&wanted));
        while origin.reads() < 2 {
            assert!(futures::poll!(&mut get).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(count(dir.path(), "leases"), 1);
    }
    origin.is_held.store(false, SeqCst);
    read(&cache, [1]).await;
    assert_eq!(usage(dir.path()), (DISK_BYTES, DISK_BYTES));
    assert_eq!(count(dir.path(), "leases"), 0);
}

#[tokio::test]
async fn a_cache_dropped_in_the_middle_of_a_fetch_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, origin) = open(dir.path(), 100).await;
    origin.is_held.store(true, SeqCst);
    let cache = Arc::new(cache);
    let getter = Arc::clone(&cache);
    let get = tokio::spawn(async move { getter.get(&extent(0)).await.is_ok() });
    while origin.reads() == 0 {
        tokio::task::yield_now().await;
    }
    get.abort();
    assert!(get.await.unwrap_err().is_cancelled());
    drop(cache);
    for folder in ["leases", "tmp", "sessions"] {
        assert_eq!(count(dir.path(), folder), 0, "{folder}");
    }
    assert_eq!(usage(dir.path()), (0, 0));
}
