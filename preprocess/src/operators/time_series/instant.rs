//! Landed cells as timestamps.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array},
    datatypes::{
        DataType, Float64Type, Int64Type, TimeUnit as ArrowUnit, TimestampMicrosecondType,
    },
};
use datafusion::error::Result;
use feedline_readers::calendar_time::{
    cut_to_micros, is_in_calendar, nanos_at, show_micros, utc_datetime,
};
use feedline_schemas::config::{AmbiguousTime, TimeUnit};
use jiff::{
    SignedDuration, Timestamp,
    civil::{DateTime, Time},
    fmt::{
        strtime::{self, BrokenDownTime},
        temporal::Pieces,
    },
    tz::{AmbiguousOffset, TimeZone},
};
use serde::{Deserialize, Serialize};

use crate::engine::scalar_function::RowFunction;

/// Timestamp of a cell, or of a date and a time of day, in microseconds since 1970 UTC; null where
/// the cell is no timestamp.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Instant {
    pub(super) format: Option<String>,
    pub(super) unit: Option<TimeUnit>,
    /// Name of a zone that is known.
    pub(super) zone: Option<String>,
    /// True if an ambiguous local time is the later one, for values that must not be known too
    /// early.
    pub(crate) is_later: bool,
    /// Configured reading of an ambiguous local time, in place of `is_later`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ambiguous: Option<AmbiguousTime>,
}

/// Columns of local times; a time in the hour that clocks repeat names two instants.
#[derive(Clone, Debug)]
pub(crate) struct LocalTimes<'a> {
    pub(crate) instant: &'a Instant,
    /// Column of the time, and that of the time of day.
    pub(crate) columns: Vec<&'a str>,
}

/// The zone of this name; UTC for none. `None` when it is unknown.
pub(super) fn zone_of(name: Option<&str>) -> Option<TimeZone> {
    match name {
        None | Some("UTC") => Some(TimeZone::UTC),
        Some(name) => TimeZone::get(name).ok(),
    }
}

/// Local time of an instant in a zone; `None` if it is beyond the calendar.
pub(crate) fn local_datetime(zone: &TimeZone, micros: i64) -> Option<DateTime> {
    if let Ok(at) = Timestamp::from_microsecond(micros) {
        return Some(zone.to_datetime(at));
    }
    // Offsets do not change between the ends of timestamps and those of the calendar.
    let end = match micros < 0 {
        true => Timestamp::MIN,
        false => Timestamp::MAX,
    };
    let offset = SignedDuration::from_secs(zone.to_offset(end).seconds().into());
    let at = utc_datetime(i128::from(micros) * 1_000)?;
    at.checked_add(offset).ok()
}

/// Fault of a format, if any: a timestamp written in the format must be read back from it.
pub(super) fn format_fault(format: &str) -> Option<String> {
    let at = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
    let text = match strtime::format(format, &at) {
        Ok(text) if format.contains('%') => text,
        _ => {
            return Some(format!(
                "`{format}` is no format; write one such as `%d/%m/%Y %H:%M:%S`"
            ));
        }
    };
    let instant = Instant {
        format: Some(format.to_owned()),
        ..Instant::iso()
    };
    instant.of_text(&text).is_none().then(|| {
        format!(
            "no text that `{format}` reads names a point in time; write a format with the year, the month and the day, such as \
             `%d/%m/%Y %H:%M:%S`, where an offset is `%z` and a zone by name `%Q`"
        )
    })
}

impl RowFunction for Instant {
    const NAME: &'static str = "feedline_instant";
    const RETURNS: DataType = DataType::Int64;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let column = &columns[0];
        let found: Int64Array = match (column.data_type(), self.unit) {
            (DataType::Timestamp(ArrowUnit::Microsecond, _), _) => column
                .as_primitive::<TimestampMicrosecondType>()
                .iter()
                .collect(),
            (DataType::Int64, Some(unit)) => column
                .as_primitive::<Int64Type>()
                .iter()
                .map(|value| value.and_then(|value| whole(value, unit)))
                .collect(),
            (DataType::Float64, Some(unit)) => column
                .as_primitive::<Float64Type>()
                .iter()
                .map(|value| value.and_then(|value| parts(value, unit)))
                .collect(),
            (DataType::Utf8, _) => {
                let zone = zone_of(self.zone.as_deref()).unwrap_or(TimeZone::UTC);
                let dates = column.as_string::<i32>();
                let clocks = columns.get(1).and_then(|c| c.as_string_opt::<i32>());
                let cell = |row: usize| {
                    let date = dates.is_valid(row).then(|| dates.value(row).trim())?;
                    if columns.len() == 1 {
                        return self.read(date, &zone);
                    }
                    let clock = clocks.filter(|clocks| clocks.is_valid(row))?.value(row);
                    self.read(&format!("{date} {}", clock.trim()), &zone)
                };
                (0..rows).map(cell).collect()
            }
            // A version of the schema that holds something else here.
            _ => Int64Array::new_null(rows),
        };
        Ok(Arc::new(found))
    }
}

