//! The embedded API behind `demo://market`: a small, seeded and deliberately rude server on
//! loopback.
//!
//! `demo://market?seed=7&rows=20000` starts a server inside the process that is then read over real
//! HTTP at `http://127.0.0.1:<port>/v1/market`. Parameters, all optional:
//!
//! | name | meaning | default |
//! |---|---|---|
//! | `seed` | seed of all data and all misbehaviour, 0 to 2^64 - 1 | 7 |
//! | `rows` | records in total, 0 to 100,000,000 | 20000 |
//! | `page_size` | records a page, 1 to 10,000 | 100 |
//! | `rude` | simulated faults, `true` or `false` | `true` |
//! | `drift` | schema change half-way, `true` or `false` | `true` |
//! | `latency_ms` | delay of each response in milliseconds, 0 to 60,000 | 0 |
//!
//! A page is `{"data": {"items": [...]}, "paging": {"next_cursor": "..."}}`; the cursor goes into
//! the query parameter `cursor` and is null on the last page. Every page is a pure function of the
//! parameters and its number, so a process that was killed finds the same pages at the same cursors
//! of the next process's server.
//!
//! A rude server disturbs about a tenth of the requests: 429 (with `Retry-After` as seconds or as a
//! date), 503, a truncated body, an HTML page with status 200, or a late response. The fault is a
//! pure function of seed, page and the number of the request for that page. The fourth request for
//! a page always succeeds. The data is described in the module `records`.

mod records;

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use feedline_http::clock::{Clock, SystemClock};
use flate2::{Compression, write::GzEncoder};
use futures::stream;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot};
use url::Url;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::records::{Dice, Market};

/// Path of the first page.
pub const PATH: &str = "/v1/market";

/// The first seed with every kind of fault in its first 60 pages and without a long wait, for tests.
pub const RUDE_SEED: u64 = 974;

/// A server that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// An unknown name or parameter.
    #[error("{0}")]
    Url(String),
    /// No port can be opened.
    #[error("cannot open a port on 127.0.0.1")]
    Port(#[source] io::Error),
}

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub struct DemoServer {
    /// URL of the first page.
    pub url: Url,
    state: Arc<Shared>,
    /// Dropping it lets the server finish its current responses and end.
    _stop: oneshot::Sender<()>,
}

/// Request counts of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DemoStats {
    /// Requests.
    pub requests: u64,
    /// Responses by status; a truncated body and an HTML page count as 200.
    pub statuses: BTreeMap<u16, u64>,
    /// Complete and correct pages by page number, from 0.
    pub pages: BTreeMap<u64, u64>,
}

impl DemoServer {
    /// Returns the request counts so far.
    #[must_use]
    pub fn stats(&self) -> DemoStats {
        self.state.stats()
    }
}

