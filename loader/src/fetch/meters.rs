//! Costs of reading: requests, retries, hedges and times.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde::Serialize;

use crate::count::Count;

/// Totals of reading extents from the store, since the loader was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FetchMetrics {
    /// Extents read.
    pub extents: u64,
    /// Requests made to a remote store, retries and hedges among them.
    pub requests: u64,
    /// Retries, by what made them necessary.
    pub retries: RetryMetrics,
    /// Requests made because another one was late.
    pub hedges: u64,
    /// Of these, how many answered before the late one did.
    pub hedges_won: u64,
    /// Extents whose checksum was wrong.
    pub crc_failures: u64,
    /// Bodies that broke off and were continued where they did.
    pub resumed_bodies: u64,
    /// Times that credentials were refreshed because access was refused.
    pub refreshed_credentials: u64,
    /// Requests to a remote store that may be under way at one time, as of now; 0 for local files.
    pub permits: u64,
    /// Half of all extents took at most so many seconds, from their first request on; to 7 % exactly.
    pub extent_seconds_p50: f64,
    /// The same for 95 % of them.
    pub extent_seconds_p95: f64,
    /// The same for 99 % of them.
    pub extent_seconds_p99: f64,
    /// The same for 99.9 % of them.
    pub extent_seconds_p999: f64,
}

/// Retries by what made them necessary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RetryMetrics {
    /// The store said that it was too much: 429, 503.
    pub throttled: u64,
    /// The store failed: 500, 502, 504 and the like.
    pub server: u64,
    /// A name could not be resolved.
    pub dns: u64,
    /// A connection could not be made.
    pub connect: u64,
    /// A connection could not be secured.
    pub tls: u64,
    /// A connection broke, or a body ended early.
    pub broken: u64,
    /// Bytes came too slowly.
    pub stalled: u64,
    /// Nothing or not everything came in time.
    pub timed_out: u64,
    /// Access was refused.
    pub denied: u64,
    /// Anything else, such as credentials that could not be fetched.
    pub other: u64,
}

/// The running totals.
#[derive(Debug, Default)]
pub(crate) struct FetchMeters {
    pub(crate) requests: Count,
    pub(crate) retries: [Count; Cause::ALL.len()],
    pub(crate) hedges: Count,
    pub(crate) hedges_won: Count,
    pub(crate) crc_failures: Count,
    pub(crate) resumed_bodies: Count,
    pub(crate) refreshed_credentials: Count,
    /// As the store that answered last has them.
    pub(crate) permits: AtomicU64,
    pub(crate) extent_times: TimeHistogram,
}

/// Cause of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    Throttled,
    Server,
    Dns,
    Connect,
    Tls,
    Broken,
    Stalled,
    TimedOut,
    Denied,
    Other,
}

impl Cause {
    pub(crate) const ALL: [Self; 10] = [
        Self::Throttled,
        Self::Server,
        Self::Dns,
        Self::Connect,
        Self::Tls,
        Self::Broken,
        Self::Stalled,
        Self::TimedOut,
        Self::Denied,
        Self::Other,
    ];
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Throttled => "throttled",
            Self::Server => "server error",
            Self::Dns => "name not resolved",
            Self::Connect => "no connection",
            Self::Tls => "no secure connection",
            Self::Broken => "broken off",
            Self::Stalled => "too slow",
            Self::TimedOut => "timed out",
            Self::Denied => "refused",
            Self::Other => "other",
        })
    }
}

impl FetchMeters {
    pub(crate) fn totals(&self) -> FetchMetrics {
        let retries = |cause: Cause| self.retries[cause as usize].get();
        FetchMetrics {
            extents: self.extent_times.count(),
            requests: self.requests.get(),
            retries: RetryMetrics {
                throttled: retries(Cause::Throttled),
                server: retries(Cause::Server),
                dns: retries(Cause::Dns),
                connect: retries(Cause::Connect),
                tls: retries(Cause::Tls),
                broken: retries(Cause::Broken),
                stalled: retries(Cause::Stalled),
                timed_out: retries(Cause::TimedOut),
                denied: retries(Cause::Denied),
                other: retries(Cause::Other),
            },
            hedges: self.hedges.get(),
            hedges_won: self.hedges_won.get(),
            crc_failures: self.crc_failures.get(),
            resumed_bodies: self.resumed_bodies.get(),
            refreshed_credentials: self.refreshed_credentials.get(),
            permits: self.permits.load(Relaxed),
            extent_seconds_p50: self.extent_times.quantile(0.5),
            extent_seconds_p95: self.extent_times.quantile(0.95),
            extent_seconds_p99: self.extent_times.quantile(0.99),
            extent_seconds_p999: self.extent_times.quantile(0.999),
        }
    }
}

/// Sixteen buckets for each doubling of the time: a quantile is at most 1/16 too high.
const STEPS: usize = 16;

/// Times in microseconds, counted in buckets that grow with them.
pub(crate) struct TimeHistogram {
    buckets: [AtomicU64; STEPS * 48],
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; STEPS * 48],
        }
    }
}

impl fmt::Debug for TimeHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Histogram")
    }
}

impl TimeHistogram {
    pub(crate) fn add(&self, time: Duration) {
        let micros = usize::try_from(time.as_micros()).unwrap_or(usize::MAX);
        let last = self.buckets.len() - 1;
        self.buckets[bucket(micros).min(last)].fetch_add(1, Relaxed);
    }

    fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Relaxed)).sum()
    }

    /// Seconds that this share of the times does not exceed; 0 when there are none.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rank is positive and at most the count"
    )]
    fn quantile(&self, share: f64) -> f64 {
        let rank = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (number, bucket) in self.buckets.iter().enumerate() {
            seen += bucket.load(Relaxed);
            if seen >= rank {
                return upper(number) as f64 / 1e6;
            }
        }
        0.0
    }
}

fn bucket(micros: usize) -> usize {
    if micros < STEPS {
        return micros;
    }
    let power = micros.ilog2() - STEPS.ilog2();
    STEPS * power as usize + (micros >> power)
}

/// One past the largest time of a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64 + 1;
    }
    let power = bucket / STEPS - 1;
    ((bucket % STEPS + STEPS + 1) as u64) << power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_a_sixteenth_too_high() {
        let times = TimeHistogram::default();
        assert!(times.quantile(0.5).abs() < f64::EPSILON);
        for micros in 1..=100_000 {
            times.add(Duration::from_micros(micros));
        }
        for share in [0.001, 0.5, 0.95, 0.999, 1.0] {
            let (exact, found) = (share / 10.0, times.quantile(share));
            assert!((exact..=exact * 1.07).contains(&found), "{share}: {found}");
        }
        for micros in (0..60).map(|power| 1_usize << power) {
            let bucket = bucket(micros);
            assert!(upper(bucket) > micros as u64);
            assert!(bucket == 0 || upper(bucket - 1) <= micros as u64);
        }
    }

    #[test]
    fn causes_are_numbered_as_they_are_listed() {
        assert!((0..).zip(Cause::ALL).all(|(i, cause)| cause as usize == i));
    }
}
