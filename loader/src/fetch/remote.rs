//! Extents of a remote store: permits, hedges, retries and deadlines.

use std::{
    fmt::Write as _,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use feedline_storage::{Error, Lane, Store};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    Extent, FetchConfig, FetchError,
    attempt::{FailedRequest, Partial, RequestFailure},
    backoff::Backoff,
    hedges::HedgeBudget,
    joined::Joined,
    latency::Latencies,
    memory::MemoryPool,
    meters::Cause,
    permits::{Permit, Permits},
    pins::Pins,
};
use crate::metrics::Meters;

/// A request is given up after so many times what 99 of 100 of its size take.
const PATIENCE: f32 = 8.0;
/// Interval of checks while no latency is known yet.
const UNKNOWN: Duration = Duration::from_millis(50);

/// Extents of a store that is reached by requests.
#[derive(Debug)]
pub(super) struct RemoteExtents {
    pub(super) store: Store,
    pub(super) config: FetchConfig,
    pub(super) pins: Pins,
    pub(super) pool: Arc<MemoryPool>,
    pub(super) meters: Arc<Meters>,
    pub(super) permits: Arc<Permits>,
    hedges: HedgeBudget,
    latencies: Latencies,
    backoff: Backoff,
    /// Times that the credentials were fetched.
    credentials: AtomicU64,
}

/// An extent on its way.
struct ExtentFetch<'a> {
    joined: &'a Joined,
    extent: &'a Extent,
    started: Instant,
    lane: Lane,
    partial: Option<Partial>,
    attempts: u32,
    failures: [u32; Cause::ALL.len()],
}

impl RemoteExtents {
    pub(super) fn new(
        store: Store,
        config: &FetchConfig,
        most_requests: u32,
        meters: Arc<Meters>,
    ) -> Self {
        Self {
            store,
            config: config.clone(),
            pins: Pins::default(),
            pool: Arc::default(),
            meters,
            permits: Permits::new(most_requests),
            hedges: HedgeBudget::new(config.hedge_permille),
            latencies: Latencies::new(),
            backoff: Backoff::new(config),
            credentials: AtomicU64::new(0),
        }
    }

    /// All bytes that `joined` asks for, tried until the deadline; not yet compared with the checksums.
    pub(super) async fn read(&self, joined: &Joined, lane: Lane) -> Result<Partial, FetchError> {
        let extent = &joined.whole;
        let mut permit = self.permits.take(extent.first).await;
        let mut job = ExtentFetch {
            joined,
            extent,
            started: Instant::now(),
            lane,
            partial: None,
            attempts: 0,
            failures: [0; Cause::ALL.len()],
        };
        loop {
            let credentials = self.credentials.load(Relaxed);
            let failed = match self.race(&mut job, &permit).await {
                Ok(whole) => {
                    self.meters
                        .fetches
                        .permits
                        .store(self.permits.limit().into(), Relaxed);
                    self.meters.fetches.extent_times.add(job.started.elapsed());
                    return Ok(whole);
                }
                Err(failed) => failed,
            };
            if let RequestFailure::Retry {
                cause: Cause::Throttled,
                ..
            } = failed.failure
            {
                permit.throttled();
            }
            // Others may continue while this one waits.
            drop(permit);
            let wait = self.judge(&mut job, failed, credentials)?;
            sleep(wait).await;
            permit = self.permits.take(extent.first).await;
        }
    }

    /// The version of an extent's file that the run began with; by a request for one byte if that is not known.
    pub(super) async fn version(&self, extent: &Extent) -> Result<Option<String>, FetchError> {
        if let Some(known) = self.pins.version(&extent.path) {
            return Ok(known);
        }
        let mut byte = extent.clone();
        byte.range.end = byte.range.start + 1;
        self.read(&Joined::from(&byte), Lane::First).await?;
        Ok(self.pins.version(&extent.path).flatten())
    }

    /// Time to wait before the next try, if there is to be one.
    fn judge(
        &self,
        job: &mut ExtentFetch<'_>,
        failed: FailedRequest,
        credentials: u64,
    ) -> Result<Duration, FetchError> {
        let (cause, retry_after, error) = match failed.failure {
            RequestFailure::Final(error) => return Err(error),
            RequestFailure::Retry {
                cause,
                retry_after,
                error,
            } => (cause, retry_after, error),
        };
        let retries: u32 = job.failures.iter().sum();
        job.failures[cause as usize] += 1;
        let wait = if cause == Cause::Denied {
            if job.failures[cause as usize] > 1 {
                return Err(FetchError::Denied {
                    url: self.store.url_of(&job.extent.path),
                    source: error.into(),
                });
            }
            self.refresh(credentials);
            Duration::ZERO
        } else {
            self.backoff.wait(retries, retry_after)
        };
        if job.started.elapsed().saturating_add(wait) >= self.config.deadline {
            return Err(self.unavailable(job, error));
        }
        tracing::debug!(path = &*job.extent.path, offset = job.extent.range.start, %cause, ?wait, "asking again");
        self.meters.fetches.retries[cause as usize].add(1);
        job.partial = failed.partial;
        job.lane = job.lane.other();
        Ok(wait)
    }