/// Starts the server that `url` (`demo://market?...`) describes on a free port of 127.0.0.1.
///
/// # Errors
/// [`DemoError::Url`] for an unknown name or parameter; [`DemoError::Port`] when no port can be
/// opened.
pub async fn serve(url: &str) -> Result<DemoServer, DemoError> {
    let options = Options::parse(url).map_err(DemoError::Url)?;
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.map_err(DemoError::Port)?;
    let address = listener.local_addr().map_err(DemoError::Port)?;
    let url = Url::parse(&format!("http://{address}{PATH}"));
    let url = url.map_err(|e| DemoError::Port(io::Error::other(e)))?;
    let state = Arc::new(Shared {
        options,
        stats: Mutex::default(),
    });
    let router = Router::new()
        .route(PATH, get(answer))
        .with_state(Arc::clone(&state));
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    tokio::spawn(async {
        if let Err(e) = axum::serve(listener, router)
            .with_graceful_shutdown(stopped)
            .await
        {
            tracing::error!(error = %e, "the embedded API stopped");
        }
    });
    Ok(DemoServer {
        url,
        state,
        _stop: stop,
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Options {
    market: Market,
    page_size: u64,
    rude: bool,
    latency: Duration,
}

impl Options {
    fn parse(url: &str) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|e| format!("is not a URL: {e}"))?;
        let path = url.path().trim_end_matches('/');
        if (url.scheme(), url.host_str(), path) != ("demo", Some("market"), "") {
            return Err("is unknown: the embedded API is `demo://market?...`".into());
        }
        let mut options = Self {
            market: Market {
                seed: 7,
                rows: 20_000,
                drift: true,
            },
            page_size: 100,
            rude: true,
            latency: Duration::ZERO,
        };
        for (key, value) in url.query_pairs() {
            match key.as_ref() {
                "seed" => options.market.seed = number(&key, &value, 0, u64::MAX)?,
                "rows" => options.market.rows = number(&key, &value, 0, 100_000_000)?,
                "page_size" => options.page_size = number(&key, &value, 1, 10_000)?,
                "rude" => options.rude = truth(&key, &value)?,
                "drift" => options.market.drift = truth(&key, &value)?,
                "latency_ms" => {
                    options.latency = Duration::from_millis(number(&key, &value, 0, 60_000)?)
                }
                other => {
                    return Err(format!(
                        "has an unknown parameter `{other}`; known are `seed`, `rows`, `page_size`, `rude`, `drift` and `latency_ms`"
                    ));
                }
            }
        }
        Ok(options)
    }

    fn pages(&self) -> u64 {
        self.market.rows.div_ceil(self.page_size).max(1)
    }

    fn page(&self, page: u64) -> Value {
        let rows = page * self.page_size..((page + 1) * self.page_size).min(self.market.rows);
        let items: Vec<Value> = rows.map(|row| self.market.record(row)).collect();
        let next = (page + 1 < self.pages()).then(|| self.cursor(page + 1));
        json!({ "data": { "items": items }, "paging": { "next_cursor": next } })
    }

    /// Opaque cursor of `page`: its obfuscated number, and a checksum that rejects cursors of other
    /// servers.
    fn cursor(&self, page: u64) -> String {
        let mask = xxh3_64_with_seed(b"cursor", self.market.seed);
        let check = xxh3_64_with_seed(&page.to_le_bytes(), mask ^ self.page_size);
        format!("{:016x}{check:016x}", page ^ mask)
    }

    fn page_at(&self, cursor: &str) -> Option<u64> {
        let mask = xxh3_64_with_seed(b"cursor", self.market.seed);
        let page = u64::from_str_radix(cursor.get(..16)?, 16).ok()? ^ mask;
        (page < self.pages() && self.cursor(page) == cursor).then_some(page)
    }
}

fn number(key: &str, value: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = value.parse().ok().filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| format!("has `{key}={value}`; use a whole number from {least} to {most}"))
}

fn truth(key: &str, value: &str) -> Result<bool, String> {
    value
        .parse()
        .map_err(|_| format!("has `{key}={value}`; use `true` or `false`"))
}

#[derive(Debug)]
struct Shared {
    options: Options,
    stats: Mutex<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    done: DemoStats,
    /// Requests by page.
    asked: HashMap<u64, u64>,
}

impl Shared {
    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stats(&self) -> DemoStats {
        self.counters().done.clone()
    }
}

/// Fault of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Polite,
    /// 429; wait 0 or 1 seconds, given as a date or as seconds.
    Throttle {
        wait_s: u64,
        as_date: bool,
    },
    Unavailable,
    Cut,
    Html,
    Slow,
}

impl Mood {
    /// Returns the fault of request number `asked` (from 0) for `page`.
    fn at(seed: u64, page: u64, asked: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x6d6f_6f64, page << 8 | asked.min(255));
        let (roll, detail) = (dice.unit(), dice.unit());
        match roll {
            _ if asked >= 3 => Self::Polite,
            r if r < 0.03 => Self::Throttle {
                wait_s: u64::from(detail < 0.3),
                as_date: (0.15..0.65).contains(&detail),
            },
            r if r < 0.06 => Self::Unavailable,
            r if r < 0.08 => Self::Cut,
            r if r < 0.09 => Self::Html,
            r if r < 0.10 => Self::Slow,
            _ => Self::Polite,
        }
    }
}

async fn answer(
    State(state): State<Arc<Shared>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let options = state.options;
    let page = query
        .get("cursor")
        .map_or(Some(0), |cursor| options.page_at(cursor));
    let mood = state.mood(page);
    tokio::time::sleep(options.latency).await;
    let response = match page {
        None => error(StatusCode::BAD_REQUEST, "unknown cursor"),
        Some(page) => behave(&state, mood, page, &headers).await,
    };
    *state
        .counters()
        .done
        .statuses
        .entry(response.status().as_u16())
        .or_default() += 1;
    response
}

