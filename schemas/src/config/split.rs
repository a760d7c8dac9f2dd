//! `[dataset.split]`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ids::TableName;

/// `[dataset.split]`. Shares must add up to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SplitConfig {
    /// `key` (default), `range`, `time`, `expression` or `column`.
    #[serde(skip_serializing_if = "SplitBy::is_key")]
    pub by: SplitBy,
    /// Share of the training split, above 0 and at most 1. Default 0.8.
    pub train: f64,
    /// Share of the validation split, 0 to 1. Default 0.1.
    pub validation: f64,
    /// Share of the test split, 0 to 1. Default 0.1.
    pub test: f64,
    /// Columns whose values decide the split: rows with equal values share one. Default: the row's content.
    /// Name the entity (customer, patient, device) so that it never stands on both sides. `time`: such a group belongs to
    /// the split of its last row, and its earlier rows that lie in another are left out. `expression`, `column`: they decide
    /// nothing, but a group that they name in two splits ends the build. Of a source with a `key` name that key, or a row that
    /// is updated is another row by its content and may come into another split.
    pub key: Vec<String>,
    /// Treatment of rows without a value in any column of `key` (null, NaN, blank, or what `dataset.null_values` and
    /// `dataset.missing_values` list): `own` (default), `one` or `reject`. A row with some of several columns has a key.
    /// Rejected rows count towards `dataset.max_reject_fraction`. By default a warning counts such rows; a written value is a decision.
    #[serde(skip_serializing_if = "is_own")]
    pub missing_key: Option<MissingKey>,
    /// `range`, `rows`: first rows of the validation and of the test split that are set aside, as many as a row looks
    /// back (lags, windows), so that none of them has seen the split before. `time`: the span behind each border whose
    /// rows are set aside, such as `"7d"` (units `w`, `d`, `h`, `m`, `s`, `ms`, `us`); of a column of integers, a number of
    /// its own unit. Default 0.
    #[serde(skip_serializing_if = "Embargo::is_none")]
    pub embargo: Embargo,
    /// Text mixed into the hash. Another salt makes another split; adding rows never moves old ones.
    pub salt: String,
    /// `expression`: SQL over the columns of a row that gives `train`, `validation` or `test`, such as `case when id
    /// % 10 < 8 then 'train' when id % 10 = 8 then 'validation' else 'test' end`. Names are written as they are, in
    /// double quotes where they have other characters than `a-z`, `A-Z`, `0-9` and `_`. Integers are exact: one that
    /// leaves 64 bits ends the build, one divided by 0 is null. A row for which it gives anything else is set aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
    /// `column`: column of text that holds `train`, `validation` or `test`; a row where it holds anything else is set aside.
    /// It is no feature unless `features` lists it, and rows that differ in it alone are copies: the first that landed stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// `time`: column of the time of each row, as a time stamp, as text (ISO 8601, in UTC where it has no offset) or as
    /// integers of any unit. Points in time of a Parquet file that has no zone for them are such texts. A text that is the time of
    /// `dataset.series`, too, is read as that says. Rows of one instant share
    /// a split. A row without one is set aside. It is no feature unless `features` lists it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// `time`: where the validation and the test split begin, such as `["2024-01-01", "2024-07-01"]`, in UTC where
    /// they have no offset; of a column of integers each is a text of a number, such as `"1704067200"`. Rows before the first are
    /// for training. Set them where the borders must not move when rows are added. Default: the borders follow from the
    /// shares.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub until: Vec<String>,
    /// `key`: source that is the test split, whole. Rows of the other sources that have its content, or its `key`, are left out,
    /// never the reverse, and so are images with the pixels of one of its images, or that look like it as far as
    /// `dataset.image.duplicates` and `embeddings` say, with all images of its group (the same `key`, or linked by
    /// look-alikes); the others are split in `train` and `validation`, so `test` is 0. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<TableName>,
    /// Largest difference, 0 to 1, between the share that a split is given here and its share of the rows that are kept; above it
    /// the build stops and says how many groups of `key` each split got and how large the largest is. Groups stand whole in
    /// a split, so few or uneven ones miss the shares; 0.05 is usual. Default: a difference of more than 0.1 is a warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
}

impl Default for SplitConfig {
    fn default() -> Self {
        Self {
            by: SplitBy::Key,
            train: 0.8,
            validation: 0.1,
            test: 0.1,
            key: Vec::new(),
            missing_key: None,
            embargo: Embargo::default(),
            salt: "feedline".into(),
            expression: None,
            column: None,
            time: None,
            until: Vec::new(),
            frozen: None,
            tolerance: None,
        }
    }
}

/// Group of a row that has no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingKey {
    /// A group of its own, by its content.
    #[default]
    Own,
    /// One group of all such rows: they share a split.
    One,
    /// None: the row is rejected.
    Reject,
}

/// Returns whether each row without a key is a group of its own: the same dataset, written or not.
fn is_own(missing: &Option<MissingKey>) -> bool {
    missing.unwrap_or_default() == MissingKey::Own
}

impl SplitConfig {
    /// Returns the treatment of rows without a key.
    #[must_use]
    pub fn missing_key(&self) -> MissingKey {
        self.missing_key.unwrap_or_default()
    }
}

/// How rows are split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SplitBy {
    /// By a hash of their `key` or content: a row stands in one split, and stays there when others are added.
    #[default]
    Key,
    /// By order: training first, then validation, then test, by their shares. `rows`: in the order they landed, for time
    /// series; adding rows moves the borders, so that a dataset that is there is made anew only with `--refit`. `characters`
    /// and `tokens`: each document is cut into a part for every split, for one long text.
    Range,
    /// By the time in a column: training first, then validation, then test, by their shares or `until` borders, in whatever
    /// order rows landed. Rows can be added to a dataset that is there with `until` and without `key`; else it is made anew
    /// only with `--refit`.
    Time,
    /// By an SQL expression over the row that names its split, for a rule that exists already.
    Expression,
    /// By a column that names the split of each row, for data that comes split.
    Column,
}

impl SplitBy {
    /// Whether rows are split by a hash.
    #[must_use]
    pub const fn is_key(&self) -> bool {
        matches!(self, Self::Key)
    }

    /// Whether the data name the split of each row.
    #[must_use]
    pub const fn is_named(&self) -> bool {
        matches!(self, Self::Expression | Self::Column)
    }
}

/// How far behind a border rows are set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Embargo {
    /// So many rows, or units of a column of integers.
    Count(u64),
    /// A span of time, as it was written: a text that [`Embargo::micros`] reads.
    Span(String),
}

impl Default for Embargo {
    fn default() -> Self {
        Self::Count(0)
    }
}

impl Embargo {
    /// Whether none is asked for.
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
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
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
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Embargo {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Embargo".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
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
    fn what_is_not_used_is_not_written() {
        let text = serde_json::to_string(&SplitConfig::default()).unwrap();
        assert_eq!(
            text,
            r#"{"train":0.8,"validation":0.1,"test":0.1,"key":[],"salt":"feedline"}"#
        );
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
