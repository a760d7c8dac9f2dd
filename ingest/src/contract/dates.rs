//! Timestamps in declared formats.
//!
//! A string is read as a timestamp only if nothing is invented. Hour 24, a leap second and times
//! outside the years -9999 to 9999 in UTC are not timestamps. Of a fraction of 7 to 9 digits, the
//! digits beyond microseconds are cut; [`super::cut_digits`] finds those that are not zero. The
//! instant is kept, its UTC offset is not. A string without an offset is UTC, and a date without a
//! time is its midnight.

use std::collections::BTreeMap;

use feedline_readers::calendar_time::{cut_to_micros, nanos_at, parse_nanos};
use jiff::{
    Timestamp,
    civil::{Date, DateTime, Time},
    fmt::strtime::{self, BrokenDownTime},
    tz::Offset,
};

/// Format name of RFC 3339.
const RFC3339: &str = "rfc3339";
/// Formats that read dates and times of ISO 8601.
const ISO_FORMATS: [&str; 6] = [
    RFC3339,
    "%Y-%m-%d",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
];

/// The formats of a source.
#[derive(Clone, Debug)]
pub(crate) struct Dates {
    formats: Vec<String>,
    /// True if the configuration has them.
    is_declared: bool,
}

impl Dates {
    /// Compiles the configured `formats`; only RFC 3339 if there are none.
    pub(crate) fn new(formats: &[String]) -> Self {
        let is_declared = !formats.is_empty();
        let formats = match formats {
            [] => vec![RFC3339.to_owned()],
            formats => formats.to_vec(),
        };
        Self {
            formats,
            is_declared,
        }
    }

    /// Like [`Self::micros`] for a CSV cell, which also accepts ISO 8601 dates. These are
    /// unambiguous, and a format declared for one column must not disable them for others.
    pub(crate) fn cell_micros(&self, text: &str) -> Option<i64> {
        let declared = self.is_declared.then(|| self.micros(text)).flatten();
        let has_other_order = self.formats.iter().any(|format| format.contains("%Y-%d"));
        declared.or_else(|| iso_micros(text).filter(|_| !has_other_order))
    }

    /// Returns true if another format reads `text`, which the first one that fits reads as
    /// `micros`, differently.
    pub(crate) fn is_ambiguous(&self, text: &str, micros: i64) -> bool {
        let mut read = self.formats.iter().filter_map(|format| read(format, text));
        self.formats.len() > 1 && read.any(|nanos| cut_to_micros(nanos) != Some(micros))
    }

    /// Microseconds since 1970 UTC, by the first format that fits.
    pub(crate) fn micros(&self, text: &str) -> Option<i64> {
        // Both parsers read second 60 as second 59.
        if text.contains(":60") {
            return None;
        }
        let nanos = self.formats.iter().find_map(|format| read(format, text))?;
        cut_to_micros(nanos)
    }
}

/// Usual formats that read all of some dates in digits.
#[derive(Clone, Debug, Default)]
pub(crate) struct FittingFormats(Option<Vec<String>>);

impl FittingFormats {
    /// Keeps only the formats that read `text` too.
    pub(crate) fn add(&mut self, text: &str) {
        let formats = self.0.get_or_insert_with(|| usual_formats(text));
        formats.retain(|format| read(format, text).is_some());
    }

    /// Remaining formats; empty if no date was added, or no format reads all dates.
    pub(crate) fn get(&self) -> &[String] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Formats of dates with a word for the month.
const WORDED_FORMATS: [&str; 6] = [
    "%d %b %Y",
    "%d %B %Y",
    "%d-%b-%Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%b %d %Y",
];

/// Usual formats of dates in several notations, by the first separator of each; none for a month in
/// words.
#[derive(Clone, Debug, Default)]
pub(crate) struct NotationFormats(BTreeMap<Option<char>, FittingFormats>);

impl NotationFormats {
    /// Keeps only the formats that read `text` too, among those with its separator.
    pub(crate) fn add(&mut self, text: &str) {
        let sign = text.chars().find(|c| ['/', '.', '-'].contains(c));
        self.0.entry(sign).or_default().add(text);
    }

