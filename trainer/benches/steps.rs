//! Times steps of training: ours on a dataset in the page cache, through the public interface, beside a bare loop on the
//! tensor library with the same model, optimizer and batch from memory.
//!
//! `cargo bench -p feedline-trainer --bench steps -- [ROUNDS [STEPS [LONG_STEPS]]]`, by default 3 rounds of 200 steps, and
//! 5,000 steps with smaller batches that show whether memory grows. Runs take turns, each in a process of its own, on
//! the processors that this one may use (`taskset`); figures are medians. Processor time is that of all threads, of
//! steps after the 20th; waiting for data is that of all steps. The last line is JSON.
//!
//! `steps data CASE FOLDER [BATCH]` writes a case's dataset of an epoch of such batches, and its rows as plain arrays for
//! other programs; `steps run CASE WHO STEPS BATCH FOLDER [DEVICE [PRECISION]]` is one such process; device and precision
//! are those of `[train]`. `host_ms_per_step` is the processor time of all threads but those of a device in software,
//! `thread_ms_per_step` that of each by name. On a GPU `copy_bytes_per_s` is the rate of the copies of batches ahead of their steps, while one
//! runs, and `copy_bytes` the bytes of a batch; the first 20 are not counted.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::print_stdout, reason = "results are for a person")]

#[path = "support/bare.rs"]
mod bare;
#[path = "support/case.rs"]
mod case;
#[path = "support/copies.rs"]
mod copies;
#[path = "support/process.rs"]
mod process;

use std::{
    collections::BTreeMap,
    env,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use bare::Bare;
use case::Case;
use copies::CopySpans;
use feedline_schemas::{
    config::TrainConfig,
    progress::{Event, Progress},
    report::TrainReport,
};
use feedline_storage::{
    Store, StoreOptions,
    clock::{Clock, SystemClock},
};
use feedline_testkit::{arguments::Arguments, learnable_dataset as dataset};
use feedline_trainer::{Context, Resume, train};
use serde_json::{Value, json};

/// Steps before the first that is timed.
const WARM: u64 = 20;

/// Steps at whose end memory is looked at.
const LOOKS: [u64; 2] = [500, 5_000];

/// Names of the threads that compute for a device in software, llvmpipe. Mesa gives those that run kernels no name.
const SOFTWARE_DEVICE: [&str; 2] = ["llvmpipe", process::UNNAMED];

/// By how much the batches of the long run are smaller.
const LONG_BATCH_SHARE: usize = 4;

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["data", case, folder, batch @ ..] => {
            let (case, folder) = (named(case), Path::new(folder));
            let batch = batch.first().map(|batch| batch.parse().unwrap());
            let batch = batch.unwrap_or(case.batch());
            publish(case, folder, batch);
            case.write_raw(folder, batch);
        }
        ["run", case, who, steps, batch, folder, on @ ..] => {
            let case = named(case);
            let (steps, batch) = (steps.parse().unwrap(), batch.parse().unwrap());
            println!("{}", run(case, who, steps, batch, Path::new(folder), on));
        }
        _ => compare(),
    }
}

fn named(name: &str) -> Case {
    let mut all = Case::ALL.into_iter().chain([Case::Gpt2]);
    all.find(|case| case.name() == name).unwrap()
}

fn publish(case: Case, folder: &Path, batch: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(case.publish(&open(folder), batch));
}

fn open(folder: &Path) -> Store {
    Store::open(folder.to_str().unwrap(), &StoreOptions::default()).unwrap()
}

