//! Format of slice ends, and length of a slice.

use std::time::Duration;

use feedline_readers::calendar_time::{nanos_at, utc_datetime};
use feedline_schemas::commit::Interval;
use jiff::{
    civil::{Date, DateTime, Time},
    fmt::strtime::BrokenDownTime,
    tz::Offset,
};

use super::intervals::Intervals;
use crate::contract::{Dates, is_format};

const DAY_MS: i64 = 86_400_000;
/// Nanoseconds of a millisecond.
const MILLISECOND_NANOS: i128 = 1_000_000;

/// Unit of slice numbers; for timestamps, units since 1970 UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Integer,
    /// RFC 3339 in UTC; units of a second.
    Rfc3339,
    /// Unix time; units of so many milliseconds.
    Unix(i64),
    /// A pattern whose last field is so many milliseconds.
    Pattern(String, i64),
}

impl Scale {
    /// Parses the name of a format.
    ///
    /// # Errors
    /// A message with the valid formats.
    pub(super) fn new(format: &str) -> Result<Self, String> {
        match format {
            "integer" => return Ok(Self::Integer),
            "rfc3339" => return Ok(Self::Rfc3339),
            "unix_s" => return Ok(Self::Unix(1_000)),
            "unix_ms" => return Ok(Self::Unix(1)),
            _ => {}
        }
        let unit = [1_000, 60_000, 3_600_000, DAY_MS]
            .into_iter()
            .find(|unit| is_format(format) && tells(format, *unit));
        unit.map(|unit| Self::Pattern(format.to_owned(), unit)).ok_or_else(|| {
            format!(
                "`{format}` is no format of slice ends: use `rfc3339`, `unix_s`, `unix_ms`, `integer`, or a pattern with at least the day, such as `%Y-%m-%d`"
            )
        })
    }

    /// Milliseconds of a unit; none for integers.
    fn unit_ms(&self) -> Option<i64> {
        match self {
            Self::Integer => None,
            Self::Rfc3339 => Some(1_000),
            Self::Unix(unit) | Self::Pattern(_, unit) => Some(*unit),
        }
    }

