//! One try of one HTTP request: redirects, limits, decompression, and classification of failures.
//!
//! The client follows redirects itself, since the library re-sends custom headers to other hosts
//! and names the previous URL (with its query) in `Referer`. It decompresses itself, since the
//! library has no size limit. It never retries, except that the library sends a request again on a
//! new connection if an HTTP/2 server states that it has not processed it: see [`crate::retry`].
//!
//! A proxy of the environment is used for configured hosts. It resolves names itself, so no address
//! can be checked before it connects. Hosts that come from data are therefore requested without it,
//! unless `trust_proxy` is set.

mod auth;
mod encoding;
#[cfg(test)]
mod faults;
mod for_files;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod headers;
mod pace;
mod page;
mod proxy;
mod redact;
mod redirect;
mod request;
#[cfg(test)]
pub(crate) mod testing;
mod tls;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use feedline_schemas::{
    config::{ResetUnit, RetryConfig, SourceConfig, TextOrSecret},
    report::Warning,
};
pub(crate) use feedline_storage::web::USER_AGENT;
use feedline_storage::{
    clock::Clock,
    web::{self, Guard, Lookup, MAX_REDIRECTS, Tls, Verdict, is_loopback},
};
use reqwest::{
    Client, ClientBuilder, Method, Response, StatusCode,
    header::{ACCEPT_ENCODING, DATE, HeaderMap, HeaderValue, RETRY_AFTER},
};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use url::{Origin, Url};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use self::auth::{Rotated, without_param};
pub(crate) use self::for_files::FileRequests;
pub(crate) use self::page::{Answer, Wanted, unzipped};
pub(crate) use self::redact::redacted;
pub(crate) use self::request::{Request, RequestBody};
pub(crate) use self::tls::certificates;
use self::{
    auth::{Auth, Proof},
    encoding::BodyEncoding,
    pace::Pace,
    redact::Secretive,
};
use crate::{
    context::Context,
    error::Error,
    hosts::{Hosts, Pacing, Quota, Refused, Turn, quota},
    meter::{Meter, Meters},
    notices::Notices,
    retry::{Again, Failure, retry_after},
    server_time::ServerTime,
};

/// Prefix of a failure with a response; its status follows.
pub(crate) const ANSWERED: &str = "the server answered";
/// Prefix of a failure where a circuit suppressed the request.
pub(crate) const DOWN: &str = "its host failed";
/// Bytes read of the body of an error, to show its beginning.
const EXCERPT_BYTES: usize = 2_048;
/// Largest head of a response over HTTP/2, about the limit of HTTP/1.1. The library's is 16 KiB.
const MAX_HEADER_BYTES: u32 = 256 << 10;

/// A client for one source.
pub(crate) struct Http {
    /// Client for configured hosts.
    configured: OnceCell<Client>,
    /// Client for hosts that come from data: their names must resolve to public addresses.
    guarded: OnceCell<Client>,
    guard: Guard,
    lookup: Lookup,
    /// True if proxies from the environment must not be used for the configured hosts.
    no_proxy: bool,
    /// True if such a proxy may resolve the host names that data lead to.
    trust_proxy: bool,
    tls: Tls,
    /// Sent to `origin` only.
    headers: HeaderMap,
    origin: Origin,
    /// Hash of the secrets in `headers` and `auth`.
    credential: u128,
    /// `Accept` header.
    accept: &'static str,
    limits: RetryConfig,
    hosts: Arc<Hosts>,
    pacing: Pacing,
    meters: Arc<Meters>,
    meter: Arc<Meter>,
    reset_unit: ResetUnit,
    /// Requests of this client at a time, over all hosts.
    slots: Semaphore,
    seed: u64,
    clock: Arc<dyn Clock>,
    secretive: Secretive,
    /// Query parameters whose values are shown in messages.
    shown_params: Vec<String>,
    auth: Auth,
    requests: AtomicU64,
    server_time: ServerTime,
    notices: Notices,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Http");
        shown
            .field("origin", &self.origin)
            .field("guard", &self.guard);
        shown.finish_non_exhaustive()
    }
}

