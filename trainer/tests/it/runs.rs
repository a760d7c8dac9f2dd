//! Whole runs.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use feedline_schemas::{
    Classified as _, ErrorKind,
    config::{
        InitConfig, LoaderSettings, LoraConfig, ModelConfig, Precision, ScheduleConfig, TrainConfig,
    },
    ids::Seed,
    manifest::Split,
    progress::{Event, Progress, Silent},
    run::{RunRecord, RunState},
};
use feedline_storage::{Effect, Faults, Operation, Rule, Store, StoreOptions, clock::SystemClock};
use feedline_trainer::{
    Context, Error, ExportOptions, Group, Resume, evaluate, export, train, weights_file,
};
use tokio::runtime::Runtime;

use crate::dataset::{Kind, publish, publish_rows};

pub(crate) fn config() -> TrainConfig {
    TrainConfig {
        model: ModelConfig {
            hidden: Some(vec![24, 24]),
            ..ModelConfig::default()
        },
        batch_size: 64,
        epochs: 30,
        seed: Seed::new(3),
        learning_rate: 0.01,
        schedule: ScheduleConfig {
            warmup_steps: Some(10),
            ..ScheduleConfig::default()
        },
        ..TrainConfig::default()
    }
}

/// Runs what a store needs on a runtime of its own: the trainer blocks and must not be called from one.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    Runtime::new().unwrap().block_on(future)
}

pub(crate) fn context(kind: Kind) -> Context {
    let dataset = Store::memory();
    block_on(publish(&dataset, kind));
    Context {
        dataset,
        runs: Store::memory().child("train"),
        weights: None,
        progress: Arc::new(Silent),
        clock: Arc::new(SystemClock),
        stop: Arc::default(),
        group: Group::alone(),
    }
}

pub(crate) fn contents(store: &Store) -> BTreeMap<String, Vec<u8>> {
    block_on(async {
        let mut found = BTreeMap::new();
        for listed in store.list("").await.unwrap() {
            let bytes = store.get(&listed.path).await.unwrap();
            found.insert(listed.path, bytes.to_vec());
        }
        found
    })
}

/// Sets the stop flag at each of these steps.
#[derive(Debug)]
pub(crate) struct StopAt {
    pub(crate) steps: Vec<u64>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) seen: AtomicU64,
}

