use feedline_readers::record::Record;
use feedline_schemas::{
    commit::Position,
    config::{Bounded, FetchConfig, Real, SourceConfig},
    units::ByteSize,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
};

use super::open;
use crate::{
    error::Error,
    files::tests::Folder,
    source::Requests,
    testing::{Served, context},
};

type Seen = Mutex<HashMap<String, u64>>;

/// A server whose paths select the response.
type Server = Served<Seen>;

async fn serve() -> Server {
    Served::start(Router::new().fallback(answer)).await
}

/// Requests of each path.
fn requests_to(server: &Server) -> HashMap<String, u64> {
    server.seen.lock().unwrap().clone()
}

async fn answer(State(seen): State<Arc<Seen>>, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().to_owned();
    assert!(headers["accept"].to_str().unwrap().starts_with("image/*"));
    let count = {
        let mut seen = seen.lock().unwrap();
        let count = seen.entry(path.clone()).or_default();
        *count += 1;
        *count
    };
    let kind = path.trim_start_matches('/').split('-').next().unwrap();
    match kind {
        "missing" => StatusCode::NOT_FOUND.into_response(),
        "busy" if count == 1 => {
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], "").into_response()
        }
        "storm" => StatusCode::TOO_MANY_REQUESTS.into_response(),
        "later" => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "9999")], "").into_response(),
        "broken" if count < 3 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "dead" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        // Announces more than it sends.
        "cut" if count == 1 => Response::builder()
            .header("content-length", "99")
            .body(Body::from_stream(futures::stream::iter([Ok::<
                _,
                std::io::Error,
            >(
                "x"
            )])))
            .unwrap(),
        "loop" => (StatusCode::FOUND, [("location", path.as_str())], "").into_response(),
        "moved" => (StatusCode::FOUND, [("location", "/good-m")], "").into_response(),
        "large" => vec![0; 2000].into_response(),
        _ => path.into_bytes().into_response(),
    }
}

fn source(folder: &Folder, name: &str) -> SourceConfig {
    let mut config = folder.source(name);
    config.retry.base_ms = 1;
    config.retry.cap_ms = 2;
    config.retry.max_tries = Bounded::literal::<3>();
    config.retry.max_body_bytes = ByteSize::new(1000);
    config.fetch = Some(FetchConfig {
        column: "url".into(),
        into: "image".into(),
        concurrency: Bounded::literal::<3>(),
        private: true,
    });
    config
}

fn table(server: &Server, paths: &[&str]) -> String {
    let row = |(i, path): (usize, &&str)| format!("{i},{}/{path}\n", server.url);
    let rows: String = paths.iter().enumerate().map(row).collect();
    format!("label,url\n{rows}")
}

/// Reads records from `at` for some pages, and counts the requests.
async fn read(
    config: &SourceConfig,
    at: Position,
    most: usize,
) -> Result<(Vec<String>, Position, Requests), Error> {
    let fetch = config.fetch.clone().unwrap();
    let mut source = open(config, &fetch, &context())?;
    let (mut at, mut records) = (at, Vec::new());
    for _ in 0..most {
        let page = source.next_page(&at).await?;
        at = page.next;
        records.extend(page.records.into_iter().map(|record| match record {
            record @ (Record::Value(_) | Record::Json(_)) => record.canonical(),
            Record::Bad {
                reason,
                detail,
                raw,
            } => format!("{reason} | {detail} | {raw}"),
        }));
        if matches!(at, Position::Done { .. }) {
            break;
        }
    }
    Ok((records, at, source.requests()))
}

fn good(server: &Server, label: usize, asked: &str, path: &str) -> String {
    let image: String = format!("/{path}")
        .bytes()
        .map(|b| format!("{b:02x}"))
        .collect();
    format!(
        r#"{{"image":"{image}","label":"{label}","url":"{}/{asked}"}}"#,
        server.url
    )
}

