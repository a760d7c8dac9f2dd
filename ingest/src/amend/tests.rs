//! Amendments, over real files and a server on loopback.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use feedline_schemas::{
    commit::Position,
    config::{PipelineConfig, load},
    report::{IngestReport, SourceReport},
};
use feedline_storage::{Effect, Faults, Operation, Rule, Store};
use tempfile::TempDir;

use super::*;
use crate::{
    landed_file,
    run::ingest,
    status,
    testing::{self, Scripted, Step, answer, ok, raw},
};

fn context(root: &Store) -> Context {
    Context {
        root: root.clone(),
        ..testing::context()
    }
}

fn pipeline(source: &str) -> PipelineConfig {
    let text = format!("[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\n{source}");
    load("p.toml", &text, &[]).unwrap().config
}

fn name() -> Name {
    Name::new("s").unwrap()
}

async fn bring(source: &str, root: &Store) -> Result<SourceReport, Error> {
    let report: IngestReport = ingest(&pipeline(source), None, &context(root)).await?;
    Ok(report.sources.into_iter().next().unwrap())
}

/// Values of a column in all files below `data/`, in order of size.
async fn column(root: &Store, column: &str) -> Vec<String> {
    let landing = root.child("landing/s");
    let mut all = Vec::new();
    let mut named = 0;
    let entries = crate::landed(root, &name()).await.unwrap().unwrap().entries;
    for file in entries.iter().flat_map(|entry| &entry.files) {
        named += 1;
        for batch in landed_file::read(&landing, file, &[column], None)
            .await
            .unwrap()
        {
            let Some(values) = batch.column_by_name(column) else {
                continue;
            };
            let text = arrow::compute::cast(values, &arrow::datatypes::DataType::Utf8).unwrap();
            let text = arrow::array::AsArray::as_string::<i32>(&text);
            all.extend(text.iter().flatten().map(ToOwned::to_owned));
        }
    }
    let there = landing.list("data").await.unwrap();
    assert_eq!(
        there.len(),
        named,
        "`data/` has what the log names: {there:?}"
    );
    all.sort();
    all
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn csv(folder: &TempDir, more: &str) -> String {
    let path = folder.path().display();
    format!("type = \"files\"\nurl = \"{path}/*.csv\"\nbatch = {{ rows = 2 }}\n{more}")
}

fn changed_keys(report: &SourceReport) -> Vec<&str> {
    let changed = report.settings_changed.iter();
    changed
        .flat_map(|changed| &changed.changes)
        .map(|change| change.key.as_str())
        .collect()
}

#[tokio::test]
async fn a_type_declared_after_landing_is_said_to_hold_for_what_lands_next() {
    let folder = folder(&[("a.csv", "hour,n\n1,1\n2,2\n")]);
    let root = Store::memory();
    let first = bring(&csv(&folder, ""), &root).await.unwrap();
    assert_eq!(first.settings_changed, None);
    let typed = csv(
        &folder,
        "contract = { column = { hour = { type = \"text\" } } }\n",
    );
    let second = bring(&typed, &root).await.unwrap();
    let changed = second.settings_changed.unwrap();
    assert_eq!(changed.sequence, 1);
    let change = &changed.changes[0];
    assert_eq!(change.key, "contract.column.hour.type");
    assert_eq!(
        (&change.before, change.after.as_deref()),
        (&None, Some("\"text\""))
    );
    assert!(
        change.effect.contains("landed data stays unchanged")
            && change.effect.contains("ingest reread")
    );
    // A run reports it once, and `status` continues to show it.
    let third = bring(&typed, &root).await.unwrap();
    assert_eq!((third.settings_changed, third.rows), (None, 2));
    let shown = status(&pipeline(&typed), &root).await.unwrap();
    assert_eq!(
        changed_keys(&shown.sources[0]),
        ["contract.column.hour.type"]
    );
    // A type that cannot hold the landed values is refused, and nothing is logged.
    let narrow = csv(
        &folder,
        "contract = { column = { n = { type = \"bool\" } } }\n",
    );
    let error = bring(&narrow, &root).await.unwrap_err().to_string();
    assert!(
        error.contains("contract.column.\"n\".type") && error.contains("ingest reset"),
        "{error}"
    );
    assert_eq!(
        crate::landed(&root, &name())
            .await
            .unwrap()
            .unwrap()
            .entries
            .len(),
        2
    );
}

#[tokio::test]
async fn another_delimiter_holds_for_files_that_are_not_read_and_reread_takes_the_others() {
    let folder = folder(&[("a.csv", "x;y\n1;2\n"), ("b.csv", "x;y\n3;4\n5;6\n")]);
    let root = Store::memory();
    let wrong = csv(&folder, "csv = { delimiter = \"|\" }\n");
    bring(&wrong, &root).await.unwrap();
    assert_eq!(column(&root, "x;y").await, ["1;2", "3;4", "5;6"]);
    fs::write(folder.path().join("c.csv"), "x;y\n7;8\n").unwrap();
    let fixed = csv(&folder, "csv = { delimiter = \";\" }\n");
    let report = bring(&fixed, &root).await.unwrap();
    assert_eq!(changed_keys(&report), ["csv.delimiter"]);
    assert_eq!(column(&root, "x").await, ["7"]);
    let what = Reread {
        files: Some("[ab].csv".into()),
        ..Reread::default()
    };
    let none = reread(&pipeline(&fixed), &name(), &what, &context(&root), false)
        .await
        .unwrap();
    assert_eq!(none.sequence, None, "`[` is no wildcard: {none:?}");
    let what = Reread {
        files: Some("a.csv".into()),
        ..Reread::default()
    };
    let dry = reread(&pipeline(&fixed), &name(), &what, &context(&root), true)
        .await
        .unwrap();
    assert_eq!(
        (dry.sequence, dry.rows),
        (None, 3),
        "a.csv and b.csv share a batch: {dry:?}"
    );
    let done = reread(&pipeline(&fixed), &name(), &what, &context(&root), false)
        .await
        .unwrap();
    assert_eq!((done.rows, done.ranges.len()), (3, 2), "{done:?}");
    assert_eq!(column(&root, "x").await, ["7"]);
    let kept = root.child("landing/s.1");
    assert!(!kept.list("data").await.unwrap().is_empty());
    let report = bring(&fixed, &root).await.unwrap();
    assert_eq!((report.rows, report.status.as_str()), (4, "complete"));
    assert_eq!(column(&root, "x").await, ["1", "3", "5", "7"]);
}

#[tokio::test]
async fn a_file_is_read_again_with_a_delimiter_that_no_run_has_used_before() {
    let folder = folder(&[("x.csv", "a;b\n1;2\n"), ("y.csv", "a;b\n3;4\n")]);
    let root = Store::memory();
    let source = |delimiter: &str| {
        let more = format!("csv = {{ delimiter = \"{delimiter}\" }}\n");
        csv(&folder, &more).replace("rows = 2", "rows = 1")
    };
    bring(&source("|"), &root).await.unwrap();
    let fixed = source(";");
    let what = Reread {
        files: Some("x.csv".into()),
        ..Reread::default()
    };
    let done = reread(&pipeline(&fixed), &name(), &what, &context(&root), false)
        .await
        .unwrap();
    assert_eq!(done.rows, 1, "{done:?}");
    let report = bring(&fixed, &root).await.unwrap();
    assert_eq!((report.rows, report.status.as_str()), (2, "complete"));
    assert_eq!(column(&root, "a").await, ["1"]);
}

/// Forty records in pages of `size`, by number of the page; `broken` pages fail.
fn pages(broken: Arc<Mutex<Option<i64>>>) -> impl Fn(usize, &str) -> Step + Send + 'static {
    move |_, head| {
        let target = head.split(' ').nth(1).unwrap_or_default();
        let url = url::Url::parse("http://h/").unwrap().join(target).unwrap();
        let get = |name: &str| {
            let mut pairs = url.query_pairs();
            let value = pairs.find(|(key, _)| key == name).map(|(_, value)| value);
            value.map_or(1, |value| value.parse::<i64>().unwrap())
        };
        let (page, size) = (get("page"), get("size"));
        if *broken.lock().unwrap() == Some(page) {
            return answer("500 Internal Server Error", "");
        }
        let from = (page - 1) * size;
        let items = (from..(from + size).min(40)).map(|n| format!("{{\"n\":{n}}}"));
        ok(&format!(
            "{{\"items\":[{}]}}",
            items.collect::<Vec<_>>().join(",")
        ))
    }
}

