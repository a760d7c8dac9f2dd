//! Requests of files, beside the promises that `run::tests::contract` holds every source to.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use feedline_schemas::{config::load, report::IngestReport};
use feedline_storage::Store;
use serde_json::json;

use crate::{
    context::Context,
    error::Error,
    run::{ingest, ingest_all},
    testing::{Scripted, Served, answer, context, raw},
};

/// A request that a server has received.
#[derive(Clone, Debug)]
struct Received {
    method: Method,
    target: String,
    token: Option<String>,
    authorization: Option<String>,
}

type Seen = Mutex<Vec<Received>>;

/// A server whose paths select the response.
type Server = Served<Seen>;

async fn serve() -> Server {
    Served::start(Router::new().fallback(respond)).await
}

fn received(server: &Server) -> Vec<Received> {
    server.seen.lock().unwrap().clone()
}

const ROWS: &str = "a,b\n1,2\n3,4\n";

async fn respond(
    State(seen): State<Arc<Seen>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let path = uri.path().to_owned();
    let text = |name: &str| Some(headers.get(name)?.to_str().unwrap().to_owned());
    let received = Received {
        method,
        target: uri.to_string(),
        token: text("x-token"),
        authorization: text("authorization"),
    };
    let tokens = {
        let mut seen = seen.lock().unwrap();
        seen.push(received.clone());
        seen.iter().filter(|r| r.target == "/token").count()
    };
    let kind = path.trim_start_matches('/').split(['-', '.']).next();
    match kind.unwrap() {
        "token" => {
            let token =
                json!({ "access_token": format!("token-{tokens}"), "token_type": "bearer" });
            ([("content-type", "application/json")], token.to_string()).into_response()
        }
        "second" if received.authorization.as_deref() != Some("Bearer token-2") => {
            StatusCode::UNAUTHORIZED.into_response()
        }
        "headless" if received.method == Method::HEAD => {
            StatusCode::METHOD_NOT_ALLOWED.into_response()
        }
        "unimplemented" if received.method == Method::HEAD => {
            StatusCode::NOT_IMPLEMENTED.into_response()
        }
        "forbidden" => StatusCode::FORBIDDEN.into_response(),
        "missing" => StatusCode::NOT_FOUND.into_response(),
        "secret" if !headers.contains_key("x-token") => StatusCode::UNAUTHORIZED.into_response(),
        "moved" => {
            let to = uri.path().trim_start_matches("/moved-").replace("..", ":");
            (
                StatusCode::FOUND,
                [("location", format!("http://{to}/secret.csv"))],
                "",
            )
                .into_response()
        }
        _ => ROWS.into_response(),
    }
}

/// The text of a source of one file.
fn source(url: &str, more: &str) -> String {
    format!(
        "[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{url}\"\n\
         retry = {{ base_ms = 1, cap_ms = 2, max_tries = 3 }}\n{more}\n"
    )
}

async fn bring_one(server: &Server, file: &str, more: &str) -> Result<IngestReport, Error> {
    bring_url(&format!("{}/{file}", server.url), more).await
}

async fn bring_url(url: &str, more: &str) -> Result<IngestReport, Error> {
    let text = format!("[pipeline]\nname = \"p\"\n{}", source(url, more));
    let context = Context {
        root: Store::memory(),
        ..context()
    };
    ingest(&load("p.toml", &text, &[]).unwrap().config, None, &context).await
}

#[tokio::test]
async fn a_missing_file_is_not_asked_for_again() {
    let server = serve().await;
    let error = bring_one(&server, "missing.csv", "")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("missing.csv` has no such file (404 or 410)"),
        "{error}"
    );
    let methods: Vec<Method> = received(&server).iter().map(|r| r.method.clone()).collect();
    assert_eq!(methods, [Method::HEAD]);
}

#[tokio::test]
async fn a_file_is_read_where_the_server_refuses_head() {
    for kind in ["headless", "unimplemented"] {
        let server = serve().await;
        let report = bring_one(&server, &format!("{kind}.csv"), "")
            .await
            .unwrap();
        assert_eq!(report.rows, 2, "{kind}");
        let received = received(&server);
        let methods: Vec<&Method> = received.iter().map(|r| &r.method).collect();
        let of_two = |method| methods.iter().filter(|found| ***found == method).count();
        assert_eq!(
            methods.len(),
            of_two(Method::HEAD) + of_two(Method::GET),
            "{methods:?}"
        );
        let counted = report
            .sources
            .iter()
            .map(|source| source.requests)
            .sum::<u64>();
        assert_eq!(counted, received.len() as u64, "{kind}");
    }
}