#[tokio::test]
async fn rows_come_in_their_order_each_with_its_file_or_with_the_reason() {
    let server = serve().await;
    let paths = [
        "good-a", "busy", "missing", "broken", "cut", "dead", "loop", "large", "moved", "good-b",
    ];
    let folder = Folder::new(&[("a.csv", table(&server, &paths).as_bytes())]);
    let (records, at, requests) = read(&source(&folder, "a.csv"), Position::Start, 99)
        .await
        .unwrap();
    assert!(matches!(at, Position::Done { .. }));
    for (i, path) in [
        (0, "good-a"),
        (1, "busy"),
        (3, "broken"),
        (4, "cut"),
        (9, "good-b"),
    ] {
        assert_eq!(records[i], good(&server, i, path, path));
    }
    assert_eq!(records[8], good(&server, 8, "moved", "good-m"));
    for (i, part) in [
        (2, "the server answered 404"),
        (5, "500 Internal Server Error (the last of 3 tries)"),
        (6, "redirects more than 5 times"),
        (7, "larger than `retry.max_body_bytes` = 1000"),
    ] {
        assert!(records[i].starts_with("not_fetched | "), "{}", records[i]);
        assert!(records[i].contains(part), "{}", records[i]);
        let row = format!(r#"| {{"label":"{i}","url":"{}/{}"}}"#, server.url, paths[i]);
        assert!(records[i].ends_with(&row), "{}", records[i]);
    }
    assert_eq!(requests.retries, 6);
    assert_eq!(
        requests.requests,
        requests_to(&server).values().sum::<u64>()
    );
}

#[tokio::test]
async fn a_row_without_a_url_is_set_aside() {
    let server = serve().await;
    let rows = format!(
        "{{\"url\":null}}\n{{\"other\":1}}\n{{\"url\":7}}\n{{\"url\":\"a b\"}}\n{{\"url\":\"file:///etc/passwd\"}}\nx\n{{\"url\":\" {}/good \"}}\n",
        server.url
    );
    let folder = Folder::new(&[("a.ndjson", rows.as_bytes())]);
    let (records, ..) = read(&source(&folder, "a.ndjson"), Position::Start, 99)
        .await
        .unwrap();
    for (i, part) in [
        "no_url | column `url` is empty",
        "no_url | column `url` does not exist, only `other`",
        "no_url | column `url` has an integer",
        "bad_url | column `url` is no URL",
        "bad_url | `file` is not fetched",
        "malformed_line",
        r#"{"image":"2f676f6f64""#,
    ]
    .iter()
    .enumerate()
    {
        assert!(records[i].starts_with(part), "{}", records[i]);
    }
    assert_eq!(records.len(), 7);
}

#[tokio::test]
async fn a_run_that_goes_on_asks_for_no_landed_row_again() {
    let server = serve().await;
    let paths: Vec<String> = (0..200).map(|i| format!("good-{i}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let folder = Folder::new(&[
        ("a.csv", table(&server, &paths[..90]).as_bytes()),
        ("b.csv", table(&server, &paths[90..]).as_bytes()),
    ]);
    let config = source(&folder, "*.csv");
    let mut found = Vec::new();
    let mut at = Position::Start;
    let mut landed = HashMap::new();
    while !matches!(at, Position::Done { .. }) {
        // A process that ends after each page.
        let (records, next, _) = read(&config, at, 1).await.unwrap();
        assert!(records.len() <= 64);
        for (path, count) in &landed {
            assert_eq!(requests_to(&server)[path], *count, "{path}");
        }
        found.extend(records);
        for path in &paths[..found.len()] {
            let path = format!("/{path}");
            let count = requests_to(&server)[&path];
            landed.insert(path, count);
        }
        at = next;
    }
    let labels = (0..90).chain(0..110);
    let expected: Vec<_> = labels
        .zip(&paths)
        .map(|(label, path)| good(&server, label, path, path))
        .collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_server_that_asks_to_wait_for_long_defers_the_run_after_the_rows_before() {
    let server = serve().await;
    let folder = Folder::new(&[(
        "a.csv",
        table(&server, &["good-a", "good-b", "later", "good-c"]).as_bytes(),
    )]);
    let config = source(&folder, "a.csv");
    let fetch = config.fetch.clone().unwrap();
    let mut source = open(&config, &fetch, &context()).unwrap();
    let page = source.next_page(&Position::Start).await.unwrap();
    assert_eq!(page.records.len(), 2);
    let error = source.next_page(&page.next).await.unwrap_err();
    assert!(matches!(error, Error::Deferred { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn fault_15_a_storm_of_429_sees_no_more_requests_than_the_budget_allows() {
    let server = serve().await;
    let paths: Vec<String> = (0..32).map(|i| format!("storm-{i}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let folder = Folder::new(&[("a.csv", table(&server, &paths).as_bytes())]);
    let mut config = source(&folder, "a.csv");
    config.fetch.as_mut().unwrap().concurrency = Bounded::literal::<32>();
    config.limits.requests_per_s = Some(Real::literal(4.0));
    config.limits.burst = Some(Bounded::literal::<8>());
    let begin = tokio::time::Instant::now();
    let (records, _, requests) = read(&config, Position::Start, 99).await.unwrap();
    let passed = begin.elapsed().as_secs_f64();
    assert_eq!((records.len(), requests.requests), (32, 96));
    assert!(records.iter().all(|record| record.contains("429")));
    // Three tries of each of 32 rows: eight at once, then four a second.
    assert!(passed >= f64::from(96 - 8) / 4.0, "{passed} s");
}

#[tokio::test]
async fn hosts_that_are_not_of_the_internet_are_not_asked() {
    let server = serve().await;
    let name = server.url.replace("127.0.0.1", "localhost");
    let rows = format!("url\n{}/good-a\n{name}/good-b\n", server.url);
    let folder = Folder::new(&[("a.csv", rows.as_bytes())]);
    let mut config = source(&folder, "a.csv");
    config.fetch.as_mut().unwrap().private = false;
    let (records, ..) = read(&config, Position::Start, 99).await.unwrap();
    for record in &records {
        assert!(
            record.contains("its host is not of the internet"),
            "{record}"
        );
    }
    assert_eq!(records.len(), 2);
    assert!(requests_to(&server).is_empty());
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let folder = Folder::new(&[("a.csv", b"url,image\nhttp://127.0.0.1:1/,2\n")]);
    let refused = async |change: fn(&mut SourceConfig)| {
        let mut config = source(&folder, "a.csv");
        change(&mut config);
        read(&config, Position::Start, 99)
            .await
            .unwrap_err()
            .to_string()
    };
    let error = refused(|c| c.fetch.as_mut().unwrap().into = "url".into()).await;
    assert!(
        error.starts_with("`fetch.into`: it is the column of URLs"),
        "{error}"
    );
    let error = refused(|c| c.format = feedline_schemas::config::FileFormat::Image).await;
    assert!(error.starts_with("`fetch`: URLs are cells"), "{error}");
    let server = serve().await;
    folder.write(
        "a.csv",
        format!("url,image\n{}/good,2\n", server.url).as_bytes(),
    );
    let error = refused(|_| {}).await;
    assert!(
        error.starts_with("`fetch.into`: the table has a column `image`"),
        "{error}"
    );
}
