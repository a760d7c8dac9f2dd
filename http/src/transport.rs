//! Connections to servers: clients, bodies of responses, and their failures.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use bytes::Bytes;
use feedline_schemas::{
    config::{ResetUnit, RetryConfig},
    report::Warning,
};
use reqwest::{
    Client, ClientBuilder, Response, StatusCode,
    header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER},
};
use tokio::sync::OnceCell;
use url::Url;

use crate::{
    classification::{
        ANSWERED, BODY_ADVICE, ENCODING_ADVICE, PROXY_ADVICE, PUBLIC_ADVICE, REFUSAL_ADVICE,
        advice, has_cause, is_refusal, is_transient, is_untrusted, is_used_up, root_cause,
        terminal, transient, transient_response,
    },
    clock::Clock,
    context::RequestContext,
    encoding::{self, BodyEncoding},
    error::Error,
    failed_response::{BodyStart, EXCERPT_BYTES},
    guard::{self, Guard, Lookup, REFUSED, Verdict, is_refused_host},
    hosts::{Quota, quota},
    http_cause::HttpCause,
    pace::Pace,
    proxy,
    redact::Secretive,
    retry::failed_try::{Again, Failure},
    retry_after::retry_after,
    store_connector::USER_AGENT,
    tls::Tls,
};

/// Largest head of a response over HTTP/2, about the limit of HTTP/1.1. The library's is 16 KiB.
const MAX_HEADER_BYTES: u32 = 256 << 10;

/// Connections to the servers of one source, and what their responses have in common.
pub(crate) struct Transport {
    /// Client for configured hosts.
    configured: OnceCell<Client>,
    /// Client for hosts that come from data: their names must resolve to public addresses.
    guarded: OnceCell<Client>,
    pub(crate) guard: Guard,
    pub(crate) lookup: Lookup,
    /// True if proxies from the environment must not be used for the configured hosts.
    pub(crate) no_proxy: bool,
    /// True if such a proxy may resolve the host names that data lead to.
    pub(crate) trust_proxy: bool,
    pub(crate) tls: Tls,
    pub(crate) limits: RetryConfig,
    pub(crate) reset_unit: ResetUnit,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) secretive: Secretive,
    /// Requests sent so far, each hop of a redirect counted.
    pub(crate) requests: AtomicU64,
    /// Decisions for the report, one of each code.
    pub(crate) notices: Mutex<Vec<Warning>>,
}

impl Transport {
    /// Creates a transport that lets requests go where `guard` allows.
    pub(crate) fn new(guard: Guard, limits: &RetryConfig, context: &RequestContext) -> Self {
        Self {
            configured: OnceCell::new(),
            guarded: OnceCell::new(),
            guard,
            lookup: guard::system(),
            no_proxy: false,
            trust_proxy: false,
            tls: Tls::default(),
            limits: limits.clone(),
            reset_unit: ResetUnit::default(),
            clock: Arc::clone(&context.clock),
            secretive: Secretive::default(),
            requests: AtomicU64::new(0),
            notices: Mutex::default(),
        }
    }