fn paged(url: &url::Url, size: u64, more: &str) -> String {
    format!(
        "type = \"rest\"\nurl = \"{url}\"\nrecords = \"items\"\npagination = {{ type = \"page\", page_size = {size}, size_param = \"size\" }}\nbatch = {{ rows = 10 }}\nretry = {{ base_ms = 1, cap_ms = 2, max_tries = 2 }}\n{more}"
    )
}

fn all_numbers() -> Vec<String> {
    let mut all: Vec<String> = (0..40).map(|n: i64| n.to_string()).collect();
    all.sort();
    all
}

#[tokio::test]
async fn another_page_size_in_the_middle_of_a_run_of_pages_loses_and_doubles_nothing() {
    let broken = Arc::new(Mutex::new(Some(4)));
    let server = Scripted::answering(pages(Arc::clone(&broken))).await;
    let root = Store::memory();
    bring(&paged(&server.url, 7, ""), &root).await.unwrap_err();
    assert_eq!(column(&root, "n").await.len(), 14);
    *broken.lock().unwrap() = None;
    let report = bring(
        &paged(&server.url, 9, "headers = { X-Version = \"2\" }\n"),
        &root,
    )
    .await
    .unwrap();
    assert_eq!(
        changed_keys(&report),
        ["headers.X-Version", "pagination.page_size"]
    );
    assert_eq!(column(&root, "n").await, all_numbers());
    assert_eq!((report.rows, report.status.as_str()), (40, "complete"));
    assert!(server.heads().last().unwrap().contains("x-version: 2"));
}

#[tokio::test]
async fn a_change_that_cannot_be_mixed_is_refused_and_says_the_way_out() {
    let server = Scripted::answering(pages(Arc::default())).await;
    let root = Store::memory();
    bring(&paged(&server.url, 10, ""), &root).await.unwrap();
    let other = paged(&server.url.join("v2").unwrap(), 10, "");
    let error = bring(&other, &root).await.unwrap_err().to_string();
    assert!(
        error.starts_with("`source.0.url`: was `\"http://127.0.0.1")
            && error.contains("feedline ingest reset PIPELINE.toml s"),
        "{error}"
    );
    // The way out.
    let report = reset(&pipeline(&other), &name(), &context(&root), false)
        .await
        .unwrap();
    assert_eq!(report.rows, 40);
    let report = bring(&other, &root).await.unwrap();
    // The fifth entry records that the page after the last was empty.
    assert_eq!((report.rows, report.batches), (40, 5), "{report:?}");
    assert_eq!(column(&root, "n").await, all_numbers());
}

