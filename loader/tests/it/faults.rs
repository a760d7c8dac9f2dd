//! Damaged, cut, missing and foreign shards: one clear error, and no wrong byte is handed out.

mod cache;
mod cached;
mod cached_foreign;
pub(crate) mod input;
mod joined;
mod network;
mod order;
pub(crate) mod pipeline;
mod shards;

use std::time::Duration;

use bytes::Bytes;
use feedline_loader::Error;
use feedline_schemas::manifest::{Layout, Manifest, Split, TargetKind};
use feedline_storage::{Effect, Faults, Operation, Rule, Store};

use crate::{
    SHARDS, collect, config,
    dataset::{FEATURES, describe, publish, publish_manifest, publish_train, shard_file},
    failure, open,
};

const SECOND: &str = "shards/train/00001.arrow";

fn rule(skip: u64, times: u64, effect: Effect) -> Rule {
    Rule {
        operation: Operation::Read,
        path_contains: SECOND.into(),
        skip,
        times,
        effect,
    }
}

/// The error of a whole epoch over `store`.
async fn epoch_error(store: &Store) -> Error {
    let mut config = config(16);
    config.fetch.deadline = Duration::from_millis(100);
    let loader = open(store, &config).await;
    failure(loader.epoch(loader.start_state()).unwrap())
}

#[tokio::test]
async fn no_sample_of_a_block_with_a_flipped_bit_is_delivered() {
    let store = Store::memory();
    let manifest = publish_train(&store, &[&[2, 2, 2]]).await;
    let shard = &manifest.splits[0].shards[0];
    let good = store.get(&shard.path).await.unwrap();
    let block = &shard.blocks[1];
    let bits = (u64::from(block.metadata_bytes) + block.body_bytes) * 8;
    // Every seventh bit: all bits of a byte are hit, and a few hundred bytes all over the block.
    for bit in (0..bits).step_by(7) {
        let mut bytes = good.to_vec();
        bytes[usize::try_from(block.offset + bit / 8).unwrap()] ^= 1 << (bit % 8);
        store.put(&shard.path, bytes.into()).await.unwrap();
        let loader = open(&store, &config(2)).await;
        let mut seen = Vec::new();
        let mut errors = Vec::new();
        for batch in loader.sequential().unwrap() {
            match batch {
                Ok(batch) => seen.extend(crate::samples(&batch)),
                Err(error) => errors.push(error),
            }
        }
        assert_eq!(seen, [0, 1], "bit {bit}");
        assert!(
            matches!(errors[..], [Error::Corrupt { block: 1, .. }]),
            "bit {bit}: {errors:?}"
        );
        assert_eq!(loader.metrics().refetches, 1);
    }
}

#[tokio::test]
async fn a_damaged_block_is_named_with_its_checksums() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    let block = &manifest.splits[0].shards[1].blocks[9];
    let mut bytes = store.get(SECOND).await.unwrap().to_vec();
    let start = usize::try_from(block.offset).unwrap();
    bytes[start + 1000] ^= 4;
    let end = start + block.metadata_bytes as usize + usize::try_from(block.body_bytes).unwrap();
    let found = crc32c::crc32c(&bytes[start..end]);
    store.put(SECOND, bytes.into()).await.unwrap();
    assert_eq!(
        epoch_error(&store).await.to_string(),
        format!(
            "block `9` of shard `{}` is damaged: its checksum is `{found:08x}` and the manifest says `{:08x}`; it was \
             read twice and none of its samples were used; restore the file or, where feedline built it, build the dataset \
             again with `feedline shards build PIPELINE.toml --refit`",
            store.url_of(SECOND),
            block.crc32c
        )
    );
}

#[tokio::test]
async fn damage_on_the_way_is_healed_by_reading_again() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let undisturbed = open(&store, &config(16)).await;
    let expected = collect(undisturbed.epoch(undisturbed.start_state()).unwrap());
    for effect in [
        Effect::ShortRead(100),
        Effect::FlipBit(8 * 900),
        Effect::FailBefore,
        Effect::FailAfter,
    ] {
        // The first read of the shard is its head, the others are blocks.
        for skip in [0, 1, 5] {
            let store = store.with_faults(Faults::new(vec![rule(skip, 1, effect)]));
            let loader = open(&store, &config(16)).await;
            assert_eq!(
                collect(loader.epoch(loader.start_state()).unwrap()),
                expected,
                "{effect:?}"
            );
            // A flipped bit beyond what a head says is no damage to the head.
            let harmless = skip == 0 && matches!(effect, Effect::FlipBit(_));
            let metrics = loader.metrics();
            assert!(
                metrics.refetches + metrics.fetches.retries.broken == 1 || harmless,
                "{effect:?} after {skip} reads"
            );
        }
    }
}