/// A response with a complete body.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    /// URL of the response after redirects.
    pub(crate) url: Url,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Decompressed.
    pub(crate) body: Bytes,
}

impl Http {
    /// Creates a client that sends `headers` to the origin of `base`. That host may have any
    /// address. Other hosts must have public addresses, at every redirect: data must not lead into
    /// the network of this machine.
    ///
    /// # Errors
    /// [`Error::Config`] for a header that cannot be sent or a secret that cannot be found.
    pub(crate) fn new(
        base: &Url,
        headers: &BTreeMap<String, TextOrSecret>,
        limits: &RetryConfig,
        context: &Context,
    ) -> Result<Self, Error> {
        let mut secretive = Secretive::default();
        secretive.add_url(base);
        let resolved = headers::resolve(headers, context, &mut secretive)?;
        let mut guard = Guard::default();
        guard.configure(base);
        Ok(Self {
            credential: headers::credential(headers, &resolved),
            headers: resolved,
            origin: base.origin(),
            secretive,
            no_proxy: is_loopback(base),
            ..Self::plain(guard, "application/json", limits, context)
        })
    }

    /// Creates a client for image URLs from data, without any configured header. Unless `private`,
    /// only public hosts are requested.
    pub(crate) fn for_images(private: bool, limits: &RetryConfig, context: &Context) -> Self {
        Self {
            no_proxy: private,
            ..Self::plain(Guard::new(private), "image/*, */*;q=0.1", limits, context)
        }
    }

    fn plain(guard: Guard, accept: &'static str, limits: &RetryConfig, context: &Context) -> Self {
        let seed = xxh3_64(context.run_id.as_bytes());
        Self {
            configured: OnceCell::new(),
            guarded: OnceCell::new(),
            guard,
            lookup: web::system(),
            no_proxy: false,
            trust_proxy: false,
            tls: Tls::default(),
            headers: HeaderMap::new(),
            origin: Origin::new_opaque(),
            credential: 0,
            accept,
            limits: limits.clone(),
            hosts: Arc::clone(&context.hosts),
            pacing: Pacing::new(&Default::default(), limits, seed),
            meters: Arc::clone(&context.meters),
            meter: Arc::default(),
            reset_unit: ResetUnit::default(),
            slots: Semaphore::new(Semaphore::MAX_PERMITS),
            seed,
            clock: Arc::clone(&context.clock),
            secretive: Secretive::default(),
            shown_params: Vec::new(),
            auth: Auth::None,
            requests: AtomicU64::new(0),
            server_time: ServerTime::default(),
            notices: Notices::default(),
        }
    }

