//! The runs of a folder: listed, found by the beginning of their names, compared.

mod comparison;

use std::collections::BTreeMap;

use feedline_schemas::{
    checkpoint::BestEpoch,
    config::TrainConfig,
    ids::{Epoch, Step},
    manifest::Split,
    run::{ContinuedFrom, RunRecord, RunState},
};
use feedline_storage::Store;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::comparison::{ComparedRun, Comparison, compare};
use crate::{
    checkpoint::{run_folder::is_abandoned, step_of},
    error::Error,
    evaluation::metrics::Metrics,
    reporting::{metrics_log, paths::RECORD_PATH, settings_of::differences},
};

/// Main metrics of a run; the first that it has is shown.
pub(crate) const MAIN: [&str; 3] = ["rmse", "accuracy", "perplexity"];

/// Alias of the finished run that was started last.
pub(crate) const NEWEST: &str = "newest";

/// Alias of the finished run with the lowest validation loss.
pub(crate) const BEST: &str = "best";

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedRun {
    /// Name.
    pub name: String,
    /// Its state.
    pub state: RunState,
    /// When it was first started, in milliseconds since 1970.
    pub started_ms: u64,
    /// Epochs finished.
    pub epochs: u64,
    /// Steps taken.
    pub steps: u64,
    /// Steps after which the newest checkpoint was written; absent where there is none, and for a finished run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checkpoint: Option<u64>,
    /// Epoch of the lowest validation loss, from 1, whose weights are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_epoch: Option<u64>,
    /// Lowest mean validation loss; absent before the first epoch's end.
    pub validation_loss: Option<f64>,
    /// Its main metric, such as `rmse`.
    pub metric: Option<String>,
    /// Value of that metric on the test split; absent before the run has finished.
    pub test: Option<f64>,
    /// Seed.
    pub seed: u64,
    /// Dataset folder that it was trained on.
    pub dataset: String,
    /// Fingerprint of that dataset's manifest.
    pub fingerprint: String,
    /// Rows of that dataset's training split; absent where the run's record does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// The checkpoint of another run that it began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continued_from: Option<ContinuedFrom>,
    /// Its values of the configuration keys that are not the same in all runs.
    pub differs: BTreeMap<String, String>,
}

/// All runs of a folder, newest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunList {
    /// The folder of runs.
    pub url: String,
    /// The runs.
    pub runs: Vec<ListedRun>,
}

/// Lists the runs of a folder as seen at `now_ms`. Folders without a record, as of older versions, are left out; records
/// that cannot be read are warned of. Of a run that was killed, epochs and steps are those of its log.
///
/// # Errors
/// [`Error::Storage`].
pub async fn list(runs: &Store, now_ms: u64) -> Result<RunList, Error> {
    let (records, checkpoints) = with_checkpoints(runs, now_ms).await?;
    let configs: Vec<&TrainConfig> = records.iter().map(|r| &r.config).collect();
    let differing = differing(&records.iter().collect::<Vec<_>>(), &configs);
    let of_run = |(i, record): (usize, &RunRecord)| {
        let own = differing
            .iter()
            .filter_map(|(key, values)| Some((key.clone(), values[i].clone()?)));
        let checkpoint = checkpoints.get(&record.name).copied();
        listed(record, own.collect(), checkpoint)
    };
    Ok(RunList {
        url: runs.url(),
        runs: records.iter().enumerate().map(of_run).collect(),
    })
}

/// Steps of the newest checkpoint of each run that has one.
async fn newest_checkpoints(runs: &Store) -> Result<BTreeMap<String, u64>, Error> {
    let mut newest = BTreeMap::new();
    for listed in runs.list("").await? {
        let found = listed.path.split_once('/');
        if let Some((run, step)) = found.and_then(|(run, path)| Some((run, step_of(path)?))) {
            let of_run: &mut u64 = newest.entry(run.to_owned()).or_default();
            *of_run = step.get().max(*of_run);
        }
    }
    Ok(newest)
}