impl Progress for StopAt {
    fn report(&self, event: Event<'_>) {
        if event.stage == "train" {
            self.seen.store(event.done, Ordering::Relaxed);
            if self.steps.contains(&event.done) {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn regression_reports_errors_in_the_units_of_the_target() {
    let context = context(Kind::Regression);
    let report = train(&config(), Resume::Fresh, &context).unwrap();
    assert!(
        (10.0..25.0).contains(&report.baseline["rmse"]),
        "{report:?}"
    );
    assert!(
        report.test["rmse"] < 0.2 * report.baseline["rmse"],
        "{report:?}"
    );
    assert_eq!(
        (report.seed, report.parameters),
        (3, 3 * 24 + 24 + 24 * 24 + 24 + 24 + 1)
    );
    assert!((0.0..=1.0).contains(&report.data_wait_share));

    let evaluated = evaluate(&config(), Split::Test, &context).unwrap();
    assert_eq!(
        (&evaluated.metrics, &evaluated.baseline),
        (&report.test, &report.baseline)
    );
    assert_eq!(
        (evaluated.rows, evaluated.checkpoint),
        (100, report.checkpoint)
    );
    let validation = evaluate(&config(), Split::Validation, &context).unwrap();
    assert_eq!(validation.metrics, report.validation);
}

#[test]
fn classification_reports_accuracy() {
    let report = train(&config(), Resume::Fresh, &context(Kind::Classification)).unwrap();
    assert!(
        report.test["accuracy"] > 0.9 && report.baseline["accuracy"] < 0.8,
        "{report:?}"
    );
    assert!(
        report.test["cross_entropy"] < report.baseline["cross_entropy"],
        "{report:?}"
    );
}

#[test]
fn a_run_on_the_local_disk_stopped_at_many_steps_ends_with_the_same_bits() {
    let undisturbed = context(Kind::Regression);
    let mut config = TrainConfig {
        epochs: 3,
        ..config()
    };
    config.model.dropout = 0.2;
    let expected = train(&config, Resume::Fresh, &undisturbed).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let runs = Store::open(&folder.path().to_string_lossy(), &StoreOptions::default()).unwrap();
    let steps = vec![1, 4, 5, 6, 10, 14];
    for _ in &steps {
        let stop = Arc::new(AtomicBool::new(false));
        let progress = Arc::new(StopAt {
            steps: steps.clone(),
            stop: Arc::clone(&stop),
            seen: AtomicU64::new(0),
        });
        let dataset = undisturbed.dataset.clone();
        let context = Context {
            dataset,
            runs: runs.clone(),
            weights: None,
            progress,
            stop,
            ..undisturbed.clone()
        };
        let error = train(&config, Resume::Continue, &context).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    }
    let context = Context {
        runs: runs.clone(),
        ..undisturbed.clone()
    };
    let report = train(&config, Resume::Continue, &context).unwrap();
    assert_eq!(
        (report.test, report.validation),
        (expected.test, expected.validation)
    );
    let best = |store: &Store| {
        let files = contents(store).into_iter();
        let mut best = files.filter(|(path, _)| {
            path.ends_with("best.safetensors") || path.ends_with("00000015.safetensors")
        });
        (best.next().unwrap(), best.next().unwrap())
    };
    assert!(best(&runs) == best(&undisturbed.runs));
}

#[test]
fn nothing_to_evaluate_says_train_first() {
    let error = evaluate(&config(), Split::Test, &context(Kind::Regression)).unwrap_err();
    assert!(matches!(error, Error::NoCheckpoint { .. }), "{error}");
}

#[test]
fn an_unfinished_run_is_evaluated_at_its_best_so_far() {
    let base = context(Kind::Regression);
    let progress = Arc::new(StopAt {
        steps: vec![13],
        stop: Arc::clone(&base.stop),
        seen: AtomicU64::new(0),
    });
    assert!(
        train(
            &config(),
            Resume::Fresh,
            &Context {
                progress,
                ..base.clone()
            }
        )
        .is_err()
    );
    base.stop.store(false, Ordering::Relaxed);
    let evaluated = evaluate(&config(), Split::Validation, &base).unwrap();
    assert!(
        evaluated.checkpoint.ends_with("best.safetensors"),
        "{evaluated:?}"
    );
}

#[test]
fn a_killed_run_is_stopped_for_evaluation_before_it_misses_heartbeats() {
    let place = tempfile::tempdir().unwrap();
    let url = place.path().join("train").display().to_string();
    let context = Context {
        runs: Store::open(&url, &StoreOptions::default()).unwrap(),
        ..context(Kind::Regression)
    };
    train(&config(), Resume::Fresh, &context).unwrap();
    let files = contents(&context.runs);
    let (path, bytes) = files
        .iter()
        .find(|(path, _)| path.ends_with("run.json"))
        .unwrap();
    let mut record: RunRecord = feedline_schemas::decode(path, bytes).unwrap();
    (record.state, record.updated_ms) = (RunState::Running, u64::MAX);
    let bytes = feedline_schemas::encode(&record);
    block_on(context.runs.put(path, bytes.into())).unwrap();
    let evaluated = evaluate(&config(), Split::Validation, &context).unwrap();
    let unfinished = evaluated.run.unwrap().unfinished;
    assert_eq!(unfinished, Some(RunState::Stopped));
}

#[test]
fn damaged_best_weights_are_taken_from_the_newest_checkpoint() {
    let context = context(Kind::Regression);
    let report = train(&config(), Resume::Fresh, &context).unwrap();
    let files = contents(&context.runs);
    let (path, bytes) = files
        .iter()
        .find(|(path, _)| path.ends_with("best.safetensors"))
        .unwrap();
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    block_on(context.runs.put(path, damaged.into())).unwrap();
    let evaluated = evaluate(&config(), Split::Test, &context).unwrap();
    assert_eq!(evaluated.metrics, report.test);
    assert!(
        evaluated.checkpoint.contains("/checkpoints/step-"),
        "{evaluated:?}"
    );
}

#[test]
fn a_dataset_that_cannot_be_trained_on_is_refused_before_anything_is_written() {
    let refused = |context: &Context| {
        let error = train(&config(), Resume::Fresh, context).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        assert_eq!(contents(&context.runs), BTreeMap::new());
        error.to_string()
    };
    assert!(refused(&context(Kind::None)).contains("dataset.target"));
    let empty = Context {
        dataset: Store::memory(),
        ..context(Kind::Regression)
    };
    assert!(refused(&empty).contains("there is no dataset in"));
    for (rows, split) in [
        ([0, 9, 9], "train"),
        ([9, 0, 9], "validation"),
        ([9, 9, 0], "test"),
    ] {
        let dataset = Store::memory();
        block_on(publish_rows(&dataset, Kind::Regression, rows));
        let message = refused(&Context {
            dataset,
            ..context(Kind::Regression)
        });
        assert!(message.contains(&format!("split `{split}`")), "{message}");
    }
}

#[test]
fn a_bad_configuration_is_refused_before_the_dataset_is_read() {
    let context = Context {
        dataset: Store::memory(),
        ..context(Kind::Regression)
    };
    let error = train(
        &TrainConfig {
            batch_size: 0,
            ..config()
        },
        Resume::Fresh,
        &context,
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "cannot use `train.batch_size`: it is 0 and must be at least 1"
    );
}

#[test]
fn a_bad_setting_of_the_loader_is_named_by_its_key() {
    let context = context(Kind::Regression);
    let with = |loader: LoaderSettings| TrainConfig { loader, ..config() };
    let slabs = LoaderSettings {
        slabs: 1,
        ..LoaderSettings::default()
    };
    let error = train(&with(slabs), Resume::Fresh, &context).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "cannot use `train.loader.slabs`: it is `1`, use `2` to `64`"
    );
    let deadline = LoaderSettings {
        deadline_s: 0,
        ..LoaderSettings::default()
    };
    let error = train(&with(deadline), Resume::Fresh, &context).unwrap_err();
    assert!(
        error.to_string().contains("`train.loader.deadline_s`"),
        "{error}"
    );
}

/// Fewer windows make another order, and so other weights; fewer threads do not.
#[test]
fn settings_of_the_loader_reach_it() {
    let metrics = |loader: LoaderSettings| {
        let config = TrainConfig { loader, ..config() };
        let report = train(&config, Resume::Fresh, &context(Kind::Regression)).unwrap();
        report.test
    };
    let plain = metrics(LoaderSettings::default());
    let threads = LoaderSettings {
        threads: 1,
        slabs: 2,
        ..LoaderSettings::default()
    };
    assert_eq!(metrics(threads), plain);
    let order = LoaderSettings {
        domains: 1,
        window_blocks: 1,
        ..LoaderSettings::default()
    };
    assert_ne!(metrics(order), plain, "another order");
}

#[test]
fn a_disk_that_stays_full_ends_the_run_and_room_lets_it_go_on() {
    let base = context(Kind::Regression);
    let config = TrainConfig {
        epochs: 3,
        ..config()
    };
    let expected = train(
        &config,
        Resume::Fresh,
        &Context {
            runs: Store::memory(),
            ..base.clone()
        },
    )
    .unwrap();
    let rule = Rule {
        operation: Operation::Put,
        path_contains: "checkpoints/".into(),
        skip: 1,
        times: u64::MAX,
        effect: Effect::Full,
    };
    let runs = base.runs.with_faults(Faults::new(vec![rule]));
    let error = train(
        &config,
        Resume::Fresh,
        &Context {
            runs,
            ..base.clone()
        },
    )
    .unwrap_err();
    assert!(
        matches!(&error, Error::Storage(storage) if storage.is_full()),
        "{error}"
    );
    let report = train(&config, Resume::Continue, &base).unwrap();
    assert_eq!(report.test, expected.test);
}

#[test]
fn a_damaged_shard_is_named() {
    let context = context(Kind::Regression);
    block_on(async {
        let path = "shards/train/0.arrow";
        let mut bytes = context.dataset.get(path).await.unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        context.dataset.put(path, bytes.into()).await.unwrap();
    });
    let error = train(&config(), Resume::Fresh, &context).unwrap_err();
    assert!(
        matches!(error, Error::Loader(_)) && error.to_string().contains("shards/train/0.arrow"),
        "{error}"
    );
}

#[test]
fn a_run_may_be_started_from_a_blocking_thread_of_a_runtime() {
    let context = context(Kind::Regression);
    let config = TrainConfig {
        epochs: 1,
        ..config()
    };
    let task = move || train(&config, Resume::Fresh, &context).unwrap();
    let report = block_on(async { tokio::task::spawn_blocking(task).await.unwrap() });
    assert_eq!(report.epochs, 1);
}

#[test]
fn a_run_that_begins_with_the_weights_of_another_predicts_the_same_to_the_bit() {
    let context = context(Kind::Classification);
    let first = train(&config(), Resume::Fresh, &context).unwrap();
    let best = contents(&context.runs).into_keys();
    let best: Vec<String> = best
        .filter(|path| path.ends_with("best.safetensors"))
        .collect();
    let (folder, name) = weights_file(&best[0]);
    let context = Context {
        weights: Some(context.runs.child(folder)),
        ..context
    };
    let config = TrainConfig {
        init: Some(all_of(&format!("memory:///{name}"))),
        epochs: 1,
        // Too small to move a weight.
        learning_rate: 1e-30,
        ..config()
    };
    let second = train(&config, Resume::Fresh, &context).unwrap();
    assert_eq!(second.test, first.test);
    assert_eq!(
        evaluate(&config, Split::Test, &context).unwrap().metrics,
        first.test
    );

    // A run from other bytes is another run.
    let other = contents(&context.runs)
        .into_keys()
        .filter(|path| path.ends_with("best.safetensors"));
    assert_eq!(other.count(), 2);
    let refused = TrainConfig {
        freeze: vec!["layer.*".into()],
        ..config
    };
    let error = train(&refused, Resume::Fresh, &context)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`train.freeze`: it names all parameters"),
        "{error}"
    );
}

/// Weights to begin with: all that a file holds.
fn all_of(url: &str) -> InitConfig {
    InitConfig {
        from: url.into(),
        rename: vec![],
        layout: None,
        strict: true,
        replace: vec![],
        classes: vec![],
        allow_other_transform: false,
    }
}

/// Reads a safetensors file with the Python library: the sum of each tensor by name. `None` without it.
fn sums_by_python(bytes: &[u8]) -> Option<BTreeMap<String, f64>> {
    const PROGRAM: &str = "import sys, json, safetensors.numpy as s\n\
        t = s.load(sys.stdin.buffer.read())\n\
        print(json.dumps({k: float(v.astype('float64').sum()) for k, v in t.items()}))";
    let python = std::env::var_os("FEEDLINE_PYTHON").unwrap_or_else(|| "python3".into());
    let process = std::process::Command::new(python)
        .args(["-c", PROGRAM])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut process = process.ok()?;
    std::io::Write::write_all(&mut process.stdin.take()?, bytes).ok()?;
    let output = process.wait_with_output().ok()?;
    output
        .status
        .success()
        .then(|| serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn adapters_are_trained_alone_and_an_export_with_them_merged_predicts_the_same() {
    let lora = TrainConfig {
        lora: Some(LoraConfig {
            rank: 2,
            dropout: 0.1,
            targets: vec!["layer.0".into(), "layer.1".into()],
            train: vec!["layer.2.*".into()],
            ..LoraConfig::default()
        }),
        precision: Precision::F32,
        ..config()
    };
    let context = context(Kind::Classification);
    let report = train(&lora, Resume::Fresh, &context).unwrap();
    let options = ExportOptions {
        merge_lora: true,
        ..ExportOptions::default()
    };
    let exported = export(&lora, None, options, &context).unwrap();
    assert!(exported.warnings.is_empty(), "{:?}", exported.warnings);
    let merged = exported.file;
    let names: Vec<String> = {
        let file = safetensors::SafeTensors::deserialize(&merged).unwrap();
        file.names().iter().map(ToString::to_string).collect()
    };
    assert!(
        names.iter().all(|name| !name.contains("lora")) && names.len() == 6,
        "{names:?}"
    );
    match sums_by_python(&merged) {
        Some(sums) => {
            let file = safetensors::SafeTensors::deserialize(&merged).unwrap();
            for (name, tensor) in file.iter() {
                let words = tensor.data().chunks_exact(4);
                let sum: f64 = words
                    .map(|word| f64::from(f32::from_le_bytes(word.try_into().unwrap())))
                    .sum();
                assert!((sums[name] - sum).abs() < 1e-9, "{name}");
            }
        }
        None => println!("skipped: Python has no safetensors"),
    }
    let weights = Store::memory();
    block_on(weights.put("merged.safetensors", merged.into())).unwrap();
    let context = Context {
        weights: Some(weights),
        ..context
    };
    let again = TrainConfig {
        init: Some(all_of("memory:///merged.safetensors")),
        epochs: 1,
        learning_rate: 1e-30,
        ..config()
    };
    let second = train(&again, Resume::Fresh, &context).unwrap();
    let mut warnings = second.warnings.iter();
    assert!(
        warnings.all(|warning| warning.code != "other_transform"),
        "{second:?}"
    );
    for (name, value) in &report.test {
        assert!((second.test[name] - value).abs() < 1e-5, "{name}");
    }
    let error = export(&again, None, options, &context)
        .unwrap_err()
        .to_string();
    assert!(error.contains("`train.lora`"), "{error}");
    // Exported as it is, it predicts the same to the bit.
    let plain = export(&again, None, ExportOptions::default(), &context).unwrap();
    block_on(
        context
            .weights
            .as_ref()
            .unwrap()
            .put("merged.safetensors", plain.file.into()),
    )
    .unwrap();
    let third = train(&again, Resume::Continue, &context).unwrap();
    assert_eq!(third.test, second.test);
}
