//! Records that change while an incremental page run is interrupted.

use std::{sync::Mutex, time::Duration};

use feedline_schemas::{
    commit::Interruption,
    config::{Bounded, IncrementalConfig, PaginationKind},
};

use super::{
    rounds::{Rows, ingest_once},
    slices::param,
    *,
};
use crate::{
    status::status_with_lag,
    testing::{self, Scripted, ok},
};

/// An API of three records a page in the order of their ids, with `since` (inclusive) and `cursor`, the
/// last id of the page before.
struct ById {
    server: Scripted,
    rows: Rows,
}

impl ById {
    /// Starts it with the records 0 to 11, which changed at ten times their id.
    async fn start() -> Self {
        let rows: Rows = Arc::new(Mutex::new(
            (0..12)
                .map(|id| (id, i64::try_from(id).unwrap() * 10, 0))
                .collect(),
        ));
        let served = Arc::clone(&rows);
        let server = Scripted::answering(move |_, head| {
            let get = |name: &str| param(head, name).map(|value| value.parse::<i64>().unwrap());
            let (since, after) = (get("since").unwrap_or(0), get("cursor").unwrap_or(-1));
            let all = served.lock().unwrap();
            let is_due = |id: u64, time: i64| time >= since && i64::try_from(id).unwrap() > after;
            let due = all.iter().filter(|(id, time, _)| is_due(*id, *time));
            let due: Vec<_> = due.collect();
            let items: Vec<String> = due
                .iter()
                .take(3)
                .map(|(id, time, value)| format!(r#"{{"id":{id},"t":{time},"v":{value}}}"#))
                .collect();
            let last = due.get(2).filter(|_| due.len() > 3);
            let next = last.map_or_else(|| "null".to_owned(), |(id, ..)| format!("\"{id}\""));
            ok(&format!(
                r#"{{"items": [{}], "next": {next}}}"#,
                items.join(",")
            ))
        })
        .await;
        Self { server, rows }
    }

    /// Batches of one page, and a window that forgets nearly everything.
    fn config(&self, key: &[&str]) -> SourceConfig {
        let mut config = testing::config(self.server.url.as_str(), PaginationKind::Cursor);
        config.name = Name::new("s").unwrap();
        config.batch.pages = Bounded::literal::<1>();
        config.batch.dedup_window = Some(1);
        config.key = key.iter().map(|part| (*part).to_owned()).collect();
        config.version = (!key.is_empty()).then(|| "t".to_owned());
        config.incremental = Some(IncrementalConfig {
            cursor: "t".into(),
            param: "since".into(),
            start: None,
            lookback: "0".into(),
            max_ahead: "5m".into(),
        });
        config
    }

    /// Changes a record of the first page, and adds one.
    fn change(&self) {
        let mut rows = self.rows.lock().unwrap();
        rows[0] = (0, 500, 9);
        rows.push((12, 600, 0));
    }

    /// Target of the first request since the request number `first`.
    fn asked(&self, first: usize) -> String {
        self.server.targets()[first].clone()
    }
}

/// Runs the source, which dies once it has landed so many batches.
async fn die_after(root: &Store, config: &SourceConfig, batches: u64) {
    let rule = rule(Operation::Create, "log/", Effect::FailBefore, batches, 99);
    let dies = root.with_faults(Faults::new(vec![rule]));
    ingest_once(&dies, config).await.unwrap_err();
}

async fn run_of_last(root: &Store) -> PageRun {
    let last = entries(root).await.pop().unwrap();
    last.state.position.run().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_record_that_changes_while_a_page_run_is_interrupted_lands_with_the_next_one() {
    let keys: [&[&str]; 2] = [&[], &["id"]];
    for key in keys {
        let (api, root) = (ById::start().await, Store::memory());
        let config = api.config(key);
        die_after(&root, &config, 2).await;
        api.change();
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!((report.rows, report.status.as_str()), (13, "complete"));
        let next = next_of(&root, &config).await;
        assert!(next.contains("since `50`, and those again"), "{next}");
        // Of the nine records from there on only the changed one is new.
        let before = api.server.targets().len();
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(api.asked(before), "/?since=50", "{key:?}");
        let counts = (report.rows, report.duplicates, report.rejected);
        assert_eq!(counts, (14, 8, 0), "{key:?}");
        // Nothing was interrupted since, so the bound is the newest cursor.
        let (before, batches) = (api.server.targets().len(), report.batches);
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(api.asked(before), "/?since=600", "{key:?}");
        assert_eq!((report.rows, report.batches), (14, batches), "{key:?}");
    }
}

/// Work of the next run, as `ingest status` shows it.
async fn next_of(root: &Store, config: &SourceConfig) -> String {
    let mut pipeline = pipeline("unused");
    pipeline.source = vec![config.clone()];
    let now = Duration::from_secs(1_000);
    let report = status_with_lag(&pipeline, root, now).await.unwrap();
    report.sources[0].standing.as_ref().unwrap().next.clone()
}

#[tokio::test(start_paused = true)]
async fn without_a_changed_record_the_bound_moves_once_the_pages_have_come_again() {
    let (api, root) = (ById::start().await, Store::memory());
    let config = api.config(&[]);
    die_after(&root, &config, 2).await;
    for since in ["cursor=5", "since=50", "since=110", "since=110"] {
        let before = api.server.targets().len();
        let report = ingest_once(&root, &config).await.unwrap();
        let asked = api.asked(before);
        assert!(asked.ends_with(since), "{asked}");
        assert_eq!(report.rows, 12);
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_interruptions_the_first_one_decides_and_those_of_the_next_run_do_not_add_up() {
    let (api, root) = (ById::start().await, Store::memory());
    let config = api.config(&[]);
    die_after(&root, &config, 1).await;
    api.change();
    die_after(&root, &config, 2).await;
    let high = Some("20".to_owned());
    let interrupted = run_of_last(&root).await.interrupted;
    assert_eq!(interrupted, Some(Interruption { high }));
    // Builds that do not know it must not resume.
    assert_eq!(entries(&root).await.pop().unwrap().min_reader, Some(3));
    ingest_once(&root, &config).await.unwrap();
    let before = api.server.targets().len();
    die_after(&root, &config, 1).await;
    assert_eq!(api.asked(before), "/?since=20");
    let interrupted = run_of_last(&root).await;
    assert_eq!(
        (interrupted.interrupted, interrupted.high.as_deref()),
        (None, Some("600"))
    );
    // What changes from now on has a newer cursor than all that has come.
    let before = api.server.targets().len();
    ingest_once(&root, &config).await.unwrap();
    ingest_once(&root, &config).await.unwrap();
    assert!(api.server.targets()[before..].contains(&"/?since=600".to_owned()));
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.rejected), (14, 0));
}
