//! Files of all schema versions, read by column name with common tools.

use std::fs;

use serde_json::{Value, json};

use crate::support::{pipeline, python, run};

const SOURCE: &str = r#"
[pipeline]
name = "evolved"
root = "out"

[[source]]
name = "s"
type = "files"
url = "in/*.ndjson"
contract = { types = "widen" }
"#;

/// Rows by day: numbers that become wider and then words, new columns, lists of numbers and of
/// objects.
const DAYS: [&str; 5] = [
    r#"{"id": 1, "amount": 10, "seen": true, "sizes": [1, 2]}
{"id": 2, "amount": 20, "seen": false, "sizes": [3]}
"#,
    r#"{"id": 3, "amount": 2.5, "seen": true, "note": "a", "sizes": [1.5]}
"#,
    r#"{"id": 4, "amount": 18446744073709551615, "note": "b", "at": "2026-01-02T03:04:05Z"}
"#,
    r#"{"id": 5, "amount": "much", "seen": "maybe", "extra": 7, "at": "2026-01-02T03:04:05Z"}
"#,
    r#"{"id": 6, "amount": 1, "extra": 8, "sizes": [{"a": 1}]}
"#,
];

#[test]
fn files_of_every_version_are_read_by_name_with_duckdb_and_polars() {
    let Some(mut python) = python("duckdb, polars") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(folder.path(), SOURCE);
    fs::create_dir(folder.path().join("in")).unwrap();
    for (day, text) in DAYS.iter().enumerate() {
        fs::write(folder.path().join(format!("in/{day}.ndjson")), text).unwrap();
        run(folder.path(), &["ingest", file]).expect(0);
    }
    let zone = folder.path().join("out/landing/s");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/evolved.py");
    let ended = python.arg(script).arg(&zone).output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{errors}");
    let found: Value = serde_json::from_slice(&ended.stdout).unwrap();
    // Without casts, for columns whose types DuckDB and polars unify by themselves.
    let plain = json!([
        ["1", "10", null],
        ["2", "20", null],
        ["3", "2.5", null],
        ["4", "18446744073709551615.000000000000000000", null],
        ["5", "much", 7],
        ["6", "1", 8]
    ]);
    assert_eq!(found["duckdb_by_name"], plain);
    assert_eq!(found["polars_relaxed"], plain);
    // With the types of the newest entry of the log, every column, however its type changed.
    let rows = json!([
        ["1", "10", "true", "[1,2]", null, null],
        ["2", "20", "false", "[3]", null, null],
        ["3", "2.5", "true", "[1.5]", "a", null],
        [
            "4",
            "18446744073709551615.000000000000000000",
            null,
            null,
            "b",
            null
        ],
        ["5", "much", "maybe", null, null, 7],
        ["6", "1", null, "[{\"a\":1}]", null, 8],
    ]);
    assert_eq!(found["duckdb_by_log"], rows);
    assert_eq!(found["polars_by_log"], rows);
}
