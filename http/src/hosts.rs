//! State of the requested hosts, shared by all sources of a process: request rate, earliest next
//! request, concurrency and circuit breaker.
//!
//! A request takes a [`Turn`] at its host. It waits for these in order: a token of the bucket
//! (`limits.requests_per_s`), the delay requested by an earlier response, the quota from the host's
//! headers, a concurrency slot, and the circuit. A waiting request holds no slot. The number of
//! slots follows "additive increase, multiplicative decrease". A response with status 429 or 503
//! halves it, at most once for requests in flight together, and each success adds its share of one.

mod circuit;
mod quota;
mod speculation;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use feedline_schemas::config::{Bounded, LimitsConfig, RetryConfig};
use reqwest::StatusCode;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use self::circuit::{Asked, Circuit};
pub(crate) use self::quota::{Quota, quota};
pub use self::speculation::Speculation;
use crate::{
    meter::{Cause, RequestMeter, seconds},
    retry::failed_try::{Again, Failure},
    rotated_tokens::Rotated,
};

/// Requests to a host at a time, over all sources, by default.
const CONCURRENCY: u32 = 16;
/// Number of hosts above which those in their initial state are forgotten.
const MANY: usize = 4_096;

/// Hosts of the requests of a process. Sources that share it also share one budget per host and
/// credential, and refresh tokens that a server has replaced.
#[derive(Debug, Default)]
pub struct Hosts(Mutex<HashMap<Key, Arc<Host>>>, Rotated);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    origin: String,
    credential: u128,
}

impl Hosts {
    /// Returns the host behind `origin` for requests with `credential` (a hash).
    pub(crate) fn of(&self, origin: &url::Origin, credential: u128) -> Arc<Host> {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Key {
            origin: origin.ascii_serialization(),
            credential,
        };
        if hosts.len() >= MANY && !hosts.contains_key(&key) {
            let now = Instant::now();
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || !host.state().is_blank(now));
        }
        let named = |key: &Key| {
            let name = key.origin.rsplit('/').next().unwrap_or_default().to_owned();
            Arc::new(Host {
                name,
                ..Host::default()
            })
        };
        Arc::clone(hosts.entry(key).or_insert_with_key(named))
    }

    /// Refresh tokens that servers have replaced.
    pub(crate) fn rotated(&self) -> &Rotated {
        &self.1
    }

    /// Ends the delay that the host behind `origin` asked for, for all credentials.
    pub fn release(&self, origin: &url::Origin) {
        let hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = origin.ascii_serialization();
        for (_, host) in hosts.iter().filter(|(key, _)| key.origin == origin) {
            let mut state = host.state();
            (state.held, state.left) = (None, None);
        }
    }
}

/// Pacing of a source's requests.
#[derive(Clone, Debug)]
pub(crate) struct Pacing {
    /// Time between two tokens of the bucket.
    interval: Duration,
    /// Tokens that may be taken at once.
    burst: u32,
    /// Most requests at a time.
    concurrency: u32,
    /// Longest wait for the host, in seconds.
    max_wait_s: u64,
    /// Longest delay for a host that asks for one, over all its sources.
    max_hold: Duration,
    circuit: circuit::Settings,
    meter: Arc<RequestMeter>,
}

impl Pacing {
    /// Creates the pacing from settings within their ranges. `seed` makes the jitter of this run
    /// differ from that of others.
    pub(crate) fn new(limits: &LimitsConfig, retry: &RetryConfig, seed: u64) -> Self {
        let interval = limits.requests_per_s.map_or(0.0, |rate| rate.get().recip());
        Self {
            interval: Duration::try_from_secs_f64(interval).unwrap_or_default(),
            burst: limits.burst.map_or(1, Bounded::get),
            concurrency: limits.concurrency.map_or(CONCURRENCY, Bounded::get),
            max_wait_s: retry.max_wait_s,
            max_hold: retry.max_deferral_s.duration(),
            circuit: circuit::Settings {
                failures: retry.circuit_failures.get(),
                cooldown: retry.circuit_cooldown_s.duration(),
                seed,
            },
            meter: Arc::default(),
        }
    }