/// A server of one file with these headers, whose first `truncated` bodies end too early.
async fn serve_truncated(headers: &str, truncated: usize) -> Scripted {
    let head = format!("200 OK\r\n{headers}Content-Length: {}", ROWS.len());
    let bodies = AtomicUsize::new(0);
    let answer = move |_: usize, request: &str| {
        if !request.starts_with("GET ") {
            return raw(&head, b"");
        }
        match bodies.fetch_add(1, Ordering::Relaxed) < truncated {
            true => raw(&head, &ROWS.as_bytes()[..6]),
            false => raw(&head, ROWS.as_bytes()),
        }
    };
    Scripted::answering(answer).await
}

#[tokio::test]
async fn a_truncated_body_is_requested_again_as_often_as_retry_says() {
    for headers in ["", "ETag: \"1\"\r\n"] {
        let server = serve_truncated(headers, 2).await;
        let url = format!("{}rates.csv", server.url);
        let report = bring_url(&url, "").await.unwrap();
        let source = &report.sources[0];
        let found = (source.rows, source.retries, source.requests);
        assert_eq!(found, (2, 2, server.heads().len() as u64), "{headers}");

        let server = serve_truncated(headers, usize::MAX).await;
        let url = format!("{}rates.csv", server.url);
        let error = bring_url(&url, "").await.unwrap_err().to_string();
        for part in [
            url.as_str(),
            "the body was truncated",
            "the last of 3 tries",
        ] {
            assert!(error.contains(part), "{error}");
        }
        let heads = server.heads();
        let bodies = heads.iter().filter(|head| head.starts_with("GET "));
        assert_eq!(bodies.count(), 3, "{headers}");
    }
}

#[tokio::test]
async fn headers_go_to_the_host_of_the_url_and_nowhere_else() {
    let server = serve().await;
    let other = serve().await;
    let headers = "headers = { x-token = { env = \"T\" } }";
    let report = bring_one(&server, "secret.csv", headers).await.unwrap();
    assert_eq!(report.rows, 2);
    for received in received(&server) {
        assert_eq!(received.token.as_deref(), Some("secret-T"), "{received:?}");
    }
    let error = bring_one(&server, "secret.csv", "")
        .await
        .unwrap_err()
        .to_string();
    for part in ["was refused", "401", "`auth` or `headers`"] {
        assert!(error.contains(part), "{error}");
    }
    // A redirect to another host, which does not see the token.
    let to = other.url.trim_start_matches("http://").replace(':', "..");
    let more = format!("{headers}\nprivate_hosts = [\"127.0.0.1\"]\nformat = \"csv\"");
    let error = bring_one(&server, &format!("moved-{to}"), &more).await;
    let received = received(&other);
    assert!(error.is_err() && !received.is_empty(), "{error:?}");
    assert!(received.iter().all(|r| r.token.is_none()), "{received:?}");
}

#[tokio::test]
async fn credentials_go_to_the_host_of_the_url_and_nowhere_else() {
    let server = serve().await;
    let other = serve().await;
    let auth = "auth = { type = \"bearer\", secret = { env = \"T\" } }\nformat = \"csv\"";
    let report = bring_one(&server, "file.csv", auth).await.unwrap();
    assert_eq!(report.rows, 2);
    let to = other.url.trim_start_matches("http://").replace(':', "..");
    let more = format!("{auth}\nprivate_hosts = [\"127.0.0.1\"]");
    let _refused = bring_one(&server, &format!("moved-{to}"), &more).await;
    for received in received(&server) {
        let sent = received.authorization.as_deref();
        assert_eq!(sent, Some("Bearer secret-T"), "{received:?}");
    }
    let received = received(&other);
    assert!(!received.is_empty());
    assert!(
        received.iter().all(|r| r.authorization.is_none()),
        "{received:?}"
    );
}

