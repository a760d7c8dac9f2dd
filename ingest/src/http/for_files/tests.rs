use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use feedline_schemas::{
    config::{PipelineConfig, load},
    report::IngestReport,
};
use feedline_storage::Store;
use tokio::time::Instant;

use crate::{context::Context, error::Error, http::testing::context, run::ingest};

/// A request that a server has received.
#[derive(Clone, Debug)]
struct Received {
    at: Instant,
    method: Method,
    path: String,
    token: Option<String>,
}

type Seen = Arc<Mutex<Vec<Received>>>;

/// A server on loopback whose paths select the response.
struct Server {
    url: String,
    seen: Seen,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start() -> Self {
        let seen = Seen::default();
        let router = Router::new()
            .fallback(respond)
            .with_state(Arc::clone(&seen));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, seen, task }
    }

    fn received(&self) -> Vec<Received> {
        self.seen.lock().unwrap().clone()
    }
}

const ROWS: &str = "a,b\n1,2\n3,4\n";

async fn respond(
    State(seen): State<Seen>,
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
            method: method.clone(),
            path: path.clone(),
            token,
        });
        seen.iter().filter(|received| received.path == path).count()
    };
    let kind = path.trim_start_matches('/').split(['-', '.']).next();
    match kind.unwrap() {
        "missing" => StatusCode::NOT_FOUND.into_response(),
        "secret" if !headers.contains_key("x-token") => StatusCode::UNAUTHORIZED.into_response(),
        "busy" if count == 1 => {
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "3")], "").into_response()
        }
        "later" => (
            StatusCode::SERVICE_UNAVAILABLE,
            [("retry-after", "9999")],
            "",
        )
            .into_response(),
        "broken" if count < 3 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "dead" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "moved" => {
            let to = uri.path().trim_start_matches("/moved-").replace("..", ":");
            (
                StatusCode::FOUND,
                [("location", format!("http://{to}/secret.csv"))],
                "",
            )
                .into_response()
        }
        "used" if count == 1 => {
            let quota = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "5")];
            (quota, ROWS).into_response()
        }
        // Announces more than it sends.
        "cut" if method == Method::GET && count < 4 => Response::builder()
            .header("content-length", ROWS.len())
            .body(Body::from_stream(futures::stream::iter([Ok::<
                _,
                std::io::Error,
            >(
                "a,b\n1"
            )])))
            .unwrap(),
        _ => ROWS.into_response(),
    }
}

/// The text of a source of one file.
fn source(name: &str, url: &str, more: &str) -> String {
    format!(
        "[[source]]\nname = \"{name}\"\ntype = \"files\"\nurl = \"{url}\"\n\
         retry = {{ base_ms = 1, cap_ms = 2, max_tries = 3 }}\n{more}\n"
    )
}

fn config(sources: &[String]) -> PipelineConfig {
    let text = format!("[pipeline]\nname = \"p\"\n{}", sources.concat());
    load("p.toml", &text, &[]).unwrap().config
}

async fn bring(sources: &[String]) -> Result<IngestReport, Error> {
    let context = Context {
        root: Store::memory(),
        ..context()
    };
    ingest(&config(sources), None, &context).await
}

async fn bring_one(server: &Server, file: &str, more: &str) -> Result<IngestReport, Error> {
    bring(&[source("s", &format!("{}/{file}", server.url), more)]).await
}

#[tokio::test(start_paused = true)]
async fn a_file_waits_as_long_as_its_server_asks_for_and_counts_the_retry() {
    let server = Server::start().await;
    let report = bring_one(&server, "busy.csv", "").await.unwrap();
    assert_eq!(report.rows, 2);
    let received = server.received();
    assert!(received[1].at - received[0].at >= std::time::Duration::from_secs(3));
    assert_eq!(report.sources[0].retries, 1);
    assert_eq!(report.sources[0].requests, received.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn a_used_up_quota_holds_the_next_request() {
    let server = Server::start().await;
    let report = bring_one(&server, "used.csv", "").await.unwrap();
    assert_eq!(report.rows, 2);
    let received = server.received();
    assert!(received[1].at - received[0].at >= std::time::Duration::from_secs(5));
}

#[tokio::test]
async fn a_longer_wait_defers_the_run() {
    let server = Server::start().await;
    let error = bring_one(&server, "later.csv", "").await.unwrap_err();
    assert!(matches!(error, Error::Deferred { .. }), "{error}");
    let error = error.to_string();
    assert!(
        error.contains("9999 s") && error.contains("`retry.max_wait_s`"),
        "{error}"
    );
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn tries_are_those_of_the_configuration() {
    let server = Server::start().await;
    let report = bring_one(&server, "broken.csv", "").await.unwrap();
    assert_eq!((report.rows, report.sources[0].retries), (2, 2));
    let error = bring_one(&server, "dead.csv", "").await.unwrap_err();
    assert!(matches!(error, Error::Http { .. }), "{error}");
    let error = error.to_string();
    for part in ["/dead.csv", "500", "the last of 3 tries"] {
        assert!(error.contains(part), "{error}");
    }
    let dead = server.received();
    assert_eq!(dead.iter().filter(|r| r.path == "/dead.csv").count(), 3);
    // A body that ends early is read again.
    let report = bring_one(&server, "cut.csv", "").await.unwrap();
    assert_eq!(report.rows, 2);
}

#[tokio::test]
async fn a_missing_file_is_not_asked_for_again() {
    let server = Server::start().await;
    let error = bring_one(&server, "missing.csv", "")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("missing.csv"), "{error}");
    // As a file, and as a folder.
    let methods: Vec<Method> = server.received().iter().map(|r| r.method.clone()).collect();
    let kinds: HashSet<&Method> = methods.iter().collect();
    assert_eq!(methods.len(), kinds.len(), "{methods:?}");
}

#[tokio::test(start_paused = true)]
async fn sources_of_one_host_share_its_rate() {
    let server = Server::start().await;
    let limits = "limits = { requests_per_s = 0.5 }";
    let files = ["one.csv", "two.csv"];
    let sources = files.map(|file| source(&file[..3], &format!("{}/{file}", server.url), limits));
    let report = bring(&sources).await.unwrap();
    assert_eq!(report.rows, 4);
    let received = server.received();
    assert!(received.len() >= 4, "{received:?}");
    for pair in received.windows(2) {
        let gap = (pair[1].at - pair[0].at).as_secs_f64();
        assert!(gap > 1.9, "{gap} s between {pair:?}");
    }
}

#[tokio::test]
async fn headers_go_to_the_host_of_the_url_and_nowhere_else() {
    let server = Server::start().await;
    let other = Server::start().await;
    let headers = "headers = { x-token = { env = \"T\" } }";
    let report = bring_one(&server, "secret.csv", headers).await.unwrap();
    assert_eq!(report.rows, 2);
    for received in server.received() {
        assert_eq!(received.token.as_deref(), Some("secret-T"), "{received:?}");
    }
    let error = bring_one(&server, "secret.csv", "")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("was refused"), "{error}");
    // A redirect to another host, which does not see the token.
    let to = other.url.trim_start_matches("http://").replace(':', "..");
    let more = format!("{headers}\nprivate_hosts = [\"127.0.0.1\"]\nformat = \"csv\"");
    let error = bring_one(&server, &format!("moved-{to}"), &more).await;
    let received = other.received();
    assert!(error.is_err() && !received.is_empty(), "{error:?}");
    assert!(received.iter().all(|r| r.token.is_none()), "{received:?}");
}