    /// Sets the `Accept` header.
    pub(crate) fn accepting(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    /// Applies the rate limits of `config`, with at most `concurrency` requests at a time.
    pub(crate) fn with_manners(mut self, config: &SourceConfig, concurrency: usize) -> Self {
        self.meter = self.meters.of(config.name.as_str());
        let pacing = Pacing::new(&config.limits, &self.limits, self.seed);
        self.pacing = pacing.metered(Arc::clone(&self.meter));
        self.reset_unit = config.limits.reset_unit;
        self.guard.let_in(&config.private_hosts);
        self.trust_proxy = config.trust_proxy;
        self.slots = Semaphore::new(concurrency);
        self
    }

    /// Judges no address: another client sends the requests, and judges where they go.
    pub(crate) fn trusting(mut self) -> Self {
        self.guard = Guard::new(true);
        self
    }

    /// Allows any address for the origin of `url`, which the configuration names.
    pub(crate) fn configure(&mut self, url: &Url) {
        self.guard.configure(url);
    }

    /// Allows any address and port for `host`, which the configuration names.
    pub(crate) fn configure_host(&mut self, host: &str) {
        self.guard.configure_host(host);
    }

    /// Shows the values of the query parameters `names` in messages: they identify the request.
    pub(crate) fn show_params(&mut self, names: impl IntoIterator<Item = String>) {
        self.shown_params.extend(names);
    }

    /// Formats `url` for messages: the values of its query are masked, except for shown parameters.
    pub(crate) fn shown(&self, url: &Url) -> String {
        let is_secret = url
            .query_pairs()
            .any(|(_, value)| self.secretive.is_revealed_by(&value));
        if is_secret {
            return redact::redacted_strictly(url);
        }
        redact::redacted_but(url, &self.shown_params)
    }

    /// Requests sent so far, each hop of a redirect counted.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Decisions of this client for the report.
    pub(crate) fn notices(&self) -> Vec<Warning> {
        self.notices.all()
    }

    /// Clock of the requested servers.
    pub(crate) fn server_time(&self) -> &ServerTime {
        &self.server_time
    }

    /// Fetches the complete body of `url`, decompressed; one try.
    pub(crate) async fn get(&self, url: &Url) -> Result<Bytes, Failure> {
        self.fetch(url).await.map(|got| got.body)
    }

    /// Fetches `url` and returns the response with its headers.
    pub(crate) async fn fetch(&self, url: &Url) -> Result<Got, Failure> {
        self.exchange(&Request::get(url.clone())).await
    }

    /// Sends `request` and returns the response with its headers.
    pub(crate) async fn exchange(&self, request: &Request) -> Result<Got, Failure> {
        let got = self.fetch_changed(request, &HeaderMap::new()).await?;
        Ok(got.expect("only a conditional request can be unchanged"))
    }

    /// Sends `request`, and returns its response if that has changed, by the conditional headers
    /// `conditions`. Returns `None` for status 304, which only a conditional request gets.
    /// Redirected requests are sent without the conditions.
    pub(crate) async fn fetch_changed(
        &self,
        request: &Request,
        conditions: &HeaderMap,
    ) -> Result<Option<Got>, Failure> {
        let url = &request.url;
        let fetched = self.follow(request, conditions).await;
        fetched.map_err(|mut failure| {
            if let Error::Http { url: named, .. } = &mut *failure.error
                && *named == redacted(url)
            {
                *named = self.shown(url);
            }
            failure
        })
    }

    async fn follow(
        &self,
        request: &Request,
        conditions: &HeaderMap,
    ) -> Result<Option<Got>, Failure> {
        let mut at = request.clone();
        for hop in 0..=MAX_REDIRECTS {
            let headers = Some(conditions).filter(|_| hop == 0).cloned();
            let headers = headers.unwrap_or_default();
            let is_asked = !headers.is_empty();
            let (_slot, mut turn) = self.turn(&at.url).await?;
            let hop = self.in_time(&at.url, async {
                let response = self.send_proved(&at, headers, &mut turn).await?;
                if is_asked && response.status() == StatusCode::NOT_MODIFIED {
                    return Ok(Hop::Unchanged);
                }
                match redirect::target(&at.url, response.status(), response.headers())? {
                    Some(next) => {
                        redirect::check_resent(&at, response.status(), &next)?;
                        Ok(Hop::On(self.without_proof(next)))
                    }
                    None => self.read(at.url.clone(), response).await.map(Hop::Got),
                }
            });
            let hop = hop.await;
            match turn.settle(hop)? {
                Hop::Got(got) => return Ok(Some(got)),
                Hop::Unchanged => return Ok(None),
                Hop::On(next) => at.url = next,
            }
        }
        let what = format!(
            "it redirects more than {MAX_REDIRECTS} times, lastly to `{}`",
            redacted(&at.url)
        );
        Err(terminal(
            &request.url,
            what,
            "set the source's `url` to the final URL",
        ))
    }

    /// Runs `work` on `url` with a time limit.
    async fn in_time<T>(
        &self,
        url: &Url,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = self.limits.total_timeout_ms;
        let done = tokio::time::timeout(Duration::from_millis(limit), work).await;
        done.unwrap_or_else(|_| {
            let what = format!("it took longer than `retry.total_timeout_ms` = {limit}");
            Err(transient(url, what))
        })
    }

    /// Waits until a request to the host of `url` may be sent.
    async fn turn(&self, url: &Url) -> Result<(SemaphorePermit<'_>, Turn), Failure> {
        if self.guard.judge(url) == Verdict::Refuse {
            return Err(terminal(url, web::REFUSED, PUBLIC_ADVICE));
        }
        let is_home = url.origin() == self.origin;
        let credential = if is_home { self.credential } else { 0 };
        let host = self.hosts.of(&url.origin(), credential);
        loop {
            let turn = host.turn(&self.pacing).await;
            let turn = turn.map_err(|refused| self.not_now(url, &refused))?;
            let slot = self.slots.acquire().await;
            let slot = slot.expect("the semaphore is never closed");
            // The host may have asked for a delay during the wait for the semaphore.
            if !turn.is_over() {
                return Ok((slot, turn));
            }
        }
    }

    fn not_now(&self, url: &Url, refused: &Refused) -> Failure {
        let (what, again) = match refused {
            Refused::Wait(left) => (
                "its host asked for a wait in an earlier response, and it is not over".to_owned(),
                Again::After(*left),
            ),
            Refused::Down(failures, left) => (
                format!(
                    "{DOWN} {failures} times in a row (`retry.circuit_failures` = {}) and gets no request for {} s",
                    self.limits.circuit_failures,
                    left.as_secs()
                ),
                Again::Unprocessed,
            ),
        };
        Failure {
            again,
            ..transient(url, what)
        }
    }

    /// Sends a request with `headers`, and the configured ones where they belong. Records the
    /// response head in `turn`.
    async fn send(
        &self,
        request: &Request,
        mut headers: HeaderMap,
        proof: &Proof,
        turn: &mut Turn,
    ) -> Result<Response, Failure> {
        let url = &request.url;
        let client = self.client(url).await?;
        headers.extend(request.content_type());
        if url.origin() == self.origin {
            headers.extend(self.headers.clone());
            request.add_headers(&mut headers);
        }
        proof.sign(&mut headers);
        headers.insert(
            ACCEPT_ENCODING,
            HeaderValue::from_static(encoding::ACCEPTED),
        );
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut sent = client.request(request.method.clone(), proof.target(url));
        match &request.body {
            Some(body) => sent = sent.body(body.bytes.clone()),
            // An empty one, so that its length is sent.
            None if request.method != Method::GET => sent = sent.body(Bytes::new()),
            None => {}
        }
        let response = sent.headers(headers).send().await;
        let answered = response
            .as_ref()
            .ok()
            .map(|answer| answer.status().as_u16());
        self.meter.asked(answered);
        let response = response.map_err(|e| self.broken(url, e))?;
        self.server_time.note(response.headers(), self.clock.unix());
        turn.answered(response.status(), self.quota(response.headers()));
        Ok(response)
    }

    fn quota(&self, headers: &HeaderMap) -> Option<Quota> {
        quota(headers, self.reset_unit, self.clock.unix())
    }

    /// The client for `url`.
    async fn client(&self, url: &Url) -> Result<&Client, Failure> {
        let client = match self.guard.judge(url) {
            Verdict::Configured => {
                let setup = async {
                    let client = self.tls.add_to(client(&self.limits), true);
                    built(if self.no_proxy {
                        client.no_proxy()
                    } else {
                        client
                    })
                };
                self.configured.get_or_try_init(|| setup).await
            }
            Verdict::Resolve => {
                let resolver = Arc::new(self.guard.resolver(&self.lookup));
                let setup = async {
                    let client = self.tls.add_to(client(&self.limits), false);
                    let client = client.dns_resolver(resolver);
                    // A proxy would resolve the name itself, and connect to any address.
                    built(if self.trust_proxy {
                        client
                    } else {
                        client.no_proxy()
                    })
                };
                self.guarded.get_or_try_init(|| setup).await
            }
            Verdict::Refuse => return Err(terminal(url, web::REFUSED, PUBLIC_ADVICE)),
        };
        client.map_err(|error| Failure {
            error: Box::new(error),
            again: Again::Never,
        })
    }

    /// Keeps `secret` out of messages, archives and the log.
    pub(crate) fn hide(&mut self, secret: &str) {
        self.secretive.add_proof(secret);
        self.secretive.mask(secret);
    }

    /// Returns true if a request to `url` bypasses the proxy because data lead to it.
    fn goes_without_proxy(&self, url: &Url) -> bool {
        !self.trust_proxy && self.guard.judge(url) == Verdict::Resolve
    }

    async fn read(&self, url: Url, response: Response) -> Result<Got, Failure> {
        let status = response.status();
        // Status 202 means that the result does not exist yet: its body is no page.
        if !status.is_success() || status == StatusCode::ACCEPTED {
            return Err(self.refused(&url, response).await);
        }
        let headers = response.headers().clone();
        let body = self.whole(&url, response).await?;
        Ok(Got {
            url,
            status,
            headers,
            body,
        })
    }

    /// ``: `text` `` for a message, on one line, shortened, and with every secret masked.
    pub(crate) fn excerpt(&self, text: &str) -> String {
        self.secretive.excerpt(text.as_bytes())
    }

    /// Returns `body` with a mask in place of each sent secret, and the number of masks.
    pub(crate) fn masked(&self, body: &Bytes) -> (Bytes, u32) {
        self.secretive.masked(body)
    }

    /// Origin that headers and credentials are sent to.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Reads the complete body, decompressed.
    async fn whole(&self, url: &Url, response: Response) -> Result<Bytes, Failure> {
        let limit = self.limits.max_body_bytes.bytes();
        let encoding = BodyEncoding::of(response.headers()).map_err(|named| {
            let what = format!("the body is encoded as `{}`", named.escape_debug());
            terminal(url, what, ENCODING_ADVICE)
        })?;
        let body = self.body(url, response, limit).await?;
        let Some(encoding) = encoding else {
            return Ok(body);
        };
        let name = encoding.name();
        let decoded = encoding.decode(&body, limit);
        decoded.map(Bytes::from).map_err(|e| match e {
            encoding::Error::Damaged(reason) => transient(
                url,
                format!("the {name} body cannot be decompressed: {reason}"),
            ),
            encoding::Error::Bomb(bytes) => terminal(
                url,
                format!(
                    "the {name} body of {} bytes inflates to more than {bytes} bytes",
                    body.len()
                ),
                BODY_ADVICE,
            ),
        })
    }

    /// The body as it is sent. A body shorter than announced is a failure of the connection.
    async fn body(&self, url: &Url, mut response: Response, limit: u64) -> Result<Bytes, Failure> {
        let announced = response.content_length();
        let mut body = Vec::new();
        let mut pace = Pace::new(self.limits.min_bytes_per_s.get());
        loop {
            if (body.len() as u64).max(announced.unwrap_or(0)) > limit {
                let what = format!("the body is larger than `retry.max_body_bytes` = {limit}");
                return Err(terminal(url, what, BODY_ADVICE));
            }
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    self.keeps_up(url, &mut pace, chunk.len())?;
                    body.extend_from_slice(&chunk);
                }
                Ok(None) => return Ok(body.into()),
                Err(e) => return Err(self.broken(url, e)),
            }
        }
    }

    /// Returns a failure if a body arrives too slowly.
    fn keeps_up(&self, url: &Url, pace: &mut Pace, bytes: usize) -> Result<(), Failure> {
        pace.came(bytes as u64).map_err(|few| {
            let least = self.limits.min_bytes_per_s;
            let what = format!(
                "the body arrived too slowly: {few} bytes in 10 s, less than `retry.min_bytes_per_s` = {least}"
            );
            transient(url, what)
        })
    }

    /// Wait that a response asks for: by `Retry-After`, or until the reset of a used-up quota.
    fn asked_wait(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        quota: Option<Quota>,
    ) -> Option<Duration> {
        let text = |name| {
            let value = headers.get(name);
            value.and_then(|value: &HeaderValue| value.to_str().ok())
        };
        let asked = text(RETRY_AFTER).and_then(|v| retry_after(v, text(DATE), self.clock.unix()));
        let used_up = quota.filter(|quota| quota.left == 0 || status.as_u16() == 429);
        asked.or(used_up.map(|quota| quota.reset))
    }

    /// Converts a response other than success into a failure.
    async fn refused(&self, url: &Url, mut response: Response) -> Failure {
        let status = response.status();
        let quota = self.quota(response.headers());
        let asked = self.asked_wait(status, response.headers(), quota);
        let is_transient =
            is_transient(status) || is_used_up(status, quota) || status == StatusCode::ACCEPTED;
        let advice = proxy::advice(status, response.headers()).unwrap_or_else(|| advice(status));
        let mut start = Vec::new();
        while start.len() < EXCERPT_BYTES
            && let Ok(Some(chunk)) = response.chunk().await
        {
            start.extend_from_slice(&chunk[..chunk.len().min(EXCERPT_BYTES)]);
        }
        let what = format!("{ANSWERED} {status}{}", self.secretive.excerpt(&start));
        if !is_transient {
            let mut failure = terminal(url, what, advice);
            failure.again = match status {
                StatusCode::BAD_REQUEST | StatusCode::GONE => Again::Gone,
                StatusCode::NOT_FOUND => Again::Absent,
                _ => Again::Never,
            };
            return failure;
        }
        let unasked = if status == StatusCode::TOO_MANY_REQUESTS {
            Again::Unprocessed
        } else {
            Again::Backoff
        };
        Failure {
            again: asked.map_or(unasked, Again::After),
            ..transient(url, what)
        }
    }

    /// Converts an error below HTTP into a failure.
    fn broken(&self, url: &Url, error: reqwest::Error) -> Failure {
        let RetryConfig {
            connect_timeout_ms,
            read_timeout_ms,
            ..
        } = self.limits;
        if let Some(failure) = proxy::failure(url, &error) {
            return failure;
        }
        let cause = root_cause(&error);
        let is_unsent = error.is_connect();
        let what = match () {
            () if error.is_timeout() && error.is_connect() => {
                format!(
                    "connecting took longer than `retry.connect_timeout_ms` = {connect_timeout_ms}"
                )
            }
            () if has_cause(&error, "keep-alive timed out") => {
                "the server did not respond to a ping, so the connection was closed".into()
            }
            () if error.is_timeout() => {
                format!(
                    "the server was silent for longer than `retry.read_timeout_ms` = {read_timeout_ms}"
                )
            }
            // The one failure to connect that does not heal by itself.
            () if cause.contains("invalid peer certificate") => {
                return terminal(
                    url,
                    cause,
                    "check the server's certificate and this machine's clock and root certificates, or name an own certificate authority in the source's `tls.ca`",
                );
            }
            () if tls::is_refusal(&cause) => return terminal(url, cause, tls::REFUSAL_ADVICE),
            () if cause.contains(web::REFUSED) => {
                return terminal(url, cause, PUBLIC_ADVICE);
            }
            () if error.is_builder() => return terminal(url, cause, "check the source's `url`"),
            () if error.is_connect() && self.goes_without_proxy(url) => {
                return Failure {
                    again: Again::Unprocessed,
                    ..terminal(url, format!("cannot connect: {cause}"), PROXY_ADVICE)
                };
            }
            () if error.is_connect() => format!("cannot connect: {cause}"),
            () if error.is_body() || error.is_decode() => {
                format!("the body was truncated: {cause}")
            }
            () => format!("the connection failed: {cause}"),
        };
        let mut failure = transient(url, what);
        if is_unsent {
            failure.again = Again::Unprocessed;
        }
        failure
    }
}

