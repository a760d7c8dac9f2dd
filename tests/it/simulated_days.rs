//! Days of five sources on machines whose wall clocks jump. Suspends, kills and two writers lose
//! and double nothing, and no source waits longer than its server asked.
//!
//! The true time is a number of the test. The servers' content is a function of it, and each writer
//! has its own wall clock: the true time and an error, which may change while the writer runs.
//!
//! `FEEDLINE_SIMULATED_DAYS=30 cargo test --test it simulated_days` simulates a month.
//! `FEEDLINE_SIMULATED_SEED` chooses other faults.

mod inbox;
mod world;
mod writer;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs, mem,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use self::{
    inbox::{Inbox, set_modified},
    world::{
        DAY, EVENTS, Feed, HOUR, ITEMS, LONGEST_WAIT_S, ORDERS, START, World, daily_keys,
        start_servers,
    },
    writer::{Writer, draw_error, libfaketime},
};
use crate::support::{Finished, Random, pipeline, python, run, wait};

/// Default number of days; `FEEDLINE_SIMULATED_DAYS` overrides it.
const DAYS: u64 = 6;
/// Default seed; `FEEDLINE_SIMULATED_SEED` overrides it.
const SEED: u64 = 1;
/// A run counts clocks that differ by 300 s as equal; the rest is for the run itself.
const TOLERANCE_S: u64 = 310;
/// Longest time before a fault, in milliseconds: about as long as a run takes.
const LONGEST_PAUSE_MS: u64 = 150;

/// Errors of a writer beside another one. Real damage also stops the next run, which is alone.
const RACES: [&str; 4] = [
    "was written by another run",
    // The other writer has replaced this file, since its source has changed.
    "is damaged: it is missing",
    "is damaged: it is absent",
    // The other writer moves the file to the orphans, finds its entry, and moves it back.
    "does not exist",
];

/// A page number counts from the first page: what fills a short page after it was read is not found
/// by a run of pages that continues behind it. The lookback covers the time that this takes.
const PIPELINE: &str = r#"
[pipeline]
name = "days"
root = "out"

[[source]]
name = "events"
type = "rest"
url = "EVENTS/list"
records = "items"
pagination = { type = "page", page_size = 10 }
incremental = { cursor = "updated_at", param = "since", lookback = "5d" }
batch = { rows = 25 }
retry = { base_ms = 1, cap_ms = 5 }

[[source]]
name = "daily"
type = "rest"
url = "DAILY/list"
records = "items"
pagination = { type = "page", page_size = 10 }
slices = { from_param = "from", to_param = "to", start = "2026-01-01", step = "1d", format = "%Y-%m-%d" }
batch = { rows = 25 }
retry = { base_ms = 1, cap_ms = 5 }

[[source]]
name = "items"
type = "rest"
url = "ITEMS/list"
records = "items"
pagination = { type = "page", page_size = 10 }
refresh = "if_changed"
key = ["key"]
batch = { rows = 25 }
retry = { base_ms = 1, cap_ms = 5 }

[[source]]
name = "files"
type = "files"
url = "in/*.csv"
files = { settle_s = 60 }
batch = { rows = 25 }

[[source]]
name = "orders"
type = "rest"
url = "ORDERS/list"
records = "items"
pagination = { type = "page", page_size = 10 }
incremental = { cursor = "number", param = "from", lookback = "240" }
batch = { rows = 25 }
retry = { base_ms = 1, cap_ms = 5 }
"#;

/// Prints the `key` of all rows of all sources in a landing folder, read as README.md says.
const READ: &str = r#"
import json, pathlib, sys, duckdb
keys = {}
for source in pathlib.Path(sys.argv[1]).iterdir():
    query = f"SELECT key FROM read_parquet('{source}/data/*.parquet', union_by_name = true)"
    has_files = any((source / "data").glob("[!.]*.parquet"))
    keys[source.name] = [row[0] for row in duckdb.sql(query).fetchall()] if has_files else []
print(json.dumps(keys))
"#;

/// Faults, and their effects.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    jumps: u64,
    suspends: u64,
    sleeps: u64,
    kills: u64,
    failed_beside_another: u64,
    deferred: u64,
    waits_checked: u64,
}

