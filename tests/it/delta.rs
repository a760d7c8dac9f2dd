//! Delta tables over landed files, read by the tools that they are for.

use std::{env, fs, path::Path, time::Duration};

use serde_json::Value;

use crate::support::{Random, finish, kill_when, pipeline, python, run, start};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/delta.py");
/// Default number of steps of a history; `FEEDLINE_DELTA_STEPS` overrides it.
const STEPS: u64 = 10;

const PIPELINE: &str = r#"
[pipeline]
name = "history"
root = "out"

[ingest]
delta = true

[[source]]
name = "s"
type = "files"
url = "in/*.ndjson"
batch = { rows = 3 }

[source.contract]
types = "widen"
lists = "list"
dates = ["rfc3339"]
max_reject_fraction = 0.9

[source.contract.children]
parts = {}
"#;

/// A source whose schema evolves with the number of its files.
struct History {
    random: Random,
    files: u64,
    records: u64,
}

impl History {
    /// One value of the kinds that the column has had so far.
    fn amount(&mut self) -> String {
        let kinds = 1 + (self.files / 3).min(4);
        let number = self.random.below(1_000);
        match self.random.below(kinds) {
            0 => number.to_string(),
            1 => format!("{number}.25"),
            2 => format!("18446744073709{number:03}615"),
            3 => format!("\"about {number}\""),
            _ => "null".to_owned(),
        }
    }

    fn list(&mut self) -> &'static str {
        let kinds = 1 + (self.files / 4).min(4);
        match self.random.below(kinds) {
            0 => "[]",
            1 => "[1, 2]",
            2 => "[1.5]",
            3 => "null",
            _ => "[{\"deep\": [1]}]",
        }
    }

    /// Writes a file of a few records, some of them broken, over the file `number`.
    fn write(&mut self, folder: &Path, number: u64) {
        let mut text = String::new();
        for _ in 0..1 + self.random.below(6) {
            let (id, amount, list) = (self.records, self.amount(), self.list());
            self.records += 1;
            let parts: Vec<String> = (0..self.random.below(3))
                .map(|part| match self.files % 5 {
                    0 => format!("{{\"sku\": {part}}}"),
                    _ => format!("{{\"sku\": \"p{part}\", \"n\": {part}.5}}"),
                })
                .collect();
            let more = match self.random.below(4) {
                0 if self.files > 4 => ", \"seen\": true, \"at\": \"2026-01-02T03:04:05.25Z\"",
                1 if self.files > 7 => ", \"seen\": \"maybe\", \"deep\": {\"x y\": 1}",
                2 if self.files > 9 => ", \"late\": [1]",
                _ => ", \"late\": null",
            };
            text += &format!(
                "{{\"id\": {id}, \"amount\": {amount}, \"list\": {list}, \"parts\": [{}]{more}}}\n",
                parts.join(", ")
            );
            if self.random.below(6) == 0 {
                text += "{\"id\": broken\n";
            }
        }
        fs::write(folder.join(format!("in/{number:04}.ndjson")), text).unwrap();
    }

    fn add(&mut self, folder: &Path) {
        for _ in 0..1 + self.random.below(2) {
            let number = self.files;
            self.files += 1;
            self.write(folder, number);
        }
    }

    /// One step: returns true if it only added rows.
    fn step(&mut self, folder: &Path) -> bool {
        match self.random.below(12) {
            0..5 => {
                self.add(folder);
                run(folder, &["ingest", "pipeline.toml"]).expect(0);
                true
            }
            5 | 6 => {
                self.add(folder);
                let child = start(folder, &["ingest", "pipeline.toml"]);
                let delay = Duration::from_micros(self.random.below(150_000));
                kill_when(child, delay, || true);
                true
            }
            7 => {
                let sizes = ["4 KiB", "16 KiB", "128 MiB"];
                let size = sizes[usize::try_from(self.random.below(3)).unwrap()];
                let words = [
                    "ingest",
                    "compact",
                    "pipeline.toml",
                    "s",
                    "--target-bytes",
                    size,
                ];
                let child = start(folder, &words);
                let delay = Duration::from_micros(self.random.below(300_000));
                kill_when(child, delay, || true);
                false
            }
            8 => {
                let back = self.random.below(3);
                let entries = entries(folder);
                let to = entries.saturating_sub(2 + back).to_string();
                // An entry that cannot be gone back to is refused.
                run(
                    folder,
                    &["ingest", "rewind", "pipeline.toml", "s", "--to", &to],
                );
                false
            }
            9 => {
                let batch = self.random.below(entries(folder)).to_string();
                run(
                    folder,
                    &["ingest", "delete", "pipeline.toml", "s", "--batch", &batch],
                );
                false
            }
            10 => {
                let changed = self.random.below(self.files);
                self.write(folder, changed);
                run(folder, &["ingest", "pipeline.toml"]).expect(0);
                false
            }
            _ => {
                let words = ["ingest", "delta", "pipeline.toml", "--rebuild"];
                run(folder, &words).expect(0);
                false
            }
        }
    }
}