fn listed(
    record: &RunRecord,
    differs: BTreeMap<String, String>,
    checkpoint: Option<u64>,
) -> ListedRun {
    let best = record.best.as_ref();
    let metric = MAIN.into_iter().find(|name| {
        record.test.contains_key(*name) || best.is_some_and(|b| b.metrics.contains_key(*name))
    });
    ListedRun {
        name: record.name.clone(),
        state: record.state,
        started_ms: record.started_ms,
        epochs: record.epochs,
        steps: record.step,
        last_checkpoint: checkpoint.filter(|_| record.state != RunState::Finished),
        best_epoch: best.map(BestEpoch::number),
        validation_loss: best.map(|best| best.loss),
        test: metric.and_then(|name| record.test.get(name).copied()),
        metric: metric.map(str::to_owned),
        seed: record.config.seed.get(),
        dataset: record.dataset.clone(),
        fingerprint: record.fingerprint.to_string(),
        rows: record.splits.get(&Split::Train).map(|split| split.rows),
        continued_from: record.continued_from.clone(),
        differs,
    }
}

/// The keys of the configuration that are not the same in all runs. The URL of a dataset is none of
/// them if all runs have the same.
fn differing(
    records: &[&RunRecord],
    configs: &[&TrainConfig],
) -> BTreeMap<String, Vec<Option<String>>> {
    let mut differing = differences(configs);
    if records
        .windows(2)
        .all(|pair| pair[0].fingerprint == pair[1].fingerprint)
    {
        differing.remove("dataset");
    }
    differing
}

/// The records of all runs of a folder, newest first.
pub(crate) async fn records(runs: &Store) -> Result<Vec<RunRecord>, Error> {
    let mut records: Vec<RunRecord> = Vec::new();
    for listed in runs.list("").await? {
        let path = &listed.path;
        if path
            .split_once('/')
            .is_none_or(|(_, file)| file != RECORD_PATH)
        {
            continue;
        }
        let bytes = runs.get(path).await?;
        match feedline_schemas::decode(&runs.url_of(path), &bytes) {
            Ok(record) => records.push(record),
            Err(error) => tracing::warn!(%error, "a run is left out of the list"),
        }
    }
    records.sort_by(|a, b| (b.started_ms, &b.name).cmp(&(a.started_ms, &a.name)));
    Ok(records)
}

/// The records of all runs of a folder, newest first, as seen at `now_ms`: one that says that it is running, and that no
/// process trains, has stopped, and has the steps, epochs and best epoch of its log and its checkpoints. A record is written
/// each [`HEARTBEAT_MS`](RunRecord::HEARTBEAT_MS), so that of a killed run may know less.
pub(crate) async fn reached(runs: &Store, now_ms: u64) -> Result<Vec<RunRecord>, Error> {
    Ok(with_checkpoints(runs, now_ms).await?.0)
}

/// As [`reached`], with the steps of the newest checkpoint of each run that has one.
async fn with_checkpoints(
    runs: &Store,
    now_ms: u64,
) -> Result<(Vec<RunRecord>, BTreeMap<String, u64>), Error> {
    let mut records = records(runs).await?;
    let checkpoints = newest_checkpoints(runs).await?;
    for record in &mut records {
        let folder = runs.child(&record.name);
        record.state = state_of(record, &folder, now_ms);
        if record.state == RunState::Stopped {
            let lines = folder.get_opt(metrics_log::PATH).await?.unwrap_or_default();
            take_log(record, &String::from_utf8_lossy(&lines));
            // A log has a line for some of the steps only.
            let checkpoint = checkpoints.get(&record.name).copied();
            record.step = record.step.max(checkpoint.unwrap_or_default());
        }
    }
    Ok((records, checkpoints))
}

/// The state of the run of a record and its folder, as seen at `now_ms`: one that says that it is running, and that no process
/// trains, has stopped.
pub(crate) fn state_of(record: &RunRecord, folder: &Store, now_ms: u64) -> RunState {
    match record.state == RunState::Running && is_abandoned(folder) {
        true => RunState::Stopped,
        false => record.state_at(now_ms),
    }
}

