//! A scripted server and other shared parts of the tests of requests.

#![expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed test is the only outcome of an error"
)]

mod served;

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use feedline_schemas::{
    config::{
        Bounded, LimitsConfig, Pagination, PaginationConfig, PaginationKind, RetryConfig,
        SecretRef, SourceConfig, SourceKind,
    },
    ids::Name,
};
use flate2::{
    Compression,
    write::{GzEncoder, ZlibEncoder},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use url::Url;

pub use self::served::Served;
use crate::{
    clock::Clock,
    context::{RequestContext, Secrets},
};

/// Sun, 06 Nov 1994 08:49:37 GMT and some seconds, as long as the test runs.
#[derive(Debug)]
struct Frozen(u64);

impl Clock for Frozen {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn unix(&self) -> Duration {
        Duration::from_secs(784_111_777 + self.0)
    }
}

/// Resolves `{ env = "NAME" }` to `secret-NAME`, and nothing else.
#[derive(Debug)]
struct Echo;

impl Secrets for Echo {
    fn resolve(&self, reference: &SecretRef) -> Result<String, String> {
        let name = reference
            .env
            .as_ref()
            .ok_or("there are no files in this test")?;
        Ok(format!("{}secret-{name}", reference.prefix))
    }
}

/// Clock of a process that begins so many seconds after that of [`context`]. It does not move.
#[must_use]
pub fn clock_after(seconds: u64) -> Arc<dyn Clock> {
    Arc::new(Frozen(seconds))
}

/// Secrets of a test: `{ env = "NAME" }` is `secret-NAME`.
#[must_use]
pub fn secrets() -> Arc<dyn Secrets> {
    Arc::new(Echo)
}

/// Components of requests in a test.
#[must_use]
pub fn context() -> RequestContext {
    RequestContext {
        clock: clock_after(0),
        secrets: secrets(),
        hosts: Arc::default(),
        meter: Arc::default(),
        run_id: "run".into(),
        cancel: watch::channel(false).1,
    }
}

/// Pagination as it is written in a configuration.
pub fn pages(keys: serde_json::Value) -> PaginationConfig {
    serde_json::from_value(keys).unwrap()
}

/// A way from page to page; keys without a default are `x-next`, `t`, `since` and `k`.
pub fn way(kind: PaginationKind) -> Pagination {
    let mut keys = json!({ "type": kind });
    match kind {
        PaginationKind::HeaderCursor => keys["cursor_header"] = "x-next".into(),
        PaginationKind::Keyset => {
            keys["page_size"] = 1.into();
            for (key, value) in [
                ("time_path", "t"),
                ("time_param", "since"),
                ("key_path", "k"),
            ] {
                keys[key] = value.into();
            }
        }
        _ => {}
    }
    pages(keys).way
}

/// The same with another value of one key of its type.
pub fn set_key(config: &mut SourceConfig, key: &str, value: impl Into<serde_json::Value>) {
    fn keys<K: serde::Serialize>(keys: &K) -> serde_json::Value {
        serde_json::to_value(keys).unwrap()
    }
    let way = &mut config.pagination.way;
    let mut all = match &*way {
        Pagination::None(own) => keys(own),
        Pagination::Page(own) => keys(own),
        Pagination::Offset(own) => keys(own),
        Pagination::Cursor(own) => keys(own),
        Pagination::HeaderCursor(own) => keys(own),
        Pagination::Link(own) => keys(own),
        Pagination::NextUrl(own) => keys(own),
        Pagination::Keyset(own) => keys(own),
    };
    all["type"] = keys(&way.kind());
    all["page_size"] = 10_000.into();
    all[key] = value.into();
    *way = pages(all).way;
}

/// A source with records at `items`, cursors at `next` and next to no backoff.
pub fn config(url: &str, r#type: PaginationKind) -> SourceConfig {
    SourceConfig {
        name: Name::new("quotes").unwrap(),
        r#type: SourceKind::Rest,
        url: url.into(),
        records: "items".into(),
        params: BTreeMap::new(),
        headers: BTreeMap::new(),
        method: Default::default(),
        body: None,
        params_in: None,
        idempotent: false,
        graphql: None,
        response: Default::default(),
        pagination: match r#type {
            PaginationKind::Cursor => pages(json!({"type": "cursor", "cursor_path": "next"})),
            kind => PaginationConfig {
                way: way(kind),
                ..PaginationConfig::default()
            },
        },
        retry: RetryConfig {
            base_ms: 1,
            cap_ms: 2,
            max_tries: Bounded::literal::<5>(),
            ..RetryConfig::default()
        },
        // Scripted servers respond in the order of the requests.
        limits: LimitsConfig {
            concurrency: Some(Bounded::literal::<1>()),
            ..LimitsConfig::default()
        },
        private_hosts: Vec::new(),
        trust_proxy: false,
        tls: None,
        crawl: Default::default(),
        page: Default::default(),
        format: Default::default(),
        files: Default::default(),
        csv: Default::default(),
        infer: Default::default(),
        idx: Default::default(),
        text: Default::default(),
        archive: Default::default(),
        fetch: None,
        auth: None,
        incremental: None,
        refresh: Default::default(),
        archive_raw: false,
        slices: None,
        for_each: None,
        error_path: None,
        schedule: None,
        contract: Default::default(),
        batch: Default::default(),
        licence: None,
        key: Vec::new(),
        version: None,
    }
}

