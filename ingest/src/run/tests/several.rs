//! Pipelines of several sources.

use std::fs;

use feedline_schemas::{Classified as _, ErrorKind, config::load};

use super::*;
use crate::run::{IngestEnd, ingest, ingest_all};

#[tokio::test]
async fn a_source_that_fails_lets_the_others_land_and_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "[pipeline]\nname = \"p\"\n".to_owned();
    for (name, bytes) in [
        ("a", &b"n\n1\n"[..]),
        ("b", &[0xff, 0xfe, 0xff]),
        ("c", b"n\n2\n3\n"),
        ("d", &[0xff, 0xfe, 0xff]),
        ("e", b"n\n4\n"),
        ("f", b"n\n5\n"),
    ] {
        let file = folder.path().join(format!("{name}.csv"));
        fs::write(&file, bytes).unwrap();
        text += &format!(
            "[[source]]\nname = \"{name}\"\ntype = \"files\"\nurl = \"{}\"\n",
            file.display()
        );
    }
    let config = load("p.toml", &text, &[]).unwrap().config;
    let root = Store::memory();
    let error = ingest(&config, None, &context(&root))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("b.csv"), "the first in order: {error}");
    let mut rows = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let landed = landed(&root, &Name::new(name).unwrap()).await.unwrap();
        rows.push(landed.map_or(0, |landed| landed.entries.last().unwrap().state.totals.rows));
    }
    assert_eq!(rows, [1, 0, 2, 0, 1, 1]);
    // After a repair, only the failed sources are read.
    for name in ["b", "d"] {
        fs::write(folder.path().join(format!("{name}.csv")), "n\n7\n").unwrap();
    }
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    let order: Vec<&str> = report
        .sources
        .iter()
        .map(|source| source.name.as_str())
        .collect();
    assert_eq!(
        (report.rows, order),
        (7, vec!["a", "b", "c", "d", "e", "f"])
    );
}

#[tokio::test]
async fn a_wish_to_stop_hides_no_failure_and_leaves_a_report_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.csv");
    fs::write(&file, "n\n1\n").unwrap();
    let good = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"{}\"\n",
        file.display()
    );
    let bad = "[[source]]\nname = \"b\"\ntype = \"rest\"\nurl = \"ftp://h.example/\"\n";
    let root = Store::memory();
    let stopped = Context {
        cancel: watch::channel(true).1,
        ..context(&root)
    };
    let both = load("p.toml", &format!("{good}{bad}"), &[]).unwrap().config;
    match ingest(&both, None, &stopped).await {
        Err(Error::Config { key, .. }) => assert_eq!(key, "source.1.url"),
        other => panic!("{other:?}"),
    }
    let alone = load("p.toml", &good, &[]).unwrap().config;
    let IngestEnd { report, error } = ingest_all(&alone, None, &stopped).await.unwrap();
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Cancelled));
    assert!(report.stopped);
    assert_eq!((report.new_rows, report.new_rejected), (Some(0), Some(0)));
    assert_eq!(
        (report.sources[0].status.as_str(), report.rows),
        ("empty", 0)
    );
    assert_eq!(ingest(&alone, None, &context(&root)).await.unwrap().rows, 1);
}