    /// Adds a date with its month in words, and returns false for another text.
    pub(crate) fn add_worded(&mut self, text: &str) -> bool {
        let is_short = (8..=20).contains(&text.len());
        let has_digits = text.contains(|c: char| c.is_ascii_digit());
        if !is_short || !has_digits || !text.contains(|c: char| c.is_ascii_alphabetic()) {
            return false;
        }
        let formats = WORDED_FORMATS.into_iter();
        let fitting = formats.filter(|format| read(format, text).is_some());
        let fitting: Vec<String> = fitting.map(ToOwned::to_owned).collect();
        if fitting.is_empty() {
            return false;
        }
        let FittingFormats(known) = self.0.entry(None).or_default();
        match known {
            None => *known = Some(fitting),
            Some(known) => known.retain(|format| fitting.contains(format)),
        }
        true
    }

    /// Formats of each notation, where there are several and each has a format that reads its dates.
    pub(crate) fn get(&self) -> Option<Vec<&[String]>> {
        let notations: Vec<&[String]> = self.0.values().map(FittingFormats::get).collect();
        let is_certain = notations.iter().all(|formats| !formats.is_empty());
        (notations.len() > 1 && is_certain).then_some(notations)
    }
}

/// Date formats with the separators of `text`.
fn usual_formats(text: &str) -> Vec<String> {
    const ORDERS: [[&str; 3]; 6] = [
        ["%d", "%m", "%Y"],
        ["%m", "%d", "%Y"],
        ["%Y", "%m", "%d"],
        ["%d", "%m", "%y"],
        ["%m", "%d", "%y"],
        ["%y", "%m", "%d"],
    ];
    let Some(sign) = text.chars().find(|c| ['/', '.', '-'].contains(c)) else {
        return Vec::new();
    };
    let days = ORDERS.iter().map(|order| order.join(&sign.to_string()));
    let formats = days.flat_map(|day| {
        let times = ["", " %H:%M", " %H:%M:%S"];
        times.map(|time| format!("{day}{time}"))
    });
    formats.collect()
}

/// Microseconds since 1970 of an ISO 8601 date, or of a date and time with or without an offset. A
/// space may replace the `T`. Without an offset the time is UTC. A date means its midnight.
pub(crate) fn iso_micros(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let is_dated = bytes.len() >= 10 && bytes[4] == b'-' && bytes[7] == b'-' && text.is_ascii();
    if !is_dated || text.contains(":60") {
        return None;
    }
    let nanos = if bytes.len() == 10 {
        let date: Date = text.parse().ok()?;
        nanos_at(date.to_datetime(Time::midnight()), Offset::UTC)?
    } else if !matches!(bytes[10], b'T' | b' ') || text.ends_with(']') {
        return None;
    } else if text[10..].contains(['Z', 'z', '+', '-']) {
        parse_nanos(text)?
    } else {
        let time: DateTime = text.parse().ok()?;
        nanos_at(time, Offset::UTC)?
    };
    cut_to_micros(nanos)
}

/// Format of `contract.dates` that reads a date or time of ISO 8601, if any does.
pub(crate) fn iso_format(text: &str) -> Option<&'static str> {
    iso_micros(text)?;
    let mut formats = ISO_FORMATS.into_iter();
    formats.find(|format| read(format, text).is_some())
}

/// Returns true if `format` is a valid format.
pub(crate) fn is_format(format: &str) -> bool {
    format == RFC3339
        || (format.contains('%') && strtime::format(format, Timestamp::UNIX_EPOCH).is_ok())
}

/// Nanoseconds since 1970 of a string in a format.
fn read(format: &str, text: &str) -> Option<i128> {
    if format == RFC3339 {
        // An annotation after the offset is another standard.
        return (!text.ends_with(']')).then(|| parse_nanos(text)).flatten();
    }
    let parts = BrokenDownTime::parse(format, text).ok()?;
    if !has_full_year(format, text, &parts) {
        return None;
    }
    if let Some(offset) = parts.offset() {
        return match parts.timestamp() {
            Some(at) => Some(at.as_nanosecond()),
            None => nanos_at(parts.to_datetime().ok()?, offset),
        };
    }
    let time = match parts.hour() {
        Some(_) => parts.to_datetime().ok()?,
        None => parts.to_date().ok()?.to_datetime(Time::midnight()),
    };
    nanos_at(time, Offset::UTC)
}

