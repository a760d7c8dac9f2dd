//! Measures the order alone: nanoseconds for a sample, seconds and memory to resume in an epoch of ten thousand million
//! samples, and how well an ImageNet-sized set sorted by class is mixed.
//!
//! `cargo bench -p feedline-loader --bench order`
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::print_stdout, reason = "results are for a person")]

#[expect(dead_code, reason = "orders need less of it")]
#[path = "../src/block_table.rs"]
mod block_table;
#[expect(unused_imports, reason = "its tests are not run here")]
#[path = "../src/compact.rs"]
mod compact;
#[path = "../src/index.rs"]
mod index;
#[expect(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the loader uses more of it"
)]
#[path = "../src/order/mod.rs"]
mod order;

use std::{fmt::Debug, sync::Arc, time::Duration};

use feedline_schemas::{ids::Rank, loader_state::LastBatch};
use feedline_storage::clock::{Clock, SystemClock};

use order::{
    Blocks, MixtureConfig, OrderSpec, Orders, PassOrder, RankShare, SourceWeight, Units,
    packing::{Lengths, PackedBins},
    shuffle_quality,
};

fn main() {
    // A test run passes no `--bench` and gets a hundredth.
    let full = if std::env::args().any(|a| a == "--bench") {
        100
    } else {
        1
    };
    // First, for its memory would hide in that of the others.
    resume(10_000 * u32::try_from(full).unwrap());
    let blocks = 20 * full;
    for global_batch in [256, 1024, 8192] {
        walk("equal blocks", vec![5000; blocks], global_batch);
    }
    let uneven = (0..blocks).map(|b| 4000 + u32::try_from(b * 7919 % 2000).unwrap());
    walk("uneven blocks", uneven.collect(), 1024);
    walk("images", vec![10; 100 * blocks], 256);
    mixture(full);
    packing(full);
    quality();
}

fn spec(global_batch: u32) -> OrderSpec {
    OrderSpec {
        seed: 1,
        domains: 64,
        window_blocks: 16,
        global_batch,
        last_batch: LastBatch::Keep,
    }
}

/// Looks up every place of an epoch.
fn walk(what: &str, rows: Vec<u32>, global_batch: u32) {
    let orders = Orders::single(spec(global_batch), rows_of(rows)).unwrap();
    let order = orders.epoch(0, None).unwrap();
    let samples = orders.sizes().next().unwrap();
    let (time, check) = timed(|| lookups(&order));
    report(
        &format!("{what}, batch {global_batch}: place"),
        time,
        samples,
    );
    let share = RankShare::new(Rank::new(0), 1);
    let (planned, needs) = timed(|| order.needs(0, share).count());
    report(
        &format!("{what}, batch {global_batch}: plan"),
        planned,
        samples,
    );
    println!("  {needs} needs, check {check:x}");
}

fn lookups(order: &PassOrder) -> u64 {
    let mut cursor = order.cursor();
    let (mut runs, mut places, mut check) = (Vec::new(), Vec::new(), 0u64);
    for batch in 0..order.batch_count() {
        runs.clear();
        cursor.runs(batch, 0..order.slots(batch), &mut runs);
        for run in &runs {
            places.clear();
            run.window.places(run.positions.clone(), &mut places);
            let last = places[places.len() - 1];
            check = check.wrapping_mul(31).wrapping_add(u64::from(last.row));
        }
    }
    check
}

fn mixture(full: usize) {
    let config = MixtureConfig {
        sources: vec![SourceWeight::default(); 8],
        ..MixtureConfig::default()
    };
    let sources = (0..8)
        .map(|k| rows_of(vec![5000; (k + 1) * full]))
        .collect();
    let (orders, phase) = Orders::mixed(spec(1024), sources, &config).unwrap();
    let order = orders.epoch(0, Some(&phase)).unwrap();
    let (time, _) = (0..5).map(|_| timed(|| lookups(&order))).min().unwrap();
    report("8 sources, batch 1024: place", time, orders.sizes().sum());
}

#[derive(Debug)]
struct Documents(Vec<u32>);

impl Lengths for Documents {
    fn append(&self, block: u32, lengths: &mut Vec<u32>) {
        let start = block as usize * 1000;
        lengths.extend_from_slice(&self.0[start..start + 1000]);
    }
}

/// Lengths as of web pages: many short, few long.
fn packing(full: usize) {
    let blocks = 40 * full;
    let lengths: Vec<u32> = (0..1000 * blocks as u64)
        .map(|i| {
            let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            u32::try_from((60 << 24) / ((1 << 24) - mixed * 999 / 1000)).unwrap()
        })
        .collect();
    let tokens: u64 = lengths.iter().map(|l| u64::from(*l)).sum();
    let (documents, count) = (Arc::new(Documents(lengths)), u32::try_from(blocks).unwrap());
    for extent in [1, 8] {
        let extents = (0..count).step_by(extent).chain([count]).collect();
        let blocks = Blocks::new(vec![1000; count as usize]).in_extents(Some(extents));
        let lengths: Arc<dyn Lengths> = Arc::clone(&documents) as _;
        let (time, packing) = timed(|| PackedBins::new(&blocks, lengths, (4096, 0)));
        let full = tokens as f64 / (packing.blocks().samples() * 4096) as f64;
        report(
            &format!("packing, extents of {extent} blocks"),
            time,
            u64::from(count) * 1000,
        );
        println!("  bins are {:.2} % full", full * 100.0);
    }
}

/// Opens an order over blocks of 10,000 samples and looks up a batch in the middle of an epoch, and what it needs.
fn resume(blocks: u32) {
    let before = resident();
    let (time, samples) = timed(|| {
        let orders = Orders::single(spec(256), rows_of(vec![10_000; blocks as usize])).unwrap();
        let order = orders.epoch(3, None).unwrap();
        let middle = order.batch_count() / 2;
        let (mut cursor, mut runs) = (order.cursor(), Vec::new());
        cursor.runs(middle, 0..256, &mut runs);
        let share = RankShare::new(Rank::new(3), 7);
        assert!(order.needs(middle, share).take(100).count() == 100);
        (orders.sizes().sum::<u64>(), resident())
    });
    println!(
        "resume in {} samples, {blocks} blocks: {time:.3?}, {} MB more memory",
        samples.0,
        samples.1.saturating_sub(before) / 1000
    );
}

fn quality() {
    let mut rows = vec![10; 128_116];
    rows.push(7);
    for window_blocks in [8, 16, 64] {
        let spec = OrderSpec {
            window_blocks,
            ..spec(256)
        };
        let orders = Orders::single(spec, rows_of(rows.clone())).unwrap();
        println!("ImageNet sorted by class, 64 domains of {window_blocks} blocks of 1 MiB:");
        println!("  {:?}", shuffle_quality(&orders, Some(1000), u64::MAX));
    }
}

fn rows_of(rows: Vec<u32>) -> Units {
    Units::Rows(Arc::new(Blocks::new(rows)))
}

/// Kilobytes of this process in memory; 0 where the system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.and_then(|line| line.split_whitespace().nth(1))
        .and_then(|kilobytes| kilobytes.parse().ok())
        .unwrap_or(0)
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = SystemClock.monotonic();
    let result = work();
    (SystemClock.monotonic() - start, result)
}

fn report(what: &str, time: Duration, samples: u64) {
    println!(
        "{what}: {:.2} ns each",
        time.as_nanos() as f64 / samples as f64
    );
}
