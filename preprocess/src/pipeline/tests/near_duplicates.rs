//! Datasets without near-duplicates.

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{
    manifest::Split,
    record::ColumnType::{Float64, Int64, Utf8},
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    read_manifest,
    testing::{Cells, LandingZone, blocks, build_with, contents, written},
    verify,
};
use arrow::{array::AsArray, datatypes::UInt64Type};

const DOCUMENTS: &str = "sources = [\"a\"]\nkind = \"characters\"\nsplit = { train = 0.6, validation = 0.2, test = 0.2 }\n";

/// Document `i`: 60 unique words; `changed` of them differ.
fn document(i: u64, changed: u64) -> String {
    let word = |at: u64| {
        let copy = if at < changed { changed } else { 0 };
        format!("w{} ", (i * 7919 + at * 104_729 + copy * 31) % 100_003)
    };
    (0..60).map(word).collect()
}

/// 120 documents, of every third a copy with one word changed, of every sixth another with two.
fn documents() -> Vec<Cells> {
    let mut rows = Vec::new();
    for i in 0..120 {
        rows.push(vec![json!(document(i, 0))]);
    }
    rows.extend((0..120).step_by(3).map(|i| vec![json!(document(i, 1))]));
    rows.extend((0..120).step_by(6).map(|i| vec![json!(document(i, 2))]));
    rows
}

async fn land(root: &Store, source: &str, rows: &[Cells]) {
    let mut zone = LandingZone::new(root, source, &[("text", Utf8)]);
    zone.batch(rows).await;
}

/// Split of every row, by its number in the landed batch.
async fn splits(root: &Store) -> BTreeMap<u64, Split> {
    let mut found = BTreeMap::new();
    for (split, batch) in blocks(&root.child("dataset")).await {
        let origins = batch["origin"].as_primitive::<UInt64Type>();
        for origin in origins.values() {
            let row = feedline_schemas::ids::Origin::from_packed(*origin).row();
            assert!(
                found.insert(row, split).is_none(),
                "row {row} is there twice"
            );
        }
    }
    found
}

/// The lines of the rejects.
async fn left_out(root: &Store) -> Vec<Value> {
    let dataset = root.child("dataset");
    let mut lines = Vec::new();
    for path in read_manifest(&dataset).await.unwrap().rejects {
        let text = dataset.get(&path).await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        lines.extend(
            text.lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap()),
        );
    }
    lines
}

#[tokio::test]
async fn of_near_duplicates_the_first_landed_is_kept_and_the_others_name_it() {
    let root = Store::memory();
    land(&root, "a", &documents()).await;
    let report = build_with(&root, &format!("{DOCUMENTS}near_dup = {{}}"), 2)
        .await
        .unwrap();
    assert_eq!(
        (report.rows_in, report.duplicates, report.rejected),
        (180, 0, 0)
    );
    assert_eq!(
        report.filtered,
        BTreeMap::from([("near_duplicate".to_owned(), 60)])
    );
    let near = report.near_dup.unwrap();
    assert_eq!(
        (near.documents, near.clusters, near.largest, near.copies),
        (180, 40, 3, 60)
    );
    assert_eq!((near.bands, near.rows, near.frozen), (14, 8, 0));
    let kept = splits(&root).await;
    assert_eq!(
        kept.keys().copied().collect::<BTreeSet<_>>(),
        (0..120).collect()
    );
    let lines = left_out(&root).await;
    assert_eq!(lines.len(), 60);
    for line in lines {
        let row = line["row"].as_u64().unwrap();
        let first = if row < 160 {
            (row - 120) * 3
        } else {
            (row - 160) * 6
        };
        assert_eq!(line["reason"], "near_duplicate");
        let kept = format!("nearly row {first} of batch 0 of source `a`");
        assert_eq!(line["value"], kept);
    }
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    assert!(manifest.near_dup.is_some_and(|near| near.ngram == 5));
    assert!(
        verify(&root.child("dataset"))
            .await
            .unwrap()
            .problems
            .is_empty()
    );
}

#[tokio::test]
async fn clusters_that_are_kept_whole_stand_in_the_split_of_their_first_row() {
    let (root, plain) = (Store::memory(), Store::memory());
    land(&root, "a", &documents()).await;
    land(&plain, "a", &documents()).await;
    let all = format!("{DOCUMENTS}near_dup = {{ keep = \"all\" }}");
    let report = build_with(&root, &all, 2).await.unwrap();
    assert!(report.filtered.is_empty());
    build_with(&plain, DOCUMENTS, 2).await.unwrap();
    let (found, alone) = (splits(&root).await, splits(&plain).await);
    assert_eq!(found.len(), 180);
    let mut moved = 0;
    for (row, split) in &found {
        let first = match row {
            0..120 => *row,
            120..160 => (row - 120) * 3,
            _ => (row - 160) * 6,
        };
        assert_eq!(*split, alone[&first], "row {row}");
        moved += u64::from(*split != alone[row]);
    }
    assert!(moved > 10, "{moved} copies would have leaked");
}

