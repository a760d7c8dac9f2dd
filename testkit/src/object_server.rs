//! An object store over HTTP on loopback that fails on request: ranges, ETags, conditions, and whatever a test asks for.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::Range,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode},
    response::Response,
};
use bytes::Bytes;
use feedline_storage::{
    Store,
    clock::{Clock as _, SystemClock},
};
use futures::{StreamExt as _, stream};
use tokio::sync::oneshot;

/// Fault of a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// This status, and this `Retry-After`.
    Status(u16, Option<&'static str>),
    /// The connection breaks after so many bytes of the body.
    Cut(usize),
    /// The response comes this much later.
    Late(Duration),
    /// One byte at a time, with this time between them.
    Drip(Duration),
    /// No response ever.
    Hang,
    /// The object is to be had elsewhere.
    Redirect,
    /// This byte of the body is wrong.
    Flip(usize),
}

/// A request for an object.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Path of the URL.
    pub path: String,
    /// Bytes asked for.
    pub range: Option<Range<u64>>,
    /// The ETag that the object must have.
    pub if_match: Option<String>,
    /// Requests for the same path and range before this one.
    pub earlier: u64,
    /// Requests of any kind before this one.
    pub number: u64,
    /// Time of the request, by a monotonic clock.
    pub at: Duration,
}

type Rule = Box<dyn Fn(&Asked) -> Fault + Send + Sync>;

/// The server; ends with the value.
#[expect(missing_debug_implementations, reason = "it has a function")]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    objects: Mutex<BTreeMap<String, (Bytes, String)>>,
    rule: Mutex<Arc<Rule>>,
    log: Mutex<Vec<Asked>>,
    /// Time before any response.
    latency: Mutex<Duration>,
}

