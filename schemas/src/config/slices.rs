//! `[source.slices]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[source.slices]`: a `rest` source is asked for in slices of a range, each with pages of its own.
///
/// The log keeps which parts of the range are done, merged. What lies between `start` and `end` and is not done is what a
/// run reads: a run that was stopped goes on, a range that is made wider costs what is missing, and where `end` is absent a
/// finished source is asked for what has become due since. A pass keeps the end it began with; a range that is changed
/// meanwhile counts when that pass is over, in the same run.
///
/// Where `pagination.max_records` says at which number of records the API stops, a slice that reaches it, or whose total
/// is higher, is cut into halves that are read again, down to the smallest unit of `format`; one of that size which still
/// reaches it ends the run as incomplete. Records that come again, from a slice that was cut or at a bound that two slices
/// share, are left out by their content, however long ago they landed; hashes of the slices that are read and their
/// neighbours are held in memory for that, about 30 bytes a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlicesConfig {
    /// Query parameter that the lower end of a slice is sent in, which belongs to the slice; or, where `url` has
    /// `{from_param}` with this name in it, what stands there.
    pub from_param: String,
    /// The same for the upper end. Default: none is sent, for APIs that give what belongs to one value, such as a day;
    /// `step` must then be the smallest unit of `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_param: Option<String>,
    /// Beginning of the range, as `format` has it; timestamps may also be an RFC 3339 time or a date (midnight UTC).
    pub start: String,
    /// End of the range, which does not belong to it. Default: now by `clock`, less `lag`; an end in the future
    /// counts as now, since later records there would be taken as read. Required for `integer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// How long before now the range ends, for records that turn up late: a whole number with `s`, `m`, `h`, `d` or `w`.
    /// What turns up later in a slice that is done is not found. Default `0s`.
    #[serde(default = "none", skip_serializing_if = "is_none")]
    pub lag: String,
    /// Length of a slice: for points in time a whole number with `s`, `m`, `h`, `d`, `w` or `mo` (calendar months UTC), at
    /// least the smallest unit of `format`; for `integer` a whole number. Longer slices cost fewer requests; shorter ones
    /// stay below what the API gives at a time.
    pub step: String,
    /// How ends of slices are written: `rfc3339` (seconds, UTC), `unix_s`, `unix_ms`, `integer`, or a pattern such as
    /// `%Y-%m-%d` or `%Y-%m-%dT%H:%M` (UTC). Its last place is the smallest slice there is: a second, a millisecond, 1, a
    /// day, a minute. Default `rfc3339`.
    #[serde(default = "rfc3339", skip_serializing_if = "is_rfc3339")]
    pub format: String,
    /// Whether the API gives what lies at the upper end. Default `exclusive`.
    #[serde(default, skip_serializing_if = "is_exclusive")]
    pub upper: UpperEnd,
    /// Clock that says now, where the range ends: `earlier` of this machine's and that of the API (`Date` of its
    /// responses), or `machine`. Default `earlier`: a machine's clock that is ahead would mark as done what is still to
    /// come. Set `machine` for an API whose clock is wrong.
    #[serde(default, skip_serializing_if = "is_earlier")]
    pub clock: SliceClock,
}

/// Clock that says where a range without an end ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SliceClock {
    /// The earlier of this machine's and that of the API.
    #[default]
    Earlier,
    /// This machine's.
    Machine,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_earlier(clock: &SliceClock) -> bool {
    *clock == SliceClock::Earlier
}

/// Whether an API gives what lies at the upper end of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpperEnd {
    /// It does not: the beginning of the next slice is sent.
    #[default]
    Exclusive,
    /// It does. For `integer`, and for patterns of whole days, the last one of the slice is sent: slices share none. For
    /// times the beginning of the next slice is sent, so that fractions of a second are not lost; what lies exactly there
    /// comes twice and is left out by its content the second time.
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
