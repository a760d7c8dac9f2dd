//! Connections of stores of files over http and https: headers, timeouts, and allowed redirects.
//!
//! A proxy from the environment is used for a store's own host. It resolves names itself, so a host
//! that comes from data is requested without it, unless the proxy is trusted. Redirects are
//! followed here and not by the library, which names the previous URL in `Referer` and follows
//! every response. The host of a store's own URL may have any address. Another host must have a
//! public address, checked at connection time, or be named in the options. Writes are not
//! redirected.

mod multistatus;
mod response_status;
pub(crate) mod uncertain_ends;
mod web_folders;
mod webdav;

use std::{
    error::Error as StdError,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::{FutureExt as _, TryStreamExt as _, future::ready};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService,
    },
};
use reqwest::{
    Client, ClientBuilder, Method, StatusCode,
    header::{CONTENT_LENGTH, HeaderMap, RANGE},
    redirect::Policy,
};
use tokio::sync::OnceCell;
use url::{Origin, Url};

use self::response_status::{check_status, lacks_message};
pub use self::{uncertain_ends::UncertainEnds, web_folders::WebFolders};
use crate::{
    failed_response::{BodyStart, mask_failed, with_body_start},
    guard::{Guard, REFUSED, Verdict, is_refused_host, system},
    location::{MAX_REDIRECTS, is_loopback, redacted_location, redirected},
    request_policy::{RequestPolicy, Sent, TryCredentials, innermost},
    tls::Tls,
};

/// User agent with a contact URL.
pub const USER_AGENT: &str = concat!(
    "feedline/",
    env!("CARGO_PKG_VERSION"),
    " (+",
    env!("CARGO_PKG_REPOSITORY"),
    ")"
);

/// Headers that are sent to the origin of the first URL only.
const OWN_HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// Path of a URL that a request is sent to as it is, percent-encoded. An extension of a request, whose own path
/// the client has encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedPath(pub String);

/// Options of requests for files over http and https.
///
/// ```
/// use std::{sync::atomic::Ordering, time::Duration};
///
/// use feedline_http::WebOptions;
///
/// let web = WebOptions {
///     private_hosts: vec!["files.internal".to_owned()],
///     total_timeout: Duration::from_secs(60),
///     ..WebOptions::default()
/// };
/// let of_one_store = web.clone();
/// web.requests.fetch_add(1, Ordering::Relaxed);
/// assert_eq!(of_one_store.requests.load(Ordering::Relaxed), 1);
/// ```
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// Hosts, by name or address, that redirects may lead to although their address is not public.
    pub private_hosts: Vec<String>,
    /// Follows redirects to other hosts through the proxy from the environment, which then resolves
    /// their names for us.
    pub trust_proxy: bool,
    /// Certificates beside those of the system.
    pub tls: Tls,
    /// Time to connect.
    pub connect_timeout: Duration,
    /// Longest silence while reading. It does not apply to
    /// reads that are tried once.
    pub read_timeout: Duration,
    /// Maximum time of one request. It does not apply to
    /// reads that are tried once.
    pub total_timeout: Duration,
    /// Number of sent requests, including each redirect and each retry. Clones share the count.
    pub requests: Arc<AtomicU64>,
    /// Headers of each request to an origin, wherever the store is.
    pub headers: Option<(Origin, HeaderMap)>,
    /// Rates, waits, retries and credentials; a truncated body is a failed try. Default: requests are sent at once, and
    /// repeated as the client does.
    /// It does not apply to reads that are tried once.
    pub policy: Option<Arc<dyn RequestPolicy>>,
    /// Folders of a listing with all levels: those to request, and those that the server left out. Default: all are
    /// requested.
    pub folders: WebFolders,
    /// Files whose end only the end of a connection shows.
    pub uncertain_ends: UncertainEnds,
}

impl Default for WebOptions {
    fn default() -> Self {
        Self {
            private_hosts: Vec::new(),
            trust_proxy: false,
            tls: Tls::default(),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(300),
            requests: Arc::default(),
            headers: None,
            policy: None,
            folders: WebFolders::default(),
            uncertain_ends: UncertainEnds::default(),
        }
    }
}

/// Reason why a request was not sent, or its redirect not followed. A retry would not help.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

fn refused(reason: impl Into<String>) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, Refused(reason.into()))
}