    /// Returns true if the last number of a slice covers all that belongs to it, such as a day.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Integer | Self::Pattern(_, DAY_MS))
    }

    /// Parses the number written as `text`.
    ///
    /// # Errors
    /// The expected format.
    pub(super) fn read(&self, text: &str) -> Result<i64, String> {
        let wrong = |what: &str| Err(format!("`{}` is {what}", text.escape_debug()));
        let Some(unit) = self.unit_ms() else {
            return text.parse().or_else(|_| wrong("no whole number"));
        };
        let number = || text.parse().ok();
        let own = match self {
            Self::Unix(_) => number(),
            Self::Pattern(pattern, unit) => {
                millis(&[pattern.as_str()], text).map(|at| at.div_euclid(*unit))
            }
            _ => None,
        };
        if let Some(own) = own {
            return match own.checked_mul(unit).and_then(utc_time) {
                Some(_) => Ok(own),
                None => wrong("no time before the year 10000"),
            };
        }
        match millis(&["rfc3339", "%Y-%m-%d"], text) {
            Some(at) if at % unit == 0 => Ok(at / unit),
            Some(_) => wrong("finer than `slices.format` can write"),
            None => wrong(
                "neither of `slices.format` nor an RFC 3339 time (`2026-03-01T12:00:00Z`) or a date (`2026-03-01`)",
            ),
        }
    }

    /// Formats a number for the API.
    pub(super) fn write(&self, at: i64) -> String {
        match self {
            Self::Integer | Self::Unix(_) => at.to_string(),
            Self::Rfc3339 => format!("{}Z", self.time(at)),
            Self::Pattern(pattern, _) => {
                format_utc(pattern, self.time(at)).unwrap_or_else(|| at.to_string())
            }
        }
    }

    /// Formats a number for messages.
    pub(super) fn show(&self, at: i64) -> String {
        match self {
            Self::Unix(_) => format!("{}Z", self.time(at)),
            _ => self.write(at),
        }
    }

    /// Date and time in UTC; that of the nearest end of the calendar beyond it.
    fn time(&self, at: i64) -> DateTime {
        let millis = at.saturating_mul(self.unit_ms().unwrap_or(1));
        let end = if at < 0 { DateTime::MIN } else { DateTime::MAX };
        utc_time(millis).unwrap_or(end)
    }

    /// Returns the number of units that were complete `lag_s` seconds before `unix`.
    pub(super) fn before(&self, unix: Duration, lag_s: i64) -> Option<i64> {
        let millis = i64::try_from(unix.as_millis()).unwrap_or(i64::MAX);
        let millis = millis.saturating_sub(lag_s.saturating_mul(1_000));
        self.unit_ms().map(|unit| millis.div_euclid(unit))
    }

    /// Parses the step written as `text`.
    ///
    /// # Errors
    /// The expected format.
    pub(super) fn step(&self, text: &str) -> Result<Step, String> {
        let Some(unit) = self.unit_ms() else {
            let number = text.parse().ok().filter(|number| *number > 0);
            return number
                .map(Step::Units)
                .ok_or_else(|| format!("`{text}` is no whole number above 0"));
        };
        if let Some(months) = text.strip_suffix("mo") {
            let months = months
                .parse()
                .ok()
                .filter(|months| (1..=1_200).contains(months));
            return months
                .map(Step::Months)
                .ok_or_else(|| format!("`{text}` is no number of months, 1mo to 1200mo"));
        }
        let millis = seconds(text).and_then(|seconds| seconds.checked_mul(1_000));
        match millis {
            Some(millis) if millis > 0 && millis % unit == 0 => Ok(Step::Units(millis / unit)),
            Some(_) => Err(format!(
                "`{text}` is no multiple of the smallest unit of `slices.format`, above 0"
            )),
            None => Err(format!(
                "`{text}` is no whole number with `s`, `m`, `h`, `d`, `w` or `mo`, such as `7d`"
            )),
        }
    }

    /// Returns the end of the slice that begins at `from`.
    pub(super) fn after(&self, from: i64, step: Step) -> i64 {
        let months = match step {
            Step::Units(units) => return from.saturating_add(units),
            Step::Months(months) => months,
        };
        let date = self.time(from).date();
        let month = i64::from(date.year()) * 12 + i64::from(date.month()) - 1 + months;
        let year = i16::try_from(month.div_euclid(12)).ok();
        let month = i8::try_from(month.rem_euclid(12) + 1).ok();
        let first = year
            .zip(month)
            .and_then(|(year, month)| Date::new(year, month, 1).ok());
        let nanos = first.and_then(|date| {
            let begins = date.to_datetime(Time::midnight());
            nanos_at(begins, Offset::UTC)
        });
        let units = nanos.zip(self.unit_ms()).and_then(|(nanos, unit)| {
            let units = nanos.div_euclid(MILLISECOND_NANOS * i128::from(unit));
            i64::try_from(units).ok()
        });
        units.unwrap_or(i64::MAX)
    }

    /// The first slice of an interval.
    pub(super) fn first(&self, [from, to]: Interval, step: Step) -> Interval {
        [from, self.after(from, step).min(to)]
    }

    /// Number of slices that the intervals are read in.
    pub(super) fn count(&self, intervals: &Intervals, step: Step) -> u64 {
        let count = |[from, to]: Interval| match step {
            Step::Units(units) => to.abs_diff(from).div_ceil(units.unsigned_abs()),
            Step::Months(_) => {
                let mut at = from;
                let mut slices = 0;
                while at < to {
                    at = self.after(at, step);
                    slices += 1;
                }
                slices
            }
        };
        intervals.iter().map(count).fold(0, u64::saturating_add)
    }
}