#[tokio::test]
async fn a_log_that_records_no_settings_opens_and_refuses_others() {
    let folder = folder(&[("a.csv", "n\n1\n")]);
    let root = Store::memory();
    bring(&csv(&folder, ""), &root).await.unwrap();
    let landing = root.child("landing/s");
    let path = feedline_storage::log::entry_path(0);
    let mut entry: CommitEntry =
        feedline_schemas::decode(&path, &landing.get(&path).await.unwrap()).unwrap();
    assert!(entry.settings.take().is_some());
    landing
        .put(&path, feedline_schemas::encode(&entry).into())
        .await
        .unwrap();
    let error = bring(&csv(&folder, "csv = { delimiter = \";\" }\n"), &root)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("does not record which") && error.contains("ingest reset"),
        "{error}"
    );
    fs::write(folder.path().join("b.csv"), "n\n2\n").unwrap();
    bring(&csv(&folder, ""), &root).await.unwrap();
    let report = bring(&csv(&folder, "csv = { delimiter = \";\" }\n"), &root)
        .await
        .unwrap();
    assert_eq!(changed_keys(&report), ["csv.delimiter"]);
}

#[tokio::test]
async fn a_reset_keeps_what_landed_and_fences_a_run_that_is_at_work() {
    let folder = folder(&[("a.csv", "n\n1\n2\n3\n")]);
    let disk = tempfile::tempdir().unwrap();
    let root = Store::open(disk.path().to_str().unwrap(), &Default::default()).unwrap();
    let source = csv(&folder, "");
    bring(&source, &root).await.unwrap();
    let config = pipeline(&source);
    let before = root.child("landing/s").list("data").await.unwrap();
    let dry = reset(&config, &name(), &context(&root), true)
        .await
        .unwrap();
    assert_eq!((dry.rows, dry.sequence), (3, None));
    assert_eq!(root.child("landing/s").list("data").await.unwrap(), before);
    let hash = config_hash(&config.source[0]);
    let mut other = CommitLog::open(&root, &name(), "other", hash)
        .await
        .unwrap();
    let done = reset(&config, &name(), &context(&root), false)
        .await
        .unwrap();
    assert_eq!((done.rows, done.sequence), (3, Some(2)));
    assert!(done.kept.unwrap().ends_with("landing/s.1"));
    assert_eq!(done.next, "starts from the beginning");
    assert_eq!(
        root.child("landing/s.1").list("data").await.unwrap(),
        before
    );
    assert!(
        root.child("landing/s")
            .list("data")
            .await
            .unwrap()
            .is_empty()
    );
    let last = other.last().unwrap().clone();
    let fenced = other
        .append(crate::commit_log::Commit::amending(&last))
        .await;
    assert!(matches!(fenced, Err(Error::Fenced { .. })), "{fenced:?}");
    let again = reset(&config, &name(), &context(&root), false)
        .await
        .unwrap();
    assert_eq!((again.sequence, again.notes.len()), (None, 1));
    let report = bring(&source, &root).await.unwrap();
    assert_eq!(
        (report.rows, report.batches, report.schema_version),
        (3, 2, 1)
    );
    assert_eq!(column(&root, "n").await, ["1", "2", "3"]);
    // A second one has a folder of its own.
    let second = reset(&config, &name(), &context(&root), false)
        .await
        .unwrap();
    assert!(second.kept.unwrap().ends_with("landing/s.2"));
    assert_eq!(
        root.child("landing/s.1").list("data").await.unwrap(),
        before
    );
}

/// Every `n`-th call of an operation fails, before or after it was applied.
fn failing(operation: Operation, effect: Effect, skip: u64) -> Arc<Faults> {
    Faults::new(vec![Rule {
        operation,
        path_contains: String::new(),
        skip,
        times: 40,
        effect,
    }])
}

#[tokio::test]
async fn a_reset_that_is_cut_off_anywhere_is_done_or_not_and_is_finished_by_another() {
    let folder = folder(&[("a.csv", "n\n1\n2\n3\n")]);
    let source = csv(&folder, "");
    let config = pipeline(&source);
    for operation in [Operation::Put, Operation::Create, Operation::Delete] {
        for effect in [Effect::FailBefore, Effect::FailAfter] {
            for skip in 0..4 {
                let root = Store::memory();
                bring(&source, &root).await.unwrap();
                let harmed = root.with_faults(failing(operation, effect, skip));
                let cut_off = reset(&config, &name(), &context(&harmed), false).await;
                let rows = crate::landed(&root, &name()).await.unwrap().unwrap();
                let rows = rows.entries.last().unwrap().state.totals.rows;
                assert!(rows == 3 || rows == 0, "{operation:?} {effect:?} {skip}");
                assert!(
                    cut_off.is_err() || rows == 0,
                    "{operation:?} {effect:?} {skip}"
                );
                reset(&config, &name(), &context(&root), false)
                    .await
                    .unwrap();
                assert!(
                    root.child("landing/s")
                        .list("data")
                        .await
                        .unwrap()
                        .is_empty()
                );
                let kept = root.child("landing/s.1").list("data").await.unwrap();
                assert_eq!(kept.len(), 2);
                assert!(root.child("landing/s.2").list("").await.unwrap().is_empty());
                bring(&source, &root).await.unwrap();
                assert_eq!(column(&root, "n").await, ["1", "2", "3"]);
            }
        }
    }
}

