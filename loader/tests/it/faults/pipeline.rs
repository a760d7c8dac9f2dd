//! Faults between the store and the trainer: damaged blocks and their substitutes, waiting, stopping, resuming.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use feedline_loader::{Error, Loader, LoaderConfig};
use feedline_schemas::manifest::Manifest;
use feedline_storage::{
    Effect, Faults, Operation, Rule, Store,
    clock::{Clock, SystemClock},
};

use crate::{
    SAMPLES, SHARDS, collect, config,
    dataset::{publish_manifest, publish_train, shard_file},
    failure, of_rank, open, samples,
};

/// Flips a bit in some blocks of a shard.
pub(crate) async fn damage(store: &Store, manifest: &Manifest, shard: usize, blocks: &[usize]) {
    let shard = &manifest.splits[0].shards[shard];
    let mut bytes = store.get(&shard.path).await.unwrap().to_vec();
    for block in blocks {
        let block = &shard.blocks[*block];
        bytes[usize::try_from(block.offset + block.body_bytes / 2).unwrap()] ^= 4;
    }
    store.put(&shard.path, bytes.into()).await.unwrap();
}

fn hang(skip: u64) -> Rule {
    Rule {
        operation: Operation::Read,
        path_contains: "shards/".into(),
        skip,
        times: u64::MAX,
        effect: Effect::Delay(Duration::from_secs(1_000_000)),
    }
}

#[tokio::test]
async fn fault_02_a_damaged_block_is_set_aside_and_the_same_samples_stand_in_on_any_ranks() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    damage(&store, &manifest, 0, &[3, 4, 15]).await;
    damage(&store, &manifest, 2, &[3]).await;
    let config = LoaderConfig {
        max_bad_fraction: 0.14,
        ..config(96)
    };
    // Blocks of 40 samples: those of block 5 replace blocks 3 and 4, those of block 16 block 15.
    // The last, 30,
    // has only 21, so that the first one replaces block 29.
    let stand_in = |sample: u64| match sample / 40 {
        3 | 4 => 200 + sample % 40,
        15 => 640 + sample % 40,
        29 => sample % 40,
        _ => sample,
    };
    let healthy = Store::memory();
    publish_train(&healthy, SHARDS).await;
    let loader = open(&healthy, &config).await;
    let expected: Vec<Vec<u64>> = collect(loader.epoch(loader.start_state()).unwrap())
        .iter()
        .map(|batch| batch.iter().map(|sample| stand_in(*sample)).collect())
        .collect();
    for world in [1, 2, 5] {
        let mut joined = vec![Vec::new(); expected.len()];
        let mut substituted = 0;
        for rank in 0..world {
            let loader = open(&store, &of_rank(&config, rank, world)).await;
            let batches = loader.epoch(loader.start_state()).unwrap();
            for (joined, batch) in joined.iter_mut().zip(collect(batches)) {
                joined.extend(batch);
            }
            substituted += loader.metrics().substituted;
            if world == 1 {
                let listed: Vec<_> = loader
                    .quarantine()
                    .into_iter()
                    .map(|bad| (bad.shard, bad.block, bad.row))
                    .collect();
                let shard = |number: usize| manifest.splits[0].shards[number].path.clone();
                let expected = [(0, 3), (0, 4), (0, 15), (2, 3)];
                assert_eq!(
                    listed,
                    expected.map(|(number, block)| (shard(number), block, None))
                );
                assert_eq!(loader.metrics().quarantined, 160);
            }
        }
        assert_eq!(joined, expected, "world {world}");
        assert_eq!(substituted, 160, "world {world}");
    }
}

#[tokio::test]
async fn fault_02_rows_in_the_place_of_a_damaged_block_are_named_as_substituted() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    damage(&store, &manifest, 0, &[3]).await;
    let config = LoaderConfig {
        max_bad_fraction: 0.14,
        ..config(96)
    };
    let loader = open(&store, &config).await;
    let (mut seen, mut repeated, mut named) = (BTreeSet::new(), 0, 0);
    for batch in loader.sequential().unwrap() {
        let batch = batch.unwrap();
        let substituted: Vec<usize> = batch.substituted().collect();
        named += substituted.len();
        for (row, sample) in samples(&batch).into_iter().enumerate() {
            if !substituted.contains(&row) {
                repeated += usize::from(!seen.insert(sample));
            }
        }
    }
    assert_eq!((seen.len() as u64, repeated), (SAMPLES - 40, 0));
    assert_eq!(named, 40);
}

#[tokio::test]
async fn fault_02_more_damage_than_allowed_ends_the_pass() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    damage(&store, &manifest, 0, &[3, 9]).await;
    for (share, is_enough) in [(0.001, false), (0.05, false), (0.07, true), (1.0, true)] {
        let config = LoaderConfig {
            max_bad_fraction: share,
            ..config(96)
        };
        let loader = open(&store, &config).await;
        let batches = loader.epoch(loader.start_state()).unwrap();
        if is_enough {
            assert_eq!(collect(batches).concat().len() as u64, SAMPLES);
        } else {
            let error = failure(batches);
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
    }
}