/// Puts into a record what a log knows and the record does not.
fn take_log(record: &mut RunRecord, lines: &str) {
    for line in lines.lines() {
        let Ok(line) = serde_json::from_str::<LogLine>(line) else {
            continue;
        };
        record.step = record.step.max(line.step.get());
        let is_epoch = line.kind == "epoch";
        let Some(loss) = line.validation_loss.filter(|_| is_epoch) else {
            continue;
        };
        record.epochs = record.epochs.max(line.epoch.next().get());
        if record.best.as_ref().is_none_or(|best| loss < best.loss) {
            let of_split = |(name, value): (String, Value)| {
                let name = name.strip_prefix("validation_")?.to_owned();
                Some((name, value.as_f64()?))
            };
            record.best = Some(BestEpoch {
                epoch: line.epoch,
                step: line.step,
                loss,
                metrics: line.numbers.into_iter().filter_map(of_split).collect(),
                baseline: Metrics::new(),
                worst: Vec::new(),
                diagnostics: None,
            });
        }
    }
}

/// A line of a log, as far as a list of runs reads it.
#[derive(Deserialize)]
struct LogLine {
    kind: String,
    step: Step,
    epoch: Epoch,
    validation_loss: Option<f64>,
    #[serde(flatten)]
    numbers: BTreeMap<String, Value>,
}

/// The run with the lowest validation loss.
///
/// # Errors
/// Text that says why there is none: no run was measured, or their losses are of different kinds.
pub(crate) fn best<'a>(records: &[&'a RunRecord]) -> Result<&'a RunRecord, String> {
    let measured = records.iter().filter(|record| record.best.is_some());
    let measured: Vec<&RunRecord> = measured.copied().collect();
    if let Some(other) = measured
        .iter()
        .find(|r| r.config.loss != measured[0].config.loss)
    {
        return Err(format!(
            "the losses of `{}` and `{}` are of different kinds (`train.loss`), so neither is the lower one; give a name",
            measured[0].name, other.name
        ));
    }
    let loss = |record: &RunRecord| record.best.as_ref().map_or(f64::INFINITY, |best| best.loss);
    let lowest = measured
        .into_iter()
        .min_by(|a, b| loss(a).total_cmp(&loss(b)));
    lowest.ok_or_else(|| "no run has a validation loss".to_owned())
}