    /// Adds a decision to the report, unless it has one of this code.
    pub(crate) fn notice(&self, code: &'static str, key: &str, message: String) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.iter().all(|notice| notice.code != code) {
            notices.push(Warning::new(code, message).with_key(key));
        }
    }

    pub(crate) fn quota(&self, headers: &HeaderMap) -> Option<Quota> {
        quota(headers, self.reset_unit, self.clock.unix())
    }

    /// The client for `url`.
    pub(crate) async fn client(&self, url: &Url) -> Result<&Client, Failure> {
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
            Verdict::Refuse => return Err(terminal(url, REFUSED, PUBLIC_ADVICE)),
        };
        client.map_err(|error| Failure {
            error: Box::new(error),
            again: Again::Never,
        })
    }

    /// Returns true if a request to `url` bypasses the proxy because data lead to it.
    fn goes_without_proxy(&self, url: &Url) -> bool {
        !self.trust_proxy && self.guard.judge(url) == Verdict::Resolve
    }

    /// Reads the complete body, decompressed.
    pub(crate) async fn whole(&self, url: &Url, response: Response) -> Result<Bytes, Failure> {
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
    pub(crate) fn keeps_up(&self, url: &Url, pace: &mut Pace, bytes: usize) -> Result<(), Failure> {
        pace.came(bytes as u64).map_err(|few| {
            let least = self.limits.min_bytes_per_s;
            let what = format!(
                "the body arrived too slowly: {few} bytes in 10 s, less than `retry.min_bytes_per_s` = {least}"
            );
            transient(url, what)
        })
    }

    /// Wait that a response asks for: by `Retry-After`, or until the reset of a used-up quota.
    pub(crate) fn asked_wait(
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
    pub(crate) async fn refused(&self, url: &Url, response: Response) -> Failure {
        self.refused_with_start(url, response).await.0
    }

    /// The same, with the start of the body.
    pub(crate) async fn refused_with_start(
        &self,
        url: &Url,
        mut response: Response,
    ) -> (Failure, Vec<u8>) {
        let status = response.status();
        let quota = self.quota(response.headers());
        let asked = self.asked_wait(status, response.headers(), quota);
        let is_transient =
            is_transient(status) || is_used_up(status, quota) || status == StatusCode::ACCEPTED;
        let advice = proxy::advice(status, response.headers()).unwrap_or_else(|| advice(status));
        let mut start = BodyStart {
            bytes: Vec::new(),
            is_truncated: true,
        };
        while start.is_truncated && start.bytes.len() < EXCERPT_BYTES {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    let chunk = &chunk[..chunk.len().min(EXCERPT_BYTES)];
                    start.bytes.extend_from_slice(chunk);
                }
                Ok(None) => start.is_truncated = false,
                Err(_) => break,
            }
        }
        let excerpt = self.secretive.excerpt_of_start(&start);
        let start = start.bytes;
        let what = format!("{ANSWERED} {status}{excerpt}");
        let cause = HttpCause::Status(status.as_u16());
        if !is_transient {
            let mut failure = terminal(url, what, advice).caused_by(cause);
            failure.again = match status {
                StatusCode::BAD_REQUEST | StatusCode::GONE => Again::Gone,
                StatusCode::NOT_FOUND => Again::Absent,
                _ => Again::Never,
            };
            return (failure, start);
        }
        let unasked = if status == StatusCode::TOO_MANY_REQUESTS {
            Again::Unprocessed
        } else {
            Again::Backoff
        };
        let failure = Failure {
            again: asked.map_or(unasked, Again::After),
            ..transient_response(url, status, quota, what).caused_by(cause)
        };
        (failure, start)
    }

    /// Converts an error below HTTP into a failure.
    pub(crate) fn broken(&self, url: &Url, error: reqwest::Error) -> Failure {
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
            () if is_untrusted(&cause) => {
                return terminal(
                    url,
                    cause,
                    "check the server's certificate and this machine's clock and root certificates, or name an own certificate authority in the source's `tls.ca`",
                );
            }
            () if is_refusal(&cause) => return terminal(url, cause, REFUSAL_ADVICE),
            () if is_refused_host(&error) => return terminal(url, cause, PUBLIC_ADVICE),
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

/// Over TLS, HTTP/2 where the server has it, else HTTP/1.1; in clear text HTTP/1.1.
///
/// A timeout ends the connection of HTTP/1.1, but only the request of HTTP/2, and retries would use
/// the same dead connection. Pings end it before the timeout. They are sent during requests only.
pub(crate) fn client(limits: &RetryConfig) -> ClientBuilder {
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

pub(crate) fn built(client: ClientBuilder) -> Result<Client, Error> {
    client
        .build()
        .map_err(|e| Error::config("url", format!("cannot set up a client: {}", root_cause(&e))))
}