#[tokio::test]
async fn a_key_in_the_query_is_sent_and_shown_nowhere() {
    let server = serve().await;
    let auth = "auth = { type = \"api_key\", param = \"key\", secret = { env = \"K\" } }";
    let report = bring_one(&server, "file.csv", auth).await.unwrap();
    assert_eq!(report.rows, 2);
    assert!(!serde_json::to_string(&report).unwrap().contains("secret-K"));
    let error = bring_one(&server, "forbidden.csv", auth).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("was refused") && !error.contains("secret-K"),
        "{error}"
    );
    for received in received(&server) {
        assert!(received.target.ends_with("?key=secret-K"), "{received:?}");
    }
}

#[tokio::test]
async fn a_token_that_is_refused_is_renewed() {
    for file in ["second.csv", "second.csv?day=1"] {
        let server = serve().await;
        let url = &server.url;
        let auth = format!(
            "format = \"csv\"\nauth = {{ type = \"oauth2\", token_url = \"{url}/token\", \
             client_id = {{ env = \"I\" }}, client_secret = {{ env = \"S\" }} }}"
        );
        let report = bring_one(&server, file, &auth).await.unwrap();
        assert_eq!(report.rows, 2);
        let received = received(&server);
        let tokens = received.iter().filter(|r| r.target == "/token").count();
        assert_eq!(tokens, 2, "{received:?}");
        assert_eq!(report.requests, received.len() as u64);
    }
}

#[tokio::test]
async fn credentials_for_files_of_a_store_are_refused() {
    let auth = "auth = { type = \"bearer\", secret = { env = \"T\" } }";
    let text = format!("[pipeline]\nname = \"p\"\n{}", source("/data/a.csv", auth));
    let config = load("p.toml", &text, &[]).unwrap().config;
    let error = ingest(&config, None, &context()).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("auth") && error.contains("http(s)"),
        "{error}"
    );
}

async fn current(State(body): State<Arc<Mutex<String>>>) -> String {
    let body = body.lock().unwrap();
    body.clone()
}

