//! Several caches on one folder, in one process.

use super::{
    extent_files::{DROP_LOOK, DROP_LOOKS},
    lease::EXPIRY,
    tier::Obtained,
    *,
};

/// Two caches of 100 extents on one folder and one clock.
struct Pair {
    dir: tempfile::TempDir,
    clock: Arc<HandClock>,
    first: CachedExtents,
    second: Arc<CachedExtents>,
    origin: Arc<Origin>,
}

async fn pair() -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock::default());
    let open = || open_on(Arc::clone(&clock) as Arc<dyn Clock>, dir.path(), 100);
    let (first, _) = open().await;
    let (second, origin) = open().await;
    let second = Arc::new(second);
    Pair {
        dir,
        clock,
        first,
        second,
        origin,
    }
}

impl Pair {
    /// The first cache takes the lease of extent 0, and then does nothing.
    async fn lead(&self) -> HeldLease {
        let tier = self.first.tier.as_ref().unwrap();
        match tier.obtain(name(0), &extent(0)).await {
            Obtained::Lease(held) => held,
            other => panic!("{other:?}"),
        }
    }

    /// The second cache wants extent 0, and waits.
    async fn follow(&self) -> tokio::task::JoinHandle<Bytes> {
        let second = Arc::clone(&self.second);
        let get = tokio::spawn(async move { second.get(&extent(0)).await.unwrap() });
        self.until(|| self.second.counters.waits.get() == 1).await;
        // A look at the clock begins the wait for a beat.
        self.looked(2).await;
        get
    }

    /// Waits until the clock was looked at so many times.
    async fn looked(&self, times: u64) {
        let start = self.clock.0.load(SeqCst);
        self.until(|| self.clock.0.load(SeqCst) >= start + times)
            .await;
    }

    async fn until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn one_process_fetches_and_the_others_wait_for_its_file() {
    let pair = pair().await;
    let held = pair.lead().await;
    let get = pair.follow().await;
    let tier = pair.first.tier.as_ref().unwrap();
    Tier::write_later(tier, held, &content(0)).unwrap().await;
    assert_eq!(get.await.unwrap(), content(0));
    assert_eq!(pair.origin.reads(), 0);
    assert_eq!(tally(&pair.second), (1, 0));
}

#[tokio::test]
async fn a_lease_that_stops_beating_is_taken_over_and_its_late_holder_keeps_nothing() {
    let pair = pair().await;
    let held = pair.lead().await;
    let get = pair.follow().await;
    assert_eq!(pair.origin.reads(), 0);
    pair.clock.advance(EXPIRY);
    assert_eq!(get.await.unwrap(), content(0));
    pair.second.flush().await;
    assert_eq!(pair.origin.reads(), 1);
    let tier = pair.first.tier.as_ref().unwrap();
    Tier::write_later(tier, held, &content(0)).unwrap().await;
    tier.settle().await;
    assert_eq!(pair.first.counters.stored.get(), 0);
    assert_eq!(pair.second.counters.stored.get(), 1);
    assert_eq!(usage(pair.dir.path()), (DISK_BYTES, DISK_BYTES));
    assert_eq!(count(pair.dir.path(), "leases"), 0);
    assert_eq!(count(pair.dir.path(), "tmp"), 0);
}

#[tokio::test]
async fn a_cache_dropped_while_another_has_the_folder_locked_gives_its_leases_back() {
    loop {
        let pair = pair().await;
        let held = pair.lead().await;
        let get = pair.follow().await;
        let lock = held.disk.folder.open_lock().unwrap();
        lock.lock().unwrap();
        let Pair { first, second, .. } = pair;
        let since = SystemClock.monotonic();
        let (tell, is_dropped) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(held);
            drop(first);
            tell.send(()).unwrap();
        });
        let early = is_dropped.recv_timeout(Duration::from_millis(30));
        let is_early = early.is_ok();
        lock.unlock().unwrap();
        // On a busy machine, which unlocks after the dropped cache has tried for long, the test shows nothing.
        let is_in_time = SystemClock.monotonic() - since < DROP_LOOK * (DROP_LOOKS / 2);
        if !is_early {
            is_dropped.recv().unwrap();
        }
        if !is_in_time {
            get.abort();
            continue;
        }
        assert!(!is_early, "it waits for the lock");
        // The clock of the caches does not advance, so that no lease expires.
        assert_eq!(get.await.unwrap(), content(0));
        second.flush().await;
        return;
    }
}

