//! Warnings of splits and classes of few rows, and of splits that miss their shares.

use feedline_schemas::record::ColumnType::{Float64, Utf8};
use feedline_storage::Store;
use serde_json::json;

use crate::pipeline::*;
use crate::{
    read_manifest,
    testing::{Cells, LandingZone, build_with},
};

/// Rows whose split and class are columns, as many of each as `counts` has. They differ in their numbers, from `first` on.
fn rows(first: u32, counts: &[(&str, &str, usize)]) -> Vec<Cells> {
    let each = counts.iter().flat_map(|(split, class, count)| {
        std::iter::repeat_n((json!(split), json!(class)), *count)
    });
    let numbered = (first..).zip(each);
    numbered
        .map(|(i, (split, class))| vec![json!(f64::from(i) / 7.0), split, class])
        .collect()
}

async fn land(counts: &[(&str, &str, usize)]) -> (Store, LandingZone) {
    let root = Store::memory();
    let columns = [("x", Float64), ("part", Utf8), ("y", Utf8)];
    let mut zone = LandingZone::new(&root, "a", &columns);
    zone.batch(&rows(0, counts)).await;
    (root, zone)
}

const DATASET: &str = "sources = [\"a\"]\ntarget = \"y\"\ntask = \"classification\"\n\
                       split = { by = \"column\", column = \"part\" }\n";

fn message_of(report: &DatasetReport, code: &str) -> Option<String> {
    let mut found = report
        .warnings
        .iter()
        .filter(|warning| warning.code == code);
    let message = found.next().map(|warning| warning.message.clone());
    assert_eq!(found.next(), None, "one warning for each fact");
    message
}

#[tokio::test]
async fn small_splits_rare_classes_and_one_class_nearly_alone_are_warned_of() {
    let counts = [
        ("train", "ok", 400),
        ("train", "bad", 3),
        ("validation", "ok", 29),
        ("test", "ok", 30),
    ];
    let (root, _) = land(&counts).await;
    let report = build_with(&root, DATASET, 2).await.unwrap();
    let small = message_of(&report, "few_split_rows").unwrap();
    assert!(small.contains("has 29 validation rows: "), "{small}");
    let rare = message_of(&report, "rare_classes").unwrap();
    assert!(rare.contains("fewer than 10 training rows"), "{rare}");
    assert!(rare.contains(": `bad` (3); "), "{rare}");
    let unbalanced = message_of(&report, "classes_unbalanced").unwrap();
    assert!(unbalanced.starts_with("99.3 % "), "{unbalanced}");
    assert!(unbalanced.contains("`[\"ok\", \"bad\"]`"), "{unbalanced}");
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    assert_eq!(manifest.warnings, report.warnings);
}

#[tokio::test]
async fn appended_rows_end_the_warnings_of_sizes() {
    let counts = [
        ("train", "ok", 400),
        ("train", "bad", 3),
        ("validation", "ok", 29),
    ];
    let (root, mut zone) = land(&counts).await;
    let report = build_with(&root, DATASET, 2).await.unwrap();
    assert!(message_of(&report, "few_split_rows").is_some());
    let more = [("train", "bad", 97), ("validation", "bad", 40)];
    zone.batch(&rows(1000, &more)).await;
    let report = build_with(&root, DATASET, 2).await.unwrap();
    assert!(report.added.is_some());
    for code in ["few_split_rows", "rare_classes", "classes_unbalanced"] {
        assert_eq!(message_of(&report, code), None);
    }
}

/// Rows of these customers, with numbers from `first` on.
fn rows_of(first: u32, customers: impl Iterator<Item = String>) -> Vec<Cells> {
    let numbered = (first..).zip(customers);
    numbered
        .map(|(i, customer)| {
            let class = ["a", "b"][(i % 2) as usize];
            vec![json!(f64::from(i) / 7.0), json!(customer), json!(class)]
        })
        .collect()
}

#[tokio::test]
async fn shares_of_the_splits_are_those_of_all_rows_after_each_append() {
    let dataset = "sources = [\"a\"]\ntarget = \"y\"\ntask = \"classification\"\n\
                   split = { key = [\"customer\"] }\n";
    let root = Store::memory();
    let columns = [("x", Float64), ("customer", Utf8), ("y", Utf8)];
    let mut zone = LandingZone::new(&root, "a", &columns);
    let customers = |count: u32| (0..count).map(move |i| format!("c{count}-{i}"));
    zone.batch(&rows_of(0, customers(300))).await;
    let report = build_with(&root, dataset, 2).await.unwrap();
    assert_eq!(message_of(&report, "split_misses_share"), None);
    // Whatever its split, it then has too many rows.
    let one = std::iter::repeat_n("large".to_owned(), 600);
    zone.batch(&rows_of(1000, one)).await;
    let report = build_with(&root, dataset, 2).await.unwrap();
    assert!(report.added.is_some());
    let message = message_of(&report, "split_misses_share").unwrap();
    assert!(message.contains(" of 900 rows, a share of "), "{message}");
    let cause = ", since groups of `customer` are not divided";
    assert!(message.ends_with(cause), "{message}");
    zone.batch(&rows_of(2000, customers(6000))).await;
    let report = build_with(&root, dataset, 2).await.unwrap();
    assert!(report.added.is_some());
    assert_eq!(message_of(&report, "split_misses_share"), None);
}
