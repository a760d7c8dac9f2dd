//! Archived responses, read again when their server is gone.

use feedline_schemas::config::{Bounded, PaginationKind, Real};

use super::{
    resumed_pages::List,
    rounds::{Api, ingest_once, interrupted, news},
    *,
};
use crate::{
    raw::Tape,
    run::replay::replay,
    testing::{self, Scripted as Server, answer, ok},
};

/// A store with another URL than [`Store::memory`].
fn elsewhere() -> Store {
    Store::memory().child("again")
}

async fn replay_once(
    from: &Store,
    to: &Store,
    config: &SourceConfig,
) -> Result<SourceReport, Error> {
    let mut whole = pipeline("unused");
    whole.source = vec![config.clone()];
    let report = replay(&whole, None, from, &context(to)).await?;
    Ok(report.sources.into_iter().next().unwrap())
}

fn archived(api: &Api, lookback: Option<&str>) -> SourceConfig {
    let mut config = api.config(lookback);
    config.archive_raw = true;
    config
}

#[tokio::test]
async fn a_replay_without_the_server_lands_the_same_files_for_each_run_of_the_source() {
    let api = Api::start(20).await;
    let (root, to, config) = (Store::memory(), elsewhere(), archived(&api, Some("50")));
    ingest_once(&root, &config).await.unwrap();
    // Nothing new, so the log has no entry for it.
    ingest_once(&root, &config).await.unwrap();
    api.change(news);
    let ingested = ingest_once(&root, &config).await.unwrap();
    // The server is gone.
    drop(api);
    assert!(ingest_once(&root, &once(&config)).await.is_err());
    let before = snapshot(&root).await;
    let replayed = replay_once(&root, &to, &config).await.unwrap();
    assert_eq!(
        (replayed.rows, replayed.duplicates, replayed.batches),
        (24, 5, ingested.batches)
    );
    assert_eq!(replayed.requests, 0);
    // Data, rejects, archived responses and entries.
    assert_eq!(snapshot(&to).await, before);
    assert_eq!(snapshot(&root).await, before);
    assert_eq!(replayed.new_rows, Some(24));
    assert_eq!(replayed.new_rejected, Some(0));
    // After a second replay nothing is left to do, and the copy is an archive itself.
    let second = replay_once(&root, &to, &config).await.unwrap();
    assert_eq!((second.rows, second.new_rows), (24, Some(0)));
    let third = elsewhere().child("third");
    replay_once(&to, &third, &config).await.unwrap();
    assert_eq!(snapshot(&third).await, before);
}

/// Settings with one try of each request.
fn once(config: &SourceConfig) -> SourceConfig {
    let mut config = config.clone();
    config.retry.max_tries = Bounded::literal::<1>();
    config
}

#[tokio::test(start_paused = true)]
async fn a_run_with_an_archive_killed_at_any_write_lands_the_same_bytes() {
    let api = Api::start(20).await;
    let config = archived(&api, None);
    let undisturbed = Store::memory();
    ingest_once(&undisturbed, &config).await.unwrap();
    let expected = snapshot(&undisturbed).await;
    let batches = entries(&undisturbed).await.len() as u64;
    assert_eq!(
        expected.keys().filter(|p| p.starts_with("raw/")).count() as u64,
        batches
    );
    for (operation, path, effect) in [
        (Operation::Put, "raw/", Effect::FailBefore),
        (Operation::Put, "raw/", Effect::FailAfter),
        (Operation::Create, "log/", Effect::FailBefore),
    ] {
        for batch in 0..batches {
            let root = Store::memory();
            let faults = Faults::new(vec![rule(operation, path, effect, batch, 99)]);
            ingest_once(&root.with_faults(faults), &config)
                .await
                .unwrap_err();
            ingest_once(&root, &config).await.unwrap();
            assert_eq!(snapshot(&root).await, expected, "{path} {effect:?} {batch}");
        }
    }
    // A killed replay resumes.
    for batch in 0..batches {
        let to = elsewhere();
        let rule = rule(Operation::Create, "log/", Effect::FailBefore, batch, 99);
        let dies = to.with_faults(Faults::new(vec![rule]));
        replay_once(&undisturbed, &dies, &config).await.unwrap_err();
        replay_once(&undisturbed, &to, &config).await.unwrap();
        assert_eq!(snapshot(&to).await, expected, "replay killed at {batch}");
    }
}