/// Returns the reason of a refusal, if `error` comes from one.
#[must_use]
pub fn refusal(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    let refused = causes.find_map(|error| error.downcast_ref::<Refused>());
    refused.map(ToString::to_string)
}

/// Makes the clients of a store at `home`.
#[derive(Debug)]
pub struct StoreConnector {
    home: Url,
    options: WebOptions,
    /// True if callers have deadlines of their own.
    has_deadline: bool,
}

impl StoreConnector {
    /// Connects to `home` by `options`. If it `has_deadline`, the caller bounds the time of each
    /// request, and repeats it.
    #[must_use]
    pub fn new(home: &Url, options: &WebOptions, has_deadline: bool) -> Self {
        Self {
            home: home.clone(),
            options: options.clone(),
            has_deadline,
        }
    }
}

impl HttpConnector for StoreConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let Self { home, options, .. } = self;
        let mut guard = Guard::default();
        guard.configure(home);
        guard.let_in(&options.private_hosts);
        let own = options.tls.add_to(client(options, self.has_deadline), true);
        let own = if is_loopback(home) {
            own.no_proxy()
        } else {
            own
        };
        let own = own.build().map_err(|e| object_store::Error::Generic {
            store: "HTTP",
            source: Box::new(e),
        })?;
        Ok(HttpClient::new(Asking {
            own: HttpClient::new(own),
            others: OnceCell::new(),
            guard,
            options: options.clone(),
            has_deadline: self.has_deadline,
        }))
    }
}

/// Statuses of a server that does not support the method of a request.
const UNSUPPORTED: [StatusCode; 2] = [StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];

/// Advice where a server does not list its folders.
const NO_LISTING: &str = "check the path and set `url` to a file, one source for each; a folder or a pattern needs a server with WebDAV, or an object store";

/// Returns true if `response` says that the server does not support `HEAD`, or lacks the size of the file or the
/// reason of a failure; `GET` has the same headers, and a body.
fn lacks_head(method: &Method, response: &HttpResponse) -> bool {
    let status = response.status();
    let is_failure = UNSUPPORTED.contains(&status) || lacks_message(status);
    *method == Method::HEAD && (is_failure || lacks_size(response))
}

/// Returns true if the headers of a successful response do not have the size of its body, as of one that the
/// server creates while it sends it.
fn lacks_size(response: &HttpResponse) -> bool {
    response.status().is_success() && !response.headers().contains_key(CONTENT_LENGTH)
}

/// The response to a `GET`, with the size that its headers lack.
async fn with_size(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    if !lacks_size(&response) {
        return Ok(response);
    }
    let (mut head, body) = uncertain_ends::mark(response).into_parts();
    let body = body.bytes().await.map_err(|error| truncated(&error))?;
    head.headers.insert(CONTENT_LENGTH, body.len().into());
    Ok(HttpResponse::from_parts(head, HttpResponseBody::from(body)))
}

/// The headers of the response to a `GET`. The connection ends before the body does, unless only the body
/// shows its size. A failure keeps its body, which may have the reason.
async fn head_of(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    if !response.status().is_success() {
        return Ok(response);
    }
    let is_sized = !lacks_size(&response);
    let (mut head, body) = uncertain_ends::mark(response).into_parts();
    if !is_sized {
        let chunks = body.bytes_stream();
        let bytes = chunks.try_fold(0_u64, |sum, chunk| ready(Ok(sum + chunk.len() as u64)));
        let bytes = bytes.await.map_err(|error| truncated(&error))?;
        head.headers.insert(CONTENT_LENGTH, bytes.into());
    }
    Ok(HttpResponse::from_parts(
        head,
        HttpResponseBody::from(Vec::new()),
    ))
}

/// Returns true for the status of a server that does not list its folders. Other statuses may be of missing
/// credentials, of a missing folder, or of a busy server.
fn refuses_listing(status: StatusCode) -> bool {
    const OTHER: [StatusCode; 6] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::NOT_FOUND,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    UNSUPPORTED.contains(&status) || (status.is_client_error() && !OTHER.contains(&status))
}

/// Refuses the response of a server that does not list folders: another try would not help.
fn check_listing(method: &Method, response: &HttpResponse) -> Result<(), HttpError> {
    if method.as_str() == "PROPFIND" && refuses_listing(response.status()) {
        let status = response.status();
        return Err(refused(format!(
            "`PROPFIND` of WebDAV, which lists a folder, got status {status}: {NO_LISTING}"
        )));
    }
    Ok(())
}

