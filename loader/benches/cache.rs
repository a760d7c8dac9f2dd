//! Measures the disk cache: reading what is in it, and how much of a shuffled order it has with room for half of the data.
//!
//! Reading: a pass in shard order over cached blocks; each block is checked when it is mapped for
//! the first time in the run. The baselines are the same pass without a cache over the same shards
//! on the local disk, and a plain loop that reads the cache's files by `pread` and computes their
//! CRC32C. All of it is in the page cache. Medians of three.
//!
//! Hits: two epochs in shuffled order over loopback, with a budget of half of the blocks; beside them what dropping the
//! block unused for longest (LRU) and the best possible choice (Belady) would have hit for the same reads.
//!
//! `cargo bench -p feedline-loader --bench cache -- [MEBIBYTES [BLOCKS]]`, by default 512 and 1,024.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::print_stdout, reason = "results are for a person")]

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use feedline_loader::{CacheConfig, Loader, LoaderConfig};
use feedline_schemas::{
    ids::Seed,
    manifest::{Split, TargetKind},
};
use feedline_storage::{
    Store, StoreOptions,
    clock::{Clock, SystemClock},
};
use feedline_testkit::{arguments::Arguments, numbered_dataset as dataset, object_server::Server};

const FEATURES: u32 = 256;
const ROW_BYTES: u32 = FEATURES * 4 + 4 + 16;
const RUNS: usize = 3;
/// Bytes read at a time by the plain loop.
const PIECE: usize = 256 << 10;

fn main() {
    let given = Arguments::read();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(reading(given.number(0, 512, 8)));
    runtime.block_on(hits(given.number(1, 1024, 64)));
}

