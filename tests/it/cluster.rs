//! A scheduler and two workers as processes of their own: a dataset is the one of a single process, also when a worker is
//! killed while it works.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::support::{feedline, files, pipeline, run, start, wait};

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

/// Processes, which end with it.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended is no failure of a test that ends.
            let _killed = child.kill();
            let _ended = child.wait();
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        wait(Duration::from_millis(1));
    }
    panic!("not in a minute: {what}");
}

/// A scheduler on an address of its own.
fn scheduler(folder: &Path) -> (SocketAddr, Child) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let listen = address.to_string();
    let arguments = [
        "cluster",
        "scheduler",
        "--listen",
        &listen,
        "--lost-after",
        "6",
    ];
    let child = start(folder, &arguments);
    until("the scheduler listens", || {
        TcpStream::connect(address).is_ok()
    });
    (address, child)
}

/// A worker of one processor, and the folder of the data that it makes.
fn worker(folder: &Path, scheduler: SocketAddr, name: &str) -> (PathBuf, Child) {
    let (address, scratch) = (scheduler.to_string(), folder.join(name));
    let worker = feedline(folder)
        .args(["cluster", "worker", "--cores", "1", "--memory", "256"])
        .args(["--scheduler", &address, "--scratch"])
        .arg(&scratch)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    (scratch.join("build-0/stages"), worker)
}

#[test]
fn a_worker_that_is_killed_while_it_works_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(folder.path(), INGEST);
    run(folder.path(), &["ingest", file]).expect(3);
    run(folder.path(), &["shards", "build", file]).expect(3);
    let dataset = folder.path().join("out/dataset");
    let expected = files(&dataset);
    fs::remove_dir_all(&dataset).unwrap();

    let (address, scheduler) = scheduler(folder.path());
    let mut processes = Processes(vec![scheduler]);
    let engine = format!("df://{address}");
    let build = ["shards", "build", file, "--engine", &engine];
    let mut stages = Vec::new();
    for name in ["first", "second"] {
        let (stage, child) = worker(folder.path(), address, name);
        until("the worker has a folder", || stage.exists());
        stages.push(stage);
        processes.0.push(child);
    }
    run(folder.path(), &build).expect(3);
    assert_eq!(files(&dataset), expected);
    assert!(files(&folder.path().join("out/feedline-scratch")).is_empty());
    fs::remove_dir_all(&dataset).unwrap();

    // What is left of the build before goes a minute after it.
    let before: Vec<usize> = stages.iter().map(|stage| files(stage).len()).collect();
    let mut building = start(folder.path(), &build);
    let mut busy = None;
    until("a worker works", || {
        let worked = stages.iter().zip(&before);
        busy = worked
            .map(|(stage, before)| files(stage).len() > *before)
            .position(|new| new);
        busy.is_some()
    });
    let worker = &mut processes.0[1 + busy.unwrap()];
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert!(
        building.try_wait().unwrap().is_none(),
        "the build was done before"
    );
    assert_eq!(building.wait().unwrap().code(), Some(3));
    assert_eq!(files(&dataset), expected);

    // The other leaves when it is asked to.
    let last = &mut processes.0[2 - busy.unwrap()];
    let asked = Command::new("kill").arg(last.id().to_string()).status();
    assert!(asked.unwrap().success());
    assert!(last.wait().unwrap().success());
}

#[test]
fn a_cluster_without_an_address_or_a_scheduler_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = run(
        folder.path(),
        &["cluster", "worker", "--listen", "0.0.0.0:0"],
    );
    assert!(wrong.stderr.contains("`--host`"), "{wrong:?}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let wrong = run(
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