impl Server {
    /// Starts a server without objects and faults on a free port.
    pub fn start() -> Self {
        let shared = Arc::new(Shared {
            objects: Mutex::default(),
            rule: Mutex::new(Arc::new(Box::new(|_: &Asked| Fault::None))),
            log: Mutex::default(),
            latency: Mutex::default(),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    served = axum::serve(listener, router) => served.unwrap(),
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Self {
            shared,
            address,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Serves all objects of `store` under `/bucket/`.
    pub async fn with_objects_of(store: &Store) -> Self {
        let server = Self::start();
        for listed in store.list("").await.unwrap() {
            server.put(&listed.path, store.get(&listed.path).await.unwrap());
        }
        server
    }

    /// URL of the folder of all objects.
    pub fn url(&self) -> String {
        format!("http://{}/bucket", self.address)
    }

    /// `http://` and the address.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Puts an object, with an ETag of its own.
    pub fn put(&self, path: &str, bytes: Bytes) {
        let etag = format!("\"{:08x}\"", crc32c::crc32c(&bytes));
        self.put_as(path, bytes, etag);
    }

    /// Puts an object with this ETag.
    pub fn put_as(&self, path: &str, bytes: Bytes, etag: String) {
        let mut objects = self.shared.objects.lock().unwrap();
        objects.insert(format!("/bucket/{path}"), (bytes, etag));
    }

    /// The bytes of an object.
    pub fn object(&self, path: &str) -> Bytes {
        self.shared.objects.lock().unwrap()[&format!("/bucket/{path}")]
            .0
            .clone()
    }

    /// Removes an object.
    pub fn remove(&self, path: &str) {
        let mut objects = self.shared.objects.lock().unwrap();
        objects.remove(&format!("/bucket/{path}"));
    }

    /// From now on `rule` decides what happens to requests.
    pub fn set(&self, rule: impl Fn(&Asked) -> Fault + Send + Sync + 'static) {
        *self.shared.rule.lock().unwrap() = Arc::new(Box::new(rule));
    }

    /// Every response takes this long at least.
    pub fn set_latency(&self, latency: Duration) {
        *self.shared.latency.lock().unwrap() = latency;
    }

    /// The requests so far.
    pub fn log(&self) -> Vec<Asked> {
        self.shared.log.lock().unwrap().clone()
    }

    /// Forgets the requests so far, and the rule.
    pub fn forget(&self) {
        self.shared.log.lock().unwrap().clear();
        self.set(|_| Fault::None);
    }

    /// Ends the server; what is asked afterwards is refused.
    pub fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let Some(path) = path.strip_prefix("/moved").or(Some(&path)) else {
        return status(StatusCode::NOT_FOUND);
    };
    if let Some(query) = request.uri().query().filter(|q| q.contains("list-type=2")) {
        return list(&shared, query);
    }
    let is_moved = request.uri().path().starts_with("/moved");
    let (asked, rule) = note(&shared, path, request.headers());
    let fault = rule(&asked);
    let latency = *shared.latency.lock().unwrap();
    if latency > Duration::ZERO {
        tokio::time::sleep(latency).await;
    }
    match fault {
        Fault::Hang => std::future::pending().await,
        Fault::Late(time) => {
            tokio::time::sleep(time).await;
            object(&shared, &asked, request.method(), &Fault::None)
        }
        Fault::Status(code, retry_after) => {
            let mut response = status(StatusCode::from_u16(code).unwrap());
            if let Some(value) = retry_after {
                let headers = response.headers_mut();
                headers.insert("retry-after", value.parse().unwrap());
            }
            response
        }
        Fault::Redirect if !is_moved => {
            let mut response = status(StatusCode::TEMPORARY_REDIRECT);
            let place = format!("/moved{path}").parse().unwrap();
            response.headers_mut().insert("location", place);
            response
        }
        fault => object(&shared, &asked, request.method(), &fault),
    }
}

/// All objects below a prefix, as S3 lists them.
fn list(shared: &Shared, query: &str) -> Response {
    let prefix = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("prefix="));
    let prefix = format!("/bucket/{}", prefix.unwrap_or_default().replace("%2F", "/"));
    let objects = shared.objects.lock().unwrap();
    let below = objects.iter().filter(|(path, _)| path.starts_with(&prefix));
    let contents: String = below
        .map(|(path, (bytes, _))| {
            let key = path.strip_prefix("/bucket/").unwrap();
            format!(
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <Size>{}</Size></Contents>",
                bytes.len()
            )
        })
        .collect();
    let text =
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>");
    Response::new(Body::from(text))
}

fn note(shared: &Shared, path: &str, headers: &HeaderMap) -> (Asked, Arc<Rule>) {
    let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
    let range = text("range").and_then(|range| {
        let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some(start.parse().ok()?..end.parse::<u64>().ok()? + 1)
    });
    let mut log = shared.log.lock().unwrap();
    let same = |other: &&Asked| other.path == path && other.range == range;
    let asked = Asked {
        earlier: log.iter().filter(same).count() as u64,
        number: log.len() as u64,
        path: path.to_owned(),
        range,
        if_match: text("if-match"),
        at: SystemClock.monotonic(),
    };
    log.push(asked.clone());
    (asked, Arc::clone(&shared.rule.lock().unwrap()))
}

fn object(shared: &Shared, asked: &Asked, method: &Method, fault: &Fault) -> Response {
    let object = shared.objects.lock().unwrap().get(&asked.path).cloned();
    let Some((bytes, etag)) = object else {
        return status(StatusCode::NOT_FOUND);
    };
    if asked
        .if_match
        .as_ref()
        .is_some_and(|wanted| *wanted != etag)
    {
        return status(StatusCode::PRECONDITION_FAILED);
    }
    let size = bytes.len() as u64;
    let response = Response::builder()
        .header("etag", etag)
        .header("accept-ranges", "bytes");
    let Some(range) = &asked.range else {
        let response = response.header("content-length", size);
        let body = match method {
            &Method::HEAD => Body::empty(),
            _ => Body::from(bytes),
        };
        return response.body(body).unwrap();
    };
    if range.start >= size {
        return status(StatusCode::RANGE_NOT_SATISFIABLE);
    }
    let end = range.end.min(size);
    let index = |byte: u64| usize::try_from(byte).unwrap();
    let part = bytes.slice(index(range.start)..index(end));
    response
        .status(StatusCode::PARTIAL_CONTENT)
        .header("content-length", part.len())
        .header(
            "content-range",
            format!("bytes {}-{}/{size}", range.start, end - 1),
        )
        .body(body(part, fault))
        .unwrap()
}

fn body(bytes: Bytes, fault: &Fault) -> Body {
    match *fault {
        Fault::Cut(after) => {
            let part = bytes.slice(..after.min(bytes.len().saturating_sub(1)));
            let broken = Err(std::io::Error::other("cut"));
            // What was written before the failure has to leave first.
            let broken = stream::once(async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                broken
            });
            Body::from_stream(stream::once(async { Ok(part) }).chain(broken))
        }
        Fault::Drip(pause) => Body::from_stream(stream::iter(0..bytes.len()).then(move |byte| {
            let byte = bytes.slice(byte..=byte);
            async move {
                tokio::time::sleep(pause).await;
                Ok::<_, std::io::Error>(byte)
            }
        })),
        Fault::Flip(byte) => {
            let mut bytes = bytes.to_vec();
            let byte = byte % bytes.len();
            bytes[byte] ^= 16;
            Body::from(bytes)
        }
        _ => Body::from(bytes),
    }
}

fn status(code: StatusCode) -> Response {
    Response::builder()
        .status(code)
        .body(Body::empty())
        .unwrap()
}