    /// Returns the same pacing with waits recorded in `meter`.
    pub(crate) fn metered(self, meter: Arc<RequestMeter>) -> Self {
        Self { meter, ..self }
    }
}

/// Reason why a request is not sent now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Remaining delay that an earlier response asked for, if it exceeds `max_wait_s`.
    Wait(Duration),
    /// It has failed so many times in a row. The next probe is due after this time.
    Down(u32, Duration),
}

/// A host, as one credential knows it.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Host name, with a port other than the default one.
    name: String,
    state: Mutex<State>,
    /// Notified when a slot is free.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Time of the next token, without a burst.
    token: Option<Instant>,
    /// End of the delay that the host asked for.
    held: Option<Instant>,
    /// Requests left until a time.
    left: Option<(u64, Instant)>,
    /// Slots in use.
    in_flight: u32,
    slots: Slots,
    circuit: Circuit,
}

/// Requests that may be on their way at a time.
#[derive(Debug, Default)]
struct Slots {
    /// None while nothing has bounded them.
    allowed: Option<f64>,
    /// Time of the last halving.
    halved: Option<Instant>,
}

/// Outcome of a request for a turn.
enum Enter {
    Go { is_probe: bool },
    At(Instant),
    Busy,
    Down(u32, Duration),
}

impl Host {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a request may be sent. If cancelled, it has taken at most a token.
    pub(crate) async fn turn(
        self: &Arc<Self>,
        pacing: &Pacing,
        speculation: &Speculation,
    ) -> Result<Turn, Refused> {
        if let Asked::Down(failures, left) = self.state().circuit.look(Instant::now()) {
            return Err(Refused::Down(failures, left));
        }
        let (token, now) = (self.state().token(pacing, Instant::now()), Instant::now());
        if token > now {
            let what = format!("budget of {}: {}", self.name, seconds(token - now));
            let _waiting = pacing.meter.wait(Cause::Budget, what);
            sleep_until(token).await;
        }
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let now = Instant::now();
            let entered = self.state().enter(pacing, speculation, now);
            match entered {
                Enter::Go { is_probe } => {
                    return Ok(Turn {
                        host: Arc::clone(self),
                        pacing: pacing.clone(),
                        began: now,
                        is_probe,
                        speculation: speculation.clone(),
                        is_limited: false,
                        is_settled: false,
                    });
                }
                Enter::At(until) if (until - now).as_secs() > pacing.max_wait_s => {
                    return Err(Refused::Wait(until - now));
                }
                Enter::At(until) => {
                    let what = format!("{} asked for {}", self.name, seconds(until - now));
                    let _waiting = pacing.meter.wait(Cause::Asked, what);
                    sleep_until(until).await;
                }
                Enter::Busy => {
                    let what = format!(
                        "a free slot at {}: other requests use all of them",
                        self.name
                    );
                    let _waiting = pacing.meter.wait(Cause::Concurrency, what);
                    freed.await;
                }
                Enter::Down(failures, left) => return Err(Refused::Down(failures, left)),
            }
        }
    }
}

impl State {
    /// Takes a token and returns its time ("generic cell rate algorithm").
    fn token(&mut self, pacing: &Pacing, now: Instant) -> Instant {
        let due = self.token.map_or(now, |token| token.max(now));
        let early = pacing.interval.saturating_mul(pacing.burst - 1);
        self.token = due.checked_add(pacing.interval);
        due.checked_sub(early).map_or(now, |at| at.max(now))
    }

    fn enter(&mut self, pacing: &Pacing, speculation: &Speculation, now: Instant) -> Enter {
        if let Some(until) = self.not_before(now) {
            return Enter::At(until);
        }
        if self.in_flight >= self.slots.allowed(pacing.concurrency) {
            return Enter::Busy;
        }
        let is_probe = match self.circuit.ask(now, !speculation.get()) {
            Asked::Closed => false,
            Asked::Probe => true,
            Asked::Down(failures, left) => return Enter::Down(failures, left),
        };
        if let Some((left, _)) = &mut self.left {
            *left = left.saturating_sub(1);
        }
        self.in_flight += 1;
        Enter::Go { is_probe }
    }