#[tokio::test]
async fn a_deleted_batch_is_gone_from_files_counts_and_duplicates() {
    let folder = folder(&[("a.csv", "n\n1\n2\n3\n4\n5\n")]);
    let root = Store::memory();
    let source = csv(&folder, "");
    let config = pipeline(&source);
    bring(&source, &root).await.unwrap();
    let error = delete(&config, &name(), &[9], &context(&root), false)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("9 is no entry of the log, which has 0 to 2"),
        "{error}"
    );
    let dry = delete(&config, &name(), &[1], &context(&root), true)
        .await
        .unwrap();
    assert_eq!((dry.rows, dry.sequence), (2, None));
    let done = delete(&config, &name(), &[1], &context(&root), false)
        .await
        .unwrap();
    assert_eq!((done.rows, done.sequence), (2, Some(3)));
    assert_eq!(column(&root, "n").await, ["1", "2", "5"]);
    let report = bring(&source, &root).await.unwrap();
    assert_eq!((report.rows, report.status.as_str()), (3, "complete"));
    let again = delete(&config, &name(), &[1], &context(&root), false)
        .await
        .unwrap_err();
    assert!(
        again.to_string().contains("entry 1 has no files"),
        "{again}"
    );
    // A new file with the same records lands: a deleted record is no duplicate.
    fs::write(folder.path().join("b.csv"), "n\n3\n4\n").unwrap();
    bring(&source, &root).await.unwrap();
    assert_eq!(column(&root, "n").await, ["1", "2", "3", "4", "5"]);
}

/// Five pages of ten records, three of them with a string in an integer column, and one more page
/// without.
fn mixed() -> impl Fn(usize, &str) -> Step + Send + 'static {
    |_, head| {
        let page = (1..=6).find(|page| {
            head.contains(&format!("page={page}&")) || head.contains(&format!("page={page} "))
        });
        let Some(page) = page else {
            return ok("{\"items\":[]}");
        };
        let item = |i: i64| {
            let n = page * 10 + i;
            match i {
                7..10 => format!("{{\"n\":{n},\"edited\":{n}.5}}"),
                _ => format!("{{\"n\":{n},\"edited\":false}}"),
            }
        };
        let items: Vec<String> = (0..10).map(item).collect();
        ok(&format!("{{\"items\":[{}]}}", items.join(",")))
    }
}

/// A contract that the numbers among the values do not fit.
const FLAGS: &str = "column = { edited = { type = \"bool\" } }";

fn with_rejects(url: &url::Url, contract: &str) -> String {
    format!(
        "type = \"rest\"\nurl = \"{url}\"\nrecords = \"items\"\npagination = {{ type = \"page\", page_size = 10, size_param = \"size\" }}\nbatch = {{ pages = 1 }}\ncontract = {{ {contract} }}\n"
    )
}

#[tokio::test]
async fn rejects_land_under_a_mended_contract_and_the_run_goes_on() {
    let server = Scripted::answering(mixed()).await;
    let root = Store::memory();
    // All pages but the last entry are committed, and then the share is judged.
    let strict = with_rejects(&server.url, &format!("max_reject_fraction = 0.1, {FLAGS}"));
    let error = bring(&strict, &root).await.unwrap_err();
    assert!(matches!(error, Error::TooManyRejects { .. }), "{error}");
    assert!(
        error.to_string().contains("ingest retry-rejects"),
        "{error}"
    );
    let mended = with_rejects(&server.url, "max_reject_fraction = 0.1, types = \"widen\"");
    let config = pipeline(&mended);
    let dry = retry_rejects(&config, &name(), &context(&root), true)
        .await
        .unwrap();
    assert_eq!(dry.sequence, None);
    assert_eq!(
        (dry.landed, dry.still_rejected),
        (dry.rejected, 0),
        "{dry:?}"
    );
    let done = retry_rejects(&config, &name(), &context(&root), false)
        .await
        .unwrap();
    assert_eq!((done.landed, done.rejected), (dry.landed, dry.rejected));
    assert!(
        root.child("landing/s")
            .list("rejects")
            .await
            .unwrap()
            .is_empty()
    );
    let report = bring(&mended, &root).await.unwrap();
    assert_eq!(
        (report.rows, report.rejected, report.status.as_str()),
        (60, 0, "complete"),
        "{report:?}"
    );
    assert_eq!(column(&root, "n").await.len(), 60);
    let nothing = retry_rejects(&config, &name(), &context(&root), false)
        .await
        .unwrap();
    assert_eq!((nothing.sequence, nothing.landed), (None, 0));
}

#[tokio::test]
async fn retried_rejects_are_not_doubled_by_any_cut() {
    let server = Scripted::answering(mixed()).await;
    let loose = with_rejects(&server.url, &format!("max_reject_fraction = 1.0, {FLAGS}"));
    let mended = with_rejects(&server.url, "max_reject_fraction = 1.0, types = \"widen\"");
    let config = pipeline(&mended);
    for operation in [Operation::Put, Operation::Create, Operation::Delete] {
        for effect in [Effect::FailBefore, Effect::FailAfter] {
            for skip in 0..3 {
                let root = Store::memory();
                let first = bring(&loose, &root).await.unwrap();
                assert_eq!((first.rows, first.rejected), (42, 18));
                let harmed = root.with_faults(failing(operation, effect, skip));
                // It may fail or not: only the result of the next one counts.
                drop(retry_rejects(&config, &name(), &context(&harmed), false).await);
                retry_rejects(&config, &name(), &context(&root), false)
                    .await
                    .unwrap();
                bring(&mended, &root).await.unwrap();
                let mut numbers = column(&root, "n").await;
                assert_eq!(numbers.len(), 60, "{operation:?} {effect:?} {skip}");
                numbers.dedup();
                assert_eq!(numbers.len(), 60, "{operation:?} {effect:?} {skip}");
            }
        }
    }
}

