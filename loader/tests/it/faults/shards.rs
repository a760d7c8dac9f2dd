//! Shards that are incomplete when the loader is opened, and very many shards.

use feedline_loader::{BadShards, Error, Loader, LoaderConfig};
use feedline_schemas::{
    decode, encode,
    ids::Rank,
    loader_state::LoaderState,
    manifest::{Manifest, Split},
};
use feedline_storage::{Effect, Faults, Operation, Rule, Store, StoreOptions};

use super::SECOND;
use crate::{
    SHARDS, collect, config,
    dataset::{publish_manifest, publish_train},
    elastic::{assert_once, run},
    open, refused,
};

/// Twelve shards of 100 samples.
const TWELVE: &[&[u32]] = &[&[40_u32, 40, 20] as &[u32]; 12];

fn skipping(global_batch: u32) -> LoaderConfig {
    LoaderConfig {
        bad_shards: BadShards::Skip,
        ..config(global_batch)
    }
}

fn path(shard: u32) -> String {
    format!("shards/train/{shard:05}.arrow")
}

async fn cut(store: &Store, shard: u32) {
    let whole = store.get(&path(shard)).await.unwrap();
    let part = whole.slice(..whole.len() - 1);
    store.put(&path(shard), part).await.unwrap();
}

/// The same dataset with its shards in a table, and nothing listed.
async fn publish_table(store: &Store, shape: &[&[u32]]) -> Manifest {
    let mut manifest = publish_train(store, shape).await;
    for (path, file) in manifest.add_tables(0).unwrap() {
        store.put(&path, file.into()).await.unwrap();
    }
    publish_manifest(store, manifest).await
}

#[tokio::test]
async fn fault_01_a_shard_of_another_length_is_named_when_the_dataset_is_opened() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    let bytes = manifest.splits[0].shards[1].bytes;
    let whole = store.get(SECOND).await.unwrap();
    let longer = [&whole[..], b"x"].concat();
    for (file, how) in [
        (whole.slice(..whole.len() - 1), "truncated"),
        (whole.slice(..0), "truncated"),
        (longer.into(), "too long"),
    ] {
        let found = file.len();
        store.put(SECOND, file).await.unwrap();
        assert_eq!(
            refused(&store, &config(16)).await.to_string(),
            format!(
                "shard `{}` is {how}: it has `{found}` bytes and the manifest says `{bytes}`; restore the file or \
                 build the dataset again with `feedline shards build PIPELINE.toml --refit`",
                store.url_of(SECOND)
            )
        );
    }
    store.put(SECOND, whole).await.unwrap();
    assert_eq!(open(&store, &config(16)).await.metrics().skipped_shards, 0);
}

#[tokio::test]
async fn fault_01_more_shards_than_are_asked_one_by_one_are_listed() {
    let store = Store::memory();
    publish_train(&store, &[&[1_u32] as &[u32]; 1001]).await;
    cut(&store, 987).await;
    let error = refused(&store, &config(16)).await.to_string();
    assert!(error.contains("00987.arrow` is truncated"), "{error}");
    store.delete(&path(3)).await.unwrap();
    let loader = open(&store, &skipping(16)).await;
    let metrics = loader.metrics();
    assert_eq!((metrics.skipped_shards, metrics.skipped_samples), (2, 2));
    let mut all = collect(loader.epoch(loader.start_state()).unwrap()).concat();
    all.sort_unstable();
    assert!(
        all.into_iter()
            .eq((0..1001).filter(|i| *i != 3 && *i != 987))
    );
}