/// Length of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Units(i64),
    /// Calendar months: slices end with the end of a month.
    Months(i64),
}

/// Parses a whole number with a unit as seconds, at most a hundred centuries.
pub(super) fn seconds(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: i64 = digits.parse().ok().filter(|number| *number >= 0)?;
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return None,
    };
    let seconds = number.checked_mul(unit)?;
    (seconds <= 10_000 * 366 * 86_400).then_some(seconds)
}

/// Milliseconds since 1970 UTC of a text by one of some formats; none for finer ones.
fn millis(formats: &[&str], text: &str) -> Option<i64> {
    let formats: Vec<String> = formats.iter().map(|format| (*format).to_owned()).collect();
    let micros = Dates::new(&formats).micros(text)?;
    (micros % 1_000 == 0).then_some(micros / 1_000)
}

/// Date and time in UTC of milliseconds since 1970; `None` beyond the calendar.
fn utc_time(millis: i64) -> Option<DateTime> {
    utc_datetime(i128::from(millis) * MILLISECOND_NANOS)
}

/// Writes a date and time in UTC by a pattern.
fn format_utc(pattern: &str, at: DateTime) -> Option<String> {
    let mut parts = BrokenDownTime::from(at);
    parts.set_offset(Some(Offset::UTC));
    parts.to_string(pattern).ok()
}

