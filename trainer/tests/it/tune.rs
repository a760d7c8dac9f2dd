//! Searches.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use feedline_schemas::{
    Classified as _, ErrorKind,
    config::{TrainConfig, TuneConfig, TuneValues},
    decode,
    progress::{Event, Progress},
    run::RunRecord,
};
use feedline_storage::Store;
use feedline_trainer::{
    Context, Error, Resume, train,
    tune::{TrialState, TuneReport, tune},
};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{
    dataset::Kind,
    runs::{contents, context},
};

const TWO: &str = r#"{"key":"train.learning_rate","low":1e-4,"high":0.1,"scale":"log"},
    {"key":"train.model.hidden","values":[[4],[16],[24,24]]}"#;

fn search(more: &str) -> TuneConfig {
    serde_json::from_str(&format!("{{\"parameter\":[{TWO}],{more}}}")).unwrap()
}

/// The base configuration with some keys changed.
fn make(values: &[(String, Value)]) -> Result<TrainConfig, (String, String)> {
    let base = TrainConfig {
        batch_size: 64,
        epochs: 6,
        log_every: 5,
        patience: 0,
        ..TrainConfig::default()
    };
    let mut json = serde_json::to_value(&base).unwrap();
    for (key, value) in values {
        // Keys that are not set are not written.
        let path = key.trim_start_matches("train.").split('.');
        *path.fold(&mut json, |at, key| &mut at[key]) = value.clone();
    }
    serde_json::from_value(json).map_err(|e| ("train".to_owned(), e.to_string()))
}

/// The lines of the best values.
fn section(values: &BTreeMap<String, Value>) -> String {
    let line = |(key, value): (&String, &Value)| format!("{key}: {value}\n");
    values.iter().map(line).collect()
}

/// A search in `folder` over the runs of `context`.
fn tuned(config: &TuneConfig, folder: &Store, context: &Context) -> Result<TuneReport, Box<Error>> {
    tune(config, &make, &section, folder, context).map_err(Box::new)
}

fn journal(folder: &Store) -> String {
    let files = contents(folder);
    let (_, bytes) = files
        .iter()
        .find(|(path, _)| path.ends_with("/journal.jsonl"))
        .unwrap();
    String::from_utf8(bytes.clone()).unwrap()
}

fn records(store: &Store) -> BTreeMap<String, RunRecord> {
    let files = contents(store).into_iter();
    let records = files.filter(|(path, _)| path.ends_with("/run.json"));
    records
        .map(|(path, bytes)| {
            (
                path.replace("/run.json", ""),
                decode(&path, &bytes).unwrap(),
            )
        })
        .collect()
}

