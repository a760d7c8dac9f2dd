//! `[dataset.series]` and `[[dataset.feature]]`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// `[dataset.series]`: the rows are readings of one or more entities over time. Features
/// (`[[dataset.feature]]`) look back over them.
///
/// Features are computed after deduplication and before the split, from all rows whose time can be
/// read. Rows that are rejected or filtered out for another reason are included: a reading without
/// a target is still a reading. Nothing here is fitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeriesConfig {
    /// Column of timestamps. A row whose time is missing or cannot be read is rejected as
    /// `time_unreadable`. It is a feature only if `dataset.features` lists it. Timestamps
    /// without a zone in `dataset.files` are read as strings without an offset, such as
    /// `2024-03-31T08:00:00`, in every unit; `zone` is their time zone. A source lands them as UTC,
    /// unless their column is declared `text`.
    pub time: String,
    /// Column of the time of day, where `time` holds only the date; the two strings are read with a
    /// space between them. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// Format of strings, such as `%d/%m/%Y %H:%M:%S`; `%z` is an offset, `%Q` the name of a zone,
    /// `%s` seconds since 1970. A format without a day is refused. Default: ISO 8601, such as
    /// `2024-03-31T08:00:00Z`, `2024-03-31 08:00:00` or `2024-03-31`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Unit since 1970 of a numeric column: `s`, `ms`, `us` or `ns`. Required for a numeric column,
    /// refused for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<TimeUnit>,
    /// Time zone, such as `Europe/Rome`, of strings without an offset or zone of their own, and of
    /// calendar parts. Where clocks are set back, they show an hour twice (`ambiguous`); a time that
    /// clocks skip cannot be read. Default `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Reading of strings in the hour that clocks of the zone show twice: `earlier`, `later` or
    /// `reject`. Rows with a rejected time are rejected as `time_unreadable`. If this key is absent,
    /// such strings are read as the earlier instant, and a warning (`ambiguous_times`) counts them;
    /// an explicit value turns the warning off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ambiguous: Option<AmbiguousTime>,
    /// Columns that identify the entities; the rows of each entity are a series. The target and the
    /// time cannot be listed. Values are compared as written, without composing letters (NFC). A
    /// row without a value in any of them is rejected as `missing_entity`. Default: all rows are
    /// one series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entity: Vec<String>,
    /// Treatment of rows of one entity at one instant: `error` (default), `first`, `last` or
    /// `mean`.
    #[serde(default)]
    pub duplicates: SameTime,
    /// Longest distance between neighbouring rows of an entity, such as `6h`; beyond it `gaps`
    /// applies. Default: any distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_gap: Option<TimeSpan>,
    /// Action at a gap longer than `max_gap`: `restart` (default) or `error`. Allowed only with
    /// `max_gap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<Gaps>,
    /// If true, a row may look back at rows of another split. Default false: such rows stop the
    /// build, and the error asks for an embargo. True suits a model that always has the past
    /// available when it predicts. Training rows that look at validation or test rows, as with a
    /// split by content, then leak.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_start: bool,
}

/// Unit of a numeric time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds; fractions of a microsecond are dropped.
    Ns,
}

/// Reading of a local time that clocks show twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AmbiguousTime {
    /// The earlier of the two instants.
    Earlier,
    /// The later of the two instants.
    Later,
    /// Neither: the time cannot be read.
    Reject,
}

/// Treatment of rows of one entity at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SameTime {
    /// The build stops and names one.
    #[default]
    Error,
    /// The row that landed first is kept; usable rows come before unusable ones. The others are
    /// filtered out as `same_time`.
    First,
    /// As `first`, but the row that landed last is kept.
    Last,
    /// As `first`, but the numbers of the kept row become the means over all present values.
    Mean,
}

/// Action at a gap longer than `max_gap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gaps {
    /// A new series begins: nothing looks back over the gap.
    #[default]
    Restart,
    /// The build stops and names one.
    Error,
}

/// A span of time above 0, in microseconds. Written as an integer and a unit of `us`, `ms`, `s`,
/// `m`, `h`, `d` (24 hours), `w`, such as `24h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(i64);

const UNITS: [(&str, i64); 7] = [
    ("w", 604_800_000_000),
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

impl TimeSpan {
    /// A span of so many microseconds; `None` if it is not above 0.
    #[must_use]
    pub fn from_micros(micros: i64) -> Option<Self> {
        Some(Self(micros)).filter(|span| span.0 > 0)
    }

    /// Microseconds, above 0.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Parses text such as `24h`.
    ///
    /// # Errors
    /// A message that lists the units.
    pub fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let digits = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = UNITS
            .iter()
            .find(|(unit, _)| *unit == &trimmed[digits.len()..]);
        unit.zip(digits.trim_end().parse::<i64>().ok())
            .and_then(|((_, micros), count)| count.checked_mul(*micros))
            .filter(|micros| *micros > 0)
            .map(Self)
            .ok_or_else(|| {
                format!(
                    "`{text}` is not a span of time: write a whole number above 0 and a unit of w, d, h, m, s, ms, us, such as \
                     `24h`"
                )
            })
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, micros): &&(&str, i64)| self.0 % micros == 0;
        let (unit, micros) = UNITS.iter().find(whole).unwrap_or(&("us", 1));
        write!(f, "{}{unit}", self.0 / micros)
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SeriesVisitor;
        impl de::Visitor<'_> for SeriesVisitor {
            type Value = TimeSpan;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a span of time such as \"24h\"")
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<TimeSpan, E> {
                TimeSpan::parse(value).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(SeriesVisitor)
    }
}

impl JsonSchema for TimeSpan {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TimeSpan".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "a span of time such as \"24h\"",
            "type": "string"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_parsed_with_their_unit_and_nothing_else() {
        let check = |text: &str, micros: i64, shown: &str| {
            let span = TimeSpan::parse(text).unwrap();
            assert_eq!((span.micros(), span.to_string()), (micros, shown.into()));
        };
        check("24h", 86_400_000_000, "1d");
        check(" 90 s ", 90_000_000, "90s");
        check("1w", 604_800_000_000, "1w");
        check("1500us", 1500, "1500us");
        check("5m", 300_000_000, "5m");
        for bad in [
            "",
            "h",
            "24",
            "0h",
            "-1h",
            "1.5h",
            "1H",
            "1 month",
            "99999999999w",
        ] {
            assert!(TimeSpan::parse(bad).is_err(), "{bad}");
        }
    }
}
