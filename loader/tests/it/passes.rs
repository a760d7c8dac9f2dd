//! Batches that passes deliver, and their costs.

use feedline_loader::{CacheConfig, Error, LoaderConfig, Target, TokensConfig, image::ImageConfig};
use feedline_schemas::{
    ids::Seed,
    manifest::{Split, TargetKind},
};
use feedline_storage::{Store, StoreOptions};
use futures::StreamExt as _;

use crate::{
    SAMPLES, SHARDS, collect, config,
    dataset::{publish, publish_train},
    of_rank, open,
};

#[tokio::test]
async fn a_sequential_pass_is_in_shard_order_and_moves_no_position() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    for world in [1, 3, 50] {
        let mut joined = vec![Vec::new(); 31];
        for rank in 0..world {
            let loader = open(&store, &of_rank(&config(40), rank, world)).await;
            for (joined, batch) in joined.iter_mut().zip(loader.sequential().unwrap()) {
                let batch = batch.unwrap();
                assert_eq!(*batch.state(), loader.start_state());
                joined.extend(crate::samples(&batch));
            }
        }
        assert!(joined.concat().into_iter().eq(0..SAMPLES), "world {world}");
    }
}

#[tokio::test]
async fn settings_of_another_kind_of_record_change_nothing() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let plain = open(&store, &config(40)).await;
    let mut more = config(40);
    more.tokens = Some(TokensConfig::new(9));
    more.images = Some(ImageConfig::training(8, 8));
    let more = open(&store, &more).await;
    assert_eq!(more.start_state(), plain.start_state());
    assert_eq!(
        collect(more.epoch(more.start_state()).unwrap()),
        collect(plain.epoch(plain.start_state()).unwrap())
    );
}

#[tokio::test]
async fn every_kind_of_target_arrives() {
    for target in [
        TargetKind::None,
        TargetKind::Regression,
        TargetKind::Regressions { targets: 3 },
        TargetKind::Classification { classes: 5 },
    ] {
        let store = Store::memory();
        publish(
            &store,
            7,
            target,
            &[(Split::Train, SHARDS), (Split::Test, &[&[11]])],
        )
        .await;
        let loader = open(&store, &config(50)).await;
        let batch = loader
            .epoch(loader.start_state())
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let arrived = match batch.y() {
            Target::None => TargetKind::None,
            Target::Regression(_) => TargetKind::Regression,
            Target::Regressions { targets, .. } => TargetKind::Regressions {
                targets: u32::try_from(targets).unwrap(),
            },
            Target::Classification(_) => TargetKind::Classification { classes: 5 },
        };
        assert_eq!((arrived, batch.features(), batch.rows()), (target, 7, 50));
        if let Target::Regressions { y, targets } = batch.y() {
            // The first feature of a sample is its number, and its targets are that and the numbers behind it.
            for (x, y) in batch.x().chunks_exact(7).zip(y.chunks_exact(targets)) {
                assert_eq!(y, [x[0], x[0] + 0.5, x[0] + 1.0]);
            }
            assert_eq!(y.len(), 50 * targets);
        }
        let test = open(
            &store,
            &LoaderConfig {
                split: Split::Test.into(),
                ..config(50)
            },
        )
        .await;
        assert_eq!(
            collect(test.sequential().unwrap()),
            [(0..11).collect::<Vec<_>>()]
        );
    }
}

#[tokio::test]
async fn shards_on_the_local_disk_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap(), &StoreOptions::default()).unwrap();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(96)).await;
    let mut all = collect(loader.epoch(loader.start_state()).unwrap()).concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..SAMPLES));
}

#[tokio::test]
async fn an_epoch_reads_every_block_once_within_its_budget() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    let block = manifest.splits[0].shards[0].blocks[0].clone();
    let block_bytes = u64::from(block.metadata_bytes) + block.body_bytes;
    // Four domains with windows of two blocks: eight blocks are in use at most, and four of a domain's two windows
    // when it changes from one to the next.
    let config = LoaderConfig {
        prefetch_bytes: 16 * block_bytes,
        ..config(16)
    };
    let loader = open(&store, &config).await;
    let batches = loader.epoch(loader.start_state()).unwrap();
    assert_eq!(batches.remaining(), loader.batches_per_epoch());
    assert_eq!(collect(batches).len() as u64, loader.batches_per_epoch());
    let metrics = loader.metrics();
    assert_eq!((metrics.blocks, metrics.refetches), (31, 0));
    assert_eq!(
        (metrics.samples, metrics.batches),
        (SAMPLES, loader.batches_per_epoch())
    );
    assert_eq!(metrics.batch_bytes, SAMPLES * (3 * 4 + 4));
    assert!(
        metrics.peak_bytes <= config.prefetch_bytes,
        "{} bytes",
        metrics.peak_bytes
    );
    assert!(
        metrics.peak_bytes > 8 * block_bytes,
        "nothing was read ahead"
    );
}