#[test]
fn every_strategy_finds_the_best_of_its_trials_and_measures_it_alone_on_the_test_split() {
    for (more, trials) in [
        (
            r#""strategy":"random","trials":7,"metric":"rmse","early_stop":"none""#,
            7,
        ),
        (r#""strategy":"tpe","trials":13,"metric":"r2""#, 13),
        (
            r#""strategy":"grid","trials":15,"early_stop":"halving""#,
            15,
        ),
    ] {
        let (context, folder) = (context(Kind::Regression), Store::memory());
        let report = tuned(&search(more), &folder, &context).unwrap();
        assert_eq!(report.trials.len(), trials, "{more}");
        let sign = if report.metric == "r2" { -1.0 } else { 1.0 };
        let cost = |number: u64| {
            sign * report.trials[usize::try_from(number).unwrap()]
                .metric
                .unwrap()
        };
        for trial in report
            .trials
            .iter()
            .filter(|t| t.state == TrialState::Finished)
        {
            assert!(cost(trial.number) >= cost(report.best), "{more}: {trial:?}");
            assert_eq!(trial.epochs, 6);
        }
        let best = &report.trials[usize::try_from(report.best).unwrap()];
        for (name, record) in records(&context.runs) {
            assert_eq!(record.test.is_empty(), name != best.run, "{more}: {name}");
        }
        let values: Vec<_> = best.values.clone().into_iter().collect();
        let again = train(&make(&values).unwrap(), Resume::Continue, &context).unwrap();
        assert_eq!(again.test, report.train.test);
        assert_eq!(report.toml, section(&best.values));
        let files = contents(&folder);
        let (_, page) = files
            .iter()
            .find(|(path, _)| path.ends_with("/report.html"))
            .unwrap();
        let page = String::from_utf8_lossy(page);
        assert!(page.contains("train.learning_rate") && !page.contains("NaN"));
        assert!(page.contains(&format!("<code>{}</code>", report.toml.trim_end())));
    }
}

/// Sets the stop flag when this many steps and passes have been reported.
#[derive(Debug)]
struct StopAfter {
    left: Mutex<u64>,
    stop: Arc<AtomicBool>,
}

impl Progress for StopAfter {
    fn report(&self, event: Event<'_>) {
        if event.stage != "tune" {
            let mut left = self.left.lock().unwrap();
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn a_search_stopped_again_and_again_ends_with_the_journal_of_one_never_stopped() {
    let config = search(r#""trials":14,"metric":"rmse""#);
    let (undisturbed, expected) = (context(Kind::Regression), Store::memory());
    let report = tuned(&config, &expected, &undisturbed).unwrap();
    assert!(
        report.trials.iter().any(|t| t.state == TrialState::Stopped),
        "{report:?}"
    );

    let folder = Store::memory();
    let runs = Store::memory();
    let mut stops = 0_u64;
    let found = loop {
        let stop = Arc::new(AtomicBool::new(false));
        let left = Mutex::new(17 + stops * 7 % 23);
        let progress = Arc::new(StopAfter {
            left,
            stop: Arc::clone(&stop),
        });
        let context = Context {
            runs: runs.clone(),
            progress,
            stop,
            ..undisturbed.clone()
        };
        match tuned(&config, &folder, &context) {
            Ok(report) => break report,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}"),
        }
        stops += 1;
        assert!(stops < 500);
    };
    assert!(stops > 10, "{stops}");
    assert_eq!(journal(&folder), journal(&expected));
    assert_eq!(
        (found.best, &found.train.test),
        (report.best, &report.train.test)
    );
}

#[test]
fn trials_cannot_read_the_test_split_and_the_end_does() {
    let config = search(r#""strategy":"random","trials":3"#);
    let (context, folder) = (context(Kind::Regression), Store::memory());
    let runtime = Runtime::new().unwrap();
    let path = "shards/test/0.arrow";
    let shard = Runtime::new()
        .unwrap()
        .block_on(context.dataset.get(path))
        .unwrap();
    runtime.block_on(context.dataset.delete(path)).unwrap();
    let error = tuned(&config, &folder, &context).unwrap_err();
    assert!(error.to_string().contains(path), "{error}");
    let before = journal(&folder);
    assert_eq!(
        before.lines().count(),
        1 + 3,
        "all trials were made without it"
    );
    runtime.block_on(context.dataset.put(path, shard)).unwrap();
    let report = tuned(&config, &folder, &context).unwrap();
    assert!(report.train.test.contains_key("rmse"));
    assert_eq!(journal(&folder), before);
}

#[test]
fn more_trials_continue_a_search_and_another_search_is_its_own() {
    let (context, folder) = (context(Kind::Regression), Store::memory());
    let three = r#""strategy":"random","trials":3"#;
    tuned(&search(three), &folder, &context).unwrap();
    let before = journal(&folder);
    tuned(&search(&three.replace('3', "5")), &folder, &context).unwrap();
    assert!(journal(&folder).starts_with(&before));
    assert_eq!(journal(&folder).lines().count(), 6);
    tuned(&search(&format!("{three},\"seed\":1")), &folder, &context).unwrap();
    let journals = contents(&folder)
        .into_keys()
        .filter(|p| p.ends_with("journal.jsonl"));
    assert_eq!(journals.count(), 2);
}

#[test]
fn a_search_that_cannot_work_is_refused() {
    let (context, folder) = (context(Kind::Regression), Store::memory());
    let unknown = tuned(
        &search(r#""trials":2,"metric":"accuracy""#),
        &folder,
        &context,
    );
    let message = unknown.unwrap_err().to_string();
    assert!(
        message.contains("`tune.metric`") && message.contains("loss, mae, r2, rmse"),
        "{message}"
    );
    let coverage = search(r#""trials":2,"metric":"coverage""#);
    let message = tuned(&coverage, &folder, &context).unwrap_err().to_string();
    assert!(
        message.contains("`tune.metric`") && message.contains("compare `pinball`"),
        "{message}"
    );
    let mut bad = search(r#""trials":2"#);
    let TuneValues::Between(rates) = &mut bad.parameter[0].values else {
        panic!("{bad:?}")
    };
    rates.low = 1e-4;
    let widths = vec![Value::from(vec![8]), Value::from(vec![0])];
    bad.parameter[1].values = TuneValues::Listed(widths);
    let message = tuned(&bad, &folder, &context).unwrap_err().to_string();
    assert!(message.contains("`train.model.hidden`"), "{message}");
    bad.parameter[1].values = TuneValues::Listed(vec![Value::from("wide")]);
    let message = tuned(&bad, &folder, &context).unwrap_err().to_string();
    assert!(
        message.contains("`tune.parameter.0.key`") || message.contains("`tune.parameter.1.key`"),
        "{message}"
    );
    assert!(
        records(&context.runs).len() <= 1,
        "only the first search began a trial"
    );
}

#[test]
fn trials_that_fail_are_passed_over_and_none_left_is_an_error() {
    let (context, folder) = (context(Kind::Regression), Store::memory());
    let mut config = search(r#""strategy":"grid","trials":4"#);
    let values = |values: &[f64]| {
        let values = values.iter().map(|v| Value::from(*v));
        TuneValues::Listed(values.collect())
    };
    config.parameter.truncate(1);
    config.parameter[0].values = values(&[1e38, 0.01]);
    let failing = |values: &[(String, Value)]| {
        make(values).map(|c| TrainConfig {
            clip_norm: 0.0,
            ..c
        })
    };
    let report = tune(&config, &failing, &section, &folder, &context).unwrap();
    assert_eq!(
        (report.trials[0].state, report.best),
        (TrialState::Failed, 1)
    );
    config.parameter[0].values = values(&[1e38]);
    let error = tune(&config, &failing, &section, &folder, &context).unwrap_err();
    assert!(matches!(error, Error::NoTrial { trials: 1, .. }), "{error}");
}
