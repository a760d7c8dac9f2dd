//! Rewinds, changed files and deletions of batches whose child rows a compaction has moved, over real
//! files.

use std::{collections::BTreeSet, fs};

use arrow::{array::AsArray, datatypes::Int64Type};
use feedline_schemas::{commit::Compacted, config::load, ids::Sequence};
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

/// A source of the files of `folder`, a record a batch, whose `items` are a child table.
fn pipeline(folder: &TempDir) -> PipelineConfig {
    let path = folder.path().display();
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{path}/*.ndjson\"\nbatch = {{ rows = 1 }}\n\
         [source.contract.children.items]\n"
    );
    load("p.toml", &text, &[]).unwrap().config
}

fn name() -> Name {
    Name::new("s").unwrap()
}

/// Writes the file with number `file`, of one record.
fn put(folder: &TempDir, file: usize, id: i64, items: &[i64]) {
    let text = format!("{{\"id\":{id},\"items\":{items:?}}}\n");
    fs::write(folder.path().join(format!("{file}.ndjson")), text).unwrap();
}

async fn bring(config: &PipelineConfig, root: &Store) {
    ingest(config, None, &context(root)).await.unwrap();
}

async fn merge(config: &PipelineConfig, root: &Store) {
    let merged = compact(config, &name(), TARGET_BYTES, &context(root), false).await;
    assert_eq!(merged.unwrap().compacted.unwrap().entries.len(), 1);
}

/// Merges the entries from `first` to `last` as earlier releases did: child files stay.
async fn merge_records_alone(config: &PipelineConfig, root: &Store, first: u64, last: u64) {
    let hash = config_hash(&config.source[0]);
    let log = CommitLog::open(root, &name(), "earlier", hash).await;
    let mut log = log.unwrap();
    let mut commit = Commit::amending(log.last().unwrap());
    let files = log.entries().iter().flat_map(|entry| entry.files.clone());
    commit.compacted = vec![Compacted {
        first: Sequence::new(first),
        last: Sequence::new(last),
        files: files.collect(),
        children: Default::default(),
    }];
    log.append(commit).await.unwrap();
}

/// Integers of a column of files, sorted.
async fn integers(landing: &Store, files: &[DataFile], column: &str) -> Vec<i64> {
    let mut all = Vec::new();
    for file in files {
        for batch in landed_file::read_whole(landing, file).await.unwrap() {
            let values = batch.column_by_name(column).unwrap();
            all.extend(values.as_primitive::<Int64Type>().values().iter().copied());
        }
    }
    all.sort_unstable();
    all
}

/// The ids of the records that count, and their items. The folders have no other files, and all are
/// intact.
async fn rows(config: &PipelineConfig, root: &Store) -> (Vec<i64>, Vec<i64>) {
    let landing = root.child("landing/s");
    let entries = crate::landed(root, &name()).await.unwrap().unwrap().entries;
    let (mut records, mut items) = (Vec::new(), Vec::new());
    for entry in &entries {
        records.extend(entry.files.iter().cloned());
        let tables = entry.children.values().flat_map(|table| &table.files);
        items.extend(tables.cloned());
    }
    for (folder, files) in [("data", &records), ("children", &items)] {
        let listed = landing.list(folder).await.unwrap();
        let listed: BTreeSet<&str> = listed.iter().map(|file| file.path.as_str()).collect();
        let named: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(listed, named);
    }
    let verified = verify(config, None, root).await.unwrap();
    assert!(verified.sources[0].damage.is_empty(), "{verified:?}");
    let records = integers(&landing, &records, "id").await;
    (records, integers(&landing, &items, "value").await)
}

/// The writer of the second merge.
#[derive(Clone, Copy, Debug)]
enum MergeWriter {
    Current,
    Earlier,
}

const WRITERS: [MergeWriter; 2] = [MergeWriter::Current, MergeWriter::Earlier];

/// Items of five records.
type RecordItems = [&'static [i64]; 5];

/// The first three records have items, all of them in one file after the first merge.
const ITEMS: RecordItems = [&[0, 1], &[10], &[20], &[], &[]];

/// Numbers of the entries of the five records: the first three are merged by the entry between.
const BATCHES: [u64; 5] = [0, 1, 2, 4, 5];

/// Five batches of a record each: the first three are merged, and then all five.
async fn merged_twice(items: RecordItems, writer: MergeWriter) -> (TempDir, PipelineConfig, Store) {
    let folder = tempfile::tempdir().unwrap();
    let (config, root) = (pipeline(&folder), Store::memory());
    for (id, items) in (0_i64..).zip(items).take(3) {
        put(&folder, usize::try_from(id).unwrap(), id, items);
    }
    bring(&config, &root).await;
    merge(&config, &root).await;
    for (id, items) in (0_i64..).zip(items).skip(3) {
        put(&folder, usize::try_from(id).unwrap(), id, items);
    }
    bring(&config, &root).await;
    match writer {
        MergeWriter::Current => merge(&config, &root).await,
        MergeWriter::Earlier => merge_records_alone(&config, &root, 0, 5).await,
    }
    assert_eq!(rows(&config, &root).await, first(items, 5));
    (folder, config, root)
}

/// The first `count` records and their items.
fn first(items: RecordItems, count: usize) -> (Vec<i64>, Vec<i64>) {
    let ids: Vec<i64> = (0..).take(count).collect();
    (ids, items[..count].concat())
}

/// Checks a rewind to each batch, and that the next run lands the others again.
async fn check_rewinds(items: RecordItems, writer: MergeWriter) {
    for (before, to) in BATCHES.into_iter().enumerate() {
        let (_folder, config, root) = merged_twice(items, writer).await;
        let report = rewind(&config, &name(), to, &context(&root), false).await;
        report.unwrap();
        let expected = first(items, before + 1);
        assert_eq!(
            rows(&config, &root).await,
            expected,
            "{items:?} {writer:?} {to}"
        );
        bring(&config, &root).await;
        let expected = first(items, 5);
        assert_eq!(
            rows(&config, &root).await,
            expected,
            "{items:?} {writer:?} {to}"
        );
    }
}

#[tokio::test]
async fn a_rewind_into_a_range_that_was_merged_again_keeps_the_child_rows_before_it() {
    for writer in WRITERS {
        Box::pin(check_rewinds(ITEMS, writer)).await;
    }
}

#[tokio::test]
async fn a_rewind_keeps_all_rows_if_one_batch_of_a_merged_range_has_child_rows() {
    let all: [RecordItems; 4] = [
        [&[0], &[], &[], &[], &[]],
        [&[], &[10], &[], &[], &[]],
        [&[], &[], &[], &[30], &[]],
        [&[], &[10], &[], &[], &[40]],
    ];
    for items in all {
        Box::pin(check_rewinds(items, MergeWriter::Current)).await;
    }
}

#[tokio::test]
async fn a_changed_file_supersedes_its_child_rows_in_a_range_that_was_merged_again() {
    for writer in WRITERS {
        let (folder, config, root) = merged_twice(ITEMS, writer).await;
        put(&folder, 1, 11, &[110, 111]);
        bring(&config, &root).await;
        let expected = (vec![0, 2, 3, 4, 11], vec![0, 1, 20, 110, 111]);
        assert_eq!(rows(&config, &root).await, expected, "{writer:?}");
    }
}

#[tokio::test]
async fn batches_of_a_range_that_was_merged_again_are_deleted_with_their_child_rows() {
    for writer in WRITERS {
        let (_folder, config, root) = merged_twice(ITEMS, writer).await;
        let some = delete(&config, &name(), &[0, 1], &context(&root), false).await;
        some.unwrap_err();
        let all = delete(&config, &name(), &BATCHES, &context(&root), false).await;
        assert_eq!(all.unwrap().rows, 5);
        assert_eq!(rows(&config, &root).await, first(ITEMS, 0));
    }
}

#[tokio::test]
async fn a_range_with_child_files_left_in_it_stays_and_later_batches_are_merged() {
    let (folder, config, root) = merged_twice(ITEMS, MergeWriter::Earlier).await;
    for id in [5_i64, 6] {
        put(&folder, usize::try_from(id).unwrap(), id, &[10 * id]);
    }
    bring(&config, &root).await;
    merge(&config, &root).await;
    let all: (Vec<i64>, Vec<i64>) = ((0..7).collect(), vec![0, 1, 10, 20, 50, 60]);
    assert_eq!(rows(&config, &root).await, all);
    let report = rewind(&config, &name(), 0, &context(&root), false).await;
    report.unwrap();
    assert_eq!(rows(&config, &root).await, first(ITEMS, 1));
    bring(&config, &root).await;
    assert_eq!(rows(&config, &root).await, all);
}
