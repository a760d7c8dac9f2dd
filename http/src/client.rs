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

pub(crate) mod certificates;
mod credentials;
#[cfg(test)]
mod faults;
pub(crate) mod file_requests;
pub(crate) mod page;

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use feedline_schemas::{
    config::{RetryConfig, SourceConfig, TextOrSecret},
    report::Warning,
};
use reqwest::{
    Method, Response, StatusCode,
    header::{ACCEPT_ENCODING, HeaderMap, HeaderValue},
};
use tokio::sync::{Semaphore, SemaphorePermit};
use url::{Origin, Url};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    auth::{Auth, proof::Proof},
    classification::{PUBLIC_ADVICE, terminal, transient},
    context::RequestContext,
    encoding,
    error::Error,
    guard::{Guard, REFUSED, Verdict},
    headers,
    hosts::{Hosts, Pacing, Refused, Speculation, Turn},
    http_cause::HttpCause,
    location::{MAX_REDIRECTS, is_loopback},
    meter::RequestMeter,
    redact::{self, Secretive, redacted},
    redirect,
    request::Request,
    retry::failed_try::{Again, Failure},
    secret_masks::SecretMasks,
    server_time::ServerTime,
    store_connector::uncertain_ends::has_known_end,
    transport::Transport,
};

/// A client for one source.
pub struct Http {
    pub(crate) transport: Transport,
    /// Sent to `origin` only.
    headers: HeaderMap,
    origin: Origin,
    /// Hash of the secrets in `headers` and `auth`.
    credential: u128,
    /// `Accept` header.
    accept: &'static str,
    hosts: Arc<Hosts>,
    pacing: Pacing,
    /// Meter of the source, for requests under its limits.
    of_source: Arc<RequestMeter>,
    meter: Arc<RequestMeter>,
    /// Requests of this client at a time, over all hosts.
    slots: Semaphore,
    seed: u64,
    /// Query parameters whose values are shown in messages.
    shown_params: Vec<String>,
    auth: Auth,
    server_time: ServerTime,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Http");
        shown
            .field("origin", &self.origin)
            .field("guard", &self.transport.guard);
        shown.finish_non_exhaustive()
    }
}

/// A response with a complete body.
#[derive(Clone, Debug)]
pub struct Got {
    /// URL of the response after redirects.
    pub url: Url,
    /// A success.
    pub status: StatusCode,
    /// Headers of the response.
    pub headers: HeaderMap,
    /// Decompressed.
    pub body: Bytes,
    /// False if only the end of the connection shows the end of the body.
    pub has_known_end: bool,
}

impl Http {
    /// Creates a client that sends `headers` to the origin of `base`. That host may have any
    /// address. Other hosts must have public addresses, at every redirect: data must not lead into
    /// the network of this machine.
    ///
    /// # Errors
    /// [`Error::Config`] for a header that cannot be sent or a secret that cannot be found.
    pub fn new(
        base: &Url,
        headers: &BTreeMap<String, TextOrSecret>,
        limits: &RetryConfig,
        context: &RequestContext,
    ) -> Result<Self, Error> {
        let mut secretive = Secretive::default();
        secretive.add_url(base);
        let resolved = headers::resolve(headers, context, &mut secretive)?;
        let mut guard = Guard::default();
        guard.configure(base);
        let mut http = Self::plain(guard, "application/json", limits, context);
        http.transport.no_proxy = is_loopback(base);
        http.transport.secretive = secretive;
        Ok(Self {
            credential: headers::credential(headers, &resolved),
            headers: resolved,
            origin: base.origin(),
            ..http
        })
    }

    /// Creates a client for image URLs from data, without any configured header. Unless `private`,
    /// only public hosts are requested.
    #[must_use]
    pub fn for_images(private: bool, limits: &RetryConfig, context: &RequestContext) -> Self {
        let accept = "image/*, */*;q=0.1";
        let mut http = Self::plain(Guard::new(private), accept, limits, context);
        http.transport.no_proxy = private;
        http
    }

