//! Estimated and actual memory of a training: each runs in a process of its own, whose largest
//! resident set is read.

use std::{env, fs, process::Command, sync::Arc};

use feedline_schemas::{
    config::{
        AverageConfig, ImagesConfig, LoaderSettings, ModelConfig, ModelKind, Precision, TrainConfig,
    },
    progress::Silent,
};
use feedline_storage::{Store, StoreOptions, clock::SystemClock};
use feedline_trainer::{Context, Group, Resume, summarize, train};
use tokio::runtime::Runtime;

use crate::dataset::{Kind, publish_rows};

/// A model, and the samples it learns from.
fn case(name: &str) -> (TrainConfig, Kind) {
    let model = |r#type| ModelConfig {
        r#type,
        ..ModelConfig::default()
    };
    let (model, batch_size, kind) = match name {
        "mlp" | "mlp-average" | "mlp-bf16" => {
            let hidden = Some(vec![1536, 1536, 1536]);
            let model = ModelConfig {
                hidden,
                ..model(ModelKind::Mlp)
            };
            (model, 1024, Kind::Regression)
        }
        "cnn" => (model(ModelKind::Cnn), 128, Kind::Images),
        "lstm" => {
            let model = ModelConfig {
                context: Some(128),
                width: Some(192),
                ..model(ModelKind::Lstm)
            };
            (model, 48, Kind::Tokens)
        }
        "transformer" | "transformer-again" | "transformer-bf16" => {
            let again = name == "transformer-again";
            let model = ModelConfig {
                context: Some(128),
                width: Some(192),
                heads: Some(6),
                layers: Some(4),
                checkpoint: again.then(|| "*".to_owned()).into_iter().collect(),
                ..model(ModelKind::Transformer)
            };
            (model, 32, Kind::Tokens)
        }
        other => unreachable!("there is no case {other}"),
    };
    let config = TrainConfig {
        model,
        batch_size,
        epochs: 2,
        images: ImagesConfig {
            height: 48,
            width: 48,
            ..ImagesConfig::default()
        },
        precision: if name.ends_with("bf16") {
            Precision::Bf16
        } else {
            Precision::F32
        },
        average: name.ends_with("average").then(AverageConfig::default),
        loader: LoaderSettings {
            domains: 1,
            window_blocks: 2,
            ..LoaderSettings::default()
        },
        ..TrainConfig::default()
    };
    (config, kind)
}

fn status_kib(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn train_and_print_the_peak() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the other test says what to train"
    )]
    let name = env::var("FEEDLINE_MEMORY_CASE").unwrap();
    let (config, kind) = case(&name);
    let folder = tempfile::tempdir().unwrap();
    let store = |path: &str| {
        let url = folder.path().join(path);
        Store::open(url.to_str().unwrap(), &StoreOptions::default()).unwrap()
    };
    let context = Context {
        dataset: store("dataset"),
        runs: store("train"),
        weights: None,
        progress: Arc::new(Silent),
        clock: Arc::new(SystemClock),
        stop: Arc::default(),
        group: Group::alone(),
    };
    let rows = match kind {
        Kind::Tokens => [1100, 100, 100],
        Kind::Images => [256, 50, 50],
        _ => [2048, 100, 100],
    };
    Runtime::new()
        .unwrap()
        .block_on(publish_rows(&context.dataset, kind, rows));
    let estimate = summarize(&config, &context).unwrap().memory;
    let before = status_kib("VmRSS:");
    train(&config, Resume::Fresh, &context).unwrap();
    let peak = status_kib("VmHWM:");
    println!("{estimate:?}");
    println!("memory {} {}", estimate.total() >> 10, peak - before);
}

/// KiB that were estimated, and taken.
fn measured(case: &str) -> [f64; 2] {
    let mut process = Command::new(env::current_exe().unwrap());
    let process = process
        .args(["--exact", "memory::train_and_print_the_peak"])
        .args(["--ignored", "--nocapture"])
        .env("FEEDLINE_MEMORY_CASE", case);
    let output = process.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("memory "));
    assert!(
        line.is_some(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let line = line.unwrap_or_default();
    let numbers: Vec<f64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
    [numbers[0], numbers[1]]
}

#[test]
fn estimates_are_near_what_is_taken() {
    for case in [
        "mlp",
        "mlp-average",
        "mlp-bf16",
        "cnn",
        "lstm",
        "transformer",
        "transformer-again",
        "transformer-bf16",
    ] {
        let [estimated, taken] = measured(case);
        let ratio = taken / estimated;
        assert!(
            (0.6..1.4).contains(&ratio),
            "{case}: {estimated} KiB estimated, {taken} KiB taken"
        );
    }
}
