//! The global sequence does not depend on the number of ranks or on interruptions.

use std::sync::Arc;

use feedline_loader::{
    Batch, Loader, LoaderConfig, LoaderState, MixtureConfig, SourceWeight, TokensConfig,
};
use feedline_schemas::manifest::{Layout, Split, TokenType};
use feedline_storage::{Store, clock::SystemClock};

use crate::{
    SAMPLES, SHARDS, config,
    dataset::{Shape, document_length, publish_layout, publish_train},
    of_rank, open, samples,
};

/// Global batches from `state` on, at most `most`, as `world` ranks see them, joined in rank order; what `read` finds in each
/// batch of a rank; and the state after them.
pub(crate) async fn run_mixture<T>(
    stores: &[Store],
    config: &LoaderConfig,
    world: u32,
    state: &LoaderState,
    most: usize,
    read: impl Fn(&Batch) -> Vec<T>,
) -> (Vec<Vec<T>>, LoaderState) {
    let mut joined: Vec<Vec<T>> = Vec::new();
    let mut rows: Vec<usize> = Vec::new();
    let mut after = state.clone();
    for rank in 0..world {
        let config = of_rank(config, rank, world);
        let loader = Loader::open_mixture(stores, &config, Arc::new(SystemClock));
        let batches = loader.await.unwrap().epoch(state.clone()).unwrap();
        let mut last = state.clone();
        for (number, batch) in batches.take(most).enumerate() {
            let batch = batch.unwrap();
            if number == joined.len() {
                joined.push(Vec::new());
                rows.push(0);
            }
            let place = batch.place();
            assert_eq!(place.first_row, rows[number]);
            rows[number] += batch.rows();
            assert!(rank + 1 < world || place.global_rows == rows[number]);
            joined[number].extend(read(&batch));
            last = batch.state().clone();
        }
        assert!(rank == 0 || last == after, "ranks carry different states");
        after = last;
    }
    (joined, after)
}

/// [`run_mixture`] of the samples of one dataset.
pub(crate) async fn run(
    store: &Store,
    config: &LoaderConfig,
    world: u32,
    state: &LoaderState,
    most: usize,
) -> (Vec<Vec<u64>>, LoaderState) {
    let stores = std::slice::from_ref(store);
    run_mixture(stores, config, world, state, most, samples).await
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
            batches.push(samples(&batch));
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

/// Datasets of 500, 340 and 160 documents; that of number `i` counts up from `i` in each.
async fn documents() -> Vec<Store> {
    let shapes: [Shape<'_>; 3] = [&[&[40; 9], &[20; 7]], &[&[34; 10]], &[&[20; 3], &[50, 50]]];
    let layout = Layout::Tokens {
        id: TokenType::U16,
        vocabulary: 1000,
    };
    let mut stores = Vec::new();
    for shape in shapes {
        let store = Store::memory();
        publish_layout(&store, layout.clone(), &[(Split::Train, shape)]).await;
        stores.push(store);
    }
    stores
}

/// Ids of packed rows, and the documents that they are of.
fn ids(batch: &Batch) -> Vec<[u32; 2]> {
    let ids = batch.tokens().iter().zip(batch.segments());
    let pairs = ids.zip(batch.positions()).map(|((id, segment), position)| {
        // What no document fills.
        let document = if *segment == 0 {
            PADDING
        } else {
            id - position
        };
        [*id, document]
    });
    pairs.collect()
}

const PADDING: u32 = 77_777;

#[tokio::test]
async fn a_packed_mixture_goes_on_after_kills_on_other_ranks_as_if_there_were_none() {
    let stores = documents().await;
    let mut expected: Vec<[u32; 2]> = [500, 340, 160]
        .into_iter()
        .flat_map(|documents| (0..documents).flat_map(tokens_of))
        .collect();
    expected.sort_unstable();
    let mut random = 99_u32;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) as usize % below
    };
    for global_batch in [96, 256, 1000] {
        let config = LoaderConfig {
            tokens: Some(TokensConfig {
                padding_id: PADDING,
                ..TokensConfig::new(9)
            }),
            mixture: Some(MixtureConfig {
                sources: vec![SourceWeight::default(); 3],
                ..MixtureConfig::default()
            }),
            ..config(global_batch)
        };
        let loader = Loader::open_mixture(&stores, &config, Arc::new(SystemClock));
        let loader = loader.await.unwrap();
        let mut state = loader.start_state();
        for epoch in 0..2 {
            let (alone, end) = run_mixture(&stores, &config, 1, &state, usize::MAX, ids).await;
            let mut all = alone.concat();
            all.retain(|[_, document]| *document != PADDING);
            all.sort_unstable();
            assert_eq!(all, expected, "epoch {epoch} has every token once");
            for first in [1, 3, 7, 24, 48] {
                let (mut joined, mut at, mut world) = (Vec::new(), state.clone(), first);
                while joined.len() < alone.len() {
                    let most = 1 + draw(alone.len());
                    let (some, after) = run_mixture(&stores, &config, world, &at, most, ids).await;
                    joined.extend(some);
                    (at, world) = (after, [1, 3, 7, 24, 48][draw(5)]);
                }
                assert!(
                    joined == alone,
                    "batch {global_batch}, {first} ranks at first"
                );
                assert_eq!(at, end);
            }
            state = loader.next_epoch(&end);
        }
    }
}

/// The ids of a document, and its number.
fn tokens_of(document: u32) -> impl Iterator<Item = [u32; 2]> {
    let length = document_length(document.into());
    (document..document + length).map(move |id| [id, document])
}
