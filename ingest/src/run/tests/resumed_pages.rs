//! Page runs by number or offset that resume after their list has changed.

use std::sync::Mutex;

use feedline_schemas::config::{IncrementalConfig, PaginationKind};

use super::{
    slices::{ingest_once, landed_numbers, param},
    *,
};
use crate::testing::{self, Scripted, answer, ok};

/// A source `s` of pages of three records.
fn pages_of_three(url: &str, kind: PaginationKind) -> SourceConfig {
    let mut config = testing::config(url, kind);
    config.name = Name::new("s").unwrap();
    config.pagination.common.page_size = 3;
    config
}

/// A list of the numbers 20 to 1, three a page, with `since`. No page exists behind the last one.
pub(super) struct List {
    pub(super) server: Scripted,
    numbers: Arc<Mutex<Vec<i64>>>,
    /// Records after which a page is refused.
    readable: Arc<AtomicU64>,
}

impl List {
    pub(super) async fn start() -> Self {
        let numbers = Arc::new(Mutex::new((1..=20).rev().collect::<Vec<i64>>()));
        let readable = Arc::new(AtomicU64::new(u64::MAX));
        let (served, most) = (Arc::clone(&numbers), Arc::clone(&readable));
        let server = Scripted::answering(move |_, head| {
            let get = |name: &str| param(head, name).map(|value| value.parse::<i64>().unwrap());
            let page = get("page").map(|page| (page - 1) * 3);
            let from = u64::try_from(get("offset").or(page).unwrap()).unwrap();
            if from >= most.load(Ordering::Relaxed) {
                return answer("403 Forbidden", "");
            }
            let since = get("since").unwrap_or(0);
            let all = served.lock().unwrap();
            let shown = all.iter().filter(|number| **number >= since);
            let shown = shown.skip(usize::try_from(from).unwrap()).take(3);
            let items: Vec<String> = shown.map(|number| format!(r#"{{"n":{number}}}"#)).collect();
            match items.is_empty() && from > 0 {
                true => answer("404 Not Found", ""),
                false => ok(&format!(r#"{{"items": [{}]}}"#, items.join(","))),
            }
        })
        .await;
        Self {
            server,
            numbers,
            readable,
        }
    }

    /// Batches of one page, and a window of all records, so that duplicates are no warning.
    pub(super) fn config(&self, kind: PaginationKind) -> SourceConfig {
        let mut config = pages_of_three(self.server.url.as_str(), kind);
        config.batch.pages = Bounded::literal::<1>();
        config.batch.dedup_window = Some(100);
        config
    }

    fn change(&self, change: impl FnOnce(&mut Vec<i64>)) {
        change(&mut self.numbers.lock().unwrap());
    }

    /// Runs the source, which can read so many records of the list.
    async fn run(
        &self,
        root: &Store,
        config: &SourceConfig,
        readable: u64,
    ) -> Result<SourceReport, Error> {
        self.readable.store(readable, Ordering::Relaxed);
        ingest_once(root, config).await
    }

    /// Lands the list in three runs. In front of the second one a record is removed at the top, and in
    /// front of the third one three: their last landed record is in no page that they look at.
    pub(super) async fn run_moving(&self, root: &Store, config: &SourceConfig) -> SourceReport {
        self.run(root, config, 9).await.unwrap_err();
        self.change(|numbers| drop(numbers.drain(..1)));
        self.run(root, config, 12).await.unwrap_err();
        self.change(|numbers| drop(numbers.drain(..3)));
        self.run(root, config, u64::MAX).await.unwrap()
    }

    /// Lands twelve records of the list, and then its last seven, which are all that are left.
    pub(super) async fn run_shrinking(&self, root: &Store, config: &SourceConfig) -> SourceReport {
        self.run(root, config, 12).await.unwrap_err();
        self.change(|numbers| drop(numbers.drain(..13)));
        self.run(root, config, u64::MAX).await.unwrap()
    }
}

fn codes(report: &SourceReport) -> Vec<&str> {
    let warnings = report.warnings.iter();
    warnings.map(|warning| warning.code.as_str()).collect()
}

#[tokio::test]
async fn a_page_run_resumes_in_a_list_that_has_moved_and_loses_nothing() {
    // Numbers of duplicates and requests, and codes of warnings.
    let check = async |change: fn(&mut Vec<i64>), counts: [u64; 2], warnings: &[&str]| {
        for kind in [PaginationKind::Page, PaginationKind::Offset] {
            let (list, root) = (List::start().await, Store::memory());
            let config = list.config(kind);
            list.run(&root, &config, 9).await.unwrap_err();
            list.change(change);
            let report = list.run(&root, &config, u64::MAX).await.unwrap();
            let expected: Vec<i64> = (1..=20).collect();
            assert_eq!(landed_numbers(&root).await, expected, "{kind:?}");
            assert_eq!([report.duplicates, report.requests], counts, "{kind:?}");
            assert_eq!(codes(&report), warnings, "{kind:?}");
        }
    };
    // One request more than without an interruption: pages 4 to 8, and page 3.
    Box::pin(check(|_| {}, [0, 6], &[])).await;
    // Page 3 has record 11 now, behind the last landed one.
    Box::pin(check(|list| drop(list.drain(..1)), [0, 6], &[])).await;
    // It has 11 to 9, and whether others are missing is not known.
    let remove = |list: &mut Vec<i64>| drop(list.drain(..3));
    Box::pin(check(remove, [0, 5], &["list_moved"])).await;
    // The last landed record comes in page 4, so that page 3 is not requested.
    let add = |list: &mut Vec<i64>| drop(list.splice(0..0, [22, 21]));
    Box::pin(check(add, [2, 6], &[])).await;
    // Page 3 has others, which are duplicates as those of page 4 are.
    let add = |list: &mut Vec<i64>| drop(list.splice(0..0, (21..=25).rev()));
    Box::pin(check(add, [8, 8], &["list_moved"])).await;
}

#[tokio::test]
async fn pages_of_unknown_size_are_requested_once_more_as_they_were() {
    let (list, root) = (List::start().await, Store::memory());
    let mut config = list.config(PaginationKind::Offset);
    config.pagination.common.page_size = 0;
    list.run(&root, &config, 9).await.unwrap_err();
    list.change(|list| drop(list.drain(..1)));
    let before = list.server.heads().len();
    // The end is refused, which only a page size explains.
    list.run(&root, &config, u64::MAX).await.unwrap_err();
    let heads = list.server.heads();
    assert!(heads[before].contains("offset=9"), "{}", heads[before]);
    assert!(
        heads[before + 1].contains("offset=6"),
        "{}",
        heads[before + 1]
    );
    assert_eq!(landed_numbers(&root).await, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_page_before_that_no_longer_exists_restarts_the_page_run() {
    let refused = Arc::new(AtomicU64::new(3));
    let is_refused = Arc::clone(&refused);
    let server = Scripted::answering(move |_, head| {
        let page: u64 = param(head, "page").unwrap().parse().unwrap();
        if page == is_refused.load(Ordering::Relaxed) {
            if page == 2 {
                is_refused.store(0, Ordering::Relaxed);
            }
            return answer("400 Bad Request", "");
        }
        let ids = (page * 2 - 2..page * 2).filter(|id| *id < 7);
        let items: Vec<String> = ids.map(|id| format!(r#"{{"n":{id}}}"#)).collect();
        ok(&format!(r#"{{"items": [{}]}}"#, items.join(",")))
    })
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::Page);
    config.name = Name::new("s").unwrap();
    config.pagination.common.page_size = 2;
    config.batch.pages = Bounded::literal::<1>();
    config.batch.dedup_window = Some(100);
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap_err();
    refused.store(2, Ordering::Relaxed);
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.duplicates), (7, 4));
    assert_eq!(codes(&report), ["list_moved"]);
    let message = &report.warnings[0].message;
    assert!(message.contains("again from its first page"), "{message}");
}

#[tokio::test]
async fn nothing_lands_behind_a_page_before_that_does_not_come() {
    for kind in [PaginationKind::Page, PaginationKind::Offset] {
        let numbers = Arc::new(Mutex::new((1..=20).rev().collect::<Vec<i64>>()));
        // Offset of the page that does not come.
        let broken = Arc::new(AtomicU64::new(9));
        let (served, is_broken) = (Arc::clone(&numbers), Arc::clone(&broken));
        let server = Scripted::answering(move |_, head| {
            let get = |name: &str| param(head, name).map(|value| value.parse::<u64>().unwrap());
            let page = get("page").map(|page| (page - 1) * 3);
            let from = get("offset").or(page).unwrap();
            if from == is_broken.load(Ordering::Relaxed) {
                return answer("503 Service Unavailable", "");
            }
            let all = served.lock().unwrap();
            let shown = all.iter().skip(usize::try_from(from).unwrap()).take(3);
            let items: Vec<String> = shown.map(|number| format!(r#"{{"n":{number}}}"#)).collect();
            ok(&format!(r#"{{"items": [{}]}}"#, items.join(",")))
        })
        .await;
        let mut config = pages_of_three(server.url.as_str(), kind);
        config.batch.pages = Bounded::literal::<1>();
        config.retry.max_tries = Bounded::literal::<1>();
        let root = Store::memory();
        ingest_once(&root, &config).await.unwrap_err();
        drop(numbers.lock().unwrap().drain(..1));
        broken.store(6, Ordering::Relaxed);
        for _ in 0..2 {
            let error = ingest_once(&root, &config).await.unwrap_err().to_string();
            assert!(error.contains("nothing behind it lands"), "{error}");
            let landed = landed_numbers(&root).await;
            assert_eq!(landed, (12..=20).collect::<Vec<_>>(), "{kind:?}");
        }
        broken.store(u64::MAX, Ordering::Relaxed);
        let report = ingest_once(&root, &config).await.unwrap();
        let landed = landed_numbers(&root).await;
        assert_eq!(landed, (1..=20).collect::<Vec<_>>(), "{kind:?}");
        assert_eq!(codes(&report), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn a_configured_end_is_none_where_the_landed_pages_no_longer_exist() {
    for kind in [PaginationKind::Page, PaginationKind::Offset] {
        let (list, root) = (List::start().await, Store::memory());
        let mut config = list.config(kind);
        testing::set_key(&mut config, "end_status", vec![404]);
        let report = list.run_shrinking(&root, &config).await;
        let left: Vec<i64> = (1..=7).chain(9..=20).collect();
        assert_eq!(landed_numbers(&root).await, left, "{kind:?}");
        assert_eq!(codes(&report), ["list_moved"], "{kind:?}");
        // Where all records would land twice, it warns only.
        let (list, root) = (List::start().await, Store::memory());
        config.url = list.server.url.to_string();
        config.batch.dedup_window = Some(0);
        let report = list.run_shrinking(&root, &config).await;
        let left: Vec<i64> = (9..=20).collect();
        assert_eq!(landed_numbers(&root).await, left, "{kind:?}");
        assert_eq!(codes(&report), ["list_moved"], "{kind:?}");
    }
}

#[tokio::test]
async fn a_configured_end_behind_landed_pages_that_still_exist_is_one() {
    let (list, root) = (List::start().await, Store::memory());
    let mut config = list.config(PaginationKind::Page);
    testing::set_key(&mut config, "end_status", vec![404]);
    list.run(&root, &config, 12).await.unwrap_err();
    list.change(|numbers| numbers.truncate(12));
    let report = list.run(&root, &config, u64::MAX).await.unwrap();
    assert_eq!((report.rows, report.requests), (12, 2));
    assert_eq!(codes(&report), Vec::<&str>::new());
}

#[tokio::test]
async fn values_that_change_with_each_response_are_no_list_that_has_moved() {
    let broken = Arc::new(AtomicU64::new(1));
    let is_broken = Arc::clone(&broken);
    let server = Scripted::answering(move |number, head| {
        let page: u64 = param(head, "page").unwrap().parse().unwrap();
        if page == 3 && is_broken.load(Ordering::Relaxed) == 1 {
            return answer("403 Forbidden", "");
        }
        let ids = (page * 2 - 2..page * 2).filter(|id| *id < 6);
        let items: Vec<String> = ids
            .map(|id| format!(r#"{{"id":{id},"price":{number}}}"#))
            .collect();
        ok(&format!(r#"{{"items": [{}]}}"#, items.join(",")))
    })
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::Page);
    config.name = Name::new("s").unwrap();
    config.batch.pages = Bounded::literal::<1>();
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap_err();
    broken.store(0, Ordering::Relaxed);
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, codes(&report)), (6, vec![]));
}

#[tokio::test]
async fn a_list_that_has_moved_far_is_a_warning_that_holds_and_an_incremental_bound_moves() {
    let (list, root) = (List::start().await, Store::memory());
    let mut config = list.config(PaginationKind::Page);
    config.incremental = Some(IncrementalConfig {
        cursor: "n".into(),
        param: "since".into(),
        start: None,
        lookback: "0".into(),
        max_ahead: "5m".into(),
    });
    let report = list.run_moving(&root, &config).await;
    assert_eq!(codes(&report), ["list_moved"]);
    let message = &report.warnings[0].message;
    assert!(message.contains("ingest reset"), "{message}");
    assert_eq!(landed_numbers(&root).await, (1..=20).collect::<Vec<_>>());
    let before = list.server.heads().len();
    let report = ingest_once(&root, &config).await.unwrap();
    let asked = list.server.heads();
    assert!(asked[before].contains("since=20"), "{}", asked[before]);
    assert_eq!(codes(&report), ["list_moved"]);
}

#[tokio::test]
async fn where_equal_records_are_kept_no_record_lands_twice_behind_a_list_that_has_moved() {
    let check = async |removed: usize, rows: u64, warnings: &[&str]| {
        let (list, root) = (List::start().await, Store::memory());
        let mut config = list.config(PaginationKind::Page);
        config.batch.dedup_window = Some(0);
        list.run(&root, &config, 9).await.unwrap_err();
        list.change(|list| drop(list.drain(..removed)));
        let report = list.run(&root, &config, u64::MAX).await.unwrap();
        assert_eq!(report.rows, rows, "{removed}");
        assert_eq!(codes(&report), warnings, "{removed}");
    };
    Box::pin(check(1, 20, &[])).await;
    Box::pin(check(3, 17, &["list_moved"])).await;
}

#[tokio::test]
async fn a_total_that_only_equal_records_reach_is_a_warning() {
    let pages = [[1, 2, 3], [4, 5, 6], [4, 5, 7], [10, 11, 12]];
    let server = Scripted::answering(move |_, head| {
        let page: usize = param(head, "page").unwrap().parse().unwrap();
        let shown = pages.get(page - 1).copied().unwrap_or_default();
        let shown = shown.iter().filter(|number| **number > 0);
        let items: Vec<String> = shown.map(|number| format!(r#"{{"n":{number}}}"#)).collect();
        ok(&format!(
            r#"{{"items": [{}], "total": 12}}"#,
            items.join(",")
        ))
    })
    .await;
    let mut config = pages_of_three(server.url.as_str(), PaginationKind::Page);
    config.pagination.common.total_path = Some("total".into());
    let report = ingest_once(&Store::memory(), &config).await.unwrap();
    assert_eq!(report.rows, 10);
    let differs = report.warnings.iter().find(|w| w.code == "total_differs");
    let message = &differs.unwrap().message;
    let counts = "12 records came, as many as the API's total, but 2 of them have the content";
    assert!(message.starts_with(counts), "{message}");
    // No later reading of the rest could cure an error.
    config.pagination.common.strict_total = true;
    config.batch.pages = Bounded::literal::<1>();
    let report = ingest_once(&Store::memory(), &config).await.unwrap();
    assert!(codes(&report).contains(&"total_differs"), "{report:?}");
    // They are other records by the configuration.
    config.batch.dedup_window = Some(0);
    let report = ingest_once(&Store::memory(), &config).await.unwrap();
    assert_eq!((report.rows, codes(&report)), (12, vec![]));
}

#[tokio::test]
async fn a_total_that_an_interrupted_run_reaches_is_no_hole() {
    // One record comes twice, since one was added at the top meanwhile.
    let pages = [[1, 2, 3], [3, 4, 5], [6, 7, 8]];
    let broken = Arc::new(AtomicU64::new(3));
    let is_broken = Arc::clone(&broken);
    let server = Scripted::answering(move |_, head| {
        let page: usize = param(head, "page").unwrap().parse().unwrap();
        if page as u64 == is_broken.load(Ordering::Relaxed) {
            return answer("403 Forbidden", "");
        }
        let shown = pages.get(page - 1).map_or(&[][..], |page| &page[..]);
        let items: Vec<String> = shown.iter().map(|n| format!(r#"{{"n":{n}}}"#)).collect();
        ok(&format!(
            r#"{{"items": [{}], "total": 9}}"#,
            items.join(",")
        ))
    })
    .await;
    let mut config = pages_of_three(server.url.as_str(), PaginationKind::Page);
    config.pagination.common.total_path = Some("total".into());
    config.pagination.common.strict_total = true;
    config.batch.pages = Bounded::literal::<1>();
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap_err();
    broken.store(0, Ordering::Relaxed);
    let report = ingest_once(&root, &config).await.unwrap();
    // Pages 3, 2 and 4, which is empty.
    assert_eq!((report.rows, report.requests), (8, 3));
}

#[tokio::test]
async fn a_landed_page_that_is_empty_now_restarts_the_page_run_and_later_processes_report_it() {
    for is_broken_then in [false, true] {
        let numbers = Arc::new(Mutex::new((1..=20).rev().collect::<Vec<i64>>()));
        // Offset of the page that does not come.
        let broken = Arc::new(AtomicU64::new(12));
        let (served, is_broken) = (Arc::clone(&numbers), Arc::clone(&broken));
        let server = Scripted::answering(move |_, head| {
            let from = (param(head, "page").unwrap().parse::<u64>().unwrap() - 1) * 3;
            if from == is_broken.load(Ordering::Relaxed) {
                return answer("503 Service Unavailable", "");
            }
            let all = served.lock().unwrap();
            let shown = all.iter().skip(usize::try_from(from).unwrap()).take(3);
            let items: Vec<String> = shown.map(|number| format!(r#"{{"n":{number}}}"#)).collect();
            ok(&format!(r#"{{"items": [{}]}}"#, items.join(",")))
        })
        .await;
        let mut config = pages_of_three(server.url.as_str(), PaginationKind::Page);
        config.batch.pages = Bounded::literal::<1>();
        config.batch.dedup_window = Some(100);
        config.retry.max_tries = Bounded::literal::<1>();
        let root = Store::memory();
        ingest_once(&root, &config).await.unwrap_err();
        drop(numbers.lock().unwrap().drain(..13));
        if is_broken_then {
            // The process ends before the first page of the restart has come.
            broken.store(0, Ordering::Relaxed);
            ingest_once(&root, &config).await.unwrap_err();
        }
        broken.store(u64::MAX, Ordering::Relaxed);
        let report = ingest_once(&root, &config).await.unwrap();
        let left: Vec<i64> = (1..=7).chain(9..=20).collect();
        assert_eq!(landed_numbers(&root).await, left, "{is_broken_then}");
        assert_eq!(codes(&report), ["list_moved"], "{is_broken_then}");
    }
}

#[tokio::test]
async fn a_run_that_resumes_behind_its_last_page_compares_the_total_of_the_page_before() {
    for (total, part) in [(12, None), (13, Some("it says that there are 13"))] {
        let broken = Arc::new(AtomicU64::new(1));
        let is_broken = Arc::clone(&broken);
        let server = Scripted::answering(move |_, head| {
            let page: u64 = param(head, "page").unwrap().parse().unwrap();
            if page == 5 {
                return match is_broken.load(Ordering::Relaxed) {
                    1 => answer("403 Forbidden", ""),
                    _ => answer("404 Not Found", ""),
                };
            }
            let items: Vec<String> = (page * 3 - 2..=page * 3)
                .map(|number| format!(r#"{{"n":{number}}}"#))
                .collect();
            ok(&format!(
                r#"{{"items": [{}], "total": {total}}}"#,
                items.join(",")
            ))
        })
        .await;
        let mut config = pages_of_three(server.url.as_str(), PaginationKind::Page);
        config.pagination.common.total_path = Some("total".into());
        config.pagination.common.strict_total = true;
        testing::set_key(&mut config, "end_status", vec![404]);
        config.batch.pages = Bounded::literal::<1>();
        let root = Store::memory();
        ingest_once(&root, &config).await.unwrap_err();
        broken.store(0, Ordering::Relaxed);
        let ended = ingest_once(&root, &config).await;
        match part {
            None => {
                let report = ended.unwrap();
                assert_eq!((report.rows, codes(&report)), (12, vec![]));
            }
            Some(part) => {
                let error = ended.unwrap_err().to_string();
                assert!(error.contains(part), "{error}");
            }
        }
    }
}