impl Instant {
    /// Default format of strings: ISO 8601, in UTC without an offset.
    pub(crate) const fn iso() -> Self {
        Self {
            format: None,
            unit: None,
            zone: None,
            is_later: false,
            ambiguous: None,
        }
    }

    /// Makes a reader of strings in `format`.
    pub(crate) fn by(format: &str) -> Self {
        Self {
            format: Some(format.to_owned()),
            ..Self::iso()
        }
    }

    /// Timestamp of a string, in microseconds since 1970.
    pub(crate) fn of_text(&self, text: &str) -> Option<i64> {
        let zone = zone_of(self.zone.as_deref()).unwrap_or(TimeZone::UTC);
        self.read(text.trim(), &zone)
    }

    /// Timestamp of a string with all digits of its fraction, in nanoseconds since 1970.
    pub(crate) fn nanos_of_text(&self, text: &str) -> Option<i128> {
        let zone = zone_of(self.zone.as_deref()).unwrap_or(TimeZone::UTC);
        self.nanos(text.trim(), &zone)
    }

    /// Timestamp of an integer in the unit of its column, in microseconds since 1970.
    pub(crate) fn of_integer(&self, value: i64) -> Option<i64> {
        whole(value, self.unit?)
    }

    /// Timestamp of a float in the unit of its column, in microseconds since 1970.
    pub(crate) fn of_float(&self, value: f64) -> Option<i64> {
        parts(value, self.unit?)
    }

    /// Returns `columns` as those of local times, if clocks of the zone may repeat an hour and the
    /// configuration does not say how times in it are read.
    pub(crate) fn local_times<'a>(
        &'a self,
        columns: impl Iterator<Item = &'a String>,
    ) -> Option<LocalTimes<'a>> {
        let is_open = self.is_local() && self.ambiguous.is_none();
        is_open.then(|| LocalTimes {
            instant: self,
            columns: columns.map(String::as_str).collect(),
        })
    }

    /// Returns true if clocks of the zone of a time may repeat an hour.
    pub(super) fn is_local(&self) -> bool {
        let names_zone = self
            .format
            .as_ref()
            .is_some_and(|format| format.contains("%Q"));
        names_zone || self.zone.as_deref().is_some_and(|zone| zone != "UTC")
    }

    /// Reading of a time in the hour that clocks repeat.
    pub(super) fn reading(&self) -> AmbiguousTime {
        self.ambiguous.unwrap_or(match self.is_later {
            true => AmbiguousTime::Later,
            false => AmbiguousTime::Earlier,
        })
    }

    /// Reader of the earlier or the later of the two instants in the hour that clocks repeat.
    pub(super) fn repeated(&self, is_later: bool) -> Self {
        Self {
            is_later,
            ambiguous: None,
            ..self.clone()
        }
    }

    /// Name of the zone of times without an offset; `None` for those that name theirs.
    pub(crate) fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// Local time of an instant, if clocks of the zone show it twice.
    pub(crate) fn repeated_clock(&self, micros: i64) -> Option<String> {
        let zone = zone_of(self.zone.as_deref())?;
        let local = local_datetime(&zone, micros)?;
        let offset = zone.to_ambiguous_timestamp(local).offset();
        matches!(offset, AmbiguousOffset::Fold { .. }).then(|| local.to_string())
    }

    /// Reason that a string of a date and a time of day, which this reader refuses, names no instant: clocks of the zone skip
    /// it, or show it twice. `None` for all other strings.
    pub(super) fn why_no_instant(&self, text: &str) -> Option<String> {
        let name = self.zone.as_deref().filter(|_| self.unit.is_none())?;
        let zone = zone_of(Some(name))?;
        let micros = self.read(text.trim(), &TimeZone::UTC)?;
        let local = utc_datetime(i128::from(micros) * 1_000)?;
        match zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { .. } => None,
            AmbiguousOffset::Gap { .. } => Some(format!("clocks in {name} skip this time")),
            AmbiguousOffset::Fold { .. } => Some(format!(
                "clocks in {name} show this time twice, and ambiguous = reject"
            )),
        }
    }

    fn read(&self, text: &str, zone: &TimeZone) -> Option<i64> {
        self.nanos(text, zone).and_then(cut_to_micros)
    }

    fn nanos(&self, text: &str, zone: &TimeZone) -> Option<i128> {
        // Both parsers take second 60 for second 59.
        if text.contains(":60") {
            return None;
        }
        match &self.format {
            None => iso(text, zone, self.reading()),
            Some(format) => written(format, text, zone, self.reading()),
        }
    }
}

