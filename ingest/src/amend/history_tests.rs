//! Rewinds, compaction, retention and positions of many files, over real files.

use std::fs;

use arrow::{array::RecordBatch, compute::concat_batches};
use feedline_schemas::{
    config::load,
    ids::Sequence,
    log_effect::holder,
    report::{IngestReport, SourceReport},
};
use tempfile::TempDir;

use super::*;
use crate::{
    file_marks::{MOST_LISTED, listed},
    landed_file,
    repair::repair,
    run::ingest,
    schedule::Holding,
    testing,
    verify::verify,
};
use feedline_storage::{Effect, Faults, Operation, Rule, Store, log::entry_path};

fn context(root: &Store) -> Context {
    Context {
        root: root.clone(),
        ..testing::context()
    }
}

/// A source of the files of `folder`, two rows a batch.
fn pipeline(folder: &TempDir, more: &str) -> PipelineConfig {
    let path = folder.path().display();
    let text = format!(
        "[pipeline]\nname = \"p\"\n{more}\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{path}/*.csv\"\nbatch = {{ rows = 2 }}\n"
    );
    load("p.toml", &text, &[]).unwrap().config
}

fn name() -> Name {
    Name::new("s").unwrap()
}

fn put(folder: &TempDir, name: &str, ids: std::ops::Range<u32>) {
    let lines: String = ids.map(|id| format!("{id},{}\n", id * 10)).collect();
    fs::write(folder.path().join(name), format!("id,price\n{lines}")).unwrap();
}

/// Three files of six rows each: nine batches.
fn three_files() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, first) in [("a.csv", 0), ("b.csv", 6), ("c.csv", 12)] {
        put(&folder, name, first..first + 6);
    }
    folder
}

async fn bring(config: &PipelineConfig, root: &Store) -> SourceReport {
    let report: IngestReport = ingest(config, None, &context(root)).await.unwrap();
    report.sources.into_iter().next().unwrap()
}

async fn entries(root: &Store) -> Vec<CommitEntry> {
    crate::landed(root, &name()).await.unwrap().unwrap().entries
}

/// All landed rows in the order of the log, system columns included.
async fn rows(root: &Store) -> RecordBatch {
    let landing = root.child("landing/s");
    let mut batches = Vec::new();
    for file in entries(root).await.iter().flat_map(|entry| &entry.files) {
        batches.extend(landed_file::read_whole(&landing, file).await.unwrap());
    }
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

/// Values of the column `id`, sorted.
async fn ids(root: &Store) -> Vec<i64> {
    use arrow::{array::AsArray, datatypes::Int64Type};
    let rows = rows(root).await;
    let ids = rows.column_by_name("id").unwrap();
    let mut ids: Vec<i64> = ids.as_primitive::<Int64Type>().values().to_vec();
    ids.sort_unstable();
    ids
}

/// Checks that the folder of data files has each row once, and that all files are intact.
async fn check(config: &PipelineConfig, root: &Store) {
    let listed = root.list("landing/s/data").await.unwrap();
    let named = entries(root).await;
    let named: usize = named.iter().map(|entry| entry.files.len()).sum();
    assert_eq!(listed.len(), named, "{listed:?}");
    let verified = verify(config, None, root).await.unwrap();
    assert!(verified.sources[0].damage.is_empty(), "{verified:?}");
    assert!(verified.sources[0].unnamed.is_empty(), "{verified:?}");
}

async fn go_back(config: &PipelineConfig, root: &Store, to: u64) -> Result<AmendReport, Error> {
    rewind(config, &name(), to, &context(root), false).await
}

async fn merge(config: &PipelineConfig, root: &Store) -> AmendReport {
    compact(config, &name(), TARGET_BYTES, &context(root), false)
        .await
        .unwrap()
}

#[tokio::test]
async fn after_a_rewind_the_next_run_lands_the_same_rows_again() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    for to in 0..9 {
        let root = Store::memory();
        let whole = bring(&config, &root).await;
        let before = rows(&root).await;
        let planned = rewind(&config, &name(), to, &context(&root), true)
            .await
            .unwrap();
        assert_eq!((planned.sequence, planned.rewound_to), (None, Some(to)));
        assert_eq!(planned.rows, 18 - 2 * (to + 1));
        assert_eq!(rows(&root).await, before);
        let report = go_back(&config, &root, to).await.unwrap();
        assert_eq!(report.rows, planned.rows);
        check(&config, &root).await;
        let left = usize::try_from(2 * (to + 1)).unwrap();
        assert_eq!(rows(&root).await, before.slice(0, left), "{to}");
        let again = bring(&config, &root).await;
        assert_eq!((again.rows, again.pages), (whole.rows, whole.pages), "{to}");
        assert_eq!(ids(&root).await, (0..18).collect::<Vec<_>>());
        check(&config, &root).await;
    }
}

