//! One polite request of a crawl. It obeys robots.txt, sends one request at a time to a host with a
//! pause between them, and waits as long as a server asks (see [`Retry`]).

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use feedline_http::{
    Again, Answer, Http, HttpCause, Request, Retry, SecretMasks, USER_AGENT, Wanted,
    meter::{Cause, seconds},
    redacted,
};
use feedline_schemas::config::{Bounded, CrawlConfig, RetryConfig, SourceConfig};
use feedline_storage::clock::Clock;
use reqwest::{
    StatusCode,
    header::{self, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use tokio::time::{Instant, sleep_until};
use url::Url;

use super::{
    address::path,
    robots::{MAX_BYTES, Robots},
    robots_failure::{ROBOTS_KEY, ROBOTS_UNREACHABLE, RobotsFailure},
};
use crate::{
    context::Context,
    error::Error,
    frontier::discovery::Discovery,
    metrics::SourceMetrics,
    raw::{Came, Exchange, Keeper, Tape},
    validators::{Validator, Validators},
};

/// Our product token in robots.txt.
const PRODUCT: &str = "feedline";
/// Age at which robots.txt is re-read (RFC 9309, 2.4).
const ROBOTS_AGE: Duration = Duration::from_secs(24 * 3_600);
/// Redirects of robots.txt that are followed (RFC 9309, 2.3.1.2).
const ROBOTS_REDIRECTS: usize = 5;
/// Reasons for a URL without a page.
pub(super) const ROBOTS: &str = "robots";
pub(super) const CRAWL_DELAY: &str = "crawl_delay";
pub(super) const UNREACHABLE: &str = "unreachable";
const UNUSABLE: &str = "unusable_answer";
const ACCEPT: &str = "text/html,application/xhtml+xml,text/plain;q=0.5,application/xml;q=0.5";

/// Outcome of a request.
#[derive(Debug)]
pub(super) enum Fetched {
    /// A body of the right type.
    Body {
        bytes: Bytes,
        content_type: String,
        /// The `X-Robots-Tag` header.
        robots: String,
        /// Validator for a later conditional request.
        validator: Option<Validator>,
    },
    /// A redirect to another URL.
    Redirect(Url),
    /// No page, for a reason that is no failure.
    Skipped(&'static str),
    /// A failure.
    Failed {
        reason: &'static str,
        error: Error,
        /// True if the host may be down.
        is_transient: bool,
    },
}

/// The client of a crawl.
#[derive(Debug)]
pub(super) struct PageFetcher {
    http: Http,
    retry: Retry,
    /// A single try, for pages that failed in an earlier run.
    single_try: Retry,
    crawl: CrawlConfig,
    /// Headers of every request.
    headers: HeaderMap,
    /// Validators of the pages of earlier runs.
    validators: Validators,
    max_body_bytes: u64,
    clock: Arc<dyn Clock>,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
    retries: AtomicU64,
    meter: Arc<SourceMetrics>,
    keeper: Option<Keeper>,
    tape: Option<Arc<Tape>>,
}

/// A host and its port.
#[derive(Debug, Default)]
struct Host {
    /// Locked during a request, so that there is one at a time, in the order of the crawl.
    rules: tokio::sync::Mutex<Option<(Duration, Rules)>>,
    /// Earliest time of the next request.
    ready: Mutex<Option<Instant>>,
}

#[derive(Clone, Debug)]
enum Rules {
    Known(Arc<Robots>),
    /// robots.txt cannot be read: everything is disallowed.
    Unreachable(Arc<RobotsFailure>),
}

/// Verdict of robots.txt about a URL.
enum CrawlPermission {
    /// It may be fetched, with this delay before the next request.
    After(Duration),
    /// It must not be fetched, for this reason.
    Refused(&'static str),
    /// It must not be fetched, since the rules are unknown.
    Unknown(Arc<RobotsFailure>),
}

impl PageFetcher {
    /// # Errors
    /// [`Error::Config`] for headers and settings that cannot be used.
    pub(super) fn new(url: &Url, config: &SourceConfig, context: &Context) -> Result<Self, Error> {
        let contact = config.crawl.contact.as_deref();
        let agent = contact.map_or_else(
            || USER_AGENT.to_owned(),
            |contact| format!("{}; {contact})", USER_AGENT.trim_end_matches(')')),
        );
        let agent = HeaderValue::try_from(agent).map_err(|_| {
            Error::config("crawl.contact", "has characters that a header cannot carry")
        })?;
        let requests = context.requests_of(config.name.as_str());
        let http = Http::new(url, &config.headers, &config.retry, &requests)?;
        let http = http.with_tls(config, &requests)?;
        let mut http = http.with_limits(config, config.crawl.concurrency);
        let crawl = &config.crawl;
        for text in crawl.start.iter().chain(&crawl.sitemaps) {
            if let Ok(url) = Url::parse(text) {
                http.configure(&url);
            }
        }
        crawl
            .hosts
            .iter()
            .for_each(|host| http.configure_host(host));
        let single_try = RetryConfig {
            max_tries: Bounded::literal::<1>(),
            ..config.retry.clone()
        };
        Ok(Self {
            http,
            retry: Retry::new(config.name.as_str(), &config.retry, &requests),
            single_try: Retry::new(config.name.as_str(), &single_try, &requests),
            crawl: config.crawl.clone(),
            headers: HeaderMap::from_iter([(header::USER_AGENT, agent)]),
            validators: Validators::default(),
            max_body_bytes: config.retry.max_body_bytes.bytes(),
            clock: Arc::clone(&context.clock),
            hosts: Mutex::default(),
            retries: AtomicU64::new(0),
            meter: context.metrics.of(config.name.as_str()),
            keeper: config.archive_raw.then(|| Keeper::new(Vec::new())),
            tape: None,
        })
    }

    /// Sends no requests from now on and takes responses from `tape`.
    pub(super) fn replay(&mut self, tape: Arc<Tape>) {
        self.tape = Some(tape);
    }

    /// Returns true if responses are archived.
    pub(super) fn keeps(&self) -> bool {
        self.keeper.is_some()
    }

    /// Remaining responses of a replay; `None` if requests are sent.
    pub(super) fn left(&self) -> Option<u64> {
        self.tape.as_ref().map(|tape| tape.left() as u64)
    }

    /// Makes later requests conditional on these validators.
    pub(super) fn remember(&mut self, validators: Validators) {
        self.validators = validators;
    }

    /// Largest body, decompressed.
    pub(super) fn max_body_bytes(&self) -> u64 {
        self.max_body_bytes
    }

    pub(super) fn requests(&self) -> u64 {
        self.http.requests()
    }

    /// Secrets sent so far.
    pub(super) fn secret_masks(&self) -> SecretMasks {
        self.http.secret_masks()
    }

    pub(super) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Fetches a URL of the frontier at index `number`. One that failed in an earlier run
    /// (`is_retry`) gets a single try. With an archive, the exchange is returned too.
    ///
    /// # Errors
    /// [`Error::Cancelled`], [`Error::Deferred`], and an unreadable robots.txt of a start page.
    pub(super) async fn fetch(
        &self,
        found: &Discovery,
        number: u64,
        is_retry: bool,
    ) -> Result<(Fetched, Option<Exchange>), Error> {
        let Ok(url) = Url::parse(&found.url) else {
            return Ok((Fetched::Skipped("not_a_url"), None));
        };
        if let Some(tape) = &self.tape {
            return self.replayed(tape, &url, found.is_sitemap);
        }
        let host = self.host(&url);
        let mut rules = host.rules.lock().await;
        let mut retry = self.retry.beside(number);
        let mut single_try = self.single_try.beside(number);
        let fetched = async {
            let delay = match self
                .permission(&host, &mut rules, &url, &mut retry, found.is_start)
                .await?
            {
                CrawlPermission::After(delay) => delay,
                CrawlPermission::Refused(reason) => {
                    let kept = self.nothing(&url, reason, None);
                    return Ok((Fetched::Skipped(reason), kept));
                }
                CrawlPermission::Unknown(failure) => {
                    let error = failure.to_error(&url);
                    let kept = self.nothing(&url, ROBOTS_UNREACHABLE, Some(error.to_string()));
                    let failed = Fetched::Failed {
                        reason: ROBOTS_UNREACHABLE,
                        error,
                        is_transient: failure.is_transient,
                    };
                    return Ok((failed, kept));
                }
            };
            let retry = match is_retry {
                true => &mut single_try,
                false => &mut retry,
            };
            self.get(&host, delay, &url, found.is_sitemap, is_retry, retry)
                .await
        };
        let fetched = fetched.await;
        self.retries.fetch_add(retry.retries(), Ordering::Relaxed);
        fetched
    }

    /// Waits for the turn of a host, and delays the next one by `delay`.
    async fn turn(&self, host: &Host, url: &Url, delay: Duration) {
        let at = host.turn(delay);
        if at <= Instant::now() {
            return;
        }
        let whose = if delay > self.crawl.delay_ms.duration() {
            "robots.txt crawl-delay"
        } else {
            "crawl.delay_ms"
        };
        let name = url.host_str().unwrap_or_default();
        let what = format!("{whose} {} of {name}", seconds(delay));
        let _waiting = self.meter.wait(Cause::CrawlDelay, what);
        sleep_until(at).await;
    }

    /// Returns the archived outcome of a URL.
    fn replayed(
        &self,
        tape: &Tape,
        url: &Url,
        is_sitemap: bool,
    ) -> Result<(Fetched, Option<Exchange>), Error> {
        let kept = tape.take(&Request::get(url.clone()), self.http.origin(), &[])?;
        let fetched = match kept.reason() {
            Some((reason, detail)) => unanswered(reason, detail),
            None => {
                let is_known = self.validators.of(url.as_str()).is_some();
                let status = kept.status().unwrap_or_default();
                let answer = Answer::from_parts(url, status, kept.headers(), kept.body().clone());
                match answer {
                    Ok(answer) => judged(url, answer, is_sitemap, is_known),
                    Err(failure) => unanswered(UNUSABLE, &failure.error.to_string()),
                }
            }
        };
        Ok((fetched, self.keeps().then_some(kept)))
    }

    /// Archive entry of a URL without a response.
    fn nothing(&self, url: &Url, reason: &str, detail: Option<String>) -> Option<Exchange> {
        let keeper = self.keeper.as_ref()?;
        Some(keeper.nothing(&self.http, &Request::get(url.clone()), reason, detail))
    }

    /// Archive entry of a response.
    fn kept(&self, url: &Url, answer: &Answer) -> Option<Exchange> {
        let came = Came {
            status: answer.status,
            headers: &answer.headers,
            body: &answer.body,
            from: url,
        };
        let keeper = self.keeper.as_ref()?;
        Some(keeper.answer(&self.http, &Request::get(url.clone()), came))
    }

    fn host(&self, url: &Url) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(hosts.entry(url.origin().ascii_serialization()).or_default())
    }

    /// Verdict of robots.txt about `url`.
    async fn permission(
        &self,
        host: &Host,
        rules: &mut Option<(Duration, Rules)>,
        url: &Url,
        retry: &mut Retry,
        is_start: bool,
    ) -> Result<CrawlPermission, Error> {
        let least = self.crawl.delay_ms.duration();
        if !self.crawl.robots {
            return Ok(CrawlPermission::After(least));
        }
        let now = self.clock.monotonic();
        let fresh = rules
            .as_ref()
            .filter(|(since, _)| now.saturating_sub(*since) < ROBOTS_AGE);
        let known = match fresh {
            Some((_, rules)) => rules.clone(),
            None => {
                let read = self.robots(host, url, retry, is_start).await?;
                rules.insert((now, read)).1.clone()
            }
        };
        let robots = match known {
            Rules::Known(robots) => robots,
            Rules::Unreachable(failure) => return Ok(CrawlPermission::Unknown(failure)),
        };
        if !robots.allows(path(url)) {
            tracing::debug!(%url, "robots.txt disallows it");
            return Ok(CrawlPermission::Refused(ROBOTS));
        }
        let asked = robots.crawl_delay.unwrap_or_default();
        if asked > self.crawl.max_crawl_delay_s.duration() {
            tracing::warn!(%url, delay_s = asked.as_secs_f64(), "robots.txt asks for a longer Crawl-delay than `crawl.max_crawl_delay_s`");
            return Ok(CrawlPermission::Refused(CRAWL_DELAY));
        }
        Ok(CrawlPermission::After(least.max(asked)))
    }

    /// Reads robots.txt of the host of `url` (RFC 9309, 2.3.1). Status 4xx counts as an empty file,
    /// a failure disallows everything.
    async fn robots(
        &self,
        host: &Host,
        url: &Url,
        retry: &mut Retry,
        is_start: bool,
    ) -> Result<Rules, Error> {
        let none = || Rules::Known(Arc::default());
        let Ok(mut at) = url.join("/robots.txt") else {
            return Ok(none());
        };
        let least = self.crawl.delay_ms.duration();
        let is_transient = &AtomicBool::new(false);
        for _ in 0..=ROBOTS_REDIRECTS {
            let attempt = || async {
                self.turn(host, &at, least).await;
                let wanted = |_: &HeaderMap| Wanted::Start(MAX_BYTES + 1);
                let answer = self.http.ask(&at, "text/plain", &self.headers, wanted);
                answer.await.inspect_err(|failure| {
                    let is_final = matches!(failure.again, Again::Never | Again::Absent);
                    is_transient.store(!is_final, Ordering::Relaxed);
                })
            };
            let answer = match retry.run(attempt).await.map_err(Error::from) {
                Ok(answer) if answer.status.is_server_error() => {
                    Err(RobotsFailure::of_status(&at, answer.status))
                }
                Ok(answer) => Ok(answer),
                Err(e @ (Error::Cancelled | Error::Deferred { .. })) => return Err(e),
                Err(e) if is_start => return Err(e),
                Err(e) => {
                    let is_transient = is_transient.load(Ordering::Relaxed);
                    Err(RobotsFailure::new(&at, e, is_transient))
                }
            };
            match answer {
                Err(failure) => {
                    tracing::warn!(
                        code = ROBOTS_UNREACHABLE,
                        key = ROBOTS_KEY,
                        "`{}` cannot be read ({}): no page of its host is requested",
                        failure.url,
                        failure.what
                    );
                    return Ok(Rules::Unreachable(Arc::new(failure)));
                }
                Ok(Answer {
                    redirect: Some(next),
                    ..
                }) => at = next,
                Ok(answer) if answer.status.is_success() => {
                    return Ok(Rules::Known(Arc::new(Robots::parse(&answer.body, PRODUCT))));
                }
                Ok(_) => return Ok(none()),
            }
        }
        Ok(none())
    }

    async fn get(
        &self,
        host: &Host,
        delay: Duration,
        url: &Url,
        is_sitemap: bool,
        is_retry: bool,
        retry: &mut Retry,
    ) -> Result<(Fetched, Option<Exchange>), Error> {
        let is_transient = &AtomicBool::new(false);
        let mut headers = self.headers.clone();
        let known = self.validators.of(url.as_str());
        headers.extend(known.map(Validator::conditions).unwrap_or_default());
        let headers = &headers;
        let attempt = || async move {
            self.turn(host, url, delay).await;
            let wanted = |headers: &HeaderMap| wanted(headers, is_sitemap);
            let answer = match is_retry {
                true => self.http.ask_again(url, ACCEPT, headers, wanted).await,
                false => self.http.ask(url, ACCEPT, headers, wanted).await,
            };
            answer.inspect_err(|failure| {
                let is_final = matches!(failure.again, Again::Never | Again::Absent);
                is_transient.store(!is_final, Ordering::Relaxed);
            })
        };
        Ok(match retry.run(attempt).await.map_err(Error::from) {
            Ok(answer) => {
                let kept = self.kept(url, &answer);
                (judged(url, answer, is_sitemap, known.is_some()), kept)
            }
            Err(e @ (Error::Cancelled | Error::Deferred { .. })) => return Err(e),
            Err(error) => {
                let is_transient = is_transient.load(Ordering::Relaxed);
                let reason = if is_transient { UNREACHABLE } else { UNUSABLE };
                let kept = self.nothing(url, reason, Some(error.to_string()));
                let failed = Fetched::Failed {
                    reason,
                    error,
                    is_transient,
                };
                (failed, kept)
            }
        })
    }
}

impl Host {
    /// Returns the time of its turn, and delays the next one by `delay`.
    fn turn(&self, delay: Duration) -> Instant {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let at = ready.map_or(now, |ready| ready.max(now));
        *ready = at.checked_add(delay);
        at
    }
}

/// Outcome of an archived URL without a response. Its host counted as up or down at request time.
fn unanswered(reason: &str, detail: &str) -> Fetched {
    let failed = [UNREACHABLE, UNUSABLE, ROBOTS_UNREACHABLE];
    if let Some(reason) = failed.into_iter().find(|known| *known == reason) {
        return Fetched::Failed {
            reason,
            error: Error::Archived(detail.to_owned()),
            is_transient: false,
        };
    }
    let skipped = [ROBOTS, CRAWL_DELAY];
    let known = skipped.into_iter().find(|known| *known == reason);
    Fetched::Skipped(known.unwrap_or("archived"))
}

/// Returns whether a body of this type is read.
fn wanted(headers: &HeaderMap, is_sitemap: bool) -> Wanted {
    let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    if is_sitemap || value.is_none_or(is_page) {
        Wanted::Whole
    } else {
        Wanted::Nothing
    }
}

/// Reason of a URL that no longer exists.
pub(super) const NOT_FOUND: &str = "not_found";

fn is_page(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    ["text/html", "application/xhtml+xml", "text/plain"]
        .iter()
        .any(|page| essence.eq_ignore_ascii_case(page))
}

/// Classifies a response. `is_known` is true if the request was conditional.
fn judged(url: &Url, answer: Answer, is_sitemap: bool, is_known: bool) -> Fetched {
    if is_known && answer.status == StatusCode::NOT_MODIFIED {
        return Fetched::Skipped("unchanged");
    }
    let content_type = answer.header("content-type").to_owned();
    match answer.status.as_u16() {
        _ if answer.redirect.is_some() => answer
            .redirect
            .map_or(Fetched::Skipped("not_a_url"), Fetched::Redirect),
        404 | 410 => Fetched::Skipped(NOT_FOUND),
        status if !answer.status.is_success() => Fetched::Failed {
            reason: "refused",
            error: Error::Http {
                url: redacted(url),
                cause: HttpCause::Status(status),
                what: format!("the server answered {status}"),
                advice: "leave the page out with `crawl.deny`, or check `headers`".into(),
            },
            is_transient: false,
        },
        // Without a type it is a page if it starts like one.
        _ if is_sitemap || is_page(&content_type) => body(answer, content_type),
        _ if content_type.is_empty() && answer.body.trim_ascii_start().starts_with(b"<") => {
            body(answer, content_type)
        }
        _ => Fetched::Skipped("not_a_page"),
    }
}

fn body(answer: Answer, content_type: String) -> Fetched {
    Fetched::Body {
        robots: answer.header("x-robots-tag").to_owned(),
        validator: Validator::of(&answer.headers),
        bytes: answer.body,
        content_type,
    }
}
