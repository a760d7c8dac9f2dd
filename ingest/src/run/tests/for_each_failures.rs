//! A source that is requested for each value of a list, where some values fail.

use std::{
    sync::{Mutex, atomic::AtomicBool},
    time::Duration,
};

use feedline_schemas::{
    config::{Bounded, MissingValue, PaginationKind, Refresh, load},
    report::SlicesReport,
};

use super::{
    for_each::{asked, each, texts, warned},
    slices::{ingest_once, landed_numbers, param},
    *,
};
use crate::{
    status::status_with_lag,
    testing::{self, Scripted, Step, answer, ok, set_key},
};

/// Values that fail.
type Failing = Arc<Mutex<Vec<&'static str>>>;

/// Responds with one record, and with `status` for a value that fails.
fn respond(failing: &Failing, status: &str, head: &str) -> Step {
    let symbol = param(head, "symbol").unwrap();
    match failing.lock().unwrap().contains(&symbol.as_str()) {
        true => answer(status, ""),
        false => ok(r#"{"items": [{"n": 1}]}"#),
    }
}

/// Values and slices as `status` reports them.
async fn slices_of(root: &Store, config: &SourceConfig) -> (String, SlicesReport) {
    let mut all = pipeline("unused");
    all.source[0] = config.clone();
    let mut report = status(&all, root).await.unwrap();
    let source = report.sources.remove(0);
    (source.status, source.slices.unwrap())
}

fn config_of(server: &Scripted, kind: PaginationKind, values: &[&str]) -> SourceConfig {
    let mut config = testing::config(server.url.as_str(), kind);
    config.name = Name::new("s").unwrap();
    config.retry.max_tries = Bounded::literal::<1>();
    config.for_each = Some(each("symbol", values));
    config
}

#[tokio::test]
async fn the_values_beside_those_that_fail_land_and_the_next_run_requests_only_these() {
    let failing: Failing = Arc::new(Mutex::new(vec!["B", "D"]));
    for (pages, count) in [(100, 1), (1, 3)] {
        failing.lock().unwrap().clear();
        failing.lock().unwrap().extend(["B", "D"]);
        let fails = Arc::clone(&failing);
        let server = Scripted::answering(move |_, head| respond(&fails, "500 Oh", head)).await;
        let mut config = config_of(&server, PaginationKind::None, &["A", "B", "C", "D"]);
        config.batch.pages = Bounded::new(pages).unwrap();
        let root = Store::memory();
        for requests in [&["A", "B", "C", "D"][..], &["B", "D"]] {
            let first = server.heads().len();
            let error = ingest_once(&root, &config).await.unwrap_err().to_string();
            for part in [
                "source `s`: 2 values of `for_each` failed (`B`, `D`), and all others were read",
                "500 Internal Server Error",
            ] {
                assert!(error.contains(part), "{error}");
            }
            assert_eq!(asked(&server, first), requests);
            assert_eq!(texts(&root, "s", "symbol").await, ["A", "C"]);
            assert_eq!(entries(&root).await.len(), count, "{pages}");
            let (status, slices) = slices_of(&root, &config).await;
            assert_eq!(status, "partial");
            assert_eq!((slices.values_done, slices.values_open), (2, 2));
        }
        let last = entries(&root).await.pop().unwrap();
        let codes = last.state.warnings.iter();
        let codes: Vec<&str> = codes.map(|warning| warning.code.as_str()).collect();
        assert_eq!(codes, ["values_failed"]);
        failing.lock().unwrap().clear();
        let first = server.heads().len();
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(asked(&server, first), ["B", "D"]);
        assert_eq!((report.rows, report.duplicates), (4, 0));
        assert_eq!(report.status, "complete");
        assert_eq!(report.warnings, []);
        assert_eq!(texts(&root, "s", "symbol").await, ["A", "C", "B", "D"]);
        assert_eq!(ingest_once(&root, &config).await.unwrap().requests, 0);
    }
}

#[tokio::test]
async fn a_source_whose_values_all_fail_is_not_complete() {
    let failing: Failing = Arc::new(Mutex::new(vec!["A", "B"]));
    let server = Scripted::answering(move |_, head| respond(&failing, "500 Oh", head)).await;
    let config = config_of(&server, PaginationKind::None, &["A", "B"]);
    let root = Store::memory();
    for _ in 0..2 {
        let first = server.heads().len();
        let error = ingest_once(&root, &config).await.unwrap_err();
        assert!(error.to_string().contains("(`A`, `B`)"), "{error}");
        assert_eq!(asked(&server, first), ["A", "B"]);
        let (status, slices) = slices_of(&root, &config).await;
        assert_eq!(status, "partial");
        assert_eq!((slices.values_done, slices.values_open), (0, 2));
    }
}

#[tokio::test]
async fn an_error_about_the_whole_source_ends_it_at_once() {
    for status in ["401 Who", "403 No"] {
        let failing: Failing = Arc::new(Mutex::new(vec!["B"]));
        let fails = Arc::clone(&failing);
        let server = Scripted::answering(move |_, head| respond(&fails, status, head)).await;
        let config = config_of(&server, PaginationKind::None, &["A", "B", "C"]);
        let root = Store::memory();
        for requests in [&["A", "B"][..], &["B"]] {
            let first = server.heads().len();
            let error = ingest_once(&root, &config).await.unwrap_err();
            assert!(!matches!(error, Error::FailedValues { .. }), "{error}");
            assert_eq!(asked(&server, first), requests);
            assert_eq!(texts(&root, "s", "symbol").await, ["A"]);
            let (_, slices) = slices_of(&root, &config).await;
            assert_eq!(slices.in_work.as_deref(), Some("symbol: B"));
        }
        failing.lock().unwrap().clear();
        ingest_once(&root, &config).await.unwrap();
        assert_eq!(texts(&root, "s", "symbol").await, ["A", "B", "C"]);
    }
}

#[tokio::test]
async fn ten_values_that_fail_in_a_row_end_the_source_and_the_next_run_continues_there() {
    let server = Scripted::answering(|_, _| answer("404 Not Found", "")).await;
    let values: Vec<String> = (0..25).map(|value| value.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let config = config_of(&server, PaginationKind::None, &values);
    let root = Store::memory();
    for (count, requested) in [(9, &values[..10]), (18, &values[9..19])] {
        let first = server.heads().len();
        let error = ingest_once(&root, &config).await.unwrap_err().to_string();
        let part = "9 values of `for_each` failed (";
        assert!(error.contains(part), "{error}");
        let last = requested.last().unwrap();
        let part = format!(
            "and then `{last}`, the 10th in a row: the next run begins with it, and the values after it were not requested"
        );
        assert!(error.contains(&part), "{error}");
        assert_eq!(asked(&server, first), requested);
        // The value in work is in neither count.
        let warnings = entries(&root).await.pop().unwrap().state.warnings;
        let part = format!("the last requests of {count} values failed");
        let mut messages = warnings.iter().map(|warning| warning.message.as_str());
        assert!(messages.any(|text| text.starts_with(&part)), "{warnings:?}");
    }
    // The pass ends, and the one after it requests them all: none of them fails for the first time.
    let first = server.heads().len();
    let error = ingest_once(&root, &config).await.unwrap_err().to_string();
    assert!(error.contains("25 values of `for_each` failed"), "{error}");
    let all = [&values[18..], &values[..]].concat();
    assert_eq!(asked(&server, first), all);
}

/// An API of seventeen records of each value A, B and C. While they are in `failing`, the last page of
/// B fails, and C is refused.
async fn start_long_values(failing: &Failing) -> Scripted {
    let fails = Arc::clone(failing);
    Scripted::answering(move |_, head| {
        let offset: i64 = param(head, "offset").map_or(0, |text| text.parse().unwrap());
        let is_last_page = offset == 14 && param(head, "symbol").as_deref() == Some("B");
        if is_last_page && fails.lock().unwrap().contains(&"B") {
            return answer("500 Oh", "");
        }
        let is_c = param(head, "symbol").as_deref() == Some("C");
        if is_c && fails.lock().unwrap().contains(&"C") {
            return answer("403 No", "");
        }
        let begin = match param(head, "symbol").as_deref() {
            Some("A") => 0,
            Some("B") => 17,
            _ => 34,
        };
        let items = (offset..(offset + 7).min(17)).map(|i| format!(r#"{{"n": {}}}"#, begin + i));
        ok(&format!(
            r#"{{"items": [{}]}}"#,
            items.collect::<Vec<_>>().join(",")
        ))
    })
    .await
}

#[tokio::test]
async fn pages_of_a_value_that_fails_later_land_once() {
    for pages in [1, 100] {
        let failing: Failing = Arc::new(Mutex::new(vec!["B"]));
        let server = start_long_values(&failing).await;
        let mut config = config_of(&server, PaginationKind::Offset, &["A", "B", "C"]);
        set_key(&mut config, "page_size", 7);
        config.batch.pages = Bounded::new(pages).unwrap();
        // The rows of B are beyond it when B is read again.
        config.batch.dedup_window = Some(1);
        let root = Store::memory();
        let expected: Vec<i64> = (0..31).chain(34..51).collect();
        for _ in 0..2 {
            ingest_once(&root, &config).await.unwrap_err();
            assert_eq!(landed_numbers(&root).await, expected);
        }
        failing.lock().unwrap().clear();
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!((report.rows, report.status.as_str()), (51, "complete"));
        assert_eq!(landed_numbers(&root).await, (0..51).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn pages_of_a_value_that_failed_in_an_interrupted_pass_land_once() {
    let failing: Failing = Arc::new(Mutex::new(vec!["B", "C"]));
    let server = start_long_values(&failing).await;
    let mut config = config_of(&server, PaginationKind::Offset, &["A", "B", "C"]);
    set_key(&mut config, "page_size", 7);
    config.refresh = Refresh::IfChanged;
    config.batch.dedup_window = Some(1);
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap_err();
    assert_eq!(landed_numbers(&root).await, (0..31).collect::<Vec<_>>());
    failing.lock().unwrap().clear();
    // The pass ends with C, and B is requested again in the same run.
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.status.as_str()), (51, "complete"));
    assert_eq!(landed_numbers(&root).await, (0..51).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_interrupted_pass_over_failed_values_lands_their_pages_once() {
    let mut interrupted = 0;
    for batches in 0..40 {
        let failing: Failing = Arc::new(Mutex::new(vec!["B", "C"]));
        let server = start_long_values(&failing).await;
        let mut config = config_of(&server, PaginationKind::Offset, &["A", "B", "C"]);
        set_key(&mut config, "page_size", 7);
        config.refresh = Refresh::IfChanged;
        config.batch.pages = Bounded::literal::<1>();
        config.batch.dedup_window = Some(1);
        let root = Store::memory();
        ingest_once(&root, &config).await.unwrap_err();
        failing.lock().unwrap().clear();
        let rule = rule(Operation::Create, "log/", Effect::FailBefore, batches, 99);
        let dies = root.with_faults(Faults::new(vec![rule]));
        let died = ingest_once(&dies, &config).await.is_err();
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(
            (report.rows, report.status.as_str()),
            (51, "complete"),
            "{batches}"
        );
        assert_eq!(
            landed_numbers(&root).await,
            (0..51).collect::<Vec<_>>(),
            "{batches}"
        );
        if !died {
            break;
        }
        interrupted += 1;
    }
    assert!((4..40).contains(&interrupted), "{interrupted}");
}

#[tokio::test]
async fn a_failed_value_that_is_absent_once_and_returns_lands_its_pages_once() {
    let failing: Failing = Arc::new(Mutex::new(vec!["B"]));
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = Arc::clone(&is_gone);
    let fails = Arc::clone(&failing);
    let server = Scripted::answering(move |_, head| {
        let offset: i64 = param(head, "offset").map_or(0, |text| text.parse().unwrap());
        let is_b = param(head, "symbol").as_deref() == Some("B");
        if is_b && gone.load(Ordering::Relaxed) {
            return answer("404 No", "");
        }
        if is_b && offset == 14 && fails.lock().unwrap().contains(&"B") {
            return answer("500 Oh", "");
        }
        let begin = if is_b { 17 } else { 0 };
        let items = (offset..(offset + 7).min(17)).map(|i| format!(r#"{{"n": {}}}"#, begin + i));
        ok(&format!(
            r#"{{"items": [{}]}}"#,
            items.collect::<Vec<_>>().join(",")
        ))
    })
    .await;
    let mut config = config_of(&server, PaginationKind::Offset, &["A", "B"]);
    set_key(&mut config, "page_size", 7);
    config.for_each.as_mut().unwrap().missing = MissingValue::Skip;
    config.batch.dedup_window = Some(1);
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap_err();
    assert_eq!(landed_numbers(&root).await, (0..31).collect::<Vec<_>>());
    is_gone.store(true, Ordering::Relaxed);
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.status.as_str()), (31, "partial"));
    is_gone.store(false, Ordering::Relaxed);
    failing.lock().unwrap().clear();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.status.as_str()), (34, "complete"));
    assert_eq!(landed_numbers(&root).await, (0..34).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_list_of_a_source_whose_own_values_fail_is_incomplete() {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let server = Scripted::answering(move |_, head| match param(head, "v").as_deref() {
        Some("y") if down.load(Ordering::Relaxed) => answer("500 Oh", ""),
        Some(v) => ok(&format!(r#"[{{"id": "of-{v}"}}]"#)),
        None => ok(r#"[{"n": 1}]"#),
    })
    .await;
    let url = &server.url;
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"ids\"\ntype = \"rest\"\nurl = \"{url}ids\"\nretry = {{ max_tries = 1 }}\nfor_each = {{ param = \"v\", values = [\"x\", \"y\"] }}\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"{url}items\"\nfor_each = {{ param = \"id\", source = \"ids\", column = \"id\" }}\n"
    );
    let config = load("p", &text, &[]).unwrap().config;
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(texts(&root, "s", "id").await, ["of-x", "of-y"]);
    // The list is landed again, and one of its values fails.
    let landing = root.child("landing/ids");
    for folder in ["log", "data"] {
        for file in landing.list(folder).await.unwrap() {
            landing.delete(&file.path).await.unwrap();
        }
    }
    is_down.store(true, Ordering::Relaxed);
    let context = context(&root);
    let end = Box::pin(ingest_all(&config, None, &context)).await.unwrap();
    assert!(matches!(end.error, Some(Error::FailedValues { .. })));
    let source = &end.report.sources[1];
    assert!(warned(source, "list_incomplete").is_some());
    assert_eq!(warned(source, "values_removed"), None);
}

#[tokio::test]
async fn without_a_dedup_window_a_value_that_fails_later_is_continued_at_its_page() {
    let failing: Failing = Arc::new(Mutex::new(vec!["B"]));
    let server = start_long_values(&failing).await;
    let mut config = config_of(&server, PaginationKind::Offset, &["A", "B", "C"]);
    set_key(&mut config, "page_size", 7);
    config.batch.dedup_window = Some(0);
    let root = Store::memory();
    for _ in 0..2 {
        let error = ingest_once(&root, &config).await.unwrap_err();
        assert!(matches!(error, Error::Http { .. }), "{error}");
        assert_eq!(landed_numbers(&root).await, (0..31).collect::<Vec<_>>());
    }
    failing.lock().unwrap().clear();
    ingest_once(&root, &config).await.unwrap();
    assert_eq!(landed_numbers(&root).await, (0..51).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_last_value_of_a_pass_that_leaves_the_list_after_it_failed_ends_the_pass() {
    let failing: Failing = Arc::new(Mutex::new(vec!["B"]));
    // An error about the whole source leaves the pass in the middle.
    let server = Scripted::answering(move |_, head| respond(&failing, "403 No", head)).await;
    let mut config = config_of(&server, PaginationKind::None, &["A", "B"]);
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap_err();
    config.for_each = Some(each("symbol", &["A", "D"]));
    let first = server.heads().len();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(asked(&server, first), ["D"]);
    assert_eq!(report.status, "complete");
    assert_eq!(texts(&root, "s", "symbol").await, ["A", "D"]);
    // The log shows the end of the pass without B before that of the next one.
    let ledgers = entries(&root).await;
    let ledgers = ledgers
        .iter()
        .map(|entry| entry.state.position.ledger().unwrap().clone());
    let ends: Vec<(u64, bool)> = ledgers
        .map(|ledger| (ledger.values, ledger.slice.is_none()))
        .collect();
    assert_eq!(ends, [(2, false), (2, true), (3, true)]);
}

/// Runs a pipeline whose only source has values that fail.
async fn run_failing(root: &Store, config: &PipelineConfig) -> SourceReport {
    let context = context(root);
    let end = Box::pin(ingest_all(config, None, &context)).await.unwrap();
    assert!(matches!(end.error, Some(Error::FailedValues { .. })));
    end.report.sources.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_run_with_failed_values_merges_small_files_and_reports_its_warnings() {
    let failing: Failing = Arc::new(Mutex::new(vec!["B"]));
    let server = Scripted::answering(move |_, head| respond(&failing, "500 Oh", head)).await;
    let config_of = |values: &str| {
        let url = &server.url;
        let text = format!(
            "[pipeline]\nname = \"p\"\n[ingest]\ncompact = {{ files = 3 }}\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"{url}\"\nrecords = \"items\"\nbatch = {{ pages = 1 }}\nretry = {{ max_tries = 1 }}\nfor_each = {{ param = \"symbol\", values = [{values}] }}\n"
        );
        load("p", &text, &[]).unwrap().config
    };
    let root = Store::memory();
    let config = config_of(r#""A", "B", "C", "D", "E", "F""#);
    let report = run_failing(&root, &config).await;
    assert_eq!((report.status.as_str(), report.rows), ("failed", 5));
    let merged = report.compacted.unwrap();
    assert_eq!((merged.files_before, merged.files_after), (5, 1));
    // F has left the list: the warning is about one run alone.
    let config = config_of(r#""A", "B", "C", "D", "E""#);
    for expected in [Some(vec!["values_removed".to_owned()]), None] {
        let report = run_failing(&root, &config).await;
        assert!(warned(&report, "values_failed").is_some());
        let is_removed = warned(&report, "values_removed").is_some();
        assert_eq!(is_removed, expected.is_some());
        let status = status_with_lag(&config, &root, Duration::ZERO).await;
        let standing = status.unwrap().sources.remove(0).standing.unwrap();
        let codes = standing.run_warnings.map(|warnings| warnings.codes);
        assert_eq!(codes, expected);
    }
}

#[tokio::test]
async fn absent_and_failed_values_beyond_those_that_are_remembered_are_named() {
    let failing: Failing = Arc::new(Mutex::new(vec!["x"]));
    let fails = Arc::clone(&failing);
    let server = Scripted::answering(move |_, head| match param(head, "symbol").as_deref() {
        Some("y") => ok(r#"{"items": [{"n": 1}]}"#),
        Some("x") if fails.lock().unwrap().contains(&"x") => answer("500 Oh", ""),
        _ => answer("404 Not Found", ""),
    })
    .await;
    let absent: Vec<String> = (0..30).map(|value| value.to_string()).collect();
    let absent = absent.iter().map(String::as_str);
    let values: Vec<&str> = absent.chain(["x", "y"]).collect();
    let mut config = config_of(&server, PaginationKind::None, &values);
    config.for_each.as_mut().unwrap().missing = MissingValue::Skip;
    let root = Store::memory();
    for requested in [&values[..31], &values[30..31]] {
        let first = server.heads().len();
        let error = ingest_once(&root, &config).await.unwrap_err().to_string();
        let part = "1 value of `for_each` failed (`x`), and `x` is beyond the 30 failed or absent values that are remembered for another request: the next run begins with it";
        assert!(error.contains(part), "{error}");
        assert_eq!(asked(&server, first), requested);
    }
    failing.lock().unwrap().clear();
    let lost = "knew nothing of `x`, beyond the 30 absent or failed values";
    // The run that ends the pass makes the next one too.
    let both = [&["x", "y"][..], &values[..30]].concat();
    for requested in [&both[..], &values[..30]] {
        let first = server.heads().len();
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(asked(&server, first), requested);
        assert_eq!(report.rows, 1);
        let message = warned(&report, "values_beyond_limit").unwrap();
        assert!(message.contains(lost), "{message}");
    }
    // A source that requests all values again has lost none.
    config.refresh = Refresh::IfChanged;
    let first = server.heads().len();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(asked(&server, first), values);
    assert_eq!(warned(&report, "values_beyond_limit"), None);
}