#[tokio::test]
async fn a_budget_below_one_block_still_delivers_everything() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    let block = &manifest.splits[0].shards[0].blocks[0];
    let block_bytes = u64::from(block.metadata_bytes) + block.body_bytes;
    let loader = open(
        &store,
        &LoaderConfig {
            prefetch_bytes: 0,
            ..config(16)
        },
    )
    .await;
    let generous = open(&store, &config(16)).await;
    let state = loader.start_state();
    assert_eq!(
        collect(loader.epoch(state.clone()).unwrap()),
        collect(generous.epoch(state).unwrap())
    );
    let peak = loader.metrics().peak_bytes;
    assert!(
        peak <= 16 * block_bytes,
        "{peak} bytes, more than one batch can need"
    );
    assert!(generous.metrics().peak_bytes > peak);
}

#[tokio::test]
async fn one_sample_in_one_block_is_an_epoch() {
    let store = Store::memory();
    publish_train(&store, &[&[1]]).await;
    let loader = open(&store, &LoaderConfig::new(Split::Train, Seed::new(0), 256)).await;
    assert_eq!(collect(loader.epoch(loader.start_state()).unwrap()), [[0]]);
    assert_eq!((loader.batches_per_epoch(), loader.samples()), (1, 1));
}

#[tokio::test]
async fn a_split_that_fits_is_read_once_for_all_passes() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(50)).await;
    let mut state = loader.start_state();
    let mut epochs = Vec::new();
    for _ in 0..3 {
        let epoch = collect(loader.epoch(state.clone()).unwrap());
        assert_eq!(epoch.concat().len() as u64, SAMPLES);
        epochs.push(epoch);
        state = loader.next_epoch(&state);
    }
    assert!(
        collect(loader.sequential().unwrap())
            .concat()
            .into_iter()
            .eq(0..SAMPLES)
    );
    assert_ne!(epochs[0], epochs[1]);
    let metrics = loader.metrics();
    assert_eq!((metrics.blocks, metrics.kept_blocks), (31, 3 * 31));
}

#[tokio::test]
async fn batches_go_on_where_the_last_pass_was_left() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(50)).await;
    let epoch = |number| {
        let mut state = loader.start_state();
        (0..number).for_each(|_| state = loader.next_epoch(&state));
        collect(loader.epoch(state).unwrap())
    };
    let expected = [epoch(0), epoch(1)].concat();
    let mut seen = collect(loader.batches().unwrap().take(7));
    // The seventh is not finished before the next is asked for.
    assert_eq!(loader.state().batch.get(), 6);
    seen.truncate(6);
    seen.extend(collect(loader.batches().unwrap()));
    assert_eq!(
        (loader.state().epoch.get(), loader.state().batch.get()),
        (1, 0)
    );
    seen.extend(collect(loader.batches().unwrap()));
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_stream_gives_the_same_batches_without_a_thread_that_waits() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(50)).await;
    let expected = collect(loader.epoch(loader.start_state()).unwrap());
    let mut stream = loader.stream().unwrap();
    let mut seen = Vec::new();
    while let Some(batch) = stream.next().await {
        seen.push(crate::samples(&batch.unwrap()));
    }
    assert_eq!(seen, expected);
    assert_eq!(stream.remaining(), 0);
    let mut stream = loader.stream().unwrap();
    let held: Vec<_> = stream.by_ref().take(4).collect().await;
    assert!(matches!(
        stream.next().await,
        Some(Err(Error::BatchesHeld { slabs: 4 }))
    ));
    drop(held);
    assert!(stream.next().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_second_run_reads_blocks_from_the_disk_cache() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let folder = tempfile::tempdir().unwrap();
    let config = LoaderConfig {
        cache: Some(CacheConfig {
            dir: folder.path().to_owned(),
            bytes: 1 << 24,
        }),
        ..config(50)
    };
    let loader = open(&store, &config).await;
    let expected = collect(loader.batches().unwrap());
    let first = loader.metrics().cache;
    // 31 blocks, and the head that all shards have.
    assert_eq!((first.hits, first.misses), (0, 31 + 1));
    assert!(first.stored_bytes > 0);
    // All comes from the disk, although the store has lost them.
    for shard in ["00000", "00001", "00002"] {
        let path = format!("shards/train/{shard}.arrow");
        let mut bytes = store.get(&path).await.unwrap().to_vec();
        bytes.fill(0);
        store.put(&path, bytes.into()).await.unwrap();
    }
    let loader = open(&store, &config).await;
    assert_eq!(collect(loader.batches().unwrap()), expected);
    let second = loader.metrics().cache;
    assert_eq!((second.hits, second.misses), (31 + 1, 0));
}

