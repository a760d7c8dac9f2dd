//! A process may die at any instant; the next one resumes, and the result is that of a process that
//! never died.

use std::{collections::BTreeSet, env, fs, path::Path, thread, time::Duration};

use feedline_storage::clock::{Clock as _, SystemClock};
use serde_json::Value;

use crate::support::{Random, count_files, files, kill_when, pipeline, run, start};

/// Kills of one landing zone.
const KILLS: u64 = 50;
/// Landing zones that are killed at the same time, so that programs disturb each other.
const AT_ONCE: u64 = 2;

/// Kills in all: `FEEDLINE_INGEST_KILLS`, rounded up to whole zones; by default one zone's.
fn zones() -> u64 {
    let asked = env::var_os("FEEDLINE_INGEST_KILLS");
    let kills: u64 = asked.map_or(KILLS, |text| text.to_str().unwrap().parse().unwrap());
    kills.div_ceil(KILLS)
}

/// 40 pages of 10 records for each kill, misbehaving but quickly so.
fn source(kills: u64) -> String {
    INGEST.replace("ROWS", &(400 * kills).to_string())
}

const INGEST: &str = r#"
[pipeline]
name = "kills"
root = "out"

[[source]]
name = "market"
type = "rest"
url = "demo://market?seed=11&rows=ROWS&page_size=10"
records = "data.items"
pagination = { type = "cursor", cursor_param = "cursor", cursor_path = "paging.next_cursor" }
batch = { rows = 100, dedup_window = 1000 }
retry = { base_ms = 1, cap_ms = 5 }
"#;

#[test]
fn fault_03_ingest_killed_at_random_points_lands_what_an_undisturbed_run_lands() {
    let text = source(KILLS);
    let undisturbed = tempfile::tempdir().unwrap();
    run(
        undisturbed.path(),
        &["ingest", pipeline(undisturbed.path(), &text), "--json"],
    )
    .expect(0);
    let expected = landing(&undisturbed.path().join("out/landing/market"));
    let batches: u64 = expected.entries.len().try_into().unwrap();
    assert!(batches >= 4 * KILLS, "{batches}");

    // Many zones rather than a long one: each start reads the whole log, and the points are no others in a longer one.
    let (zones, text, expected) = (zones(), &text, &expected);
    let mut starts: Vec<Duration> = thread::scope(|scope| {
        let runners = (0..AT_ONCE.min(zones)).map(|runner| {
            let mine = (runner..zones).step_by(usize::try_from(AT_ONCE).unwrap());
            scope.spawn(move || {
                mine.flat_map(|zone| killed_fifty_times(text, expected, zone))
                    .collect::<Vec<_>>()
            })
        });
        let runners: Vec<_> = runners.collect();
        runners
            .into_iter()
            .flat_map(|runner| runner.join().unwrap())
            .collect()
    });
    starts.sort();
    let slowest = starts.last().copied().unwrap_or_default();
    let median = starts.get(starts.len() / 2).copied().unwrap_or_default();
    eprintln!(
        "up to {} kills in {zones} landing zones of {batches} batches, {} files equal in each; from {} starts to the first new \
         commit: median {} ms, slowest {} ms",
        zones * KILLS,
        expected.files.len(),
        starts.len(),
        median.as_millis(),
        slowest.as_millis()
    );
}

