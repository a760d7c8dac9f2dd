//! Distance after a boundary between splits.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Distance after a boundary in which rows are filtered out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Embargo {
    /// A number of rows, or of units of an integer column.
    Count(u64),
    /// A span of time, as written: a string that [`Embargo::micros`] parses.
    Span(String),
}

impl Default for Embargo {
    fn default() -> Self {
        Self::Count(0)
    }
}

impl Embargo {
    /// Returns true if there is no embargo.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::Count(0))
    }

    /// Microseconds of a span such as `7d` or `90s`.
    ///
    /// # Errors
    /// A message that lists the units.
    pub fn micros(text: &str) -> Result<i64, String> {
        let text = text.trim();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let unit = match text[digits..].trim() {
            "us" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            "w" => 604_800_000_000,
            _ => 0,
        };
        let count = text[..digits].parse::<i64>().ok();
        let micros = count.and_then(|count| count.checked_mul(unit));
        micros.filter(|_| unit > 0).ok_or_else(|| {
            format!("`{text}` is not a span of time: write a whole number and a unit of w, d, h, m, s, ms, us, such as `7d`")
        })
    }
}

impl Serialize for Embargo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Span(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Embargo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EmbargoVisitor;
        impl de::Visitor<'_> for EmbargoVisitor {
            type Value = Embargo;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of rows, or a span of time such as \"7d\"")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Embargo, E> {
                Ok(Embargo::Count(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Embargo, E> {
                u64::try_from(value)
                    .map(Embargo::Count)
                    .map_err(|_| E::custom("an embargo cannot be negative"))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Embargo, E> {
                Embargo::micros(value).map_err(E::custom)?;
                Ok(Embargo::Span(value.to_owned()))
            }
        }
        deserializer.deserialize_any(EmbargoVisitor)
    }
}

impl JsonSchema for Embargo {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Embargo".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "a number of rows, or a span of time such as \"7d\"",
            "type": ["integer", "string"],
            "minimum": 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_parsed_with_their_unit_and_nothing_else() {
        assert_eq!(Embargo::micros("7d"), Ok(7 * 86_400_000_000));
        assert_eq!(Embargo::micros(" 90 s "), Ok(90_000_000));
        assert_eq!(Embargo::micros("3us"), Ok(3));
        for bad in ["", "7", "d", "-1d", "1.5h", "7 days", "99999999999999w"] {
            assert!(Embargo::micros(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_embargo_is_written_as_it_was_read() {
        for (text, expected) in [
            ("12", Embargo::Count(12)),
            ("\"7d\"", Embargo::Span("7d".into())),
        ] {
            let found: Embargo = serde_json::from_str(text).unwrap();
            assert_eq!(found, expected);
            assert_eq!(serde_json::to_string(&found).unwrap(), text);
        }
        for bad in ["-1", "\"7 days\"", "true"] {
            assert!(serde_json::from_str::<Embargo>(bad).is_err(), "{bad}");
        }
    }
}