/// A body that broke before its end.
#[derive(Debug, thiserror::Error)]
#[error("the body was truncated: {0}")]
struct TruncatedBody(String);

/// Reads the body of a successful `GET` or `PROPFIND` to its end, so that a truncated one is a failed try. The
/// store would request the rest of a file by its own rules, and only where the server reports a version.
async fn read_body(method: &Method, response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let has_body = ["GET", "PROPFIND"].contains(&method.as_str());
    if !has_body || !response.status().is_success() {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let body = body.bytes().await.map_err(|error| truncated(&error))?;
    Ok(HttpResponse::from_parts(head, HttpResponseBody::from(body)))
}

fn truncated(error: &HttpError) -> HttpError {
    HttpError::new(HttpErrorKind::Interrupted, TruncatedBody(innermost(error)))
}

fn client(options: &WebOptions, has_deadline: bool) -> ClientBuilder {
    // Sizes and ranges refer to the stored bytes, and many connections are better than shared ones.
    let client = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .referer(false)
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .http1_only()
        .connect_timeout(options.connect_timeout);
    if has_deadline {
        return client;
    }
    client
        .read_timeout(options.read_timeout)
        .timeout(options.total_timeout)
}

#[derive(Debug)]
struct Asking {
    /// Client for the store's own host.
    own: HttpClient,
    /// Client for hosts of redirects: their names must resolve to public addresses.
    others: OnceCell<HttpClient>,
    guard: Guard,
    options: WebOptions,
    has_deadline: bool,
}

#[async_trait]
impl HttpService for Asking {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_listing = request.method().as_str() == "PROPFIND";
        let outcome = match is_listing {
            true => self.list(request).await,
            false => self.read_or_write(request).await,
        };
        let Some(policy) = &self.options.policy else {
            return outcome;
        };
        match outcome {
            Ok(answer) => Ok(mask_failed(answer, &policy.secret_masks()).await),
            // The reason may have text of the server, such as a path that it lists.
            Err(error) => Err(match refusal(&error) {
                Some(reason) => refused(policy.secret_masks().mask_message(&reason)),
                None => error,
            }),
        }
    }
}

impl Asking {
    /// Sends a request other than `PROPFIND`, and refuses a response whose status the client has no message for.
    async fn read_or_write(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let method = request.method().clone();
        let has_range = request.headers().contains_key(RANGE);
        let (answer, _) = self.follow(request).await?;
        let policy = self.options.policy.as_deref();
        check_status(&method, has_range, answer, policy).await
    }

