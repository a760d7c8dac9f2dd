//! Measures an epoch over a generated local dataset, beside the floor that memory sets: the same number of rows copied
//! in random order from one large array by one thread.
//!
//! `cargo bench -p feedline-loader -- [MEBIBYTES [FEATURES [GLOBAL_BATCH]]]`, by default 256, 32 and 1024.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::print_stdout, reason = "results are for a person")]

#[expect(dead_code, reason = "tests use more of it")]
#[path = "../tests/it/dataset.rs"]
mod dataset;

use std::{sync::Arc, time::Duration};

use feedline_loader::{Loader, LoaderConfig};
use feedline_schemas::{
    ids::Seed,
    manifest::{Split, TargetKind},
};
use feedline_storage::{
    Store, StoreOptions,
    clock::{Clock, SystemClock},
};

const BLOCKS_PER_SHARD: usize = 64;
const BLOCK_BYTES: u32 = 1 << 20;
const EPOCHS: u32 = 3;

fn main() {
    // Cargo passes `--bench`; a test run passes nothing and gets a dataset of one shard.
    let numbers: Vec<u32> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let is_bench = std::env::args().any(|a| a == "--bench");
    let mebibytes = numbers
        .first()
        .copied()
        .unwrap_or(if is_bench { 256 } else { 4 });
    let features = numbers.get(1).copied().unwrap_or(32);
    let global_batch = numbers.get(2).copied().unwrap_or(1024);

    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap(), &StoreOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(write(&store, mebibytes, features));
    let config = LoaderConfig::new(Split::Train, Seed::new(1), global_batch);
    let loader = runtime
        .block_on(Loader::open(&store, &config, Arc::new(SystemClock)))
        .unwrap();

    let row_bytes = u64::from(features) * 4 + 4 + 16;
    for epoch in 0..EPOCHS {
        let mut state = loader.start_state();
        state.epoch = feedline_schemas::ids::Epoch::new(epoch.into());
        let (time, sum) = timed(|| {
            loader
                .epoch(state)
                .unwrap()
                .map(|batch| batch.unwrap().keys().first().copied().unwrap_or(0) >> 32)
                .sum::<u64>()
        });
        report(
            &format!("epoch {epoch}, check {sum:x}"),
            loader.samples(),
            row_bytes,
            time,
        );
    }
    println!("{:#?}", loader.metrics());
    floor(loader.samples(), features);
}

async fn write(store: &Store, mebibytes: u32, features: u32) {
    let rows = BLOCK_BYTES / (features * 4 + 4 + 16);
    let blocks = vec![rows; mebibytes as usize];
    let shards: Vec<&[u32]> = blocks.chunks(BLOCKS_PER_SHARD).collect();
    dataset::publish(
        store,
        features,
        TargetKind::Regression,
        &[(Split::Train, &shards)],
    )
    .await;
}

/// Copies as many rows, in an order that no prefetcher can guess, into a batch of 1,024.
fn floor(samples: u64, features: u32) {
    let (samples, width) = (usize::try_from(samples).unwrap(), features as usize);
    let from = vec![1.0f32; samples * width];
    let mut to = vec![0.0f32; 1024 * width];
    let order: Vec<u32> = (0..samples as u64)
        .map(|i| {
            let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            u32::try_from(((mixed >> 32) * samples as u64) >> 32).unwrap()
        })
        .collect();
    let (time, ()) = timed(|| {
        for rows in order.chunks(1024) {
            for (to, row) in to.chunks_exact_mut(width).zip(rows) {
                let start = *row as usize * width;
                to.copy_from_slice(&from[start..start + width]);
            }
            std::hint::black_box(&to);
        }
    });
    report(
        "floor: gather of x alone",
        samples as u64,
        u64::from(features) * 4,
        time,
    );
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = SystemClock.monotonic();
    let result = work();
    (SystemClock.monotonic() - start, result)
}

fn report(what: &str, samples: u64, row_bytes: u64, time: Duration) {
    let rate = samples as f64 / time.as_secs_f64();
    println!(
        "{what}: {samples} samples in {time:.2?}, {:.2} M samples/s, {:.2} GB/s",
        rate / 1e6,
        rate * row_bytes as f64 / 1e9
    );
}