#[tokio::test]
async fn batches_that_were_cut_short_are_replayed_as_they_were() {
    let api = Api::start(20).await;
    let config = archived(&api, None);
    let root = Store::memory();
    let (sender, cancel) = watch::channel(false);
    let stopping = Context {
        progress: Arc::new(CancelAfter(AtomicU64::new(3), sender)),
        cancel,
        ..context(&root)
    };
    run_source(&config, &stopping).await.unwrap_err();
    ingest_once(&root, &config).await.unwrap();
    let cut: Vec<u64> = entries(&root)
        .await
        .iter()
        .map(|e| e.counts.pages)
        .collect();
    assert_eq!(cut[1], 1, "{cut:?}");
    let to = elsewhere();
    replay_once(&root, &to, &config).await.unwrap();
    assert_eq!(snapshot(&to).await, snapshot(&root).await);
}

#[tokio::test(start_paused = true)]
async fn a_cursor_that_had_expired_expires_in_the_replay_too() {
    let api = Api::start(20).await;
    let config = archived(&api, None);
    let root = interrupted(&config, 2).await;
    api.expired.store(1, Ordering::Relaxed);
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.duplicates), (20, 12));
    drop(api);
    let to = elsewhere();
    replay_once(&root, &to, &config).await.unwrap();
    assert_eq!(snapshot(&to).await, snapshot(&root).await);
}

#[tokio::test(start_paused = true)]
async fn the_bound_after_an_interrupted_page_run_is_the_same_in_the_replay() {
    let api = Api::start(20).await;
    let config = archived(&api, Some("0"));
    let root = interrupted(&config, 2).await;
    ingest_once(&root, &config).await.unwrap();
    api.change(news);
    let before = api.server.targets().len();
    ingest_once(&root, &config).await.unwrap();
    // The twelfth record was the last one before the interruption.
    assert_eq!(api.server.targets()[before], "/?since=110");
    drop(api);
    let (to, third) = (elsewhere(), elsewhere().child("third"));
    replay_once(&root, &to, &config).await.unwrap();
    assert_eq!(snapshot(&to).await, snapshot(&root).await);
    // A replay is an archive itself.
    replay_once(&to, &third, &config).await.unwrap();
    assert_eq!(snapshot(&third).await, snapshot(&root).await);
}

#[tokio::test]
async fn a_list_that_had_moved_has_moved_in_the_replay_too() {
    let (list, root) = (List::start().await, Store::memory());
    let mut config = list.config(PaginationKind::Page);
    config.archive_raw = true;
    let report = list.run_moving(&root, &config).await;
    assert_eq!(report.warnings[0].code, "list_moved");
    drop(list);
    let to = elsewhere();
    replay_once(&root, &to, &config).await.unwrap();
    assert_eq!(snapshot(&to).await, snapshot(&root).await);
}

#[tokio::test]
async fn a_list_that_had_shrunk_restarts_in_the_replay_too() {
    for window in [100, 0] {
        let (list, root) = (List::start().await, Store::memory());
        let mut config = list.config(PaginationKind::Page);
        config.archive_raw = true;
        config.batch.dedup_window = Some(window);
        testing::set_key(&mut config, "end_status", vec![404]);
        let report = list.run_shrinking(&root, &config).await;
        assert_eq!(report.warnings[0].code, "list_moved");
        drop(list);
        let to = elsewhere();
        replay_once(&root, &to, &config).await.unwrap();
        assert_eq!(snapshot(&to).await, snapshot(&root).await);
    }
}