#[tokio::test]
async fn rejected_cells_are_read_as_cells_and_lines_that_are_none_stay() {
    let folder = folder(&[("a.csv", "n,m\n1,2\n2,x\n3,4,5\n4,fehlt\n")]);
    let root = Store::memory();
    let loose = "contract = { max_reject_fraction = 1.0, column = { m = { type = \"int\" } } }\n";
    let first = bring(&csv(&folder, loose), &root).await.unwrap();
    assert_eq!((first.rows, first.rejected), (1, 3));
    let mended = csv(
        &folder,
        &format!("csv = {{ null_values = [\"fehlt\"] }}\n{loose}"),
    );
    let done = retry_rejects(&pipeline(&mended), &name(), &context(&root), false)
        .await
        .unwrap();
    assert_eq!((done.landed, done.still_rejected), (1, 2), "{done:?}");
    assert_eq!(column(&root, "n").await, ["1", "4"]);
    let report = bring(&mended, &root).await.unwrap();
    assert_eq!((report.rows, report.rejected), (2, 2));
    let by: Vec<_> = report
        .rejected_by_reason
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(by, ["ragged_row", "type_conflict"]);
}

#[tokio::test]
async fn a_value_that_is_stored_changed_is_rejected_again() {
    let folder = folder(&[]);
    let lines =
        b"{\"id\":1,\"b\":\"\\ud800x\"}\n{\"id\":2,\"b\":\"S\xe3o\"}\n{\"id\":3,\"b\":\"y\"}\n";
    fs::write(folder.path().join("s.ndjson"), lines).unwrap();
    let source = format!(
        "type = \"files\"\nurl = \"{}/*.ndjson\"\ncontract = {{ max_reject_fraction = 1.0 }}\n",
        folder.path().display()
    );
    let root = Store::memory();
    let first = bring(&source, &root).await.unwrap();
    assert_eq!((first.rows, first.rejected), (1, 2), "{first:?}");
    for is_dry_run in [true, false] {
        let done = retry_rejects(&pipeline(&source), &name(), &context(&root), is_dry_run)
            .await
            .unwrap();
        assert_eq!((done.landed, done.still_rejected), (0, 2), "{done:?}");
        let reasons: Vec<_> = done.rejected_by_reason.keys().collect();
        assert_eq!(reasons, ["invalid_utf8", "lone_surrogate"]);
    }
    assert_eq!(column(&root, "id").await, ["3"]);
}

/// Records with `t` from 0 to 99 and a value, by `from` and `to`.
fn sliced(value: Arc<Mutex<i64>>) -> impl Fn(usize, &str) -> Step + Send + 'static {
    move |_, head| {
        let target = head.split(' ').nth(1).unwrap_or_default();
        let url = url::Url::parse("http://h/").unwrap().join(target).unwrap();
        let get = |name: &str| {
            let mut pairs = url.query_pairs();
            let value = pairs.find(|(key, _)| key == name).map(|(_, value)| value);
            value.map_or(0, |value| value.parse::<i64>().unwrap())
        };
        let value = *value.lock().unwrap();
        let items =
            (get("from")..get("to")).map(|t| format!("{{\"t\":{t},\"v\":\"{t}-{value}\"}}"));
        ok(&format!(
            "{{\"items\":[{}]}}",
            items.collect::<Vec<_>>().join(",")
        ))
    }
}

#[tokio::test]
async fn a_range_of_slices_that_is_read_again_supersedes_what_landed_of_it() {
    let value = Arc::new(Mutex::new(1));
    let server = Scripted::answering(sliced(Arc::clone(&value))).await;
    let source = |more: &str| {
        format!(
            "type = \"rest\"\nurl = \"{}\"\nrecords = \"items\"\nslices = {{ from_param = \"from\", to_param = \"to\", start = \"0\", end = \"100\", step = \"10\", format = \"integer\" }}\nbatch = {{ rows = 10 }}\n{more}",
            server.url
        )
    };
    let what = Reread {
        from: Some("20".into()),
        to: Some("40".into()),
        ..Reread::default()
    };
    let plain = source("");
    let config = pipeline(&plain);
    let root = Store::memory();
    bring(&plain, &root).await.unwrap();
    *value.lock().unwrap() = 2;
    let done = reread(&config, &name(), &what, &context(&root), false)
        .await
        .unwrap();
    assert_eq!(
        (done.rows, &done.ranges[..]),
        (20, &["20 to 40".to_owned()][..]),
        "{done:?}"
    );
    let asked = server.targets().len();
    let report = bring(&plain, &root).await.unwrap();
    assert_eq!(report.rows, 100);
    assert_eq!(
        server.targets().len() - asked,
        2,
        "{:?}",
        &server.targets()[asked..]
    );
    let mut expected: Vec<String> = (0..100)
        .map(|t| format!("{t}-{}", if (20..40).contains(&t) { 2 } else { 1 }))
        .collect();
    expected.sort();
    assert_eq!(column(&root, "v").await, expected);
    // With a key all landed rows stay, and readers choose the latest versions.
    let keyed = source("key = [\"t\"]\n");
    let root = Store::memory();
    *value.lock().unwrap() = 1;
    bring(&keyed, &root).await.unwrap();
    *value.lock().unwrap() = 2;
    let done = reread(&pipeline(&keyed), &name(), &what, &context(&root), false)
        .await
        .unwrap();
    assert_eq!((done.rows, done.kept), (0, None));
    assert_eq!(bring(&keyed, &root).await.unwrap().rows, 120);
    let later = Reread {
        from: Some("200".into()),
        to: Some("300".into()),
        ..Reread::default()
    };
    let none = reread(&config, &name(), &later, &context(&root), false)
        .await
        .unwrap();
    assert_eq!(none.sequence, None);
}