/// A failure that may be gone at the next try.
fn transient(url: &Url, what: String) -> Failure {
    let advice = "check that the server is up and reachable, or run again later: it resumes from the last committed page";
    Failure {
        again: Again::Backoff,
        ..terminal(url, what, advice)
    }
}

/// A permanent failure.
fn terminal(url: &Url, what: impl Into<String>, advice: impl Into<String>) -> Failure {
    let error = Error::Http {
        url: redacted(url),
        what: what.into(),
        advice: advice.into(),
    };
    Failure {
        error: Box::new(error),
        again: Again::Never,
    }
}

/// Next step after a response.
enum Hop {
    Got(Got),
    Unchanged,
    On(Url),
}

/// Over TLS, HTTP/2 where the server has it, else HTTP/1.1; in clear text HTTP/1.1.
///
/// A timeout ends the connection of HTTP/1.1, but only the request of HTTP/2, and retries would use
/// the same dead connection. Pings end it before the timeout. They are sent during requests only.
fn client(limits: &RetryConfig) -> ClientBuilder {
    let ms = Duration::from_millis;
    let ping = ms((limits.read_timeout_ms / 3).clamp(1_000, 20_000));
    Client::builder()
        .user_agent(USER_AGENT)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(ms(limits.connect_timeout_ms))
        .read_timeout(ms(limits.read_timeout_ms))
        .http2_keep_alive_interval(ping)
        .http2_keep_alive_timeout(ping)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
}

