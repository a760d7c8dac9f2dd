//! A source whose values change with each request: bytes of a killed run differ from those of the
//! next run.

use std::{
    collections::BTreeSet,
    env, fs,
    path::Path,
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;

use crate::{
    kills::named_files,
    support::{Random, count_files, files, pipeline, python, run, serve, start, wait},
};

/// Default count of kills; `FEEDLINE_ORPHAN_KILLS` overrides it.
const KILLS: u64 = 8;
/// Pages and batches per kill.
const PAGES: u64 = 60;

const LIVE: &str = r#"
[pipeline]
name = "live"
root = "out"

[[source]]
name = "live"
type = "rest"
url = "ORIGIN/items"
records = "items"
pagination = { type = "page", page_size = 10 }
batch = { rows = 20, dedup_window = 0 }
retry = { base_ms = 1, cap_ms = 5 }
contract = { children = { tags = { parent = { column = "id" } } } }
"#;

/// Serves pages of ten records with new values in each response; while `held`, sends no response.
fn serve_live(pages: u64, held: &Arc<AtomicBool>) -> String {
    let (held, asked) = (Arc::clone(held), AtomicU64::new(0));
    serve(move |target| {
        while held.load(Ordering::Relaxed) {
            wait(Duration::from_millis(1));
        }
        let page = target
            .split(['?', '&'])
            .find_map(|pair| pair.strip_prefix("page="));
        let page: u64 = page.map_or(1, |page| page.parse().unwrap());
        let now = asked.fetch_add(1, Ordering::Relaxed);
        let ids = (page <= pages).then(|| (page - 1) * 10..page * 10);
        let items = ids.into_iter().flatten().map(|id| {
            let tags = if id % 3 == 0 { r#"["a","b"]"# } else { "[]" };
            format!(r#"{{"id":{id},"price":{now},"tags":{tags}}}"#)
        });
        let items: Vec<String> = items.collect();
        let body = format!(r#"{{"items":[{}]}}"#, items.join(","));
        ("200 OK", String::new(), body)
    })
}

/// Lists the files of the landing zone's folders, and those that its log names.
fn folders_and_log(zone: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut there, mut named) = (BTreeSet::new(), BTreeSet::new());
    for (path, bytes) in files(zone) {
        match path.split('/').next().unwrap_or_default() {
            "log" => {
                let entry: Value = serde_json::from_slice(&bytes).unwrap();
                named.extend(named_files(&entry));
            }
            "data" | "rejects" | "children" => {
                there.insert(path);
            }
            _ => {}
        }
    }
    (there, named)
}

/// Starts a run whose source does not respond, and checks that the folders then hold only the files
/// that the log names.
fn check_after_a_start(folder: &Path, file: &str, held: &AtomicBool) {
    held.store(true, Ordering::Relaxed);
    let mut child = start(folder, &["ingest", file]);
    let zone = folder.join("out/landing/live");
    let mut tries = 0;
    loop {
        let (there, named) = folders_and_log(&zone);
        if there == named {
            break;
        }
        tries += 1;
        let more: Vec<_> = there.symmetric_difference(&named).collect();
        assert!(tries < 20_000, "{more:?}");
        wait(Duration::from_millis(5));
    }
    end(&mut child);
    held.store(false, Ordering::Relaxed);
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn data_files_are_those_of_the_log_after_kills_two_writers_and_a_repair() {
    let asked = env::var_os("FEEDLINE_ORPHAN_KILLS");
    let kills: u64 = asked.map_or(KILLS, |text| text.to_str().unwrap().parse().unwrap());
    let (held, folder) = (
        Arc::new(AtomicBool::new(false)),
        tempfile::tempdir().unwrap(),
    );
    let pages = kills * PAGES;
    let origin = serve_live(pages, &held);
    let file = pipeline(folder.path(), &LIVE.replace("ORIGIN", &origin));
    let zone = folder.path().join("out/landing/live");
    let log = zone.join("log");
    let mut random = Random(7);
    let (mut orphans, mut fenced) = (0, 0);
    for kill in 0..kills {
        // Every fourth time has two writers.
        let mut writers: Vec<Child> = (0..=u64::from(kill % 4 == 3))
            .map(|_| start(folder.path(), &["ingest", file]))
            .collect();
        let target = count_files(&log) + 1 + random.below(4);
        while count_files(&log) < target {
            wait(Duration::from_millis(1));
            if writers.iter_mut().all(|w| w.try_wait().unwrap().is_some()) {
                break;
            }
        }
        wait(Duration::from_micros(random.below(6_000)));
        for writer in &mut writers {
            let ended = writer.try_wait().unwrap();
            fenced += u64::from(ended.is_some_and(|status| !status.success()));
            end(writer);
        }
        let (there, named) = folders_and_log(&zone);
        orphans += there.difference(&named).count();
        check_after_a_start(folder.path(), file, &held);
        if kill == kills / 2 {
            lose_a_file_and_repair(folder.path(), file);
            check_after_a_start(folder.path(), file, &held);
        }
    }
    run(folder.path(), &["ingest", file]).expect(0);
    let (there, named) = folders_and_log(&zone);
    assert_eq!(there, named);
    let verified = run(folder.path(), &["ingest", "verify", file, "--json"]).expect(0);
    let verified = &verified.json()["sources"][0];
    assert_eq!(verified["rows"], pages * 10);
    assert_eq!(verified["unnamed"].as_array().map(Vec::len), Some(0));
    eprintln!(
        "{kills} kills left {orphans} files that no entry named, {fenced} writers were fenced"
    );
    let Some(mut python) = python("pyarrow") else {
        return;
    };
    let script = "import sys, pyarrow.parquet as pq; t = pq.ParquetDataset(sys.argv[1]).read(columns=['id']); \
        print(t.num_rows, len(set(t['id'].to_pylist())), pq.ParquetDataset(sys.argv[2]).read().num_rows)";
    let read = python
        .args(["-c", script])
        .args([zone.join("data"), zone.join("children/tags")])
        .output()
        .unwrap();
    let counts = String::from_utf8(read.stdout).unwrap();
    let rows = pages * 10;
    let tags = rows.div_ceil(3) * 2;
    let errors = String::from_utf8_lossy(&read.stderr);
    assert_eq!(counts.trim(), format!("{rows} {rows} {tags}"), "{errors}");
}

/// Removes a landed file: a run refuses, `status` and `verify` report it, and a repair goes back.
fn lose_a_file_and_repair(folder: &Path, file: &str) {
    let data = folder.join("out/landing/live/data");
    let mut paths: Vec<_> = fs::read_dir(&data)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    // One of the newest: a start does not look for those that an earlier one has found.
    let lost = &paths[paths.len() - 3];
    let name = lost.file_name().unwrap().to_str().unwrap();
    fs::remove_file(lost).unwrap();
    let refused = run(folder, &["ingest", file]).expect(1);
    assert!(
        refused.stderr.contains(name) && refused.stderr.contains("ingest verify"),
        "{refused:?}"
    );
    let status = run(folder, &["ingest", "status", file]).expect(1);
    assert!(
        status.stdout.contains("damaged") && status.stdout.contains(name),
        "{status:?}"
    );
    let verified = run(folder, &["ingest", "verify", file, "--json"]).expect(1);
    let damage = &verified.json()["sources"][0]["damage"];
    assert_eq!(damage.as_array().map(Vec::len), Some(1), "{damage}");
    let planned = run(folder, &["ingest", "repair", file, "--dry-run"]).expect(1);
    assert!(
        planned.stdout.contains("which the next run requests again"),
        "{planned:?}"
    );
    run(folder, &["ingest", "repair", file]).expect(0);
    run(folder, &["ingest", "verify", file]).expect(0);
}