#[tokio::test]
async fn a_rewind_that_cannot_bring_back_what_counted_is_refused_with_the_reason() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let root = Store::memory();
    bring(&config, &root).await;
    let error = go_back(&config, &root, 77).await.unwrap_err().to_string();
    assert!(error.contains("which has 0 to 8"), "{error}");
    delete(&config, &name(), &[2], &context(&root), false)
        .await
        .unwrap();
    let error = go_back(&config, &root, 5).await.unwrap_err().to_string();
    assert!(
        error.contains("entry 9 has withdrawn files of entry 2"),
        "{error}"
    );
    // Entries before the deleted one are not affected.
    go_back(&config, &root, 1).await.unwrap();

    let root = Store::memory();
    bring(&config, &root).await;
    go_back(&config, &root, 1).await.unwrap();
    let error = go_back(&config, &root, 4).await.unwrap_err().to_string();
    assert!(
        error.contains("was taken back by the rewind of entry 9"),
        "{error}"
    );
    reset(&config, &name(), &context(&root), false)
        .await
        .unwrap();
    let error = go_back(&config, &root, 0).await.unwrap_err().to_string();
    assert!(error.contains("entry 10 has reset the source"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_another_program_runs_is_neither_rewound_nor_merged() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let root = Store::memory();
    bring(&config, &root).await;
    let landing = root.child("landing/s");
    let other = Context {
        run_id: "other".into(),
        ..context(&root)
    };
    let before = root.list("landing/s/log").await.unwrap();
    let work = async {
        let error = go_back(&config, &root, 0).await.unwrap_err();
        assert!(matches!(error, Error::Running { .. }), "{error}");
        let merged = compact(&config, &name(), TARGET_BYTES, &context(&root), false).await;
        assert!(matches!(merged, Err(Error::Running { .. })));
        Ok(())
    };
    let holding = Holding::of(&landing, &name(), &other);
    Box::pin(holding.during(work)).await.unwrap();
    assert_eq!(root.list("landing/s/log").await.unwrap(), before);
}

#[tokio::test]
async fn merged_files_have_the_same_rows_in_the_same_order() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let root = Store::memory();
    let landed = bring(&config, &root).await;
    let before = rows(&root).await;
    let planned = compact(&config, &name(), TARGET_BYTES, &context(&root), true)
        .await
        .unwrap();
    let planned = planned.compacted.unwrap();
    assert_eq!(
        (planned.files_before, planned.files_after, planned.rows),
        (9, 1, 18)
    );
    assert_eq!(root.list("landing/s/data").await.unwrap().len(), 9);
    let merged = merge(&config, &root).await.compacted.unwrap();
    assert_eq!(
        (merged.files_before, merged.files_after, merged.rows),
        (9, 1, 18)
    );
    assert_eq!(merged.entries, [9]);
    assert_eq!(rows(&root).await, before);
    check(&config, &root).await;
    // A reader that opened the log before finds the old files.
    let kept = root.list("landing/s/superseded/data").await.unwrap();
    assert_eq!(kept.len(), 9);
    let again = merge(&config, &root).await.compacted.unwrap();
    assert_eq!((again.files_before, again.entries.len()), (0, 0));
    // The source continues as if nothing had happened.
    let next = bring(&config, &root).await;
    assert_eq!(
        (next.rows, next.batches, next.new_rows),
        (18, landed.batches, Some(0))
    );
    put(&folder, "d.csv", 18..20);
    assert_eq!(bring(&config, &root).await.new_rows, Some(2));
    assert_eq!(ids(&root).await, (0..20).collect::<Vec<_>>());
    merge(&config, &root).await;
    assert_eq!(root.list("landing/s/data").await.unwrap().len(), 1);
    assert_eq!(ids(&root).await, (0..20).collect::<Vec<_>>());
    check(&config, &root).await;
}

