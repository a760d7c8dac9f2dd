//! Due times of a source.

use std::time::Duration;

use croner::{Cron, errors::CronError, parser::CronParser};
use feedline_schemas::{
    config::{SourceConfig, SourceScheduleConfig},
    report::Warning,
};
use jiff::{Timestamp, tz::TimeZone};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{context::Context, error::Error};

/// Code of the warning about a schedule whose last time has passed.
const SCHEDULE_OVER: &str = "schedule_over";

/// Due times of a source, in whole seconds since 1970-01-01 UTC.
#[derive(Clone, Debug)]
pub(crate) enum DueTimes {
    /// Multiples of this many seconds.
    Every(i64),
    /// Boxed: an expression is some hundred bytes.
    Cron(Box<(Cron, TimeZone)>),
}

impl DueTimes {
    /// Due times of a schedule.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that name no times.
    pub(crate) fn new(config: &SourceScheduleConfig) -> Result<Self, Error> {
        let wrong = |key: &str, reason: String| Err(Error::config(key, reason));
        match (&config.cron, config.every_s) {
            (None, None) => wrong(
                "schedule",
                "has no time; set `cron` or `every_s`".to_owned(),
            ),
            (Some(_), Some(_)) => wrong(
                "schedule",
                "has both `cron` and `every_s`; leave one out".to_owned(),
            ),
            (None, Some(every)) => Ok(Self::Every(
                i64::try_from(every.get()).expect("a year has fewer seconds"),
            )),
            (Some(cron), None) => Self::cron(cron, &config.zone),
        }
    }

    fn cron(expression: &str, zone: &str) -> Result<Self, Error> {
        let cron = CronParser::new().parse(expression).map_err(|e| {
            let fault = wrong_field(expression).unwrap_or_else(|| e.to_string());
            let reason = format!(
                "`{expression}` is no cron expression: {fault}; write minute, hour, day of month, month and day of week, such as `30 6 * * mon-fri`"
            );
            Error::config("schedule.cron", reason)
        })?;
        let zone = TimeZone::get(zone).map_err(|_| {
            let reason =
                format!("`{zone}` is no IANA time zone; use one such as `UTC` or `Europe/Berlin`");
            Error::config("schedule.zone", reason)
        })?;
        let ticks = Self::Cron(Box::new((cron, zone)));
        // The 30th of February parses and never comes.
        if ticks.after(0)?.is_none() {
            let reason = format!("`{expression}` names a time that never comes");
            return Err(Error::config("schedule.cron", reason));
        }
        Ok(ticks)
    }

    /// Returns the first tick after `unix_s`; `None` after the last.
    ///
    /// # Errors
    /// [`Error::Config`] if the calendar has no result.
    pub(crate) fn after(&self, unix_s: i64) -> Result<Option<i64>, Error> {
        match self {
            Self::Every(seconds) => Ok(unix_s
                .div_euclid(*seconds)
                .checked_add(1)
                .and_then(|n| n.checked_mul(*seconds))),
            Self::Cron(cron) => {
                let (cron, zone) = &**cron;
                let Ok(from) = Timestamp::from_second(unix_s) else {
                    return Ok(None);
                };
                to_unix_s(cron.find_next_occurrence(&from.to_zoned(zone.clone()), false))
            }
        }
    }

    /// The last time that is not after `unix_s`.
    ///
    /// # Errors
    /// As [`Self::after`].
    pub(crate) fn until(&self, unix_s: i64) -> Result<Option<i64>, Error> {
        match self {
            Self::Every(seconds) => Ok(Some(unix_s.div_euclid(*seconds) * seconds)),
            Self::Cron(cron) => {
                let (cron, zone) = &**cron;
                let Ok(from) = Timestamp::from_second(unix_s) else {
                    return Ok(None);
                };
                to_unix_s(cron.find_previous_occurrence(&from.to_zoned(zone.clone()), true))
            }
        }
    }
}