/// Encodings of bodies, as headers name them.
pub const ENCODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

/// Compresses `bytes` with one of [`ENCODINGS`].
pub fn encode(encoding: &str, bytes: &[u8]) -> Vec<u8> {
    match encoding {
        "gzip" => gzip(bytes),
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "br" => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4_096, 5, 22);
            encoder.write_all(bytes).unwrap();
            encoder.into_inner()
        }
        "zstd" => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        other => panic!("{other} is no encoding"),
    }
}

/// Compresses `bytes` as a gzip file.
#[must_use]
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Bytes of a response; `head` is the status line and any headers, lines ended by `\r\n`.
pub fn raw(head: &str, body: &[u8]) -> Step {
    let mut bytes = format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").into_bytes();
    bytes.extend_from_slice(body);
    Step::Send(bytes)
}

/// A response with the right length.
pub fn answer(head: &str, body: &str) -> Step {
    raw(
        &format!("{head}\r\nContent-Length: {}", body.len()),
        body.as_bytes(),
    )
}

/// A success with this body.
#[must_use]
pub fn ok(body: &str) -> Step {
    answer("200 OK", body)
}

/// Action of a [`Scripted`] server for a request.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends these bytes and closes the connection.
    Send(Vec<u8>),
    /// Sends a head, then an endless body of one byte per second.
    Drip(Vec<u8>),
    /// Never responds.
    Hang,
    /// Sends these bytes when so many requests have come in all.
    When(usize, Vec<u8>),
}

impl Step {
    /// The same response when so many requests have come in all.
    pub fn when(self, requests: usize) -> Self {
        match self {
            Self::Send(bytes) => Self::When(requests, bytes),
            other => other,
        }
    }
}

/// A server on loopback that takes one step of its script for each request, and repeats the last
/// one.
#[derive(Debug)]
pub struct Scripted {
    /// Address, with `/`.
    pub url: Url,
    heads: Arc<Mutex<Vec<String>>>,
    server: tokio::task::JoinHandle<()>,
}

impl Scripted {
    /// Starts a server that takes the steps of `script`.
    pub async fn start(script: impl IntoIterator<Item = Step>) -> Self {
        let script: Vec<Step> = script.into_iter().collect();
        Self::answering(move |number, _| script[number.min(script.len() - 1)].clone()).await
    }

    /// Starts a server whose responses depend on the number of the request and its head.
    pub async fn answering(answer: impl Fn(usize, &str) -> Step + Send + 'static) -> Self {
        Self::answering_at(0, answer).await
    }

    /// The same at a port; 0 for any.
    pub async fn answering_at(
        port: u16,
        answer: impl Fn(usize, &str) -> Step + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let server = tokio::spawn(async move {
            let mut number = 0;
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let head = head(&mut socket).await;
                // A failing run cancels its pending requests.
                if head.is_empty() {
                    continue;
                }
                let step = answer(number, &head);
                number += 1;
                seen.lock().unwrap().push(head);
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    let step = match step {
                        Step::When(requests, bytes) => {
                            while seen.lock().unwrap().len() < requests {
                                tokio::time::sleep(Duration::from_millis(1)).await;
                            }
                            Step::Send(bytes)
                        }
                        other => other,
                    };
                    take(step, socket).await;
                });
            }
        });
        Self { url, heads, server }
    }

    /// Heads of the requests so far, header names in lower case, with their bodies.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Request targets so far.
    pub fn targets(&self) -> Vec<String> {
        self.heads()
            .iter()
            .map(|head| head.split(' ').nth(1).unwrap().to_owned())
            .collect()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Reads the head of a request and its body; empty when the client is gone before their end.
async fn head(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        match socket.read_u8().await {
            Ok(byte) => bytes.push(byte),
            Err(_) => return String::new(),
        }
    }
    let mut head = String::from_utf8(bytes).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    if socket.read_exact(&mut body).await.is_err() {
        return String::new();
    }
    head.push_str(std::str::from_utf8(&body).unwrap());
    head
}

async fn take(step: Step, mut socket: TcpStream) {
    match step {
        Step::Send(bytes) | Step::When(_, bytes) => {
            // The client may close the connection before the end.
            drop(socket.write_all(&bytes).await);
            drop(socket.shutdown().await);
        }
        Step::Drip(head) => {
            let mut sent = socket.write_all(&head).await;
            while sent.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                sent = socket.write_all(b" ").await;
            }
        }
        Step::Hang => std::future::pending().await,
    }
}

/// Runs `work` and returns its log events of this thread.
pub async fn traced<T>(work: impl Future<Output = T>) -> (String, T) {
    // A second, permanent subscriber. With only one, `tracing` caches a call site first reached by
    // a thread without a subscriber as disabled, and this thread's later events there would be
    // lost.
    static SECOND: LazyLock<tracing::Dispatch> =
        LazyLock::new(|| tracing::Dispatch::new(Lines::default()));
    LazyLock::force(&SECOND);
    let lines = Lines::default();
    let guard = tracing::subscriber::set_default(lines.clone());
    let done = work.await;
    drop(guard);
    let text = lines.0.lock().unwrap().join("\n");
    (text, done)
}

/// A receiver of log lines.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
