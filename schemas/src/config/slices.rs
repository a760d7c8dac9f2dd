//! `[source.slices]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[source.slices]`: requests the records of a `rest` source in slices of a range, each with its
/// own pages.
///
/// The log stores the finished parts of the range, merged. A run reads the parts between `start`
/// and `end` that are not finished. A stopped run therefore resumes, and a wider range costs only
/// the missing parts. Without `end`, each run of a finished source requests the records that have
/// become due since. A pass keeps the end that it began with. A range that changes meanwhile
/// applies after that pass, in the same run.
///
/// `pagination.max_records` is the number of records at which the API stops. A slice that reaches
/// it, or whose total is higher, is halved, and the halves are read again, down to the smallest
/// unit of `format`. A slice of that size which still reaches it ends the run as incomplete.
///
/// Records can arrive twice, from a halved slice or at a bound that two slices share. The second
/// ones are dropped as duplicates by their content, whenever the first ones landed. For that,
/// memory holds hashes of the records in the slices being read and their neighbours, about 30 bytes
/// per record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlicesConfig {
    /// Query parameter for the lower end of a slice, which is part of the slice. If `url` contains
    /// `{from_param}` with this name in it, the value replaces that placeholder instead.
    pub from_param: String,
    /// The same for the upper end. Default: none is sent, for APIs that return the records of one
    /// value, such as a day; `step` must then be the smallest unit of `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_param: Option<String>,
    /// Beginning of the range, in `format`; timestamps may also be an RFC 3339 time or a date
    /// (midnight UTC).
    pub start: String,
    /// End of the range, exclusive. Default: the current time by `clock`, less `lag`. An end in the
    /// future is replaced by the current time, because later records there would be recorded as
    /// read. Required for `integer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Time between the end of the range and now, for late records: an integer with `s`, `m`, `h`,
    /// `d` or `w`. Records that arrive even later in a finished slice are not read. Default `0s`.
    #[serde(default = "none", skip_serializing_if = "is_none")]
    pub lag: String,
    /// Length of a slice. For times, an integer with `s`, `m`, `h`, `d`, `w` or `mo` (calendar
    /// months UTC), at least the smallest unit of `format`; for `integer`, an integer. Longer
    /// slices need fewer requests; shorter ones stay below the cap of the API.
    pub step: String,
    /// Format of the ends of slices: `rfc3339` (seconds, UTC), `unix_s`, `unix_ms`, `integer`, or a
    /// pattern such as `%Y-%m-%d` or `%Y-%m-%dT%H:%M` (UTC). Its smallest unit is the smallest
    /// slice: a second, a millisecond, 1, a day, a minute. Default `rfc3339`.
    #[serde(default = "rfc3339", skip_serializing_if = "is_rfc3339")]
    pub format: String,
    /// Upper end of a slice in the API: `exclusive` (default; records at the upper end are not
    /// returned) or `inclusive` (they are returned).
    #[serde(default, skip_serializing_if = "is_exclusive")]
    pub upper: UpperEnd,
    /// Clock for the current time, at which the range ends: `earlier` (the earlier of this
    /// machine's and the API's, by the `Date` of its responses) or `machine`. Default `earlier`: a
    /// fast clock of the machine would record future slices as finished. Set `machine` for an API
    /// whose clock is wrong.
    #[serde(default, skip_serializing_if = "is_earlier")]
    pub clock: SliceClock,
}

/// Clock that ends a range without `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SliceClock {
    /// The earlier of this machine's clock and that of the API.
    #[default]
    Earlier,
    /// The clock of this machine.
    Machine,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_earlier(clock: &SliceClock) -> bool {
    *clock == SliceClock::Earlier
}

/// Upper end of a slice in the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpperEnd {
    /// Records at the upper end are not returned: the beginning of the next slice is sent.
    #[default]
    Exclusive,
    /// Records at the upper end are returned. For `integer` and patterns of whole days, the last
    /// value of the slice is sent, so slices share none. For times, the beginning of the next slice
    /// is sent, so that fractions of a second are not lost. Records at exactly that time arrive
    /// twice, and the second one is dropped as a duplicate by its content.
    Inclusive,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_exclusive(upper: &UpperEnd) -> bool {
    *upper == UpperEnd::Exclusive
}

fn none() -> String {
    "0s".into()
}

fn is_none(text: &str) -> bool {
    text == "0s"
}

fn rfc3339() -> String {
    "rfc3339".into()
}

fn is_rfc3339(text: &str) -> bool {
    text == "rfc3339"
}
