//! Silent ends of pages: each lands all records, is incomplete, or is a warning that stays in the
//! log.

use feedline_schemas::config::Bounded;
use feedline_schemas::{
    config::{IncrementalConfig, PaginationKind, SlicesConfig, load},
    report::Warning,
};
use feedline_storage::clock::Clock as _;
use url::Url;

use super::{rounds::ingest_once, *};
use crate::{
    run::{IngestEnd, ingest_all},
    status::status_with_lag,
    testing::{self, Scripted, Step, answer, ok, raw},
};

fn param(head: &str, name: &str) -> Option<u64> {
    let target = head.split(' ').nth(1).unwrap();
    let url = Url::parse("http://h/").unwrap().join(target).unwrap();
    let mut pairs = url.query_pairs();
    let value = pairs.find(|(key, _)| key == name).map(|(_, value)| value);
    value.map(|value| value.parse().unwrap())
}

/// Records `{"id":N}`, with `more` after the list.
fn items(ids: std::ops::Range<u64>, more: &str) -> String {
    let items: Vec<String> = ids.map(|id| format!(r#"{{"id":{id}}}"#)).collect();
    format!(r#"{{"items": [{}]{more}}}"#, items.join(","))
}

/// `total` records by page or offset, at most `most` a page; `behind` is the response to later
/// pages.
async fn list(total: u64, most: u64, behind: fn() -> Step) -> Scripted {
    Scripted::answering(move |_, head| {
        let size = param(head, "limit").map_or(most, |limit| limit.min(most));
        let page = param(head, "page").map(|page| (page - 1) * size);
        let from = param(head, "offset").or(page).unwrap_or(0);
        if from >= total && total > 0 {
            return behind();
        }
        ok(&items(from..(from + size).min(total), ""))
    })
    .await
}

fn empty() -> Step {
    ok(&items(0..0, ""))
}

fn source_of(server: &Scripted, kind: PaginationKind, page_size: u64) -> SourceConfig {
    let mut config = testing::config(server.url.as_str(), kind);
    config.name = Name::new("s").unwrap();
    config.pagination.common.page_size = page_size;
    if page_size > 0 && matches!(kind, PaginationKind::Page | PaginationKind::Offset) {
        config.pagination.common.size_param = Some("limit".into());
    }
    config
}

fn codes(report: &SourceReport) -> Vec<&str> {
    let warnings = report.warnings.iter();
    warnings.map(|warning| warning.code.as_str()).collect()
}

/// Runs `config` once: rows, status and codes of warnings, or the error.
async fn run_once(config: &SourceConfig) -> Result<(u64, String, Vec<String>), String> {
    match ingest_once(&Store::memory(), config).await {
        Ok(report) => {
            let codes: Vec<String> = codes(&report).into_iter().map(Into::into).collect();
            Ok((report.rows, report.status.clone(), codes))
        }
        Err(error) => Err(error.to_string()),
    }
}

async fn check(config: &SourceConfig, rows: u64, warnings: &[&str]) {
    let ended = run_once(config).await.unwrap();
    let warnings = warnings.iter().map(|code| (*code).to_owned()).collect();
    assert_eq!(ended, (rows, "complete".to_owned(), warnings));
}

async fn check_incomplete(config: &SourceConfig, parts: &[&str]) {
    let error = run_once(config).await.unwrap_err();
    assert!(error.starts_with("incomplete: "), "{error}");
    for part in parts {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[tokio::test]
async fn a_page_size_above_what_the_server_gives_lands_all_rows_and_warns() {
    for kind in [PaginationKind::Page, PaginationKind::Offset] {
        let server = list(200, 50, empty).await;
        check(&source_of(&server, kind, 100), 200, &["small_pages"]).await;
        // One request after the last page; a page of the requested size is no sign of the end.
        assert_eq!(server.heads().len(), 5);
        let server = list(120, 50, empty).await;
        check(&source_of(&server, kind, 50), 120, &[]).await;
        assert_eq!(server.heads().len(), 4);
    }
}

#[tokio::test]
async fn the_warning_of_small_pages_names_both_sizes_and_the_key() {
    let server = list(200, 50, empty).await;
    let config = source_of(&server, PaginationKind::Page, 100);
    let report = ingest_once(&Store::memory(), &config).await.unwrap();
    let Warning { message, key, .. } = &report.warnings[0];
    assert_eq!(key.as_deref(), Some("pagination.page_size"));
    assert!(
        message.starts_with(
            "a page of 50 records, where `pagination.page_size` = 100, was not the last one"
        ),
        "{message}"
    );
}

#[tokio::test]
async fn a_page_behind_the_last_that_does_not_exist_is_the_end() {
    let absent = || answer("404 Not Found", "no such page");
    for status in ["400 Bad Request", "404 Not Found", "416 Range", "422 No"] {
        let server = Scripted::answering(move |_, head| match param(head, "page") {
            Some(1) => ok(&items(0..10, "")),
            Some(2) => ok(&items(10..15, "")),
            _ => answer(status, "no such page"),
        })
        .await;
        check(&source_of(&server, PaginationKind::Page, 10), 15, &[]).await;
    }
    // After a full page it may be anything, and the error names the key.
    let server = list(20, 10, absent).await;
    let mut config = source_of(&server, PaginationKind::Page, 10);
    let error = run_once(&config).await.unwrap_err();
    assert!(error.contains("`pagination.end_status = [404]`"), "{error}");
    testing::set_key(&mut config, "end_status", vec![404]);
    check(&config, 20, &[]).await;
    // The first page is never a page after the last one.
    let server = Scripted::start([absent()]).await;
    let mut config = source_of(&server, PaginationKind::Page, 10);
    testing::set_key(&mut config, "end_status", vec![404]);
    assert!(run_once(&config).await.unwrap_err().contains("404"));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_dies_behind_a_short_page_ends_as_one_that_did_not() {
    let server = list(15, 10, || answer("404 Not Found", "")).await;
    let mut config = source_of(&server, PaginationKind::Page, 10);
    config.batch.pages = Bounded::literal::<1>();
    let root = Store::memory();
    // The entry after the last page cannot be written.
    let rule = rule(Operation::Create, "log/", Effect::FailBefore, 2, 99);
    let dies = root.with_faults(Faults::new(vec![rule]));
    ingest_once(&dies, &config).await.unwrap_err();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.status.as_str()), (15, "complete"));
    assert_eq!(report.warnings, []);
}

#[tokio::test]
async fn a_server_that_repeats_its_last_page_has_ended() {
    let clamps = |last: u64| async move {
        Scripted::answering(move |_, head| {
            let page = param(head, "page").unwrap_or(1).min(last);
            let from = (page - 1) * 10;
            ok(&items(from..from + if page == last { 4 } else { 10 }, ""))
        })
        .await
    };
    let server = clamps(3).await;
    check(&source_of(&server, PaginationKind::Page, 10), 24, &[]).await;
    // A repeated first page may come from a server without pages.
    let server = clamps(1).await;
    let config = source_of(&server, PaginationKind::Page, 10);
    check(&config, 4, &["repeated_page"]).await;
    let mut keeps_all = config;
    keeps_all.batch.dedup_window = Some(0);
    check(&keeps_all, 4, &["repeated_page"]).await;
}

/// 30 records in three pages of ten, with `link` between the head of a response and its end; `{}`
/// is the next page.
async fn linked(link: fn(u64) -> Vec<u8>) -> Scripted {
    Scripted::answering(move |_, head| {
        let page = param(head, "page").unwrap_or(0);
        let body = items(page * 10..page * 10 + 10, "");
        let mut bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\n".to_vec();
        if page < 2 {
            bytes.extend(link(page + 1));
        } else {
            bytes.extend(b"Link: </?page=0>; rel=\"first\"\r\n");
        }
        bytes.extend(format!("Content-Length: {}\r\n\r\n{body}", body.len()).bytes());
        Step::Send(bytes)
    })
    .await
}

#[tokio::test]
async fn a_link_header_with_bytes_beyond_ascii_is_followed_and_one_that_cannot_be_read_is_incomplete()
 {
    let utf8 = |next| format!("Link: </?q=caf\u{e9}&page={next}>; rel=\"next\"\r\n").into_bytes();
    let latin1 = |next| {
        let mut bytes = b"Link: </?q=caf\xe9&page=".to_vec();
        bytes.extend(format!("{next}>; rel=\"next\"; title=\"n").bytes());
        bytes.extend(b"\xe4chste\"\r\n");
        bytes
    };
    for link in [utf8 as fn(u64) -> Vec<u8>, latin1] {
        let server = linked(link).await;
        check(&source_of(&server, PaginationKind::Link, 0), 30, &[]).await;
    }
    let bare = |next| format!("Link: /?page={next}; rel=\"next\"\r\n").into_bytes();
    let server = linked(bare).await;
    let config = source_of(&server, PaginationKind::Link, 0);
    check_incomplete(
        &config,
        &["`Link` header cannot be read", "`pagination.type`"],
    )
    .await;
}

#[tokio::test]
async fn a_list_whose_link_header_never_comes_is_a_warning() {
    let server = list(50, 10, empty).await;
    let mut config = source_of(&server, PaginationKind::Link, 0);
    check(&config, 10, &["no_link_header"]).await;
    // A list that fits into a page needs none.
    config.pagination.common.page_size = 20;
    check(&config, 10, &[]).await;
    config.pagination.common.page_size = 10;
    check(&config, 10, &["no_link_header"]).await;
}

#[tokio::test]
async fn a_cursor_header_beyond_ascii_is_followed_or_incomplete_and_a_missing_one_is_a_warning() {
    let cursors = |next: fn(u64) -> Vec<u8>| async move {
        Scripted::answering(move |number, _| {
            let page = number as u64;
            let body = items(page * 10..page * 10 + 10, "");
            let mut bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\nX-Next: ".to_vec();
            bytes.extend(if page < 2 { next(page) } else { Vec::new() });
            bytes.extend(format!("\r\nContent-Length: {}\r\n\r\n{body}", body.len()).bytes());
            Step::Send(bytes)
        })
        .await
    };
    let server = cursors(|page| format!("n\u{e4}chste-{page}").into_bytes()).await;
    let mut config = source_of(&server, PaginationKind::HeaderCursor, 0);
    testing::set_key(&mut config, "cursor_header", "X-Next");
    check(&config, 30, &[]).await;
    assert!(server.targets()[1].ends_with("cursor=n%C3%A4chste-0"));
    let server = cursors(|page| {
        [
            b"n\xe4chste-".to_vec(),
            vec![b'0' + u8::try_from(page).unwrap()],
        ]
        .concat()
    })
    .await;
    config.url = server.url.to_string();
    check_incomplete(&config, &["`x-next`", "`pagination.cursor_header`"]).await;
    let server = cursors(|page| page.to_string().into_bytes()).await;
    config.url = server.url.to_string();
    testing::set_key(&mut config, "cursor_header", "X-Cursor");
    check(&config, 10, &["no_cursor_header"]).await;
}

#[tokio::test]
async fn a_cursor_path_that_is_not_there_is_a_warning_and_one_that_is_null_is_the_end() {
    let server = Scripted::start([ok(&items(0..10, r#", "nxt": "a""#))]).await;
    check(
        &source_of(&server, PaginationKind::Cursor, 0),
        10,
        &["no_next_cursor"],
    )
    .await;
    check(
        &source_of(&server, PaginationKind::NextUrl, 0),
        10,
        &["no_next_url"],
    )
    .await;
    let server = Scripted::start([ok(&items(0..10, r#", "next": null"#))]).await;
    check(&source_of(&server, PaginationKind::Cursor, 0), 10, &[]).await;
}

#[tokio::test]
async fn an_error_in_a_success_without_records_is_incomplete_and_names_error_path() {
    let server = Scripted::answering(|_, head| match param(head, "page") {
        Some(page @ 1..=2) => ok(&items(page * 10..page * 10 + 10, "")),
        _ => ok(r#"{"items": [], "error": {"code": "quota used up"}}"#),
    })
    .await;
    let mut config = source_of(&server, PaginationKind::Page, 10);
    check_incomplete(&config, &["`error_path`", "quota used up", "status 200"]).await;
    // Tried as often as other failures.
    assert_eq!(server.heads().len(), 2 + 5);
    config.error_path = Some(String::new());
    check(&config, 20, &[]).await;
    let server = Scripted::start([ok(r#"{"errors": ["no access"]}"#)]).await;
    config.url = server.url.to_string();
    config.error_path = None;
    check_incomplete(&config, &["`errors`", "no access"]).await;
    for none in [
        r#", "error": null"#,
        r#", "errors": []"#,
        r#", "error": false"#,
        r#", "error": {"code": 0, "message": "ok"}"#,
    ] {
        let server = Scripted::start([ok(&items(0..0, none))]).await;
        config.url = server.url.to_string();
        assert_eq!(run_once(&config).await.unwrap().0, 0, "{none}");
    }
    // With records it is no refusal, but may be a part of them.
    let server = Scripted::answering(|_, head| match param(head, "page") {
        Some(1) => ok(&items(0..3, r#", "errors": ["one row is late"]"#)),
        _ => empty(),
    })
    .await;
    config.url = server.url.to_string();
    check(&config, 3, &["errors_beside_records"]).await;
    config.error_path = Some(String::new());
    check(&config, 3, &[]).await;
}

#[tokio::test]
async fn a_response_that_is_only_accepted_is_asked_for_again_and_never_the_end() {
    let accepted = || answer("202 Accepted", r#"{"items": []}"#);
    let server = Scripted::start([accepted(), accepted(), ok(&items(0..3, "")), empty()]).await;
    let config = source_of(&server, PaginationKind::Page, 0);
    check(&config, 3, &[]).await;
    let server = Scripted::start([accepted()]).await;
    let config = source_of(&server, PaginationKind::None, 0);
    let error = run_once(&config).await.unwrap_err();
    assert!(
        error.contains("202 Accepted") && error.contains("5 tries"),
        "{error}"
    );
    let server = Scripted::start([answer("202 Accepted\r\nRetry-After: 1000", "")]).await;
    let config = source_of(&server, PaginationKind::None, 0);
    assert!(run_once(&config).await.unwrap_err().contains("is deferred"));
}

#[tokio::test]
async fn a_partial_response_is_a_warning_unless_its_range_reaches_the_end() {
    let pages = |range: fn(u64) -> String| async move {
        Scripted::answering(move |_, head| {
            let from = param(head, "offset").unwrap();
            let head = format!("206 Partial Content{}", range(from));
            if from == 50 {
                return empty();
            }
            raw(&head, items(from..from + 10, "").as_bytes())
        })
        .await
    };
    let server = pages(|_| String::new()).await;
    let config = source_of(&server, PaginationKind::Offset, 10);
    check(&config, 50, &["partial_content"]).await;
    let server = pages(|from| format!("\r\nContent-Range: items {from}-{}/50", from + 9)).await;
    check(&source_of(&server, PaginationKind::Offset, 10), 50, &[]).await;
    let server = pages(|from| format!("\r\nContent-Range: items {from}-{}/50", from + 9)).await;
    let mut single = source_of(&server, PaginationKind::None, 0);
    single.url += "?offset=0";
    check(&single, 10, &["partial_content"]).await;
}

#[tokio::test]
async fn a_total_above_what_came_stays_in_report_and_status_until_it_holds_no_longer() {
    let server = Scripted::answering(|_, head| match param(head, "page") {
        Some(page @ 1..=5) => ok(&items(page * 10..page * 10 + 10, r#", "n": 100"#)),
        _ => ok(&items(0..0, r#", "n": 100"#)),
    })
    .await;
    let mut config = source_of(&server, PaginationKind::Page, 0);
    config.pagination.common.total_path = Some("n".into());
    let root = Store::memory();
    // An empty page below the total is requested three times. The second run sends no request and
    // repeats the warning.
    for (requests, keys) in [(8, vec![]), (0, vec!["refresh", "incremental"])] {
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(
            (report.rows, report.requests, codes(&report)),
            (50, requests, vec!["total_differs"])
        );
        assert_eq!(report.recheck_keys, keys);
        let message = &report.warnings[0].message;
        assert!(
            message.starts_with("50 records have come, and the API says that there are 100"),
            "{message}"
        );
    }
    let mut pipeline = load("p", "[pipeline]\nname = \"p\"\n", &[]).unwrap().config;
    pipeline.source = vec![config.clone()];
    let now = std::time::Duration::from_secs(1);
    let told = async |pipeline: &PipelineConfig| {
        let mut report = status_with_lag(pipeline, &root, now).await.unwrap();
        let source = report.sources.remove(0);
        (source.warnings.len(), source.standing.unwrap().next)
    };
    let (count, next) = told(&pipeline).await;
    assert_eq!(count, 1);
    assert!(
        next.starts_with("nothing, though records may be missing"),
        "{next}"
    );
    // Removing the total means that it is an estimate.
    pipeline.source[0].pagination.common.total_path = None;
    let (count, next) = told(&pipeline).await;
    assert_eq!(count, 0);
    assert_eq!(
        next,
        "nothing: everything has been read, and only `refresh` or `incremental` requests it again"
    );
}

#[tokio::test]
async fn an_empty_page_below_the_total_is_requested_again() {
    // Page 3 is empty so many times.
    let check = async |holes: u64, rows: u64, requests: u64, warnings: &[&str]| {
        let left = AtomicU64::new(holes);
        let is_hole = move || {
            let take = |left: u64| left.checked_sub(1);
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
        };
        let server = Scripted::answering(move |_, head| {
            let page = param(head, "page").unwrap_or(1);
            let ids = match page {
                3 if is_hole() => 0..0,
                1..=5 => page * 10..page * 10 + 10,
                _ => 0..0,
            };
            ok(&items(ids, r#", "n": 50"#))
        })
        .await;
        let mut config = source_of(&server, PaginationKind::Page, 0);
        config.pagination.common.total_path = Some("n".into());
        let report = ingest_once(&Store::memory(), &config).await.unwrap();
        assert_eq!(
            (report.rows, report.requests, codes(&report)),
            (rows, requests, warnings.to_vec())
        );
    };
    Box::pin(check(0, 50, 6, &[])).await;
    Box::pin(check(1, 50, 7, &[])).await;
    Box::pin(check(2, 50, 8, &[])).await;
    Box::pin(check(3, 20, 5, &["total_differs"])).await;
}

#[tokio::test]
async fn a_total_that_changes_while_pages_are_read_is_a_warning() {
    let codes_of = async |before: u64, kind: PaginationKind| {
        let server = Scripted::answering(move |_, head| {
            let page = param(head, "page").unwrap_or(1);
            let from = param(head, "offset").unwrap_or(page * 10 - 10);
            let total = if from < 50 { before } else { 95 };
            ok(&items(
                from.min(95)..(from + 10).min(95),
                &format!(r#", "n": {total}"#),
            ))
        })
        .await;
        let mut config = source_of(&server, kind, 0);
        config.pagination.common.total_path = Some("n".into());
        let report = ingest_once(&Store::memory(), &config).await.unwrap();
        assert_eq!(report.rows, 95);
        let mut warnings = report.warnings.into_iter();
        let found = warnings.find(|warning| warning.code == "total_changed");
        found.map(|warning| warning.message)
    };
    for kind in [PaginationKind::Page, PaginationKind::Offset] {
        let message = Box::pin(codes_of(100, kind)).await.unwrap();
        assert!(message.contains("from 100 to 95"), "{message}");
        assert!(message.contains("`feedline ingest reset"), "{message}");
        assert_eq!(Box::pin(codes_of(95, kind)).await, None);
    }
}

#[tokio::test]
async fn warnings_are_taken_back_by_a_reading_that_finds_nothing_wrong() {
    let complete = Arc::new(AtomicU64::new(0));
    let is_complete = Arc::clone(&complete);
    let server = Scripted::answering(move |_, head| {
        let total = 25 * is_complete.load(Ordering::Relaxed) + 25;
        match param(head, "page") {
            Some(1) => ok(&items(0..25, &format!(r#", "n": {}"#, 75 - total))),
            _ => ok(&items(0..0, "")),
        }
    })
    .await;
    let mut config = source_of(&server, PaginationKind::Page, 0);
    config.pagination.common.total_path = Some("n".into());
    config.refresh = feedline_schemas::config::Refresh::IfChanged;
    let root = Store::memory();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(codes(&report), ["total_differs"]);
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((codes(&report), report.batches), (vec!["total_differs"], 1));
    complete.store(1, Ordering::Relaxed);
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(
        (codes(&report), report.rows, report.batches),
        (vec![], 25, 2)
    );
}

#[tokio::test]
async fn a_boolean_that_says_whether_there_is_more_ends_the_pages() {
    // An endless cursor, as some APIs return.
    let server = Scripted::answering(|number, _| {
        let page = number as u64;
        let more = format!(
            r#", "next": "c{page}", "meta": {{"has_more": {}}}"#,
            page < 2
        );
        ok(&items(page * 10..page * 10 + 10, &more))
    })
    .await;
    let mut config = source_of(&server, PaginationKind::Cursor, 0);
    testing::set_key(&mut config, "has_more_path", "meta.has_more");
    check(&config, 30, &[]).await;
    assert_eq!(server.heads().len(), 3);
    // Short pages with numbers: neither a request more nor a warning.
    let server = Scripted::answering(|number, _| {
        let page = number as u64;
        let more = format!(r#", "more": {}"#, u64::from(page < 2));
        ok(&items(page * 10..page * 10 + 7, &more))
    })
    .await;
    let mut config = source_of(&server, PaginationKind::Page, 10);
    testing::set_key(&mut config, "has_more_path", "more");
    check(&config, 21, &[]).await;
    assert_eq!(server.heads().len(), 3);
    // Its flag announces more than it returns.
    let server = Scripted::start([ok(&items(0..3, r#", "more": true, "next": null"#))]).await;
    let mut config = source_of(&server, PaginationKind::Cursor, 0);
    testing::set_key(&mut config, "has_more_path", "more");
    check_incomplete(&config, &["no next cursor", "`pagination.has_more_path`"]).await;
    let server = Scripted::start([
        ok(&items(0..3, r#", "more": true"#)),
        ok(&items(0..0, r#", "more": true"#)),
    ])
    .await;
    let mut config = source_of(&server, PaginationKind::Page, 0);
    testing::set_key(&mut config, "has_more_path", "more");
    check_incomplete(&config, &["`pagination.has_more_path`"]).await;
    // A wrong path finds nothing, and a warning reports it.
    let server = list(5, 5, empty).await;
    let mut config = source_of(&server, PaginationKind::Page, 0);
    testing::set_key(&mut config, "has_more_path", "more");
    check(&config, 5, &["no_has_more"]).await;
}

#[tokio::test]
async fn slices_of_one_page_each_take_the_warning_back_when_one_names_a_next_page() {
    let server = Scripted::answering(|_, head| {
        let (from, page) = (param(head, "from").unwrap(), param(head, "page"));
        let body = items(from * 10..from * 10 + 3, "");
        match (from, page) {
            (2, None) => answer("200 OK\r\nLink: </?from=2&page=1>; rel=\"next\"", &body),
            (2, _) => ok(&items(900..903, "")),
            _ => ok(&body),
        }
    })
    .await;
    let mut config = source_of(&server, PaginationKind::Link, 0);
    let slices = r#"{"from_param":"from","to_param":"to","start":"0","end":"2","step":"1","format":"integer"}"#;
    let mut slices: SlicesConfig = serde_json::from_str(slices).unwrap();
    config.slices = Some(slices.clone());
    check(&config, 6, &["no_link_header"]).await;
    slices.end = Some("4".into());
    config.slices = Some(slices);
    check(&config, 15, &[]).await;
}

#[tokio::test]
async fn an_error_shows_which_page_was_asked_for_and_no_secret() {
    let server = Scripted::start([answer("403 Forbidden", "no")]).await;
    let mut config = source_of(&server, PaginationKind::Cursor, 0);
    config.url += "?sort=asc&api_key=hunter2222";
    config.incremental = Some(IncrementalConfig {
        cursor: "t".into(),
        param: "modified[gte]".into(),
        start: Some("2026-03-18".into()),
        lookback: "0".into(),
        max_ahead: "5m".into(),
    });
    let error = run_once(&config).await.unwrap_err();
    assert!(
        error.contains("?sort=asc&api_key=***&modified%5Bgte%5D=2026-03-18"),
        "{error}"
    );
    assert!(!error.contains("hunter"), "{error}");
}

#[tokio::test]
async fn a_far_retry_after_is_capped_and_its_deferral_ended_by_resume() {
    let allowed = Arc::new(AtomicU64::new(0));
    let is_allowed = Arc::clone(&allowed);
    let server = Scripted::answering(move |_, _| match is_allowed.load(Ordering::Relaxed) {
        0 => answer("429 Too Many Requests\r\nRetry-After: 3153600000", ""),
        _ => ok(&items(0..3, "")),
    })
    .await;
    let config = source_of(&server, PaginationKind::None, 0);
    let root = Store::memory();
    let now = SystemClock.unix().as_secs();
    let Err(Error::Deferred {
        until_unix_s,
        reason,
        ..
    }) = ingest_once(&root, &config).await
    else {
        panic!("not deferred");
    };
    assert!(
        (now + 86_400..now + 86_500).contains(&until_unix_s),
        "{until_unix_s}"
    );
    assert!(
        reason.contains("wait 3153600000 s") && reason.contains("`retry.max_deferral_s` = 86400"),
        "{reason}"
    );
    allowed.store(1, Ordering::Relaxed);
    let error = ingest_once(&root, &config).await.unwrap_err().to_string();
    assert!(
        error.contains("no request was sent") && error.contains("`feedline ingest resume"),
        "{error}"
    );
    assert_eq!(server.heads().len(), 1);
    let mut pipeline = load("p", "[pipeline]\nname = \"p\"\n", &[]).unwrap().config;
    pipeline.source = vec![config.clone()];
    for lifted in [Some(until_unix_s), None] {
        let resumed = crate::resume(&pipeline, None, &context(&root))
            .await
            .unwrap();
        assert_eq!(resumed.sources[0].lifted_until_unix_s, lifted);
        // The deferral, and its end.
        assert_eq!(entries(&root).await.len(), 2);
    }
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.status.as_str()), (3, "complete"));
}

#[tokio::test]
async fn a_source_that_fails_does_not_swallow_the_report_of_the_others() {
    let server = Scripted::answering(|_, head| match head.contains("GET /bad") {
        true => answer("404 Not Found", "gone"),
        false => ok(&items(0..3, "")),
    })
    .await;
    let source = |name: &str| {
        let mut config = source_of(&server, PaginationKind::None, 0);
        config.name = Name::new(name).unwrap();
        config.url += name;
        config
    };
    let mut pipeline = load("p", "[pipeline]\nname = \"p\"\n", &[]).unwrap().config;
    pipeline.source = ["a", "bad", "c"].map(source).to_vec();
    let root = Store::memory();
    let IngestEnd { report, error } = ingest_all(&pipeline, None, &context(&root)).await.unwrap();
    assert!(error.unwrap().to_string().contains("404 Not Found"));
    let told = |report: &IngestReport| -> Vec<(String, u64)> {
        let sources = report.sources.iter();
        sources
            .map(|source| (source.status.clone(), source.rows))
            .collect()
    };
    let expected = [("complete", 3), ("failed", 0), ("complete", 3)];
    assert_eq!(
        told(&report),
        expected.map(|(status, rows)| (status.to_owned(), rows))
    );
    let error = report.sources[1].error.as_ref().unwrap();
    assert!(error.contains("404 Not Found"), "{error}");
    assert_eq!((report.rows, report.sources[0].error.as_ref()), (6, None));
}

/// `total` records in pages of 10 with their total; `behind` is the response to later pages.
async fn counted(total: u64, behind: fn() -> Step) -> Scripted {
    Scripted::answering(move |_, head| {
        let from = (param(head, "page").unwrap() - 1) * 10;
        match from >= total {
            true => behind(),
            false => ok(&items(from..(from + 10).min(total), r#","count":50"#)),
        }
    })
    .await
}

#[tokio::test]
async fn a_full_last_page_is_the_end_once_the_total_has_come() {
    let last = || ok(&items(40..50, r#","count":50"#));
    let missing = || answer("404 Not Found", "no such page");
    for behind in [missing, last, empty] {
        let server = counted(50, behind).await;
        let mut config = source_of(&server, PaginationKind::Page, 10);
        config.pagination.common.total_path = Some("count".into());
        check(&config, 50, &[]).await;
    }
    // With a wrong total, a page after it lands too.
    let server = counted(65, empty).await;
    let mut config = source_of(&server, PaginationKind::Page, 10);
    config.pagination.common.total_path = Some("count".into());
    check(&config, 65, &["total_differs"]).await;
}

#[tokio::test]
async fn a_total_that_counts_the_page_ends_no_run_early() {
    let server = Scripted::answering(|_, head| {
        let from = (param(head, "page").unwrap() - 1) * 50;
        let ids = from.min(200)..(from + 50).min(200);
        let count = format!(r#","count":{}"#, ids.end - ids.start);
        ok(&items(ids, &count))
    })
    .await;
    let mut config = source_of(&server, PaginationKind::Page, 100);
    config.pagination.common.total_path = Some("count".into());
    check(&config, 200, &["small_pages", "total_differs"]).await;
}
