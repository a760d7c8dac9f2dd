//! Programs that change what has landed may die at any instant: a compaction with retention, a
//! rewind, and the run that follows. Readers see a complete table meanwhile.

use std::{env, fs, path::Path, process::Stdio, time::Duration};

use serde_json::Value;

use crate::support::{Random, count_files, feedline, kill_when, pipeline, python, run, start};

/// Default count of kills; `FEEDLINE_LOG_KILLS` overrides it.
const KILLS: u64 = 12;
/// Files of the source, one batch each: more than the entries between two snapshots.
const FILES: u64 = 80;
/// Rows of a file.
const ROWS: u64 = 3;

const PIPELINE: &str = r#"
[pipeline]
name = "kills"
root = "out"

[ingest]
retention = { files = 60, grace_s = 0 }

[[source]]
name = "numbers"
type = "files"
url = "in/*.csv"
batch = { pages = 1 }
"#;

fn write_files(folder: &Path) {
    fs::create_dir(folder.join("in")).unwrap();
    for file in 0..FILES {
        let rows: String = (0..ROWS)
            .map(|row| format!("{},{file}\n", file * ROWS + row))
            .collect();
        let text = format!("id,file\n{rows}");
        fs::write(folder.join(format!("in/{file:05}.csv")), text).unwrap();
    }
}

/// Entries that the source can return to: those that no later rewind has taken back.
fn counting(zone: &Path) -> Vec<u64> {
    let entries = fs::read_dir(zone.join("log")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    let (mut counting, mut lowest) = (Vec::new(), u64::MAX);
    for path in paths.iter().rev() {
        let entry: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let sequence = entry["sequence"].as_u64().unwrap();
        if sequence <= lowest {
            counting.push(sequence);
        }
        lowest = lowest.min(entry["rewound_to"].as_u64().unwrap_or(u64::MAX));
    }
    counting
}

/// The command of a kill: compactions of several sizes, rewinds, and runs.
fn command(kill: u64, random: &mut Random, zone: &Path) -> Vec<String> {
    let mut words: Vec<String> = vec!["ingest".into()];
    let of_source = ["pipeline.toml".to_owned(), "numbers".to_owned()];
    match kill % 3 {
        0 => {
            words.push("compact".into());
            words.extend(of_source);
            let sizes = ["16 KiB", "48 KiB", "128 MiB"];
            let size = sizes[usize::try_from(random.below(3)).unwrap()];
            words.extend(["--target-bytes".to_owned(), size.to_owned()]);
        }
        1 => {
            words.push("rewind".into());
            words.extend(of_source);
            let counting = counting(zone);
            let half = u64::try_from(counting.len()).unwrap() / 2 + 1;
            let to = counting[usize::try_from(random.below(half)).unwrap()];
            words.extend(["--to".to_owned(), to.to_string()]);
        }
        _ => words.push("pipeline.toml".into()),
    }
    words
}

/// Verifies the landing zone; returns the report of the source.
fn verified(folder: &Path) -> Value {
    let report = run(folder, &["ingest", "verify", "pipeline.toml", "--json"]).expect(0);
    report.json()["sources"][0].clone()
}

/// Runs the source to its end, and checks that each row is in the folder once.
fn check_whole(folder: &Path, zone: &Path) {
    run(folder, &["ingest", "pipeline.toml"]).expect(0);
    let found = verified(folder);
    assert_eq!(found["rows"], FILES * ROWS, "{found}");
    assert_eq!(
        found["unnamed"].as_array().map(Vec::len),
        Some(0),
        "{found}"
    );
    let Some(mut python) = python("pyarrow") else {
        return;
    };
    let script = "import sys, pyarrow.parquet as pq; \
        t = pq.ParquetDataset(sys.argv[1]).read(columns=['id', 'file']).to_pydict(); \
        print(len(t['id']), len(set(t['id'])), sum(i // 3 == f for i, f in zip(t['id'], t['file'])))";
    let read = python
        .args(["-c", script])
        .arg(zone.join("data"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&read.stderr);
    let counts = String::from_utf8(read.stdout).unwrap();
    let rows = FILES * ROWS;
    assert_eq!(counts.trim(), format!("{rows} {rows} {rows}"), "{errors}");
}

#[test]
fn a_compaction_a_rewind_or_a_run_killed_anywhere_leaves_a_complete_table() {
    let asked = env::var_os("FEEDLINE_LOG_KILLS");
    let kills: u64 = asked.map_or(KILLS, |text| text.to_str().unwrap().parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_files(folder);
    pipeline(folder, PIPELINE);
    let zone = folder.join("out/landing/numbers");
    check_whole(folder, &zone);
    assert!(count_files(&zone.join("snapshots")) > 0);
    let mut random = Random(11);
    let (mut killed, mut longest) = (0, 150_000);
    for kill in 0..kills {
        let words = command(kill, &mut random, &zone);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // A reader beside it finds all files that the log names.
        let reader = feedline(folder)
            .args(["ingest", "verify", "pipeline.toml"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let child = start(folder, &words);
        let delay = Duration::from_micros(random.below(longest));
        let was_killed = kill_when(child, delay, || true);
        killed += u64::from(was_killed);
        longest = match was_killed {
            true => longest + 10_000,
            false => longest * 9 / 10,
        };
        let read = reader.wait_with_output().unwrap();
        assert!(read.status.success(), "kill {kill} of {words:?}: {read:?}");
        verified(folder);
        if kill % 3 == 2 {
            check_whole(folder, &zone);
        }
    }
    check_whole(folder, &zone);
    let report = run(
        folder,
        &["ingest", "compact", "pipeline.toml", "numbers", "--json"],
    )
    .expect(0)
    .json();
    check_whole(folder, &zone);
    eprintln!(
        "{killed} kills in {} entries of the log; {} files remain",
        count_files(&zone.join("log")),
        count_files(&zone.join("data")),
    );
    assert_eq!(count_files(&zone.join("data")), 1, "{report}");
    assert!(killed * 3 >= kills, "{killed}");
}