#[tokio::test]
async fn fault_12_a_manifest_published_in_mid_pass_is_not_seen() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(16)).await;
    let expected = collect(loader.epoch(loader.start_state()).unwrap());
    let loader = open(&store, &config(16)).await;
    let mut batches = loader.epoch(loader.start_state()).unwrap();
    let mut seen = collect(batches.by_ref().take(10));
    let other = Store::memory();
    let mut manifest = publish_train(&other, &[&[7, 7]]).await;
    let path = "shards/train/new.arrow".to_owned();
    let target = feedline_schemas::manifest::TargetKind::Regression;
    let file = shard_file(crate::dataset::FEATURES, target, 5_000, &[7, 7]);
    manifest.splits[0].shards[0] = crate::dataset::describe(&path, &file);
    store.put(&path, file).await.unwrap();
    publish_manifest(&store, manifest).await;
    seen.extend(collect(batches));
    assert_eq!(seen, expected);
    let next = loader.next_epoch(&loader.start_state());
    assert_eq!(
        collect(loader.epoch(next).unwrap()).concat().len() as u64,
        SAMPLES
    );
    assert_eq!(
        open(&store, &config(16)).await.samples(),
        14,
        "a new loader sees it"
    );
}

/// The trainer is killed after `steps` steps; the last saved state is `lost` steps older.
#[tokio::test]
async fn fault_15_killed_between_step_and_checkpoint_repeats_only_what_was_not_saved() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(16)).await;
    let expected = collect(loader.epoch(loader.start_state()).unwrap());
    for (steps, lost) in [(1, 1), (5, 0), (30, 1), (77, 2)] {
        let loader = open(&store, &config(16)).await;
        let mut saved = loader.start_state();
        let mut states = Vec::new();
        for batch in loader.batches().unwrap().take(steps) {
            states.push(batch.unwrap().state().clone());
        }
        if let Some(state) = states.iter().rev().nth(lost) {
            saved = state.clone();
        }
        // Everything that had been read and filled ahead is gone with the process.
        drop(loader);
        let resumed = open(&store, &config(16)).await;
        resumed.resume(saved).unwrap();
        let rest = collect(resumed.batches().unwrap());
        assert_eq!(
            rest,
            expected[steps - lost..],
            "{lost} of {steps} steps lost"
        );
    }
}

/// A clock on which a second passes with every look.
#[derive(Debug, Default)]
struct Hurry(AtomicU64);

impl Clock for Hurry {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(1, Ordering::Relaxed))
    }
    fn unix(&self) -> Duration {
        Duration::ZERO
    }
}

#[tokio::test]
async fn fault_28_a_rank_that_waits_too_long_says_for_what() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let hanging = store.with_faults(Faults::new(vec![hang(12)]));
    let config = LoaderConfig {
        stall_timeout: Some(Duration::from_secs(60)),
        ..of_rank(&config(16), 1, 3)
    };
    let loader = Loader::open(&hanging, &config, Arc::new(Hurry::default()))
        .await
        .unwrap();
    let error = failure(loader.epoch(loader.start_state()).unwrap());
    let Error::Stalled {
        rank: 1,
        seconds,
        stage: "fetch",
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert!(seconds > 60);
    let text = error.to_string();
    assert!(text.contains("block `"), "{text}");
    assert!(text.contains("has not arrived"), "{text}");
}

#[tokio::test]
async fn fault_31_a_trainer_that_stops_pulling_holds_no_more_than_the_budget() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    let block = &manifest.splits[0].shards[0].blocks[0];
    let block_bytes = u64::from(block.metadata_bytes) + block.body_bytes;
    let config = LoaderConfig {
        prefetch_bytes: 20 * block_bytes,
        ..config(16)
    };
    let loader = open(&store, &config).await;
    let mut batches = loader.epoch(loader.start_state()).unwrap();
    let mut seen = collect(batches.by_ref().take(1));
    // All that may be read is read now, and then nothing more.
    while loader.metrics().peak_bytes + block_bytes <= config.prefetch_bytes {
        thread::yield_now();
    }
    for _ in 0..10_000 {
        thread::yield_now();
        assert!(loader.metrics().peak_bytes <= config.prefetch_bytes);
    }
    seen.extend(collect(batches));
    assert!(loader.metrics().peak_bytes <= config.prefetch_bytes);
    let all: BTreeSet<_> = seen.into_iter().flatten().collect();
    assert_eq!(all.len() as u64, SAMPLES);
}

#[tokio::test]
async fn fault_32_a_loader_dropped_in_mid_pass_leaves_nothing_behind() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    for (skip, taken) in [(0, 0), (9, 0), (14, 1), (u64::MAX, 40)] {
        // Every thread holds the clock.
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let hanging = store.with_faults(Faults::new(vec![hang(skip)]));
        let loader = Loader::open(&hanging, &config(16), Arc::clone(&clock))
            .await
            .unwrap();
        let mut batches = loader.batches().unwrap();
        let held: Vec<_> = batches.by_ref().take(taken.min(1)).collect();
        drop(batches.by_ref().take(taken).last());
        drop(batches);
        drop(loader);
        assert_eq!(Arc::strong_count(&clock), 1, "hanging after {skip} reads");
        assert!(
            held.iter()
                .all(|batch| samples(batch.as_ref().unwrap()).len() == 16)
        );
    }
}

/// A clock whose date jumps by a year with every look, which are counted.
#[derive(Debug, Default)]
struct Jumping(AtomicU64);

impl Clock for Jumping {
    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }
    fn unix(&self) -> Duration {
        Duration::from_secs(31_536_000)
            * u32::try_from(self.0.fetch_add(1, Ordering::Relaxed)).unwrap()
    }
}

#[tokio::test]
async fn fault_33_the_date_plays_no_part() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let clock = Arc::new(Jumping::default());
    let loader = Loader::open(&store, &config(16), Arc::clone(&clock) as _)
        .await
        .unwrap();
    let mut counts = BTreeMap::<u64, u32>::new();
    for sample in collect(loader.batches().unwrap()).concat() {
        *counts.entry(sample).or_default() += 1;
    }
    assert!(
        counts
            .into_iter()
            .eq((0..SAMPLES).map(|sample| (sample, 1)))
    );
}
