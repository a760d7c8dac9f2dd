//! A finished source that is read again for its changes.

use feedline_schemas::{
    commit::BatchCounts,
    config::{Bounded, DeclaredType, PaginationKind, Refresh},
};
use std::sync::Mutex;

use super::{rounds::ingest_once, *};
use crate::testing::{self, Scripted, Step, answer, ok};

/// Version and records of each page; every page of a version has the same tag.
type Pages = Arc<Mutex<Vec<(u32, Vec<u32>)>>>;

/// A feed of pages, by their numbers from 1 on; the page after the last is empty.
struct Feed {
    server: Scripted,
    pages: Pages,
}

impl Feed {
    async fn start(pages: &[(u32, &[u32])], tells: bool) -> Self {
        let pages = pages.iter().map(|(version, ids)| (*version, ids.to_vec()));
        let pages: Pages = Arc::new(Mutex::new(pages.collect()));
        let served = Arc::clone(&pages);
        let server = Scripted::answering(move |_, head| page(&served, tells, head)).await;
        Self { server, pages }
    }

    fn put(&self, number: usize, version: u32, ids: &[u32]) {
        let mut pages = self.pages.lock().unwrap();
        let count = pages.len().max(number);
        pages.resize(count, (0, Vec::new()));
        pages[number - 1] = (version, ids.to_vec());
    }

    /// Settings with a tiny dedup window.
    fn config(&self, kind: PaginationKind) -> SourceConfig {
        let mut config = testing::config(self.server.url.as_str(), kind);
        config.name = Name::new("s").unwrap();
        config.batch.dedup_window = Some(1);
        config.refresh = Refresh::IfChanged;
        config
    }

    /// Requests since `from`: target, and whether it was conditional.
    fn asked(&self, from: usize) -> Vec<(String, bool)> {
        let heads = self.server.heads().split_off(from);
        let one = |head: &String| {
            let target = head.split(' ').nth(1).unwrap().to_owned();
            (target, head.contains("if-none-match"))
        };
        heads.iter().map(one).collect()
    }
}