/// Returns true if a pattern distinguishes all timestamps that are `unit` milliseconds apart.
fn tells(pattern: &str, unit: i64) -> bool {
    // Irregular times over all months, days and hours.
    (0..60_i64).all(|i| {
        let at = 981_173_106_000 + i * 4_567_891_000;
        let at = at - at.rem_euclid(unit);
        let text = utc_time(at).and_then(|time| format_utc(pattern, time));
        text.is_some_and(|text| millis(&[pattern], &text) == Some(at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: &str, text: &str, at: i64, written: &str) {
        let scale = Scale::new(format).unwrap();
        assert_eq!(scale.read(text), Ok(at), "{format} {text}");
        assert_eq!(scale.write(at), written, "{format} {text}");
    }

    #[test]
    fn ends_are_read_in_their_format_or_as_a_time_and_written_in_their_format() {
        check("integer", "-7", -7, "-7");
        check("rfc3339", "1970-01-02", 86_400, "1970-01-02T00:00:00Z");
        check(
            "rfc3339",
            "1970-01-01T02:00:05+02:00",
            5,
            "1970-01-01T00:00:05Z",
        );
        check("unix_s", "12", 12, "12");
        check("unix_ms", "1970-01-01T00:00:00.250Z", 250, "250");
        check("%Y-%m-%d", "1970-02-01", 31, "1970-02-01");
        check("%Y%m%d", "19691231", -1, "19691231");
        check("%d.%m.%Y", "1970-01-03", 2, "03.01.1970");
        check("%Y-%m-%dT%H:%M", "1970-01-01T01:30", 90, "1970-01-01T01:30");
        check("%Y-%m-%d-%H", "1970-01-01T05:00:00Z", 5, "1970-01-01-05");
    }

    #[test]
    fn the_last_day_of_the_calendar_is_an_end_and_written_as_itself() {
        const DAY: i64 = 2_932_896;
        check("%Y-%m-%d", "9999-12-31", DAY, "9999-12-31");
        let begins = "9999-12-31T00:00:00Z";
        check("rfc3339", "9999-12-31", DAY * 86_400, begins);
        let end = (DAY + 1) * 86_400 - 1;
        check("unix_s", "9999-12-31T23:59:59Z", end, &end.to_string());
        check("unix_s", &end.to_string(), end, &end.to_string());
        let scale = Scale::new("unix_s").unwrap();
        assert_eq!(scale.show(end), "9999-12-31T23:59:59Z");
        assert!(scale.read(&(end + 1).to_string()).is_err());
        let minutes = "%Y-%m-%dT%H:%M%z";
        let offset = "9999-12-31T00:00+0000";
        check(minutes, "9999-12-31", DAY * 1_440, offset);
    }

    #[test]
    fn what_is_no_end_of_a_slice_says_so() {
        let check = |format: &str, text: &str, part: &str| {
            let error = Scale::new(format).unwrap().read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        check("integer", "1.5", "no whole number");
        check("%Y-%m-%d", "2026-03-01T12:00:00Z", "finer");
        check("rfc3339", "2026-03-01T12:00:00.5Z", "finer");
        check("rfc3339", "yesterday", "a date (`2026-03-01`)");
        check("unix_s", "99999999999999", "year 10000");
        for format in ["%Y-%m", "%H:%M", "yyyy-mm-dd", ""] {
            assert!(
                Scale::new(format).unwrap_err().contains("no format"),
                "{format}"
            );
        }
    }

    fn check_step(format: &str, step: &str, from: &str, expected: Result<&str, &str>) {
        let scale = Scale::new(format).unwrap();
        let found = scale
            .step(step)
            .map(|step| scale.write(scale.after(scale.read(from).unwrap(), step)));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn steps_are_spans_months_or_numbers() {
        check_step("integer", "1000", "5", Ok("1005"));
        check_step("integer", "0", "5", Err("above 0"));
        check_step("integer", "7d", "5", Err("no whole number"));
        check_step("%Y-%m-%d", "1w", "2026-02-26", Ok("2026-03-05"));
        check_step("%Y-%m-%d", "1mo", "2026-01-15", Ok("2026-02-01"));
        check_step("%Y-%m-%d", "3mo", "2026-11-01", Ok("2027-02-01"));
        check_step("rfc3339", "1mo", "1969-12-31", Ok("1970-01-01T00:00:00Z"));
        check_step("%Y-%m-%d", "12h", "2026-02-26", Err("no multiple"));
        check_step("rfc3339", "90m", "2026-02-26", Ok("2026-02-26T01:30:00Z"));
        for step in [
            "0d",
            "-1d",
            "1.5d",
            "d",
            "7",
            "1y",
            "99999999999d",
            "0mo",
            "",
        ] {
            check_step("rfc3339", step, "2026-02-26", Err("`"));
        }
    }

    #[test]
    fn slices_are_counted_as_they_are_cut() {
        let check = |step: &str, intervals: &[[&str; 2]], expected: u64| {
            let scale = Scale::new("%Y-%m-%d").unwrap();
            let ends = intervals.iter();
            let ends = ends.map(|ends| ends.map(|end| scale.read(end).unwrap()));
            let step = scale.step(step).unwrap();
            assert_eq!(scale.count(&Intervals::of(ends), step), expected);
        };
        check("1d", &[], 0);
        check("7d", &[["2026-01-01", "2026-01-15"]], 2);
        check(
            "7d",
            &[["2026-01-01", "2026-01-16"], ["2026-02-01", "2026-02-02"]],
            4,
        );
        check("1mo", &[["2026-01-15", "2026-03-01"]], 2);
        check("1mo", &[["2026-01-15", "2026-03-02"]], 3);
    }

    #[test]
    fn now_is_the_last_unit_that_is_over() {
        let check = |format: &str, lag: &str, expected: &str| {
            let scale = Scale::new(format).unwrap();
            let unix = Duration::from_millis(1_772_366_399_999);
            let at = scale.before(unix, seconds(lag).unwrap()).unwrap();
            assert_eq!(scale.write(at), expected);
        };
        check("%Y-%m-%d", "0s", "2026-03-01");
        check("%Y-%m-%d", "2d", "2026-02-27");
        check("rfc3339", "1h", "2026-03-01T10:59:59Z");
        check("unix_ms", "0s", "1772366399999");
    }
}