fn entries(folder: &Path) -> u64 {
    crate::support::count_files(&folder.join("out/landing/s/log"))
}

/// Exports `source`; returns the folder, or `-` for a source without rows.
fn export(folder: &Path, source: &str) -> String {
    let to = format!("exported-{source}");
    let exported = run(
        folder,
        &[
            "export",
            "pipeline.toml",
            "--to",
            &to,
            "--source",
            source,
            "--format",
            "parquet",
            "--overwrite",
        ],
    );
    match exported.code {
        0 => to,
        _ => {
            assert!(
                exported.stderr.contains("no rows have landed"),
                "{exported:?}"
            );
            "-".to_owned()
        }
    }
}

/// Compares a table with what our own reader reads; `None` without a Python with the readers.
fn compare(folder: &Path, table: &str, source: &str, since: Option<u64>) -> Option<Value> {
    let mut python = python("deltalake, duckdb, polars, pyarrow.dataset")?;
    let exported = export(folder, source);
    python
        .current_dir(folder)
        .arg(SCRIPT)
        .arg(table)
        .arg(exported);
    if let Some(since) = since {
        python.arg("--each-since").arg(since.to_string());
    }
    Some(finish(python.output().unwrap()).expect(0).json())
}

#[test]
fn every_commit_of_a_random_history_has_the_same_rows_for_all_readers() {
    let asked = env::var_os("FEEDLINE_DELTA_STEPS");
    let steps = asked.map_or(STEPS, |text| text.to_str().unwrap().parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("in")).unwrap();
    pipeline(folder, PIPELINE);
    let mut history = History {
        random: Random(17),
        files: 0,
        records: 0,
    };
    history.add(folder);
    run(folder, &["ingest", "pipeline.toml"]).expect(0);
    let tables = [
        ("out/landing/s/data", "s"),
        ("out/landing/s/children/parts", "s.parts"),
    ];
    let mut versions: [Option<u64>; 2] = [None, None];
    let mut counted = 0;
    for step in 0..steps {
        let only_adds = history.step(folder);
        for ((table, source), before) in tables.iter().zip(&mut versions) {
            if !folder.join(table).join("_delta_log").exists() {
                continue;
            }
            let since = before.filter(|_| only_adds);
            let Some(found) = compare(folder, table, source, since) else {
                return;
            };
            counted += found["counted"].as_u64().unwrap();
            *before = found["version"].as_u64();
            if step == 0 {
                eprintln!("DuckDB reads by: {}", found["duckdb"]);
            }
        }
        // A run that was killed has left a table behind; the next one brings it up.
        run(folder, &["ingest", "pipeline.toml"]).expect(0);
        let verified = run(folder, &["ingest", "verify", "pipeline.toml"]);
        assert_eq!(verified.code, 0, "step {step}: {verified:#?}");
        for ((table, source), before) in tables.iter().zip(&mut versions) {
            if folder.join(table).join("_delta_log").exists() {
                let found = compare(folder, table, source, None).unwrap();
                *before = found["version"].as_u64();
            }
        }
    }
    eprintln!(
        "{counted} versions inside of runs, {} entries",
        entries(folder)
    );
    assert!(counted > 0);
    let last_entry = || (entries(folder) - 1).to_string();
    let commands: [&[&str]; 3] = [
        &["compact", "pipeline.toml", "s"],
        &["rewind", "pipeline.toml", "s", "--to"],
        &["delete", "pipeline.toml", "s", "--batch"],
    ];
    for command in commands {
        let before = last_entry();
        history.add(folder);
        run(folder, &["ingest", "pipeline.toml"]).expect(0);
        let to = match command[0] {
            "rewind" => Some(before),
            "delete" => Some(last_entry()),
            _ => None,
        };
        let words = ["ingest"].into_iter().chain(command.iter().copied());
        let words: Vec<&str> = words.chain(to.as_deref()).collect();
        run(folder, &words).expect(0);
        for (table, source) in tables {
            compare(folder, table, source, None).unwrap();
        }
    }
}