#[tokio::test]
async fn rows_of_a_merged_file_are_superseded_rewound_deleted_and_read_again_by_their_batches() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let merged = async || {
        let root = Store::memory();
        bring(&config, &root).await;
        merge(&config, &root).await;
        root
    };
    // A file that has changed: its rows alone are dropped.
    let root = merged().await;
    fs::write(folder.path().join("b.csv"), "id,price\n100,1\n").unwrap();
    let report = bring(&config, &root).await;
    assert_eq!(report.rows, 13);
    let expected: Vec<i64> = (0..6).chain(12..18).chain([100]).collect();
    assert_eq!(ids(&root).await, expected);
    check(&config, &root).await;
    put(&folder, "b.csv", 6..12);

    // A rewind into the merged range.
    let root = merged().await;
    let before = rows(&root).await;
    go_back(&config, &root, 4).await.unwrap();
    assert_eq!(rows(&root).await, before.slice(0, 10));
    let all = entries(&root).await;
    assert_eq!((holder(&all, 0), holder(&all, 5)), (4, 5));
    check(&config, &root).await;
    bring(&config, &root).await;
    assert_eq!(ids(&root).await, (0..18).collect::<Vec<_>>());
    check(&config, &root).await;

    // Some of the merged batches cannot be deleted, all of them can.
    let root = merged().await;
    let some = delete(&config, &name(), &[3, 4], &context(&root), false).await;
    let error = some.unwrap_err().to_string();
    assert!(
        error.contains("with those of 9 batches from 0 to 8"),
        "{error}"
    );
    let all: Vec<u64> = (0..9).collect();
    let report = delete(&config, &name(), &all, &context(&root), false)
        .await
        .unwrap();
    assert_eq!(report.rows, 18);
    assert!(root.list("landing/s/data").await.unwrap().is_empty());

    // A file that is read again takes the others of the merged file along.
    let root = merged().await;
    let what = Reread {
        files: Some("b.csv".into()),
        ..Reread::default()
    };
    let report = reread(&config, &name(), &what, &context(&root), false)
        .await
        .unwrap();
    assert_eq!((report.rows, report.ranges.len()), (18, 3));
    bring(&config, &root).await;
    assert_eq!(ids(&root).await, (0..18).collect::<Vec<_>>());
    check(&config, &root).await;
}

#[tokio::test]
async fn a_damaged_merged_file_is_repaired_from_the_files_that_it_was_made_of() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let root = Store::memory();
    bring(&config, &root).await;
    let before = rows(&root).await;
    merge(&config, &root).await;
    let data = root.child("landing/s/data");
    let merged = data.list("").await.unwrap();
    data.put(&merged[0].path, "other bytes".into())
        .await
        .unwrap();
    let report = repair(&config, None, &context(&root), false).await.unwrap();
    let source = &report.sources[0];
    assert_eq!((source.kept, source.restored.len()), (9, 9), "{source:?}");
    assert_eq!(rows(&root).await, before);
    check(&config, &root).await;
}

