//! Measures shuffled epochs over a generated local dataset of rows, beside the floors that the machine sets: copying
//! memory, gathering rows in random order from one array, and reading the same blocks with their checksums.
//!
//! `cargo bench -p feedline-loader --bench loader -- [ROWS [FEATURES [GLOBAL_BATCH [EPOCHS [THREADS [SLABS]]]]]]`, by default
//! 1,000,000 rows of 32 numbers in batches of 4,096, 4 epochs, a thread for each processor. The last line is JSON.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::print_stdout, reason = "results are for a person")]
#![expect(
    clippy::cast_precision_loss,
    reason = "rates need no more digits than a float has"
)]

use std::{
    fs::File, hint::black_box, os::unix::fs::FileExt as _, path::Path, sync::Arc, thread,
    time::Duration,
};

use feedline_loader::{Loader, LoaderConfig};
use feedline_schemas::{
    ids::{Epoch, Seed},
    manifest::{Manifest, Split, TargetKind},
};
use feedline_storage::{
    Store, StoreOptions,
    clock::{Clock, SystemClock},
};
use feedline_testkit::{arguments::Arguments, numbered_dataset as dataset};

const SHARDS: usize = 16;
const BLOCK_BYTES: u32 = 1 << 20;

/// A measured case.
struct Case {
    rows: u32,
    features: u32,
    global_batch: u32,
    epochs: u32,
    threads: u32,
    slabs: u32,
}

fn main() {
    let given = Arguments::read();
    let case = Case {
        rows: given.number(0, 1_000_000, 20_000),
        features: given.number(1, 32, 32),
        global_batch: given.number(2, 4096, 4096),
        epochs: given.number(3, 4, 2),
        threads: given.number(4, 0, 0),
        slabs: given.number(5, 8, 8),
    };
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap(), &StoreOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let manifest = runtime.block_on(write(&store, &case));
    let cores = thread::available_parallelism().map_or(1, usize::from);

    let memcpy: Vec<f64> = [1, cores].map(memcpy).into();
    let gather: Vec<f64> = [1, cores].map(|threads| gather(&case, threads)).into();
    let read: Vec<f64> = [1, cores]
        .map(|threads| read(folder.path(), &manifest, threads))
        .into();
    let epochs = runtime.block_on(epochs(&store, &case));
    let best = epochs.iter().skip(1).copied().fold(0.0, f64::max);
    println!(
        "{}",
        serde_json::json!({
            "rows": case.rows, "features": case.features, "global_batch": case.global_batch, "cores": cores,
            "memcpy_gb_per_second": memcpy, "gather_rows_per_second": gather, "read_and_check_gb_per_second": read,
            "epoch_rows_per_second": epochs, "share_of_gather": best / gather[1],
        })
    );
}

async fn write(store: &Store, case: &Case) -> Manifest {
    let block = BLOCK_BYTES / (case.features * 4 + 4 + 16);
    let shard = case.rows.div_ceil(u32::try_from(SHARDS).unwrap());
    let mut shards = Vec::new();
    let mut left = case.rows;
    while left > 0 {
        let mut of_shard = shard.min(left);
        left -= of_shard;
        let mut blocks = Vec::new();
        while of_shard > 0 {
            blocks.push(block.min(of_shard));
            of_shard -= block.min(of_shard);
        }
        shards.push(blocks);
    }
    let shards: Vec<&[u32]> = shards.iter().map(Vec::as_slice).collect();
    let splits = [(Split::Train, &shards[..])];
    dataset::publish(store, case.features, TargetKind::Regression, &splits).await
}

/// Rows per second of every epoch.
async fn epochs(store: &Store, case: &Case) -> Vec<f64> {
    let config = LoaderConfig {
        threads: case.threads,
        slabs: case.slabs,
        ..LoaderConfig::new(Split::Train, Seed::new(1), case.global_batch)
    };
    let clock = Arc::new(SystemClock);
    let (opening, loader) = timed_async(Loader::open(store, &config, clock)).await;
    let loader = loader.unwrap();
    println!("opened in {opening:.2?}");
    let mut rates = Vec::new();
    for epoch in 0..case.epochs {
        let mut state = loader.start_state();
        state.epoch = Epoch::new(epoch.into());
        let before = loader.metrics();
        let start = SystemClock.monotonic();
        let mut first = Duration::ZERO;
        let mut rows = 0;
        let mut sum = 0.0;
        for batch in loader.epoch(state).unwrap() {
            let batch = batch.unwrap();
            if rows == 0 {
                first = SystemClock.monotonic() - start;
            }
            rows += batch.rows() as u64;
            sum += batch.x().iter().step_by(4096).sum::<f32>();
        }
        let time = SystemClock.monotonic() - start;
        let after = loader.metrics();
        let waited = after.consumer_wait_seconds - before.consumer_wait_seconds;
        let rate = rows as f64 / time.as_secs_f64();
        println!(
            "epoch {epoch}: {:.2} M rows/s in {time:.2?}, first batch {first:.2?}, waited {waited:.3} s, decode busy \
             {:.3} s, assemble busy {:.3} s, fetch busy {:.3} s, check {sum:e}",
            rate / 1e6,
            after.decode.busy_seconds - before.decode.busy_seconds,
            after.assemble.busy_seconds - before.assemble.busy_seconds,
            after.fetch.busy_seconds - before.fetch.busy_seconds,
        );
        rates.push(rate);
    }
    rates
}