#[tokio::test]
async fn headspace_gives_one_batch_forever() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(50)).await;
    let first = loader.batches().unwrap().next().unwrap().unwrap();
    let expected = crate::samples(&first);
    for batch in first.headspace().take(100) {
        assert_eq!(crate::samples(&batch), expected);
    }
}

#[tokio::test]
async fn metrics_are_json_with_units_in_their_names() {
    let store = Store::memory();
    publish_train(&store, &[&[4]]).await;
    let loader = open(&store, &config(4)).await;
    collect(loader.sequential().unwrap());
    let metrics = serde_json::to_value(loader.metrics()).unwrap();
    assert_eq!(
        (&metrics["samples"], &metrics["blocks"]),
        (&4.into(), &1.into())
    );
    assert!(metrics["consumer_wait_seconds"].as_f64().unwrap() > 0.0);
    assert!(metrics["first_batch_seconds"].as_f64().unwrap() > 0.0);
    for stage in ["fetch", "assemble", "decode"] {
        for state in ["busy_seconds", "starved_seconds", "blocked_seconds"] {
            assert!(metrics[stage][state].as_f64().unwrap() >= 0.0);
        }
    }
}

#[tokio::test]
async fn a_plan_tells_what_an_epoch_reads_and_holds() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    let bytes: u64 = manifest.splits[0]
        .shards
        .iter()
        .flat_map(|shard| &shard.blocks)
        .map(|block| u64::from(block.metadata_bytes) + block.body_bytes)
        .sum();
    let alone = open(&store, &config(16)).await.plan();
    assert_eq!(
        (alone.samples, alone.batches, alone.bytes, alone.requests),
        (SAMPLES, 77, bytes, 31)
    );
    assert_eq!((alone.domains, alone.window_blocks), (4, 2));
    assert_eq!(alone.window_bytes, bytes * 8 / 31);
    assert!((alone.reads_per_block - 1.0).abs() < 1e-9);
    let shuffle = alone.shuffle;
    assert!(shuffle.classes_per_batch > 10.0 && shuffle.classes_per_batch <= 16.0);
    let extents = LoaderConfig {
        extent_bytes: 1 << 20,
        ..of_rank(&config(16), 1, 8)
    };
    let shared = open(&store, &extents).await.plan();
    assert_eq!((shared.requests, shared.domains), (3, 3));
    assert!(
        shared.reads_per_block > 2.0,
        "eight ranks share three domains"
    );
    let json = serde_json::to_value(shared).unwrap();
    assert_eq!(json["shuffle"]["classes"], 1000);
}

#[tokio::test]
async fn an_epoch_that_was_prepared_gives_the_batches_it_gives_otherwise() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let plain = open(&store, &config(40)).await;
    let second = plain.next_epoch(&plain.start_state());
    let expected = collect(plain.epoch(second.clone()).unwrap());

    let loader = open(&store, &config(40)).await;
    let mut batches = loader.batches().unwrap();
    while let Some(batch) = batches.next() {
        let batch = batch.unwrap();
        if batches.remaining() == 0 {
            loader.prepare(loader.next_epoch(batch.state())).unwrap();
        }
    }
    drop(batches);
    // The one that was begun is ready: nothing is read any more, and it moves the position as another would.
    let mut prepared = loader.batches().unwrap();
    let first = prepared.next().unwrap().unwrap();
    assert_eq!(crate::samples(&first), expected[0]);
    drop(first);
    let rest: Vec<_> = prepared
        .by_ref()
        .map(|batch| crate::samples(&batch.unwrap()))
        .collect();
    assert_eq!(rest, expected[1..]);
    assert_eq!(loader.state().epoch.get(), 2);

    // From another state it is not used.
    loader.prepare(second).unwrap();
    let start = loader.start_state();
    assert_eq!(
        collect(loader.epoch(start.clone()).unwrap()),
        collect(plain.epoch(start).unwrap())
    );
    loader.prepare_sequential().unwrap();
    assert_eq!(
        collect(loader.sequential().unwrap()),
        collect(plain.sequential().unwrap())
    );
}

#[tokio::test]
async fn a_loader_that_is_dropped_with_a_prepared_epoch_ends_its_threads() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(40)).await;
    loader.prepare(loader.start_state()).unwrap();
    loader.prepare(loader.start_state()).unwrap();
    // Or this hangs.
    drop(loader);
}
