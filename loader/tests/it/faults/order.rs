//! States that do not fit, ranks that come and go, and data that is hardly there.

use feedline_loader::{Error, LastBatch, LoaderConfig, LoaderState};
use feedline_schemas::{
    decode, encode,
    ids::Seed,
    manifest::{Split, TargetKind},
};
use feedline_storage::Store;

use crate::{
    SAMPLES, SHARDS, collect, config,
    dataset::{FEATURES, publish, publish_train},
    elastic::{assert_once, run},
    open, refused,
};

#[tokio::test]
async fn fault_13_a_state_of_another_seed_or_order_is_refused_with_every_field() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let ours = config(32);
    let loader = open(&store, &ours).await;
    let check = async |change: fn(&mut LoaderConfig), message: &str| {
        let mut other = ours.clone();
        change(&mut other);
        let state = open(&store, &other).await.start_state();
        let error = loader.epoch(state).unwrap_err().to_string();
        let expected = format!(
            "cannot resume from this loader state: {message}; resume with the dataset and settings it was saved with, \
             or start a new run"
        );
        assert_eq!(error, expected);
    };
    check(
        |c| c.seed = Seed::new(8),
        "`seed` is `8` in the state and `7` here",
    )
    .await;
    check(
        |c| c.domains = 8,
        "`domains` is `8` in the state and `4` here",
    )
    .await;
    check(
        |c| c.window_blocks = 3,
        "`window_blocks` is `3` in the state and `2` here",
    )
    .await;
    check(
        |c| (c.global_batch, c.domains) = (64, 4),
        "`global_batch` is `64` in the state and `32` here",
    )
    .await;
    check(
        |c| (c.window_blocks, c.domains) = (1, 2),
        "`domains` is `2` in the state and `4` here, `window_blocks` is `1` in the state and `2` here",
    )
    .await;
    check(
        |c| (c.last_batch, c.extent_bytes) = (LastBatch::Drop, 1 << 20),
        "`domains` is `3` in the state and `4` here, `window_blocks` is `3` in the state and `2` here, `extent_bytes` is `1048576` \
         in the state and `0` here, `last_batch` is `drop` in the state and `keep` here",
    )
    .await;
    let mut state = loader.start_state();
    state.batch = feedline_schemas::ids::Step::new(99);
    let refused = |state, differences: &str| {
        assert_eq!(
            loader.epoch(state).unwrap_err().to_string(),
            format!(
                "cannot resume from this loader state: {differences}; resume with the dataset and settings it was \
                 saved with, or start a new run"
            )
        );
    };
    refused(
        state.clone(),
        "`batch` is `99` in the state and `at most 39` here",
    );
    state.order_version = 1;
    refused(state, "`order_version` is `1` in the state and `2` here");
}

#[tokio::test]
async fn fault_13_a_state_of_another_dataset_is_refused() {
    let (one, other) = (Store::memory(), Store::memory());
    let manifest = publish_train(&one, SHARDS).await;
    let fingerprint = publish_train(&other, &SHARDS[..2]).await.fingerprint;
    let state = open(&other, &config(32)).await.start_state();
    let error = open(&one, &config(32))
        .await
        .epoch(state)
        .unwrap_err()
        .to_string();
    assert!(error.contains(&format!(
        "`fingerprint` is `{fingerprint}` in the state and `{}` here",
        manifest.fingerprint
    )));
}

#[tokio::test]
async fn fault_13_a_state_of_an_older_order_is_read_and_refused() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(32)).await;
    let mut json: serde_json::Value =
        serde_json::from_slice(&encode(&loader.start_state())).unwrap();
    let fields = json.as_object_mut().unwrap();
    for added in ["extent_bytes", "last_batch", "unit"] {
        assert!(fields.remove(added).is_some());
    }
    fields["version"] = 1.into();
    fields["order_version"] = 1.into();
    let state: LoaderState = decode("state", json.to_string().as_bytes()).unwrap();
    let error = loader.epoch(state).unwrap_err().to_string();
    assert!(
        error.contains("`order_version` is `1` in the state and `2` here;"),
        "{error}"
    );
}

#[tokio::test]
async fn fault_14_a_run_goes_on_on_other_numbers_of_ranks_without_loss_or_repeat() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    for last_batch in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
        let config = LoaderConfig {
            last_batch,
            ..config(50)
        };
        let start = open(&store, &config).await.start_state();
        let (alone, end) = run(&store, &config, 1, &start, usize::MAX).await;
        let expected = match last_batch {
            LastBatch::Keep => SAMPLES,
            LastBatch::Drop => 1200,
            LastBatch::Pad => 1250,
        };
        assert_eq!(alone.concat().len() as u64, expected);
        let mut state = start;
        let mut joined = Vec::new();
        for (world, most) in [(24, 7), (7, 1), (48, 5), (1, 3), (13, usize::MAX)] {
            let (some, after) = run(&store, &config, world, &state, most).await;
            joined.extend(some);
            state = after;
        }
        assert_eq!(joined, alone, "{last_batch}");
        assert_eq!(state, end);
    }
}

#[tokio::test]
async fn fault_27_hardly_any_data_is_defined_and_none_is_an_error() {
    for (shape, domains) in [
        (&[&[1][..]][..], 1),
        (&[&[], &[3], &[]], 1),
        (&[&[2, 0, 1], &[0]], 2),
        (&[&[200, 1]], 2),
    ] {
        let store = Store::memory();
        publish_train(&store, shape).await;
        let samples = shape.concat().iter().map(|rows| u64::from(*rows)).sum();
        let defaults = LoaderConfig::new(Split::Train, Seed::new(0), 256);
        let loader = open(&store, &defaults).await;
        assert_eq!(
            loader.start_state().domains,
            domains,
            "it shrinks, on record"
        );
        let mut all = collect(loader.epoch(loader.start_state()).unwrap()).concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..samples));
        let dropping = LoaderConfig {
            last_batch: LastBatch::Drop,
            ..defaults
        };
        let error = refused(&store, &dropping).await.to_string();
        assert_eq!(
            error,
            format!(
                "cannot use loader setting `global_batch`: an epoch has `{samples}` samples, less than one batch of \
                 `256`, and `last_batch` is `drop`; use a smaller batch or keep the last"
            )
        );
    }
    let store = Store::memory();
    publish(
        &store,
        FEATURES,
        TargetKind::Regression,
        &[(Split::Train, &[&[], &[0]])],
    )
    .await;
    let error = refused(&store, &config(8)).await;
    assert!(matches!(error, Error::EmptySplit { .. }), "{error}");
}

#[tokio::test]
async fn fault_27_extents_and_domains_of_any_size_cover_an_epoch_once() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    for extent_bytes in [1, 3_000, 10_000, 1 << 30] {
        let config = LoaderConfig {
            extent_bytes,
            domains: 4096,
            ..config(100)
        };
        let start = open(&store, &config).await.start_state();
        assert_once(&run(&store, &config, 3, &start, usize::MAX).await.0);
    }
}
