//! `[source.retry]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bounded, BoundedCount, Seconds};
use crate::units::ByteSize;

/// `[source.retry]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryConfig {
    /// Most tries of one request, 1 to 100; `check` and `preview` make at most 4. Default 8.
    pub max_tries: Bounded<u32, 1, 100>,
    /// First backoff in milliseconds; try n waits a random time up to `base_ms * 2^n` (full
    /// jitter). Default 500.
    pub base_ms: u64,
    /// Longest backoff in milliseconds. Default 60,000.
    pub cap_ms: u64,
    /// Longest wait, in seconds, that a server may request with Retry-After, or with the reset of
    /// an exhausted quota. After a longer request, the run ends as deferred (exit code 4). A run
    /// before that time sends no request and ends the same way; a later run resumes. Default 300.
    pub max_wait_s: u64,
    /// Longest deferral, in seconds, 1 to 31,536,000. A server that requests more
    /// (`Retry-After: 3153600000`, a reset years ahead) is requested again after this time.
    /// `feedline ingest resume` ends a deferral at once. Default 86,400, a day; raise it for a
    /// server that bans early requests.
    pub max_deferral_s: Seconds<1, 31_536_000>,
    /// Time to connect, in milliseconds. Default 10,000.
    pub connect_timeout_ms: u64,
    /// Longest time without received bytes while reading, in milliseconds. Default 30,000.
    pub read_timeout_ms: u64,
    /// Total time of one request, in milliseconds. Default 300,000.
    pub total_timeout_ms: u64,
    /// Largest response body, decompressed. Default 64 MiB.
    pub max_body_bytes: ByteSize,
    /// Lowest speed of a body, in bytes per second over 10 s, 0 to 1,000,000. A slower response is
    /// stopped and requested again. Default 100; 0 for a server that sends few bytes while it
    /// works.
    pub min_bytes_per_s: BoundedCount<0, 1_000_000>,
    /// Longest time of one request over all of its tries and waits, in seconds, at least 1; a wait
    /// that would end later does not begin. Default 3,600. To outlast an outage, raise it together
    /// with `max_tries`.
    pub max_elapsed_s: Seconds<1>,
    /// Number of consecutive failures of a host, after retries, that open its circuit breaker, 0 to
    /// 1,000; 0 disables it. Until the host responds again, it gets one request per cooldown. Other
    /// tries fail without being sent. Default 10.
    pub circuit_failures: Bounded<u32, 0, 1_000>,
    /// Time from the opening of a circuit breaker to the first probe, in seconds, 1 to 3,600. Each
    /// failed probe doubles it, up to 600 s or to this value if it is larger. Default 30.
    pub circuit_cooldown_s: Seconds<1, 3_600>,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            max_tries: Bounded::literal::<8>(),
            base_ms: 500,
            cap_ms: 60_000,
            max_wait_s: 300,
            max_deferral_s: Bounded::literal::<86_400>(),
            connect_timeout_ms: 10_000,
            read_timeout_ms: 30_000,
            total_timeout_ms: 300_000,
            max_body_bytes: ByteSize::mib(64),
            min_bytes_per_s: Bounded::literal::<100>(),
            max_elapsed_s: Bounded::literal::<3_600>(),
            circuit_failures: Bounded::literal::<10>(),
            circuit_cooldown_s: Bounded::literal::<30>(),
        }
    }
}