    fn plain(
        guard: Guard,
        accept: &'static str,
        limits: &RetryConfig,
        context: &RequestContext,
    ) -> Self {
        let seed = xxh3_64(context.run_id.as_bytes());
        Self {
            transport: Transport::new(guard, limits, context),
            headers: HeaderMap::new(),
            origin: Origin::new_opaque(),
            credential: 0,
            accept,
            hosts: Arc::clone(&context.hosts),
            pacing: Pacing::new(&Default::default(), limits, seed),
            of_source: Arc::clone(&context.meter),
            meter: Arc::default(),
            slots: Semaphore::new(Semaphore::MAX_PERMITS),
            seed,
            shown_params: Vec::new(),
            auth: Auth::None,
            server_time: ServerTime::default(),
        }
    }

    /// Sets the `Accept` header.
    #[must_use]
    pub fn accepting(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    /// Applies the rate limits of `config`, with at most `concurrency` requests at a time.
    #[must_use]
    pub fn with_limits(mut self, config: &SourceConfig, concurrency: usize) -> Self {
        self.meter = Arc::clone(&self.of_source);
        let pacing = Pacing::new(&config.limits, &self.transport.limits, self.seed);
        self.pacing = pacing.metered(Arc::clone(&self.meter));
        self.transport.reset_unit = config.limits.reset_unit;
        self.transport.guard.let_in(&config.private_hosts);
        self.transport.trust_proxy = config.trust_proxy;
        self.slots = Semaphore::new(concurrency);
        self
    }

    /// Judges no address: another client sends the requests, and judges where they go.
    fn trusting(mut self) -> Self {
        self.transport.guard = Guard::new(true);
        self
    }

    /// Allows any address for the origin of `url`, which the configuration names.
    pub fn configure(&mut self, url: &Url) {
        self.transport.guard.configure(url);
    }

    /// Allows any address and port for `host`, which the configuration names.
    pub fn configure_host(&mut self, host: &str) {
        self.transport.guard.configure_host(host);
    }

    /// Shows the values of the query parameters `names` in messages: they identify the request.
    pub fn show_params(&mut self, names: impl IntoIterator<Item = String>) {
        self.shown_params.extend(names);
    }

    /// Formats `url` for messages: the values of its query are masked, except for shown parameters.
    #[must_use]
    pub fn shown(&self, url: &Url) -> String {
        let is_secret = url
            .query_pairs()
            .any(|(_, value)| self.transport.secretive.is_revealed_by(&value));
        if is_secret {
            return redact::redacted_strictly(url);
        }
        redact::redacted_but(url, &self.shown_params)
    }

    /// Requests sent so far, each hop of a redirect counted.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.transport.requests.load(Ordering::Relaxed)
    }

