//! Measures reading from a store over HTTP on loopback: without faults, with the faults that stores have, and with
//! these but without second requests.
//!
//! The server responds after a time whose median is 15 ms. With faults one response in fifty takes
//! 20 times as long, 1 % are 503 and 0.1 % break off. Bars: throughput with faults at least 85 % of
//! that without; hedging reduces the 99.9th percentile of the time a request takes with its retries
//! at least 3 times, and at most 5 % of all requests are hedges. Each kind of run is made three
//! times, in turn; the medians of throughput, percentile and fraction count.
//!
//! Blocks are asked for one by one (`extent_bytes` is 0): joined, there would be too few requests for a 99.9th
//! percentile, and the time would be that of the bytes instead of the server's.
//!
//! `cargo bench -p feedline-loader --bench network -- [MEBIBYTES [BLOCK_KIB [READS [ROUNDS]]]]`, by default 768, 64, 32
//! and 3.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::print_stdout, reason = "results are for a person")]

use std::{sync::Arc, time::Duration};

use feedline_loader::{FetchMetrics, Loader, LoaderConfig};
use feedline_schemas::{
    ids::Seed,
    manifest::{Split, TargetKind},
};
use feedline_storage::{
    Store, StoreOptions,
    clock::{Clock, SystemClock},
};
use feedline_testkit::{
    arguments::Arguments,
    numbered_dataset as dataset,
    object_server::{Asked, Fault, Server},
};

const FEATURES: u32 = 256;
const BLOCKS_PER_SHARD: usize = 256;
const MEDIAN: Duration = Duration::from_millis(15);

/// A run's throughput and what it took.
#[derive(Clone, Copy)]
struct Run {
    bytes_per_second: f64,
    fetches: FetchMetrics,
}

fn main() {
    let given = Arguments::read();
    let (mebibytes, block_kib, reads) = (
        given.number(0, 768, 8),
        given.number(1, 64, 64),
        given.number(2, 32, 32),
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(publish(mebibytes, block_kib));
    println!("{mebibytes} MiB in blocks of {block_kib} KiB, at most {reads} reads at a time");
    let rounds = given.number(3, 3, 1);
    let mut kinds = [
        ("clean", false, 45, Vec::new()),
        ("faults, no hedges", true, 0, Vec::new()),
        ("faults, hedges", true, 45, Vec::new()),
    ];
    // In turn, so that a busy minute of the machine meets all kinds.
    for number in 0..rounds {
        for (name, has_faults, permille, results) in &mut kinds {
            let result = runtime.block_on(measure(&server, reads, *has_faults, *permille, number));
            report(name, &result);
            results.push(result);
        }
    }
    let [clean, plain, hedged] = kinds.map(|(_, _, _, results)| results);
    let speed = |runs: &[Run]| median(runs, |run| run.bytes_per_second);
    let tail = |runs: &[Run]| median(runs, |run| run.fetches.extent_seconds_p999);
    println!(
        "throughput with faults: {:.1} % of clean (bar: 85)",
        100.0 * speed(&hedged) / speed(&clean)
    );
    println!(
        "p99.9 without hedges / with: {:.2} (bar: 3)",
        tail(&plain) / tail(&hedged)
    );
    println!(
        "hedges: {:.2} % of requests (bar: 5)",
        median(&hedged, |run| share_of_hedges(&run.fetches))
    );
}

async fn publish(mebibytes: u32, block_kib: u32) -> Server {
    let rows = (block_kib << 10) / (FEATURES * 4 + 4 + 16);
    let count = usize::try_from((mebibytes << 10) / block_kib).unwrap();
    let blocks = vec![rows; count];
    let shards: Vec<&[u32]> = blocks.chunks(BLOCKS_PER_SHARD).collect();
    let store = Store::memory();
    let splits = [(Split::Train, &shards[..])];
    dataset::publish(&store, FEATURES, TargetKind::Regression, &splits).await;
    Server::with_objects_of(&store).await
}

/// Reads the whole dataset once.
async fn measure(
    server: &Server,
    reads: u32,
    has_faults: bool,
    hedge_permille: u32,
    number: u32,
) -> Run {
    server.forget();
    let store = Store::open(&server.url(), &StoreOptions::default()).unwrap();
    let mut config = LoaderConfig::new(Split::Train, Seed::new(number.into()), 1024);
    config.reads = reads;
    config.extent_bytes = 0;
    config.prefetch_bytes = 96 << 20;
    config.fetch.hedge_permille = hedge_permille;
    let loader = Loader::open(&store, &config, Arc::new(SystemClock))
        .await
        .unwrap();
    let salt = (u64::from(number) + 1) << 40;
    server.set(move |asked| fault(asked, has_faults, salt));
    let start = SystemClock.monotonic();
    let samples: usize = loader
        .sequential()
        .unwrap()
        .map(|batch| batch.unwrap().rows())
        .sum();
    let seconds = (SystemClock.monotonic() - start).as_secs_f64();
    assert_eq!(samples as u64, loader.samples());
    let metrics = loader.metrics();
    Run {
        bytes_per_second: metrics.block_bytes as f64 / seconds,
        fetches: metrics.fetches,
    }
}

/// Fault of a request, drawn from its number, so that it is the same in every run.
fn fault(asked: &Asked, has_faults: bool, salt: u64) -> Fault {
    let draw = mix(asked.number ^ salt);
    // 12 to 18 ms.
    let usual = MEDIAN.mul_f64(0.8 + (draw & 1023) as f64 / 1023.0 * 0.4);
    match draw >> 44 {
        _ if !has_faults => Fault::Late(usual),
        // Of 2^20: 1 %, 0.1 %, 2 %.
        0..10_486 => Fault::Status(503, None),
        10_486..11_535 => Fault::Cut(20_000),
        11_535..32_506 => Fault::Late(MEDIAN * 20),
        _ => Fault::Late(usual),
    }
}

fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The middle one of a number of each run.
fn median(runs: &[Run], number: impl Fn(&Run) -> f64) -> f64 {
    let mut numbers: Vec<f64> = runs.iter().map(number).collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn report(name: &str, run: &Run) {
    let fetches = &run.fetches;
    let millis = |seconds: f64| seconds * 1e3;
    println!(
        "{name:>18}: {:6.1} MB/s, extents {} in ms: p50 {:.0}, p95 {:.0}, p99 {:.0}, p99.9 {:.0}; requests {}, hedges {} \
         ({:.2} %), won {}; throttled {}, broken {}, resumed {}, stalled {}, timed out {}; limit {}",
        run.bytes_per_second / 1e6,
        fetches.extents,
        millis(fetches.extent_seconds_p50),
        millis(fetches.extent_seconds_p95),
        millis(fetches.extent_seconds_p99),
        millis(fetches.extent_seconds_p999),
        fetches.requests,
        fetches.hedges,
        share_of_hedges(fetches),
        fetches.hedges_won,
        fetches.retries.throttled,
        fetches.retries.broken,
        fetches.resumed_bodies,
        fetches.retries.stalled,
        fetches.retries.timed_out,
        fetches.permits,
    );
}

/// Hedges in percent of all requests, which they are among.
fn share_of_hedges(fetches: &FetchMetrics) -> f64 {
    100.0 * fetches.hedges as f64 / fetches.requests.max(1) as f64
}