fn iso(text: &str, zone: &TimeZone, ambiguous: AmbiguousTime) -> Option<i128> {
    // An annotation after the offset is another standard, and second 60 may follow without a colon.
    let clock = text.split_once(['T', 't', ' ']).map(|(_, clock)| clock);
    if text.ends_with(']') || clock.and_then(|clock| clock.get(4..6)) == Some("60") {
        return None;
    }
    // Databases put a space before the offset, or call it by name.
    let joined = match text.rsplit_once(' ') {
        Some((at, "UTC")) => Some(format!("{at}Z")),
        Some((at, offset)) if offset.starts_with(['+', '-', 'Z']) => Some(format!("{at}{offset}")),
        _ => None,
    };
    let pieces = Pieces::parse(joined.as_deref().unwrap_or(text)).ok()?;
    let time = pieces.time().unwrap_or(Time::midnight());
    let at = DateTime::from_parts(pieces.date(), time);
    match pieces.to_numeric_offset() {
        Some(offset) => nanos_at(at, offset),
        None => local(at, zone, ambiguous),
    }
}

fn written(format: &str, text: &str, zone: &TimeZone, ambiguous: AmbiguousTime) -> Option<i128> {
    let parts = BrokenDownTime::parse(format, text).ok()?;
    // A year of two digits is read by `%y`: `20` is not the year 20.
    if let Some(year @ -999..=999) = parts.year()
        && format.contains("%Y")
        && !text.contains(&format!("{:04}", year.unsigned_abs()))
    {
        return None;
    }
    if let Some(at) = parts.timestamp() {
        return Some(at.as_nanosecond());
    }
    if let Some(offset) = parts.offset() {
        return nanos_at(parts.to_datetime().ok()?, offset);
    }
    let named = match parts.iana_time_zone() {
        Some(name) => Some(TimeZone::get(name).ok()?),
        None => None,
    };
    let zone = named.as_ref().unwrap_or(zone);
    let at = match parts.hour() {
        Some(_) => parts.to_datetime().ok()?,
        None => parts.to_date().ok()?.to_datetime(Time::midnight()),
    };
    local(at, zone, ambiguous)
}

fn local(at: DateTime, zone: &TimeZone, ambiguous: AmbiguousTime) -> Option<i128> {
    let offset = match (zone.to_ambiguous_timestamp(at).offset(), ambiguous) {
        (AmbiguousOffset::Unambiguous { offset }, _) => offset,
        (AmbiguousOffset::Gap { .. }, _)
        | (AmbiguousOffset::Fold { .. }, AmbiguousTime::Reject) => return None,
        (AmbiguousOffset::Fold { before, .. }, AmbiguousTime::Earlier) => before,
        (AmbiguousOffset::Fold { after, .. }, AmbiguousTime::Later) => after,
    };
    nanos_at(at, offset)
}

/// Microseconds in a unit, or units in a microsecond.
const fn scale(unit: TimeUnit) -> (i64, i64) {
    match unit {
        TimeUnit::S => (1_000_000, 1),
        TimeUnit::Ms => (1_000, 1),
        TimeUnit::Us => (1, 1),
        TimeUnit::Ns => (1, 1_000),
    }
}

fn whole(value: i64, unit: TimeUnit) -> Option<i64> {
    let (micros, units) = scale(unit);
    in_range(value.div_euclid(units).checked_mul(micros)?)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "what is out of the range of times is left out behind the cast"
)]
fn parts(value: f64, unit: TimeUnit) -> Option<i64> {
    let (micros, units) = scale(unit);
    let micros = (value * micros as f64 / units as f64).floor();
    (micros.abs() < 1e18)
        .then_some(micros as i64)
        .and_then(in_range)
}

fn in_range(micros: i64) -> Option<i64> {
    is_in_calendar(micros).then_some(micros)
}

