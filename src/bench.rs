//! `feedline bench loader`: the speed of batches, and their cost.

use std::{fs, sync::Arc, time::Duration};

use feedline_loader::{Batch, BatchKind, Loader, LoaderMetrics, TokensConfig, image::ImageConfig};
use feedline_storage::{StoreOptions, clock::Clock};
use serde::Serialize;

use crate::{cli::LoaderBench, stop::Stop};

/// Clock ticks per second in `/proc/self/stat`: fixed by the Linux interface on every architecture
/// Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// Results of the bench.
#[derive(Debug, Serialize)]
pub(crate) struct BenchReport {
    pub(crate) url: String,
    pub(crate) kind: String,
    pub(crate) batch_size: u32,
    pub(crate) samples: u64,
    pub(crate) batches: u64,
    /// Time from the request of the first batch to the drop of the last.
    pub(crate) seconds: f64,
    pub(crate) samples_per_second: f64,
    /// Bytes of the batches handed out.
    pub(crate) bytes_per_second: f64,
    pub(crate) open_seconds: f64,
    pub(crate) first_batch_seconds: f64,
    /// Share of the time after the first batch that the consumer waited.
    pub(crate) stall_share: f64,
    /// Processor time of the process during the measurement.
    pub(crate) cpu_seconds: f64,
    /// Peak memory of the process, file-backed pages included; 0 where the system does not report
    /// it.
    pub(crate) peak_memory_bytes: u64,
    /// Upper bound: the same consumer with one repeated batch, no data loading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) headspace_samples_per_second: Option<f64>,
    pub(crate) metrics: LoaderMetrics,
    /// Decisions about a dataset in another format that its user should know of.
    pub(crate) warnings: Vec<String>,
}

/// Consumer of the batches: reads every byte once, then waits for the rest of the step.
struct Consumer {
    runtime: tokio::runtime::Handle,
    step: Duration,
    /// Prevents the compiler from removing the reads.
    sum: u64,
}

/// Runs on a thread that may block.
pub(crate) fn loader(
    options: &LoaderBench,
    store_options: StoreOptions,
    clock: &Arc<dyn Clock>,
    stop: &Stop,
) -> anyhow::Result<BenchReport> {
    let runtime = tokio::runtime::Handle::current();
    let opening = clock.monotonic();
    let loader = open(options, store_options, clock, &runtime)?;
    let open_seconds = since(clock, opening);
    let mut consumer = Consumer {
        runtime,
        step: Duration::from_secs_f64(options.step_ms / 1e3),
        sum: 0,
    };
    let cpu_before = cpu_seconds();
    let start = clock.monotonic();
    let mut last = None;
    for epoch in 1..=options.epochs {
        let mut batches = loader.batches()?;
        while let Some(batch) = batches.next() {
            drop(last.take());
            let batch = batch?;
            if batches.remaining() == 0 && epoch < options.epochs {
                loader.prepare(loader.next_epoch(batch.state()))?;
            }
            consumer.consume(&batch);
            last = Some(batch);
            stop.check()?;
        }
    }
    let seconds = since(clock, start);
    let cpu_seconds = cpu_seconds() - cpu_before;
    let metrics = loader.metrics();
    let headspace_samples_per_second = match last {
        Some(batch) if options.headspace => {
            let passes = metrics.batches.clamp(1, 1000);
            Some(headspace(batch, passes, &mut consumer, clock, stop)?)
        }
        _ => None,
    };
    tracing::debug!(sum = consumer.sum, "every byte was read");
    let after_first = (seconds - metrics.first_batch_seconds).max(f64::MIN_POSITIVE);
    let waited = (metrics.consumer_wait_seconds - metrics.first_batch_seconds).max(0.0);
    Ok(BenchReport {
        url: options.url.clone(),
        kind: name(loader.kind()),
        batch_size: options.batch_size,
        samples: metrics.samples,
        batches: metrics.batches,
        seconds,
        samples_per_second: rate(metrics.samples, seconds),
        bytes_per_second: rate(metrics.batch_bytes, seconds),
        open_seconds,
        first_batch_seconds: metrics.first_batch_seconds,
        stall_share: waited / after_first,
        cpu_seconds,
        peak_memory_bytes: peak_memory_bytes(),
        headspace_samples_per_second,
        metrics,
        warnings: loader.warnings(),
    })
}

fn open(
    options: &LoaderBench,
    store_options: StoreOptions,
    clock: &Arc<dyn Clock>,
    runtime: &tokio::runtime::Handle,
) -> anyhow::Result<Loader> {
    let mut builder = Loader::builder(&options.url)
        .batch_size(options.batch_size)
        .seed(options.seed)
        .threads(options.threads)
        .store_options(store_options)
        .clock(Arc::clone(clock));
    if let Some(split) = options.split {
        builder = builder.split(split.into());
    }
    if let Some(side) = options.image_size {
        builder = builder.images(ImageConfig::training(side, side));
    }
    if let Some(length) = options.token_length {
        builder = builder.tokens(TokensConfig::new(length));
    }
    Ok(runtime.block_on(builder.open())?)
}

fn headspace(
    batch: Batch,
    passes: u64,
    consumer: &mut Consumer,
    clock: &Arc<dyn Clock>,
    stop: &Stop,
) -> anyhow::Result<f64> {
    let rows = batch.rows() as u64;
    let start = clock.monotonic();
    let again = usize::try_from(passes).unwrap_or(usize::MAX);
    for batch in batch.headspace().take(again) {
        consumer.consume(&batch);
        stop.check()?;
    }
    Ok(rate(rows * passes, since(clock, start)))
}

impl Consumer {
    fn consume(&mut self, batch: &Batch) {
        for value in batch.x() {
            self.sum = self.sum.wrapping_add(value.to_bits().into());
        }
        for pixel in batch.pixels() {
            self.sum = self.sum.wrapping_add((*pixel).into());
        }
        for token in batch.tokens() {
            self.sum = self.sum.wrapping_add((*token).into());
        }
        if !self.step.is_zero() {
            self.runtime.block_on(tokio::time::sleep(self.step));
        }
    }
}

fn name(kind: BatchKind) -> String {
    match kind {
        BatchKind::Rows { features } => format!("rows of {features} f32"),
        BatchKind::Images { height, width } => format!("images, {height} x {width} u8 RGB"),
        BatchKind::Multi {
            features,
            height,
            width,
            length,
        } => format!(
            "rows of {features} f32, images of {height} x {width} u8 RGB, {length} token ids"
        ),
        BatchKind::Tokens { length, packed } => {
            let packed = if packed { ", packed" } else { "" };
            format!("rows of {length} token ids{packed}")
        }
    }
}

fn since(clock: &Arc<dyn Clock>, start: Duration) -> f64 {
    clock.monotonic().saturating_sub(start).as_secs_f64()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate is read by people, 53 bits are plenty"
)]
fn rate(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(f64::MIN_POSITIVE)
}

fn cpu_seconds() -> f64 {
    // The second field is the program's name in parentheses and may hold spaces; user and system
    // time are the 12th and 13th after it.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|t| t.parse::<f64>().ok())
        .sum();
    ticks / TICKS_PER_SECOND
}

fn peak_memory_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(0, |kib| kib << 10)
}
