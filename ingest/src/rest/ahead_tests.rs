//! Pages that are requested ahead.

use feedline_schemas::config::{Bounded, LimitsConfig, PaginationKind};
use serde_json::json;

use super::{
    tests::{paged, param, read},
    *,
};
use crate::testing::{Scripted, Step, answer, context, ok, pages, read_all};

/// The same source with so many requests at a time.
fn beside<const REQUESTS: u64>(mut config: SourceConfig) -> SourceConfig {
    config.limits = LimitsConfig {
        concurrency: Some(Bounded::literal::<REQUESTS>()),
        ..LimitsConfig::default()
    };
    config
}

/// The records from `from` to `to`.
fn items(from: u64, to: u64) -> String {
    let items: Vec<String> = (from..to).map(|i| format!(r#"{{"i":{i}}}"#)).collect();
    items.join(",")
}

/// A body with the records from `from` to `to` of `total`.
fn body(from: u64, to: u64, total: Option<u64>) -> Step {
    let total = total
        .map(|total| format!(r#","total":{total}"#))
        .unwrap_or_default();
    ok(&format!(r#"{{"items":[{}]{total}}}"#, items(from, to)))
}

/// Page `page` of `count` records, 10 a page.
fn page_of(page: u64, count: u64, total: Option<u64>) -> Step {
    body((page * 10).min(count), (page * 10 + 10).min(count), total)
}

fn number(head: &str) -> u64 {
    param(head, "page").unwrap().parse().unwrap()
}

/// A source of numbered pages from 0, 10 records a page.
fn numbered(server: &Scripted, has_total: bool) -> SourceConfig {
    let mut config = paged(server, PaginationKind::Page);
    let mut keys = json!({"type": "page", "page_size": 10, "first_page": 0});
    if has_total {
        keys["total_path"] = "total".into();
    }
    config.pagination = pages(keys);
    config
}

fn all(count: u64) -> Vec<String> {
    (0..count).map(|i| format!(r#"{{"i":{i}}}"#)).collect()
}

#[tokio::test]
async fn numbered_pages_are_requested_ahead_and_read_in_order() {
    for has_total in [true, false] {
        let total = has_total.then_some(400);
        // Pages 11 to 18 are answered only when all of them were requested, the last one first.
        let server = Scripted::answering(move |_, head| {
            let page = number(head);
            let step = page_of(page, 400, total);
            if (11..=18).contains(&page) {
                step.when(19)
            } else {
                step
            }
        })
        .await;
        let config = beside::<8>(numbered(&server, has_total));
        let (records, requests) = read(&config).await.unwrap();
        assert_eq!(records, all(400));
        let most = if has_total { 41 } else { 41 + 16 };
        assert!((41..=most).contains(&requests.requests), "{requests:?}");
    }
}

#[tokio::test]
async fn at_most_so_many_requests_are_on_their_way() {
    // The page of the 5th request waits for a 9th one, which must not come before it is answered.
    let server = Scripted::answering(move |request, head| {
        let step = page_of(number(head), 400, Some(400));
        match request {
            4 => step.when(9),
            _ => step,
        }
    })
    .await;
    let config = beside::<4>(numbered(&server, true));
    let (records, _) = read(&config).await.unwrap();
    assert_eq!(records, all(400));
    // All but one of 4 places continue; a window of 16 pages ends it.
    let server = Scripted::answering(move |_, head| match number(head) {
        1 => Step::Hang,
        page => page_of(page, 4_000, Some(4_000)),
    })
    .await;
    let mut config = beside::<4>(numbered(&server, true));
    // The other requests take less, also on a busy machine.
    config.retry.total_timeout_ms = 3_000;
    config.retry.max_tries = Bounded::literal::<1>();
    let error = read(&config).await.unwrap_err().to_string();
    assert!(error.contains("total_timeout_ms"), "{error}");
    assert_eq!(server.targets().len(), 17);
}

/// Requests that come while the second page is not answered.
async fn requests_beside_the_second_page(pagination: serde_json::Value) -> usize {
    let server = Scripted::answering(move |_, head| {
        let offset = param(head, "offset").map(|offset| offset.parse().unwrap());
        match offset.unwrap_or_else(|| number(head) * 10) {
            5..=10 => Step::Hang,
            from => body(from, from + 10, Some(4_000)),
        }
    })
    .await;
    let mut config = paged(&server, PaginationKind::Page);
    config.pagination = pages(pagination);
    config.limits = LimitsConfig::default();
    config.retry.total_timeout_ms = 2_000;
    config.retry.max_tries = Bounded::literal::<1>();
    let error = read(&config).await.unwrap_err().to_string();
    assert!(error.contains("total_timeout_ms"), "{error}");
    server.targets().len()
}

#[tokio::test]
async fn without_a_wish_pages_of_a_list_are_requested_one_after_another() {
    // A record that is added at the top meanwhile would move another one from a page to come to one that has come.
    let keys = json!({"type": "page", "page_size": 10, "first_page": 0, "total_path": "total"});
    assert_eq!(requests_beside_the_second_page(keys).await, 2);
    let keys = json!({"type": "offset", "page_size": 10, "total_path": "total"});
    assert_eq!(requests_beside_the_second_page(keys).await, 2);
    // An overlap shows what moved.
    let keys = json!({"type": "offset", "page_size": 10, "total_path": "total", "overlap": 2});
    let requests = requests_beside_the_second_page(keys).await;
    assert!(requests > 2, "{requests}");
}

#[tokio::test]
async fn a_source_of_one_page_costs_no_further_request_than_before() {
    let server = Scripted::answering(|_, head| page_of(number(head), 3, None)).await;
    let config = beside::<8>(numbered(&server, false));
    let (records, requests) = read(&config).await.unwrap();
    assert_eq!((records, requests.requests), (all(3), 2));
}

/// Number of records before the error that ends a run, the error, and the requests.
async fn read_to_error(config: &SourceConfig) -> (usize, Error, Requests) {
    let mut source = open(config, &context()).await.unwrap();
    let (mut at, mut read) = (Position::Start, 0);
    loop {
        match source.next_page(&at).await {
            Ok(page) => {
                read += page.records.len();
                at = page.next;
            }
            Err(error) => return (read, error, source.requests()),
        }
    }
}

#[tokio::test]
async fn a_page_that_fails_is_tried_again_and_ends_the_run_in_its_place() {
    let server = Scripted::answering(|request, head| {
        let page = number(head);
        // Page 7 fails twice, page 12 for good.
        match page {
            7 if request < 12 => answer("503 Service Unavailable", ""),
            12 => answer("500 Internal Server Error", ""),
            page => page_of(page, 400, Some(400)),
        }
    })
    .await;
    let config = beside::<4>(numbered(&server, true));
    let (read, error, requests) = read_to_error(&config).await;
    let error = error.to_string();
    assert_eq!(read, 120);
    assert!(error.contains("500"), "{error}");
    assert!(error.contains("page=12"), "{error}");
    assert!(requests.retries > 0);
}

#[tokio::test]
async fn a_wait_that_the_server_asks_for_ends_the_run_behind_the_pages_before_it() {
    let server = Scripted::answering(|_, head| match number(head) {
        page if page < 5 => page_of(page, 400, Some(400)),
        _ => answer("429 Too Many Requests\r\nRetry-After: 7200", ""),
    })
    .await;
    let config = beside::<4>(numbered(&server, true));
    let (read, error, _) = read_to_error(&config).await;
    assert_eq!(read, 50);
    assert!(matches!(error, Error::Deferred { .. }), "{error}");
    // Those behind it may have been on their way, and no further one was sent.
    assert!(server.targets().len() <= 5 + 4, "{:?}", server.targets());
}

#[tokio::test]
async fn pages_behind_the_last_one_are_no_failure() {
    for refused in ["404 Not Found", "500 Internal Server Error"] {
        let server = Scripted::answering(move |_, head| match number(head) {
            page if page < 20 => page_of(page, 195, None),
            // Only the page right behind the last one counts.
            20 => page_of(20, 195, None),
            _ => answer(refused, ""),
        })
        .await;
        let config = beside::<8>(numbered(&server, false));
        assert_eq!(read(&config).await.unwrap().0, all(195), "{refused}");
    }
}

#[tokio::test]
async fn offsets_follow_what_the_server_gives_at_most() {
    // It is asked for 10 a page and gives 7.
    let server = Scripted::answering(|_, head| {
        let from: u64 = param(head, "offset").unwrap().parse().unwrap();
        body(from.min(200), (from + 7).min(200), None)
    })
    .await;
    let mut config = paged(&server, PaginationKind::Offset);
    config.pagination = pages(json!({"type": "offset", "page_size": 10}));
    let (records, requests) = read(&beside::<8>(config)).await.unwrap();
    assert_eq!(records, all(200));
    assert!(requests.requests <= 30 + 16, "{requests:?}");
}

/// A source of 30 values, each with two pages by cursor.
async fn values(kind: PaginationKind) -> (Scripted, SourceConfig) {
    let server = Scripted::answering(move |_, head| {
        let value: u64 = param(head, "v").unwrap().parse().unwrap();
        let is_second = param(head, "cursor").is_some();
        let from = value * 20 + if is_second { 10 } else { 0 };
        let next = match (kind, is_second) {
            (PaginationKind::Cursor, false) => format!(r#","next":"c{value}""#),
            _ => String::new(),
        };
        let step = ok(&format!(
            r#"{{"items":[{}]{next}}}"#,
            items(from, from + 10)
        ));
        // The first 8 requests are those of 8 values. With cursors, the first of these is answered
        // behind another request.
        let is_held = value == 0 && matches!(kind, PaginationKind::Cursor);
        match value < 8 && !is_second {
            true => step.when(8 + usize::from(is_held)),
            false => step,
        }
    })
    .await;
    let mut config = paged(&server, kind);
    let values: Vec<String> = (0..30).map(|value| value.to_string()).collect();
    let each = json!({"param": "v", "values": values});
    config.for_each = Some(serde_json::from_value(each).unwrap());
    (server, config)
}

#[tokio::test]
async fn values_are_requested_ahead_with_their_pages_and_read_in_order() {
    let (_server, config) = values(PaginationKind::None).await;
    let (records, requests) = read(&beside::<8>(config)).await.unwrap();
    assert_eq!((records.len(), requests.requests), (300, 30));
    let (server, config) = values(PaginationKind::Cursor).await;
    let (records, requests) = read(&beside::<8>(config)).await.unwrap();
    let values: Vec<String> = records
        .iter()
        .map(|record| {
            record
                .split_once(r#","v""#)
                .map_or(record.as_str(), |(i, _)| i)
                .to_owned()
        })
        .collect();
    assert_eq!(requests.requests, 60);
    let first: Vec<String> = all(600)
        .iter()
        .map(|record| record.trim_end_matches('}').to_owned())
        .collect();
    let values: Vec<&str> = values
        .iter()
        .map(|record| record.trim_end_matches('}'))
        .collect();
    assert_eq!(values, first);
    // The second page of a later value is requested before an earlier value is read.
    let targets = server.targets();
    let is_later = targets[8].contains("cursor=") && !targets[8].contains("cursor=c0");
    assert!(is_later, "{targets:?}");
}

#[tokio::test]
async fn a_source_that_is_opened_again_reads_on_in_the_middle() {
    let server = Scripted::answering(|_, head| page_of(number(head), 400, None)).await;
    let config = beside::<8>(numbered(&server, false));
    let (records, _) = read_all(&config, 3).await.unwrap();
    assert_eq!(records, all(400));
}