/// Returns false for a year of fewer than four digits by `%Y`: `20` is not the year 20.
fn has_full_year(format: &str, text: &str, parts: &BrokenDownTime) -> bool {
    match parts.year() {
        Some(year @ -999..=999) if format.contains("%Y") => {
            text.contains(&format!("{:04}", year.unsigned_abs()))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use feedline_readers::calendar_time::show_micros;

    use super::{super::cut_digits::has_cut_digits, *};

    #[test]
    fn a_year_of_two_digits_is_read_by_its_own_format_alone() {
        check(&["%d.%m.%Y"], "31.12.20", None);
        check(&["%d.%m.%y"], "31.12.20", Some("2020-12-31T00:00:00Z"));
        check(&["%d.%m.%Y"], "31.12.0020", Some("0020-12-31T00:00:00Z"));
        let dates = Dates::new(&["%d/%m/%Y", "%m/%d/%Y"].map(str::to_owned));
        let is_ambiguous = |text: &str| dates.is_ambiguous(text, dates.micros(text).unwrap());
        assert!(is_ambiguous("01/02/2001"));
        assert!(!is_ambiguous("01/13/2001") && !is_ambiguous("02/02/2001"));
    }

    fn check(formats: &[&str], text: &str, expected: Option<&str>) {
        let formats: Vec<String> = formats.iter().map(|f| (*f).to_owned()).collect();
        let micros = Dates::new(&formats).micros(text);
        assert_eq!(micros.map(show_micros).as_deref(), expected, "{text}");
    }

    #[test]
    fn the_last_day_of_the_calendar_is_a_date_in_every_format() {
        let day = Some("9999-12-31T00:00:00Z");
        check(&["%d.%m.%Y"], "31.12.9999", day);
        check(&["%d.%m.%Y"], "01.01.10000", None);
        let end = Some("9999-12-31T23:59:59.999999Z");
        check(&[], "9999-12-31T23:59:59.999999999Z", end);
        check(&["%Y-%m-%dT%H:%M:%S%.f"], "9999-12-31T23:59:59.999999", end);
        // In UTC one is a day of the calendar, and the other is not.
        let zoned = ["%Y-%m-%d %H:%M:%S %z"];
        check(&zoned, "9999-12-31 01:00:00 +0100", day);
        check(&zoned, "9999-12-31 23:30:00 -0100", None);
        check(&[], "9999-12-31T01:00:00+01:00", day);
        check(&[], "9999-12-31T23:30:00-01:00", None);
        for text in [
            "9999-12-31",
            "9999-12-31 00:00",
            "9999-12-31T01:00:00+01:00",
        ] {
            let found = iso_micros(text).map(show_micros);
            assert_eq!(found.as_deref(), day, "{text}");
            assert_eq!(Dates::new(&[]).cell_micros(text), iso_micros(text));
            assert!(iso_format(text).is_some(), "{text}");
        }
        assert_eq!(iso_micros("9999-12-31T23:30:00-01:00"), None);
        let mut fitting = FittingFormats::default();
        fitting.add("31/12/9999");
        assert_eq!(fitting.get()[0], "%d/%m/%Y");
        let dates = Dates::new(&["%d/%m/%Y", "%m/%d/%Y"].map(str::to_owned));
        let micros = dates.micros("12/11/9999").unwrap();
        assert!(dates.is_ambiguous("12/11/9999", micros));
    }

    #[test]
    fn fault_41_dates_are_read_by_declared_formats_and_nothing_is_made_up() {
        let at = Some("2024-02-29T13:05:09Z");
        check(&[], "2024-02-29T13:05:09Z", at);
        check(&[], "2024-02-29T15:05:09+02:00", at);
        check(&["%d.%m.%Y %H:%M:%S"], "29.02.2024 13:05:09", at);
        check(&["%m/%d/%Y %I:%M:%S %p"], "02/29/2024 01:05:09 PM", at);
        check(&["%Y%m%d"], "20240229", Some("2024-02-29T00:00:00Z"));
        check(
            &["%a, %d %b %Y %H:%M:%S %z"],
            "Thu, 29 Feb 2024 13:05:09 +0000",
            at,
        );
        check(&["rfc3339", "%Y-%m-%d %H:%M:%S"], "2024-02-29 13:05:09", at);
        check(&[], "0001-01-01T00:00:00Z", Some("0001-01-01T00:00:00Z"));
        check(
            &[],
            "2024-02-29T13:05:09.000001Z",
            Some("2024-02-29T13:05:09.000001Z"),
        );
        check(
            &[],
            "2024-02-29T13:05:09.0000019Z",
            Some("2024-02-29T13:05:09.000001Z"),
        );
        for lost in [
            "2024-02-29T13:05:09.0000000001Z",
            "2023-02-29T13:05:09Z",
            "2016-12-31T23:59:60Z",
            "2024-02-29T24:00:00Z",
            "2024-02-29",
            "29.02.2024",
            "soon",
            "",
        ] {
            check(&[], lost, None);
        }
        check(&["%Y-%m-%d %H:%M:%S"], "2016-12-31 23:59:60", None);
        check(&["%Y-%m-%d %H:%M:%S"], "2016-12-31 24:00:00", None);
    }

    #[test]
    fn iso_dates_of_cells_are_read_without_formats_and_nothing_is_made_up() {
        let at = |text: &str| {
            let micros = Dates::new(&[]).cell_micros(text)?;
            Some(show_micros(micros))
        };
        for text in [
            "2024-02-29T13:05:09Z",
            "2024-02-29 15:05:09+02:00",
            "2024-02-29T13:05:09",
            "2024-02-29 13:05:09",
        ] {
            assert_eq!(at(text).as_deref(), Some("2024-02-29T13:05:09Z"), "{text}");
        }
        let midnight = at("2024-02-29");
        assert_eq!(midnight.as_deref(), Some("2024-02-29T00:00:00Z"));
        for none in [
            "2023-02-29",
            "2024-2-9",
            "29.02.2024",
            "2024-02-29T24:00:00",
            "2016-12-31 23:59:60",
            "2024-02-29T13:05:09.0000000001",
            "20240229",
            "2024-02-29x",
        ] {
            assert_eq!(at(none), None, "{none}");
        }
        let declared = Dates::new(&["%d.%m.%Y".to_owned()]);
        assert_eq!(declared.cell_micros("2024-02-29"), iso_micros("2024-02-29"));
        assert_eq!(declared.micros("2024-02-29"), None);
        let days_first = Dates::new(&["%Y-%d-%m".to_owned()]);
        assert_eq!(days_first.cell_micros("2024-02-29"), None);
    }

    #[test]
    fn digits_beyond_microseconds_are_cut_and_found() {
        let at = |text: &str| {
            let micros = Timestamp::from_microsecond(iso_micros(text)?).unwrap();
            Some((micros.to_string(), has_cut_digits(text)))
        };
        let check = |text: &str, expected: &str, is_cut: bool| {
            assert_eq!(at(text), Some((expected.to_owned(), is_cut)), "{text}");
        };
        let whole = "2024-02-29T13:05:09.123456Z";
        check("2024-02-29T13:05:09.123456", whole, false);
        check("2024-02-29T13:05:09.1234560Z", whole, false);
        check("2024-02-29T14:05:09.1234567+01:00", whole, true);
        check("2024-02-29 13:05:09.123456789", whole, true);
        check("2024-02-29T13:05:09.123456000Z", whole, false);
        // Before 1970 the same digits stay.
        check(
            "1969-12-31T23:59:59.1234569Z",
            "1969-12-31T23:59:59.123456Z",
            true,
        );
        assert!(!has_cut_digits("29.02.2024 13:05:09"));
        assert!(has_cut_digits("29.02.2024 13:05:09.0000001"));
    }

    #[test]
    fn a_format_that_reads_a_time_of_iso_8601_reads_the_same_instant() {
        for (text, format) in [
            ("2024-02-29T13:05:09Z", "rfc3339"),
            ("2024-02-29 13:05:09.25+02:00", "rfc3339"),
            ("2024-02-29", "%Y-%m-%d"),
            ("2024-02-29T13:05:09", "%Y-%m-%dT%H:%M:%S%.f"),
            ("2024-02-29 13:05:09.25", "%Y-%m-%d %H:%M:%S%.f"),
            ("2024-02-29T13:05", "%Y-%m-%dT%H:%M"),
            ("2024-02-29 13:05", "%Y-%m-%d %H:%M"),
        ] {
            assert_eq!(iso_format(text), Some(format), "{text}");
            let by_format = Dates::new(&[format.to_owned()]).micros(text);
            assert_eq!(by_format, iso_micros(text), "{text}");
        }
        for none in ["", "soon", "29.02.2024", "2023-02-29", "2024-02-29x"] {
            assert_eq!(iso_format(none), None, "{none}");
        }
    }

    #[test]
    fn a_format_is_told_from_a_slip() {
        assert!(is_format("rfc3339") && is_format("%Y-%m-%d"));
        assert!(!is_format("yyyy-mm-dd") && !is_format("100%") && !is_format(""));
    }
}