async fn reading(mebibytes: u32) {
    let (source, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (far, near) = (
        Store::memory(),
        Store::open(source.path().to_str().unwrap(), &StoreOptions::default()).unwrap(),
    );
    for store in [&far, &near] {
        publish(store, mebibytes, 1 << 20).await;
    }
    let config = LoaderConfig {
        cache: Some(CacheConfig {
            dir: dir.path().to_owned(),
            bytes: 1 << 40,
        }),
        ..config()
    };
    let filling = pass(&far, &config).await;
    let files = files(dir.path());
    let mut speeds: [Vec<f64>; 3] = Default::default();
    for _ in 0..RUNS {
        speeds[0].push(pass(&far, &config).await);
        speeds[1].push(pass(&near, &config).await);
        speeds[2].push(plain(&files));
    }
    let [cached, local, plain] = speeds.map(median);
    println!(
        "{mebibytes} MiB in blocks of 1 MiB, in GB/s: pass that fills the cache {filling:.2}, from the cache {cached:.2}, \
              from local shards {local:.2}; one thread, pread and CRC32C {plain:.2}"
    );
}

fn config() -> LoaderConfig {
    LoaderConfig {
        prefetch_bytes: 64 << 20,
        ..LoaderConfig::new(Split::Train, Seed::new(1), 1024)
    }
}

async fn publish(store: &Store, blocks: u32, block_bytes: u32) {
    let blocks = vec![block_bytes / ROW_BYTES; usize::try_from(blocks).unwrap()];
    let shards: Vec<&[u32]> = blocks.chunks(64).collect();
    dataset::publish(
        store,
        FEATURES,
        TargetKind::Regression,
        &[(Split::Train, &shards[..])],
    )
    .await;
}

/// Gigabytes of blocks a second in a pass of a loader that has just been opened.
async fn pass(store: &Store, config: &LoaderConfig) -> f64 {
    let loader = open(store, config).await;
    let start = SystemClock.monotonic();
    let samples: usize = loader
        .sequential()
        .unwrap()
        .map(|batch| batch.unwrap().rows())
        .sum();
    let seconds = (SystemClock.monotonic() - start).as_secs_f64();
    assert_eq!(samples as u64, loader.samples());
    loader.metrics().block_bytes as f64 / seconds / 1e9
}

async fn open(store: &Store, config: &LoaderConfig) -> Loader {
    Loader::open(store, config, Arc::new(SystemClock))
        .await
        .unwrap()
}

/// Gigabytes a second of reading files and computing their checksums.
fn plain(files: &[PathBuf]) -> f64 {
    let start = SystemClock.monotonic();
    let (mut bytes, mut sums) = (0, 0);
    let mut piece = vec![0; PIECE];
    for path in files {
        let (read, sum) = sum(path, &mut piece).unwrap();
        bytes += read;
        sums ^= sum;
    }
    std::hint::black_box(sums);
    bytes as f64 / (SystemClock.monotonic() - start).as_secs_f64() / 1e9
}

fn sum(path: &Path, piece: &mut [u8]) -> io::Result<(u64, u32)> {
    let file = File::open(path)?;
    let (mut at, mut sum) = (0, 0);
    loop {
        let read = file.read_at(piece, at)?;
        if read == 0 {
            return Ok((at, sum));
        }
        sum = crc32c::crc32c_append(sum, &piece[..read]);
        at += read as u64;
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(dir.join("feedline-cache-v1/extents")).unwrap();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

async fn hits(blocks: u32) {
    let store = Store::memory();
    publish(&store, blocks, 16 << 10).await;
    let server = Server::with_objects_of(&store).await;
    let store = Store::open(&server.url(), &StoreOptions::default()).unwrap();
    let mut config = LoaderConfig {
        reads: 1,
        prefetch_bytes: 512 << 10,
        window_blocks: 1,
        domains: 16,
        ..config()
    };
    config.global_batch = 64;
    let loader = open(&store, &config).await;
    let reads = two_epochs(&server, &loader);
    assert_eq!(reads.len(), 2 * blocks as usize);
    let dir = tempfile::tempdir().unwrap();
    let room = blocks as usize / 2;
    // A block takes its bytes and a trailer of 32, in units of 4 KiB; each head of 64 blocks takes a unit.
    let block_bytes = loader.plan().bytes / u64::from(blocks);
    let disk_bytes = (block_bytes + 32).next_multiple_of(4096);
    let bytes = room as u64 * disk_bytes + u64::from(blocks.div_ceil(64)) * 4096;
    config.cache = Some(CacheConfig {
        dir: dir.path().to_owned(),
        bytes,
    });
    let loader = open(&store, &config).await;
    let missed = two_epochs(&server, &loader).len();
    let percent = |hits: usize| 100.0 * hits as f64 / f64::from(blocks);
    println!(
        "{blocks} blocks, room for {room}: in the second epoch hits {:.1} %; LRU {:.1} %, Belady {:.1} %",
        percent(reads.len() - missed),
        percent(simulate(&reads, room, false)),
        percent(simulate(&reads, room, true)),
    );
}

type Block = (String, u64);

/// Reads of blocks that reach the server in two epochs.
fn two_epochs(server: &Server, loader: &Loader) -> Vec<Block> {
    server.forget();
    let mut state = loader.start_state();
    for _ in 0..2 {
        let rows: usize = loader
            .epoch(state.clone())
            .unwrap()
            .map(|batch| batch.unwrap().rows())
            .sum();
        assert_eq!(rows as u64, loader.samples());
        state = loader.next_epoch(&state);
    }
    let blocks = server
        .log()
        .into_iter()
        .filter_map(|asked| Some((asked.path, asked.range?.start)));
    blocks.filter(|(_, start)| *start > 0).collect()
}

/// Hits when the block goes that was used longest ago, or whose next use is farthest.
fn simulate(reads: &[Block], room: usize, is_foreseen: bool) -> usize {
    let mut next = vec![usize::MAX; reads.len()];
    let mut later = HashMap::new();
    for (at, block) in reads.iter().enumerate().rev() {
        next[at] = later.insert(block, at).unwrap_or(usize::MAX);
    }
    let (mut held, mut hits) = (HashMap::new(), 0);
    for (at, block) in reads.iter().enumerate() {
        // What is held with the largest number goes.
        let order = if is_foreseen {
            next[at]
        } else {
            usize::MAX - at
        };
        hits += usize::from(held.insert(block, order).is_some());
        if held.len() > room {
            let (last, _) = held.iter().max_by_key(|(_, order)| **order).unwrap();
            let last = *last;
            held.remove(last);
        }
    }
    hits
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