    /// Decisions of this client for the report.
    #[must_use]
    pub fn notices(&self) -> Vec<Warning> {
        let notices = self.transport.notices.lock();
        notices.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Clock of the requested servers.
    #[must_use]
    pub fn server_time(&self) -> &ServerTime {
        &self.server_time
    }

    /// Fetches the complete body of `url`, decompressed; one try.
    ///
    /// # Errors
    /// The failure of the try.
    pub async fn get(&self, url: &Url) -> Result<Bytes, Failure> {
        self.fetch(url).await.map(|got| got.body)
    }

    /// Fetches `url` and returns the response with its headers.
    ///
    /// # Errors
    /// The failure of the try.
    pub async fn fetch(&self, url: &Url) -> Result<Got, Failure> {
        self.exchange(&Request::get(url.clone())).await
    }

    /// Sends `request` and returns the response with its headers.
    ///
    /// # Errors
    /// The failure of the try.
    #[expect(
        clippy::missing_panics_doc,
        reason = "without conditions no response is `None`"
    )]
    pub async fn exchange(&self, request: &Request) -> Result<Got, Failure> {
        let got = self.fetch_changed(request, &HeaderMap::new()).await?;
        Ok(got.expect("only a conditional request can be unchanged"))
    }

    /// Sends `request`, and returns its response if that has changed, by the conditional headers
    /// `conditions`. Returns `None` for status 304, which only a conditional request gets.
    /// Redirected requests are sent without the conditions.
    ///
    /// # Errors
    /// The failure of the try.
    pub async fn fetch_changed(
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
            let (_slot, mut turn) = self.turn(&at.url, &request.speculation).await?;
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
        let limit = self.transport.limits.total_timeout_ms;
        let done = tokio::time::timeout(Duration::from_millis(limit), work).await;
        done.unwrap_or_else(|_| {
            let what = format!("it took longer than `retry.total_timeout_ms` = {limit}");
            Err(transient(url, what))
        })
    }

    /// Waits until a request to the host of `url` may be sent.
    async fn turn(
        &self,
        url: &Url,
        speculation: &Speculation,
    ) -> Result<(SemaphorePermit<'_>, Turn), Failure> {
        if self.transport.guard.judge(url) == Verdict::Refuse {
            return Err(terminal(url, REFUSED, PUBLIC_ADVICE));
        }
        let is_home = url.origin() == self.origin;
        let credential = if is_home { self.credential } else { 0 };
        let host = self.hosts.of(&url.origin(), credential);
        loop {
            let turn = host.turn(&self.pacing, speculation).await;
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
        let (cause, what, again) = match refused {
            Refused::Wait(left) => (
                HttpCause::Other,
                "its host asked for a wait in an earlier response, and it is not over".to_owned(),
                Again::After(*left),
            ),
            Refused::Down(failures, left) => (
                HttpCause::CircuitOpen,
                format!(
                    "its host failed {failures} times in a row (`retry.circuit_failures` = {}) and gets no request for {} s",
                    self.transport.limits.circuit_failures,
                    left.as_secs()
                ),
                Again::Unprocessed,
            ),
        };
        Failure {
            again,
            ..transient(url, what).caused_by(cause)
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
        let client = self.transport.client(url).await?;
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
        self.transport.requests.fetch_add(1, Ordering::Relaxed);
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
        let response = response.map_err(|e| self.transport.broken(url, e))?;
        self.server_time
            .note(response.headers(), self.transport.clock.unix());
        turn.answered(response.status(), self.transport.quota(response.headers()));
        Ok(response)
    }

    /// Keeps `secret` out of messages, archives and the log.
    pub fn hide(&mut self, secret: &str) {
        self.transport.secretive.add_proof(secret);
        self.transport.secretive.mask(secret);
    }

    async fn read(&self, url: Url, response: Response) -> Result<Got, Failure> {
        let status = response.status();
        // Status 202 means that the result does not exist yet: its body is no page.
        if !status.is_success() || status == StatusCode::ACCEPTED {
            return Err(self.transport.refused(&url, response).await);
        }
        let headers = response.headers().clone();
        let has_known_end = has_known_end(response.version(), &headers);
        let body = self.transport.whole(&url, response).await?;
        Ok(Got {
            url,
            status,
            headers,
            body,
            has_known_end,
        })
    }

    /// ``: `text` `` for a message, on one line, shortened, and with every secret masked.
    #[must_use]
    pub fn excerpt(&self, text: &str) -> String {
        self.transport.secretive.excerpt(text.as_bytes())
    }

    /// Returns `body` with a mask in place of each sent secret, and the number of masks.
    #[must_use]
    pub fn masked(&self, body: &Bytes) -> (Bytes, u32) {
        self.transport.secretive.masked(body)
    }

    /// Returns the secrets sent so far, to mask in messages about records.
    #[must_use]
    pub fn secret_masks(&self) -> SecretMasks {
        self.transport.secretive.masks()
    }

    /// Origin that headers and credentials are sent to.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

/// Next step after a response.
enum Hop {
    Got(Got),
    Unchanged,
    On(Url),
}

#[cfg(test)]
mod tests;
