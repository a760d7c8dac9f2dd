//! Threads end, whatever the caller does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread,
    time::Duration,
};

use feedline_loader::{Error, Loader, LoaderConfig};
use feedline_storage::{
    Effect, Faults, Operation, Rule, Store,
    clock::{Clock, SystemClock},
};

use crate::{SHARDS, collect, config, dataset::publish_train, failure};

/// A clock by whose owners one sees who is still there: every thread of a pass holds it.
fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

#[test]
fn batches_and_passes_can_go_to_other_threads() {
    fn check<T: Send>() {}
    check::<feedline_loader::Batch>();
    check::<feedline_loader::EpochBatches>();
    check::<Arc<Loader>>();
}

#[tokio::test]
async fn a_pass_dropped_anywhere_leaves_no_thread_behind() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    for taken in [0, 1, 2, 30, 77] {
        let clock = clock();
        let loader = Loader::open(&store, &config(16), Arc::clone(&clock))
            .await
            .unwrap();
        let mut batches = loader.epoch(loader.start_state()).unwrap();
        let last = batches.by_ref().take(taken).last();
        drop(batches);
        drop(loader);
        assert_eq!(Arc::strong_count(&clock), 1, "after {taken} batches");
        // A batch outlives all of it.
        assert!(last.is_none_or(|batch| !crate::samples(&batch.unwrap()).is_empty()));
    }
}

#[tokio::test]
async fn a_pass_whose_store_hangs_can_be_dropped() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let hang = Rule {
        operation: Operation::Read,
        path_contains: "shards/".into(),
        skip: 5,
        times: u64::MAX,
        effect: Effect::Delay(Duration::from_secs(1_000_000)),
    };
    let clock = clock();
    let loader = Loader::open(
        &store.with_faults(Faults::new(vec![hang])),
        &config(16),
        Arc::clone(&clock),
    )
    .await
    .unwrap();
    drop(loader.epoch(loader.start_state()).unwrap());
    drop(loader);
    assert_eq!(Arc::strong_count(&clock), 1);
}

#[tokio::test]
async fn holding_every_batch_is_an_error_that_passes() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = crate::open(
        &store,
        &LoaderConfig {
            slabs: 2,
            ..config(16)
        },
    )
    .await;
    let expected = collect(loader.epoch(loader.start_state()).unwrap());
    let mut batches = loader.epoch(loader.start_state()).unwrap();
    let first = batches.next().unwrap().unwrap();
    let second = batches.next().unwrap().unwrap();
    let error = batches.next().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the caller holds all `2` batches of the loader; drop one before requesting the next, or raise `slabs`"
    );
    assert_eq!(
        [crate::samples(&first), crate::samples(&second)],
        expected[..2]
    );
    drop(first);
    assert_eq!(collect(batches.by_ref().take(1)), expected[2..3]);
    drop(second);
    assert_eq!(collect(batches), expected[3..]);
}

#[tokio::test]
async fn two_passes_at_a_time_do_not_wait_for_each_other() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = crate::open(&store, &config(16)).await;
    let mut epoch = loader.epoch(loader.start_state()).unwrap();
    let first = epoch.next().unwrap().unwrap();
    assert_eq!(collect(loader.sequential().unwrap()).len(), 77);
    assert_eq!(crate::samples(&first).len(), 16);
    assert_eq!(collect(epoch).len(), 76);
}

/// A clock that panics in the thread of one stage, after a number of readings there.
#[derive(Debug)]
struct Bomb {
    stage: &'static str,
    fuse: AtomicI32,
}

impl Clock for Bomb {
    fn monotonic(&self) -> Duration {
        let here = thread::current()
            .name()
            .is_some_and(|name| name.ends_with(self.stage));
        let bang = here && self.fuse.fetch_sub(1, Ordering::SeqCst) == 0;
        assert!(!bang, "the clock exploded");
        SystemClock.monotonic()
    }
    fn unix(&self) -> Duration {
        SystemClock.unix()
    }
}

#[tokio::test]
async fn a_panic_in_a_thread_reaches_the_caller() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    for stage in ["fetch", "assemble"] {
        for fuse in [0, 1, 7, 20] {
            let clock = Arc::new(Bomb {
                stage,
                fuse: fuse.into(),
            });
            let loader = Loader::open(&store, &config(16), Arc::clone(&clock) as _)
                .await
                .unwrap();
            let error = failure(loader.epoch(loader.start_state()).unwrap());
            assert!(matches!(error, Error::Worker { .. }), "{error}");
            let text = error.to_string();
            assert!(
                text.starts_with(&format!("the loader's `{stage}` thread ended: ")),
                "{text}"
            );
            assert!(text.contains("the clock exploded"), "{text}");
            drop(loader);
            assert_eq!(Arc::strong_count(&clock), 1);
        }
    }
}
