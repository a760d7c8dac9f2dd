//! Promises of every source that reads over http, whatever its type.
//!
//! | promise | test |
//! |---|---|
//! | `Retry-After` is waited for | `a_wait_that_the_server_asks_for_is_kept` |
//! | a wait beyond `retry.max_wait_s` defers the source | `a_longer_wait_defers_the_source` |
//! | an announced quota is kept | `a_used_up_quota_holds_the_next_request` |
//! | failed requests are repeated `retry.max_tries` times | `tries_are_those_of_the_configuration` |
//! | a truncated body lands nothing and is requested again | `a_truncated_body_is_requested_again` |
//! | sources of a host share its rate | `sources_of_a_host_share_its_rate` |
//! | credentials stay at the host of the URL | `a_redirect_takes_no_credentials_along` |
//! | a complete source lands nothing twice | `a_second_run_lands_nothing_new` |
//! | a run that is killed lands the same bytes after all | `killed_at_any_batch_it_lands_the_same_bytes` |

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use feedline_schemas::{
    config::{PipelineConfig, load},
    report::IngestReport,
};
use tokio::time::Instant;

use super::{slices::check_kills, *};
use crate::testing::{self, Served};

/// Type of a source, and the ending of its path.
const SOURCES: [(&str, &str); 4] = [
    ("rest", "json"),
    ("rest", "xml"),
    ("html", "html"),
    ("files", "csv"),
];

/// A request that the server has received.
#[derive(Clone, Debug)]
struct Received {
    at: Instant,
    path: String,
    token: Option<String>,
}

type Seen = Mutex<Vec<Received>>;

/// A server. The first part of a path selects its behaviour, the ending its body.
type Server = Served<Seen>;

async fn serve() -> Server {
    Served::start(Router::new().fallback(respond)).await
}

/// Requests for what is no `robots.txt`.
fn received(server: &Server) -> Vec<Received> {
    let seen = server.seen.lock().unwrap().clone();
    let is_robots = |received: &Received| received.path == "/robots.txt";
    seen.into_iter().filter(|one| !is_robots(one)).collect()
}

/// The source `name` of `kind`, which reads the path `/BEHAVIOUR.ENDING`.
fn source_of(
    server: &Server,
    name: &str,
    kind: (&str, &str),
    behaviour: &str,
    more: &str,
) -> String {
    let (kind, ending) = kind;
    let own = match ending {
        "json" => "records = \"rows\"",
        "xml" => "records = \"rows.row\"",
        "html" => "crawl = { delay_ms = 0 }",
        _ => "",
    };
    format!(
        "[[source]]\nname = \"{name}\"\ntype = \"{kind}\"\nurl = \"{}/{behaviour}.{ending}\"\n{own}\n\
         retry = {{ base_ms = 1, cap_ms = 2, max_tries = 3 }}\n{more}\n",
        server.url
    )
}

/// The body of a path with this ending, and its type.
fn body(ending: &str) -> (&'static str, String) {
    let sentence = "An article has sentences, which are long enough to be no menu. ".repeat(6);
    match ending {
        "json" => (
            "application/json",
            "{\"rows\":[{\"a\":1},{\"a\":3}]}".to_owned(),
        ),
        "xml" => (
            "application/xml",
            "<rows><row><a>1</a></row><row><a>3</a></row></rows>".to_owned(),
        ),
        "html" => (
            "text/html",
            format!(
                "<!doctype html><html lang=en><head><title>One</title></head><body><article><h1>One</h1><p>{sentence}</p>\
                 <p>{sentence}</p></article></body></html>"
            ),
        ),
        _ => ("text/csv", "a,b\n1,2\n3,4\n".to_owned()),
    }
}

fn rows(ending: &str) -> u64 {
    if ending == "html" { 1 } else { 2 }
}

