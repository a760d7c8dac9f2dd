//! Retried rejects, rewinds, changed files and deletions of batches whose rows a compaction has merged,
//! over real files.

use std::{collections::BTreeSet, fs};

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{Int64Type, UInt64Type},
};
use feedline_schemas::{
    commit::Compacted,
    config::load,
    decode, encode,
    ids::{Hash128, Sequence},
    log_effect::{holder, index_of},
    record::system,
    report::{IngestReport, SourceReport},
};
use feedline_storage::Store;
use tempfile::TempDir;

use super::*;
use crate::{commit_log::Commit, landed_file, run::ingest, testing, verify::verify};

fn context(root: &Store) -> Context {
    Context {
        root: root.clone(),
        ..testing::context()
    }
}

/// A source of the files of `folder` with an integer `v`, two records a batch.
fn pipeline(folder: &TempDir, types: &str) -> PipelineConfig {
    let path = folder.path().display();
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{path}/*.csv\"\nbatch = {{ rows = 2 }}\n\
         contract = {{ max_reject_fraction = 1.0, types = \"{types}\", column = {{ v = {{ type = \"int\" }} }} }}\n"
    );
    load("p.toml", &text, &[]).unwrap().config
}

/// A contract that rejects the rows with a letter for `v`.
fn strict(folder: &TempDir) -> PipelineConfig {
    pipeline(folder, "quarantine_row")
}

fn name() -> Name {
    Name::new("s").unwrap()
}

/// Writes a file of the rows `id,v`.
fn put(folder: &TempDir, name: &str, rows: &[&str]) {
    let text = format!("id,v\n{}\n", rows.join("\n"));
    fs::write(folder.path().join(name), text).unwrap();
}

/// Three files of six rows each, with consecutive ids: nine batches.
fn three_files() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, first) in [("a.csv", 0), ("b.csv", 6), ("c.csv", 12)] {
        let rows: Vec<String> = (first..first + 6).map(|id| format!("{id},1")).collect();
        put(
            &folder,
            name,
            &rows.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }
    folder
}

async fn bring(config: &PipelineConfig, root: &Store) -> SourceReport {
    let report: IngestReport = ingest(config, None, &context(root)).await.unwrap();
    report.sources.into_iter().next().unwrap()
}

async fn merge(config: &PipelineConfig, root: &Store) {
    let merged = compact(config, &name(), TARGET_BYTES, &context(root), false).await;
    assert_eq!(merged.unwrap().compacted.unwrap().files_after, 1);
}

async fn remove(
    config: &PipelineConfig,
    root: &Store,
    batches: &[u64],
) -> Result<AmendReport, Error> {
    delete(config, &name(), batches, &context(root), false).await
}

/// Checks that a deletion is refused, since the rows are in one file with those of so many batches.
async fn check_refused(config: &PipelineConfig, root: &Store, batches: &[u64], together: &str) {
    let before = rows(config, root).await;
    let error = remove(config, root, batches).await.unwrap_err().to_string();
    let expected = format!("in one file with those of {together}, since");
    assert!(error.contains(&expected), "{batches:?}: {error}");
    assert_eq!(rows(config, root).await, before);
}

async fn entries(root: &Store) -> Vec<CommitEntry> {
    crate::landed(root, &name()).await.unwrap().unwrap().entries
}

fn batch_numbers(rows: &RecordBatch) -> Vec<u64> {
    let column = rows.column_by_name(system::SEQUENCE).unwrap();
    column.as_primitive::<UInt64Type>().values().to_vec()
}

/// Batch and `id` of each row that counts, in order. The folder of data files has no others, and all
/// files are intact.
async fn rows(config: &PipelineConfig, root: &Store) -> Vec<(u64, i64)> {
    let landing = root.child("landing/s");
    let (mut all, mut named) = (Vec::new(), Vec::new());
    for file in entries(root).await.iter().flat_map(|entry| &entry.files) {
        named.push(file.path.clone());
        for batch in landed_file::read_whole(&landing, file).await.unwrap() {
            let ids = batch.column_by_name("id").unwrap();
            let ids = ids.as_primitive::<Int64Type>().values().to_vec();
            all.extend(batch_numbers(&batch).into_iter().zip(ids));
        }
    }
    let listed = landing.list("data").await.unwrap();
    let listed: BTreeSet<String> = listed.into_iter().map(|file| file.path).collect();
    let named: BTreeSet<String> = named.into_iter().collect();
    assert_eq!(listed, named);
    let verified = verify(config, None, root).await.unwrap();
    assert!(verified.sources[0].damage.is_empty(), "{verified:?}");
    assert!(verified.sources[0].unnamed.is_empty(), "{verified:?}");
    all.sort_unstable();
    all
}

async fn ids(config: &PipelineConfig, root: &Store) -> Vec<i64> {
    let mut ids: Vec<i64> = rows(config, root).await.iter().map(|(_, id)| *id).collect();
    ids.sort_unstable();
    ids
}

/// Batches with rows in superseded files.
async fn superseded_batches(root: &Store) -> BTreeSet<u64> {
    let landing = root.child("landing/s");
    let mut all = BTreeSet::new();
    for file in landing.list("superseded/data").await.unwrap() {
        let bytes = landing.get(&file.path).await.unwrap();
        for batch in landed_file::decode(bytes, Some(&[system::SEQUENCE]), None).unwrap() {
            all.extend(batch_numbers(&batch));
        }
    }
    all
}

/// Three batches of `a.csv`, merged, and then a fourth one of the row that the first has rejected. Also
/// returns its number.
async fn retried_after_merge() -> (TempDir, PipelineConfig, Store, u64) {
    let folder = tempfile::tempdir().unwrap();
    put(
        &folder,
        "a.csv",
        &["1,1", "2,x", "3,3", "4,4", "5,5", "6,6"],
    );
    let root = Store::memory();
    bring(&strict(&folder), &root).await;
    merge(&strict(&folder), &root).await;
    let mended = pipeline(&folder, "null_value");
    let report = retry_rejects(&mended, &name(), &context(&root), false).await;
    let retried = report.unwrap().sequence.unwrap();
    let expected = [(0, 1), (1, 3), (1, 4), (2, 5), (2, 6), (retried, 2)];
    assert_eq!(rows(&mended, &root).await, expected);
    (folder, mended, root, retried)
}

#[tokio::test]
async fn merged_batches_whose_rejects_were_retried_are_deleted_together_or_not_at_all() {
    let (_folder, config, root, retried) = Box::pin(retried_after_merge()).await;
    for batches in [&[0][..], &[1, 2], &[0, retried]] {
        check_refused(&config, &root, batches, "3 batches from 0 to 2").await;
    }
    let report = remove(&config, &root, &[0, 1, 2]).await.unwrap();
    assert_eq!(report.rows, 5);
    assert_eq!(rows(&config, &root).await, [(retried, 2)]);
    assert!(superseded_batches(&root).await.is_empty());
}

#[tokio::test]
async fn a_changed_file_whose_rejects_were_retried_after_a_merge_supersedes_all_of_its_rows() {
    let (folder, config, root, _) = Box::pin(retried_after_merge()).await;
    put(&folder, "a.csv", &["1,10", "20,20", "30,30"]);
    let report = bring(&config, &root).await;
    assert_eq!(report.rows, 3);
    assert_eq!(ids(&config, &root).await, [1, 20, 30]);
}

/// Merges again. Earlier releases left a batch out of the range once its rejects were retried.
async fn merge_without_first(config: &PipelineConfig, root: &Store) {
    merge(config, root).await;
    let log = root.child("landing/s/log");
    let path = log.list("").await.unwrap().pop().unwrap().path;
    let mut entry: CommitEntry = decode(&path, &log.get(&path).await.unwrap()).unwrap();
    assert_eq!(entry.compacted[0].first, Sequence::new(0));
    entry.compacted[0].first = Sequence::new(1);
    log.put(&path, encode(&entry).into()).await.unwrap();
}

#[tokio::test]
async fn a_batch_that_a_second_merge_left_out_is_deleted_with_the_others_or_not_at_all() {
    let (_folder, config, root, retried) = Box::pin(retried_after_merge()).await;
    merge_without_first(&config, &root).await;
    let together = format!("4 batches from 0 to {retried}");
    check_refused(&config, &root, &[0], &together).await;
    let report = remove(&config, &root, &[0, 1, 2, retried]).await.unwrap();
    assert_eq!(report.rows, 6);
    assert!(rows(&config, &root).await.is_empty());
}

#[tokio::test]
async fn a_changed_file_supersedes_the_rows_of_a_batch_that_a_second_merge_left_out() {
    let (folder, config, root, _) = Box::pin(retried_after_merge()).await;
    merge_without_first(&config, &root).await;
    put(&folder, "a.csv", &["1,10", "20,20", "30,30"]);
    bring(&config, &root).await;
    assert_eq!(ids(&config, &root).await, [1, 20, 30]);
}

#[tokio::test]
async fn a_rewind_keeps_the_rows_of_a_batch_that_a_second_merge_left_out() {
    let (folder, config, root, retried) = Box::pin(retried_after_merge()).await;
    let before = rows(&config, &root).await;
    put(&folder, "b.csv", &["7,7"]);
    assert_eq!(bring(&config, &root).await.rows, before.len() as u64 + 1);
    merge_without_first(&config, &root).await;
    rewind(&config, &name(), retried, &context(&root), false)
        .await
        .unwrap();
    assert_eq!(rows(&config, &root).await, before);
}

#[tokio::test]
async fn a_batch_whose_rejects_were_retried_before_a_merge_is_deleted_with_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder, "a.csv", &["1,1", "2,x", "3,3"]);
    let root = Store::memory();
    let first = bring(&strict(&folder), &root).await;
    assert_eq!((first.rows, first.rejected), (2, 1));
    let mended = pipeline(&folder, "null_value");
    let report = retry_rejects(&mended, &name(), &context(&root), false).await;
    let retried = report.unwrap().sequence.unwrap();
    merge(&mended, &root).await;
    let together = format!("3 batches from 0 to {retried}");
    check_refused(&mended, &root, &[0], &together).await;
    let batches = [0, 1, retried];
    let report = remove(&mended, &root, &batches).await.unwrap();
    assert_eq!(report.rows, 3);
    for folder in ["data", "superseded"] {
        let left = root.child("landing/s").list(folder).await.unwrap();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
}

/// Five batches, the third without rows, merged and rewound to that one.
async fn rewound_to_rejects() -> (TempDir, PipelineConfig, Store) {
    let folder = tempfile::tempdir().unwrap();
    let lines = "1,1 2,2 3,3 4,4 5,x 6,y 7,7 8,8 9,9 10,10";
    let lines: Vec<&str> = lines.split(' ').collect();
    put(&folder, "a.csv", &lines);
    let config = strict(&folder);
    let root = Store::memory();
    bring(&config, &root).await;
    merge(&config, &root).await;
    rewind(&config, &name(), 2, &context(&root), false)
        .await
        .unwrap();
    assert_eq!(rows(&config, &root).await, [(0, 1), (0, 2), (1, 3), (1, 4)]);
    (folder, config, root)
}

#[tokio::test]
async fn a_batch_without_rows_is_deleted_alone_after_a_merge_and_a_rewind_to_it() {
    let (_folder, config, root) = rewound_to_rejects().await;
    let before = rows(&config, &root).await;
    assert_eq!(holder(&entries(&root).await, 0), 1);
    let report = remove(&config, &root, &[2]).await.unwrap();
    assert_eq!((report.rows, report.rejected), (0, 2));
    assert_eq!(rows(&config, &root).await, before);
    check_refused(&config, &root, &[1], "2 batches from 0 to 1").await;
    bring(&config, &root).await;
    assert_eq!(ids(&config, &root).await, [1, 2, 3, 4, 7, 8, 9, 10]);
}

#[tokio::test]
async fn a_merged_file_that_counts_as_that_of_a_batch_without_rows_goes_with_the_batches_in_it() {
    for is_deleted in [false, true] {
        let (_folder, config, root) = rewound_to_rejects().await;
        // Earlier releases gave a rewritten file to the last entry, with or without rows.
        let mut log = CommitLog::open(&root, &name(), "earlier", Hash128::of(b""))
            .await
            .unwrap();
        let own = index_of(log.entries(), Sequence::new(1)).unwrap();
        let mut commit = Commit::amending(log.last().unwrap());
        commit.compacted = vec![Compacted {
            first: Sequence::new(0),
            last: Sequence::new(2),
            files: log.entries()[own].files.clone(),
            children: Default::default(),
        }];
        log.append(commit).await.unwrap();
        drop(log);
        let before = rows(&config, &root).await;
        assert_eq!(holder(&entries(&root).await, 0), 2);
        if is_deleted {
            let report = remove(&config, &root, &[2]).await.unwrap();
            assert_eq!((report.rows, report.rejected), (0, 2));
            assert_eq!(rows(&config, &root).await, before);
        }
        check_refused(&config, &root, &[0], "2 batches from 0 to 1").await;
        let report = remove(&config, &root, &[0, 1]).await.unwrap();
        assert_eq!(report.rows, 4);
        assert!(rows(&config, &root).await.is_empty());
        let left = root.child("landing/s").list("rejects").await.unwrap();
        assert_eq!(left.is_empty(), is_deleted, "{left:?}");
    }
}

#[tokio::test]
async fn superseded_rows_of_a_merged_batch_are_deleted_and_the_others_stay() {
    let folder = three_files();
    let config = strict(&folder);
    let root = Store::memory();
    bring(&config, &root).await;
    merge(&config, &root).await;
    put(&folder, "b.csv", &["100,1"]);
    bring(&config, &root).await;
    let before = rows(&config, &root).await;
    assert_eq!(before.len(), 13);
    let report = remove(&config, &root, &[4]).await.unwrap();
    assert_eq!((report.rows, &report.batches[..]), (0, &[4][..]));
    assert_eq!(rows(&config, &root).await, before);
    let superseded = superseded_batches(&root).await;
    assert!(superseded.contains(&5) && !superseded.contains(&4));
    check_refused(&config, &root, &[0], "6 batches from 0 to 8").await;
    let report = remove(&config, &root, &[0, 1, 2, 6, 7, 8]).await.unwrap();
    assert_eq!(report.rows, 12);
    assert_eq!(rows(&config, &root).await, before[12..]);
    let superseded = superseded_batches(&root).await;
    assert!(
        superseded.is_subset(&BTreeSet::from([3, 5])),
        "{superseded:?}"
    );
}

#[tokio::test]
async fn a_merged_file_goes_with_its_rows_if_those_of_its_entry_were_superseded() {
    let folder = three_files();
    let config = strict(&folder);
    let root = Store::memory();
    bring(&config, &root).await;
    merge(&config, &root).await;
    // The entry of the merged file is the last one of `c.csv`.
    put(&folder, "c.csv", &["100,1"]);
    bring(&config, &root).await;
    let before = rows(&config, &root).await;
    let report = remove(&config, &root, &[8]).await.unwrap();
    assert_eq!(report.rows, 0);
    assert_eq!(rows(&config, &root).await, before);
    let report = remove(&config, &root, &[0, 1, 2, 3, 4, 5]).await.unwrap();
    assert_eq!(report.rows, 12);
    assert_eq!(ids(&config, &root).await, [100]);
}