impl Shared {
    fn mood(&self, page: Option<u64>) -> Mood {
        let mut counters = self.counters();
        counters.done.requests += 1;
        let Some(page) = page.filter(|_| self.options.rude) else {
            return Mood::Polite;
        };
        let asked = counters.asked.entry(page).or_default();
        *asked += 1;
        Mood::at(self.options.market.seed, page, *asked - 1)
    }
}

async fn behave(state: &Shared, mood: Mood, page: u64, headers: &HeaderMap) -> Response {
    match mood {
        Mood::Throttle { wait_s, as_date } => throttle(wait_s, as_date),
        Mood::Unavailable => error(StatusCode::SERVICE_UNAVAILABLE, "down for maintenance"),
        Mood::Html => {
            let html = "<!doctype html><title>Bad gateway</title><h1>Bad gateway</h1>";
            ([(header::CONTENT_TYPE, "text/html")], html).into_response()
        }
        Mood::Cut => cut(state.options.page(page).to_string()),
        Mood::Polite | Mood::Slow => {
            if mood == Mood::Slow {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            let body = state.options.page(page).to_string();
            *state.counters().done.pages.entry(page).or_default() += 1;
            whole(body, page, headers)
        }
    }
}

fn error(status: StatusCode, text: &str) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, JSON)],
        json!({ "error": text }).to_string(),
    )
        .into_response()
}

const JSON: &str = "application/json";

fn throttle(wait_s: u64, as_date: bool) -> Response {
    let mut response = error(StatusCode::TOO_MANY_REQUESTS, "slow down");
    let date = |time: Duration| httpdate::fmt_http_date(UNIX_EPOCH + time);
    let now = SystemClock.unix();
    let wait = if as_date {
        date(now + Duration::from_secs(wait_s))
    } else {
        wait_s.to_string()
    };
    for (name, value) in [(header::DATE, date(now)), (header::RETRY_AFTER, wait)] {
        response.headers_mut().insert(
            name,
            value
                .try_into()
                .expect("digits and dates are header values"),
        );
    }
    response
}