async fn respond(
    State(seen): State<Arc<Seen>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let path = uri.path().to_owned();
    let token = headers.get("x-token");
    let token = token.map(|value| value.to_str().unwrap().to_owned());
    let count = {
        let mut seen = seen.lock().unwrap();
        seen.push(Received {
            at: Instant::now(),
            path: path.clone(),
            token,
        });
        seen.iter().filter(|received| received.path == path).count()
    };
    let name = path.trim_start_matches('/');
    let (behaviour, ending) = name.rsplit_once('.').unwrap_or((name, ""));
    let (media, text) = body(ending);
    let media = [(CONTENT_TYPE, media)];
    let wait = |seconds: &'static str| [("retry-after", seconds)];
    match behaviour.split('-').next().unwrap() {
        "robots" => StatusCode::NOT_FOUND.into_response(),
        "busy" if count == 1 => (StatusCode::TOO_MANY_REQUESTS, wait("1")).into_response(),
        "later" => (StatusCode::SERVICE_UNAVAILABLE, wait("9999")).into_response(),
        "broken" if count < 3 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "dead" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "moved" => {
            let host = behaviour.trim_start_matches("moved-").replace("..", ":");
            let to = format!("http://{host}/plain.{ending}");
            (StatusCode::FOUND, [("location", to)]).into_response()
        }
        "used" if count == 1 => {
            let quota = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1")];
            (media, quota, text).into_response()
        }
        // Announces more than it sends.
        "cut" if method == Method::GET && count < 3 => {
            let part = text[..text.len() / 2].to_owned();
            let part = futures::stream::iter([Ok::<_, std::io::Error>(part)]);
            Response::builder()
                .header("content-length", text.len())
                .header(CONTENT_TYPE, media[0].1)
                .body(Body::from_stream(part))
                .unwrap()
        }
        _ => (media, text).into_response(),
    }
}

fn pipeline(sources: &[String]) -> PipelineConfig {
    let text = format!("[pipeline]\nname = \"p\"\n{}", sources.concat());
    load("p.toml", &text, &[]).unwrap().config
}

async fn ingest_into(root: &Store, sources: &[String]) -> Result<IngestReport, Error> {
    let context = Context {
        root: root.clone(),
        ..testing::context()
    };
    ingest(&pipeline(sources), None, &context).await
}

async fn ingest_new(sources: &[String]) -> Result<IngestReport, Error> {
    ingest_into(&Store::memory(), sources).await
}

#[tokio::test]
async fn a_wait_that_the_server_asks_for_is_kept() {
    for kind in SOURCES {
        let server = serve().await;
        let source = source_of(&server, "s", kind, "busy", "");
        let report = ingest_new(&[source]).await.unwrap();
        assert_eq!(report.rows, rows(kind.1), "{kind:?}");
        let received = received(&server);
        let waited = received[1].at - received[0].at;
        assert!(waited >= Duration::from_secs(1), "{kind:?} {waited:?}");
        assert_eq!(report.sources[0].retries, 1, "{kind:?}");
    }
}

