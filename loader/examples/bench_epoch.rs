//! Measures epochs from a consumer that looks at every sample, one JSON line per epoch, for `bench/loader`:
//!
//! - `bench_epoch rows URL BATCH EPOCHS`: `x[:, 0]` is the row number, and is kept;
//! - `bench_epoch images URL BATCH EPOCHS`: random resized crops of 224 x 224;
//! - `bench_epoch wait URL BATCH EPOCHS STEP_US BUSY`: how long each batch is waited for by a consumer that computes for
//!   `STEP_US` microseconds per batch, on so many threads as `BUSY` says;
//! - `bench_epoch gather THREADS`: the floor that memory sets: 1,000,000 rows of 32 f32 copied in random order from one
//!   array into batches of 4,096, by so many threads.
#![expect(clippy::print_stdout, reason = "results are for a program")]

use std::{error::Error, hint::black_box, time::Duration};

use feedline_loader::{Batch, Loader, image::ImageConfig};
use feedline_storage::clock::{Clock, SystemClock};

/// Rows of a source block, for the measure of mixing.
const BLOCK: u32 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["rows", url, batch, epochs] => rows(url, batch.parse()?, epochs.parse()?),
        ["images", url, batch, epochs] => images(url, batch.parse()?, epochs.parse()?),
        ["wait", url, batch, epochs, step, busy] => waits(
            url,
            batch.parse()?,
            epochs.parse()?,
            Duration::from_micros(step.parse()?),
            busy.parse()?,
        ),
        ["gather", threads] => {
            gather(threads.parse()?);
            Ok(())
        }
        _ => Err(
            "usage: bench_epoch (rows|images) URL BATCH EPOCHS, or bench_epoch gather THREADS"
                .into(),
        ),
    }
}

fn rows(url: &str, batch: u32, epochs: u32) -> Result<(), Box<dyn Error>> {
    let start = now();
    let builder = Loader::builder(url).batch_size(batch).seed(1);
    let loader = builder.open_blocking()?;
    let mut start = Some(start);
    for _ in 0..epochs {
        let numbers = |batch: &Batch| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "row numbers are small integers"
            )]
            let numbers = batch
                .x()
                .chunks_exact(batch.features())
                .map(|x| x[0] as u32);
            numbers.collect::<Vec<_>>()
        };
        let epoch = run(&loader, start.take().unwrap_or_else(now), numbers)?;
        let delivered: Vec<u32> = epoch.seen.iter().flatten().copied().collect();
        let once = delivered.len() as u64 == loader.samples()
            && distinct(delivered.iter().copied()) == delivered.len();
        let blocks: usize = epoch
            .seen
            .iter()
            .map(|batch| distinct(batch.iter().map(|n| n / BLOCK)))
            .sum();
        let blocks = blocks as f64 / epoch.seen.len() as f64;
        epoch.report(
            delivered.len(),
            epoch.seen.first().map_or(0, Vec::len),
            &format!("\"exactly_once\":{once},\"blocks_per_batch\":{blocks:.1},\"shuffle\":\"blocks and inside 512 of them\""),
        );
    }
    report_metrics(&loader)
}

fn images(url: &str, batch: u32, epochs: u32) -> Result<(), Box<dyn Error>> {
    let mut start = Some(now());
    let builder = Loader::builder(url).batch_size(batch).seed(1);
    let loader = builder
        .images(ImageConfig::training(224, 224))
        .open_blocking()?;
    for _ in 0..epochs {
        let touch = |batch: &Batch| {
            black_box(
                batch
                    .pixels()
                    .iter()
                    .step_by(4096)
                    .map(|p| u64::from(*p))
                    .sum::<u64>(),
            );
            batch.rows()
        };
        let epoch = run(&loader, start.take().unwrap_or_else(now), touch)?;
        let delivered = epoch.seen.iter().sum();
        let once = delivered as u64 == loader.samples();
        let first = epoch.seen.first().copied().unwrap_or(0);
        epoch.report(delivered, first, &format!("\"exactly_once\":{once}"));
    }
    report_metrics(&loader)
}

/// Measures the wait of a trainer with short steps, as `feedline train` counts it: from asking for a batch to having it.
fn waits(
    url: &str,
    batch: u32,
    epochs: u32,
    step: Duration,
    busy: usize,
) -> Result<(), Box<dyn Error>> {
    let loader = Loader::builder(url)
        .batch_size(batch)
        .seed(1)
        .open_blocking()?;
    let mut workers = Workers::new(busy.max(1) - 1);
    let (mut firsts, mut others) = (Vec::new(), Vec::new());
    let start = now();
    for epoch in 0..epochs {
        let mut batches = loader.batches()?;
        let mut waited = &mut firsts;
        loop {
            let since = now();
            let Some(batch) = batches.next() else { break };
            waited.push(now() - since);
            waited = &mut others;
            let batch = batch?;
            black_box(batch.x().iter().sum::<f32>());
            if batches.remaining() == 0 && epoch + 1 < epochs {
                loader.prepare(loader.next_epoch(batch.state()))?;
            }
            workers.step(step);
        }
    }
    let seconds = (now() - start).as_secs_f64();
    let batches = firsts.len() + others.len();
    let waited: Duration = firsts.iter().chain(&others).sum();
    // The first of all reads the dataset.
    let cold = firsts.remove(0);
    let figures = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        let at = |share: f64| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of a length"
            )]
            let index = ((times.len() - 1) as f64 * share) as usize;
            times
                .get(index)
                .map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        let mean = times.iter().sum::<Duration>().as_secs_f64() / times.len().max(1) as f64;
        format!(
            "{{\"count\":{},\"mean_us\":{:.1},\"median_us\":{:.1},\"p90_us\":{:.1},\"p99_us\":{:.1},\"most_us\":{:.1}}}",
            times.len(),
            mean * 1e6,
            at(0.5),
            at(0.9),
            at(0.99),
            at(1.0)
        )
    };
    println!(
        "{{\"batches\":{batches},\"seconds\":{seconds:.3},\"step_us\":{:.1},\"wait_share\":{:.4},\"cold_us\":{:.1},\"first_of_epoch\":{},\"others\":{}}}",
        seconds * 1e6 / batches as f64,
        waited.as_secs_f64() / seconds,
        cold.as_secs_f64() * 1e6,
        figures(&mut firsts),
        figures(&mut others)
    );
    report_metrics(&loader)
}

