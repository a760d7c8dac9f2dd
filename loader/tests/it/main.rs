//! Whole passes through the loader's public interface.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of a test's own setup is a failed test"
)]

mod balanced;
mod classes;
mod elastic;
mod faults;
mod formats;
mod images;
mod kinds;
mod manifests;
mod mixing;
mod mixtures;
#[cfg(feature = "cuda")]
mod mock_driver;
mod multi;
mod page_locking;
mod passes;
mod soak;
mod states;
mod threads;
mod waiting;

use std::sync::Arc;

use feedline_loader::{Batch, Error, Loader, LoaderConfig, SplitChoice, Target};
use feedline_schemas::ids::{Rank, Seed};
use feedline_storage::{Store, clock::SystemClock};
use feedline_testkit::{
    foreign_formats as foreign, jpeg, numbered_dataset as dataset, object_server as server,
};

/// 31 blocks of 40 samples or fewer in three shards, 1,221 samples.
const SHARDS: &[&[u32]] = &[&[40; 16], &[40; 10], &[40, 40, 40, 40, 21]];
const SAMPLES: u64 = 1221;

/// Settings that make a small dataset have several windows in several domains.
fn config(global_batch: u32) -> LoaderConfig {
    LoaderConfig {
        domains: 4,
        window_blocks: 2,
        ..LoaderConfig::new(SplitChoice::Unnamed, Seed::new(7), global_batch)
    }
}

fn of_rank(config: &LoaderConfig, rank: u32, world_size: u32) -> LoaderConfig {
    LoaderConfig {
        rank: Rank::new(rank),
        world_size,
        ..config.clone()
    }
}

async fn open(store: &Store, config: &LoaderConfig) -> Loader {
    Loader::open(store, config, Arc::new(SystemClock))
        .await
        .unwrap()
}

async fn refused(store: &Store, config: &LoaderConfig) -> Error {
    Loader::open(store, config, Arc::new(SystemClock))
        .await
        .unwrap_err()
}

/// The samples of a batch, after checking that every column agrees.
fn samples(batch: &Batch) -> Vec<u64> {
    let origins = batch.origins().to_vec();
    assert_eq!(batch.rows(), origins.len());
    assert_eq!(batch.keys(), origins.iter().map(|s| !s).collect::<Vec<_>>());
    for (row, sample) in batch.x().chunks(batch.features()).zip(&origins) {
        assert!(
            row[0].to_bits() == (*sample as f32).to_bits(),
            "row {row:?} of sample {sample}"
        );
        assert!(
            row.iter()
                .enumerate()
                .skip(1)
                .all(|(i, v)| v.to_bits() == (i as f32).to_bits())
        );
    }
    match batch.y() {
        Target::None => {}
        Target::Regression(y) => {
            assert_eq!(y, origins.iter().map(|s| *s as f32).collect::<Vec<_>>())
        }
        Target::Regressions { y, targets } => {
            for (row, sample) in y.chunks_exact(targets).zip(origins.iter().copied()) {
                let first = sample as f32;
                let expected = (0..targets).map(|target| first + 0.5 * target as f32);
                assert!(row.iter().copied().eq(expected), "{row:?}");
            }
        }
        Target::Classification(y) => {
            assert_eq!(
                y,
                origins
                    .iter()
                    .map(|s| i32::try_from(s % 5).unwrap())
                    .collect::<Vec<_>>()
            );
        }
    }
    origins
}

/// All samples of a pass, batch by batch.
fn collect(batches: impl Iterator<Item = Result<Batch, Error>>) -> Vec<Vec<u64>> {
    batches.map(|batch| samples(&batch.unwrap())).collect()
}

/// The error a pass ends with.
fn failure(mut batches: impl Iterator<Item = Result<Batch, Error>>) -> Error {
    let error = batches
        .find_map(Result::err)
        .expect("the pass ends with an error");
    assert!(batches.next().is_none(), "an error is given once");
    error
}