#[tokio::test]
async fn a_longer_wait_defers_the_source() {
    for kind in SOURCES {
        let server = serve().await;
        let source = source_of(&server, "s", kind, "later", "");
        let error = ingest_new(&[source]).await.unwrap_err();
        assert!(matches!(error, Error::Deferred { .. }), "{kind:?} {error}");
        let text = error.to_string();
        for part in ["9999 s", "`retry.max_wait_s`"] {
            assert!(text.contains(part), "{kind:?} {text}");
        }
        assert_eq!(received(&server).len(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn a_used_up_quota_holds_the_next_request() {
    for kind in SOURCES {
        let server = serve().await;
        // The second source has the same path, so that there is a second request.
        let one = "limits = { concurrency = 1 }";
        let sources = ["s", "t"].map(|name| source_of(&server, name, kind, "used", one));
        let report = ingest_new(&sources).await.unwrap();
        assert_eq!(report.rows, 2 * rows(kind.1), "{kind:?}");
        let received = received(&server);
        let waited = received[1].at - received[0].at;
        assert!(waited >= Duration::from_secs(1), "{kind:?} {waited:?}");
    }
}

#[tokio::test]
async fn tries_are_those_of_the_configuration() {
    for kind in SOURCES {
        let server = serve().await;
        let source = source_of(&server, "s", kind, "broken", "");
        let report = ingest_new(&[source]).await.unwrap();
        assert_eq!(
            (report.rows, report.sources[0].retries),
            (rows(kind.1), 2),
            "{kind:?}"
        );
        let server = serve().await;
        let source = source_of(&server, "s", kind, "dead", "");
        let ended = ingest_new(&[source]).await;
        let dead = received(&server);
        assert_eq!(dead.len(), 3, "{kind:?} {dead:?}");
        let text = match ended {
            Err(error) => error.to_string(),
            Ok(report) => panic!("{kind:?} {report:?}"),
        };
        for part in ["500", "the last of 3 tries"] {
            assert!(text.contains(part), "{kind:?} {text}");
        }
    }
}

#[tokio::test]
async fn a_truncated_body_is_requested_again() {
    for kind in SOURCES {
        let server = serve().await;
        let source = source_of(&server, "s", kind, "cut", "");
        let report = ingest_new(&[source]).await.unwrap();
        assert_eq!(
            (report.rows, report.rejected),
            (rows(kind.1), 0),
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn sources_of_a_host_share_its_rate() {
    for kind in SOURCES {
        let server = serve().await;
        let limits = "limits = { requests_per_s = 4 }";
        let sources = ["s", "t", "u"].map(|name| source_of(&server, name, kind, name, limits));
        let report = ingest_new(&sources).await.unwrap();
        assert_eq!(report.rows, 3 * rows(kind.1), "{kind:?}");
        let received = server.seen.lock().unwrap().clone();
        assert!(received.len() >= 3, "{kind:?} {received:?}");
        // A busy machine delays the first request. With a rate of its own each source would be done in a third of the time.
        let gaps = f64::from(u32::try_from(received.len() - 1).unwrap());
        let first_to_last = (received.last().unwrap().at - received[0].at).as_secs_f64();
        assert!(
            first_to_last > 0.125 * (gaps - 1.0),
            "{kind:?} {first_to_last} s for {gaps} gaps"
        );
    }
}

#[tokio::test]
async fn a_redirect_takes_no_credentials_along() {
    for kind in SOURCES {
        let (server, other) = (serve().await, serve().await);
        let more = "headers = { x-token = { env = \"T\" } }\nprivate_hosts = [\"127.0.0.1\"]";
        let source = source_of(&server, "s", kind, "plain", more);
        assert_eq!(ingest_new(&[source]).await.unwrap().rows, rows(kind.1));
        for received in received(&server) {
            assert_eq!(received.token.as_deref(), Some("secret-T"), "{kind:?}");
        }
        let host = other.url.trim_start_matches("http://").replace(':', "..");
        let source = source_of(&server, "s", kind, &format!("moved-{host}"), more);
        // A crawl does not follow a redirect to another site.
        let ended = ingest_new(&[source]).await;
        let received = received(&other);
        assert!(
            kind.0 == "html" || !received.is_empty(),
            "{kind:?} {ended:?}"
        );
        assert!(received.iter().all(|one| one.token.is_none()), "{kind:?}");
    }
}

#[tokio::test]
async fn a_second_run_lands_nothing_new() {
    for kind in SOURCES {
        let server = serve().await;
        let sources = [source_of(&server, "s", kind, "plain", "")];
        let root = Store::memory();
        let first = ingest_into(&root, &sources).await.unwrap();
        assert_eq!(first.rows, rows(kind.1), "{kind:?}");
        let second = ingest_into(&root, &sources).await.unwrap();
        assert_eq!(
            (second.sources[0].new_rows, second.rows),
            (Some(0), first.rows),
            "{kind:?}"
        );
    }
}

/// Pages of the site behind its first one.
const PAGES: u64 = 10;

/// A site, an API of ten pages and a file of ten rows.
async fn ten(uri: Uri) -> Response {
    let query: HashMap<&str, &str> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .collect();
    let page: usize = query.get("page").map_or(0, |page| page.parse().unwrap());
    let path = uri.path();
    let json = |rows: &str| {
        let media = [(CONTENT_TYPE, "application/json")];
        (media, format!("{{\"rows\":[{rows}]}}")).into_response()
    };
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "txt" => StatusCode::NOT_FOUND.into_response(),
        "json" if page < 10 => json(&format!("{{\"n\":{page}}}")),
        "json" => json(""),
        "csv" => {
            let rows: String = (0..10).map(|n| format!("{n}\n")).collect();
            ([(CONTENT_TYPE, "text/csv")], format!("n\n{rows}")).into_response()
        }
        _ => {
            let (media, text) = body("html");
            let links: String = (0..PAGES)
                .map(|n| format!("<a href=\"/ten-{n}.html\">{n}</a>"))
                .collect();
            let text = text
                .replace("One", path)
                .replace("</body>", &format!("{links}</body>"));
            ([(CONTENT_TYPE, media)], text).into_response()
        }
    }
}

#[tokio::test]
async fn killed_at_any_batch_it_lands_the_same_bytes() {
    let server: Server = Served::start(Router::new().fallback(ten)).await;
    for kind in [("rest", "json"), ("html", "html"), ("files", "csv")] {
        let pages = match kind.0 {
            "rest" => "pagination = { type = \"page\", first_page = 0, page_size = 1 }",
            _ => "",
        };
        let more = format!("batch = {{ rows = 1, pages = 1 }}\n{pages}");
        let source = source_of(&server, "s", kind, "ten", &more);
        let report = ingest_new(std::slice::from_ref(&source)).await.unwrap();
        let expected = if kind.0 == "html" { PAGES + 1 } else { 10 };
        assert_eq!(report.rows, expected, "{kind:?}");
        Box::pin(check_kills(&pipeline(&[source]).source[0])).await;
    }
}
