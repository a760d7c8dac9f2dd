//! Pages of scripted servers.

use feedline_schemas::{
    Classified as _, ErrorKind,
    config::{Bounded, PaginationKind},
};

use super::*;
use crate::testing::{Scripted, Step, answer, config, context, ok, raw, read_all};

pub(super) async fn read(config: &SourceConfig) -> Result<(Vec<String>, Requests), Error> {
    read_all(config, usize::MAX).await
}

async fn read_script(script: &[Step]) -> Result<(Vec<String>, Requests), Error> {
    let server = Scripted::start(script.to_vec()).await;
    read(&config(server.url.as_str(), PaginationKind::Cursor)).await
}

pub(super) const LAST: &str = r#"{"items": [{"i": 2}], "next": null}"#;

#[tokio::test]
async fn fault_26_cursors_are_followed_through_an_empty_page_to_the_end() {
    let server = Scripted::start([
        ok(r#"{"items": [{"i": 0}, {"i": 1}], "next": "a&b"}"#),
        ok(r#"{"items": [], "next": 17}"#),
        ok(LAST),
    ])
    .await;
    let mut config = config(
        server.url.join("v1?key=x%20y&limit=5").unwrap().as_str(),
        PaginationKind::Cursor,
    );
    config.params.insert("sort".into(), "asc".into());
    let (records, requests) = read(&config).await.unwrap();
    assert_eq!(records, [r#"{"i":0}"#, r#"{"i":1}"#, r#"{"i":2}"#]);
    assert_eq!(
        requests,
        Requests {
            requests: 3,
            retries: 0
        }
    );
    let base = "/v1?key=x%20y&limit=5&sort=asc";
    assert_eq!(
        server.targets(),
        [
            base.to_owned(),
            format!("{base}&cursor=a%26b"),
            format!("{base}&cursor=17")
        ]
    );
}

#[tokio::test]
async fn fault_18_every_transient_fault_is_tried_again_and_nothing_is_lost() {
    let faults = [
        answer("429 Too Many Requests\r\nRetry-After: 0", "{}"),
        answer(
            "429 Too Many Requests\r\nRetry-After: Sun, 06 Nov 1994 08:49:37 GMT",
            "{}",
        ),
        answer("408 Request Timeout", ""),
        answer("503 Service Unavailable", "busy"),
        raw("200 OK\r\nContent-Length: 400", br#"{"items": [{"i": 0}]"#),
        raw("200 OK\r\nContent-Length: 12", LAST.as_bytes()),
        raw(
            "200 OK\r\nTransfer-Encoding: chunked",
            b"9\r\n{\"items\":\r\n",
        ),
        raw("200 OK\r\nContent-Encoding: gzip", &[0x1f, 0x8b]),
        ok("<html>Bad gateway</html>"),
        ok(r#"{"error": "quota"}"#),
        ok(""),
        Step::Send(Vec::new()),
    ];
    for fault in faults {
        let (records, requests) = read_script(&[fault.clone(), ok(LAST)]).await.unwrap();
        assert_eq!(records, [r#"{"i":2}"#], "{fault:?}");
        assert_eq!(
            requests,
            Requests {
                requests: 2,
                retries: 1
            },
            "{fault:?}"
        );
    }
    // A later page of null is requested again; a first one may be an empty list.
    let first = ok(r#"{"items": [{"i": 1}], "next": "a"}"#);
    let null = ok(r#"{"code": 50011, "items": null}"#);
    let (records, requests) = read_script(&[first, null, ok(LAST)]).await.unwrap();
    assert_eq!(records, [r#"{"i":1}"#, r#"{"i":2}"#]);
    assert_eq!((requests.requests, requests.retries), (3, 1));
}

#[tokio::test]
async fn a_fault_that_stays_ends_the_run_with_its_last_error() {
    let check = async |body: &str, part: &str| {
        let error = read_script(&[ok(body)]).await.unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains("(the last of 5 tries)"),
            "{error}"
        );
    };
    let html = "it looks like HTML, whose pages a source of `type = \"html\"` reads";
    check("<html>\n Bad\n gateway</html>", html).await;
    check(
        r#"{"error": "quota", "code": 7}"#,
        "no record and `error`: `quota`; set `error_path`",
    )
    .await;
    check(
        r#"{"data": {"rows": []}, "a.b": []}"#,
        r"it has lists at `data.rows`, `a\.b`",
    )
    .await;
    check(r#"{"items": {"i": 1}}"#, "it has an object at `items`").await;
    check(
        r#"{"items": [], "next": {"page": 2}}"#,
        "`pagination.cursor_path` = `next` is an object",
    )
    .await;
}

#[tokio::test]
async fn a_final_status_is_asked_for_once() {
    let server = Scripted::start([answer("404 Not Found", "no such thing")]).await;
    let error = read(&config(server.url.as_str(), PaginationKind::None))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("404 Not Found: `no such thing`"),
        "{error}"
    );
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn a_long_retry_after_defers_the_run() {
    let error = read_script(&[answer("429 X\r\nRetry-After: 301", "")])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deferred);
    assert!(
        error
            .to_string()
            .contains("source `quotes` is deferred until 1994-11-06T08:54:3"),
        "{error}"
    );
}

#[tokio::test]
async fn fault_25_a_cursor_that_comes_back_ends_the_run() {
    let page = |next: &str| ok(&format!(r#"{{"items": [], "next": "{next}"}}"#));
    for circle in [vec![page("a")], vec![page("a"), page("b"), page("a")]] {
        let error = read_script(&circle).await.unwrap_err().to_string();
        assert!(
            error.contains("`a`") && error.contains("circles"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn pages_beyond_the_limit_end_the_run() {
    let server = Scripted::answering(|n, _| ok(&format!(r#"{{"items": [{{"i": {n}}}]}}"#))).await;
    let mut config = config(server.url.as_str(), PaginationKind::Page);
    config.pagination.common.max_pages = Bounded::literal::<3>();
    let error = read(&config).await.unwrap_err().to_string();
    assert!(error.contains("`pagination.max_pages` = 3"), "{error}");
    assert_eq!(server.targets(), ["/?page=1", "/?page=2", "/?page=3"]);
}

#[tokio::test]
async fn numbered_pages_replace_a_parameter_of_the_url() {
    let server = Scripted::start([ok(r#"[{"i": 0}]"#), ok("[]")]).await;
    let mut config = config(
        server.url.join("?page=9&q=1").unwrap().as_str(),
        PaginationKind::Page,
    );
    config.records = String::new();
    assert_eq!(read(&config).await.unwrap().0, [r#"{"i":0}"#]);
    assert_eq!(server.targets(), ["/?q=1&page=1", "/?q=1&page=2"]);
}

#[tokio::test]
async fn fault_54_things_that_are_no_records_are_set_aside() {
    let body = "\u{feff}{\"items\": [{\"i\": 0}, \"ERR\", null, [1]]}";
    let (records, _) = read_script(&[ok(body)]).await.unwrap();
    assert_eq!(
        records,
        [
            r#"{"i":0}"#,
            r#"not_an_object "ERR""#,
            "not_an_object null",
            "not_an_object [1]"
        ]
    );
}

#[tokio::test]
async fn a_position_is_continued_and_an_end_stays_one() {
    let server = Scripted::start([ok(LAST)]).await;
    let mut source = open(
        &config(server.url.as_str(), PaginationKind::Cursor),
        &context(),
    )
    .await
    .unwrap();
    let at = Position::Page {
        page: 7,
        cursor: Some("abc".into()),
        run: PageRun::default(),
    };
    let page = source.next_page(&at).await.unwrap();
    assert_eq!(server.targets(), ["/?cursor=abc"]);
    assert_eq!(
        page.next,
        Position::Done {
            pages: 8,
            files: vec![],
            run: PageRun::default()
        }
    );
    let end = source.next_page(&page.next).await.unwrap();
    assert_eq!((end.records.len(), end.next), (0, page.next));
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn urls_that_cannot_work_name_their_key_and_no_secret() {
    for url in [
        "ftp://host/hunter22",
        "not a url hunter22",
        "http://",
        "demo://nothing",
        "demo://market?sed=hunter22",
    ] {
        let error = read(&config(url, PaginationKind::None)).await.unwrap_err();
        assert!(
            matches!(&error, Error::Config { key, .. } if key == "url"),
            "{error}"
        );
        assert!(!error.to_string().contains("hunter22"), "{error}");
    }
}

/// The value of a query parameter of a request.
pub(super) fn param(head: &str, name: &str) -> Option<String> {
    let target = head.split(' ').nth(1)?;
    let url = Url::parse("http://h/").unwrap().join(target).unwrap();
    url.query_pairs()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

/// A source without any of the waits.
pub(super) fn paged(server: &Scripted, r#type: PaginationKind) -> SourceConfig {
    config(server.url.as_str(), r#type)
}

#[tokio::test]
async fn a_response_without_content_is_a_page_without_records() {
    let server = Scripted::answering(|_, head| match param(head, "page").unwrap().as_str() {
        "1" => ok(r#"{"items": [{"i": 0}, {"i": 1}]}"#),
        "2" => ok(r#"{"items": [{"i": 2}, {"i": 3}]}"#),
        _ => answer("204 No Content", ""),
    })
    .await;
    let mut config = paged(&server, PaginationKind::Page);
    config.retry.max_tries = Bounded::literal::<1>();
    let (records, requests) = read(&config).await.unwrap();
    assert_eq!((records.len(), requests.requests), (4, 3));
}

/// The source without `pagination`.
fn unpaged(server: &Scripted) -> SourceConfig {
    let mut config = config(server.url.as_str(), PaginationKind::None);
    config.pagination = feedline_schemas::config::PaginationConfig::default();
    config
}

/// The warnings about a next page that reading raises.
async fn next_page_warnings(config: &SourceConfig) -> Vec<Warning> {
    let mut source = open(config, &context()).await.unwrap();
    source.next_page(&Position::Start).await.unwrap();
    let changes = source.take_warnings().into_iter();
    let raised = changes.filter_map(|change| match change {
        WarningChange::Raise(warning) => Some(warning),
        _ => None,
    });
    raised
        .filter(|warning| warning.code == "next_page_not_requested")
        .collect()
}

#[tokio::test]
async fn a_next_page_that_a_source_without_pagination_does_not_request_is_a_warning() {
    let body = r#"{"items": [{"i": 0}, {"i": 1}], "next": "/x?token=abcdefgh", "total": 60}"#;
    let server = Scripted::start([ok(body)]).await;
    let warnings = next_page_warnings(&unpaged(&server)).await;
    assert_eq!(warnings.len(), 1);
    let (message, key) = (&warnings[0].message, warnings[0].key.as_deref());
    assert_eq!(key, Some("pagination"));
    for part in [
        "a page of 2 rows",
        "`next` is the URL of the next page",
        "`pagination = { type = \"next_url\", next_path = \"next\", total_path = \"total\" }`",
        "`{ type = \"none\" }`",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("abcdefgh"), "{message}");
    // A link that came with a document that is read as a tree.
    let link = "200 OK\r\nLink: </x?page=2>; rel=\"next\"";
    let server = Scripted::start([answer(link, r#"{"items": [{"i": 0, "i": 1}]}"#)]).await;
    let warnings = next_page_warnings(&unpaged(&server)).await;
    let message = &warnings[0].message;
    assert!(message.contains("a page of 1 row seems"), "{message}");
    // One page is chosen, or nothing names another one.
    let server = Scripted::start([ok(body)]).await;
    let chosen = config(server.url.as_str(), PaginationKind::None);
    assert_eq!(next_page_warnings(&chosen).await, []);
    let server = Scripted::start([ok(r#"{"items": [{"next": "/b"}], "total": 1}"#)]).await;
    assert_eq!(next_page_warnings(&unpaged(&server)).await, []);
}

#[tokio::test]
async fn a_preview_of_a_page_that_names_a_next_one_is_no_preview_of_all_rows() {
    let check = async |more: &str, is_all: bool| {
        let body = format!(r#"{{"items": [{{"i": 0}}], "has_more": {more}}}"#);
        let server = Scripted::start([ok(&body)]).await;
        let text = "[pipeline]\nname = \"p\"\n";
        let mut pipeline = feedline_schemas::config::load("p", text, &[])
            .unwrap()
            .config;
        pipeline.source = vec![unpaged(&server)];
        let found = crate::preview(&pipeline, None, 0, &context()).await;
        assert_eq!(found.unwrap()[0].is_all, is_all, "{more}");
    };
    check("true", false).await;
    check("false", true).await;
}

#[tokio::test]
async fn a_null_in_place_of_the_list_is_an_empty_page() {
    let server = Scripted::start([ok(r#"{"items": null, "next": 1}"#), ok(LAST)]).await;
    let cursor = config(server.url.as_str(), PaginationKind::Cursor);
    let (records, requests) = read(&cursor).await.unwrap();
    assert_eq!(records, [r#"{"i":2}"#]);
    assert_eq!((requests.requests, requests.retries), (2, 0));
    let refused = async |body: &str, part: &str| {
        let server = Scripted::start([ok(body)]).await;
        let mut config = unpaged(&server);
        config.retry.max_tries = Bounded::literal::<1>();
        let error = read(&config).await.unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains("`records`"),
            "{error}"
        );
    };
    refused(r#"{"rows": null}"#, "it has nothing at `items`").await;
    refused(r#"{"items": 7}"#, "it has an integer at `items`").await;
    refused("null", "it has nothing at `items`").await;
}

#[tokio::test]
async fn an_empty_page_that_reports_a_failed_request_is_no_end() {
    let check = async |more: &str, list: &str, shown: &str| {
        let failed = format!(r#"{{"items": {list}, {more}, "message": "late"}}"#);
        let server = Scripted::answering(move |_, head| match head.contains("page=2") {
            false => ok(r#"{"items": [{"i": 0}]}"#),
            true => ok(&failed),
        })
        .await;
        let mut config = config(server.url.as_str(), PaginationKind::Page);
        config.retry.max_tries = Bounded::literal::<2>();
        let error = read(&config).await.unwrap_err().to_string();
        let is_shown = error.contains(&format!("no record and {shown}"));
        assert!(is_shown && error.contains("set `error_path`"), "{error}");
        assert_eq!(server.heads().len(), 3);
        config.error_path = Some(String::new());
        assert_eq!(read(&config).await.unwrap().0.len(), 1, "{more}");
    };
    for list in ["[]", "null"] {
        check(r#""status": "error""#, list, "`status`: `error: late`").await;
        check(r#""success": false"#, list, "`success`: `false: late`").await;
    }
    // Beside records, and where the words are of the one record, they are data.
    let server = Scripted::start([ok(r#"{"items": [{"i": 2}], "ok": false}"#)]).await;
    assert_eq!(read(&unpaged(&server)).await.unwrap().0.len(), 1);
    let server = Scripted::start([ok(r#"{"id": 1, "status": "failed"}"#)]).await;
    let mut single = unpaged(&server);
    single.records = String::new();
    single.response.single_record = true;
    assert_eq!(read(&single).await.unwrap().0.len(), 1);
}

#[tokio::test]
async fn a_null_that_stays_on_a_later_page_is_the_end_and_a_warning() {
    let check = async |error_path: Option<&str>, error: &str, requests: usize, keys: &[&str]| {
        let error = error.to_owned();
        let server = Scripted::answering(move |_, head| match head.contains("page=2") {
            false => ok(r#"{"items": [{"i": 0}]}"#),
            true => ok(&format!(r#"{{"code": 50011, "items": null{error}}}"#)),
        })
        .await;
        let mut config = config(server.url.as_str(), PaginationKind::Page);
        config.error_path = error_path.map(ToOwned::to_owned);
        let mut source = open(&config, &context()).await.unwrap();
        let first = source.next_page(&Position::Start).await.unwrap();
        let last = source.next_page(&first.next).await.unwrap();
        assert_eq!((first.records.len(), last.records.len()), (1, 0));
        assert_eq!(server.heads().len(), requests, "{error_path:?}");
        let changes = source.take_warnings().into_iter();
        let nulls = changes.filter_map(|change| match change {
            WarningChange::Raise(warning) if warning.code == "null_list" => warning.key,
            _ => None,
        });
        assert_eq!(nulls.collect::<Vec<_>>(), keys, "{error_path:?}");
    };
    let warned = &["error_path"][..];
    check(None, "", 4, warned).await;
    check(Some(""), "", 2, &[]).await;
    // Only a page that has the field shows that it is no error.
    check(Some("error"), "", 4, warned).await;
    for none in ["null", "[]", "false", "0"] {
        let error = format!(r#", "error": {none}"#);
        check(Some("error"), &error, 2, &[]).await;
    }
}

#[tokio::test]
async fn fault_25_equal_pages_under_ever_new_cursors_end_the_run() {
    let server =
        Scripted::answering(|n, _| ok(&format!(r#"{{"items": [{{"i": 0}}], "next": "c{n}"}}"#)))
            .await;
    let mut config = paged(&server, PaginationKind::Cursor);
    config.pagination.common.max_pages = Bounded::literal::<9>();
    let error = read(&config).await.unwrap_err().to_string();
    assert!(error.contains("pages 2 to 4 have the records"), "{error}");
    assert_eq!(server.heads().len(), 4);
    // Equal records may be different ones.
    config.batch.dedup_window = Some(0);
    let error = read(&config).await.unwrap_err().to_string();
    assert!(error.contains("`pagination.max_pages` = 9"), "{error}");
}

#[tokio::test]
async fn an_object_is_one_record_only_if_the_source_says_so() {
    let check = async |records: &str, body: &str| {
        let server = Scripted::start([ok(body)]).await;
        let mut config = unpaged(&server);
        config.records = records.into();
        config.retry.max_tries = Bounded::literal::<1>();
        let error = read(&config).await.unwrap_err().to_string();
        assert!(error.contains("`response.single_record = true`"), "{error}");
        config.response.single_record = true;
        let (read, _) = read(&config).await.unwrap();
        assert_eq!(read, [r#"{"id":1,"t":5.5}"#]);
    };
    check("", r#"{"id": 1, "t": 5.5}"#).await;
    check("data", r#"{"data": {"id": 1, "t": 5.5}, "total": 9}"#).await;
}

#[tokio::test]
async fn text_in_another_charset_than_utf8_is_rejected_with_the_charset_that_the_server_named() {
    let mut body = br#"{"items": [{"n": ""#.to_vec();
    body.push(0xe9);
    body.extend_from_slice(br#""}]}"#);
    let head = format!(
        "200 OK\r\nContent-Type: application/json; charset=iso-8859-1\r\nContent-Length: {}",
        body.len()
    );
    let server = Scripted::start([raw(&head, &body)]).await;
    let mut source = open(&unpaged(&server), &context()).await.unwrap();
    let page = source.next_page(&Position::Start).await.unwrap();
    let record = format!("{:?}", page.records);
    assert!(
        record.contains("names the charset `iso-8859-1`"),
        "{record}"
    );
}