    /// Refreshes the credentials, unless that was done since `seen`.
    fn refresh(&self, seen: u64) {
        let is_first = self
            .credentials
            .compare_exchange(seen, seen + 1, Relaxed, Relaxed)
            .is_ok();
        if is_first {
            tracing::warn!(
                store = self.store.url(),
                "access was refused: refreshing the credentials"
            );
            self.meters.fetches.refreshed_credentials.add(1);
            self.store.reconnect();
        }
    }

    fn unavailable(&self, job: &ExtentFetch<'_>, error: Error) -> FetchError {
        let mut failures = String::new();
        for (cause, count) in Cause::ALL.iter().zip(job.failures).filter(|(_, n)| *n > 0) {
            let comma = if failures.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            write!(failures, "{comma}{count} {cause}").ok();
        }
        FetchError::Unavailable {
            url: self.store.url_of(&job.extent.path),
            range: job.extent.range.clone(),
            attempts: job.attempts,
            seconds: job.started.elapsed().as_secs(),
            failures,
            source: error.into(),
        }
    }

    /// Makes a request, and when it is late a second one on other connections; the first good
    /// response counts, and the other request is given up.
    async fn race(
        &self,
        job: &mut ExtentFetch<'_>,
        permit: &Permit,
    ) -> Result<Partial, FailedRequest> {
        self.hedges.earn();
        job.attempts += 1;
        let (joined, lane, partial) = (job.joined, job.lane, job.partial.take());
        let bytes = job.extent.range.end - job.extent.range.start;
        let deadline = self.attempt_deadline(job, bytes);
        let began = Instant::now();
        let on_answer = || permit.answered(began.elapsed());
        let mut first = pin!(self.attempt(joined, lane, partial, deadline, on_answer));
        tokio::select! {
            biased;
            result = &mut first => {
                self.latencies.add(bytes, began.elapsed());
                return result;
            }
            () = self.late(bytes, began) => {}
        }
        self.meters.fetches.hedges.add(1);
        job.attempts += 1;
        let hedge_began = Instant::now();
        let mut hedge = pin!(self.attempt(joined, lane.other(), None, deadline, || {}));
        let (result, is_hedge) = tokio::select! {
            biased;
            result = &mut first => (result, false),
            result = &mut hedge => (result, true),
        };
        // The one that is given up took at least so long.
        self.latencies.add(bytes, began.elapsed());
        let result = match result {
            Err(failed) if !failed.is_final() => {
                let other = if is_hedge { first.await } else { hedge.await };
                let is_hedge = !is_hedge;
                other
                    .map_err(|other| other.with_longer(failed))
                    .map(|whole| (whole, is_hedge))
            }
            result => result.map(|whole| (whole, is_hedge)),
        };
        let (whole, is_hedge) = result?;
        if is_hedge {
            self.meters.fetches.hedges_won.add(1);
            self.latencies.add(bytes, hedge_began.elapsed());
        }
        Ok(whole)
    }

    /// When to give up a request: by what others of its size took, within the configured bounds.
    fn attempt_deadline(&self, job: &ExtentFetch<'_>, bytes: u64) -> Instant {
        let seconds = bytes as f64 / self.config.least_bytes_per_second as f64;
        let most = self.config.attempt_most + Duration::from_secs_f64(seconds.min(86_400.0));
        let patience = match self.latencies.quantiles(bytes) {
            Some(known) => Duration::from_secs_f32(known.p99 * PATIENCE),
            None => most,
        };
        let least = self.config.attempt_least;
        let end = Instant::now() + patience.clamp(least, most.max(least));
        end.min(job.started + self.config.deadline)
    }

    /// Returns when a request for `bytes` that began at `began` is late and a hedge is paid for.
    async fn late(&self, bytes: u64, began: Instant) {
        if self.hedges.is_off() {
            return std::future::pending().await;
        }
        let known = loop {
            if let Some(known) = self.latencies.quantiles(bytes) {
                break known;
            }
            sleep(UNKNOWN).await;
        };
        // Where all take about the same time, the slowest twentieth is not late.
        let after = Duration::from_secs_f32(known.p95.max(2.0 * known.p50));
        let after = after.max(self.config.hedge_least);
        sleep_until(began + after).await;
        // Those that were only a little late end while they wait here, so that the budget goes to the others.
        while !self.hedges.spend() {
            sleep((after / 4).max(Duration::from_millis(1))).await;
        }
    }
}
