//! `[source.incremental]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[source.incremental]`: a finished `rest` source, run again, asks for records that are newer than the newest it has.
///
/// The bound moves only when a run of pages has reached its end. It is inclusive: records at the bound come again, and
/// those of equal content are left out, however many there are; a record that has changed lands again. A record that
/// turns up later than `lookback` with an older cursor is not found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IncrementalConfig {
    /// Path in a record of the value that grows with each new or changed record: an integer, an RFC 3339 time
    /// (`2026-03-01T12:00:00Z`) or a date (`2026-03-01`), the same kind in all records.
    pub cursor: String,
    /// Query parameter that the bound is sent in; the API must give records with this value or a later one.
    pub param: String,
    /// Bound of the first run. Default: none is sent, which asks for everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// How far before the newest cursor the next run begins, for records that turn up late: for times a whole number with
    /// `s`, `m`, `h` or `d` (`6h`), for dates with `d`, for integers without a unit. The hashes of landed records in it
    /// are held in memory, about 20 bytes each. Default `0`.
    #[serde(default = "zero")]
    pub lookback: String,
    /// Longest time beyond now at which a cursor that is a time or a date still moves the bound: a whole number with `s`, `m`,
    /// `h` or `d`. Now is the earlier of this machine's clock and that of the API (`Date` of its responses); a date
    /// begins where it begins first on Earth. A record beyond it lands, is warned of as `cursor_in_future`, and does not
    /// move the bound, since all that comes before it would be taken as read. Raise it for records that are rightly of the
    /// future, such as forecasts. Default `5m`, for clocks that differ a little.
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
