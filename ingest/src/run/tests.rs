mod canary;
mod changed;
mod children;
mod clocks;
mod contract;
mod ends;
mod for_each;
mod for_each_again;
mod for_each_failures;
mod for_each_incremental;
mod for_each_lists;
mod for_each_reread;
mod http_faults;
mod images;
mod interrupted_incremental;
mod later_files;
mod refresh;
mod reject_limit;
mod replay;
mod required_columns;
mod resumed_pages;
mod rounds;
mod several;
mod slices;
mod text_bytes;
mod times;
mod two_writers;
mod types;

use feedline_http::Secrets;
use feedline_readers::{record::Record, value::Value};
use feedline_schemas::{
    Classified as _, ErrorKind,
    commit::{CommitEntry, PageRun, Position},
    config::{Bounded, Real, SecretRef, SourceKind, TypeContract},
    decode,
    progress::{Event, Progress, Silent},
};
use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use feedline_storage::{Effect, Faults, Operation, Rule, Store, StoreOptions, clock::SystemClock};
use tokio::sync::watch;

use super::*;
use crate::{
    commit_log::landed, files::tests::source, landing_folder::landing, source::Page, status::status,
};

/// Resolves `{ env = "NAME" }` to `secret-NAME`.
#[derive(Debug)]
struct Variables;

impl Secrets for Variables {
    fn resolve(&self, reference: &SecretRef) -> Result<String, String> {
        let name = reference.env.as_ref().ok_or("there are no files")?;
        Ok(format!("{}secret-{name}", reference.prefix))
    }
}

fn context(root: &Store) -> Context {
    static RUN: AtomicU64 = AtomicU64::new(0);
    Context {
        root: root.clone(),
        store_options: StoreOptions::default(),
        progress: Arc::new(Silent),
        clock: Arc::new(SystemClock),
        secrets: Arc::new(Variables),
        hosts: Arc::default(),
        metrics: Arc::default(),
        formatted_dates: Arc::default(),
        is_trial: false,
        run_id: format!("run-{}", RUN.fetch_add(1, Ordering::Relaxed)),
        delta: false,
        cancel: watch::channel(false).1,
    }
}

/// Runs a source as [`ingest`] does, without compaction.
async fn run_source(config: &SourceConfig, context: &Context) -> Result<SourceReport, Error> {
    let mut found = FoundWarnings::default();
    let ended = super::run_source(config, context, &mut found).await;
    run_warnings::note(context, &config.name, &found).await;
    ended
}

/// Pages by number; a request for page `broken` fails.
struct Scripted {
    pages: Vec<Vec<Record>>,
    broken: Option<u64>,
}

#[async_trait]
impl Source for Scripted {
    async fn next_page(&mut self, at: &Position) -> Result<Page, Error> {
        let page = match at {
            Position::Start => 0,
            Position::Page { page, .. } => *page,
            other => panic!("asked for {other:?}"),
        };
        if self.broken == Some(page) {
            return Err(Error::Http {
                url: "u".into(),
                cause: feedline_http::HttpCause::Other,
                what: "broken".into(),
                advice: "mend it".into(),
            });
        }
        let next = page + 1;
        let is_last = next == self.pages.len() as u64;
        let records = self.pages[usize::try_from(page).unwrap()].clone();
        let done = Position::Done {
            pages: next,
            files: vec![],
            run: PageRun::default(),
        };
        Ok(Page {
            records,
            next: if is_last {
                done
            } else {
                Position::Page {
                    page: next,
                    cursor: None,
                    run: PageRun::default(),
                }
            },
            crawled: None,
            parts: Vec::new(),
        })
    }
}

fn record(text: &str) -> Record {
    Record::Value(Value::parse(text.as_bytes()).unwrap())
}

