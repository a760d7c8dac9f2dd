//! A source that is requested for each value of a list, where one value fails.

use std::sync::Mutex;

use feedline_schemas::config::{Bounded, PaginationKind};

use super::{
    for_each::{asked, each, texts},
    slices::{ingest_once, landed_numbers, param},
    *,
};
use crate::testing::{self, Scripted, Step, answer, ok, set_key};

/// Values that fail.
type Failing = Arc<Mutex<Vec<&'static str>>>;

fn respond(failing: &Failing, head: &str, response: impl FnOnce(&str) -> String) -> Step {
    let symbol = param(head, "symbol").unwrap();
    match failing.lock().unwrap().contains(&symbol.as_str()) {
        true => answer("500 Oh", ""),
        false => ok(&response(&symbol)),
    }
}

fn config_of(server: &Scripted, kind: PaginationKind, values: &[&str]) -> SourceConfig {
    let mut config = testing::config(server.url.as_str(), kind);
    config.name = Name::new("s").unwrap();
    config.retry.max_tries = Bounded::literal::<1>();
    config.for_each = Some(each("symbol", values));
    config
}

#[tokio::test]
async fn values_before_one_that_fails_land_and_the_next_run_continues_with_it() {
    let failing: Failing = Arc::new(Mutex::new(vec!["D"]));
    let fails = Arc::clone(&failing);
    let server = Scripted::answering(move |_, head| {
        respond(&fails, head, |_| r#"{"items": [{"n": 1}]}"#.to_owned())
    })
    .await;
    let config = config_of(&server, PaginationKind::None, &["A", "B", "C", "D", "E"]);
    let root = Store::memory();
    let mut all = pipeline("unused");
    all.source[0] = config.clone();
    // It fails in every run: what was read before it has landed, once.
    for requests in [&["A", "B", "C", "D"][..], &["D"]] {
        let first = server.heads().len();
        let error = ingest_once(&root, &config).await.unwrap_err();
        assert!(error.to_string().contains("500"), "{error}");
        assert_eq!(asked(&server, first), requests);
        assert_eq!(texts(&root, "s", "symbol").await, ["A", "B", "C"]);
        assert_eq!(entries(&root).await.len(), 1);
        let report = status(&all, &root).await.unwrap();
        let slices = report.sources[0].slices.clone().unwrap();
        assert_eq!((slices.values_done, slices.values_open), (3, 2));
        assert_eq!(slices.in_work.as_deref(), Some("symbol: D"));
    }
    failing.lock().unwrap().clear();
    let first = server.heads().len();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(asked(&server, first), ["D", "E"]);
    assert_eq!((report.rows, report.duplicates), (5, 0));
    let landed = texts(&root, "s", "symbol").await;
    assert_eq!(landed, ["A", "B", "C", "D", "E"]);
}

#[tokio::test]
async fn a_first_value_that_fails_lands_nothing_and_adds_no_entry() {
    let failing: Failing = Arc::new(Mutex::new(vec!["A"]));
    let server =
        Scripted::answering(move |_, head| respond(&failing, head, |_| "[]".to_owned())).await;
    let config = config_of(&server, PaginationKind::None, &["A", "B"]);
    let root = Store::memory();
    for _ in 0..2 {
        ingest_once(&root, &config).await.unwrap_err();
        let log = root.list("landing/s/log").await.unwrap();
        assert!(log.is_empty(), "{log:?}");
    }
}

#[tokio::test]
async fn pages_of_a_value_that_fails_later_land_once() {
    let failing: Failing = Arc::default();
    let fails = Arc::clone(&failing);
    // Seventeen records of each value. The last page of B fails.
    let server = Scripted::answering(move |_, head| {
        let offset: i64 = param(head, "offset").map_or(0, |text| text.parse().unwrap());
        let is_last_page = offset == 14 && param(head, "symbol").as_deref() == Some("B");
        if is_last_page && fails.lock().unwrap().contains(&"B") {
            return answer("500 Oh", "");
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
    .await;
    let mut config = config_of(&server, PaginationKind::Offset, &["A", "B", "C"]);
    set_key(&mut config, "page_size", 7);
    let root = Store::memory();
    failing.lock().unwrap().push("B");
    for _ in 0..2 {
        ingest_once(&root, &config).await.unwrap_err();
        assert_eq!(landed_numbers(&root).await, (0..31).collect::<Vec<_>>());
    }
    failing.lock().unwrap().clear();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.status.as_str()), (51, "complete"));
    assert_eq!(landed_numbers(&root).await, (0..51).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_last_value_of_a_pass_that_leaves_the_list_after_it_failed_ends_the_pass() {
    let failing: Failing = Arc::new(Mutex::new(vec!["B"]));
    let fails = Arc::clone(&failing);
    let server = Scripted::answering(move |_, head| {
        respond(&fails, head, |_| r#"{"items": [{"n": 1}]}"#.to_owned())
    })
    .await;
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
