//! `[source.schedule]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Seconds;

/// `[source.schedule]`: when `feedline serve` runs the source. Exactly one of `cron` and `every_s` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SourceScheduleConfig {
    /// A cron expression of five fields (minute, hour, day of month, month, day of week), of six with seconds in front, or
    /// a word such as `@hourly`: `"30 6 * * mon-fri"`. Times are those of clocks in `zone`: one that a change to summer time
    /// leaves out runs right after the gap, and one that comes twice in autumn runs once, unless the hour or minute is `*`
    /// or has a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Seconds between runs, 1 to 31,536,000, counted from 1970-01-01 UTC, so that a restart does not move them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_s: Option<Seconds<1, 31_536_000>>,
    /// IANA time zone of `cron`, such as `Europe/Berlin`. Default `UTC`.
    pub zone: String,
    /// Each run begins a time of up to this many seconds later, up to 86,400, drawn for each run anew, so that many sources do
    /// not ask one server in the same second. Default 0.
    pub jitter_s: Seconds<0, 86_400>,
    /// When a run is due while the one before still runs: `skip` (default) or `queue` (one run right behind it).
    pub overlap: Overlap,
    /// Whether runs that were due while no program ran are made up for, by one run. Default true.
    pub catch_up: bool,
}

impl Default for SourceScheduleConfig {
    fn default() -> Self {
        Self {
            cron: None,
            every_s: None,
            zone: "UTC".into(),
            jitter_s: Seconds::default(),
            overlap: Overlap::Skip,
            catch_up: true,
        }
    }
}

/// What to do about a run that is due while the one before still runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Leave it out.
    #[default]
    Skip,
    /// Run once more when that one has ended, however many were due.
    Queue,
}