/// Announces the full length, sends half of the body and breaks the connection.
fn cut(body: String) -> Response {
    let length = body.len();
    let half = Bytes::from(body).slice(..length / 2);
    let parts = stream::unfold(Some(half), async |half| match half {
        Some(half) => Some((Ok(half), None)),
        None => {
            // Sends the first half before the connection breaks.
            tokio::task::yield_now().await;
            Some((Err(io::Error::other("truncated on purpose")), None))
        }
    });
    let headers = [
        (header::CONTENT_TYPE, JSON.to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
    ];
    (headers, Body::from_stream(parts)).into_response()
}

/// A page as it should be; every other one compressed for a client that can read it.
fn whole(body: String, page: u64, headers: &HeaderMap) -> Response {
    let takes_gzip = headers
        .get(header::ACCEPT_ENCODING)
        .is_some_and(|value| value.as_bytes().windows(4).any(|word| word == b"gzip"));
    if page % 2 == 1 && takes_gzip {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let zipped = encoder
            .write_all(body.as_bytes())
            .and_then(|()| encoder.finish());
        let zipped = zipped.expect("writing to memory does not fail");
        return (
            [
                (header::CONTENT_TYPE, JSON),
                (header::CONTENT_ENCODING, "gzip"),
            ],
            zipped,
        )
            .into_response();
    }
    ([(header::CONTENT_TYPE, JSON)], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(query: &str) -> Options {
        Options::parse(&format!("demo://market?{query}")).unwrap()
    }

    #[test]
    fn the_url_gives_all_settings_and_refuses_others() {
        let options = options("seed=1&rows=2&page_size=3&rude=false&drift=false&latency_ms=4");
        let market = Market {
            seed: 1,
            rows: 2,
            drift: false,
        };
        let latency = Duration::from_millis(4);
        assert_eq!(
            options,
            Options {
                market,
                page_size: 3,
                rude: false,
                latency
            }
        );
        for bad in [
            "market?page_size=0",
            "market?rows=x",
            "market?rude=1",
            "market?sead=1",
            "market/x",
            "shop",
        ] {
            assert!(Options::parse(&format!("demo://{bad}")).is_err(), "{bad}");
        }
        assert!(
            Options::parse("demo://market?sead=1")
                .unwrap_err()
                .contains("`sead`")
        );
    }

    #[test]
    fn cursors_lead_through_all_pages_and_others_are_refused() {
        let options = options("rows=250");
        assert_eq!(options.pages(), 3);
        let (mut at, mut rows) = (Some(0), 0);
        while let Some(page) = at {
            let body = options.page(page);
            rows += body["data"]["items"].as_array().unwrap().len();
            at = body["paging"]["next_cursor"]
                .as_str()
                .map(|cursor| options.page_at(cursor).unwrap());
        }
        assert_eq!(rows, 250);
        let other = Options {
            page_size: 10,
            ..options
        };
        for bad in [
            "",
            "x",
            "ü",
            &options.cursor(3),
            &other.cursor(1),
            &options.cursor(1).to_uppercase(),
        ] {
            assert_eq!(options.page_at(bad), None, "{bad}");
        }
    }

    #[test]
    fn misbehaviour_has_its_shares_and_ends_at_the_fourth_request() {
        let share = |is: fn(Mood) -> bool| {
            (0..50_000).filter(|&page| is(Mood::at(7, page, 0))).count() as f64 / 5e4
        };
        let near = |share: f64, wanted: f64| {
            assert!((share - wanted).abs() < 0.003, "{share} is not {wanted}")
        };
        near(share(|mood| matches!(mood, Mood::Throttle { .. })), 0.03);
        near(
            share(|mood| matches!(mood, Mood::Throttle { wait_s: 1, .. })),
            0.009,
        );
        near(
            share(|mood| matches!(mood, Mood::Throttle { as_date: true, .. })),
            0.015,
        );
        near(share(|mood| mood == Mood::Unavailable), 0.03);
        near(share(|mood| mood == Mood::Cut), 0.02);
        near(share(|mood| mood == Mood::Html), 0.01);
        near(share(|mood| mood == Mood::Slow), 0.01);
        assert!((0..10_000).all(|page| Mood::at(7, page, 3) == Mood::Polite));
    }

    #[tokio::test]
    async fn a_page_is_the_same_from_every_server_and_counted() {
        let url = "demo://market?seed=11&rows=40&page_size=10&rude=false";
        let (first, second) = (serve(url).await.unwrap(), serve(url).await.unwrap());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let cursor = options("seed=11&rows=40&page_size=10").cursor(2);
        let get = async |server: &DemoServer, query: &str| {
            let mut url = server.url.clone();
            url.set_query(Some(query));
            client.get(url).send().await.unwrap()
        };
        let page = format!("cursor={cursor}");
        let body = get(&first, &page).await.text().await.unwrap();
        assert_eq!(body, get(&second, &page).await.text().await.unwrap());
        assert_eq!(get(&first, "cursor=zzz").await.status(), 400);
        let stats = first.stats();
        assert_eq!(stats.requests, 2);
        assert_eq!(stats.statuses, BTreeMap::from([(200, 1), (400, 1)]));
        assert_eq!(stats.pages, BTreeMap::from([(2, 1)]));
    }

    #[test]
    fn the_rude_seed_has_every_kind_of_fault_and_no_long_wait() {
        let is_good = |seed: &u64| {
            let at = |asked| (0..60).map(move |page| Mood::at(*seed, page, asked));
            let throttle = |as_date| Mood::Throttle { wait_s: 0, as_date };
            let mut wanted = [
                throttle(false),
                throttle(true),
                Mood::Unavailable,
                Mood::Cut,
                Mood::Html,
            ]
            .into_iter();
            let is_quick = |mood| !matches!(mood, Mood::Slow | Mood::Throttle { wait_s: 1, .. });
            (0..3).flat_map(at).all(is_quick) && wanted.all(|mood| at(0).any(|other| other == mood))
        };
        assert_eq!((0..).find(is_good), Some(RUDE_SEED));
    }

    #[tokio::test]
    async fn a_dropped_server_is_gone() {
        let server = serve("demo://market").await.unwrap();
        let address = server.url.socket_addrs(|| None).unwrap()[0];
        assert!(tokio::net::TcpStream::connect(address).await.is_ok());
        drop(server);
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