#[tokio::test]
async fn an_incremental_source_is_read_again_from_a_cursor_and_only_changes_land() {
    let value = Arc::new(Mutex::new(1));
    let served = Arc::clone(&value);
    let server = Scripted::answering(move |_, head| {
        let since = head
            .split("since=")
            .nth(1)
            .and_then(|rest| rest.split([' ', '&']).next()?.parse::<i64>().ok());
        let value = *served.lock().unwrap();
        let items = (since.unwrap_or(0)..30).map(|t| {
            let v = if t == 12 { value } else { 0 };
            format!("{{\"t\":{t},\"v\":{v}}}")
        });
        ok(&format!(
            "{{\"items\":[{}]}}",
            items.collect::<Vec<_>>().join(",")
        ))
    })
    .await;
    let source = format!(
        "type = \"rest\"\nurl = \"{}\"\nrecords = \"items\"\nincremental = {{ cursor = \"t\", param = \"since\" }}\n",
        server.url
    );
    let root = Store::memory();
    bring(&source, &root).await.unwrap();
    *value.lock().unwrap() = 2;
    assert_eq!(
        bring(&source, &root).await.unwrap().rows,
        30,
        "the change is before the cursor"
    );
    let what = Reread {
        from: Some("10".into()),
        ..Reread::default()
    };
    reread(&pipeline(&source), &name(), &what, &context(&root), false)
        .await
        .unwrap();
    let report = bring(&source, &root).await.unwrap();
    assert_eq!((report.rows, report.status.as_str()), (31, "complete"));
    let last = crate::landed(&root, &name())
        .await
        .unwrap()
        .unwrap()
        .entries;
    let Position::Done { run, .. } = &last.last().unwrap().state.position else {
        panic!("{last:?}")
    };
    assert_eq!(run.high.as_deref(), Some("29"));
    // Another start begins there, and landed records are skipped.
    let earlier = source.replace("param = \"since\"", "param = \"since\", start = \"5\"");
    let asked = server.targets().len();
    let report = bring(&earlier, &root).await.unwrap();
    assert_eq!(
        (changed_keys(&report), report.rows),
        (vec!["incremental.start"], 31)
    );
    assert!(
        server.targets()[asked].contains("since=5"),
        "{:?}",
        server.targets()
    );
}

/// Two files that share a batch, with a rejected row each.
fn with_bad_rows() -> (TempDir, impl Fn(&TempDir, &str) -> String) {
    let folder = folder(&[("a.csv", "n\n1\nx\n2\n"), ("b.csv", "n\n5\ny\n")]);
    let source = |folder: &TempDir, types: &str| {
        let path = folder.path().display();
        format!(
            "type = \"files\"\nurl = \"{path}/*.csv\"\n\
             contract = {{ max_reject_fraction = 1.0, types = \"{types}\", column = {{ n = {{ type = \"int\" }} }} }}\n"
        )
    };
    (folder, source)
}

#[tokio::test]
async fn rejected_rows_of_a_file_go_with_its_content() {
    let (folder, source) = with_bad_rows();
    let root = Store::memory();
    let strict = source(&folder, "quarantine_row");
    let first = bring(&strict, &root).await.unwrap();
    assert_eq!((first.rows, first.rejected), (3, 2));
    fs::write(folder.path().join("a.csv"), "n\n1\n7\n2\n").unwrap();
    let second = bring(&strict, &root).await.unwrap();
    assert_eq!((second.rows, second.rejected), (4, 1));
    // Another writer judges a file by the number in its name.
    let entries = crate::landed(&root, &name())
        .await
        .unwrap()
        .unwrap()
        .entries;
    let newest = entries.last().unwrap();
    let number = format!("{:020}-", newest.sequence.get());
    let rewritten = newest.replaced.iter().flat_map(|replaced| &replaced.files);
    let paths: Vec<&str> = rewritten.map(|file| file.path.as_str()).collect();
    assert!(
        !paths.is_empty() && paths.iter().all(|path| path.contains(&number)),
        "{paths:?}"
    );

    let mended = source(&folder, "null_value");
    let retried = retry_rejects(&pipeline(&mended), &name(), &context(&root), false)
        .await
        .unwrap();
    assert_eq!((retried.landed, retried.rejected), (1, 1), "{retried:?}");
    assert_eq!(column(&root, "n").await, ["1", "2", "5", "7"]);
    // The retried row came from `b.csv`, and is removed with it.
    fs::write(folder.path().join("b.csv"), "n\n5\n6\n").unwrap();
    let last = bring(&mended, &root).await.unwrap();
    assert_eq!((last.rows, last.rejected), (5, 0));
    assert_eq!(column(&root, "n").await, ["1", "2", "5", "6", "7"]);
}

#[tokio::test]
async fn a_file_that_has_grown_is_read_again_without_doubling_its_rows() {
    let folder = folder(&[("a.csv", "n\n1\n2\n"), ("b.csv", "n\n9\n")]);
    let root = Store::memory();
    let source = csv(&folder, "");
    bring(&source, &root).await.unwrap();
    fs::write(folder.path().join("a.csv"), "n\n1\n2\n3\n4\n").unwrap();
    assert_eq!(bring(&source, &root).await.unwrap().rows, 5);
    let what = Reread {
        files: Some("a.csv".into()),
        ..Reread::default()
    };
    reread(&pipeline(&source), &name(), &what, &context(&root), false)
        .await
        .unwrap();
    bring(&source, &root).await.unwrap();
    assert_eq!(column(&root, "n").await, ["1", "2", "3", "4", "9"]);
}