    /// Sends `request` and follows redirects. Returns the last response and its URL.
    async fn follow(&self, request: HttpRequest) -> Result<(HttpResponse, Url), HttpError> {
        let mut first =
            Url::parse(&request.uri().to_string()).map_err(|e| refused(e.to_string()))?;
        if let Some(EncodedPath(path)) = request.extensions().get() {
            first.set_path(path);
        }
        let is_read = matches!(request.method().as_str(), "GET" | "HEAD" | "PROPFIND");
        let mut at = first.clone();
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.ask(&first, &at, request.clone()).await?;
            let location = answer.headers().get("location");
            let location = location.and_then(|value| value.to_str().ok());
            let next = if is_read {
                redirected(&at, answer.status().as_u16(), location)
            } else {
                Ok(None)
            };
            match next {
                Ok(None) => {
                    check_listing(request.method(), &answer)?;
                    self.options.uncertain_ends.note(&first, &answer);
                    return Ok((answer, at));
                }
                Ok(Some(next)) => at = next,
                Err(reason) => return Err(refused(format!("{reason}; give the final URL"))),
            }
        }
        Err(refused(format!(
            "it redirects more than {MAX_REDIRECTS} times, lastly to `{}`; give the final URL",
            redacted_location(at.as_str())
        )))
    }

    /// Sends `request` to `at`.
    async fn ask(
        &self,
        first: &Url,
        at: &Url,
        mut request: HttpRequest,
    ) -> Result<HttpResponse, HttpError> {
        let elsewhere = || {
            refused(format!(
                "it redirects to `{}`, and {REFUSED}; give the final URL, or name that host in the source's `private_hosts` if data may lead to it",
                redacted_location(at.as_str())
            ))
        };
        *request.uri_mut() = at
            .as_str()
            .parse()
            .map_err(|_| refused("it redirects to no readable place; give the final URL"))?;
        if at.origin() != first.origin() {
            for name in OWN_HEADERS {
                request.headers_mut().remove(name);
            }
        }
        let own = self.options.headers.as_ref();
        if let Some((_, headers)) = own.filter(|(origin, _)| *origin == at.origin()) {
            request.headers_mut().extend(headers.clone());
        }
        let client = match self.guard.judge(at) {
            Verdict::Configured => &self.own,
            Verdict::Resolve => self.others.get_or_try_init(|| self.guarded()).await?,
            Verdict::Refuse => return Err(elsewhere()),
        };
        match self.send(client, at, request).await {
            Err(error) if is_refused(&error) => Err(elsewhere()),
            answer => answer,
        }
    }

    /// Sends `request`. A `HEAD` whose response lacks something is followed by a `GET`, which is a request of its own: it
    /// has its turn and its credentials, and is counted.
    async fn send(
        &self,
        client: &HttpClient,
        at: &Url,
        mut request: HttpRequest,
    ) -> Result<HttpResponse, HttpError> {
        let wanted = request.method().clone();
        let answer = self.send_one(client, at, request.clone(), &wanted).await?;
        if !lacks_head(&wanted, &answer) {
            return Ok(answer);
        }
        *request.method_mut() = Method::GET;
        self.send_one(client, at, request, &wanted).await
    }

    /// Sends `request` by the rules of the caller, where there are some. A `GET` where a `HEAD` is `wanted` returns the
    /// headers alone.
    async fn send_one(
        &self,
        client: &HttpClient,
        at: &Url,
        request: HttpRequest,
        wanted: &Method,
    ) -> Result<HttpResponse, HttpError> {
        let requests = &self.options.requests;
        let method = request.method().clone();
        let once = |credentials: TryCredentials| async {
            let mut request = request.clone();
            request.headers_mut().extend(credentials.headers);
            if let Some(url) = credentials.url {
                let unsent = |_| refused("a query with credentials cannot be sent");
                *request.uri_mut() = url.as_str().parse().map_err(unsent)?;
            }
            let answer = client.execute(request).await;
            if !answer.as_ref().is_err_and(is_refused) {
                requests.fetch_add(1, Ordering::Relaxed);
            }
            match method == Method::GET {
                true if *wanted == Method::HEAD => head_of(answer?).await,
                true => with_size(answer?).await,
                false => answer,
            }
        };
        let policy = self.options.policy.as_ref().filter(|_| !self.has_deadline);
        let Some(policy) = policy else {
            return once(TryCredentials::default()).await;
        };
        let last = Mutex::new(None);
        let send = |credentials| {
            let sending = async {
                let answer = match once(credentials).await {
                    Ok(answer) => read_body(&method, answer).await,
                    failed => failed,
                };
                let (answer, body_start) = match answer {
                    Ok(answer) => {
                        let (answer, body_start) = with_body_start(answer).await;
                        (Ok(answer), body_start)
                    }
                    failed => (failed, BodyStart::default()),
                };
                let is_unsent = answer.as_ref().is_err_and(is_refused);
                let sent = Sent::of(&answer, body_start, is_unsent);
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                sent
            };
            sending.boxed()
        };
        let sent = policy.send(&method, at, &send).await;
        let last = last.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (sent, last) {
            // Its own message says where it led to.
            (_, Some(Err(error))) if is_refused(&error) => Err(error),
            (Err(reason), _) => Err(refused(reason)),
            (Ok(()), Some(answer)) => answer,
            (Ok(()), None) => Err(refused("no request was sent")),
        }
    }

    async fn guarded(&self) -> Result<HttpClient, HttpError> {
        let resolver = Arc::new(self.guard.resolver(&system()));
        let client = client(&self.options, self.has_deadline).dns_resolver(resolver);
        let client = self.options.tls.add_to(client, false);
        // A proxy would resolve the name itself, and connect to any address it finds.
        let client = if self.options.trust_proxy {
            client
        } else {
            client.no_proxy()
        };
        let client = client.build();
        client
            .map(HttpClient::new)
            .map_err(|e| HttpError::new(HttpErrorKind::Unknown, e))
    }
}

/// Returns true if the [`Resolver`](crate::Resolver) refused.
fn is_refused(error: &HttpError) -> bool {
    is_refused_host(error)
}