/// Cut, too long and absent shards are left out, and nothing else is; on any number of ranks, across a resume.
#[tokio::test]
async fn fault_01_skipped_shards_are_left_out_counted_and_written_to_the_state() {
    let store = Store::memory();
    publish_train(&store, TWELVE).await;
    let config = skipping(32);
    let whole = open(&store, &config).await;
    assert_eq!(whole.start_state().skipped, None);
    cut(&store, 2).await;
    let longer = [store.get(&path(7)).await.unwrap(), "x".into()].concat();
    store.put(&path(7), longer.into()).await.unwrap();
    store.delete(&path(11)).await.unwrap();

    let loader = open(&store, &config).await;
    let metrics = loader.metrics();
    assert_eq!((metrics.skipped_shards, metrics.skipped_samples), (3, 300));
    assert_eq!(loader.skipped_shards(), [path(2), path(7), path(11)]);
    assert_eq!(loader.samples(), 900);
    let start = loader.start_state();
    let skipped = start.skipped.unwrap();
    assert_eq!((skipped.shards, skipped.rows), (3, 300));
    let json = encode(&start);
    assert!(json.len() < 4096);
    assert_eq!(decode::<LoaderState>("state", &json).unwrap(), start);

    let (alone, end) = run(&store, &config, 1, &start, usize::MAX).await;
    let mut all = alone.concat();
    all.sort_unstable();
    let lost = |sample: &u64| [2, 7, 11].contains(&(sample / 100));
    assert!(all.into_iter().eq((0..1200).filter(|sample| !lost(sample))));
    let (mut joined, mut state) = (Vec::new(), start);
    for world in [3, 2, 5, 1, 7] {
        let (some, after) = run(&store, &config, world, &state, 6).await;
        joined.extend(some);
        state = after;
    }
    assert_eq!(joined, alone);
    assert_eq!(state, end);
}

#[tokio::test]
async fn fault_01_a_run_goes_on_only_without_the_same_shards() {
    let store = Store::memory();
    publish_train(&store, TWELVE).await;
    let second = store.get(&path(1)).await.unwrap();
    cut(&store, 1).await;
    let state = open(&store, &skipping(32)).await.start_state();
    let refuse = |loader: &Loader, here: &str| {
        let error = loader.resume(state.clone()).unwrap_err().to_string();
        let there = format!(
            "`skipped` is `{}` in the state and `{here}",
            state.skipped.unwrap()
        );
        assert!(error.contains(&there), "{error}");
        assert!(there.contains("`1 shards with 100 rows ("));
    };
    // As many others.
    store.put(&path(1), second.clone()).await.unwrap();
    cut(&store, 4).await;
    refuse(
        &open(&store, &skipping(32)).await,
        "1 shards with 100 rows (",
    );
    // One more.
    cut(&store, 1).await;
    refuse(
        &open(&store, &skipping(32)).await,
        "2 shards with 200 rows (",
    );
    assert!(matches!(
        refused(&store, &config(32)).await,
        Error::ShardTruncated { .. }
    ));
}

#[tokio::test]
async fn fault_01_a_split_without_a_whole_shard_is_named() {
    let store = Store::memory();
    publish_train(&store, &[&[4], &[5]]).await;
    cut(&store, 0).await;
    store.delete(&path(1)).await.unwrap();
    let error = refused(&store, &skipping(3)).await.to_string();
    assert!(
        error.contains("none of the `2` shards of split `train` that have rows is complete"),
        "{error}"
    );
}