#[tokio::test]
async fn a_rewind_brings_superseded_rows_back_unless_retention_has_deleted_them() {
    let folder = three_files();
    let retention = "[ingest]\nretention = { files = 0, grace_s = 0 }\n";
    let config = pipeline(&folder, retention);
    for is_deleted in [false, true] {
        put(&folder, "b.csv", 6..12);
        let root = Store::memory();
        bring(&config, &root).await;
        fs::write(folder.path().join("b.csv"), "id,price\n100,1\n").unwrap();
        bring(&config, &root).await;
        assert_eq!(ids(&root).await.len(), 13);
        let kept = root.list("landing/s/superseded").await.unwrap();
        assert_eq!(kept.len(), 3);
        if is_deleted {
            // Files of half the target size are not merged, so only retention is at work.
            let report = compact(&config, &name(), 1, &context(&root), false).await;
            let counts = report.unwrap().compacted.unwrap();
            assert_eq!((counts.expired_files, counts.superseded_files), (3, 0));
            let last = entries(&root).await.pop().unwrap();
            assert_eq!(last.expired.len(), 3);
            assert_eq!(last.min_reader, Some(3));
            assert!(root.list("landing/s/superseded").await.unwrap().is_empty());
            let error = go_back(&config, &root, 8).await.unwrap_err().to_string();
            assert!(error.contains("has removed it since"), "{error}");
        } else {
            go_back(&config, &root, 8).await.unwrap();
            assert_eq!(ids(&root).await, (0..18).collect::<Vec<_>>());
            check(&config, &root).await;
        }
    }
}