/// Runs everything in turn and prints it.
fn compare() {
    let given = Arguments::read();
    let [rounds, steps] = [given.number(0, 3, 1), given.number(1, 200, 100)];
    let long = given.number(2, 5_000, 0);
    let mut results = Vec::new();
    for case in Case::ALL {
        let folder = tempfile::tempdir().unwrap();
        publish(case, folder.path(), case.batch());
        let mut ours = Vec::new();
        let mut bare = Vec::new();
        for _ in 0..rounds {
            ours.push(child(case, "feedline", steps, case.batch(), folder.path()));
            if matches!(case, Case::Mlp | Case::Cnn) {
                bare.push(child(case, "bare", steps, case.batch(), folder.path()));
            }
        }
        let mut of_case = vec![("feedline", median(&ours))];
        if !bare.is_empty() {
            of_case.push(("bare", median(&bare)));
        }
        if long > 0 && !bare.is_empty() {
            let (folder, batch) = (
                tempfile::tempdir().unwrap(),
                case.batch() / LONG_BATCH_SHARE,
            );
            publish(case, folder.path(), batch);
            of_case.push(("long", child(case, "feedline", long, batch, folder.path())));
        }
        for (who, figures) in &of_case {
            println!("{} {who}: {figures}", case.name());
        }
        if let [(_, ours), (_, bare), ..] = of_case.as_slice() {
            let ratio = |key: &str| number(ours, key) / number(bare, key);
            let (rate, time) = (ratio("steps_per_s"), ratio("cpu_ms_per_step"));
            println!(
                "{} feedline to bare: {rate:.3} of its steps/s, {time:.3} of its processor time",
                case.name()
            );
        }
        let of_case = of_case
            .into_iter()
            .map(|(who, figures)| (who.to_owned(), figures));
        results.push((case.name().to_owned(), of_case.collect::<Value>()));
    }
    println!("{}", results.into_iter().collect::<Value>());
}

fn number(figures: &Value, key: &str) -> f64 {
    figures[key].as_f64().unwrap_or(f64::NAN)
}

/// The median of each figure.
fn median(runs: &[Value]) -> Value {
    let keys = runs[0].as_object().unwrap().iter();
    let keys = keys.filter_map(|(key, value)| value.is_number().then_some(key));
    let middle = |key: &String| {
        let mut values: Vec<f64> = runs.iter().map(|run| number(run, key)).collect();
        values.sort_by(f64::total_cmp);
        (key.clone(), json!(values[values.len() / 2]))
    };
    keys.map(middle).collect()
}

