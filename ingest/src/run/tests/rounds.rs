//! A source that is read again for new records, and one whose cursor expires.

use feedline_schemas::config::Bounded;
use std::sync::Mutex;

use feedline_schemas::config::{DeclaredType, IncrementalConfig, PaginationKind};
use url::Url;

use super::*;
use crate::testing::{self, Scripted, Step, answer, ok};

/// Records of an API: id, time of change and value.
pub(super) type Rows = Arc<Mutex<Vec<(u64, i64, u64)>>>;

/// An API of three records a page, in the order of their time, with `since` (inclusive) and
/// `cursor`.
pub(super) struct Api {
    pub(super) server: Scripted,
    rows: Rows,
    /// Number of further cursors that are refused as expired.
    pub(super) expired: Arc<AtomicU64>,
}

fn param(head: &str, name: &str) -> Option<i64> {
    let target = head.split(' ').nth(1).unwrap();
    let url = Url::parse("http://h/").unwrap().join(target).unwrap();
    let mut pairs = url.query_pairs();
    let value = pairs.find(|(key, _)| key == name).map(|(_, value)| value);
    value.map(|value| value.parse().unwrap())
}

impl Api {
    pub(super) async fn start(count: u64) -> Self {
        let rows = (0..count).map(|id| (id, i64::try_from(id).unwrap() * 10, 0));
        let rows: Rows = Arc::new(Mutex::new(rows.collect()));
        let expired = Arc::new(AtomicU64::new(0));
        let (served, refuses) = (Arc::clone(&rows), Arc::clone(&expired));
        let server = Scripted::answering(move |_, head| page(&served, &refuses, head)).await;
        Self {
            server,
            rows,
            expired,
        }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Vec<(u64, i64, u64)>)) {
        change(&mut self.rows.lock().unwrap());
    }

    /// Batches of two pages, and a window that forgets nearly everything.
    pub(super) fn config(&self, lookback: Option<&str>) -> SourceConfig {
        let mut config = testing::config(self.server.url.as_str(), PaginationKind::Cursor);
        config.name = Name::new("s").unwrap();
        config.batch.rows = Bounded::literal::<4>();
        config.batch.dedup_window = Some(1);
        config.incremental = lookback.map(|lookback| IncrementalConfig {
            cursor: "t".into(),
            param: "since".into(),
            start: None,
            lookback: lookback.into(),
            max_ahead: "5m".into(),
        });
        config
    }
}