struct Simulation {
    folder: tempfile::TempDir,
    /// Command that runs [`READ`]; none without Python.
    reader: Option<Command>,
    world: Arc<World>,
    inbox: Inbox,
    random: Random,
    writers: Vec<Writer>,
    /// A writer that stays stopped while others run.
    sleeper: Option<Writer>,
    /// True while more than one writer is at work.
    is_shared: bool,
    /// Log entries that have a time by the clock of their store.
    stamped: BTreeSet<PathBuf>,
    tally: Tally,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random(seed);
        let world = World::new(Random(random.below(u64::MAX)));
        pipeline(folder.path(), &start_servers(&world, PIPELINE));
        let reader = python("duckdb").map(|mut python| {
            let landing = folder.path().join("out/landing");
            python.args(["-c", READ]).arg(landing);
            python
        });
        Self {
            inbox: Inbox::new(folder.path().join("in")),
            folder,
            reader,
            world,
            random,
            writers: Vec::new(),
            sleeper: None,
            is_shared: false,
            stamped: BTreeSet::new(),
            tally: Tally::default(),
        }
    }

    /// Lets true time pass, also for writers at work.
    fn advance(&mut self, seconds: u64) {
        self.world.advance(seconds);
        for writer in self.writers.iter().chain(&self.sleeper) {
            writer.set_clock(self.world.now());
        }
    }

    fn start_writer(&mut self, error_s: i64) {
        self.tally.runs += 1;
        let (folder, number) = (self.folder.path(), self.tally.runs);
        let writer = Writer::start(folder, number, self.world.now(), error_s);
        self.writers.push(writer);
    }

    /// Lets some hours pass, then runs one or two writers with faults, until they end.
    fn run_with_faults(&mut self) {
        self.inbox.change(&mut self.random, self.world.now());
        let hours = 3 * HOUR + self.random.below(6 * HOUR);
        self.advance(hours);
        self.is_shared = self.random.below(3) == 0;
        for _ in 0..=u64::from(self.is_shared) {
            let error_s = draw_error(&mut self.random);
            self.start_writer(error_s);
        }
        if self.random.below(2) == 0 {
            self.wake_sleeper();
        }
        for _ in 0..self.random.below(5) {
            self.cause_fault();
        }
        self.finish_writers();
    }

    /// Resumes the writer that was stopped in an earlier run, beside others.
    fn wake_sleeper(&mut self) {
        if let Some(sleeper) = self.sleeper.take() {
            sleeper.resume();
            self.writers.push(sleeper);
            self.is_shared = true;
        }
    }

    /// Disturbs one of the writers, or changes a file.
    fn cause_fault(&mut self) {
        let pause_ms = self.random.below(LONGEST_PAUSE_MS);
        wait(Duration::from_millis(pause_ms));
        let (fault, error_s) = (self.random.below(8), draw_error(&mut self.random));
        let (now, which) = (self.world.now(), self.random.below(3));
        let which = usize::try_from(which).unwrap() % self.writers.len().max(1);
        let Some(writer) = self.writers.get_mut(which) else {
            return;
        };
        match fault {
            0 | 1 => {
                writer.jump(now, error_s);
                self.tally.jumps += 1;
            }
            2 | 3 => self.suspend(which, error_s),
            4 | 5 if !writer.has_ended() => {
                drop(self.writers.remove(which));
                self.tally.kills += 1;
            }
            6 if self.sleeper.is_none() && !writer.has_ended() => {
                writer.stop();
                self.sleeper = Some(self.writers.remove(which));
                self.tally.sleeps += 1;
            }
            _ => self.inbox.change(&mut self.random, now),
        }
    }

    /// Stops a writer for up to five hours of true time; its clock may have another error then.
    fn suspend(&mut self, which: usize, error_s: i64) {
        self.writers[which].stop();
        let (seconds, pause_ms) = (self.random.below(5 * HOUR), self.random.below(50));
        wait(Duration::from_millis(pause_ms));
        self.advance(seconds);
        self.writers[which].jump(self.world.now(), error_s);
        self.writers[which].resume();
        self.tally.suspends += 1;
    }

    fn finish_writers(&mut self) {
        let errors: Vec<i64> = self.writers.iter().map(|writer| writer.error_s).collect();
        for writer in mem::take(&mut self.writers) {
            self.check_end(&writer.finish());
        }
        // The disk of a single writer has its clock; one of several has its own, a right one.
        let error_s = errors.first().filter(|_| !self.is_shared);
        self.stamp_entries(error_s.copied().unwrap_or_default());
        self.is_shared = false;
    }

    /// Checks how a run ended: all is read, a source is deferred, or another writer came first.
    fn check_end(&mut self, ended: &Finished) {
        let is_expected = match ended.code {
            0 => true,
            4 => {
                self.tally.deferred += 1;
                true
            }
            1 if self.is_shared => {
                self.tally.failed_beside_another += 1;
                let report = ended.json();
                let sources = report["sources"].as_array().unwrap();
                let failed = sources.iter().filter(|source| source["status"] == "failed");
                let mut errors = failed.map(|source| source["error"].as_str().unwrap());
                errors.all(|error| RACES.iter().any(|race| error.contains(race)))
            }
            _ => false,
        };
        assert!(is_expected, "{ended:#?}");
    }

    /// Gives new entries of the logs the time that the clock of their store would have written: the
    /// real time of the test has no meaning in the simulation.
    fn stamp_entries(&mut self, error_s: i64) {
        let at = self.world.now().saturating_add_signed(error_s);
        for source in list(&self.folder.path().join("out/landing")) {
            for entry in list(&source.join("log")) {
                if self.stamped.insert(entry.clone()) {
                    set_modified(&entry, at);
                }
            }
        }
    }

    /// Runs one writer without faults.
    fn run_alone(&mut self, error_s: i64) -> Finished {
        self.start_writer(error_s);
        let ended = self.writers.remove(0).finish();
        self.check_end(&ended);
        self.stamp_entries(error_s);
        ended
    }

    /// Checks that a wait ends, whatever the clocks were when the server asked for it.
    ///
    /// After a jump no machine knows how much of a wait has passed. The promise is: from the first
    /// run on, if the clock then runs steadily (right or wrong), a source is asked again after at
    /// most the wait that its server asked for and the tolerance.
    fn check_waits(&mut self) {
        self.world.set_patient(true);
        let (asked, error_s) = (self.world.asked(), draw_error(&mut self.random));
        let first = self.run_alone(error_s);
        if first.code == 4 {
            assert_eq!(self.world.asked(), asked, "{first:#?}");
            self.advance(LONGEST_WAIT_S + TOLERANCE_S);
            let second = self.run_alone(error_s);
            assert_eq!(second.code, 0, "{first:#?} {second:#?}");
            self.tally.waits_checked += 1;
        }
        assert!(self.world.asked() > asked, "{first:#?}");
        self.world.set_patient(false);
    }

    /// Returns the keys of all landed rows by source, each once: no row has landed twice. Returns
    /// nothing without Python.
    fn read_landed_once(&mut self) -> BTreeMap<String, BTreeSet<String>> {
        let Some(reader) = &mut self.reader else {
            return BTreeMap::new();
        };
        let read = reader.output().unwrap();
        let errors = String::from_utf8_lossy(&read.stderr);
        assert!(read.status.success(), "{errors}");
        let landed: BTreeMap<String, Vec<String>> = serde_json::from_slice(&read.stdout).unwrap();
        let check = |(source, keys): (String, Vec<String>)| {
            let mut seen = BTreeSet::new();
            let (landed, doubled): (Vec<_>, Vec<_>) =
                keys.into_iter().partition(|key| seen.insert(key.clone()));
            assert!(doubled.is_empty(), "`{source}` has twice {doubled:?}");
            (source, landed.into_iter().collect())
        };
        landed.into_iter().map(check).collect()
    }

    /// Returns the keys that exist by now, by source.
    fn expected(&self) -> BTreeMap<String, BTreeSet<String>> {
        let now = self.world.now();
        let feed = |feed: Feed| (feed.name.to_owned(), feed.keys(now).collect());
        [
            feed(EVENTS),
            feed(ITEMS),
            feed(ORDERS),
            ("daily".to_owned(), daily_keys(now).collect()),
            ("files".to_owned(), self.inbox.keys().collect()),
        ]
        .into()
    }

    /// Reads all to its end by right clocks, and checks that each row has landed once.
    ///
    /// The first run may be too early for a server. The second ends what kills and waits have
    /// interrupted. The third reads what has come since that began.
    fn check_all(&mut self) {
        self.wake_sleeper();
        self.finish_writers();
        self.world.set_patient(true);
        self.run_alone(0);
        self.advance(LONGEST_WAIT_S + TOLERANCE_S);
        for _ in 0..2 {
            self.run_alone(0).expect(0);
        }
        let expected = self.expected();
        for (source, keys) in self.read_landed_once() {
            let lost: Vec<_> = expected[&source].difference(&keys).collect();
            let unknown: Vec<_> = keys.difference(&expected[&source]).collect();
            assert!(lost.is_empty(), "`{source}` has lost {lost:?}");
            assert!(unknown.is_empty(), "`{source}` also has {unknown:?}");
        }
        let arguments = ["ingest", "verify", "pipeline.toml", "--json"];
        let verified = run(self.folder.path(), &arguments).expect(0).json();
        for source in verified["sources"].as_array().unwrap() {
            let name = source["name"].as_str().unwrap();
            assert_eq!(source["rows"], expected[name].len(), "{name}");
        }
    }
}

/// Lists a folder; a missing one is empty.
fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn number_from_environment(name: &str, default: u64) -> u64 {
    let text = env::var_os(name);
    text.map_or(default, |text| text.to_str().unwrap().parse().unwrap())
}

#[test]
fn days_of_wrong_clocks_suspends_kills_and_two_writers_lose_and_double_nothing() {
    if !libfaketime().exists() {
        eprintln!("skipped: libfaketime (Debian package `faketime`) is not installed");
        return;
    }
    let days = number_from_environment("FEEDLINE_SIMULATED_DAYS", DAYS);
    let seed = number_from_environment("FEEDLINE_SIMULATED_SEED", SEED);
    eprintln!("{days} days with the seed {seed}");
    let mut simulation = Simulation::new(seed);
    for day in 1..=days {
        while simulation.world.now() < START + day * DAY {
            simulation.run_with_faults();
        }
        simulation.check_waits();
        simulation.read_landed_once();
    }
    simulation.check_all();
    eprintln!("{:?}", simulation.tally);
}
