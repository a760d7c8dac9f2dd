//! Archived responses of a source are read again without it.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support::{Finished, files, pipeline, run};

const PIPELINE: &str = r#"
[pipeline]
name = "p"
root = "out"

[[source]]
name = "market"
type = "rest"
url = "demo://market?rows=3000"
records = "data.items"
pagination = { type = "cursor", cursor_path = "paging.next_cursor" }
batch = { rows = 700 }
retry = { base_ms = 1, cap_ms = 5 }
archive_raw = true

[[source]]
name = "table"
type = "files"
url = "table.csv"
"#;

fn landed(folder: &Path, root: &str, kind: &str) -> Vec<(String, Vec<u8>)> {
    files(&folder.join(root).join("landing/market").join(kind))
}

/// Replays the archive of `out` into the root folder `root`.
fn replay(folder: &Path, root: &str, more: &[&str]) -> Finished {
    let root = format!("pipeline.root={root}");
    let mut arguments = vec![
        "ingest",
        "replay",
        "pipeline.toml",
        "--from",
        "out",
        "--set",
        &root,
        "--json",
    ];
    arguments.extend(more);
    run(folder, &arguments)
}

#[test]
fn a_replay_lands_the_same_bytes_elsewhere_or_others_under_other_settings() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = pipeline(at, PIPELINE);
    fs::write(at.join("table.csv"), "a\n1\n").unwrap();
    let ingested = run(at, &["ingest", file, "--json"]).expect(0).json();
    let before = files(&at.join("out"));

    let replayed = replay(at, "again", &[]).expect(0).json();
    check_replayed(&replayed, &ingested);
    for kind in ["data", "rejects", "raw"] {
        let expected = landed(at, "out", kind);
        assert!(!expected.is_empty(), "{kind}");
        assert!(landed(at, "again", kind) == expected, "{kind}");
    }
    replay(at, "strict", &["--fail-on-rejects"]).expect(3);
    // Values that did not fit their column do now, and no response is copied.
    let widen = [
        "--set",
        "source.0.contract.types=widen",
        "--set",
        "source.0.archive_raw=false",
    ];
    let widened = replay(at, "widened", &widen).json();
    assert!(
        widened["rejected"].as_u64() < replayed["rejected"].as_u64(),
        "{widened}"
    );
    assert!(landed(at, "widened", "raw").is_empty());
    assert!(files(&at.join("out")) == before, "the archive is only read");
    check_refusals(at);
}

/// Compares the report of a replay with that of the archived ingest.
fn check_replayed(replayed: &Value, ingested: &Value) {
    let source = &replayed["sources"][0];
    let first = &ingested["sources"][0];
    for key in [
        "rows",
        "duplicates",
        "rejected",
        "batches",
        "pages",
        "bytes",
    ] {
        assert_eq!(source[key], first[key], "{key}");
    }
    assert_eq!(
        (&source["requests"], &source["status"]),
        (&0.into(), &"complete".into())
    );
    // The table has no archive.
    assert_eq!(replayed["sources"].as_array().unwrap().len(), 1);
}

/// Replays that are refused: into the archive, of sources without one, and of other requests.
fn check_refusals(folder: &Path) {
    let cases: [(&str, &[&str], i32, &str); 4] = [
        ("out", &[], 2, "is the root of the archive itself"),
        ("x", &["--source", "table"], 2, "has no archive"),
        (
            "x",
            &["--source", "nobody"],
            2,
            "source `nobody` does not exist",
        ),
        (
            "x",
            &[
                "--set",
                "source.0.pagination.page_size=7",
                "--set",
                "source.0.pagination.size_param=n",
            ],
            1,
            "no response to `/v1/market?n=7`",
        ),
    ];
    for (root, more, code, part) in cases {
        let refused = replay(folder, root, more).expect(code);
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
}