#[tokio::test]
async fn copies_of_frozen_documents_are_left_out_with_all_that_is_near_them() {
    let root = Store::memory();
    land(&root, "a", &documents()).await;
    // The copy of document 0 with two words changed, and document 1 as it is.
    let frozen = [
        vec![json!(document(0, 2))],
        vec![json!(document(1, 0))],
        vec![json!("other")],
    ];
    land(&root, "b", &frozen).await;
    for keep in ["first", "all"] {
        let dataset = format!(
            "kind = \"characters\"\nnear_dup = {{ against = [\"b\"], keep = \"{keep}\" }}\n\
             split = {{ train = 0.6, validation = 0.2, test = 0.2 }}"
        );
        let report = build_with(&root, &dataset, 2).await.unwrap();
        let near = report.near_dup.unwrap();
        assert_eq!((near.frozen, near.documents, near.of_frozen), (3, 180, 4));
        assert_eq!(report.filtered["near_duplicate_of_frozen"], 4);
        let kept = splits(&root).await;
        assert!([0, 1, 120, 160].iter().all(|row| !kept.contains_key(row)));
        let manifest = read_manifest(&root.child("dataset")).await.unwrap();
        let names: Vec<String> = manifest
            .sources
            .iter()
            .map(|s| s.name.to_string())
            .collect();
        assert_eq!(names, ["a", "b"], "what was read is named");
    }
    let line = left_out(&root).await.remove(0);
    assert_eq!(line["value"], "nearly row 0 of batch 0 of source `b`");
}

#[tokio::test]
async fn frozen_documents_are_compared_as_what_they_would_be_in_the_dataset() {
    let root = Store::memory();
    let text = "please write to anna.meyer@example.org about the final exam in june this year";
    let mut rows = documents();
    rows.push(vec![json!(text)]);
    land(&root, "a", &rows).await;
    land(&root, "b", &[vec![json!(text)]]).await;
    let dataset = "kind = \"characters\"\nnear_dup = { against = [\"b\"] }\ntext = { redact = [\"email\"] }\n\
                   split = { train = 0.6, validation = 0.2, test = 0.2 }";
    let report = build_with(&root, dataset, 2).await.unwrap();
    assert_eq!(report.filtered["near_duplicate_of_frozen"], 1);
    assert!(!splits(&root).await.contains_key(&180));
}

#[tokio::test]
async fn builds_are_equal_for_any_number_of_partitions_and_any_memory() {
    let mut found = Vec::new();
    for (partitions, memory) in [(1, "1 MiB"), (3, "64 MiB")] {
        let root = Store::memory();
        land(&root, "a", &documents()).await;
        // The memory is part of the configuration and so of what is hashed; the shards must be the same.
        let dataset = format!("{DOCUMENTS}near_dup = {{ memory = \"{memory}\" }}");
        build_with(&root, &dataset, partitions).await.unwrap();
        let mut files = contents(&root.child("dataset")).await;
        files.retain(|path, _| path.starts_with("shards/") || path.starts_with("rejects/"));
        found.push(files);
    }
    assert!(!found[0].is_empty() && found[0] == found[1]);
}

#[tokio::test]
async fn rows_of_numbers_are_compared_by_a_column_of_texts() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("x", Float64), ("y", Int64), ("note", Utf8)]);
    let row = |i: u64, changed: u64| {
        vec![
            json!(i as f64 / 7.0),
            json!(i % 5),
            json!(document(i, changed)),
        ]
    };
    let mut rows: Vec<Cells> = (0..200).map(|i| row(i, 0)).collect();
    rows.extend((0..50).map(|i| row(i, 1)));
    rows.push(vec![json!(1.0), json!(2), Value::Null]);
    zone.batch(&rows).await;
    let dataset =
        |near: &str| format!("sources = [\"a\"]\ntarget = \"y\"\ndrop = [\"note\"]\n{near}");
    let near = dataset("near_dup = { column = \"note\" }");
    let report = build_with(&root, &near, 3).await.unwrap();
    assert_eq!(report.filtered["near_duplicate"], 50);
    assert_eq!(report.train + report.validation + report.test, 201);
    assert_eq!(report.near_dup.unwrap().documents, 250);
    let rows = written(&root.child("dataset")).await;
    assert!(
        rows.iter().all(|row| row.x.len() == 1),
        "the text is no feature"
    );
}