fn page(rows: &Rows, refuses: &AtomicU64, head: &str) -> Step {
    let cursor = param(head, "cursor");
    let refuse = |left: u64| left.checked_sub(1);
    let (order, same) = (Ordering::Relaxed, Ordering::Relaxed);
    if cursor.is_some() && refuses.fetch_update(order, same, refuse).is_ok() {
        return answer("410 Gone", "cursor expired");
    }
    let since = param(head, "since").unwrap_or(i64::MIN);
    let mut rows: Vec<_> = rows.lock().unwrap().clone();
    rows.retain(|(_, time, _)| *time >= since);
    rows.sort_unstable_by_key(|(id, time, _)| (*time, *id));
    let from = usize::try_from(cursor.unwrap_or(0)).unwrap();
    let shown = rows.iter().skip(from).take(3);
    let shown = shown.map(|(id, time, value)| format!(r#"{{"id":{id},"t":{time},"v":{value}}}"#));
    let items = shown.collect::<Vec<_>>().join(",");
    let next = (from + 3 < rows.len()).then(|| (from + 3).to_string());
    let next = next.unwrap_or_else(|| "null".into());
    ok(&format!(r#"{{"items": [{items}], "next": {next}}}"#))
}

pub(super) async fn ingest_once(
    root: &Store,
    config: &SourceConfig,
) -> Result<SourceReport, Error> {
    run_source(config, &context(root)).await
}

/// Changes before a second run: two new records, a changed one, and a late one.
pub(super) fn news(rows: &mut Vec<(u64, i64, u64)>) {
    rows.extend([(20, 200, 0), (21, 201, 0), (30, 165, 0)]);
    rows[17] = (17, 195, 1);
}

#[tokio::test]
async fn fault_30_a_finished_source_asks_for_what_is_new_and_doubles_nothing() {
    let api = Api::start(20).await;
    let (root, config) = (Store::memory(), api.config(Some("50")));
    let first = ingest_once(&root, &config).await.unwrap();
    assert_eq!((first.rows, first.duplicates), (20, 0));

    // Nothing new: the boundary is read again, and no entry is added.
    let again = ingest_once(&root, &config).await.unwrap();
    assert_eq!((again.rows, again.batches), (20, first.batches));
    assert_eq!(api.server.targets().last().unwrap(), "/?since=140&cursor=3");

    api.change(news);
    let second = ingest_once(&root, &config).await.unwrap();
    // From 140 on: 14 to 16, 18 and 19 have landed; 17 has changed, 30 is late, 20 and 21 are new.
    assert_eq!(
        (second.rows, second.duplicates, second.status.as_str()),
        (24, 5, "complete")
    );
    assert_eq!(second.pages, first.pages + 3);

    ingest_once(&root, &config).await.unwrap();
    let asked = api.server.targets();
    assert!(asked.contains(&"/?since=151".to_owned()), "{asked:?}");
}

#[tokio::test]
async fn fault_30_without_a_lookback_the_boundary_alone_is_read_again() {
    let api = Api::start(20).await;
    let (root, config) = (Store::memory(), api.config(Some("0")));
    ingest_once(&root, &config).await.unwrap();
    // Another record with the highest time, which an exclusive bound would lose.
    api.change(|rows| rows.push((20, 190, 0)));
    let second = ingest_once(&root, &config).await.unwrap();
    assert_eq!((second.rows, second.duplicates), (21, 1));
    assert_eq!(api.server.targets().last().unwrap(), "/?since=190");
}

#[tokio::test]
async fn without_the_key_a_finished_source_stays_finished() {
    let api = Api::start(5).await;
    let (root, config) = (Store::memory(), api.config(None));
    ingest_once(&root, &config).await.unwrap();
    let asked = api.server.heads().len();
    api.change(news_of_five);
    let again = ingest_once(&root, &config).await.unwrap();
    assert_eq!((again.rows, api.server.heads().len()), (5, asked));
}

fn news_of_five(rows: &mut Vec<(u64, i64, u64)>) {
    rows.push((5, 50, 0));
}

/// The bound moves only with the last page: a run killed at any write resumes as if uninterrupted.
#[tokio::test(start_paused = true)]
async fn an_incremental_run_killed_at_any_batch_lands_the_same_bytes() {
    let api = Api::start(40).await;
    let config = api.config(Some("150"));
    let begun = async || {
        let root = Store::memory();
        api.change(|rows| rows.truncate(20));
        api.change(|rows| rows[17] = (17, 170, 0));
        ingest_once(&root, &config).await.unwrap();
        api.change(news);
        root
    };
    let undisturbed = begun().await;
    ingest_once(&undisturbed, &config).await.unwrap();
    let expected = snapshot(&undisturbed).await;
    for (operation, path, effect) in [
        (Operation::Put, "data/", Effect::FailBefore),
        (Operation::Put, "data/", Effect::FailAfter),
        (Operation::Create, "log/", Effect::FailBefore),
    ] {
        let mut kills = 0;
        for batch in 0..9 {
            let root = begun().await;
            let faults = Faults::new(vec![rule(operation, path, effect, batch, 99)]);
            if ingest_once(&root.with_faults(faults), &config)
                .await
                .is_ok()
            {
                // It has fewer writes than that.
                break;
            }
            kills += 1;
            ingest_once(&root, &config).await.unwrap();
            assert_eq!(snapshot(&root).await, expected, "{operation:?} {batch}");
        }
        assert!(kills >= 2, "{operation:?}");
    }
}

/// Lands `batches` batches of an API of twenty records, and dies.
pub(super) async fn interrupted(config: &SourceConfig, batches: u64) -> Store {
    let root = Store::memory();
    let rule = rule(Operation::Create, "log/", Effect::FailBefore, batches, 99);
    let dies = root.with_faults(Faults::new(vec![rule]));
    ingest_once(&dies, config).await.unwrap_err();
    assert_eq!(entries(&root).await.len() as u64, batches);
    root
}

#[tokio::test(start_paused = true)]
async fn fault_31_a_cursor_that_has_expired_begins_the_run_of_pages_again_without_doubles() {
    for lookback in [None, Some("0")] {
        let api = Api::start(20).await;
        let config = api.config(lookback);
        let root = interrupted(&config, 2).await;
        api.expired.store(1, Ordering::Relaxed);
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!((report.rows, report.duplicates), (20, 12));
        let entries = entries(&root).await;
        let last = entries
            .last()
            .unwrap()
            .state
            .position
            .run()
            .unwrap()
            .clone();
        assert_eq!((last.number, last.restarted), (1, true));
        let expected = snapshot(&root).await;

        // Killed anywhere, it ends with the same bytes.
        for batch in 2..entries.len() as u64 - 1 {
            let root = interrupted(&config, 2).await;
            api.expired.store(1, Ordering::Relaxed);
            let rule = rule(Operation::Create, "log/", Effect::FailBefore, batch - 1, 99);
            let dies = root.with_faults(Faults::new(vec![rule]));
            ingest_once(&dies, &config).await.unwrap_err();
            ingest_once(&root, &config).await.unwrap();
            assert_eq!(snapshot(&root).await, expected, "killed at batch {batch}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fault_31_a_cursor_that_expires_again_ends_the_run() {
    let api = Api::start(20).await;
    let config = api.config(None);
    // A fresh cursor has not expired.
    api.expired.store(u64::MAX, Ordering::Relaxed);
    let error = ingest_once(&Store::memory(), &config).await.unwrap_err();
    assert!(error.to_string().contains("410 Gone"), "{error}");
    assert_eq!(api.server.heads().len(), 2);

    api.expired.store(0, Ordering::Relaxed);
    let root = interrupted(&config, 2).await;
    api.expired.store(u64::MAX, Ordering::Relaxed);
    for _ in 0..2 {
        let error = ingest_once(&root, &config).await.unwrap_err();
        assert!(error.to_string().contains("410 Gone"), "{error}");
    }
    let run = entries(&root).await.pop().unwrap().state.position;
    assert!(run.run().unwrap().restarted);
}

#[tokio::test(start_paused = true)]
async fn fault_31_where_equal_records_are_kept_beginning_again_is_refused() {
    let api = Api::start(20).await;
    let mut config = api.config(None);
    config.batch.dedup_window = Some(0);
    let root = interrupted(&config, 2).await;
    api.expired.store(1, Ordering::Relaxed);
    let error = ingest_once(&root, &config).await.unwrap_err().to_string();
    assert!(error.contains("`batch.dedup_window`"), "{error}");
    assert_eq!(entries(&root).await.len(), 2);
}

/// A source with a lookback of all records, whose column `v` is a float.
pub(super) fn with_lookback(server: &Scripted) -> SourceConfig {
    let mut config = testing::config(server.url.as_str(), PaginationKind::Cursor);
    config.name = Name::new("s").unwrap();
    config.incremental = Some(IncrementalConfig {
        cursor: "t".into(),
        param: "since".into(),
        start: None,
        lookback: "50".into(),
        max_ahead: "5m".into(),
    });
    config.contract.max_reject_fraction = Real::literal(1.0);
    let column = config.contract.column.entry("v".to_owned()).or_default();
    column.r#type = Some(DeclaredType::Float);
    config
}

#[tokio::test]
async fn a_record_of_the_lookback_that_was_rejected_before_is_not_rejected_again() {
    let body = r#"{"items": [{"id":0,"t":0,"v":1},{"id":1,"t":10,"v":"oops"}], "next": null}"#;
    let server = Scripted::answering(move |_, _| ok(body)).await;
    let config = with_lookback(&server);
    let root = Store::memory();
    let first = ingest_once(&root, &config).await.unwrap();
    assert_eq!((first.rows, first.new_rejected), (1, Some(1)));
    for _ in 0..2 {
        let again = ingest_once(&root, &config).await.unwrap();
        assert_eq!((again.rejected, again.new_rejected), (1, Some(0)));
        assert_eq!(again.batches, first.batches);
    }
    // It is open, and a retry decides about it.
    let mut pipeline = pipeline("unused");
    pipeline.source[0] = config;
    let (name, context) = (Name::new("s").unwrap(), context(&root));
    let retry = retry_rejects::retry_rejects(&pipeline, &name, &context, true);
    let retried = Box::pin(retry).await.unwrap();
    assert_eq!((retried.still_rejected, retried.duplicates), (1, 0));
}

#[tokio::test]
async fn a_rejected_version_is_rejected_again_once_a_good_one_of_its_key_has_landed_in_between() {
    for ids in [["1", "2"], [r#""a""#, r#""b""#]] {
        let served = Arc::new(Mutex::new(""));
        let value = Arc::clone(&served);
        let server = Scripted::answering(move |_, _| {
            let ([good, changed], value) = (ids, *value.lock().unwrap());
            ok(&format!(
                r#"{{"items": [{{"id":{good},"t":0,"v":1}},{{"id":{changed},"t":10,"v":{value}}}], "next": null}}"#
            ))
        })
        .await;
        let mut config = with_lookback(&server);
        config.key = vec!["id".into()];
        let root = Store::memory();
        let rounds = [
            (r#""oops""#, (1, 1)),
            (r#""oops""#, (1, 0)),
            ("9.5", (2, 0)),
            (r#""oops""#, (2, 1)),
            (r#""oops""#, (2, 0)),
        ];
        for (round, (value, expected)) in rounds.into_iter().enumerate() {
            *served.lock().unwrap() = value;
            let report = ingest_once(&root, &config).await.unwrap();
            let found = (report.rows, report.new_rejected.unwrap());
            assert_eq!(found, expected, "{ids:?} {round}");
        }
    }
}

#[tokio::test]
async fn a_retried_reject_does_not_take_the_place_of_a_row_that_landed_after_it() {
    for version in [None, Some("t".to_owned())] {
        let served = Arc::new(Mutex::new(r#""n/a""#));
        let value = Arc::clone(&served);
        let server = Scripted::answering(move |_, _| {
            let value = *value.lock().unwrap();
            ok(&format!(
                r#"{{"items": [{{"id":0,"t":0,"v":1}},{{"id":1,"t":10,"v":{value}}},{{"id":2,"t":11,"v":"bad"}}], "next": null}}"#
            ))
        })
        .await;
        let mut config = with_lookback(&server);
        config.key = vec!["id".into()];
        config.version = version;
        let root = Store::memory();
        let first = ingest_once(&root, &config).await.unwrap();
        assert_eq!((first.rows, first.rejected), (1, 2));
        // Corrected without another version.
        *served.lock().unwrap() = "99.5";
        assert_eq!(ingest_once(&root, &config).await.unwrap().rows, 2);
        config.contract.types = TypeContract::NullValue;
        let mut pipeline = pipeline("unused");
        pipeline.source[0] = config;
        let (name, context) = (Name::new("s").unwrap(), context(&root));
        for dry_run in [true, false] {
            let retry = retry_rejects::retry_rejects(&pipeline, &name, &context, dry_run);
            let retried = Box::pin(retry).await.unwrap();
            assert_eq!(
                (retried.landed, retried.duplicates, retried.still_rejected),
                (1, 1, 0)
            );
            let notes = retried.notes.join("; ");
            assert!(
                notes.contains("1 rejected record ") && notes.contains("n/a"),
                "{notes}"
            );
        }
        let last = entries(&root).await.pop().unwrap();
        let totals = &last.state.totals;
        assert_eq!((totals.rows, totals.rejected), (3, 0));
    }
}
