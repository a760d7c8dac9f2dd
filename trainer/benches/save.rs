//! Training time lost to a save: a model of 25 million parameters with Adam, in the page cache of a
//! local disk.
//!
//! `cargo bench -p feedline-trainer --bench save -- [STEPS [EVERY [BATCH]]]`, by default 60 steps of 256 rows with a
//! checkpoint after every 10. The stall of a save is the time that training waits for it: for the copy of the numbers,
//! and for the save before it where that is still under way. The copy is made beside the next step, so that one is also
//! compared with the others. Figures are medians over saves and steps; the first save, which is waited for, is left out.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::print_stdout, reason = "results are for a person")]

use std::{fs, path::Path, sync::Arc};

use feedline_schemas::{
    config::{ModelConfig, TrainConfig},
    progress::Silent,
    report::TrainReport,
};
use feedline_storage::{Store, StoreOptions, clock::SystemClock};
use feedline_testkit::{arguments::Arguments, learnable_dataset as dataset};
use feedline_trainer::{Context, Group, Resume, train};
use serde_json::Value;

/// Size of a bench.
struct BenchSize {
    /// Batches of the epoch.
    steps: u32,
    /// Steps between two checkpoints.
    every: u32,
    /// Rows of a batch.
    batch: u32,
}

fn main() {
    let given = Arguments::read();
    let size = BenchSize {
        steps: given.number(0, 60, 40),
        every: given.number(1, 10, 10),
        batch: given.number(2, 256, 16),
    };
    let folder = tempfile::tempdir().unwrap();
    publish_dataset(folder.path(), &size);
    let report = train_with_saves(folder.path(), &size);
    print_save_times(&report, &read_steps(&report), &size);
}

fn open_store(folder: &Path, name: &str) -> Store {
    let path = folder.join(name);
    Store::open(path.to_str().unwrap(), &StoreOptions::default()).unwrap()
}

fn publish_dataset(folder: &Path, size: &BenchSize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let rows = [size.steps * size.batch, 16, 16].map(|rows| usize::try_from(rows).unwrap());
    runtime.block_on(dataset::publish_rows(
        &open_store(folder, "dataset"),
        dataset::Kind::Regression,
        rows,
    ));
}

fn train_with_saves(folder: &Path, size: &BenchSize) -> TrainReport {
    let mut config = TrainConfig {
        model: ModelConfig {
            hidden: Some(vec![3072, 4096, 3072]),
            ..ModelConfig::default()
        },
        batch_size: size.batch,
        epochs: 1,
        log_every: 1,
        ..TrainConfig::default()
    };
    config.checkpoint.every_steps = size.every.into();
    let context = Context {
        dataset: open_store(folder, "dataset"),
        runs: open_store(folder, "train"),
        weights: None,
        progress: Arc::new(Silent),
        clock: Arc::new(SystemClock),
        stop: Arc::default(),
        group: Group::alone(),
    };
    train(&config, Resume::Fresh, &context).unwrap()
}

/// Lines of metrics of the steps of a run.
fn read_steps(report: &TrainReport) -> Vec<Value> {
    let text = fs::read_to_string(&report.metrics).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["kind"] == "step")
        .collect()
}

fn print_save_times(report: &TrainReport, lines: &[Value], size: &BenchSize) {
    let every = size.every;
    let number = |line: &Value, key: &str| line[key].as_f64().unwrap();
    let batch = f64::from(size.batch);
    let seconds: Vec<f64> = lines
        .iter()
        .map(|l| batch / number(l, "samples_per_s"))
        .collect();
    let step = median(seconds.iter().copied());
    let interval = usize::try_from(every).unwrap();
    let after = median(seconds[2 * interval..].iter().copied().step_by(interval));
    let stalls = lines.iter().map(|line| number(line, "save_stall_s"));
    let stalls: Vec<f64> = stalls.filter(|stall| *stall > 0.0).skip(1).collect();
    let (saves, stall) = (stalls.len(), median(stalls.into_iter()));
    println!(
        "{} parameters, a step of {:.0} ms, {saves} saves of {:.1} ms",
        report.parameters,
        step * 1e3,
        stall * 1e3
    );
    println!("save stall {:.2} % of step time", 100.0 * stall / step);
    println!(
        "the step after a save takes {:.1} % longer than others",
        100.0 * (after / step - 1.0)
    );
    println!(
        "save stall {:.3} % of training time, with a save every {every} steps",
        100.0 * stall / (step * f64::from(every))
    );
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
