//! The global sequence does not depend on the number of ranks or on interruptions.

use feedline_loader::{LoaderConfig, LoaderState};
use feedline_storage::Store;

use crate::{SAMPLES, SHARDS, collect, config, dataset::publish_train, of_rank, open};

/// Global batches `from..to` as `world` ranks see them, joined in rank order, and the state after them.
pub(crate) async fn run(
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

pub(crate) fn assert_once(sequence: &[Vec<u64>]) {
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
    for global_batch in [96, 256, 1000] {
        let config = config(global_batch);
        let start = open(&store, &config).await.start_state();
        let (alone, _) = run(&store, &config, 1, &start, usize::MAX).await;
        assert_once(&alone);
        for world in 2..=48 {
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