/// 20 pages of 3 records: every number once and again four or five pages later, a bad line on every
/// fifth page, and a string in the integer column on page 13.
fn pages() -> Vec<Vec<Record>> {
    let page = |page: i64| {
        let again = page - 4 - page % 2;
        let mut records = vec![
            record(&format!(r#"{{"n":{page},"at":{{"x":{page}.5}}}}"#)),
            record(&format!(r#"{{"n":{again},"at":{{"x":{again}.5}}}}"#)),
            record(&format!(r#"{{"n":{page},"new_{}":null}}"#, page / 7)),
        ];
        if page % 5 == 0 {
            records[2] = Record::Bad {
                raw: "{".into(),
                reason: "malformed_line",
                detail: format!("line {page}"),
            };
        }
        if page == 13 {
            records[2] = record(r#"{"n":"thirteen"}"#);
        }
        records
    };
    (0..20).map(page).collect()
}

/// Batches of two pages, and a window that spans several batches and yet forgets some.
fn config() -> SourceConfig {
    let mut config = source("unused");
    config.batch.rows = Bounded::literal::<4>();
    config.batch.dedup_window = Some(11);
    config
}

async fn begin<'a>(config: &'a SourceConfig, context: &'a Context) -> Result<Run<'a>, Error> {
    let mut log = CommitLog::open(
        &context.root,
        &config.name,
        &context.run_id,
        config_hash(config),
    )
    .await?;
    adopt(config, &mut log, &*context.secrets).await?;
    Run::begin(config, context, log).await
}

async fn run(root: &Store, config: &SourceConfig, source: &mut Scripted) -> Result<(), Error> {
    let context = context(root);
    let mut run = Box::pin(begin(config, &context)).await?;
    Box::pin(run.drive(source)).await
}

fn scripted() -> Scripted {
    Scripted {
        pages: pages(),
        broken: None,
    }
}

/// A run that fails after two batches.
async fn broken_off(root: &Store) {
    let mut broken = Scripted {
        broken: Some(4),
        ..scripted()
    };
    run(root, &config(), &mut broken).await.unwrap_err();
}

/// Everything that landed, by path: the bytes of the files that the log names, and the log without
/// run-specific fields.
async fn snapshot(root: &Store) -> BTreeMap<String, Bytes> {
    let mut all = BTreeMap::new();
    let landing = root.child("landing/s");
    for file in landing.list("log").await.unwrap() {
        let bytes = landing.get(&file.path).await.unwrap();
        let mut entry: CommitEntry = decode(&file.path, &bytes).unwrap();
        let others = [&entry.rejects, &entry.validators, &entry.raw];
        let children = entry.children.values().map(|table| &table.files);
        let others = others.into_iter().chain(children).flatten();
        for named in entry.files.iter().chain(others) {
            all.insert(named.path.clone(), landing.get(&named.path).await.unwrap());
        }
        (entry.run_id, entry.batch_id, entry.prev_hash) = (String::new(), String::new(), None);
        entry.epoch = feedline_schemas::ids::WriterEpoch::default();
        // The next bound alone depends on an interruption.
        if let Position::Page { run, .. } | Position::Done { run, .. } = &mut entry.state.position {
            (run.interrupted, entry.min_reader) = (None, None);
        }
        all.insert(file.path, feedline_schemas::encode(&entry).into());
    }
    all
}

async fn undisturbed() -> BTreeMap<String, Bytes> {
    let root = Store::memory();
    run(&root, &config(), &mut scripted()).await.unwrap();
    snapshot(&root).await
}

async fn entries(root: &Store) -> Vec<CommitEntry> {
    landed(root, &Name::new("s").unwrap())
        .await
        .unwrap()
        .unwrap()
        .entries
}

fn rule(operation: Operation, path_contains: &str, effect: Effect, skip: u64, times: u64) -> Rule {
    Rule {
        operation,
        path_contains: path_contains.into(),
        skip,
        times,
        effect,
    }
}

#[tokio::test]
async fn an_undisturbed_run_lands_what_it_should() {
    let root = Store::memory();
    run(&root, &config(), &mut scripted()).await.unwrap();
    let entries = entries(&root).await;
    let last = entries.last().unwrap();
    assert_eq!(entries.len(), 10);
    let totals = &last.state.totals;
    assert_eq!(
        (
            totals.rows,
            totals.duplicates,
            totals.rejected,
            totals.pages
        ),
        (42, 13, 5, 20)
    );
    let by_reason: Vec<_> = totals
        .rejected_by_reason
        .iter()
        .map(|(r, n)| (r.as_str(), *n))
        .collect();
    assert_eq!(by_reason, [("malformed_line", 4), ("type_conflict", 1)]);
    assert_eq!(
        last.state.position,
        Position::Done {
            pages: 20,
            files: vec![],
            run: PageRun::default()
        }
    );
    let names: Vec<_> = last
        .schema
        .columns
        .iter()
        .map(|c| c.name.as_str())
        .collect();
    assert_eq!(names, ["n", "at.x", "new_0", "new_1", "new_2"]);
    assert_eq!(
        entries
            .iter()
            .map(|e| e.schema.version.get())
            .collect::<Vec<_>>(),
        [1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    );
    assert_eq!(
        entries[0].files[0].path,
        "data/00000000000000000000-".to_owned() + &entries[0].files[0].hash.short() + ".parquet"
    );
}

#[tokio::test]
async fn the_same_pages_land_the_same_bytes() {
    assert_eq!(undisturbed().await, undisturbed().await);
}

/// Kills the run by faults at every batch, resumes without them, and compares with an undisturbed
/// run.
async fn check_kill(operation: Operation, path: &str, effect: Effect) {
    let expected = undisturbed().await;
    for batch in 0..10 {
        let root = Store::memory();
        // A create is tried five times: more faults than that end the run.
        let faults = Faults::new(vec![rule(operation, path, effect, batch, 99)]);
        run(&root.with_faults(faults), &config(), &mut scripted())
            .await
            .unwrap_err();
        run(&root, &config(), &mut scripted()).await.unwrap();
        assert_eq!(snapshot(&root).await, expected, "killed at batch {batch}");
    }
}

#[tokio::test(start_paused = true)]
async fn killed_before_the_data_file_it_goes_on_as_if_nothing_happened() {
    check_kill(Operation::Put, "data/", Effect::FailBefore).await;
}

#[tokio::test(start_paused = true)]
async fn fault_01_killed_between_data_file_and_log_entry_it_goes_on_as_if_nothing_happened() {
    check_kill(Operation::Put, "data/", Effect::FailAfter).await;
    check_kill(Operation::Create, "log/", Effect::FailBefore).await;
}

#[tokio::test(start_paused = true)]
async fn fault_02_killed_right_after_the_log_entry_it_goes_on_as_if_nothing_happened() {
    let expected = undisturbed().await;
    for batch in 0..9 {
        let root = Store::memory();
        let mut dies = Scripted {
            broken: Some(2 * batch + 2),
            ..scripted()
        };
        run(&root, &config(), &mut dies).await.unwrap_err();
        assert_eq!(entries(&root).await.len() as u64, batch + 1);
        run(&root, &config(), &mut scripted()).await.unwrap();
        assert_eq!(
            snapshot(&root).await,
            expected,
            "killed after batch {batch}"
        );
    }
}

#[tokio::test]
async fn killed_inside_a_batch_its_pages_are_read_again() {
    let expected = undisturbed().await;
    for page in 0..20 {
        let root = Store::memory();
        run(
            &root,
            &config(),
            &mut Scripted {
                broken: Some(page),
                ..scripted()
            },
        )
        .await
        .unwrap_err();
        run(&root, &config(), &mut scripted()).await.unwrap();
        assert_eq!(snapshot(&root).await, expected, "killed at page {page}");
    }
}

#[tokio::test(start_paused = true)]
async fn fault_04_a_commit_whose_answer_is_lost_counts_once() {
    let root = Store::memory();
    let faults = Faults::new(vec![rule(
        Operation::Create,
        "log/",
        Effect::FailAfter,
        0,
        99,
    )]);
    run(&root.with_faults(faults), &config(), &mut scripted())
        .await
        .unwrap();
    assert_eq!(snapshot(&root).await, undisturbed().await);
}

#[tokio::test(start_paused = true)]
async fn fault_07_a_full_disk_stops_the_run_and_loses_nothing() {
    let root = Store::memory();
    let faults = Faults::new(vec![rule(Operation::Put, "data/", Effect::Full, 3, 1)]);
    let error = run(&root.with_faults(faults), &config(), &mut scripted())
        .await
        .unwrap_err();
    assert!(error.to_string().starts_with("no space left"), "{error}");
    assert_eq!(entries(&root).await.len(), 3);
    run(&root, &config(), &mut scripted()).await.unwrap();
    assert_eq!(snapshot(&root).await, undisturbed().await);
}

#[tokio::test]
async fn a_finished_log_is_only_read() {
    let root = Store::memory();
    // Port 9 is closed: a request would fail.
    let config = SourceConfig {
        r#type: SourceKind::Rest,
        url: "http://127.0.0.1:9/".into(),
        ..config()
    };
    run(&root, &config, &mut scripted()).await.unwrap();
    let before = snapshot(&root).await;
    let report = run_source(&config, &context(&root)).await.unwrap();
    assert_eq!(
        (report.status.as_str(), report.batches, report.requests),
        ("complete", 10, 0)
    );
    assert_eq!(snapshot(&root).await, before);
}

/// Cancels after some pages.
#[derive(Debug)]
struct CancelAfter(AtomicU64, watch::Sender<bool>);

impl Progress for CancelAfter {
    fn report(&self, _: Event<'_>) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.1.send(true).unwrap();
        }
    }
}

/// All landed rows of column `n`, in order.
async fn numbers(root: &Store) -> Vec<i64> {
    use arrow::{array::AsArray, datatypes::Int64Type};
    let landing = root.child("landing/s");
    let mut all = Vec::new();
    for file in entries(root).await.iter().flat_map(|entry| &entry.files) {
        for rows in crate::landed_file::read(&landing, file, &["n"], None)
            .await
            .unwrap()
        {
            all.extend(rows.column(0).as_primitive::<Int64Type>().iter().flatten());
        }
    }
    all
}

#[tokio::test]
async fn fault_11_asked_to_stop_it_commits_what_it_has_read() {
    let root = Store::memory();
    let (sender, cancel) = watch::channel(false);
    let progress = Arc::new(CancelAfter(AtomicU64::new(5), sender));
    let context = Context {
        progress,
        cancel,
        ..context(&root)
    };
    let config = config();
    let mut run_ = begin(&config, &context).await.unwrap();
    let error = Box::pin(run_.drive(&mut scripted())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    // It is asked to on the fifth page, in the middle of the third batch.
    let landed = entries(&root).await;
    assert_eq!(landed.len(), 3);
    assert_eq!(landed[2].counts.pages, 1);
    run(&root, &config, &mut scripted()).await.unwrap();
    let undisturbed = Store::memory();
    run(&undisturbed, &config, &mut scripted()).await.unwrap();
    assert_eq!(numbers(&root).await, numbers(&undisturbed).await);
    let totals = |entries: &[CommitEntry]| entries.last().unwrap().state.totals.clone();
    assert_eq!(
        totals(&entries(&root).await),
        totals(&entries(&undisturbed).await)
    );
}

#[tokio::test]
async fn fault_06_of_two_writers_one_is_fenced() {
    let root = Store::memory();
    let (config, one, other) = (config(), context(&root), context(&root));
    let mut first = begin(&config, &one).await.unwrap();
    let mut second = begin(&config, &other).await.unwrap();
    Box::pin(first.drive(&mut scripted())).await.unwrap();
    let error = Box::pin(second.drive(&mut scripted())).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Fenced {
                epoch: 1,
                other_epoch: 1,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(snapshot(&root).await, undisturbed().await);
}

#[tokio::test]
async fn each_run_takes_the_next_epoch() {
    let root = Store::memory();
    broken_off(&root).await;
    run(&root, &config(), &mut scripted()).await.unwrap();
    let epochs: Vec<_> = entries(&root)
        .await
        .iter()
        .map(|entry| entry.epoch.get())
        .collect();
    assert_eq!(epochs, [1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
}

#[tokio::test]
async fn fault_12_other_settings_are_refused_while_bounds_may_change() {
    let root = Store::memory();
    broken_off(&root).await;
    let other = SourceConfig {
        records: "data".into(),
        ..config()
    };
    let error = run(&root, &other, &mut scripted()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.to_string().contains("`records`: was not set when")
            && error
                .to_string()
                .contains("feedline ingest reset PIPELINE.toml s"),
        "{error}"
    );
    let mut bounds = config();
    bounds.batch.rows = Bounded::literal::<7>();
    bounds.contract.types = TypeContract::NullValue;
    run(&root, &bounds, &mut scripted()).await.unwrap();
}

#[tokio::test]
async fn too_many_rejects_stop_before_the_commit() {
    let root = Store::memory();
    let mut config = config();
    config.contract.max_reject_fraction = Real::literal(0.05);
    let error = run(&root, &config, &mut scripted()).await.unwrap_err();
    let expected = "source `s`: 5 of 47 records were rejected, more than `contract.max_reject_fraction` = 0.05 allows; most often for `malformed_line`, such as ";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert_eq!(entries(&root).await.len(), 9);
    // Running again does not pass the limit: the rejects of the same read count.
    let again = run(&root, &config, &mut scripted()).await.unwrap_err();
    assert_eq!(again.to_string(), error.to_string());
    config.contract.max_reject_fraction = Real::literal(0.2);
    run(&root, &config, &mut scripted()).await.unwrap();
    assert_eq!(snapshot(&root).await, undisturbed().await);
}

#[tokio::test]
async fn rejects_are_judged_early_after_a_thousand_records() {
    let bad = |_| Record::Bad {
        raw: "x".into(),
        reason: "malformed_line",
        detail: String::new(),
    };
    let pages = (0..30).map(|_| (0..100).map(bad).collect()).collect();
    let mut config = config();
    config.batch.rows = Bounded::literal::<400>();
    let root = Store::memory();
    let error = run(
        &root,
        &config,
        &mut Scripted {
            pages,
            broken: None,
        },
    )
    .await
    .unwrap_err();
    assert!(
        matches!(error, Error::TooManyRejects { records: 1200, .. }),
        "{error}"
    );
    assert_eq!(entries(&root).await.len(), 2);
}

#[tokio::test]
async fn a_frozen_contract_stops_before_the_commit() {
    let root = Store::memory();
    let mut config = config();
    config.contract.types = TypeContract::Freeze;
    let error = run(&root, &config, &mut scripted()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "source `s`: column `n` is integer, the value is text `\"thirteen\"`, and `contract.types` is `freeze`; the batch was not committed; correct the source, or choose `quarantine_row`, `null_value` or `widen`; the record is {\"n\":\"thirteen\"}"
    );
    assert_eq!(entries(&root).await.len(), 6);
}

#[tokio::test]
async fn a_damaged_log_is_refused() {
    let name = Name::new("s").unwrap();
    let path = |sequence: u64| format!("landing/s/log/{sequence:020}.json");
    let root = Store::memory();
    run(&root, &config(), &mut scripted()).await.unwrap();
    let fourth = root.get(&path(4)).await.unwrap();
    root.delete(&path(4)).await.unwrap();
    let error = landed(&root, &name).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("was found where `log/00000000000000000004.json` should be"),
        "{error}"
    );
    let edited = String::from_utf8(fourth.to_vec())
        .unwrap()
        .replace("\"pages\": 2", "\"pages\": 3");
    root.put(&path(4), edited.into()).await.unwrap();
    let error = landed(&root, &name).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the entry before `log/00000000000000000005.json`"),
        "{error}"
    );
    root.put(&path(4), fourth).await.unwrap();
    let landed = landed(&root, &name).await.unwrap().unwrap();
    assert_eq!((landed.sequence.get(), landed.entries.len()), (9, 10));
    let last = root.get(&path(9)).await.unwrap();
    assert_eq!(landed.entry_hash, feedline_schemas::ids::Hash128::of(&last));
}

#[tokio::test]
async fn a_damaged_data_file_is_not_trusted_for_duplicates() {
    let root = Store::memory();
    broken_off(&root).await;
    let path = format!("landing/s/{}", entries(&root).await[1].files[0].path);
    let mut bytes = root.get(&path).await.unwrap().to_vec();
    bytes[8] ^= 1;
    root.put(&path, bytes.into()).await.unwrap();
    let error = run(&root, &config(), &mut scripted()).await.unwrap_err();
    assert!(error.to_string().contains("in its log entry"), "{error}");
}

#[tokio::test]
async fn status_tells_what_has_landed_and_shows_a_reject() {
    let root = Store::memory();
    let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"unused\"\n[[source]]\nname = \"t\"\ntype = \"rest\"\nurl = \"demo://market\"\n";
    let pipeline = feedline_schemas::config::load("p", text, &[])
        .unwrap()
        .config;
    run(&root, &config(), &mut scripted()).await.unwrap();
    let report = status(&pipeline, &root).await.unwrap();
    assert_eq!(
        (
            report.rows,
            report.duplicates,
            report.rejected,
            report.batches
        ),
        (42, 13, 5, 10)
    );
    assert_eq!(report.sources[0].status, "complete");
    assert_eq!(
        report.sources[0].reject_sample.as_deref(),
        Some("`malformed_line`: line 15: {")
    );
    assert_eq!(report.sources[1].status, "empty");
    assert!(report.sources[0].bytes > 0);

    let newest = "landing/s/log/00000000000000000009.json";
    let committed = root.modified(newest).await.unwrap();
    let now = committed + std::time::Duration::from_secs(90);
    let mut told = crate::status_with_lag(&pipeline, &root, now).await.unwrap();
    let [standing, other] = [0, 1].map(|i| told.sources[i].standing.take().unwrap());
    assert_eq!(told, report);
    assert_eq!(
        (standing.committed_unix_s, standing.lag_s),
        (Some(committed.as_secs()), Some(90))
    );
    assert_eq!((standing.schema_versions, standing.columns), (3, 5));
    assert_eq!(standing.last_rejected, Some(5));
    assert_eq!(
        standing.next,
        "reads files that are not among the 0 read before"
    );
    let nothing = feedline_schemas::report::Standing {
        next: "starts from the beginning".into(),
        ..Default::default()
    };
    assert_eq!(other, nothing);
}

fn pipeline(url: &str) -> PipelineConfig {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = '{url}'\n"
    );
    feedline_schemas::config::load("p", &text, &[])
        .unwrap()
        .config
}

#[tokio::test]
async fn files_land_once_and_new_ones_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let place = folder.path().display();
    write("2.csv", "id,price\n7,1.5\n8,\n7,1.5\n9\n");
    let mut config = pipeline(&format!("{place}/*.csv"));
    config.source[0].contract.max_reject_fraction = Real::literal(0.5);
    let root = Store::open(&format!("{place}/root"), &StoreOptions::default()).unwrap();
    let first = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(
        (first.rows, first.duplicates, first.rejected, first.batches),
        (3, 0, 1, 1)
    );
    let source = &first.sources[0];
    assert_eq!(
        (source.status.as_str(), source.schema_version),
        ("complete", 1)
    );
    assert_eq!(
        source.reject_sample.as_deref(),
        Some("`ragged_row`: `2.csv`: line 5 (byte 24 of the file): 1 field, the header has 2: 9")
    );
    assert_eq!(source.url, format!("{place}/root/landing/s"));
    assert_eq!(
        (first.new_rejected, source.new_rejected),
        (Some(1), Some(1))
    );
    let mut again = ingest(&config, None, &context(&root)).await.unwrap();
    // The reject is open, and not one of this run.
    let again_rejected = again.new_rejected.replace(1);
    let of_source = again.sources[0].new_rejected.replace(1);
    assert_eq!((again_rejected, of_source), (Some(0), Some(0)));
    let rows = again.new_rows.replace(3);
    assert_eq!((first.new_rows, rows), (Some(3), Some(0)));
    let new = again.sources[0].new_rows.replace(3);
    // Its files are compared with the log by the next start.
    let compared = mem::take(&mut again.sources[0].compared_files);
    assert_eq!((new, compared, again), (Some(0), 2, first));
    write("1.csv", "id,price,note\n7,1.5,x\n8,2,y\n");
    let second = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(
        (
            second.rows,
            second.batches,
            second.sources[0].schema_version
        ),
        (5, 2, 2)
    );
    let mut of_log = status(&config, &root).await.unwrap();
    assert_eq!(of_log.sources[0].new_rows.replace(2), None);
    assert_eq!(of_log.new_rows.replace(2), None);
    assert_eq!(of_log.new_rejected.replace(0), None);
    assert_eq!(of_log.sources[0].new_rejected.replace(0), None);
    // The file of this run is compared too.
    let compared = mem::replace(&mut of_log.sources[0].compared_files, 2);
    assert_eq!((compared, of_log), (3, second));
}

#[tokio::test]
async fn a_column_that_files_name_differently_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("1.csv", "id,Menge\n1,5\n2,6\n");
    let config = pipeline(&format!("{}/*.csv", folder.path().display()));
    let codes = |report: &IngestReport| -> Vec<String> {
        let warnings = report.sources[0].warnings.iter();
        warnings.map(|warning| warning.code.clone()).collect()
    };
    let root = Store::memory();
    let first = ingest(&config, None, &context(&root)).await.unwrap();
    assert!(codes(&first).is_empty(), "{first:#?}");
    write("2.csv", "id,menge\n3,7\n");
    // In a batch of its own, then in one batch with the first file.
    for root in [root, Store::memory()] {
        let report = ingest(&config, None, &context(&root)).await.unwrap();
        assert!(
            codes(&report).contains(&"columns_alike".to_owned()),
            "{report:#?}"
        );
    }
}

#[tokio::test]
async fn a_missing_file_is_a_configuration_error_with_its_key() {
    let error = ingest(
        &pipeline("/no/such/file.csv"),
        None,
        &context(&Store::memory()),
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error
            .to_string()
            .starts_with("`source.0.url`: file or folder `/no/such/file.csv` does not exist"),
        "{error}"
    );
}

#[tokio::test]
async fn fault_10_a_log_of_another_version_is_refused_by_name() {
    let root = Store::memory();
    run(&root, &config(), &mut scripted()).await.unwrap();
    let path = "landing/s/log/00000000000000000009.json";
    let entry = String::from_utf8(root.get(path).await.unwrap().to_vec()).unwrap();
    for version in [0, 4] {
        let other = entry.replace(
            "\"version\": 3,\n  \"min_reader\": 2,",
            &format!("\"version\": {version},"),
        );
        assert_ne!(other, entry);
        root.put(path, other.into()).await.unwrap();
        let error = run(&root, &config(), &mut scripted()).await.unwrap_err();
        assert!(matches!(error, Error::Contract(_)), "{error}");
        let error = error.to_string();
        assert!(
            error.contains(&format!("version `{version}`")) && error.contains("9.json"),
            "{error}"
        );
    }
}
