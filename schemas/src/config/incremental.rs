//! `[source.incremental]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[source.incremental]`: a rerun of a finished `rest` source requests records that are newer than
/// the watermark.
///
/// The watermark moves only after a run of pages has reached its end. It is inclusive: records at
/// the watermark arrive again, and all of those with equal content are dropped as duplicates. A
/// changed record lands again. A late record whose cursor is older than `lookback` allows is not
/// read.
///
/// With `for_each` each value has a watermark of its own, which moves at the end of its pages; the
/// landing folder keeps them in `cursors/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IncrementalConfig {
    /// Path in a record of the cursor, a value that grows with each new or changed record. It is an
    /// integer, an RFC 3339 time (`2026-03-01T12:00:00Z`) or a date (`2026-03-01`), the same kind
    /// in all records.
    pub cursor: String,
    /// Query parameter for the lower bound, the watermark less `lookback`; the API must return
    /// records with this cursor or a later one.
    pub param: String,
    /// Lower bound of the first run. Default: none is sent, which requests all records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Span before the watermark that the next run requests again, for late records. For times, an
    /// integer with `s`, `m`, `h` or `d` (`6h`); for dates, one with `d`; for integers, one without
    /// a unit. Memory holds the hashes of the landed records in it, about 20 bytes each. Default
    /// `0`.
    #[serde(default = "zero")]
    pub lookback: String,
    /// Longest time that a cursor (a time or a date) may be ahead of now and still move the
    /// watermark: an integer with `s`, `m`, `h` or `d`. Now is the earlier of this machine's clock
    /// and that of the API (`Date` of its responses). A date begins at its midnight in the
    /// easternmost time zone.
    ///
    /// A record beyond it lands with the warning `cursor_in_future`, and does not move the
    /// watermark, because all earlier records would count as read. Raise it for records whose
    /// cursor may be in the future, such as forecasts. Default `5m`, for small differences between
    /// clocks.
    #[serde(default = "few_minutes", skip_serializing_if = "is_few_minutes")]
    pub max_ahead: String,
}

fn few_minutes() -> String {
    "5m".into()
}

fn is_few_minutes(text: &str) -> bool {
    text == "5m"
}

fn zero() -> String {
    "0".into()
}