#[tokio::test]
async fn fault_36_shards_in_a_table_give_the_order_that_listed_ones_give() {
    let listed = Store::memory();
    publish_train(&listed, SHARDS).await;
    let expected = open(&listed, &config(16)).await;
    let expected = collect(expected.epoch(expected.start_state()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let local = Store::open(folder.path().to_str().unwrap(), &StoreOptions::default()).unwrap();
    for store in [Store::memory(), local] {
        let manifest = publish_table(&store, SHARDS).await;
        let json = store.get("manifest-000001.json").await.unwrap();
        let json = String::from_utf8(json.to_vec()).unwrap();
        assert!(!json.contains(SECOND), "{json}");
        let loader = open(&store, &config(16)).await;
        assert_eq!(loader.fingerprint(), manifest.fingerprint);
        let samples = collect(loader.epoch(loader.start_state()).unwrap());
        assert_eq!(samples, expected);
        assert_once(&samples);
    }
}

#[tokio::test]
async fn fault_36_a_table_that_is_damaged_cut_or_absent_is_refused() {
    let store = Store::memory();
    let manifest = publish_table(&store, SHARDS).await;
    let table = manifest.splits[0].table.clone().unwrap();
    let whole = store.get(&table.path).await.unwrap();
    let part = &table.blocks[0];
    for at in (part.offset..part.offset + part.bytes()).step_by(97) {
        let mut bytes = whole.to_vec();
        bytes[usize::try_from(at).unwrap()] ^= 8;
        store.put(&table.path, bytes.into()).await.unwrap();
        let error = refused(&store, &config(16)).await.to_string();
        assert!(error.contains("with checksum `"), "{error}");
    }
    store.put(&table.path, whole.slice(..800)).await.unwrap();
    let error = refused(&store, &config(16)).await;
    assert!(matches!(error, Error::Storage { .. }), "{error}");
    store.delete(&table.path).await.unwrap();
    let error = refused(&store, &config(16)).await;
    assert!(matches!(error, Error::Storage { source, .. } if source.is_not_found()));
}

/// A change of the table changes the manifest, which holds its hash.
#[tokio::test]
async fn fault_36_the_fingerprint_covers_the_table() {
    let store = Store::memory();
    let before = publish_table(&store, SHARDS).await;
    let mut manifest = before.clone();
    manifest.splits[0].shards[0].blocks[0].crc32c ^= 1;
    assert_eq!(manifest.compute_fingerprint(), before.fingerprint);
    manifest.add_tables(0).unwrap();
    assert_ne!(manifest.compute_fingerprint(), before.fingerprint);
    assert_eq!(before.split(Split::Train).unwrap().shard_count(), 3);
}

/// Of a table nothing is looked up, unless shards are to be skipped.
#[tokio::test]
async fn fault_01_a_shard_of_a_table_that_is_cut_is_named_when_it_is_read_or_skipped() {
    let store = Store::memory();
    publish_table(&store, TWELVE).await;
    cut(&store, 5).await;
    let whole = store.get(&path(6)).await.unwrap();
    store.put(&path(6), whole.slice(..2000)).await.unwrap();
    let loader = open(&store, &config(16)).await;
    let error = crate::failure(loader.epoch(loader.start_state()).unwrap());
    assert!(
        matches!(error, Error::ShardTruncated { found: 2000, .. }),
        "{error}"
    );
    let loader = open(&store, &skipping(16)).await;
    assert_eq!(loader.metrics().skipped_shards, 2);
    let all = collect(loader.epoch(loader.start_state()).unwrap()).concat();
    assert_eq!(all.len(), 1000);
}

/// Shards of a dataset begin alike: one head is read for all, however many there are.
#[tokio::test]
async fn fault_36_the_head_of_one_shard_serves_all_that_begin_alike() {
    let store = Store::memory();
    publish_train(&store, TWELVE).await;
    let hole = Rule {
        operation: Operation::Read,
        path_contains: "00011.arrow".into(),
        skip: 3,
        times: u64::MAX,
        effect: Effect::FailBefore,
    };
    // Of the last shard its three blocks are read, and nothing else.
    let loader = open(&store.with_faults(Faults::new(vec![hole])), &config(16)).await;
    let sequential = collect(loader.sequential().unwrap());
    assert_eq!(sequential.concat().len(), 1200);
    // Another's is read when the first one's cannot be.
    let loader = open(
        &store,
        &LoaderConfig {
            rank: Rank::new(1),
            world_size: 2,
            ..config(1200)
        },
    )
    .await;
    store.delete(&path(0)).await.unwrap();
    let mut batches = loader.sequential().unwrap();
    assert_eq!(batches.next().unwrap().unwrap().rows(), 600);
}
