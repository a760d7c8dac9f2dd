//! A scheduler and two workers as processes of their own: a dataset is the one of a single process, also when a worker is
//! killed while it works.

use std::{
    collections::BTreeSet,
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use feedline_testkit::free_port::free_port;

use crate::support::{Finished, feedline, files, finish, pipeline, run, wait};

const INGEST: &str = r#"
[pipeline]
name = "cluster"
root = "out"

[[source]]
name = "market"
type = "rest"
url = "demo://market?seed=11&rows=20000&page_size=500"
records = "data.items"
pagination = { type = "cursor", cursor_param = "cursor", cursor_path = "paging.next_cursor" }
batch = { rows = 1000, dedup_window = 1000 }
retry = { base_ms = 1, cap_ms = 5 }

[dataset]
target = "next_return"
drop = ["id"]
split = { key = ["id"] }
shards = { shard_bytes = "128 KiB", block_bytes = "8 KiB" }
"#;

/// A process, which ends with it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended is no failure of a test that ends.
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..600_000 {
        if is_so() {
            return;
        }
        wait(Duration::from_millis(1));
    }
    panic!("not in ten minutes: {what}");
}

/// A program that knows the secret of the cluster.
fn member(folder: &Path) -> Command {
    let mut command = feedline(folder);
    command.env("FEEDLINE_CLUSTER_SECRET", "a secret of this cluster");
    command
}

fn run_member(folder: &Path, arguments: &[&str]) -> Finished {
    finish(member(folder).args(arguments).output().unwrap())
}

/// A scheduler on an address of its own.
fn scheduler(folder: &Path) -> (SocketAddr, Process) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listen = address.to_string();
    let arguments = [
        "cluster",
        "scheduler",
        "--listen",
        &listen,
        "--lost-after",
        "6",
    ];
    let child = member(folder)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let child = Process(child.unwrap());
    until("the scheduler listens", || {
        TcpStream::connect(address).is_ok()
    });
    (address, child)
}

/// A worker of one processor.
struct Worker {
    process: Process,
    /// Folder of the data that it makes.
    data: PathBuf,
    /// Stages that existed when the build began.
    before: BTreeSet<Stage>,
}

/// A query and the number of a stage of it.
type Stage = (String, u32);

impl Worker {
    fn new(folder: &Path, scheduler: SocketAddr, name: &str) -> Self {
        let (address, scratch) = (scheduler.to_string(), folder.join(name));
        let worker = member(folder)
            .args(["cluster", "worker", "--cores", "1", "--memory", "256"])
            .args(["--scheduler", &address, "--root", "out", "--scratch"])
            .arg(&scratch)
            .stdout(Stdio::null())
            .spawn();
        let worker = Self {
            process: Process(worker.unwrap()),
            data: scratch.join("build-0/stages"),
            before: BTreeSet::new(),
        };
        until("the worker has a folder", || worker.data.exists());
        worker
    }

    /// The stages that it has made data of.
    fn stages(&self) -> BTreeSet<Stage> {
        let mut stages = BTreeSet::new();
        for query in names(&self.data) {
            for stage in names(&self.data.join(&query)) {
                stages.extend(stage.parse().map(|stage| (query.clone(), stage)));
            }
        }
        stages
    }
}

/// Names of the files in a folder; a missing folder has none.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names.collect()
}

/// One that has data of a stage of this build while a later stage of the same query runs.
fn read_from(workers: &[Worker]) -> Option<usize> {
    let new = workers.iter().map(|worker| {
        let stages = worker.stages();
        let new = stages.difference(&worker.before);
        new.cloned().collect::<BTreeSet<Stage>>()
    });
    let new: Vec<_> = new.collect();
    let is_read = |(query, stage): &Stage| {
        let begun = new.iter().flatten();
        begun
            .filter(|(of, _)| of == query)
            .any(|(_, later)| later > stage)
    };
    new.iter().position(|stages| stages.iter().any(is_read))
}

#[test]
fn a_worker_that_is_killed_while_its_data_are_read_changes_nothing() {
    /// Builds in which a worker is killed, at most: the stage that reads from it may end before it does.
    const TRIES: usize = 24;
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(folder.path(), INGEST);
    run(folder.path(), &["ingest", file]).expect(0);
    run(folder.path(), &["shards", "build", file]).expect(0);
    let dataset = folder.path().join("out/dataset");
    let expected = files(&dataset);

    let (address, _scheduler) = scheduler(folder.path());
    let engine = format!("df://{address}");
    let build = ["shards", "build", file, "--engine", &engine];
    let worker = |name: &str| Worker::new(folder.path(), address, name);
    let mut workers = vec![worker("first"), worker("second")];
    let is_expected = || {
        assert_eq!(files(&dataset), expected);
        assert!(files(&folder.path().join("out/feedline-scratch")).is_empty());
    };
    fs::remove_dir_all(&dataset).unwrap();
    let refused = run(folder.path(), &build).expect(2);
    assert!(
        refused.stderr.contains("FEEDLINE_CLUSTER_SECRET"),
        "{refused:?}"
    );
    run_member(folder.path(), &build).expect(0);
    is_expected();

    let mut is_tried = false;
    for i in 0..TRIES {
        fs::remove_dir_all(&dataset).unwrap();
        // What is left of the build before goes a minute after it.
        for worker in &mut workers {
            worker.before = worker.stages();
        }
        let building = member(folder.path())
            .args(build)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut building = building.unwrap();
        let mut found = None;
        until("data of a worker are read, or the build is done", || {
            found = read_from(&workers);
            found.is_some() || building.try_wait().unwrap().is_some()
        });
        if let Some(found) = found {
            drop(workers.remove(found));
        }
        let built = finish(building.wait_with_output().unwrap()).expect(0);
        is_expected();
        is_tried = found.is_some() && built.stderr.contains("rerunning the query");
        if is_tried {
            break;
        }
        if found.is_some() {
            workers.push(worker(&format!("worker-{i}")));
        }
    }
    assert!(
        is_tried,
        "no query was run again in {TRIES} builds that lost a worker"
    );

    // One that stays leaves when it is asked to.
    let mut last = workers.pop().unwrap().process;
    let asked = Command::new("kill").arg(last.0.id().to_string()).status();
    assert!(asked.unwrap().success());
    assert!(last.0.wait().unwrap().success());
}

#[test]
fn a_cluster_without_an_address_or_a_scheduler_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = run(folder.path(), &["cluster", "worker", "--root", "out"]).expect(2);
    assert!(wrong.stderr.contains("openssl rand"), "{wrong:?}");
    let wrong = run_member(folder.path(), &["cluster", "worker"]).expect(2);
    assert!(wrong.stderr.contains("--root"), "{wrong:?}");
    let wrong = run_member(
        folder.path(),
        &[
            "cluster",
            "worker",
            "--root",
            "out",
            "--listen",
            "0.0.0.0:0",
        ],
    );
    assert!(wrong.stderr.contains("`--host`"), "{wrong:?}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let wrong = run_member(
        folder.path(),
        &["cluster", "scheduler", "--listen", &address],
    );
    assert!(wrong.stderr.contains("choose another port"), "{wrong:?}");
    let wrong = run(
        folder.path(),
        &["shards", "build", "p.toml", "--engine", "df://nowhere"],
    );
    assert!(wrong.expect(2).stderr.contains("`df://HOST:PORT`"));
}