/// Warns of a source whose schedule names no time after the present one; `None` for any other, also
/// for one whose schedule is refused.
#[must_use]
pub fn warn_of_past_schedule(source: &SourceConfig, context: &Context) -> Option<Warning> {
    let schedule = source.schedule.as_ref()?;
    let expression = schedule.cron.as_deref()?;
    let times = DueTimes::new(schedule).ok()?;
    let now = i64::try_from(context.clock.unix().as_secs()).ok()?;
    if times.after(now).ok()?.is_some() {
        return None;
    }
    let last = Timestamp::from_second(times.until(now).ok()??).ok()?;
    let effect = match schedule.catch_up {
        true => "runs the source once if it has not run since, and never again",
        false => "never runs the source",
    };
    let message = format!(
        "`{expression}` names no time after now, and its last one was {last}: `feedline serve` {effect}; correct the \
         expression, or remove `[source.schedule]`"
    );
    Some(Warning::new(SCHEDULE_OVER, message).with_key("schedule.cron"))
}

/// Seconds of a found time; `None` if the search has found none.
fn to_unix_s(found: Result<jiff::Zoned, CronError>) -> Result<Option<i64>, Error> {
    match found {
        Ok(time) => Ok(Some(time.timestamp().as_second())),
        Err(CronError::TimeSearchLimitExceeded) => Ok(None),
        Err(e) => Err(Error::config(
            "schedule.cron",
            format!("has no next time: {e}"),
        )),
    }
}

/// Delay of a run after `tick`. It is the same in every program that serves the source.
pub(crate) fn jitter(source: &str, tick: i64, most_s: u64) -> Duration {
    let hash = xxh3_64_with_seed(source.as_bytes(), tick.cast_unsigned());
    let most_ms = u128::from(most_s) * 1_000;
    let drawn = (u128::from(hash) * (most_ms + 1)) >> 64;
    Duration::from_millis(u64::try_from(drawn).unwrap_or(0))
}

/// Fields of a cron expression of six, and their values; one of five has no second.
static CRON_FIELDS: [(&str, &str); 6] = [
    ("second", "0 to 59"),
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of month", "1 to 31"),
    ("month", "1 to 12 or jan to dec"),
    ("day of week", "0 to 7 or sun to sat"),
];