/// Threads that compute beside the caller, as those of a trainer.
struct Workers {
    start: Vec<std::sync::mpsc::Sender<Duration>>,
    done: std::sync::mpsc::Receiver<()>,
}

impl Workers {
    fn new(count: usize) -> Self {
        let (done_in, done) = std::sync::mpsc::channel();
        let start = (0..count).map(|_| {
            let (start, started) = std::sync::mpsc::channel();
            let done = done_in.clone();
            std::thread::spawn(move || {
                while let Ok(step) = started.recv() {
                    compute(step);
                    if done.send(()).is_err() {
                        return;
                    }
                }
            });
            start
        });
        Self {
            start: start.collect(),
            done,
        }
    }

    fn step(&mut self, step: Duration) {
        let started = self.start.iter().filter(|start| start.send(step).is_ok());
        let count = started.count();
        compute(step);
        self.done.iter().take(count).for_each(drop);
    }
}

/// Work of about `step` on an idle processor: a number of rounds, so that what takes the processor away prolongs it.
fn compute(step: Duration) {
    static ROUNDS: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    let work =
        |rounds: u64| (0..rounds).fold(1.0f64, |value, i| black_box(value * 0.999 + i as f64));
    let per_second = *ROUNDS.get_or_init(|| {
        let rounds = 2_000_000;
        let since = now();
        black_box(work(rounds));
        rounds as f64 / (now() - since).as_secs_f64()
    });
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of rounds"
    )]
    black_box(work((per_second * step.as_secs_f64()) as u64));
}

/// Observations of each batch of an epoch, with their times.
struct Epoch<T> {
    seen: Vec<T>,
    first: Duration,
    time: Duration,
}

fn run<T>(
    loader: &Loader,
    start: Duration,
    look: impl Fn(&Batch) -> T,
) -> Result<Epoch<T>, Box<dyn Error>> {
    let (mut seen, mut first) = (Vec::new(), None);
    for batch in loader.batches()? {
        seen.push(look(&batch?));
        first.get_or_insert_with(|| now() - start);
    }
    Ok(Epoch {
        seen,
        first: first.unwrap_or_default(),
        time: now() - start,
    })
}

impl<T> Epoch<T> {
    fn report(&self, samples: usize, in_first: usize, more: &str) {
        println!(
            "{{\"samples_per_s\":{:.0},\"steady_per_s\":{:.0},\"first_batch_ms\":{:.2},{more}}}",
            samples as f64 / self.time.as_secs_f64(),
            (samples - in_first) as f64 / (self.time - self.first).as_secs_f64(),
            self.first.as_secs_f64() * 1e3,
        );
    }
}

fn gather(threads: usize) {
    const ROWS: usize = 1_000_000;
    const FEATURES: usize = 32;
    const BATCH: usize = 4096;
    let from = vec![1.0f32; ROWS * FEATURES];
    let mut order: Vec<u32> = (0..1_000_000).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for i in (1..ROWS).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(i, usize::try_from(random % (i as u64 + 1)).unwrap_or(0));
    }
    let mut times: Vec<Duration> = (0..7)
        .map(|_| {
            let start = now();
            std::thread::scope(|scope| {
                for part in order.chunks(ROWS.div_ceil(threads)) {
                    let from = &from;
                    scope.spawn(move || {
                        let mut to = vec![0.0f32; BATCH * FEATURES];
                        for batch in part.chunks(BATCH) {
                            for (to, row) in to.chunks_exact_mut(FEATURES).zip(batch) {
                                let start = *row as usize * FEATURES;
                                to.copy_from_slice(&from[start..start + FEATURES]);
                            }
                            black_box(&mut to);
                        }
                    });
                }
            });
            now() - start
        })
        .collect();
    times.sort_unstable();
    let rate = ROWS as f64 / times[3].as_secs_f64();
    println!(
        "{{\"samples_per_s\":{rate:.0},\"steady_per_s\":{rate:.0},\"gbytes_per_s\":{:.2}}}",
        rate * (FEATURES * 4) as f64 / 1e9
    );
}

fn report_metrics(loader: &Loader) -> Result<(), Box<dyn Error>> {
    println!("{}", serde_json::json!({ "metrics": loader.metrics() }));
    Ok(())
}

fn now() -> Duration {
    SystemClock.monotonic()
}

fn distinct(values: impl Iterator<Item = u32>) -> usize {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.len()
}
