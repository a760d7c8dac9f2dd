//! The global sequence does not depend on the number of ranks or on interruptions.

use feedline_loader::{LoaderConfig, LoaderState};
use feedline_storage::Store;

use crate::{SAMPLES, SHARDS, collect, config, dataset::publish_train, of_rank, open};

/// Global batches `from..to` as `world` ranks see them, joined in rank order, and the state after them.
async fn run(
    store: &Store,
    config: &LoaderConfig,
    world: u32,
    state: &LoaderState,
    most: usize,
) -> (Vec<Vec<u64>>, LoaderState) {
    let mut joined: Vec<Vec<u64>> = Vec::new();
    let mut after = state.clone();
    for rank in 0..world {
        let loader = open(store, &of_rank(config, rank, world)).await;
        let mut states = Vec::new();
        let batches = loader
            .epoch(state.clone())
            .unwrap()
            .take(most)
            .inspect(|batch| states.extend(batch.as_ref().map(|batch| batch.state().clone())));
        let batches = collect(batches);
        joined.resize(batches.len(), Vec::new());
        joined
            .iter_mut()
            .zip(batches)
            .for_each(|(all, ours)| all.extend(ours));
        if let Some(last) = states.pop() {
            assert!(rank == 0 || last == after, "ranks carry different states");
            after = last;
        }
    }
    (joined, after)
}

fn assert_once(sequence: &[Vec<u64>]) {
    let mut all = sequence.concat();
    all.sort_unstable();
    assert!(
        all.into_iter().eq(0..SAMPLES),
        "a sample is missing or repeated"
    );
}

#[tokio::test]
async fn any_number_of_ranks_sees_the_same_epoch_once() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    for global_batch in [8, 96, 256, 1000] {
        let config = config(global_batch);
        let start = open(&store, &config).await.start_state();
        let (alone, _) = run(&store, &config, 1, &start, usize::MAX).await;
        assert_once(&alone);
        for world in [2, 3, 5, 7, 8, 12, 48] {
            let (joined, _) = run(&store, &config, world, &start, usize::MAX).await;
            assert_eq!(joined, alone, "batch {global_batch}, world {world}");
        }
    }
}

#[tokio::test]
async fn a_run_interrupted_anywhere_goes_on_with_other_ranks_as_if_it_had_not() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let config = config(32);
    let start = open(&store, &config).await.start_state();
    let (alone, end) = run(&store, &config, 1, &start, usize::MAX).await;
    let mut random = 12_345_u32;
    let mut draw = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % below
    };
    for _ in 0..25 {
        let mut joined = Vec::new();
        let mut state = start.clone();
        while joined.len() < alone.len() {
            let (world, most) = (1 + draw(7), 1 + draw(25) as usize);
            let (some, after) = run(&store, &config, world, &state, most).await;
            assert!(!some.is_empty());
            joined.extend(some);
            state = after;
        }
        assert_eq!(joined, alone);
        assert_eq!(state, end);
    }
}

#[tokio::test]
async fn a_state_survives_json_and_leads_through_the_epochs() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(100)).await;
    let mut state = loader.start_state();
    let mut epochs = Vec::new();
    for epoch in 0..3 {
        assert_eq!((state.epoch.get(), state.batch.get()), (epoch, 0));
        let mut batches = Vec::new();
        for batch in loader.epoch(state.clone()).unwrap() {
            let batch = batch.unwrap();
            batches.push(crate::samples(&batch));
            let json = feedline_schemas::encode(batch.state());
            state = feedline_schemas::decode("state", &json).unwrap();
        }
        assert_once(&batches);
        assert_eq!(
            (state.epoch.get(), state.batch.get()),
            (epoch, loader.batches_per_epoch())
        );
        assert_eq!(
            loader.epoch(state.clone()).unwrap().count(),
            0,
            "the epoch is over"
        );
        state = loader.next_epoch(&state);
        epochs.push(batches);
    }
    assert_ne!(epochs[0], epochs[1]);
    assert_ne!(epochs[1], epochs[2]);
}

#[tokio::test]
async fn a_state_of_another_run_is_refused_with_every_difference() {
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
        |c| c.seed = feedline_schemas::ids::Seed::new(8),
        "`seed` is `8` there and `7` here",
    )
    .await;
    check(|c| c.domains = 8, "`domains` is `8` there and `4` here").await;
    check(
        |c| c.window_blocks = 3,
        "`window_blocks` is `3` there and `2` here",
    )
    .await;
    check(
        |c| (c.global_batch, c.domains) = (64, 4),
        "`global_batch` is `64` there and `32` here",
    )
    .await;
    check(
        |c| (c.window_blocks, c.domains) = (1, 2),
        "`domains` is `2` there and `4` here, `window_blocks` is `1` there and `2` here",
    )
    .await;
    let mut state = loader.start_state();
    state.order_version = 1;
    state.batch = feedline_schemas::ids::Step::new(99);
    assert_eq!(
        loader.epoch(state).unwrap_err().to_string(),
        "cannot resume from this loader state: `order_version` is `1` there and `2` here, `batch` is `99` there and \
         `at most 39` here; resume with the dataset and settings it was saved with, or start a new run"
    );
}

#[tokio::test]
async fn a_state_of_another_dataset_is_refused() {
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
        "`fingerprint` is `{fingerprint}` there and `{}` here",
        manifest.fingerprint
    )));
}
