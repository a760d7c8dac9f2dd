//! Times in UTC of all years of the calendar, -9999 to 9999, as numbers since 1970.
//!
//! [`jiff::Timestamp`] covers less than the calendar, so that a time in it has a date at every
//! offset: it ends at 9999-12-30T22:00:00Z. But intervals without an end often end on 9999-12-31.

use jiff::{SignedDuration, civil::DateTime, fmt::temporal::Pieces, tz::Offset};

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// Nanoseconds of a microsecond.
const MICROSECOND: i128 = 1_000;

/// Beginning of the year -9999, in nanoseconds since 1970.
const FIRST: i128 = -377_705_116_800 * SECOND;

/// Last nanosecond of the year 9999, since 1970.
const LAST: i128 = 253_402_300_800 * SECOND - 1;

/// Nanoseconds since 1970 of a local time and its offset; `None` if UTC has another year than the
/// calendar.
pub fn nanos_at(local: DateTime, offset: Offset) -> Option<i128> {
    let nanos = local.duration_since(EPOCH).as_nanos() - i128::from(offset.seconds()) * SECOND;
    is_in_range(nanos).then_some(nanos)
}

/// Nanoseconds since 1970 of a date, a time and an offset as RFC 3339 writes them.
pub fn parse_nanos(text: &str) -> Option<i128> {
    let pieces = Pieces::parse(text).ok()?;
    let local = DateTime::from_parts(pieces.date(), pieces.time()?);
    nanos_at(local, pieces.to_numeric_offset()?)
}

/// Converts nanoseconds to microseconds, without the digits beyond them.
pub fn cut_to_micros(nanos: i128) -> Option<i64> {
    i64::try_from(nanos.div_euclid(MICROSECOND)).ok()
}

/// Returns true for microseconds since 1970 in a year of the calendar.
pub fn is_in_calendar(micros: i64) -> bool {
    is_in_range(i128::from(micros) * MICROSECOND)
}

/// Date and time in UTC of nanoseconds since 1970; `None` beyond the calendar.
pub fn utc_datetime(nanos: i128) -> Option<DateTime> {
    if !is_in_range(nanos) {
        return None;
    }
    let since = SignedDuration::from_nanos_i128(nanos);
    EPOCH.checked_add(since).ok()
}

/// Microseconds since 1970 as RFC 3339 in UTC; the number itself beyond the calendar.
pub fn show_micros(micros: i64) -> String {
    let at = utc_datetime(i128::from(micros) * MICROSECOND);
    at.map_or_else(|| micros.to_string(), |at| format!("{at}Z"))
}

fn is_in_range(nanos: i128) -> bool {
    (FIRST..=LAST).contains(&nanos)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_are_those_of_the_calendar_library(
            second in -377_705_023_201_i64..253_402_207_200,
            nanosecond in 0..1_000_000_000,
            offset in -93_599..=93_599,
        ) {
            let at = Timestamp::new(second, nanosecond).unwrap();
            let offset = Offset::from_seconds(offset).unwrap();
            let nanos = at.as_nanosecond();
            prop_assert_eq!(nanos_at(offset.to_datetime(at), offset), Some(nanos));
            prop_assert_eq!(utc_datetime(nanos), Some(Offset::UTC.to_datetime(at)));
            prop_assert_eq!(parse_nanos(&at.to_string()), Some(nanos));
            let micros = cut_to_micros(nanos).unwrap();
            let cut = Timestamp::from_microsecond(micros).unwrap();
            prop_assert_eq!(show_micros(micros), cut.to_string());
            prop_assert!(is_in_calendar(micros) && cut <= at);
        }
    }

    #[test]
    fn the_first_and_the_last_time_are_those_of_the_calendar() {
        assert_eq!(nanos_at(DateTime::MIN, Offset::UTC), Some(FIRST));
        assert_eq!(nanos_at(DateTime::MAX, Offset::UTC), Some(LAST));
        for (nanos, at) in [(FIRST, DateTime::MIN), (LAST, DateTime::MAX)] {
            assert_eq!(utc_datetime(nanos), Some(at));
        }
        for beyond in [FIRST - 1, LAST + 1, i128::MIN, i128::MAX] {
            assert_eq!(utc_datetime(beyond), None);
        }
    }

    #[test]
    fn the_last_day_is_read_and_shown_and_the_day_behind_it_is_not() {
        let check = |text: &str, expected: Option<&str>| {
            let micros = parse_nanos(text).and_then(cut_to_micros);
            assert_eq!(micros.map(show_micros).as_deref(), expected, "{text}");
            assert!(micros.is_none_or(is_in_calendar), "{text}");
        };
        let last = Some("9999-12-31T23:59:59.999999Z");
        check("9999-12-31T23:59:59.999999999Z", last);
        check("9999-12-31T00:00:00Z", Some("9999-12-31T00:00:00Z"));
        let early = Some("9999-12-31T22:30:00Z");
        check("9999-12-31T23:30:00+01:00", early);
        check("9999-12-31T23:30:00-01:00", None);
        let first = Some("-009999-01-01T00:00:00Z");
        check("-009999-01-01T00:00:00Z", first);
        check("-009999-01-01T00:30:00+01:00", None);
        for none in ["9999-12-31", "9999-12-31T00:00:00", "soon", ""] {
            check(none, None);
        }
    }

    #[test]
    fn microseconds_beyond_the_calendar_are_shown_as_their_number() {
        const AFTER: i64 = 253_402_300_800_000_000;
        assert!(is_in_calendar(AFTER - 1) && !is_in_calendar(AFTER));
        assert_eq!(show_micros(AFTER - 1), "9999-12-31T23:59:59.999999Z");
        assert_eq!(show_micros(AFTER), "253402300800000000");
        assert_eq!(show_micros(i64::MIN), "-9223372036854775808");
    }
}