/// Landed files that a table has copies of, or does not name yet, survive `VACUUM`, and a reset
/// leaves no child table that names removed files.
#[test]
fn vacuum_keeps_landed_files_and_a_reset_empties_child_tables() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("in")).unwrap();
    pipeline(folder, &PIPELINE.replace("delta = true", "delta = false"));
    let write = |number: u32, amount: &str| {
        let text = format!("{{\"id\": {number}, \"amount\": {amount}, \"parts\": [1]}}\n");
        fs::write(folder.join(format!("in/{number}.ndjson")), text).unwrap();
        run(folder, &["ingest", "pipeline.toml"]).expect(0);
    };
    write(1, "1");
    write(2, "2.5");
    run(folder, &["ingest", "delta", "pipeline.toml"]).expect(0);
    write(3, "4");
    let Some(mut python) = python("deltalake") else {
        return;
    };
    let script = "import os, sys, glob, deltalake
for file in glob.glob(sys.argv[1] + '/**/*.parquet', recursive=True):
    os.utime(file, (1e9, 1e9))
table = deltalake.DeltaTable(sys.argv[1])
print(len(table.file_uris()), table.vacuum(dry_run=True, full=True), table.vacuum(dry_run=True))";
    let table = folder.join("out/landing/s/data");
    let out = finish(python.args(["-c", script]).arg(&table).output().unwrap()).expect(0);
    assert_eq!(out.stdout.trim(), "2 [] []");
    let data = fs::read_dir(&table).unwrap();
    let landed =
        data.filter(|entry| entry.as_ref().unwrap().path().extension() == Some("parquet".as_ref()));
    assert_eq!(landed.count(), 3);

    run(folder, &["ingest", "reset", "pipeline.toml", "s"]).expect(0);
    for table in ["data", "children/parts"] {
        let table = folder.join("out/landing/s").join(table);
        let script = "import sys, deltalake; print(deltalake.DeltaTable(sys.argv[1]).to_pyarrow_table().num_rows)";
        let mut python = crate::support::python("deltalake").unwrap();
        let out = finish(python.args(["-c", script]).arg(table).output().unwrap()).expect(0);
        assert_eq!(out.stdout.trim(), "0");
    }
}

#[test]
fn status_names_tables_and_how_far_they_are_behind() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("in")).unwrap();
    pipeline(folder, &PIPELINE.replace("delta = true", "delta = false"));
    let write = |number: u32| {
        let text = format!("{{\"id\": {number}, \"parts\": [1]}}\n");
        fs::write(folder.join(format!("in/{number}.ndjson")), text).unwrap();
        run(folder, &["ingest", "pipeline.toml"]).expect(0);
    };
    write(1);
    let written = run(folder, &["ingest", "delta", "pipeline.toml", "--json"]).expect(0);
    let tables = written.json()["tables"].clone();
    assert_eq!(
        (&tables[0]["table"], &tables[0]["files"]),
        (&"s".into(), &1.into())
    );
    assert_eq!(tables[1]["table"], "s.parts");
    write(2);
    let status = run(folder, &["ingest", "status", "pipeline.toml", "--json"]).expect(0);
    let tables = status.json()["sources"][0]["delta"].clone();
    assert_eq!(
        (&tables[0]["behind"], &tables[1]["behind"]),
        (&1.into(), &1.into())
    );
    let shown = run(folder, &["ingest", "status", "pipeline.toml"])
        .expect(0)
        .stdout;
    assert!(shown.contains("1 entry behind"), "{shown}");
}