#[tokio::test]
async fn new_content_of_equal_length_lands_from_a_server_that_reports_no_version() {
    let server: Served<Mutex<String>> = Served::start(Router::new().fallback(current)).await;
    let source = source(&format!("{}/rates.csv", server.url), "");
    let text = format!("[pipeline]\nname = \"p\"\n{source}");
    let config = load("p.toml", &text, &[]).unwrap().config;
    let context = Context {
        root: Store::memory(),
        ..context()
    };
    for (body, new_rows) in [("a,b\n1,2\n", 1), ("a,b\n1,2\n", 0), ("a,b\n1,3\n", 1)] {
        *server.seen.lock().unwrap() = body.to_owned();
        let report = ingest(&config, None, &context).await.unwrap();
        let source = &report.sources[0];
        assert_eq!(
            (source.rows, source.new_rows),
            (1, Some(new_rows)),
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_file_is_requested_at_its_url_as_it_is() {
    for (file, target) in [
        ("v~1.csv", "/v~1.csv"),
        ("my%20file.csv", "/my%20file.csv"),
        ("a b.csv", "/a%20b.csv"),
        ("z%C3%BCrich.csv", "/z%C3%BCrich.csv"),
        ("zürich.csv", "/z%C3%BCrich.csv"),
        ("M%FCnchen.csv", "/M%FCnchen.csv"),
        ("a%5B1%5D.csv", "/a%5B1%5D.csv"),
        ("a[1].csv", "/a[1].csv"),
        ("100%25.csv", "/100%25.csv"),
        ("d%2Fe/f%2Fg.csv", "/d%2Fe/f%2Fg.csv"),
    ] {
        let server = serve().await;
        let report = bring_one(&server, file, "").await.unwrap();
        assert_eq!(report.rows, 2, "{file}");
        let received = received(&server);
        assert!(received.iter().all(|r| r.target == target), "{received:?}");
    }
}

/// A row that holds the name of its file.
fn row_of(name: &str) -> String {
    format!("a,b\n{name},2\n")
}

/// A server that lists its folder `d`, with files of these names as they are in URLs.
async fn serve_folder(names: &'static [&'static str]) -> Scripted {
    let entry = |name: &&str| {
        format!(
            "<D:response><D:href>/d/{name}</D:href><D:propstat><D:prop>\
             <D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified>\
             <D:getcontentlength>{}</D:getcontentlength><D:resourcetype/></D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>",
            row_of(name).len()
        )
    };
    let entries: String = names.iter().map(entry).collect();
    let listing = format!("<D:multistatus xmlns:D=\"DAV:\">{entries}</D:multistatus>");
    Scripted::answering(move |_, request| {
        let mut words = request.split(' ');
        let (method, target) = (words.next(), words.next().unwrap_or_default());
        let name = target.strip_prefix("/d/").unwrap_or_default();
        let is_file = names.contains(&name);
        let row = row_of(name);
        match method {
            Some("PROPFIND") => answer("207 Multi-Status", &listing),
            Some("HEAD") if is_file => {
                raw(&format!("200 OK\r\nContent-Length: {}", row.len()), b"")
            }
            Some("GET") if is_file => answer("200 OK", &row),
            _ => answer("404 Not Found", ""),
        }
    })
    .await
}

#[tokio::test]
async fn files_that_a_server_lists_are_requested_whatever_their_names_have() {
    const NAMES: [&str; 5] = [
        "100%25.csv",
        "a%20b.csv",
        "plain.csv",
        "v~1.csv",
        "z%C3%BCrich.csv",
    ];
    for (pattern, rows) in [("", 5), ("*.csv", 5), ("zü*.csv", 1)] {
        let server = serve_folder(&NAMES).await;
        let url = format!("{}d/{pattern}", server.url);
        let report = bring_url(&url, "").await.unwrap();
        assert_eq!(report.rows, rows, "{pattern}");
    }
    let server = serve_folder(&NAMES).await;
    let url = format!("{}d/*.json", server.url);
    let error = bring_url(&url, "").await.unwrap_err().to_string();
    assert!(error.contains("no file matches"), "{error}");
}

/// A server with WebDAV that lists one level of its folder `d`, without times, and forbids its folder `closed`.
async fn serve_levels() -> Scripted {
    let entry = |path: &str, properties: &str| {
        format!(
            "<D:response><D:href>{path}</D:href><D:propstat><D:prop>{properties}</D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )
    };
    let folder = "<D:resourcetype><D:collection/></D:resourcetype>";
    let size = row_of("1").len();
    let file = format!("<D:getcontentlength>{size}</D:getcontentlength><D:resourcetype/>");
    Scripted::answering(move |_, request| {
        let mut words = request.split(' ');
        let (method, target) = (words.next(), words.next().unwrap_or_default());
        let entries = match target.trim_end_matches('/') {
            "/d" => {
                entry("/d/1.csv", &file) + &entry("/d/e/", folder) + &entry("/d/closed/", folder)
            }
            "/d/e" => entry("/d/e/", folder) + &entry("/d/e/2.csv", &file),
            _ => String::new(),
        };
        let row = match target {
            "/d/1.csv" => Some(row_of("1")),
            "/d/e/2.csv" => Some(row_of("2")),
            _ => None,
        };
        match (method, row) {
            (Some("PROPFIND"), _) if target.starts_with("/d/closed") => answer("403 Forbidden", ""),
            (Some("PROPFIND"), _) => answer(
                "207 Multi-Status",
                &format!("<D:multistatus xmlns:D=\"DAV:\">{entries}</D:multistatus>"),
            ),
            (Some("HEAD"), Some(row)) => {
                raw(&format!("200 OK\r\nContent-Length: {}", row.len()), b"")
            }
            (Some("GET"), Some(row)) => answer("200 OK", &row),
            _ => answer("404 Not Found", ""),
        }
    })
    .await
}

#[tokio::test]
async fn files_below_folders_are_found_on_a_server_that_lists_one_level() {
    let server = serve_levels().await;
    let report = bring_url(&format!("{}d/e/", server.url), "").await.unwrap();
    assert_eq!(report.rows, 1);
    // A pattern of one folder needs no other.
    let report = bring_url(&format!("{}d/*.csv", server.url), "").await;
    assert_eq!(report.unwrap().rows, 1);
    // Nor does one that the refused folder cannot match.
    let report = bring_url(&format!("{}d/e*/*.csv", server.url), "").await;
    assert_eq!(report.unwrap().rows, 1);
    assert!(server.targets().iter().all(|target| target != "/d/closed/"));
    for place in ["d/", "d/**/*.csv"] {
        let error = bring_url(&format!("{}{place}", server.url), "").await;
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("/d/closed/` below it got status 403"),
            "{error}"
        );
        assert!(server.targets().iter().any(|target| target == "/d/closed/"));
    }
}

#[tokio::test]
async fn a_server_that_lists_no_folder_is_asked_once_and_named_in_the_error() {
    for status in [
        "400 Bad Request",
        "405 Method Not Allowed",
        "501 Not Implemented",
    ] {
        let server = Scripted::answering(move |_, _| answer(status, "")).await;
        for (requests, place) in [(1, "d/"), (2, "d/*.csv")] {
            let url = format!("{}{place}", server.url);
            let error = bring_url(&url, "").await.unwrap_err().to_string();
            for part in [
                "cannot list",
                "`PROPFIND` of WebDAV",
                status,
                "set `url` to a file",
            ] {
                assert!(error.contains(part), "{error}");
            }
            assert_eq!(server.heads().len(), requests, "{:?}", server.heads());
        }
    }
}

#[tokio::test]
async fn a_response_that_is_no_listing_is_named_in_the_error() {
    for (status, body) in [
        ("207 Multi-Status", "no list"),
        ("200 OK", ""),
        ("200 OK", "<html><body><br>files</body></html>"),
        ("200 OK", "<html><body>files</body></html>"),
    ] {
        let server = Scripted::answering(move |_, _| answer(status, body)).await;
        let error = bring_url(&format!("{}d/", server.url), "").await;
        let error = error.unwrap_err().to_string();
        for part in [
            "cannot list `",
            "/d`: the response to `PROPFIND` of WebDAV",
            "is no list of files (",
            "set `url` to a file",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[tokio::test]
async fn the_report_of_a_failed_run_has_the_cause_of_its_error() {
    let status = "407 Proxy Authentication Required";
    let server = Scripted::answering(move |_, _| answer(status, "")).await;
    let source = source(&format!("{}d/", server.url), "");
    let text = format!("[pipeline]\nname = \"p\"\n{source}");
    let config = load("p.toml", &text, &[]).unwrap().config;
    let context = Context {
        root: Store::memory(),
        ..context()
    };
    let end = ingest_all(&config, None, &context).await.unwrap();
    let error = end.report.sources[0].error.clone().unwrap();
    assert!(error.starts_with("cannot list `"), "{error}");
    assert!(error.contains("`: ") && error.contains(status), "{error}");
}

#[tokio::test]
async fn a_file_is_read_from_a_server_that_reports_no_size() {
    let server = Scripted::answering(|_, request| match request.starts_with("HEAD ") {
        true => raw("200 OK", b""),
        false => {
            let chunk = format!("{:x}\r\n{ROWS}\r\n0\r\n\r\n", ROWS.len());
            raw("200 OK\r\nTransfer-Encoding: chunked", chunk.as_bytes())
        }
    })
    .await;
    let url = format!("{}rates.csv", server.url);
    let report = bring_url(&url, "").await.unwrap();
    let source = &report.sources[0];
    assert_eq!(
        (source.rows, source.requests),
        (2, server.heads().len() as u64)
    );
}

#[tokio::test]
async fn a_file_is_decoded_from_the_encoding_that_its_server_reports() {
    let read = async |encoding: &'static str, body: Vec<u8>, file: &str| {
        let head = format!(
            "200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}",
            body.len()
        );
        let answer = move |_: usize, request: &str| match request.starts_with("HEAD ") {
            true => raw(&head, b""),
            false => raw(&head, &body),
        };
        let server = Scripted::answering(answer).await;
        bring_url(&format!("{}{file}", server.url), "").await
    };
    let packed = super::tests::gzip(ROWS.as_bytes());
    for (encoding, body, file) in [
        ("gzip", &packed[..], "rates.csv"),
        // Its name says the same.
        ("x-gzip", &packed[..], "rates.csv.gz"),
        ("identity", ROWS.as_bytes(), "rates.csv"),
    ] {
        let report = read(encoding, body.to_vec(), file).await.unwrap();
        assert_eq!(report.rows, 2, "{encoding} {file}");
    }
    let error = read("br", ROWS.into(), "rates.csv").await.unwrap_err();
    let error = error.to_string();
    for part in ["`Content-Encoding: br`", "add a query to `url`"] {
        assert!(error.contains(part), "{error}");
    }
}
