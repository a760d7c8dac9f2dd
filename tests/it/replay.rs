//! Archived responses of a source are read again without it.

use std::{fs, path::Path};

use crate::support::{files, pipeline, run};

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

#[test]
fn a_replay_lands_the_same_bytes_elsewhere_or_others_under_other_settings() {
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(folder.path(), PIPELINE);
    fs::write(folder.path().join("table.csv"), "a\n1\n").unwrap();
    let ingested = run(folder.path(), &["ingest", file, "--json"])
        .expect(0)
        .json();
    let before = files(&folder.path().join("out"));
    let replay = |root: &str, more: &[&str]| {
        let root = format!("pipeline.root={root}");
        let mut arguments = vec![
            "ingest", "replay", file, "--from", "out", "--set", &root, "--json",
        ];
        arguments.extend(more);
        run(folder.path(), &arguments)
    };
    let replayed = replay("again", &[]).expect(0).json();
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
    for kind in ["data", "rejects", "raw"] {
        let expected = landed(folder.path(), "out", kind);
        assert!(!expected.is_empty(), "{kind}");
        assert!(landed(folder.path(), "again", kind) == expected, "{kind}");
    }
    // Values that did not fit their column do now, and no response is copied.
    let widen = [
        "--set",
        "source.0.contract.types=widen",
        "--set",
        "source.0.archive_raw=false",
    ];
    let widened = replay("widened", &widen);
    let widened = widened.json();
    assert!(
        widened["rejected"].as_u64() < replayed["rejected"].as_u64(),
        "{widened}"
    );
    assert!(landed(folder.path(), "widened", "raw").is_empty());
    assert!(
        files(&folder.path().join("out")) == before,
        "the archive is only read"
    );

    let refused = |finished: crate::support::Finished, part: &str| {
        let finished = finished.expect(2);
        assert!(finished.stderr.contains(part), "{}", finished.stderr);
    };
    refused(replay("out", &[]), "is the root of the archive itself");
    refused(replay("x", &["--source", "table"]), "has no archive");
    refused(
        replay("x", &["--source", "nobody"]),
        "source `nobody` does not exist",
    );
    let other = replay(
        "x",
        &[
            "--set",
            "source.0.pagination.page_size=7",
            "--set",
            "source.0.pagination.size_param=n",
        ],
    );
    let other = other.expect(1);
    assert!(
        other.stderr.contains("no response to `/v1/market?n=7`"),
        "{}",
        other.stderr
    );
}
