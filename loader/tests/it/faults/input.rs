//! Faults of what is read: values that no model should see, splits that are too small, shards that are cut.

use std::{collections::BTreeSet, sync::Arc};

use arrow::array::{Float32Array, Int32Array};
use feedline_loader::{BadValues, Error, InputConfig, Loader, LoaderConfig};
use feedline_schemas::manifest::{Split, TargetKind};
use feedline_storage::{Store, clock::SystemClock};

use crate::{
    collect, config,
    dataset::{FEATURES, publish},
    failure,
    foreign::{column, parquet},
    open, refused,
};

/// 1,000 rows in 10 blocks; row 250 has a NaN, row 777 class 9 of 5.
pub(crate) async fn with_bad_rows() -> Store {
    let store = Store::memory();
    let value = |i: u16| if i == 250 { f32::NAN } else { f32::from(i) };
    let class = |i: u16| if i == 777 { 9 } else { i32::from(i % 5) };
    let file = parquet(
        vec![
            (
                "x",
                column(Float32Array::from_iter_values((0..1_000).map(value))),
            ),
            (
                "y",
                column(Int32Array::from_iter_values((0..1_000).map(class))),
            ),
        ],
        100,
    );
    store.put("x.parquet", file).await.unwrap();
    store
}

pub(crate) fn with(bad_values: BadValues) -> LoaderConfig {
    LoaderConfig {
        input: InputConfig {
            bad_values,
            target: Some(TargetKind::Classification { classes: 5 }),
            ..InputConfig::default()
        },
        max_bad_fraction: 0.01,
        ..config(64)
    }
}

#[tokio::test]
async fn fault_26_bad_values_fail_with_their_place() {
    let store = with_bad_rows().await;
    let loader = open(&store, &with(BadValues::Fail)).await;
    let error = failure(loader.epoch(loader.start_state()).unwrap());
    let is_expected = |row, text| matches!(&error, Error::BadValue { row: found, reason, .. } if *found == row && reason.contains(text));
    assert!(
        is_expected(50, "`NaN` in element `0` of `x`") || is_expected(77, "class `9`"),
        "{error}"
    );
}

#[tokio::test]
async fn fault_26_bad_values_are_replaced_the_same_way_on_any_number_of_ranks() {
    let store = with_bad_rows().await;
    let rows = async |rank, world_size| -> Vec<Vec<u64>> {
        let config = LoaderConfig {
            rank: feedline_schemas::ids::Rank::new(rank),
            world_size,
            ..with(BadValues::Skip)
        };
        let loader = Loader::open(&store, &config, Arc::new(SystemClock))
            .await
            .unwrap();
        let batches = loader.epoch(loader.start_state()).unwrap();
        let origins = batches
            .map(|batch| batch.unwrap().origins().to_vec())
            .collect();
        if world_size == 1 {
            let quarantined: Vec<_> = loader
                .quarantine()
                .iter()
                .map(|q| (q.block, q.row))
                .collect();
            assert_eq!(quarantined, [(2, Some(50)), (7, Some(77))]);
        }
        origins
    };
    let alone = rows(0, 1).await;
    let all: BTreeSet<u64> = alone.concat().into_iter().collect();
    let expected: BTreeSet<u64> = (0..1_000).filter(|i| *i != 250 && *i != 777).collect();
    assert_eq!((alone.concat().len(), all), (1_000, expected));
    let ranks = [rows(0, 3).await, rows(1, 3).await, rows(2, 3).await];
    for (batch, whole) in alone.iter().enumerate() {
        let joined: Vec<u64> = ranks.iter().flat_map(|rank| rank[batch].clone()).collect();
        assert_eq!(joined, *whole, "batch {batch}");
    }
}

#[tokio::test]
async fn fault_26_too_many_bad_values_end_the_pass() {
    let store = with_bad_rows().await;
    let config = LoaderConfig {
        max_bad_fraction: 0.001,
        ..with(BadValues::Skip)
    };
    let loader = open(&store, &config).await;
    let error = failure(loader.epoch(loader.start_state()).unwrap());
    assert!(matches!(error, Error::TooManyBad { bad: 2, .. }), "{error}");
}

#[tokio::test]
async fn fault_27_a_split_smaller_than_a_batch_and_than_the_domains_is_read_whole() {
    let store = Store::memory();
    let shape: &[&[u32]] = &[&[], &[2, 0, 1], &[]];
    publish(&store, FEATURES, TargetKind::None, &[(Split::Train, shape)]).await;
    let config = LoaderConfig {
        domains: 64,
        ..config(100)
    };
    let loader = open(&store, &config).await;
    assert_eq!(loader.batches_per_epoch(), 1);
    let mut samples = collect(loader.epoch(loader.start_state()).unwrap()).concat();
    samples.sort_unstable();
    assert_eq!(samples, [0, 1, 2]);
    assert!(loader.start_state().domains <= 64);
}

#[tokio::test]
async fn fault_27_no_samples_are_a_clear_error_in_every_format() {
    let store = Store::memory();
    publish(
        &store,
        FEATURES,
        TargetKind::None,
        &[(Split::Train, &[&[0]])],
    )
    .await;
    assert!(matches!(
        refused(&store, &config(8)).await,
        Error::EmptySplit {
            split: Split::Train,
            ..
        }
    ));
    let tables = Store::memory();
    let empty = parquet(
        vec![("x", column(Float32Array::from(Vec::<f32>::new())))],
        10,
    );
    tables.put("x.parquet", empty).await.unwrap();
    let error = refused(&tables, &config(8)).await.to_string();
    assert!(error.contains("none of its files has a row"), "{error}");
}

#[tokio::test]
async fn fault_01_a_table_cut_short_is_named_when_it_is_opened() {
    let store = with_bad_rows().await;
    let whole = store.get("x.parquet").await.unwrap();
    for length in [0, 7, 100, whole.len() - 1] {
        store.put("x.parquet", whole.slice(..length)).await.unwrap();
        let error = refused(&store, &config(8)).await;
        assert!(
            matches!(&error, Error::File { url, .. } if url.ends_with("x.parquet")),
            "{length}: {error}"
        );
    }
}