    /// Time until which no request may be sent; `None` if one may be sent now.
    fn not_before(&mut self, now: Instant) -> Option<Instant> {
        self.held = self.held.filter(|until| *until > now);
        self.left = self.left.filter(|(_, until)| *until > now);
        let used_up = self.left.filter(|(left, _)| *left == 0);
        self.held.max(used_up.map(|(_, until)| until))
    }

    fn hold(&mut self, now: Instant, wait: Duration) {
        self.held = self.held.max(Some(now + wait));
    }

    /// Returns true if a fresh state would behave the same.
    fn is_blank(&mut self, now: Instant) -> bool {
        self.not_before(now).is_none()
            && self.left.is_none()
            && self.in_flight == 0
            && self.token.is_none_or(|token| token <= now)
            && self.circuit.is_closed()
    }
}

impl Slots {
    /// Number of slots, at least one.
    fn allowed(&self, most: u32) -> u32 {
        let most = f64::from(most);
        let allowed = self.allowed.map_or(most, |allowed| allowed.min(most));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and a u32"
        )]
        let whole = allowed.max(1.0) as u32;
        whole
    }

    /// Halves the slots after an overload response to a request that began at `began`.
    fn halve(&mut self, most: u32, began: Instant, now: Instant) {
        // Requests in flight together count as one signal.
        if self.halved.is_none_or(|halved| began >= halved) {
            let most = f64::from(most);
            let allowed = self.allowed.map_or(most, |allowed| allowed.min(most));
            self.allowed = Some((allowed / 2.0).max(1.0));
            self.halved = Some(now);
        }
    }

    fn grow(&mut self) {
        if let Some(allowed) = &mut self.allowed {
            *allowed = (*allowed + allowed.recip()).min(64.0);
        }
    }
}

/// Permission to send a request. Dropped without an outcome, it changes nothing about the host.
#[derive(Debug)]
pub(crate) struct Turn {
    host: Arc<Host>,
    pacing: Pacing,
    began: Instant,
    is_probe: bool,
    speculation: Speculation,
    /// True if the response was 429. Such a host is up.
    is_limited: bool,
    is_settled: bool,
}

impl Turn {
    /// Returns true if the host has asked for a delay since the turn was granted.
    pub(crate) fn is_over(&self) -> bool {
        let held = self.host.state().held;
        held.is_some_and(|until| until > Instant::now())
    }

    /// Records the head of a response: overload status and remaining quota.
    pub(crate) fn answered(&mut self, status: StatusCode, quota: Option<Quota>) {
        let now = Instant::now();
        let mut state = self.host.state();
        self.is_limited = status == StatusCode::TOO_MANY_REQUESTS;
        if self.is_limited || status == StatusCode::SERVICE_UNAVAILABLE {
            state.slots.halve(self.pacing.concurrency, self.began, now);
        }
        if let Some(Quota { left, reset }) = quota {
            // The server may have counted requests in flight, or not yet.
            let left = left.saturating_sub(u64::from(state.in_flight.saturating_sub(1)));
            state.left = Some((left, now + reset.min(self.pacing.max_hold)));
        }
    }

    /// Records the outcome of the request.
    pub(crate) fn settle<T>(mut self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        let now = Instant::now();
        let mut state = self.host.state();
        match &outcome {
            Ok(_) => {
                state.slots.grow();
                state.circuit.succeeded();
            }
            Err(failure) => match failure.again {
                // It answered: it is up.
                Again::Never | Again::Gone | Again::Absent | Again::End => {
                    state.circuit.succeeded();
                }
                Again::After(wait) => {
                    state.hold(now, wait.min(self.pacing.max_hold));
                    state.circuit.released(self.is_probe);
                }
                Again::Backoff | Again::Unprocessed
                    if self.is_limited || self.speculation.get() =>
                {
                    state.circuit.released(self.is_probe);
                }
                Again::Backoff | Again::Unprocessed => {
                    state
                        .circuit
                        .failed(&self.pacing.circuit, self.is_probe, now);
                }
            },
        }
        drop(state);
        self.is_settled = true;
        outcome
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.host.state();
        state.in_flight = state.in_flight.saturating_sub(1);
        if !self.is_settled {
            state.circuit.released(self.is_probe);
        }
        drop(state);
        self.host.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