/// Microseconds since 1970 as text.
pub(crate) fn shown(micros: i64) -> String {
    show_micros(micros)
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    fn check(format: Option<&str>, zone: Option<&str>, text: &str, expected: Option<&str>) {
        let instant = Instant {
            format: format.map(str::to_owned),
            unit: None,
            zone: zone.map(str::to_owned),
            ..Instant::iso()
        };
        let column: ArrayRef = Arc::new(StringArray::from(vec![text]));
        let found = instant.call(&[column], 1).unwrap();
        let found = found.as_primitive::<Int64Type>().iter().next().unwrap();
        assert_eq!(found.map(shown).as_deref(), expected, "{text}");
    }

    #[test]
    fn trap_25_times_are_instants_whatever_their_zone() {
        let at = Some("2024-03-31T06:30:00Z");
        check(None, None, "2024-03-31T06:30:00Z", at);
        check(None, None, "2024-03-31T08:30:00+02:00", at);
        check(None, Some("Europe/Rome"), "2024-03-31 08:30:00", at);
        check(None, Some("Europe/Rome"), "2024-03-31T06:30:00Z", at);
        check(None, None, "2024-03-31", Some("2024-03-31T00:00:00Z"));
        let european = Some("%d/%m/%Y %H:%M:%S");
        check(european, Some("Europe/Rome"), "31/03/2024 08:30:00", at);
        check(
            Some("%d/%m/%Y"),
            None,
            "31/03/2024",
            Some("2024-03-31T00:00:00Z"),
        );
        // Clocks skip this, and show that twice.
        check(None, Some("Europe/Rome"), "2024-03-31 02:30:00", None);
        let first = Some("2024-10-27T00:30:00Z");
        check(None, Some("Europe/Rome"), "2024-10-27 02:30:00", first);
        for bad in [
            "",
            "soon",
            "2024-02-30",
            "2016-12-31T23:59:60Z",
            "20161231T235960Z",
            "1711866600",
        ] {
            check(None, None, bad, None);
        }
    }

    #[test]
    fn the_last_day_of_the_calendar_is_an_instant_unless_utc_is_beyond_it() {
        const DAY: i64 = 253_402_214_400;
        let day = Some("9999-12-31T00:00:00Z");
        let end = Some("9999-12-31T23:59:59.999999Z");
        check(None, None, "9999-12-31", day);
        check(None, None, "9999-12-31T23:59:59.999999999Z", end);
        check(Some("%d/%m/%Y"), None, "31/12/9999", day);
        check(None, None, "9999-12-31T01:00:00+01:00", day);
        check(None, None, "9999-12-31T23:30:00-01:00", None);
        let offset = Some("%Y-%m-%d %H:%M:%S %z");
        check(offset, None, "9999-12-31 01:00:00 +0100", day);
        check(offset, None, "9999-12-31 23:30:00 -0100", None);
        check(None, Some("Europe/Rome"), "9999-12-31 01:00:00", day);
        check(None, Some("America/New_York"), "9999-12-31 23:00:00", None);
        assert_eq!(whole(DAY, TimeUnit::S).map(shown).as_deref(), day);
        assert_eq!(whole(DAY + 86_400, TimeUnit::S), None);
        assert_eq!(parts(253_402_214_400.0, TimeUnit::S), Some(DAY * 1_000_000));
    }

    #[test]
    fn clocks_of_a_zone_show_the_last_day_of_the_calendar() {
        let check = |zone: &str, text: &str, expected: Option<&str>| {
            let zone = zone_of(Some(zone)).unwrap();
            let micros = Instant::iso().of_text(text).unwrap();
            let local = local_datetime(&zone, micros).map(|at| at.to_string());
            assert_eq!(local.as_deref(), expected, "{text}");
        };
        let early = "9999-12-31T03:00:00Z";
        check("UTC", early, Some("9999-12-31T03:00:00"));
        check("Asia/Tokyo", early, Some("9999-12-31T12:00:00"));
        check("America/New_York", early, Some("9999-12-30T22:00:00"));
        check("Asia/Tokyo", "9999-12-31T15:00:00Z", None);
        check("Asia/Tokyo", "2024-01-01", Some("2024-01-01T09:00:00"));
        let first = "-009999-01-01T00:00:00Z";
        check("UTC", first, Some("-009999-01-01T00:00:00"));
    }

    #[test]
    fn digits_beyond_microseconds_are_cut_before_1970_as_they_land() {
        let at = "1969-12-31T23:59:59.123456";
        check(None, None, &format!("{at}9Z"), Some(&format!("{at}Z")));
    }

    #[test]
    fn a_zone_that_the_text_names_is_that_of_its_time() {
        let format = Some("%Y-%m-%d %H:%M:%S %Q");
        let at = Some("2024-06-01T03:00:00Z");
        check(format, None, "2024-06-01 12:00:00 Asia/Tokyo", at);
        let rome = Some("Europe/Rome");
        check(format, rome, "2024-06-01 12:00:00 Asia/Tokyo", at);
        check(format, rome, "2024-06-01 12:00:00 +0900", at);
        check(format, None, "2024-06-01 12:00:00 Mars/Base", None);
        // Clocks skip this there.
        check(format, None, "2024-03-31 02:30:00 Europe/Rome", None);
        let both = Some("%Y-%m-%dT%H:%M:%S%:z[%Q]");
        check(both, None, "2024-06-01T12:00:00+09:00[Asia/Tokyo]", at);
    }

    #[test]
    fn a_clock_that_shows_a_time_twice_is_named() {
        let rome = Instant {
            zone: Some("Europe/Rome".to_owned()),
            ..Instant::iso()
        };
        let first = rome.of_text("2024-10-27 02:30:00").unwrap();
        let second = rome.repeated(true).of_text("2024-10-27 02:30:00").unwrap();
        assert_eq!(second - first, 3_600_000_000);
        for micros in [first, second] {
            let clock = rome.repeated_clock(micros);
            assert_eq!(clock.as_deref(), Some("2024-10-27T02:30:00"));
        }
        assert_eq!(rome.repeated_clock(first - 3_600_000_000), None);
        assert_eq!(Instant::iso().repeated_clock(first), None);
    }

    #[test]
    fn a_time_that_clocks_show_twice_is_read_as_configured() {
        let night = [
            "2024-10-27 01:30:00",
            "2024-10-27 02:30:00",
            "2024-10-27 03:30:00",
            "2024-10-27 02:30:00+01:00",
        ];
        for (ambiguous, second) in [
            (None, Some("2024-10-27T00:30:00Z")),
            (Some(AmbiguousTime::Earlier), Some("2024-10-27T00:30:00Z")),
            (Some(AmbiguousTime::Later), Some("2024-10-27T01:30:00Z")),
            (Some(AmbiguousTime::Reject), None),
        ] {
            let rome = Instant {
                zone: Some("Europe/Rome".to_owned()),
                ambiguous,
                ..Instant::iso()
            };
            let found = night.map(|text| rome.of_text(text).map(shown));
            let expected = [
                Some("2024-10-26T23:30:00Z"),
                second,
                Some("2024-10-27T02:30:00Z"),
                Some("2024-10-27T01:30:00Z"),
            ];
            assert_eq!(found, expected.map(|at| at.map(str::to_owned)));
            // Only an open choice is warned of.
            let column = ["at".to_owned()];
            let is_open = rome.local_times(column.iter()).is_some();
            assert_eq!(is_open, ambiguous.is_none(), "{ambiguous:?}");
        }
    }

    #[test]
    fn seconds_since_1970_are_a_format() {
        let at = Some("2024-03-31T06:30:00Z");
        check(Some("%s"), Some("Asia/Tokyo"), "1711866600", at);
        check(Some("%s"), None, "soon", None);
    }

    #[test]
    fn formats_that_no_point_in_time_is_read_by_are_refused() {
        for format in [
            "%d/%m/%Y",
            "%d/%m/%Y %H:%M:%S",
            "%Y-%m-%dT%H:%M:%S%.f%z",
            "%A, %e %B %Y %I:%M %p",
            "%m/%d/%y %H:%M",
            "%Y%m%d%H%M%S%3f",
            "%Y-%j",
            "%G-W%V-%u",
            "%F %T %Q",
            "%s",
            "%s%.f",
        ] {
            assert_eq!(format_fault(format), None, "{format}");
        }
        for (format, part) in [
            ("yyyy", "is no format"),
            ("%!", "is no format"),
            ("%H:%M:%S", "year, the month and the day"),
            ("%Y-%m", "year, the month and the day"),
            ("%d/%m", "year, the month and the day"),
            ("%Y-%m-%d %Z", "a zone by name `%Q`"),
        ] {
            let fault = format_fault(format).unwrap_or_default();
            assert!(fault.contains(part), "{format}: {fault}");
        }
    }

    #[test]
    fn numbers_are_read_in_their_unit() {
        for (unit, value) in [
            (TimeUnit::S, 1_711_866_600),
            (TimeUnit::Ms, 1_711_866_600_000),
            (TimeUnit::Us, 1_711_866_600_000_000),
            (TimeUnit::Ns, 1_711_866_600_000_000_999),
        ] {
            assert_eq!(
                whole(value, unit).map(shown).unwrap(),
                "2024-03-31T06:30:00Z"
            );
        }
        assert_eq!(parts(1.5, TimeUnit::S), Some(1_500_000));
        assert_eq!(whole(i64::MAX, TimeUnit::S), None);
        assert_eq!(parts(f64::INFINITY, TimeUnit::S), None);
    }
}