/// The run whose name begins so, or that has this alias.
///
/// # Errors
/// [`Error::NoRun`].
pub(crate) fn find<'a>(
    all: &'a [RunRecord],
    begin: &str,
    runs: &Store,
) -> Result<&'a RunRecord, Error> {
    let finished = all.iter().filter(|r| r.state == RunState::Finished);
    let finished: Vec<&RunRecord> = finished.collect();
    let by_alias = match begin {
        NEWEST => Some(
            finished
                .first()
                .copied()
                .ok_or_else(|| "no run has finished".to_owned()),
        ),
        BEST => Some(best(&finished)),
        _ => None,
    };
    if let Some(found) = by_alias {
        return found.map_err(|reason| Error::NoRun {
            name: begin.to_owned(),
            url: runs.url(),
            reason,
        });
    }
    let found: Vec<&RunRecord> = all.iter().filter(|r| r.name.starts_with(begin)).collect();
    let names = |records: &mut dyn Iterator<Item = &RunRecord>| {
        let names: Vec<_> = records.map(|r| format!("`{}`", r.name)).take(5).collect();
        names.join(", ")
    };
    let reason = match found.as_slice() {
        [one] => return Ok(one),
        [] if all.is_empty() => "there is none yet; train first".to_owned(),
        [] => format!("none begins so; the newest are {}", names(&mut all.iter())),
        several => format!(
            "{} begin so: {}; give more of the name",
            several.len(),
            names(&mut several.iter().copied())
        ),
    };
    Err(Error::NoRun {
        name: begin.to_owned(),
        url: runs.url(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{Classified as _, ErrorKind, encode, ids::Seed, manifest::SplitContent};

    use super::*;
    use crate::{checkpoint::run_folder::runtime, testing::record};

    fn store(records: &[RunRecord]) -> Store {
        let store = Store::memory().child("train");
        runtime().unwrap().block_on(async {
            for record in records {
                let path = format!("{}/run.json", record.name);
                store.put(&path, encode(record).into()).await.unwrap();
            }
            let line = r#"{"kind":"epoch","step":4,"epoch":0,"train_loss":0.5,"validation_loss":0.4,"best":true}"#;
            store.put("aa11/metrics.jsonl", line.into()).await.unwrap();
            store.put("aa11/checkpoints/1.safetensors", "x".into()).await.unwrap();
            store.put("broken/run.json", "{".into()).await.unwrap();
        });
        store
    }

    fn three() -> [RunRecord; 3] {
        let [mut a, mut b, mut c] = ["aa11", "aa22", "bb33"].map(record);
        (a.started_ms, b.started_ms, c.started_ms) = (10, 30, 20);
        b.config.seed = Seed::new(7);
        b.test.clear();
        (b.state, c.state) = (RunState::Running, RunState::Running);
        (b.updated_ms, c.updated_ms) = (1_000_000, 1_000_000 - 60_001);
        [a, b, c]
    }

    #[test]
    fn runs_are_listed_newest_first_and_a_silent_one_has_stopped() {
        let store = store(&three());
        let found = runtime()
            .unwrap()
            .block_on(list(&store, 1_000_000))
            .unwrap();
        let seen: Vec<_> = found
            .runs
            .iter()
            .map(|r| (r.name.as_str(), r.state, r.test))
            .collect();
        assert_eq!(
            seen,
            [
                ("aa22", RunState::Running, None),
                ("bb33", RunState::Stopped, Some(2.0)),
                ("aa11", RunState::Finished, Some(2.0)),
            ]
        );
        let seeds = |run: &ListedRun| run.differs.get("seed").cloned();
        assert_eq!(
            found.runs.iter().map(seeds).collect::<Vec<_>>(),
            ["7", "0", "0"].map(|s| Some(s.to_owned()))
        );
        assert_eq!(found.runs[0].differs.len(), 1);
    }

    #[test]
    fn a_killed_run_has_the_steps_and_epochs_of_its_log_and_its_newest_checkpoint() {
        let place = tempfile::tempdir().unwrap();
        let url = place.path().join("train").display().to_string();
        let store = Store::open(&url, &feedline_storage::StoreOptions::default()).unwrap();
        let runtime = runtime().unwrap();
        let mut killed = record("aa11");
        (killed.state, killed.step, killed.epochs) = (RunState::Running, 0, 0);
        (killed.best, killed.updated_ms) = (None, 1_000_000);
        killed.test.clear();
        let lines = concat!(
            r#"{"kind":"epoch","step":4,"epoch":0,"train_loss":0.5,"validation_loss":0.4,"best":true,"validation_rmse":3.0}"#,
            "\n",
            r#"{"kind":"epoch","step":8,"epoch":1,"train_loss":0.4,"validation_loss":0.3,"best":true,"validation_rmse":2.5}"#,
            "\n",
            r#"{"kind":"step","step":10,"epoch":2,"loss":0.5}"#,
            "\n",
            r#"{"kind":"st"#,
        );
        runtime.block_on(async {
            let put = async |path: &str, bytes: Vec<u8>| {
                let path = format!("aa11/{path}");
                store.put(&path, bytes.into()).await.unwrap();
            };
            put("run.json", encode(&killed)).await;
            put("metrics.jsonl", lines.into()).await;
            put("checkpoints/step-00000004.safetensors", vec![0]).await;
            put("checkpoints/step-00000012.safetensors", vec![0]).await;
            put("checkpoints/step-00000099.safetensors.part", vec![0]).await;
        });
        let seen = || {
            let found = runtime.block_on(list(&store, 1_000_000)).unwrap();
            let run = found.runs.into_iter().next().unwrap();
            (
                run.state,
                run.epochs,
                run.steps,
                run.last_checkpoint,
                run.best_epoch,
            )
        };
        // As long as a process trains it, its record is what it says.
        let folder = std::fs::File::open(place.path().join("train/aa11")).unwrap();
        folder.lock().unwrap();
        assert_eq!(seen(), (RunState::Running, 0, 0, Some(12), None));
        drop(folder);
        assert_eq!(seen(), (RunState::Stopped, 2, 12, Some(12), Some(2)));
        let names = ["aa11".to_owned()];
        let found = runtime.block_on(compare(&store, &names, 1_000_000));
        let found = found.unwrap();
        assert_eq!(found.runs[0].state, RunState::Stopped);
        assert_eq!(found.metrics["validation_rmse"], [Some(2.5)]);
        assert_eq!(found.metrics["steps"], [Some(12.0)]);
    }

    fn content(rows: u64) -> BTreeMap<Split, SplitContent> {
        let hash = feedline_schemas::ids::Hash128::new(u128::from(rows));
        let content = SplitContent { rows, hash };
        [Split::Validation, Split::Test]
            .map(|split| (split, content))
            .into()
    }

    #[test]
    fn metrics_of_different_test_sets_are_said_not_to_compare() {
        let records = |change: fn(&mut RunRecord)| {
            let [mut a, mut b] = ["aa11", "bb22"].map(record);
            (a.splits, b.splits) = (content(147), content(147));
            a.config.dataset = Some("elsewhere".to_owned());
            change(&mut b);
            let store = store(&[a, b]);
            let names = ["aa11", "bb22"].map(str::to_owned);
            runtime()
                .unwrap()
                .block_on(compare(&store, &names, 1_000_000))
                .unwrap()
        };
        let same = records(|_| {});
        assert!(
            same.warnings.is_empty() && same.config.is_empty(),
            "{same:?}"
        );
        assert!(!same.html().contains(">dataset<"));
        let grown = records(|b| b.fingerprint = feedline_schemas::ids::Hash128::new(2));
        assert!(grown.warnings.is_empty() && grown.config.contains_key("dataset"));
        assert!(grown.html().contains(">dataset<"));
        let unlike = records(|b| {
            b.fingerprint = feedline_schemas::ids::Hash128::new(2);
            b.splits = content(286);
        });
        let codes: Vec<&str> = unlike.warnings.iter().map(|w| w.code.as_str()).collect();
        assert_eq!(codes, ["different_test_sets", "different_validation_sets"]);
        let message = &unlike.warnings[0].message;
        assert!(
            message.contains("`aa11`: 147 rows, `bb22`: 286 rows"),
            "{message}"
        );
        assert!(unlike.html().contains("do not compare"));
        let landed_again = records(|b| {
            b.fingerprint = feedline_schemas::ids::Hash128::new(2);
            for split in b.splits.values_mut() {
                split.hash = feedline_schemas::ids::Hash128::new(9);
            }
        });
        let (code, message) = {
            let warning = &landed_again.warnings[0];
            (warning.code.as_str(), &warning.message)
        };
        assert_eq!(code, "maybe_different_test_sets");
        let rows = "do not compare if they are: `aa11`: 147 rows, `bb22`: 147 rows in other shards: \
                    the same rows that landed again, or other rows;";
        assert!(message.contains(rows), "{message}");
        let old = records(|b| {
            b.fingerprint = feedline_schemas::ids::Hash128::new(2);
            b.splits.clear();
        });
        assert_eq!(old.warnings[0].code, "maybe_different_test_sets");
    }

    #[test]
    fn aliases_name_finished_runs_and_losses_of_different_kinds_have_no_lowest() {
        let [mut a, mut b, c] = ["aa11", "bb22", "cc33"].map(record);
        (a.started_ms, b.started_ms) = (9, 8);
        b.best.as_mut().unwrap().loss = 0.1;
        let running = RunRecord {
            state: RunState::Running,
            ..c
        };
        let all = [running, a, b];
        let named = |all: &[RunRecord], name: &str| {
            find(all, name, &Store::memory()).map(|record| record.name.clone())
        };
        assert_eq!(named(&all, "newest").unwrap(), "aa11");
        assert_eq!(named(&all, "best").unwrap(), "bb22");
        let mut unlike = all.clone();
        unlike[2].config.loss.r#type = Some(feedline_schemas::config::LossKind::Mae);
        let error = named(&unlike, "best").unwrap_err().to_string();
        assert!(error.contains("of different kinds"), "{error}");
        let error = named(&all[..1], "newest").unwrap_err().to_string();
        assert!(error.contains("no run has finished"), "{error}");
    }

    #[test]
    fn f1_names_its_class_where_runs_are_compared() {
        let [mut a, mut b, _] = three();
        for record in [&mut a, &mut b] {
            record.classes = vec!["no".into(), "yes".into()];
            let best = record.best.as_mut().unwrap();
            best.metrics.insert("f1".into(), 0.5);
        }
        let store = store(&[a, b]);
        let names = ["aa11".to_owned(), "aa22".to_owned()];
        let found = runtime().unwrap().block_on(compare(&store, &names, 0));
        let found = found.unwrap();
        let metrics = found.ordered_metrics();
        let names: Vec<&str> = metrics.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"validation_f1 of \"yes\""), "{names:?}");
        assert!(found.html().contains("validation_f1 of"));
    }

    #[test]
    fn the_best_value_is_marked_and_datasets_are_named_only_where_they_differ() {
        let [mut a, mut b, c] = three();
        a.test = Metrics::from([("rmse".into(), 2.0), ("r2".into(), 0.5)]);
        b.test = Metrics::from([("rmse".into(), 1.0), ("r2".into(), 0.9)]);
        let page = |a: &RunRecord, b: &RunRecord| {
            let store = store(&[a.clone(), b.clone(), c.clone()]);
            let names = ["aa11".to_owned(), "aa22".to_owned()];
            let found = runtime().unwrap().block_on(compare(&store, &names, 1));
            found.unwrap().html()
        };
        let equal = page(&a, &b);
        for (name, worse, better) in [("rmse", "2", "1"), ("r2", "0.5000", "0.9000")] {
            let line = format!(
                "<th scope=\"row\">test_{name}</th><td class=\"number\">{worse}</td><td \
                 class=\"number\"><strong>{better} ★</strong></td>"
            );
            assert!(equal.contains(&line), "{line}: {equal}");
        }
        // Both have the same validation loss.
        assert_eq!(equal.matches("★</strong>").count(), 2, "{equal}");
        assert!(!equal.contains("<th scope=\"row\">dataset</th>"), "{equal}");
        b.fingerprint = feedline_schemas::ids::Hash128::new(9);
        let other = page(&a, &b);
        assert!(!other.contains("★</strong>") && other.contains("The datasets differ"));
        assert!(other.contains("<th scope=\"row\">dataset</th>"), "{other}");
    }

    #[test]
    fn a_unique_beginning_names_a_run_and_any_other_is_refused() {
        let store = store(&three());
        let compare = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            runtime()
                .unwrap()
                .block_on(compare(&store, &names, 1_000_000))
        };
        let found = compare(&["aa1", "b"]).unwrap();
        assert_eq!(
            (found.runs[0].name.as_str(), found.runs[1].name.as_str()),
            ("aa11", "bb33")
        );
        assert!(found.config.is_empty());
        assert_eq!(found.metrics["test_rmse"], [Some(2.0), Some(2.0)]);
        assert_eq!(found.runs[0].curves.epochs.len(), 1);
        let metrics = found.ordered_metrics();
        let names: Vec<&str> = metrics.iter().map(|(name, _)| name.as_str()).collect();
        let (validation, rest) = names.split_at(2);
        assert_eq!(validation, ["validation_loss", "validation_rmse"]);
        assert_eq!(rest, ["epochs", "steps", "test_rmse"]);
        let page = found.html();
        assert!(page.contains("All keys are the same") && !page.contains("★</strong>"));
        assert!(page.contains("aa11") && page.contains("Validation loss") && !page.contains("NaN"));
        let found = compare(&["aa11", "aa22"]).unwrap();
        assert_eq!(
            found.config["seed"],
            [Some("0".to_owned()), Some("7".to_owned())]
        );
        assert_eq!(found.metrics["test_rmse"], [Some(2.0), None]);
        for (name, words) in [
            ("aa", "2 begin so: `aa22`, `aa11`"),
            ("x", "none begins so; the newest are `aa22`"),
        ] {
            let error = compare(&[name]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