/// The first field of a cron expression that is wrong by itself, and its values.
fn wrong_field(expression: &str) -> Option<String> {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let names = match fields.len() {
        5 => &CRON_FIELDS[1..],
        6 => &CRON_FIELDS[..],
        _ => return None,
    };
    let is_wrong = |at: &usize| {
        let mut alone = vec!["*"; fields.len()];
        alone[*at] = fields[*at];
        CronParser::new().parse(&alone.join(" ")).is_err()
    };
    let at = (0..fields.len()).find(is_wrong)?;
    let (name, values) = names[at];
    Some(format!(
        "`{}` is no {name}, which is {values}, `*`, a list such as `1,2` or a range such as `1-2`",
        fields[at]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_schemas::config::Bounded;

    fn cron(expression: &str, zone: &str) -> Result<DueTimes, Error> {
        DueTimes::new(&SourceScheduleConfig {
            cron: Some(expression.into()),
            zone: zone.into(),
            ..SourceScheduleConfig::default()
        })
    }

    #[test]
    fn an_error_of_an_expression_names_the_field_and_its_values() {
        for (expression, part) in [
            ("61 * * * *", "`61` is no minute, which is 0 to 59"),
            ("0 24 * * *", "`24` is no hour, which is 0 to 23"),
            ("0 6 32 * *", "`32` is no day of month, which is 1 to 31"),
            ("0 6 * 13 *", "`13` is no month, which is 1 to 12"),
            ("0 6 * * 8", "`8` is no day of week, which is 0 to 7"),
            ("99 0 6 * * *", "`99` is no second, which is 0 to 59"),
        ] {
            let error = cron(expression, "UTC").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    fn unix(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    /// All times from one moment to another, as text in UTC.
    fn between(ticks: &DueTimes, from: &str, to: &str) -> Vec<String> {
        let mut at = unix(from);
        let mut all = Vec::new();
        while let Some(next) = ticks.after(at).unwrap() {
            if next > unix(to) {
                break;
            }
            assert_eq!(ticks.until(next).unwrap(), Some(next), "backwards too");
            assert_eq!(ticks.until(next - 1).unwrap(), ticks.until(at).unwrap());
            all.push(Timestamp::from_second(next).unwrap().to_string());
            at = next;
        }
        all
    }

    #[test]
    fn fault_51_an_hour_left_out_or_repeated_by_summer_time_runs_once() {
        let nightly = cron("30 2 * * *", "Europe/Berlin").unwrap();
        assert_eq!(
            between(&nightly, "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z"),
            [
                "2026-03-28T01:30:00Z",
                "2026-03-29T01:00:00Z",
                "2026-03-30T00:30:00Z"
            ],
            "right after the gap"
        );
        assert_eq!(
            between(&nightly, "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
            "the first of two half past two"
        );
        let hourly = cron("0 * * * *", "Europe/Berlin").unwrap();
        assert_eq!(
            between(&hourly, "2026-10-24T23:30:00Z", "2026-10-25T03:30:00Z").len(),
            4,
            "every hour that passes"
        );
    }

    #[test]
    fn times_of_other_zones_and_days_of_the_week() {
        let rates = cron("30 6 * * mon-fri", "Asia/Kolkata").unwrap();
        assert_eq!(
            between(&rates, "2026-11-20T12:00:00Z", "2026-11-24T12:00:00Z"),
            ["2026-11-23T01:00:00Z", "2026-11-24T01:00:00Z"]
        );
    }

    #[test]
    fn intervals_do_not_move_with_the_start() {
        let ticks = DueTimes::Every(900);
        for (at, next, last) in [(0, 900, 0), (1, 900, 0), (900, 1800, 900), (-1, 0, -900)] {
            assert_eq!(ticks.after(at).unwrap(), Some(next));
            assert_eq!(ticks.until(at).unwrap(), Some(last));
        }
        assert_eq!(ticks.after(i64::MAX).unwrap(), None);
    }

    #[test]
    fn what_names_no_time_is_refused_with_its_key() {
        let wrong = |config: SourceScheduleConfig, key: &str, part: &str| {
            let error = DueTimes::new(&config).unwrap_err();
            let Error::Config { key: found, reason } = &error else {
                panic!("{error}");
            };
            assert!(found == key && reason.contains(part), "{error}");
        };
        let none = SourceScheduleConfig::default();
        wrong(none.clone(), "schedule", "has no time");
        let both = SourceScheduleConfig {
            cron: Some("@daily".into()),
            every_s: Some(Bounded::literal::<5>()),
            ..none.clone()
        };
        wrong(both, "schedule", "leave one out");
        for (expression, zone, key, part) in [
            ("61 * * * *", "UTC", "schedule.cron", "no cron expression"),
            ("often", "UTC", "schedule.cron", "no cron expression"),
            ("0 0 30 2 *", "UTC", "schedule.cron", "never comes"),
            ("@daily", "Berlin", "schedule.zone", "IANA"),
        ] {
            let config = SourceScheduleConfig {
                cron: Some(expression.into()),
                zone: zone.into(),
                ..none.clone()
            };
            wrong(config, key, part);
        }
    }

    #[test]
    fn a_schedule_whose_last_time_has_passed_is_a_warning() {
        // Its clock shows a day of November 1994.
        let context = crate::testing::context();
        let warning = |cron: &str, catch_up: bool| {
            let mut source = crate::files::tests::source("a.csv");
            source.schedule = Some(SourceScheduleConfig {
                cron: Some(cron.into()),
                catch_up,
                ..SourceScheduleConfig::default()
            });
            warn_of_past_schedule(&source, &context)
        };
        for cron in ["@daily", "0 0 0 1 1 * 1995", "0 0 0 1 1 * 1990,1995", "61"] {
            assert_eq!(warning(cron, true), None, "{cron}");
        }
        for (catch_up, effect) in [(true, "runs the source once if"), (false, "never runs")] {
            let found = warning("0 0 0 1 1 * 1990", catch_up).unwrap();
            assert_eq!(found.code, "schedule_over");
            let begin = "`0 0 0 1 1 * 1990` names no time after now, and its last one was 1990-01-01T00:00:00Z: ";
            assert!(found.message.starts_with(begin), "{found:?}");
            let effect = format!("`feedline serve` {effect}");
            assert!(found.message.contains(&effect), "{found:?}");
        }
    }

    #[test]
    fn jitter_is_drawn_for_each_time_within_its_bound() {
        assert_eq!(jitter("s", 1, 0), Duration::ZERO);
        let drawn: Vec<u128> = (0..200)
            .map(|tick| jitter("s", tick, 60).as_millis())
            .collect();
        assert!(drawn.iter().all(|ms| *ms <= 60_000));
        assert!(drawn.iter().any(|ms| *ms < 10_000) && drawn.iter().any(|ms| *ms > 50_000));
        assert_eq!(jitter("s", 7, 60), jitter("s", 7, 60));
        assert_ne!(jitter("s", 7, 60), jitter("t", 7, 60));
    }
}