const TWO_LISTS: &str =
    r#"{"items": [{"a": 1}, {"a": "one"}], "more": {"list": [{"b": 1}, {"b": 2}, {"b": 3}]}}"#;

#[tokio::test]
async fn other_settings_make_other_rows_of_the_same_answers() {
    // The first try is not archived.
    let server = Server::start([answer("503 Busy", ""), ok(TWO_LISTS)]).await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.contract.types = TypeContract::NullValue;
    config.infer.max_odd_fraction = Real::literal(0.5);
    config.archive_raw = true;
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap();
    drop(server);
    let rows = async |change: &dyn Fn(&mut SourceConfig)| {
        let (to, mut other) = (elsewhere(), config.clone());
        change(&mut other);
        let report = replay_once(&root, &to, &other).await.unwrap();
        let last = entries(&to).await.pop().unwrap();
        let column = last.schema.columns[0].clone();
        (report.rows, column.name, last.counts.nulled.len())
    };
    assert_eq!(rows(&|_| {}).await, (2, "a".into(), 1));
    let widen = |c: &mut SourceConfig| c.contract.types = TypeContract::Widen;
    assert_eq!(rows(&widen).await, (2, "a".into(), 0));
    let list = |c: &mut SourceConfig| c.records = "more.list".into();
    assert_eq!(rows(&list).await, (3, "b".into(), 0));
}

#[tokio::test]
async fn headers_that_pages_are_read_by_are_kept_and_others_are_missed() {
    let page = |cursor: &str, id: u32| {
        let head = format!(
            "200 OK\r\nX-Next: {cursor}\r\nX-Total: 2\r\nSet-Cookie: s=0123456789abcdef\r\nDate: now"
        );
        answer(&head, &format!(r#"{{"items": [{{"id": {id}}}]}}"#))
    };
    let server = Server::start([page("two", 1), page("", 2)]).await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::HeaderCursor);
    config.name = Name::new("s").unwrap();
    testing::set_key(&mut config, "cursor_header", "X-Next");
    config.archive_raw = true;
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap();
    drop(server);
    let to = elsewhere();
    assert_eq!(replay_once(&root, &to, &config).await.unwrap().rows, 2);
    let tape = Tape::default();
    tape.load(&root.child("landing/s"), &entries(&root).await[0])
        .await
        .unwrap();
    let kept = format!("{tape:?}");
    assert!(kept.contains("x-next") && kept.contains("two"), "{kept}");
    assert!(!kept.contains("cookie") && !kept.contains("date"), "{kept}");
    config.pagination.common.total_header = Some("X-Total".into());
    let error = replay_once(&root, &elsewhere(), &config).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("lacks the header `x-total`"), "{error}");
}

