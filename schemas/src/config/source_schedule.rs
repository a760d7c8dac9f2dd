//! `[source.schedule]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Seconds;

/// `[source.schedule]`: times at which `feedline serve` runs the source. Exactly one of `cron` and
/// `every_s` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SourceScheduleConfig {
    /// A cron expression such as `"30 6 * * mon-fri"`. It has five fields (minute, hour, day of
    /// month, month, day of week), or six with seconds in front. A word such as `@hourly` is
    /// accepted too.
    ///
    /// Times are local times in `zone`. A time that the change to summer time skips runs right
    /// after the gap. A time that occurs twice in autumn runs once, unless the hour or minute is
    /// `*` or has a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Seconds between runs, 1 to 31,536,000, counted from 1970-01-01 UTC, so that a restart does
    /// not move the runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_s: Option<Seconds<1, 31_536_000>>,
    /// IANA time zone of `cron`, such as `Europe/Berlin`. Default `UTC`.
    pub zone: String,
    /// Longest random delay of a run, in seconds, 0 to 86,400. Each run draws its own delay, so
    /// that many sources do not request one server in the same second. Default 0.
    pub jitter_s: Seconds<0, 86_400>,
    /// Action for a run that is due while the previous one is still running: `skip` (default) or
    /// `queue` (one run right after it).
    pub overlap: Overlap,
    /// If true, one run makes up for runs that were due while no program was running. Default true.
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

/// Action for a run that is due while the previous one is still running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Skip it.
    #[default]
    Skip,
    /// Run once after the previous run has ended, for any number of due runs.
    Queue,
}
