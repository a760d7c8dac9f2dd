//! `[dataset.series]` and `[[dataset.feature]]`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// `[dataset.series]`: the rows are readings of one or more entities at points in time, which features
/// (`[[dataset.feature]]`) look back over.
///
/// Features are made after copies were dropped and before the split, from all rows whose time can be read, those that are
/// set aside for another reason included: a reading without a target is a reading. Nothing here is fitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeriesConfig {
    /// Column of points in time. A row whose time is missing or cannot be read is set aside as `time_unreadable`. Unless
    /// `dataset.features` lists it, it is no feature. Points in time of a Parquet file that has no zone for them are texts
    /// without an offset, such as `2024-03-31T08:00:00`, in every unit: `zone` says where their clocks stand.
    pub time: String,
    /// Column of the time of day, where `time` holds the date alone; the two texts are read with a space between them.
    /// Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// How texts are written, such as `%d/%m/%Y %H:%M:%S`; `%z` is an offset, `%Q` the name of a zone, `%s` seconds since 1970.
    /// A format that tells no day is refused. Default: ISO 8601, as `2024-03-31T08:00:00Z`, `2024-03-31 08:00:00` or
    /// `2024-03-31`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Unit since 1970 of a column of numbers: `s`, `ms`, `us` or `ns`. Goes with such a column, and only with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<TimeUnit>,
    /// Time zone, such as `Europe/Rome`, of texts without an offset or zone of their own, and of calendar parts. Where clocks are set back the
    /// earlier of the two instants is meant; a time that they skip cannot be read. Default `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Columns that tell the entities apart, whose rows make a series each; neither the target nor the time. Values are
    /// compared as they are written, without composing letters (NFC); rows that lack all of them are one series. Default: all
    /// rows are one series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entity: Vec<String>,
    /// What happens to rows of one entity at one instant: `error` (default), `first`, `last` or `mean`.
    #[serde(default)]
    pub duplicates: SameTime,
    /// Longest distance of neighbouring rows of an entity, as `6h`; beyond it `gaps` applies. Default: any distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_gap: Option<TimeSpan>,
    /// `restart` (default) or `error`. Goes with `max_gap`, and only with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<Gaps>,
    /// Whether a row may look back at rows of another split. Default false: such rows stop the build, which asks for an
    /// embargo. True suits a model that will always have the past at hand when it predicts; training rows that look at
    /// validation or test rows, as with a split by content, then leak.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_start: bool,
}

/// Unit of a time that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds; what is left of a microsecond is dropped.
    Ns,
}

/// What happens to rows of one entity at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SameTime {
    /// The build stops and names one.
    #[default]
    Error,
    /// The row that landed first stays, of those that can be used if any can. The others are left out as `same_time`.
    First,
    /// The row that landed last stays, as above.
    Last,
    /// The row that landed first stays, as above; its numbers become the means of all that are there.
    Mean,
}

/// What happens at a gap longer than `max_gap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gaps {
    /// The series begins anew: nothing looks back over the gap.
    #[default]
    Restart,
    /// The build stops and names one.
    Error,
}

/// A span of time above 0, in microseconds. Written as a whole number and a unit of `us`, `ms`, `s`, `m`, `h`, `d` (24
/// hours), `w`, such as `24h`.
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
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = TimeSpan;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a span of time such as \"24h\"")
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<TimeSpan, E> {
                TimeSpan::parse(value).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
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