fn built(client: ClientBuilder) -> Result<Client, Error> {
    client
        .build()
        .map_err(|e| Error::config("url", format!("cannot set up a client: {}", root_cause(&e))))
}

/// Advice for a failed connection to a host that data lead to.
const PROXY_ADVICE: &str = "the host comes from data, so it is requested without the proxy of the environment; if it is only reachable through that, set the source's `trust_proxy = true`, otherwise check that it is up, or run again later: it resumes from the last committed page";
const PUBLIC_ADVICE: &str = "name it in the source's `private_hosts` if data may lead to it (for the files of rows, `fetch.private` lets them all in)";
const ENCODING_ADVICE: &str =
    "only one of gzip, br, zstd and deflate is supported; ask the server's owner";
const BODY_ADVICE: &str =
    "request smaller pages, or raise `retry.max_body_bytes` if the size is right";

fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 | 407 => {
            "check the credentials in the source's `auth` or `headers` and their permissions"
        }
        404 | 410 => "check the source's `url`",
        _ => "check the source's `url`, `params`, `headers` and `pagination`",
    }
}

fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429)
        || status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
}

/// Returns true if a refusal means that the quota is used up. Some servers use 403 for that.
fn is_used_up(status: StatusCode, quota: Option<Quota>) -> bool {
    status == StatusCode::FORBIDDEN && quota.is_some_and(|quota| quota.left == 0)
}

/// Returns true if one of the causes of `error` has this text.
fn has_cause(error: &reqwest::Error, text: &str) -> bool {
    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| {
        error.source()
    });
    causes.any(|cause| cause.to_string() == text)
}

/// Innermost cause, which names the problem; outer layers only name the place. None of them shows
/// the URL.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if std::ptr::addr_eq(cause, error) {
        "no further details".into()
    } else {
        cause.to_string()
    }
}

#[cfg(test)]
mod tests;