#[tokio::test]
async fn an_amendment_removes_its_own_files_and_leaves_superseded_ones() {
    let folder = folder(&[("a.csv", "n\n1\n2\n"), ("b.csv", "n\n3\n4\n")]);
    let root = Store::memory();
    let source = csv(&folder, "");
    bring(&source, &root).await.unwrap();
    fs::write(folder.path().join("a.csv"), "n\n5\n6\n").unwrap();
    bring(&source, &root).await.unwrap();
    let landing = root.child("landing/s");
    let kept = landing.list("superseded").await.unwrap();
    assert_eq!(kept.len(), 1);
    delete(&pipeline(&source), &name(), &[1], &context(&root), false)
        .await
        .unwrap();
    bring(&source, &root).await.unwrap();
    assert_eq!(landing.list("superseded").await.unwrap(), kept);
    assert_eq!(column(&root, "n").await, ["5", "6"]);
}

#[tokio::test]
async fn another_page_size_behind_a_short_first_page_is_not_the_end() {
    let broken = Arc::new(Mutex::new(true));
    let is_broken = Arc::clone(&broken);
    let server = Scripted::answering(move |_, head| {
        let page = (1..=5).find(|page| head.contains(&format!("page={page}")));
        match page {
            Some(2) if *is_broken.lock().unwrap() => answer("400 Bad Request", "not now"),
            Some(page @ 1..=4) => {
                let ids = (page - 1) * 5..page * 5;
                let items: Vec<String> = ids.map(|n| format!("{{\"n\":{n}}}")).collect();
                ok(&format!("{{\"items\":[{}]}}", items.join(",")))
            }
            _ => ok("{\"items\":[]}"),
        }
    })
    .await;
    let root = Store::memory();
    let source = |size: u64| {
        format!(
            "type = \"rest\"\nurl = \"{}\"\nrecords = \"items\"\nbatch = {{ rows = 5 }}\nretry = {{ max_tries = 1 }}\n\
             pagination = {{ type = \"page\", page_size = {size}, end_status = [410] }}\n",
            server.url
        )
    };
    bring(&source(100), &root).await.unwrap_err();
    *broken.lock().unwrap() = false;
    let report = bring(&source(5), &root).await.unwrap();
    assert_eq!((report.rows, report.status.as_str()), (20, "complete"));
}

#[tokio::test]
async fn missing_files_are_named_before_their_rows_are_dropped() {
    let folder = folder(&[
        ("a.csv", "n\n1\n"),
        ("b.csv", "n\n2\n"),
        ("c.csv", "n\n3\n"),
    ]);
    let root = Store::memory();
    let source = csv(&folder, "");
    bring(&source, &root).await.unwrap();
    let config = pipeline(&source);
    let path = |name: &str| format!("{}/{name}", folder.path().display());
    let remove = |name: &str| fs::remove_file(path(name)).unwrap();
    remove("a.csv");
    let mut what = Reread {
        files: Some("b.csv".into()),
        ..Reread::default()
    };
    // A refusal does not log the changed settings.
    let changed = pipeline(&csv(&folder, "csv = { null_values = [\"-\"] }\n"));
    let count = async || {
        let landed = crate::landed(&root, &name()).await.unwrap().unwrap();
        landed.entries.len()
    };
    let before = count().await;
    for dry_run in [true, false] {
        let refused = reread(&changed, &name(), &what, &context(&root), dry_run).await;
        assert_eq!(count().await, before);
        let error = refused.unwrap_err().to_string();
        let (a, start) = (
            path("a.csv"),
            "`source.0.url`: 1 of 2 files to be read again are not at `url`: ",
        );
        assert!(error.starts_with(start), "{error}");
        assert!(
            error.contains(&a) && error.contains("`--missing-too`"),
            "{error}"
        );
        assert_eq!(column(&root, "n").await, ["1", "2", "3"]);
    }
    what.missing_files = true;
    let done = reread(&config, &name(), &what, &context(&root), false)
        .await
        .unwrap();
    assert_eq!((done.rows, &done.ranges), (2, &vec![path("b.csv")]));
    let is_named = |note: &String| note.contains(&path("a.csv"));
    assert!(done.notes.iter().any(is_named), "{done:?}");
    bring(&source, &root).await.unwrap();
    assert_eq!(column(&root, "n").await, ["2", "3"]);

    let dry = async || {
        reset(&config, &name(), &context(&root), true)
            .await
            .unwrap()
    };
    let whole = dry().await;
    assert!(whole.notes[0].ends_with("read again"), "{whole:?}");
    remove("c.csv");
    let part = dry().await;
    let start = "the next run reads 1 file; 1 of 2 files that were read are not at `url`";
    assert!(part.notes[0].starts_with(start), "{part:?}");
    assert!(part.notes[0].contains(&path("c.csv")), "{part:?}");
    remove("b.csv");
    let none = dry().await;
    let start = "the next run reads 0 files; 2 of 2 files that were read are not at `url`";
    assert!(none.notes[0].starts_with(start), "{none:?}");
}

#[tokio::test]
async fn files_that_may_exist_and_cannot_be_listed_are_not_missing() {
    let folder = folder(&[("a.csv", "n\n1\n")]);
    let root = Store::memory();
    let source = csv(&folder, "");
    bring(&source, &root).await.unwrap();
    let path = folder.path().join("a.csv");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/gone/a.csv", &path).unwrap();
    let what = Reread {
        files: Some("a.csv".into()),
        missing_files: true,
        ..Reread::default()
    };
    let refused = reread(&pipeline(&source), &name(), &what, &context(&root), false).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("(a link to nothing)"), "{error}");
    assert_eq!(column(&root, "n").await, ["1"]);
}