#[tokio::test]
async fn a_store_that_keeps_failing_is_named_with_the_block() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let failing = store.with_faults(Faults::new(vec![rule(1, u64::MAX, Effect::FailBefore)]));
    let error = epoch_error(&failing).await;
    assert!(
        matches!(&error, Error::Read { shard, source, .. } if shard.ends_with(SECOND) && source.is_retryable())
    );
    let short = store.with_faults(Faults::new(vec![rule(1, u64::MAX, Effect::ShortRead(9))]));
    assert!(matches!(epoch_error(&short).await, Error::Read { .. }));
}

#[tokio::test]
async fn a_shard_cut_short_after_it_was_opened_is_named_with_its_lengths() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    let shard = &manifest.splits[0].shards[1];
    let whole = store.get(SECOND).await.unwrap();
    let last = shard.blocks.last().unwrap();
    let into_last_block = usize::try_from(last.offset).unwrap() + 5;
    for length in [into_last_block, 100, 0] {
        store.put(SECOND, whole.clone()).await.unwrap();
        let loader = open(&store, &config(16)).await;
        store.put(SECOND, whole.slice(..length)).await.unwrap();
        let error = failure(loader.epoch(loader.start_state()).unwrap());
        assert_eq!(
            error.to_string(),
            format!(
                "shard `{}` is truncated: it has `{length}` bytes and the manifest says `{}`; restore the file or \
                 build the dataset again with `feedline shards build PIPELINE.toml --refit`",
                store.url_of(SECOND),
                shard.bytes
            )
        );
    }
}

#[tokio::test]
async fn a_missing_shard_is_named_with_the_manifest() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    store.delete(SECOND).await.unwrap();
    let loader = open(&store, &config(16)).await;
    let error = failure(loader.epoch(loader.start_state()).unwrap());
    assert_eq!(loader.metrics().refetches, 0, "asking again does not help");
    assert_eq!(
        error.to_string(),
        format!(
            "shard `{}` is missing, although the manifest with fingerprint `{}` names it; restore the file or build \
             the dataset again with `feedline shards build PIPELINE.toml --refit`",
            store.url_of(SECOND),
            manifest.fingerprint
        )
    );
}

/// Replaces the second shard by `file`, with a manifest that believes in it.
async fn replace_second(store: &Store, manifest: &Manifest, file: Bytes) {
    let mut manifest = manifest.clone();
    manifest.splits[0].shards[1] = describe(SECOND, &file);
    manifest.splits[0].rows = manifest.splits[0]
        .shards
        .iter()
        .map(|shard| shard.rows)
        .sum();
    store.put(SECOND, file).await.unwrap();
    publish_manifest(store, manifest).await;
}

#[tokio::test]
async fn a_shard_with_other_columns_is_refused() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    let check = async |features, target, reason: &str| {
        replace_second(
            &store,
            &manifest,
            shard_file(features, target, 640, &[40; 10]),
        )
        .await;
        let error = epoch_error(&store).await;
        assert_eq!(
            error.to_string(),
            format!(
                "shard `{}` does not have the columns of the manifest: {reason}; restore the file or build the \
                 dataset again with `feedline shards build PIPELINE.toml --refit`",
                store.url_of(SECOND)
            )
        );
    };
    check(FEATURES, TargetKind::None, "column `y` is missing").await;
    check(
        FEATURES,
        TargetKind::Classification { classes: 2 },
        "column `y` is `Int32` instead of `float32`",
    )
    .await;
    check(
        FEATURES + 1,
        TargetKind::Regression,
        "column `x` is `FixedSizeList(4 x non-null Float32)` instead of `fixed_size_list<float32>[3]`",
    )
    .await;
}

#[tokio::test]
async fn a_class_the_manifest_does_not_know_is_refused() {
    let store = Store::memory();
    let classes = |classes| TargetKind::Classification { classes };
    let mut manifest = publish(
        &store,
        FEATURES,
        classes(5),
        &[(Split::Train, &[&[40, 40]])],
    )
    .await;
    manifest.layout = Layout::Dense {
        features: FEATURES,
        target: classes(4),
    };
    manifest.counts.classes.pop();
    publish_manifest(&store, manifest).await;
    let error = epoch_error(&store).await.to_string();
    assert!(
        error.contains("row `4` of block `0`")
            && error.contains("has class `4`, and the dataset has `4` classes"),
        "{error}"
    );
}