/// Kills an ingest again and again at points drawn from `seed`, and holds what it lands to `expected`. Returns how long the
/// starts took that came to a new commit.
fn killed_fifty_times(text: &str, expected: &Landing, seed: u64) -> Vec<Duration> {
    let batches: u64 = expected.entries.len().try_into().unwrap();
    let killed = tempfile::tempdir().unwrap();
    let file = pipeline(killed.path(), text);
    let zone = killed.path().join("out/landing/market");
    let log = zone.join("log");
    let mut random = Random(1 + seed);
    let mut starts = Vec::new();
    for kill in 0..KILLS {
        // So many new commits, and then a moment longer: the points spread over the run and over the commit protocol.
        let before = count_files(&log);
        let target = before + random.below(batches / KILLS + 1);
        let delay = Duration::from_micros(random.below(15_000));
        let began = SystemClock.monotonic();
        let mut first = None;
        let child = start(killed.path(), &["ingest", file]);
        let was_killed = kill_when(child, delay, || {
            let commits = count_files(&log);
            if commits > before {
                first.get_or_insert_with(|| SystemClock.monotonic() - began);
            }
            commits >= target
        });
        starts.extend(first);
        if !was_killed {
            // On a busy machine the kills come late, and the batches are used up before them.
            assert!(
                kill > KILLS / 2,
                "zone {seed}: the run ended after {kill} kills"
            );
            break;
        }
    }
    let report = run(killed.path(), &["ingest", file, "--json"])
        .expect(0)
        .json();
    assert_eq!(report["batches"], batches, "zone {seed}");
    let found = landing(&zone);
    assert_eq!(found.entries, expected.entries, "zone {seed}");
    assert_eq!(found.files, expected.files, "zone {seed}");
    starts
}

/// Content of a landing zone, without fields that name a process.
#[derive(Debug, PartialEq)]
pub(crate) struct Landing {
    pub(crate) entries: Vec<Value>,
    /// Every file that an entry names, with its bytes.
    files: Vec<(String, Vec<u8>)>,
}

impl Landing {
    /// Number of the files in `folder`.
    pub(crate) fn files_in(&self, folder: &str) -> usize {
        let paths = self.files.iter().map(|(path, _)| path);
        paths.filter(|path| path.starts_with(folder)).count()
    }
}

/// Paths of all files that an entry of a log names, whatever they are for: an object with a path and a hash is one.
pub(crate) fn named_files(entry: &Value) -> BTreeSet<String> {
    match entry {
        Value::Object(object) => match (object.get("path"), object.get("hash")) {
            (Some(Value::String(path)), Some(_)) => [path.clone()].into(),
            _ => object.values().flat_map(named_files).collect(),
        },
        Value::Array(items) => items.iter().flat_map(named_files).collect(),
        _ => BTreeSet::new(),
    }
}

pub(crate) fn landing(zone: &Path) -> Landing {
    let (mut entries, mut named) = (Vec::new(), BTreeSet::new());
    for (path, bytes) in files(zone) {
        if !path.starts_with("log/") {
            continue;
        }
        let mut entry: Value = serde_json::from_slice(&bytes).unwrap();
        for key in ["run_id", "batch_id", "epoch", "prev_hash"] {
            entry.as_object_mut().unwrap().remove(key);
        }
        named.extend(named_files(&entry));
        entries.push(entry);
    }
    let files = named
        .into_iter()
        .map(|path| (path.clone(), fs::read(zone.join(path)).unwrap()))
        .collect();
    Landing { entries, files }
}

const BUILD: &str = r#"
[dataset]
target = "next_return"
drop = ["id"]
split = { key = ["id"] }
shards = { shard_bytes = "128 KiB", block_bytes = "8 KiB" }
"#;

#[test]
fn a_shard_build_killed_at_fifty_points_leaves_what_an_undisturbed_build_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(
        folder.path(),
        &format!(
            "{}{BUILD}",
            source(KILLS).replace("page_size=10", "page_size=500")
        ),
    );
    run(folder.path(), &["ingest", file]).expect(0);
    let dataset = folder.path().join("out/dataset");
    run(folder.path(), &["shards", "build", file]).expect(0);
    let expected = files(&dataset);
    fs::remove_dir_all(&dataset).unwrap();

    // Kills spread over the time an undisturbed build takes, found out from the kills that came too late.
    let mut random = Random(2);
    let (mut kills, mut longest) = (0, 400_000);
    while kills < KILLS {
        let delay = Duration::from_micros(random.below(longest));
        let child = start(folder.path(), &["shards", "build", file]);
        if kill_when(child, delay, || true) {
            kills += 1;
            assert_partial(&dataset);
            longest += 20_000;
        } else {
            assert_eq!(files(&dataset), expected);
            fs::remove_dir_all(&dataset).unwrap();
            longest = longest * 9 / 10;
        }
    }
    let report = run(folder.path(), &["shards", "build", file, "--json"])
        .expect(0)
        .json();
    assert_eq!(files(&dataset), expected);
    run(folder.path(), &["shards", "verify", "out/dataset"]).expect(0);
    eprintln!("{kills} kills, fingerprint {}", report["fingerprint"]);
}