fn child(case: Case, who: &str, steps: u32, batch: usize, folder: &Path) -> Value {
    let words = [
        "run",
        case.name(),
        who,
        &steps.to_string(),
        &batch.to_string(),
    ];
    let output = Command::new(env::current_exe().unwrap())
        .args(words)
        .arg(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// The configuration, with a device and a precision where they are given.
fn config(case: Case, batch: usize, steps: u64, on: &[&str]) -> TrainConfig {
    let mut config = serde_json::to_value(case.config(batch, steps)).unwrap();
    for (key, value) in ["device", "precision"].into_iter().zip(on) {
        config[key] = json!(value);
    }
    serde_json::from_value(config).unwrap()
}

/// Trains and says what a step took.
fn run(case: Case, who: &str, steps: u64, batch: usize, folder: &Path, on: &[&str]) -> Value {
    let probe = Arc::new(Probe::new(steps));
    let mut of_data = json!({});
    if who == "bare" {
        let mut bare = Bare::new(case, batch).unwrap();
        for step in 1..=steps {
            let loss = bare.step();
            probe.step(step, loss.into());
        }
    } else {
        let runs = tempfile::tempdir().unwrap();
        let context = Context {
            dataset: open(folder),
            runs: open(runs.path()),
            weights: None,
            progress: Arc::clone(&probe) as Arc<dyn Progress>,
            clock: Arc::new(SystemClock),
            stop: Arc::default(),
            group: feedline_trainer::Group::alone(),
        };
        tracing::subscriber::set_global_default(CopySpans::default()).unwrap();
        let report = train(&config(case, batch, steps, on), Resume::Fresh, &context).unwrap();
        of_data = data_figures(&report, steps);
    }
    let is_on_device = on.first().is_some_and(|device| *device != "cpu");
    let mut figures = probe.figures(is_on_device);
    for (key, value) in of_data.as_object().unwrap() {
        figures[key] = value.clone();
    }
    figures["peak_mib"] = json!(process::peak_mib());
    figures
}

/// Waiting for batches, and their copies to a device.
#[expect(clippy::cast_precision_loss, reason = "few steps")]
fn data_figures(report: &TrainReport, steps: u64) -> Value {
    let performance = report.performance.as_ref();
    let waited = performance.map(|performance| performance.step_time.data_wait_s);
    let copied = copies::figures();
    json!({
        "data_wait_share": report.data_wait_share,
        "data_wait_ms_per_step": waited.map(|waited| waited * 1e3 / steps as f64),
        "copy_bytes": copied.map(|[bytes, _]| bytes),
        "copy_bytes_per_s": copied.map(|[_, rate]| rate),
    })
}

/// Resource use at the end of a step.
#[derive(Clone, Debug)]
struct Mark {
    wall: Duration,
    cpu: [f64; 2],
    threads: BTreeMap<String, f64>,
}

impl Mark {
    fn now() -> Self {
        Self {
            wall: SystemClock.monotonic(),
            cpu: process::cpu_seconds(),
            threads: process::cpu_seconds_by_thread(),
        }
    }

    /// Milliseconds of each thread until `end`, the largest first, and the sum without those of a software device.
    fn thread_ms(&self, end: &Self, steps: f64, is_on_device: bool) -> (Vec<(String, f64)>, f64) {
        let spent = |(name, seconds): (&String, &f64)| {
            let begin = self.threads.get(name).copied().unwrap_or(0.0);
            (name.clone(), (seconds - begin) * 1e3 / steps)
        };
        let mut threads: Vec<(String, f64)> = end.threads.iter().map(spent).collect();
        threads.sort_by(|a, b| b.1.total_cmp(&a.1));
        let of_device = |name: &str| is_on_device && SOFTWARE_DEVICE.contains(&name);
        let of_host = threads.iter().filter(|(name, _)| !of_device(name));
        let of_host = of_host.map(|(_, ms)| ms).sum();
        (threads, of_host)
    }
}

/// Notes what has been used at the ends of the steps that are timed.
#[derive(Debug)]
struct Probe {
    last: u64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    marks: Vec<Mark>,
    losses: Vec<f64>,
    memory: Vec<f64>,
}

impl Probe {
    fn new(last: u64) -> Self {
        Self {
            last,
            seen: Mutex::default(),
        }
    }

    fn step(&self, step: u64, loss: f64) {
        let mut seen = self.seen.lock().unwrap();
        seen.losses.push(loss);
        if step == WARM || step == self.last {
            seen.marks.push(Mark::now());
        }
        if LOOKS.contains(&step) {
            seen.memory.push(process::resident_mib());
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "few steps")]
    fn figures(&self, is_on_device: bool) -> Value {
        let seen = self.seen.lock().unwrap();
        let [begin, end] = seen.marks.as_slice() else {
            unreachable!("two marks are set")
        };
        let steps = (self.last - WARM) as f64;
        let per_step = |i: usize| (end.cpu[i] - begin.cpu[i]) * 1e3 / steps;
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let tail = seen.losses.len().saturating_sub(20);
        let (threads, of_host) = begin.thread_ms(end, steps, is_on_device);
        json!({
            "steps_per_s": steps / (end.wall - begin.wall).as_secs_f64(),
            "cpu_ms_per_step": per_step(0) + per_step(1),
            "kernel_ms_per_step": per_step(1),
            "host_ms_per_step": of_host,
            "thread_ms_per_step": threads,
            "loss_first": seen.losses[0],
            "loss_last": mean(&seen.losses[tail..]),
            "mib_at_500": seen.memory.first(),
            "mib_at_5000": seen.memory.get(1),
        })
    }
}

impl Progress for Probe {
    fn report(&self, event: Event<'_>) {
        if event.stage != "train" {
            return;
        }
        let loss = event.note.rsplit(' ').next().unwrap();
        self.step(event.done, loss.parse().unwrap());
    }
}
