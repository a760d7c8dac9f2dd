//! Time to open a dataset of a million shards and 10^10 samples, time to its first batch, and the
//! memory it uses. Prints the figures and asserts nothing about time.
//!
//! ```text
//! cargo bench -p feedline-loader --bench scale [-- SHARDS]
//! ```
//!
//! Every shard has 10 blocks of 900 to 1,100 rows and a name of its own, which is a symbolic link to one real file of
//! 10,000 rows: all of them can be read. Memory is that of a process that only opens and reads, less its window of blocks.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::print_stdout, reason = "results are for a person")]
#![expect(
    clippy::cast_precision_loss,
    reason = "megabytes need no more digits than a float has"
)]

use std::{
    env, fs, os::unix::fs::symlink, path::Path, process::Command, sync::Arc, time::Duration,
};

use feedline_loader::{Loader, LoaderConfig};
use feedline_schemas::{
    ids::{Hash128, Seed},
    manifest::{Layout, MOST_LISTED_SHARDS, Split, SplitShards, TargetKind},
};
use feedline_storage::{
    Store, StoreOptions,
    clock::{Clock as _, SystemClock},
};
use feedline_testkit::numbered_dataset as dataset;

const ROWS: [u32; 10] = [1100, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 900];
const LAYOUT: Layout = Layout::Dense {
    features: 1,
    target: TargetKind::None,
};

fn main() {
    // Cargo passes `--bench`; a test run passes nothing and gets little to do.
    let is_bench = env::args().any(|a| a == "--bench");
    let arguments: Vec<_> = env::args().skip(1).filter(|a| a != "--bench").collect();
    let texts: Vec<_> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match texts[..] {
        ["write", folder, shards] => runtime.block_on(write(folder, shards.parse().unwrap())),
        ["read", folder] => runtime.block_on(read(folder)),
        _ => {
            let default = if is_bench { "1000000" } else { "10001" };
            let shards = texts.first().copied().unwrap_or(default);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().to_str().unwrap();
            run(&["write", path, shards]);
            run(&["read", path]);
        }
    }
}

/// In a process of its own, so that what one holds is not counted for the other.
fn run(arguments: &[&str]) {
    let program = env::current_exe().unwrap();
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{arguments:?}");
}

fn seconds_since(start: Duration) -> f64 {
    SystemClock.monotonic().saturating_sub(start).as_secs_f64()
}

fn store(folder: &str) -> Store {
    Store::open(folder, &StoreOptions::default()).unwrap()
}

async fn write(folder: &str, count: usize) {
    let file = dataset::shard_file_of(&LAYOUT, 0, &ROWS);
    let real = Path::new(folder).join("real.arrow");
    fs::write(&real, &file).unwrap();
    fs::create_dir_all(Path::new(folder).join("shards/train")).unwrap();
    let model = dataset::describe("", &file);
    let mut shards = Vec::with_capacity(count);
    for number in 0..count {
        let mut shard = model.clone();
        let hash = Hash128::of(&number.to_le_bytes()).short();
        shard.path = format!("shards/train/{number:05}-{hash}.arrow");
        symlink(&real, Path::new(folder).join(&shard.path)).unwrap();
        shards.push(shard);
    }
    let mut manifest = dataset::empty_manifest(LAYOUT);
    manifest.splits.push(SplitShards {
        split: Split::Train,
        rows: shards.iter().map(|shard| shard.rows).sum(),
        shards,
        table: None,
    });
    let store = store(folder);
    let started = SystemClock.monotonic();
    let tables = manifest.add_tables(MOST_LISTED_SHARDS).unwrap();
    for (path, table) in tables {
        println!(
            "table of {count} shards: {:.1} MB",
            table.len() as f64 / 1e6
        );
        store.put(&path, table.into()).await.unwrap();
    }
    dataset::publish_manifest(&store, manifest).await;
    println!("written in {:.2} s", seconds_since(started));
}

async fn read(folder: &str) {
    let before = memory("VmRSS");
    let mut config = LoaderConfig::new(Split::Train, Seed::new(7), 1024);
    config.prefetch_bytes = 64 << 20;
    let started = SystemClock.monotonic();
    let dataset = store(folder);
    let loader = Loader::open(&dataset, &config, Arc::new(SystemClock));
    let loader = loader.await.unwrap();
    println!(
        "{} samples opened in {:.2} s",
        loader.samples(),
        seconds_since(started)
    );
    println!(
        "memory {:.0} MB, {before:.0} MB of it before",
        memory("VmRSS")
    );
    let started = SystemClock.monotonic();
    let mut batches = loader.batches().unwrap();
    let batch = batches.next().unwrap().unwrap();
    println!(
        "first batch of {} in {:.2} s",
        batch.rows(),
        seconds_since(started)
    );
    let mut state = loader.start_state();
    state.batch = feedline_schemas::ids::Step::new(loader.batches_per_epoch() / 2);
    drop((batch, batches));
    let started = SystemClock.monotonic();
    let batch = loader.epoch(state).unwrap().next().unwrap().unwrap();
    println!(
        "resumed at half of it: {} in {:.2} s",
        batch.rows(),
        seconds_since(started)
    );
    let blocks = loader.metrics().peak_bytes as f64 / 1e6;
    println!(
        "memory {:.0} MB, at most {:.0} MB, {blocks:.0} MB of it blocks",
        memory("VmRSS"),
        memory("VmHWM")
    );
}

/// Megabytes, as Linux counts them.
fn memory(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kilobytes.unwrap_or(f64::NAN) * 1024.0 / 1e6
}