#[tokio::test]
async fn what_is_not_in_the_archive_is_named() {
    let api = Api::start(10).await;
    let root = Store::memory();
    let config = archived(&api, None);
    ingest_once(&root, &config).await.unwrap();
    drop(api);
    let check = async |change: &dyn Fn(&mut SourceConfig), parts: &[&str]| {
        let (to, mut other) = (elsewhere(), config.clone());
        change(&mut other);
        let error = replay_once(&root, &to, &other)
            .await
            .unwrap_err()
            .to_string();
        let is_told = parts.iter().all(|part| error.contains(part));
        assert!(is_told && error.contains("landing/s/raw/"), "{error}");
        // Nothing of the batch has landed.
        assert!(landed(&to, &config.name).await.unwrap().is_none());
    };
    let other = |c: &mut SourceConfig| {
        c.params.insert("size".into(), "50".into());
    };
    check(
        &other,
        &["no response to `/?size=50`", "`/` was requested then"],
    )
    .await;
    let fewer = |c: &mut SourceConfig| c.pagination.way = testing::way(PaginationKind::None);
    check(
        &fewer,
        &["need no more pages", "`/?cursor=3` was requested then"],
    )
    .await;
    let again = |c: &mut SourceConfig| c.records = "nowhere".into();
    let (to, mut other) = (elsewhere(), config.clone());
    again(&mut other);
    let error = replay_once(&root, &to, &other)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("set `records` to the right one"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_replayed_is_refused_with_its_key() {
    let api = Api::start(10).await;
    let check = async |root: &Store, to: &Store, config: &SourceConfig, key: &str, part: &str| {
        match replay_once(root, to, config).await {
            Err(Error::Config { key: found, reason }) => {
                assert_eq!(found, key, "{reason}");
                assert!(reason.contains(part), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    };
    let (root, mut config) = (Store::memory(), api.config(Some("0")));
    check(&root, &elsewhere(), &config, "source", "no source").await;
    ingest_once(&root, &config).await.unwrap();
    check(&root, &elsewhere(), &config, "source", "no source").await;
    // Without archives, the files have the same bytes.
    for entry in entries(&root).await {
        assert!(
            !feedline_schemas::encode(&entry)
                .windows(5)
                .any(|w| w == b"\"raw\"")
        );
    }
    assert!(root.list("landing/s/raw").await.unwrap().is_empty());
    config.archive_raw = true;
    api.change(|rows| rows.push((99, 999, 0)));
    ingest_once(&root, &config).await.unwrap();
    let key = "source.0.archive_raw";
    check(&root, &elsewhere(), &config, key, "entry 0 of the log").await;
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap();
    check(&root, &root, &config, "pipeline.root", "itself").await;
    let to = elsewhere();
    let mut other = config.clone();
    other.batch.pages = Bounded::literal::<1>();
    ingest_once(&to, &other).await.unwrap();
    check(&root, &to, &config, "source.0.name", "choose another").await;
}

#[tokio::test]
async fn the_embedded_api_is_replayed_wherever_it_had_listened() {
    let mut config = testing::config("demo://market?rows=250&rude=false", PaginationKind::Cursor);
    config.name = Name::new("s").unwrap();
    config.records = "data.items".into();
    testing::set_key(&mut config, "cursor_path", "paging.next_cursor");
    config.archive_raw = true;
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap();
    let to = elsewhere();
    replay_once(&root, &to, &config).await.unwrap();
    assert_eq!(snapshot(&to).await, snapshot(&root).await);
    let second = Store::memory();
    ingest_once(&second, &config).await.unwrap();
    assert_eq!(snapshot(&second).await, snapshot(&root).await);
}

#[tokio::test]
async fn pages_that_only_their_bodies_tell_apart_are_replayed_and_need_no_secret() {
    let server = Server::start([
        ok(r#"{"items": [{"i": 0}], "next": "a"}"#),
        ok(r#"{"items": [{"i": 1}], "next": "b"}"#),
        ok(r#"{"items": [{"i": 2, "echo": "secret-KEY"}]}"#),
    ])
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::Cursor);
    config.archive_raw = true;
    config.method = feedline_schemas::config::Method::Post;
    config.body = Some(feedline_schemas::config::BodyConfig {
        json: Some(serde_json::json!({"q": 1, "key": {"env": "KEY"}})),
        ..Default::default()
    });
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap();
    drop(server);
    let to = elsewhere();
    let replayed = replay_once(&root, &to, &config).await.unwrap();
    assert_eq!((replayed.rows, replayed.requests), (3, 0));
    assert_eq!(
        snapshot(&to).await.keys().collect::<Vec<_>>(),
        snapshot(&root).await.keys().collect::<Vec<_>>()
    );
    config.body = Some(feedline_schemas::config::BodyConfig {
        json: Some(serde_json::json!({"q": 2, "key": {"env": "KEY"}})),
        ..Default::default()
    });
    let other = elsewhere().child("other");
    let error = replay_once(&root, &other, &config).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("it has no response to `/`"), "{error}");
}