fn page(pages: &Pages, tells: bool, head: &str) -> Step {
    let number = head.split("page=").nth(1).and_then(|t| t.split(' ').next());
    let number: usize = number.map_or(1, |text| text.parse().unwrap());
    let pages = pages.lock().unwrap();
    let (version, ids) = pages.get(number - 1).cloned().unwrap_or_default();
    let items: Vec<String> = ids.iter().map(|id| format!(r#"{{"id":{id}}}"#)).collect();
    let body = format!(r#"{{"items": [{}]}}"#, items.join(","));
    let tag = format!("\"v{version}\"");
    match (tells, head.contains(&format!("if-none-match: {tag}\r\n"))) {
        (true, true) => answer("304 Not Modified", ""),
        (true, false) => answer(&format!("200 OK\r\nETag: {tag}"), &body),
        (false, _) => ok(&body),
    }
}

fn counts(report: &SourceReport) -> [u64; 5] {
    let unchanged = report.skipped.get("unchanged").copied().unwrap_or(0);
    let &SourceReport {
        rows,
        duplicates,
        batches,
        requests,
        ..
    } = report;
    [rows, duplicates, unchanged, batches, requests]
}

#[tokio::test]
async fn fault_49_a_feed_that_has_not_changed_is_not_sent_again() {
    let feed = Feed::start(&[(1, &[1, 2, 3])], true).await;
    let (root, config) = (Store::memory(), feed.config(PaginationKind::None));
    let run = async || counts(&ingest_once(&root, &config).await.unwrap());
    assert_eq!(run().await, [3, 0, 0, 1, 1]);
    // Unchanged: this run reports it, and adds no entry.
    assert_eq!(run().await, [3, 0, 1, 1, 1]);
    feed.put(1, 2, &[2, 3, 4]);
    assert_eq!(run().await, [4, 2, 0, 2, 1]);
    assert_eq!(run().await, [4, 2, 1, 2, 1]);
    let conditional: Vec<bool> = feed.asked(0).into_iter().map(|(_, c)| c).collect();
    assert_eq!(conditional, [false, true, true, true]);
    // Back to a record that landed long ago.
    feed.put(1, 3, &[1]);
    assert_eq!(run().await, [4, 2, 0, 2, 1]);
    let report = status_of(&root).await;
    assert_eq!((report.rows, report.pages), (4, 2));
}

#[tokio::test]
async fn deleted_records_of_an_unchanged_feed_come_back() {
    let feed = Feed::start(&[(1, &[1, 2, 3])], true).await;
    let (root, config) = (Store::memory(), feed.config(PaginationKind::None));
    let run = async || counts(&ingest_once(&root, &config).await.unwrap());
    assert_eq!(run().await[0], 3);
    let mut pipeline = pipeline("in/*.csv");
    pipeline.source = vec![config.clone()];
    for is_dry in [true, false] {
        crate::amend::delete(&pipeline, &config.name, &[0], &context(&root), is_dry)
            .await
            .unwrap();
    }
    assert_eq!(run().await[0], 3);
    // The next request is conditional again.
    assert_eq!(run().await[2], 1);
    let conditional: Vec<bool> = feed.asked(0).into_iter().map(|(_, c)| c).collect();
    assert_eq!(conditional, [false, false, true]);
}

async fn status_of(root: &Store) -> BatchCounts {
    entries(root).await.pop().unwrap().state.totals
}

#[tokio::test]
async fn a_feed_without_validators_is_read_whole_and_nothing_lands_twice() {
    let feed = Feed::start(&[(1, &[1, 2, 3])], false).await;
    let (root, config) = (Store::memory(), feed.config(PaginationKind::None));
    for batches in [1, 1] {
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(counts(&report), [3, 0, 0, batches, 1]);
    }
    assert_eq!(feed.asked(1), [("/".to_owned(), false)]);
    assert!(entries(&root).await[0].validators.is_empty());
}

#[tokio::test]
async fn fault_49_pages_have_validators_of_their_own_and_the_last_is_always_read() {
    // The same tag everywhere: a validator that was shared would hide the change.
    let feed = Feed::start(&[(1, &[1, 2]), (1, &[3, 4]), (1, &[5])], true).await;
    let mut config = feed.config(PaginationKind::Page);
    config.pagination.common.page_size = 2;
    let root = Store::memory();
    let run = async || counts(&ingest_once(&root, &config).await.unwrap());
    // With the empty page after the last one, which was not known to be it before.
    assert_eq!(run().await, [5, 0, 0, 1, 4]);
    let first = feed.asked(0).len();
    assert_eq!(run().await, [5, 0, 2, 1, 4]);
    let asked = |number: usize, conditional| (format!("/?page={number}"), conditional);
    assert_eq!(
        feed.asked(first),
        [
            asked(1, true),
            asked(2, true),
            asked(3, false),
            asked(4, false)
        ]
    );
    // The list grows at its end, and a page in its middle changes.
    feed.put(2, 2, &[3, 40]);
    feed.put(3, 1, &[5, 6]);
    feed.put(4, 1, &[7]);
    assert_eq!(run().await, [8, 2, 1, 2, 5]);
    let before = feed.asked(0).len();
    assert_eq!(run().await, [8, 2, 4, 2, 5]);
    assert_eq!(
        feed.asked(before),
        [
            asked(1, true),
            asked(2, true),
            asked(3, true),
            asked(4, false),
            asked(5, false)
        ]
    );
}

#[tokio::test]
async fn pages_whose_next_one_is_in_them_are_asked_for_whole() {
    let feed = Feed::start(&[(1, &[1, 2])], true).await;
    for change in [
        |config: &mut SourceConfig| config.pagination.common.total_path = Some("n".into()),
        |config: &mut SourceConfig| config.pagination.way = testing::way(PaginationKind::Offset),
        |config: &mut SourceConfig| config.pagination.way = testing::way(PaginationKind::Cursor),
    ] {
        let (root, mut config) = (Store::memory(), feed.config(PaginationKind::Page));
        config.pagination.common.page_size = 3;
        change(&mut config);
        ingest_once(&root, &config).await.unwrap();
        let before = feed.asked(0).len();
        ingest_once(&root, &config).await.unwrap();
        let asked = feed.asked(before);
        assert!(
            !asked.is_empty() && asked.iter().all(|(_, c)| !c),
            "{asked:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_dies_while_it_is_read_again_lands_the_same_bytes() {
    let pages: [(u32, &[u32]); 4] = [(1, &[1, 2]), (1, &[3, 4]), (1, &[5, 6]), (1, &[7])];
    let feed = Feed::start(&pages, true).await;
    let mut config = feed.config(PaginationKind::Page);
    config.pagination.common.page_size = 2;
    config.batch.pages = Bounded::literal::<1>();
    let twice = async |rule: Option<Rule>| {
        let root = Store::memory();
        for (number, (version, ids)) in pages.iter().enumerate() {
            feed.put(number + 1, *version, ids);
        }
        ingest_once(&root, &config).await.unwrap();
        feed.put(2, 2, &[3, 40]);
        feed.put(4, 2, &[7, 8]);
        if let Some(rule) = rule {
            let dies = root.with_faults(Faults::new(vec![rule]));
            ingest_once(&dies, &config).await.unwrap_err();
        }
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(report.rows, 9);
        snapshot(&root).await
    };
    let expected = twice(None).await;
    for (operation, path, effect, number) in [
        (Operation::Put, "data/", Effect::FailBefore, 2),
        (Operation::Put, "validators/", Effect::FailBefore, 2),
        (Operation::Put, "validators/", Effect::FailAfter, 2),
        (Operation::Create, "log/", Effect::FailBefore, 4),
    ] {
        for batch in 0..number {
            let landed = twice(Some(rule(operation, path, effect, batch, 99))).await;
            assert_eq!(landed, expected, "{path} {effect:?} {batch}");
        }
    }
}

#[tokio::test]
async fn a_keyed_record_that_goes_back_to_an_earlier_content_lands_again() {
    let price = Arc::new(Mutex::new(10));
    let served = Arc::clone(&price);
    let server = Scripted::answering(move |_, _| {
        let price = *served.lock().unwrap();
        ok(&format!(
            r#"{{"items": [{{"id": 1, "n": {price}}}, {{"id": 2, "n": 5}}]}}"#
        ))
    })
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.refresh = Refresh::IfChanged;
    config.key = vec!["id".into()];
    let root = Store::memory();
    for (now, rows) in [(10, 2), (99, 3), (10, 4), (10, 4), (99, 5)] {
        *price.lock().unwrap() = now;
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(report.rows, rows, "price {now}");
    }
    // The newest row of the key has the server's current value.
    let landed: Vec<i64> = numbers(&root).await;
    assert_eq!(landed, [10, 5, 99, 10, 99]);
}

#[tokio::test]
async fn of_a_key_with_versions_each_version_is_compared_with_its_own() {
    let all = Arc::new(Mutex::new(vec![(1, 10), (2, 99)]));
    let served = Arc::clone(&all);
    let server = Scripted::answering(move |_, _| {
        let items: Vec<String> = served
            .lock()
            .unwrap()
            .iter()
            .map(|(v, n)| format!(r#"{{"id": 1, "v": {v}, "n": {n}}}"#))
            .collect();
        ok(&format!(r#"{{"items": [{}]}}"#, items.join(",")))
    })
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.refresh = Refresh::IfChanged;
    config.key = vec!["id".into()];
    config.version = Some("v".into());
    let root = Store::memory();
    // A feed that returns its complete history adds nothing new.
    for _ in 0..3 {
        assert_eq!(ingest_once(&root, &config).await.unwrap().rows, 2);
    }
    for (n, rows) in [(50, 3), (99, 4), (99, 4)] {
        all.lock().unwrap()[1].1 = n;
        assert_eq!(ingest_once(&root, &config).await.unwrap().rows, rows);
    }
}

#[tokio::test]
async fn a_reject_of_a_feed_that_is_read_again_counts_once() {
    let served = Arc::new(Mutex::new(("", 0)));
    let state = Arc::clone(&served);
    let server = Scripted::answering(move |_, _| {
        let (value, other) = *state.lock().unwrap();
        ok(&format!(
            r#"{{"items": [{{"id": 1, "v": {value}}}, {{"id": 2, "v": {other}}}]}}"#
        ))
    })
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.refresh = Refresh::IfChanged;
    config.key = vec!["id".into()];
    config.contract.max_reject_fraction = Real::literal(1.0);
    let column = config.contract.column.entry("v".to_owned()).or_default();
    column.r#type = Some(DeclaredType::Int);
    let root = Store::memory();
    let rounds = [
        ((r#""oops""#, 5), (1, 1)),
        ((r#""oops""#, 5), (1, 0)),
        // Another record changes.
        ((r#""oops""#, 6), (2, 0)),
        // It is corrected, and then wrong again.
        (("9", 6), (3, 0)),
        ((r#""oops""#, 6), (3, 1)),
        ((r#""oops""#, 6), (3, 0)),
    ];
    for (round, (state, expected)) in rounds.into_iter().enumerate() {
        *served.lock().unwrap() = state;
        let report = ingest_once(&root, &config).await.unwrap();
        let found = (report.rows, report.new_rejected.unwrap());
        assert_eq!(found, expected, "{round}");
    }
}