#[tokio::test]
async fn a_file_that_is_a_message_now_is_not_read_again_and_keeps_its_rows() {
    let files = [("a.csv", "n\n1\n2\n"), ("b.csv", "n\n3\n4\n")];
    let what = Reread {
        files: Some("a.csv".into()),
        ..Reread::default()
    };
    // The rows of the file are all that have landed, or those of one batch of two.
    for count in [1, 2] {
        let folder = folder(&files[..count]);
        let write = |text: &str| fs::write(folder.path().join("a.csv"), text).unwrap();
        let root = Store::memory();
        let source = csv(&folder, "");
        bring(&source, &root).await.unwrap();
        let before = column(&root, "n").await;
        let config = pipeline(&source);
        for (text, part) in [
            (
                "Service unavailable\nplease retry\n",
                "its header has no column of this source",
            ),
            ("", "now it has none and no header"),
        ] {
            write(text);
            for dry_run in [true, false] {
                let refused = reread(&config, &name(), &what, &context(&root), dry_run).await;
                let error = refused.unwrap_err().to_string();
                assert!(error.contains(part), "{error}");
                assert_eq!(column(&root, "n").await, before);
            }
        }
        // Its header alone drops its rows.
        write("n\n");
        let done = reread(&config, &name(), &what, &context(&root), false).await;
        assert_eq!(done.unwrap().rows, 2);
        bring(&source, &root).await.unwrap();
        assert_eq!(column(&root, "n").await, before[2..]);
    }
}

#[tokio::test]
async fn a_file_of_lines_that_is_a_message_now_is_not_read_again_and_keeps_its_rows() {
    let folder = folder(&[
        ("a.ndjson", "{\"n\":1}\n{\"n\":2}\n"),
        ("b.ndjson", "late\n"),
    ]);
    let root = Store::memory();
    let source = format!(
        "type = \"files\"\nurl = \"{}/*.ndjson\"\ncontract = {{ max_reject_fraction = 0.5 }}\n",
        folder.path().display()
    );
    bring(&source, &root).await.unwrap();
    let config = pipeline(&source);
    let what = Reread {
        files: Some("*.ndjson".into()),
        ..Reread::default()
    };
    // A file whose lines were no records before, and which has not changed, is no reason to refuse.
    let done = reread(&config, &name(), &what, &context(&root), true).await;
    assert_eq!(done.unwrap().rows, 2);
    fs::write(folder.path().join("a.ndjson"), "Service unavailable\n").unwrap();
    for dry_run in [true, false] {
        let refused = reread(&config, &name(), &what, &context(&root), dry_run).await;
        let error = refused.unwrap_err().to_string();
        let part = "its first records have no column";
        assert!(error.contains(part), "{error}");
        assert_eq!(column(&root, "n").await, ["1", "2"]);
    }
}

#[tokio::test]
async fn a_web_file_that_is_a_message_now_is_not_read_again_and_keeps_its_rows() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let server = Scripted::answering(move |_, _| {
        let text = match broken.load(Ordering::Relaxed) {
            true => "Service unavailable\n",
            false => "n\n1\n2\n",
        };
        answer("200 OK\r\nContent-Type: text/csv", text)
    })
    .await;
    let root = Store::memory();
    let source = format!("type = \"files\"\nurl = \"{}table?day=1\"\n", server.url);
    bring(&source, &root).await.unwrap();
    let config = pipeline(&source);
    let what = Reread {
        files: Some("table*".into()),
        ..Reread::default()
    };
    is_broken.store(true, Ordering::Relaxed);
    for dry_run in [true, false] {
        let refused = reread(&config, &name(), &what, &context(&root), dry_run).await;
        let error = refused.unwrap_err().to_string();
        let part = "its header has no column of this source";
        assert!(error.contains(part), "{error}");
        assert_eq!(column(&root, "n").await, ["1", "2"]);
    }
    is_broken.store(false, Ordering::Relaxed);
    let done = reread(&config, &name(), &what, &context(&root), false).await;
    assert_eq!(done.unwrap().rows, 2);
}

#[tokio::test]
async fn a_web_file_that_is_missing_now_is_refused_and_keeps_its_rows() {
    let is_missing = Arc::new(AtomicBool::new(false));
    let missing = Arc::clone(&is_missing);
    let server = Scripted::answering(move |_, head| match missing.load(Ordering::Relaxed) {
        true => answer("404 Not Found", ""),
        false if head.starts_with("GET ") => ok("n\n1\n2\n"),
        false => raw("200 OK\r\nContent-Length: 6", b""),
    })
    .await;
    for (file, part) in [
        ("rates.csv", "1 of 1 file to be read again are not at `url`"),
        ("table.csv?day=1", "404"),
    ] {
        is_missing.store(false, Ordering::Relaxed);
        let root = Store::memory();
        let source = format!("type = \"files\"\nurl = \"{}{file}\"\n", server.url);
        bring(&source, &root).await.unwrap();
        let config = pipeline(&source);
        let mut what = Reread {
            files: Some("*.csv*".into()),
            ..Reread::default()
        };
        is_missing.store(true, Ordering::Relaxed);
        for dry_run in [true, false] {
            let refused = reread(&config, &name(), &what, &context(&root), dry_run).await;
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            assert_eq!(column(&root, "n").await, ["1", "2"]);
        }
        what.missing_files = true;
        let allowed = reread(&config, &name(), &what, &context(&root), false).await;
        let note = |note: &String| note.contains("nothing is read now");
        let has_note = |done: &AmendReport| done.ranges.is_empty() && done.notes.iter().any(note);
        assert!(allowed.as_ref().ok().is_none_or(has_note), "{allowed:?}");
        let rows = allowed.ok().map(|done| done.rows);
        // The file of a query is not dropped: its response may say 404 for another reason.
        let expected = (!file.contains('?')).then_some(2);
        assert_eq!(rows, expected, "{file}");
    }
}
