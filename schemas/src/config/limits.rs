//! `[source.limits]`: rate limiting of requests to a host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bounded, Real, ToThousand};

/// `[source.limits]`: bounds on the requests to one host with one credential. All sources of a
/// process share the state of a host: the wait that it requested, and its remaining quota.
///
/// Quotas of a server are obeyed without any setting: `RateLimit` and `RateLimit-Policy` (IETF
/// draft `httpapi-ratelimit-headers`, this and its older forms) and `X-RateLimit-Remaining` with
/// `X-RateLimit-Reset`. A host with an exhausted quota gets no request until its reset. After a
/// response with status 429 or 503, the number of parallel requests to the host is halved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Most requests per second, over 0 to 1,000. Default: only the server's own limit (and
    /// `crawl.delay_ms`). Set it to the documented limit of an API whose responses do not report
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<Real<ToThousand>>,
    /// Number of requests that may be sent at once before `requests_per_s` delays them, 1 to 1,000.
    /// Default 1: evenly spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Bounded<u32, 1, 1_000>>,
    /// Most requests to a host at a time, over all its sources, 1 to 64. Default: 16 for the host and
    /// 4 for each `rest` source; `fetch.concurrency` for `fetch`. A crawl requests one page of a host
    /// at a time.
    ///
    /// A `rest` source requests slices and values ahead. With this key, and with
    /// `pagination.overlap`, it also requests pages by number or offset before the page in front of
    /// them has come. Then a record that is added at the top of the list meanwhile can move another
    /// one past the place of reading, so that it is missing: set it where new records come at the
    /// end, where the list rests, or together with `pagination.overlap`, which finds what moved.
    /// Pages land in their order. Unread pages take at most four times as many places and about 64
    /// MiB. A page whose next cursor is in the page before it is requested after that one. Without a
    /// total, up to twice as many requests may go beyond the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Bounded<u32, 1, 64>>,
    /// Unit of `X-RateLimit-Reset`: `auto` (default), `delta_s`, `delta_ms`, `epoch_s` or
    /// `epoch_ms`. Set it where `auto` would read a wait in milliseconds as seconds.
    #[serde(skip_serializing_if = "ResetUnit::is_auto")]
    pub reset_unit: ResetUnit,
}

impl LimitsConfig {
    /// Returns true for the defaults.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Unit of the number in `X-RateLimit-Reset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResetUnit {
    /// By size of the number: below 10^8 a wait in seconds, below 10^11 a Unix time in seconds,
    /// below 10^14 a Unix time in milliseconds.
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
    /// Returns true if the unit follows from the size of the number.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}
