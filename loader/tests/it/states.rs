//! States that fit a loader, and those that do not.

use std::sync::Arc;

use feedline_loader::{ColumnMap, Error, InputConfig, Loader, LoaderConfig, LoaderState};
use feedline_schemas::{
    decode, encode,
    manifest::{Split, TargetKind},
};
use feedline_storage::{Store, clock::SystemClock};

use crate::{
    SHARDS, collect, config,
    dataset::publish_train,
    elastic::{assert_once, run},
    of_rank, open, refused, samples,
};

async fn published() -> Store {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    store
}

/// Differences of `state` from what the shuffled passes of `loader` have.
fn differences(loader: &Loader, state: LoaderState) -> String {
    let error = loader.resume(state).unwrap_err();
    assert!(matches!(error, Error::StateMismatch { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_state_of_another_split_order_format_or_version_is_refused_with_both_values() {
    let loader = open(&published().await, &config(64)).await;
    let start = loader.start_state();
    loader.resume(start.clone()).unwrap();
    let changed = |change: fn(&mut LoaderState)| {
        let mut state = start.clone();
        change(&mut state);
        differences(&loader, state)
    };
    for (error, expected) in [
        (
            changed(|s| s.split = Split::Test),
            "`split` is `test` in the state and `train` here",
        ),
        (
            changed(|s| s.shuffle = false),
            "`shuffle` is `false` in the state and `true` here",
        ),
        (
            changed(|s| s.format = "x".into()),
            "`format` is `x` in the state and `feedline.loader-state` here",
        ),
        (
            changed(|s| s.version = 1_000_000_000),
            "`version` is `1000000000` in the state and `1 to 3` here",
        ),
    ] {
        assert!(error.contains(expected), "{error}");
    }
    let error = loader.check_sequential(&start).unwrap_err().to_string();
    let expected = "`shuffle` is `true` in the state and `false` here";
    assert!(error.contains(expected), "{error}");
}

/// The sample of a version, as a build of that version wrote it.
fn sample(version: u32) -> LoaderState {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/samples");
    let path = format!("{folder}/loader-state-{version}.json");
    decode(&path, &std::fs::read(&path).unwrap()).unwrap()
}

#[tokio::test]
async fn states_of_every_version_are_resumed_from_or_refused_by_name() {
    let loader = open(&published().await, &config(64)).await;
    let of_this_dataset = |state: LoaderState| LoaderState {
        format: state.format,
        version: state.version,
        order_version: state.order_version,
        split: state.split,
        shuffle: state.shuffle,
        ..loader.start_state()
    };
    let first = differences(&loader, of_this_dataset(sample(1)));
    assert!(
        first.contains("`order_version` is `1` in the state and `2` here"),
        "{first}"
    );
    // One of version 2 has no split, and counts as one of `train`.
    loader.resume(of_this_dataset(sample(2))).unwrap();
    let third = differences(&loader, of_this_dataset(sample(3)));
    assert!(
        third.contains("`split` is `test`") && third.contains("`shuffle` is `false`"),
        "{third}"
    );
    // A training writes what builds of version 2 read.
    let written = String::from_utf8(encode(&loader.start_state())).unwrap();
    assert!(
        written.contains("\"version\": 2") && !written.contains("split"),
        "{written}"
    );
    let written = String::from_utf8(encode(&loader.sequential_start())).unwrap();
    assert!(
        written.contains("\"version\": 3") && written.contains("\"shuffle\": false"),
        "{written}"
    );
}

#[tokio::test]
async fn a_sequential_pass_resumes_on_any_number_of_ranks() {
    let store = published().await;
    let config = config(64);
    let loader = open(&store, &config).await;
    let whole = collect(loader.sequential().unwrap());
    assert_once(&whole);
    let from = |state: LoaderState, most: usize| {
        let mut after = state.clone();
        let batches = loader.sequential_from(state).unwrap();
        let seen: Vec<Vec<u64>> = batches
            .take(most)
            .map(|batch| {
                let batch = batch.unwrap();
                after = batch.state().clone();
                samples(&batch)
            })
            .collect();
        (seen, after)
    };
    let (first, after) = from(loader.sequential_start(), 3);
    assert_eq!((after.batch.get(), after.shuffle), (3, false));
    let (rest, end) = from(after.clone(), usize::MAX);
    assert_eq!([first, rest].concat(), whole);
    assert_eq!(end.batch.get(), whole.len() as u64);
    assert_eq!(from(end, usize::MAX).0, Vec::<Vec<u64>>::new());
    let mut joined = vec![Vec::new(); whole.len() - 3];
    for rank in 0..3 {
        let loader = open(&store, &of_rank(&config, rank, 3)).await;
        let batches = loader.sequential_from(after.clone()).unwrap();
        for (joined, batch) in joined.iter_mut().zip(batches) {
            joined.extend(samples(&batch.unwrap()));
        }
    }
    assert_eq!(joined, whole[3..]);
    // Its states do not move the position of the shuffled passes, nor fit them.
    assert_eq!(loader.state(), loader.start_state());
    let error = loader.epoch(after).unwrap_err().to_string();
    assert!(error.contains("`shuffle` is `false`"), "{error}");
    let (shuffled, _) = run(&store, &config, 1, &loader.start_state(), 2).await;
    assert_eq!(shuffled.concat().len(), 128);
}

#[tokio::test]
async fn columns_and_a_target_are_refused_for_shards_of_feedline() {
    let store = published().await;
    let with = |input: InputConfig| LoaderConfig {
        input,
        ..config(64)
    };
    let columns = ColumnMap {
        x: vec!["a".into()],
        ..ColumnMap::default()
    };
    for (key, input) in [
        (
            "columns",
            InputConfig {
                columns,
                ..InputConfig::new()
            },
        ),
        (
            "target",
            InputConfig {
                target: Some(TargetKind::None),
                ..InputConfig::new()
            },
        ),
    ] {
        let error = refused(&store, &with(input)).await.to_string();
        let expected =
            format!("cannot use loader setting `{key}`: the dataset has shards of feedline");
        assert!(error.contains(&expected), "{error}");
    }
    Loader::open(&store, &with(InputConfig::new()), Arc::new(SystemClock))
        .await
        .unwrap();
}