#[tokio::test]
async fn an_entry_stays_small_however_many_files_have_been_read() {
    let folder = tempfile::tempdir().unwrap();
    let many = 2_500_u64;
    for number in 0..many {
        fs::write(folder.path().join(format!("{number:05}.csv")), "id\n1\n").unwrap();
    }
    let path = folder.path().display();
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{path}/*.csv\"\nbatch = {{ rows = 100 }}\n"
    );
    let config = load("p.toml", &text, &[]).unwrap().config;
    let root = Store::memory();
    assert_eq!(bring(&config, &root).await.rows, many);
    let mut all = entries(&root).await;
    for entry in &mut all {
        let listed = listed(&mut entry.state.position).map_or(0, |listed| listed.len());
        assert!(listed <= MOST_LISTED + 100, "{listed}");
    }
    let last = all.last().unwrap();
    assert_eq!(last.min_reader, Some(3));
    let marks: u64 = last.state.marks.iter().map(|file| file.rows).sum();
    assert!(marks + 2 * (MOST_LISTED as u64) >= many, "{marks}");
    // Files that were read are known to the next run, and after a rewind to an earlier position.
    fs::write(folder.path().join("99999.csv"), "id\n2\n").unwrap();
    assert_eq!(bring(&config, &root).await.new_rows, Some(1));
    let middle = all[all.len() / 2].sequence.get();
    go_back(&config, &root, middle).await.unwrap();
    check(&config, &root).await;
    assert_eq!(bring(&config, &root).await.rows, many + 1);
    // A single file is read again, with those of its batch.
    let what = Reread {
        files: Some("00007.csv".into()),
        ..Reread::default()
    };
    let report = reread(&config, &name(), &what, &context(&root), false)
        .await
        .unwrap();
    assert_eq!(report.ranges.len(), 100);
    assert_eq!(bring(&config, &root).await.rows, many + 1);
    let newest = entries(&root).await.pop().unwrap();
    let path = entry_path(newest.sequence.get());
    let bytes = root.child("landing/s").size(&path).await.unwrap();
    assert!(bytes < 80_000, "{bytes}");
    assert!(newest.sequence > Sequence::new(25));
}

#[tokio::test]
async fn no_copy_of_deleted_rows_stays() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let root = Store::memory();
    bring(&config, &root).await;
    merge(&config, &root).await;
    put(&folder, "d.csv", 18..20);
    bring(&config, &root).await;
    merge(&config, &root).await;
    // The first files, and the merged one that was merged again.
    let superseded = root.list("landing/s/superseded/data").await.unwrap();
    assert_eq!(superseded.len(), 11);
    let all = entries(&root).await;
    let batches = all.iter().filter(|entry| entry.counts.rows > 0);
    let batches: Vec<u64> = batches.map(|entry| entry.sequence.get()).collect();
    let report = delete(&config, &name(), &batches, &context(&root), false)
        .await
        .unwrap();
    assert_eq!(report.rows, 20);
    for folder in ["landing/s/superseded", "landing/s/data"] {
        assert!(root.list(folder).await.unwrap().is_empty(), "{folder}");
    }
}

async fn superseded_paths(root: &Store) -> Vec<String> {
    let listed = root.child("landing/s").list("superseded").await.unwrap();
    listed.into_iter().map(|file| file.path).collect()
}

async fn remove(config: &PipelineConfig, root: &Store, batches: &[u64]) -> AmendReport {
    delete(config, &name(), batches, &context(root), false)
        .await
        .unwrap()
}

#[tokio::test]
async fn rows_of_a_batch_that_a_rewind_took_back_are_deleted() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let root = Store::memory();
    bring(&config, &root).await;
    go_back(&config, &root, 0).await.unwrap();
    let before = superseded_paths(&root).await;
    assert_eq!(before.len(), 8);
    let dry = delete(&config, &name(), &[2], &context(&root), true)
        .await
        .unwrap();
    assert_eq!(superseded_paths(&root).await, before);
    let report = remove(&config, &root, &[2]).await;
    assert_eq!((report.rows, report.sequence), (0, Some(10)));
    assert!(
        report.notes[0].contains("removes 1 superseded file with"),
        "{report:?}"
    );
    assert_eq!(report.notes, dry.notes);
    let mut expected = before;
    let gone = expected.remove(1);
    assert_eq!(superseded_paths(&root).await, expected);
    let last = entries(&root).await.pop().unwrap();
    assert_eq!(last.expired.len(), 1);
    assert!(gone.ends_with(&last.expired[0]), "{gone}");
    assert!(last.withdrawn.is_empty());
    check(&config, &root).await;
    let again = delete(&config, &name(), &[2], &context(&root), false).await;
    let error = again.unwrap_err().to_string();
    assert!(error.contains("entry 2 has no files"), "{error}");
    // What counts can be rewound behind it.
    bring(&config, &root).await;
    assert_eq!(ids(&root).await, (0..18).collect::<Vec<_>>());
    go_back(&config, &root, 9).await.unwrap();
    assert_eq!(ids(&root).await, [0, 1]);
    check(&config, &root).await;
}

#[tokio::test]
async fn merged_and_rewritten_copies_of_a_rewound_batch_are_deleted() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let root = Store::memory();
    bring(&config, &root).await;
    merge(&config, &root).await;
    // The merged file is written again without rows of `b.csv`.
    fs::write(folder.path().join("b.csv"), "id,price\n100,1\n").unwrap();
    bring(&config, &root).await;
    go_back(&config, &root, 2).await.unwrap();
    let (before, kept) = (rows(&root).await, superseded_paths(&root).await.len());
    // Batch 6 is in its own file and in both merged ones, batch 4 in one of them.
    remove(&config, &root, &[6]).await;
    assert_eq!(superseded_paths(&root).await.len(), kept - 3);
    remove(&config, &root, &[4]).await;
    assert_eq!(superseded_paths(&root).await.len(), kept - 4);
    assert_eq!(rows(&root).await, before);
    check(&config, &root).await;
}

#[tokio::test]
async fn rows_that_a_changed_file_superseded_are_deleted() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let root = Store::memory();
    bring(&config, &root).await;
    fs::write(folder.path().join("b.csv"), "id,price\n100,1\n").unwrap();
    bring(&config, &root).await;
    let before = ids(&root).await;
    assert_eq!(superseded_paths(&root).await.len(), 3);
    let report = remove(&config, &root, &[3, 4]).await;
    assert_eq!((report.rows, report.batches), (0, vec![3, 4]));
    assert_eq!(superseded_paths(&root).await.len(), 1);
    let error = go_back(&config, &root, 8).await.unwrap_err().to_string();
    assert!(error.contains("has removed it since"), "{error}");
    // The batch is in the range of a merge, and the merged file has none of its rows.
    merge(&config, &root).await;
    let kept = superseded_paths(&root).await.len();
    remove(&config, &root, &[5]).await;
    assert_eq!(superseded_paths(&root).await.len(), kept - 1);
    assert_eq!(ids(&root).await, before);
    check(&config, &root).await;
}

#[tokio::test]
async fn superseded_files_that_a_killed_deletion_left_are_removed_by_the_next_run() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let root = Store::memory();
    bring(&config, &root).await;
    go_back(&config, &root, 0).await.unwrap();
    let harmed = root.with_faults(Faults::new(vec![Rule {
        operation: Operation::Delete,
        path_contains: "superseded".into(),
        skip: 0,
        times: 40,
        effect: Effect::FailBefore,
    }]));
    let killed = delete(&config, &name(), &[2], &context(&harmed), false).await;
    assert!(killed.is_err());
    assert_eq!(superseded_paths(&root).await.len(), 8);
    bring(&config, &root).await;
    assert_eq!(superseded_paths(&root).await.len(), 7);
    check(&config, &root).await;
}

#[tokio::test]
async fn a_batch_that_a_reset_saved_elsewhere_is_not_deleted_and_its_folder_is_named() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let root = Store::memory();
    bring(&config, &root).await;
    reset(&config, &name(), &context(&root), false)
        .await
        .unwrap();
    let refused = delete(&config, &name(), &[2], &context(&root), false).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("the folder `landing/s.1`"), "{error}");
}

#[tokio::test]
async fn a_batch_that_a_reread_saved_elsewhere_is_not_deleted_and_its_folder_is_named() {
    let folder = three_files();
    let config = pipeline(&folder, "");
    let root = Store::memory();
    bring(&config, &root).await;
    let what = Reread {
        files: Some("a.csv".into()),
        ..Reread::default()
    };
    let planned = reread(&config, &name(), &what, &context(&root), false).await;
    planned.unwrap();
    let refused = delete(&config, &name(), &[1], &context(&root), false).await;
    let error = refused.unwrap_err().to_string();
    let kept = "has withdrawn batch 1 for a reread, and a folder `landing/s.<number>`";
    assert!(error.contains(kept), "{error}");
}

#[tokio::test]
async fn a_run_merges_small_files_if_they_are_many_and_that_is_configured() {
    let folder = three_files();
    let plain = pipeline(&folder, "");
    let config = pipeline(&folder, "[ingest]\ncompact = { files = 3 }\n");
    let root = Store::memory();
    let report = bring(&plain, &root).await;
    assert_eq!((report.files, report.compacted), (9, None));
    let before = rows(&root).await;
    let report = bring(&config, &root).await;
    let merged = report.compacted.unwrap();
    assert_eq!((merged.files_before, merged.files_after), (9, 1));
    assert_eq!((report.files, report.new_rows), (1, Some(0)));
    assert_eq!(rows(&root).await, before);
    check(&config, &root).await;
    let report = bring(&config, &root).await;
    assert_eq!((report.files, report.compacted), (1, None));
    // Merged files are merged with new ones.
    put(&folder, "d.csv", 18..26);
    let report = bring(&config, &root).await;
    assert_eq!(report.new_rows, Some(8));
    assert_eq!(report.compacted.unwrap().files_before, 5);
    check(&config, &root).await;
}
