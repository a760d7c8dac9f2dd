//! `[source.limits]`: how often a host is asked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bounded, Real, ToThousand};

/// `[source.limits]`: bounds on the requests to one host with one credential. All sources of a process share what is
/// known about a host: the time it asked for, and what is left of its quota.
///
/// What a server says about its quota is obeyed without any setting: `RateLimit` and `RateLimit-Policy` (IETF draft
/// `httpapi-ratelimit-headers`, this and its older forms) and `X-RateLimit-Remaining` with `X-RateLimit-Reset`. A host whose
/// quota is used up is left alone until its reset, and one that answers 429 or 503 is asked by half as many at a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Most requests per second, over 0 to 1,000. Default: no limit but the server's own (and `crawl.delay_ms`). Set what
    /// the documentation of an API allows where its answers do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<Real<ToThousand>>,
    /// Requests that may go out at once before `requests_per_s` holds them back, 1 to 1,000. Default 1: evenly spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Bounded<u32, 1, 1_000>>,
    /// Most requests at a time, 1 to 64. Default: `fetch.concurrency` for `fetch`; a crawl asks for one page of a host at a
    /// time. Refused for a `rest` source, which asks for one page at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Bounded<u32, 1, 64>>,
    /// Unit of `X-RateLimit-Reset`: `auto` (default), `delta_s`, `delta_ms`, `epoch_s` or `epoch_ms`. Name it where `auto`
    /// would take milliseconds to wait for seconds.
    #[serde(skip_serializing_if = "ResetUnit::is_auto")]
    pub reset_unit: ResetUnit,
}

impl LimitsConfig {
    /// Whether nothing was said about it.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What the number in `X-RateLimit-Reset` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResetUnit {
    /// By its size: below 10^8 seconds to wait, below 10^11 a Unix time in seconds, below 10^14 one in milliseconds.
    #[default]
    Auto,
    /// Seconds to wait.
    DeltaS,
    /// Milliseconds to wait.
    DeltaMs,
    /// Unix time in seconds.
    EpochS,
    /// Unix time in milliseconds.
    EpochMs,
}

impl ResetUnit {
    /// Whether it is found out by the number's size.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}