#[tokio::test]
async fn boilerplate_that_chains_documents_stops_the_build() {
    let root = Store::memory();
    // Each has 100 words in a row of one long text, one word on from the one before it.
    let text = |i: u64| {
        (i..i + 100)
            .map(|word| format!("w{word} "))
            .collect::<String>()
    };
    let rows: Vec<Cells> = (0..1200).map(|i| vec![json!(text(i))]).collect();
    land(&root, "a", &rows).await;
    let error = build_with(&root, &format!("{DOCUMENTS}near_dup = {{}}"), 2)
        .await
        .unwrap_err();
    let found = error.to_string();
    assert!(
        found.contains("1200 of 1200 documents are one cluster"),
        "{found}"
    );
    assert!(found.contains("max_cluster_fraction"), "{found}");
}

#[tokio::test]
async fn keys_that_cannot_be_right_are_named() {
    let root = Store::memory();
    land(&root, "a", &documents()).await;
    land(&root, "b", &documents()).await;
    let check = async |dataset: &str, key: &str| {
        let error = build_with(&root, dataset, 1).await.unwrap_err();
        assert_eq!(crate::testing::config_key(&error), Some(key), "{error}");
    };
    let near = |keys: &str| format!("{DOCUMENTS}near_dup = {{ {keys} }}");
    check(&near("threshold = 0.1"), "dataset.near_dup.threshold").await;
    check(&near("threshold = 1.1"), "dataset.near_dup.threshold").await;
    check(&near("ngram = 0"), "dataset.near_dup.ngram").await;
    check(
        &near("ngram_characters = 101"),
        "dataset.near_dup.ngram_characters",
    )
    .await;
    check(&near("memory = \"1 KiB\""), "dataset.near_dup.memory").await;
    check(
        &near("max_cluster_fraction = 0"),
        "dataset.near_dup.max_cluster_fraction",
    )
    .await;
    check(&near("column = \"txt\""), "dataset.near_dup.column").await;
    check(&near("against = [\"a\"]"), "dataset.near_dup.against").await;
    check(&near("against = [\"z\"]"), "dataset.near_dup.against").await;
    check(
        "kind = \"characters\"\nnear_dup = { against = [\"a\", \"b\"] }",
        "dataset.sources",
    )
    .await;
    let other = Store::memory();
    land(&other, "a", &documents()).await;
    let mut zone = LandingZone::new(&other, "b", &[("body", Utf8)]);
    zone.batch(&documents()).await;
    let dataset = "kind = \"characters\"\nnear_dup = { against = [\"b\"] }";
    let error = build_with(&other, dataset, 1).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("source `b` has no column `text`"),
        "{error}"
    );
    let all = "kind = \"characters\"\nnear_dup = { keep = \"all\" }\n";
    check(
        &format!("{all}split = {{ by = \"range\" }}"),
        "dataset.near_dup.keep",
    )
    .await;
    check(
        &format!("{all}split = {{ key = [\"text\"] }}"),
        "dataset.near_dup.keep",
    )
    .await;
    check("near_dup = {}", "dataset.near_dup.column").await;
}

#[tokio::test]
async fn near_duplicates_with_other_labels_are_counted_with_the_key_that_keeps_them() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("note", Utf8), ("kind", Utf8)]);
    let row = |i: u64, changed: u64, kind: &str| vec![json!(document(i, changed)), json!(kind)];
    let kind = |i: u64| if i.is_multiple_of(2) { "ham" } else { "spam" };
    let mut rows: Vec<Cells> = (0..120).map(|i| row(i, 0, kind(i))).collect();
    // Copies of 20 documents have their label, those of 20 others have not, and ten of these are copied again with it.
    rows.extend((0..120).step_by(6).map(|i| row(i, 1, "ham")));
    rows.extend((1..120).step_by(6).map(|i| row(i, 1, "ham")));
    rows.extend((1..120).step_by(12).map(|i| row(i, 2, "spam")));
    zone.batch(&rows).await;
    let dataset = "sources = [\"a\"]\nkind = \"multi\"\ntext_column = \"note\"\ntarget = \"kind\"\n\
                   task = \"classification\"\ntokens = { vocabulary = 257, window = 6 }\n";
    let mut reports = Vec::new();
    for (near, partitions) in [("{}", 1), ("{}", 3), ("{ keep = \"all\" }", 2)] {
        let dataset = format!("{dataset}near_dup = {near}\n");
        let report = build_with(&root, &dataset, partitions).await.unwrap();
        let warnings = report.warnings.into_iter();
        let differ = warnings.filter(|warning| warning.code == "labels_differ");
        reports.push(differ.collect::<Vec<_>>());
    }
    let [warning] = &reports[0][..] else {
        panic!("{reports:?}")
    };
    assert_eq!(warning.key.as_deref(), Some("dataset.near_dup.keep"));
    let expected = "20 clusters of near-duplicates, in 50 rows, have different values of `kind`, such as `ham` and `spam` of row 1 of \
                    batch 0 of `a`";
    assert!(warning.message.starts_with(expected), "{warning:?}");
    assert_eq!(reports[1], reports[0]);
    assert!(reports[2].is_empty(), "{reports:?}");
}