/// Every file under its final name is complete: the dataset that `CURRENT` names can be read, and
/// verifies.
fn assert_partial(dataset: &Path) {
    if dataset.join("CURRENT").exists() {
        run(dataset, &["shards", "verify", "."]).expect(0);
    }
}

const TRAIN_KILLS: u64 = 20;
/// Trainings that end before their kill and are begun again, at most.
const MOST_ENDED: u64 = 5;

const TRAIN: &str = r#"
[train]
model = { type = "mlp", hidden = [32], dropout = 0.1 }
batch_size = 64
epochs = 60
patience = 0
checkpoint = { every_steps = 20 }
"#;

#[test]
fn training_killed_at_random_points_ends_with_the_weights_of_an_undisturbed_run() {
    let folder = tempfile::tempdir().unwrap();
    let data = source(KILLS)
        .replace("page_size=10", "page_size=500")
        .replace("rows=20000", "rows=6000");
    let file = pipeline(folder.path(), &format!("{data}{BUILD}{TRAIN}"));
    run(folder.path(), &["ingest", file]).expect(0);
    run(folder.path(), &["shards", "build", file]).expect(0);
    let train = folder.path().join("out/train");
    let undisturbed = run(folder.path(), &["train", file, "--json"])
        .expect(0)
        .json();
    let expected = weights(&train);
    assert!(!expected.is_empty());
    fs::remove_dir_all(&train).unwrap();

    let mut random = Random(3);
    let (mut kills, mut ended) = (0, 0);
    while kills < TRAIN_KILLS {
        // At least one more checkpoint each time, so that the lives add up; then a moment that may end anywhere.
        let checkpoints = written(&train);
        let delay = Duration::from_micros(random.below(40_000));
        let child = start(folder.path(), &["train", file, "--resume"]);
        if kill_when(child, delay, || written(&train) != checkpoints) {
            kills += 1;
            continue;
        }
        // On a busy machine the kills come late, and the training is over before the last ones.
        ended += 1;
        assert!(ended < MOST_ENDED, "training ended after {kills} kills");
        fs::remove_dir_all(&train).unwrap();
    }
    let list = run(folder.path(), &["runs", "list", file, "--json"])
        .expect(0)
        .json();
    let listed = &list["runs"][0];
    assert_eq!(listed["state"], "stopped", "{listed}");
    let checkpoint = listed["last_checkpoint"].as_u64().unwrap();
    assert!(
        checkpoint > 0 && listed["steps"].as_u64().unwrap() >= checkpoint,
        "{listed}"
    );
    let resumed = run(folder.path(), &["train", file, "--resume", "--json"])
        .expect(0)
        .json();
    let found = weights(&train);
    assert_eq!(names(&found), names(&expected), "after {TRAIN_KILLS} kills");
    for ((path, found), (_, expected)) in found.iter().zip(&expected) {
        assert!(
            found == expected,
            "`{path}` differs after {TRAIN_KILLS} kills"
        );
    }
    for key in ["steps", "test", "validation", "best_epoch"] {
        assert_eq!(resumed[key], undisturbed[key], "{key}");
    }
    eprintln!("{TRAIN_KILLS} kills, weights equal bit for bit");
}

/// The kept weights and the newest checkpoint: their whole files, since headers hold no times.
fn weights(train: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = files(train);
    found.retain(|(path, _)| path.ends_with(".safetensors"));
    found
}

fn names(files: &[(String, Vec<u8>)]) -> Vec<&str> {
    files.iter().map(|(path, _)| path.as_str()).collect()
}

fn written(train: &Path) -> BTreeSet<String> {
    files(train)
        .into_iter()
        .map(|(path, _)| path)
        .filter(|p| p.ends_with(".safetensors"))
        .collect()
}
