//! Errors of a source without rows, and of rows without a feature.

use feedline_schemas::{commit::CommitEntry, decode, encode, failures::FAILED_RUNS};

use super::*;

const FAILED: &str =
    "the last run of `feedline ingest` failed or was deferred before it landed any";

/// Checks that the error of a build of source `a` has these `parts`.
async fn check_error(root: &Store, parts: &[&str]) {
    let error = build_with(root, "sources = [\"a\"]\n", 1).await;
    let error = error.unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// Source `a` with one entry, which has no rows.
async fn without_rows() -> Store {
    landed(&[("x", Float64), ("y", Float64)], &[]).await.0
}

#[tokio::test]
async fn a_source_without_rows_says_why() {
    check_error(&Store::memory(), &["run `feedline ingest` first"]).await;
    let no_record = "`feedline ingest` has read the source and found no record in it";
    let advice = "the file is empty or has a header line alone";
    check_error(&without_rows().await, &[no_record, advice]).await;
    let root = Store::memory();
    let landing = root.child("landing/a");
    landing.put("lock", "".into()).await.unwrap();
    check_error(&root, &["has run and committed nothing"]).await;
}

#[tokio::test]
async fn a_failed_run_is_the_reason_with_and_without_an_entry_before_it() {
    for root in [Store::memory(), without_rows().await] {
        let landing = root.child("landing/a");
        landing.put(FAILED_RUNS, "{}".into()).await.unwrap();
        let advice = "look at what `feedline ingest status` reports";
        check_error(&root, &[FAILED, advice]).await;
    }
}

#[tokio::test]
async fn a_deferred_run_is_the_reason_although_it_records_no_failure() {
    let root = without_rows().await;
    let (landing, path) = (root.child("landing/a"), "log/00000000000000000000.json");
    let bytes = landing.get(path).await.unwrap();
    let mut entry: CommitEntry = decode(path, &bytes).unwrap();
    entry.state.not_before_unix_s = Some(1);
    landing.put(path, encode(&entry).into()).await.unwrap();
    let advice = "look at what `feedline ingest status` reports";
    check_error(&root, &[FAILED, advice]).await;
}

#[tokio::test]
async fn rows_with_texts_of_their_own_alone_have_no_feature_and_the_error_names_them() {
    let row = |i: u64| vec![json!(format!("name {i}")), json!(i % 7)];
    let rows: Vec<Cells> = (0..100).map(row).collect();
    let (root, _) = landed(&[("name", Utf8), ("y", Int64)], &rows).await;
    let error = build_with(&root, "sources = [\"a\"]\ntarget = \"y\"\n", 1).await;
    let error = error.unwrap_err().to_string();
    let reason = "no column is left to be a feature: `name` holds a text of its own in (nearly) each training row; list one in \
                  `dataset.categorical`";
    assert!(error.contains(reason), "{error}");
}