/// Bytes per second, in GB, at which all threads together copy large blocks of memory.
fn memcpy(threads: usize) -> f64 {
    const BYTES: usize = 64 << 20;
    const ROUNDS: usize = 8;
    let buffers: Vec<_> = (0..threads)
        .map(|_| (vec![1u8; BYTES], vec![0u8; BYTES]))
        .collect();
    let (time, ()) = timed(|| {
        thread::scope(|scope| {
            for (from, mut to) in buffers {
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        to.copy_from_slice(black_box(&from));
                        black_box(&mut to);
                    }
                });
            }
        });
    });
    let rate = (threads * ROUNDS * BYTES) as f64 / time.as_secs_f64() / 1e9;
    println!("floor: memcpy with {threads} threads: {rate:.2} GB/s");
    rate
}

/// Rows per second at which all threads together copy rows and targets, in random order, from arrays into batches.
fn gather(case: &Case, threads: usize) -> f64 {
    let (rows, width) = (case.rows as usize, case.features as usize);
    let batch = case.global_batch as usize;
    let x = vec![1.0f32; rows * width];
    let y = vec![1.0f32; rows];
    let order = shuffled(rows);
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let mut buffers: Vec<_> = (0..threads)
            .map(|_| vec![(vec![0.0f32; batch * width], vec![0.0f32; batch]); 3])
            .collect();
        let (time, ()) = timed(|| {
            thread::scope(|scope| {
                for (thread, buffers) in buffers.iter_mut().enumerate() {
                    let (x, y) = (&x, &y);
                    let batches = order.chunks(batch).skip(thread).step_by(threads);
                    scope.spawn(move || {
                        for (number, places) in batches.enumerate() {
                            let (to_x, to_y) = &mut buffers[number % 3];
                            for (to, row) in to_x.chunks_exact_mut(width).zip(places) {
                                let start = *row as usize * width;
                                to.copy_from_slice(&x[start..start + width]);
                            }
                            for (to, row) in to_y.iter_mut().zip(places) {
                                *to = y[*row as usize];
                            }
                            black_box(&to_x);
                        }
                    });
                }
            });
        });
        best = best.min(time);
    }
    let rate = rows as f64 / best.as_secs_f64();
    println!(
        "floor: gather with {threads} threads: {:.2} M rows/s, {:.2} GB/s",
        rate / 1e6,
        rate * (width * 4) as f64 / 1e9
    );
    rate
}

/// A permutation of the rows.
fn shuffled(rows: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(rows).unwrap()).collect();
    let mut random = 1u64;
    for last in (1..rows).rev() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let other = usize::try_from((u128::from(random) * (last as u128 + 1)) >> 64).unwrap();
        order.swap(last, other);
    }
    order
}

/// Bytes per second, in GB, at which all threads together read the blocks and compute their checksums.
fn read(folder: &Path, manifest: &Manifest, threads: usize) -> f64 {
    let shards = &manifest.split(Split::Train).unwrap().shards;
    let mut best = Duration::MAX;
    let mut bytes = 0;
    for _ in 0..3 {
        let (time, read) = timed(|| {
            thread::scope(|scope| {
                let readers: Vec<_> = (0..threads)
                    .map(|thread| {
                        scope.spawn(move || {
                            let mut memory = Vec::new();
                            let mut read = 0;
                            for shard in shards.iter().skip(thread).step_by(threads) {
                                let file = File::open(folder.join(&shard.path)).unwrap();
                                for block in &shard.blocks {
                                    let length = u64::from(block.metadata_bytes) + block.body_bytes;
                                    memory.resize(usize::try_from(length).unwrap(), 0);
                                    file.read_exact_at(&mut memory, block.offset).unwrap();
                                    assert_eq!(crc32c::crc32c(&memory), block.crc32c);
                                    read += length;
                                }
                            }
                            read
                        })
                    })
                    .collect();
                readers.into_iter().map(|r| r.join().unwrap()).sum::<u64>()
            })
        });
        bytes = read;
        best = best.min(time);
    }
    let rate = bytes as f64 / best.as_secs_f64() / 1e9;
    println!("floor: read and check with {threads} threads: {rate:.2} GB/s");
    rate
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = SystemClock.monotonic();
    let result = work();
    (SystemClock.monotonic() - start, result)
}

async fn timed_async<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let start = SystemClock.monotonic();
    let result = work.await;
    (SystemClock.monotonic() - start, result)
}