#[tokio::test]
async fn a_late_holder_does_not_put_its_file_under_the_lease_of_another() {
    let pair = pair().await;
    let held = pair.lead().await;
    let get = pair.follow().await;
    pair.origin.is_held.store(true, SeqCst);
    pair.clock.advance(EXPIRY);
    pair.until(|| pair.origin.reads() == 1).await;
    held.lease.beat().unwrap();
    let lease = held.disk.folder.lease(name(0));
    assert!(!held.lease.is_held(&lease).unwrap());
    let tier = pair.first.tier.as_ref().unwrap();
    let late = Tier::write_later(tier, held, &content(0));
    late.unwrap().await;
    tier.settle().await;
    assert_eq!(pair.first.counters.stored.get(), 0);
    assert_eq!(usage(pair.dir.path()), (0, DISK_BYTES));
    assert_eq!(count(pair.dir.path(), "leases"), 1);
    pair.origin.go_on.notify_one();
    assert_eq!(get.await.unwrap(), content(0));
    pair.second.flush().await;
    assert_eq!(pair.second.counters.stored.get(), 1);
    assert_eq!(usage(pair.dir.path()), (DISK_BYTES, DISK_BYTES));
}

#[tokio::test]
async fn a_holder_that_beats_is_waited_for_until_patience_ends() {
    let pair = pair().await;
    let held = pair.lead().await;
    let get = pair.follow().await;
    // Three times nearly the expiry; each beat is seen before the clock advances.
    for _ in 0..3 {
        pair.clock.advance(EXPIRY - Duration::from_secs(1));
        held.lease.beat().unwrap();
        pair.looked(4).await;
        assert!(!get.is_finished());
    }
    assert_eq!(pair.origin.reads(), 0);
    pair.clock.advance(EXPIRY - Duration::from_secs(1));
    held.lease.beat().unwrap();
    assert_eq!(get.await.unwrap(), content(0));
    assert_eq!(pair.origin.reads(), 1);
    assert_eq!(pair.second.counters.passed.get(), 1);
    assert!(
        held.lease
            .is_held(&held.disk.folder.lease(name(0)))
            .unwrap()
    );
}

#[tokio::test]
async fn a_folder_that_another_process_keeps_locked_is_passed_by() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock::default());
    let (cache, origin) = open_on(Arc::clone(&clock) as _, dir.path(), 100).await;
    let other = fs::File::open(dir.path().join(OWN).join("lock")).unwrap();
    other.lock().unwrap();
    let get = async { cache.get(&extent(0)).await.unwrap() };
    let time = async {
        while origin.reads() == 0 {
            clock.advance(Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(tokio::join!(get, time).0, content(0));
    assert_eq!(cache.counters.passed.get(), 1);
    other.unlock().unwrap();
    read(&cache, [0, 0]).await;
    assert_eq!(tally(&cache), (1, 2));
}

#[tokio::test]
async fn jobs_that_are_open_at_the_same_time_get_equal_shares() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock::default());
    let open = || open_on(Arc::clone(&clock) as Arc<dyn Clock>, dir.path(), 10);
    let (first, _) = open().await;
    let (second, _) = open().await;
    let epochs = |from: u64| plan((0..40).map(|i| from + i % 10));
    first.foresee(&epochs(0));
    second.foresee(&epochs(100));
    let there = |from: u64| {
        let extents = from..from + 10;
        extents.filter(|n| file(dir.path(), *n).exists()).count()
    };
    read(&first, 0..10).await;
    assert_eq!((there(0), there(100)), (10, 0));
    read(&second, 100..110).await;
    assert_eq!((there(0), there(100)), (5, 5));
    for _ in 0..3 {
        read(&first, 0..10).await;
        read(&second, 100..110).await;
        assert_eq!((there(0), there(100)), (5, 5));
    }
    assert_eq!(usage(dir.path()), (10 * DISK_BYTES, 10 * DISK_BYTES));
}

#[tokio::test]
async fn fault_20_leases_of_a_dead_job_end_while_others_are_at_work() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock::default());
    let open = || open_on(Arc::clone(&clock) as Arc<dyn Clock>, dir.path(), 100);
    let (bystander, _) = open().await;
    // What a process leaves that was killed while it fetched one extent and wrote it.
    let tier = bystander.tier.as_ref().unwrap();
    let held = match tier.obtain(name(0), &extent(0)).await {
        Obtained::Lease(held) => held,
        other => panic!("{other:?}"),
    };
    let temporary = held.disk.write(&held.lease, &content(0)).unwrap();
    std::mem::forget((held, temporary));
    assert_eq!(usage(dir.path()), (0, DISK_BYTES));

    let (cache, _) = open().await;
    read(&cache, [1]).await;
    assert_eq!(
        (count(dir.path(), "leases"), count(dir.path(), "tmp")),
        (1, 1)
    );
    clock.advance(EXPIRY);
    read(&cache, [2]).await;
    assert_eq!(
        (count(dir.path(), "leases"), count(dir.path(), "tmp")),
        (0, 0)
    );
    assert_eq!(usage(dir.path()), (2 * DISK_BYTES, 2 * DISK_BYTES));
}
