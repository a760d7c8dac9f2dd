//! `[dataset.split]`.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{
    Embargo,
    bounded::Fraction,
    tagged::{KeyError, KeyTable},
};
use crate::ids::TableName;

/// `[dataset.split]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitConfig {
    /// The rule, with its keys.
    pub by: SplitBy,
    /// Fraction of rows in the training split. The three fractions add up to 1.
    pub train: f64,
    /// Fraction of rows in the validation split.
    pub validation: f64,
    /// Fraction of rows in the test split.
    pub test: f64,
    /// Columns whose values decide the split: rows with equal values share one.
    pub key: Vec<String>,
    /// Treatment of rows without a value in any column of `key`.
    pub missing_key: Option<MissingKey>,
    /// Text mixed into the hash.
    pub salt: String,
    /// Largest difference between the configured fraction of a split and its fraction of the kept
    /// rows.
    pub tolerance: Option<f64>,
}

/// The keys of each rule.
const KEYS: KeyTable = KeyTable {
    tag: "by",
    default: "key",
    common: &[],
    variants: &[
        (
            "key",
            &[
                "train",
                "validation",
                "test",
                "key",
                "missing_key",
                "salt",
                "frozen",
                "tolerance",
            ],
        ),
        (
            "range",
            &["train", "validation", "test", "embargo", "tolerance"],
        ),
        (
            "time",
            &[
                "time",
                "until",
                "train",
                "validation",
                "test",
                "key",
                "missing_key",
                "embargo",
                "tolerance",
            ],
        ),
        ("expression", &["expression", "key", "missing_key"]),
        ("column", &["column", "key", "missing_key"]),
    ],
};

/// `[dataset.split]`: assignment of rows to training, validation and test. The three fractions must
/// add up to 1.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    /// Rule of the split; the other keys depend on it. `key` (default): a hash of the key or
    /// content, so that a row stays in its split when others are added, except for images and texts
    /// that share a split with similar new ones. `range`: the order of rows:
    /// training first, then validation, then test, by their fractions. `time`: the time in a
    /// column, independent of the order in which rows landed. `expression`: an SQL expression over
    /// the row that returns its split. `column`: a column that names the split, for data that is
    /// already split.
    by: Rule,
    /// Fraction of rows in the training split, above 0 and at most 1. Default 0.8.
    train: Option<Fraction>,
    /// Fraction of rows in the validation split, 0 to 1. Default 0.1.
    validation: Option<Fraction>,
    /// Fraction of rows in the test split, 0 to 1. Default 0.1.
    test: Option<Fraction>,
    /// Columns whose values decide the split: rows with equal values share a split. Default: the
    /// row's content. Name the entity (customer, patient, device), so that no entity is in several
    /// splits. `time`: a group belongs to the split of its last row, and its earlier rows in
    /// another split are filtered out. `expression`, `column`: the key does not decide the split,
    /// but a group in two splits stops the build. If a source has a `key`, name that key here:
    /// otherwise an updated row is another row by its content, and its split may change. The same
    /// holds for columns of `dataset.join`, which are part of the content. A build where joined
    /// columns would change splits stops until `--refit`; other changes are a warning
    /// (`rows_changed_split`).
    key: Vec<String>,
    /// Treatment of rows without a value in any column of `key` (null, NaN, blank, or listed in
    /// `dataset.null_values` or `dataset.missing_values`): `own` (default), `one` or `reject`. A
    /// row with a value in some of several columns has a key. Rejected rows count towards
    /// `dataset.max_reject_fraction`. If this key is absent, a warning counts such rows; an
    /// explicit value turns the warning off.
    missing_key: Option<MissingKey>,
    /// `range`, for `kind = "rows"`: number of rows at the start of the validation and of the test
    /// split that are filtered out. Use the number of rows that features look back (lags, windows),
    /// so that no kept row looks into the split before. `time`: span after each boundary whose rows
    /// are filtered out, such as `"7d"` (units `w`, `d`, `h`, `m`, `s`, `ms`, `us`); for an integer
    /// column, a number in the unit of the column. Default 0.
    embargo: Embargo,
    /// Text mixed into the hash. Another salt makes another split. Default `feedline`.
    salt: Option<String>,
    /// `expression`: SQL over the columns of a row that returns `train`, `validation` or `test`,
    /// such as
    /// `case when id % 10 < 8 then 'train' when id % 10 = 8 then 'validation' else 'test' end`.
    /// Names keep their case; write them in double quotes if they have other characters than `a-z`,
    /// `A-Z`, `0-9` and `_`. Integers are exact: an integer that overflows 64 bits stops the build,
    /// and a division by 0 is null. A row with any other result is rejected.
    expression: Option<String>,
    /// `column`: column of strings that holds `train`, `validation` or `test`; a row with any other
    /// value is rejected. It is a feature only if `features` lists it. Rows that differ only in it
    /// are duplicates, and the first landed is kept.
    column: Option<String>,
    /// `time`: column with the time of each row, as timestamps, as strings (ISO 8601, in UTC
    /// without an offset) or as integers of any unit. Timestamps of a Parquet file without a zone
    /// are such strings. A string column that is also the time of `dataset.series` is read as
    /// configured there. Rows of one instant share a split. A row without a time is rejected. The
    /// column is a feature only if `features` lists it.
    time: Option<String>,
    /// `time`: starts of the validation and the test split, such as `["2024-01-01", "2024-07-01"]`,
    /// in UTC without an offset. For an integer column each is a number as a string, such as
    /// `"1704067200"`. Rows before the first are for training. Set them where the boundaries must
    /// not move when rows are added. Default: the boundaries follow from the fractions.
    until: Vec<String>,
    /// `key`: source that is the complete test split. Rows of the other sources with its content,
    /// or with its `key`, are filtered out, never the reverse. So are images with the pixels of one
    /// of its images, or that are similar to one by `dataset.image.duplicates` and `embeddings`.
    /// All images of their group are filtered out with them (the same `key`, or linked by similar
    /// images). The other rows are split into `train` and `validation`, so `test` is 0. Default
    /// none.
    frozen: Option<TableName>,
    /// Largest difference, 0 to 1, between the configured fraction of a split and its fraction of
    /// the kept rows. Above it the build stops and reports the number of groups of `key` in each
    /// split and the size of the largest. A group is never divided between splits, so few or uneven
    /// groups miss the fractions; 0.05 is usual. Default: a difference of more than 0.1 is a
    /// warning; with `by = "key"` from 100 rows on, since chance makes such a difference among
    /// fewer.
    tolerance: Option<Fraction>,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            by: Rule::Key,
            train: None,
            validation: None,
            test: None,
            key: Vec::new(),
            missing_key: None,
            embargo: Embargo::default(),
            salt: None,
            expression: None,
            column: None,
            time: None,
            until: Vec::new(),
            frozen: None,
            tolerance: None,
        }
    }
}

impl Default for SplitConfig {
    fn default() -> Self {
        Self {
            by: SplitBy::default(),
            train: 0.8,
            validation: 0.1,
            test: 0.1,
            key: Vec::new(),
            missing_key: None,
            salt: "feedline".into(),
            tolerance: None,
        }
    }
}

/// Largest rounding error of the sum of the fractions.
const SUM_TOLERANCE: f64 = 1e-9;

impl TryFrom<Keys> for SplitConfig {
    type Error = KeyError;

    fn try_from(keys: Keys) -> Result<Self, KeyError> {
        let has_shares = [keys.train, keys.validation, keys.test]
            .iter()
            .any(Option::is_some);
        let has_until = !keys.until.is_empty();
        let plain = Self::default();
        let share = |given: Option<Fraction>, default| given.map_or(default, Fraction::get);
        let train = share(keys.train, plain.train);
        let validation = share(keys.validation, plain.validation);
        let test = share(keys.test, plain.test);
        if has_until && has_shares {
            let reason = "the times of `until` decide how large the splits are; remove `train`, `validation` and `test`";
            return Err(KeyError::new("until", reason));
        }
        if has_until && keys.tolerance.is_some() {
            let reason = "the times of `until` decide how large the splits are, so no share can be missed; remove this key";
            return Err(KeyError::new("tolerance", reason));
        }
        if train <= 0.0 {
            let reason = "nothing can be fitted without training rows, use a share above 0";
            return Err(KeyError::new("train", reason));
        }
        let sum = train + validation + test;
        if (sum - 1.0).abs() > SUM_TOLERANCE {
            let reason = format!(
                "train, validation and test are {train} + {validation} + {test} = {sum}, they must add up to 1"
            );
            return Err(KeyError::new("", reason));
        }
        if keys.frozen.is_some() && test > 0.0 {
            let reason = "the frozen source is all of the test split; set `dataset.split.test = 0`, and `train` and `validation` to \
                          shares of the others that add up to 1";
            return Err(KeyError::new("frozen", reason));
        }
        let needs = |key: &str, value: Option<String>, example: &str| {
            value.ok_or_else(|| {
                let by = keys.by.name();
                let reason =
                    format!("`by = \"{by}\"` needs this key, such as `{key} = \"{example}\"`");
                KeyError::new(key, reason)
            })
        };
        let by = match keys.by {
            Rule::Key => SplitBy::Key {
                frozen: keys.frozen,
            },
            Rule::Range => SplitBy::Range {
                embargo: match keys.embargo {
                    Embargo::Count(rows) => rows,
                    Embargo::Span(_) => {
                        let reason = "rows are split by their place, so it is a number of rows; a span of time goes with `by = \
                                      \"time\"`";
                        return Err(KeyError::new("embargo", reason));
                    }
                },
            },
            Rule::Time => SplitBy::Time {
                column: needs("time", keys.time, "timestamp")?,
                until: keys.until,
                embargo: keys.embargo,
            },
            Rule::Expression => {
                let example = "case when id % 10 < 8 then 'train' else 'test' end";
                SplitBy::Expression(needs("expression", keys.expression, example)?)
            }
            Rule::Column => SplitBy::Column(needs("column", keys.column, "fold")?),
        };
        Ok(Self {
            by,
            train,
            validation,
            test,
            key: keys.key,
            missing_key: keys.missing_key,
            salt: keys.salt.unwrap_or(plain.salt),
            tolerance: keys.tolerance.map(Fraction::get),
        })
    }
}

impl<'de> Deserialize<'de> for SplitConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys: Keys = KEYS.read(deserializer)?;
        Self::try_from(keys).map_err(D::Error::custom)
    }
}

impl JsonSchema for SplitConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SplitConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        KEYS.schema::<Keys>(generator)
    }
}

/// The keys of all rules in the order in which hashes of a dataset's settings hold them.
#[derive(Serialize)]
struct SplitKeys<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    train: f64,
    validation: f64,
    test: f64,
    key: &'a [String],
    #[serde(skip_serializing_if = "is_own")]
    missing_key: &'a Option<MissingKey>,
    #[serde(skip_serializing_if = "Embargo::is_none")]
    embargo: Embargo,
    salt: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expression: Option<&'a String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<&'a String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<&'a String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    until: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    frozen: Option<&'a TableName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tolerance: Option<f64>,
}

impl Serialize for SplitConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = SplitKeys {
            by: (!self.by.is_key()).then(|| self.by.name()),
            train: self.train,
            validation: self.validation,
            test: self.test,
            key: &self.key,
            missing_key: &self.missing_key,
            embargo: self.embargo(),
            salt: &self.salt,
            expression: match &self.by {
                SplitBy::Expression(sql) => Some(sql),
                _ => None,
            },
            column: self.column(),
            time: self.time(),
            until: self.until(),
            frozen: self.frozen(),
            tolerance: self.tolerance,
        };
        written.serialize(serializer)
    }
}

/// Group of a row that has no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingKey {
    /// A separate group, by its content.
    #[default]
    Own,
    /// One group of all such rows: they share a split.
    One,
    /// None: the row is rejected.
    Reject,
}

/// Returns true if each row without a key is a separate group. The dataset is the same if the key
/// is absent.
fn is_own(missing: &Option<MissingKey>) -> bool {
    missing.unwrap_or_default() == MissingKey::Own
}

impl SplitConfig {
    /// Returns the treatment of rows without a key.
    #[must_use]
    pub fn missing_key(&self) -> MissingKey {
        self.missing_key.unwrap_or_default()
    }

    /// Embargo after the start of a split.
    #[must_use]
    pub fn embargo(&self) -> Embargo {
        match &self.by {
            SplitBy::Range { embargo } => Embargo::Count(*embargo),
            SplitBy::Time { embargo, .. } => embargo.clone(),
            _ => Embargo::default(),
        }
    }

    /// Column that names the split of each row.
    #[must_use]
    pub const fn column(&self) -> Option<&String> {
        match &self.by {
            SplitBy::Column(column) => Some(column),
            _ => None,
        }
    }

    /// Column of the time that decides the split.
    #[must_use]
    pub const fn time(&self) -> Option<&String> {
        match &self.by {
            SplitBy::Time { column, .. } => Some(column),
            _ => None,
        }
    }

    /// Starts of the validation and of the test split, where they are given.
    #[must_use]
    pub fn until(&self) -> &[String] {
        match &self.by {
            SplitBy::Time { until, .. } => until,
            _ => &[],
        }
    }

    /// Source that is the test split.
    #[must_use]
    pub const fn frozen(&self) -> Option<&TableName> {
        match &self.by {
            SplitBy::Key { frozen } => frozen.as_ref(),
            _ => None,
        }
    }
}

/// Rule of a split, as a file names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Rule {
    #[default]
    Key,
    Range,
    Time,
    Expression,
    Column,
}

impl Rule {
    const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Range => "range",
            Self::Time => "time",
            Self::Expression => "expression",
            Self::Column => "column",
        }
    }
}

/// Rule of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitBy {
    /// A hash of the row's `key` or content: a row is in one split, and stays there when others are
    /// added.
    Key {
        /// Source that is the test split.
        frozen: Option<TableName>,
    },
    /// The order of rows: training first, then validation, then test, by their fractions. With
    /// `characters` and `tokens` each document has a part in every split.
    Range {
        /// Number of rows at the start of the validation and of the test split that are filtered
        /// out.
        embargo: u64,
    },
    /// The time in a column: training first, then validation, then test, by their fractions or the
    /// times of `until`.
    Time {
        /// The column.
        column: String,
        /// Starts of the validation and of the test split; empty if the fractions decide.
        until: Vec<String>,
        /// Span after the start of a split whose rows are filtered out.
        embargo: Embargo,
    },
    /// An SQL expression over the row that names its split.
    Expression(String),
    /// A column that names the split of each row.
    Column(String),
}

impl Default for SplitBy {
    fn default() -> Self {
        Self::Key { frozen: None }
    }
}

impl SplitBy {
    /// Returns true if rows are split by a hash.
    #[must_use]
    pub const fn is_key(&self) -> bool {
        matches!(self, Self::Key { .. })
    }

    /// Returns true if rows are split by their order.
    #[must_use]
    pub const fn is_range(&self) -> bool {
        matches!(self, Self::Range { .. })
    }

    /// Returns true if rows are split by a time.
    #[must_use]
    pub const fn is_time(&self) -> bool {
        matches!(self, Self::Time { .. })
    }

    /// Returns true if the data name the split of each row.
    #[must_use]
    pub const fn is_named(&self) -> bool {
        matches!(self, Self::Expression(_) | Self::Column(_))
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Key { .. } => "key",
            Self::Range { .. } => "range",
            Self::Time { .. } => "time",
            Self::Expression(_) => "expression",
            Self::Column(_) => "column",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_used_is_not_written() {
        let text = serde_json::to_string(&SplitConfig::default()).unwrap();
        assert_eq!(
            text,
            r#"{"train":0.8,"validation":0.1,"test":0.1,"key":[],"salt":"feedline"}"#
        );
    }

    #[test]
    fn every_rule_is_written_with_the_keys_and_the_order_that_hashes_hold() {
        let split = |text: &str| serde_json::from_str::<SplitConfig>(text).unwrap();
        for (text, expected) in [
            (
                r#"{"by":"time","time":"t","until":["1","2"],"embargo":"7d"}"#,
                r#"{"by":"time","train":0.8,"validation":0.1,"test":0.1,"key":[],"embargo":"7d","salt":"feedline","time":"t","until":["1","2"]}"#,
            ),
            (
                r#"{"by":"range","embargo":3,"tolerance":0.5}"#,
                r#"{"by":"range","train":0.8,"validation":0.1,"test":0.1,"key":[],"embargo":3,"salt":"feedline","tolerance":0.5}"#,
            ),
            (
                r#"{"by":"column","column":"fold","missing_key":"one"}"#,
                r#"{"by":"column","train":0.8,"validation":0.1,"test":0.1,"key":[],"missing_key":"one","salt":"feedline","column":"fold"}"#,
            ),
            (
                r#"{"frozen":"b","train":0.9,"validation":0.1,"test":0,"salt":"s"}"#,
                r#"{"train":0.9,"validation":0.1,"test":0.0,"key":[],"salt":"s","frozen":"b"}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&split(text)).unwrap(), expected);
        }
    }

    #[test]
    fn a_split_that_cannot_be_is_refused_at_its_key() {
        for (text, expected) in [
            (
                r#"{"by":"expression"}"#,
                "at `expression`: `by = \"expression\"` needs this key, such as",
            ),
            (
                r#"{"by":"column"}"#,
                "at `column`: `by = \"column\"` needs this key",
            ),
            (
                r#"{"by":"time"}"#,
                "at `time`: `by = \"time\"` needs this key",
            ),
            (
                r#"{"expression":"'train'"}"#,
                "at `expression`: this key belongs to `by = \"expression\"`; `by = \"key\"` has the keys `by`, `train`",
            ),
            (
                r#"{"by":"range","column":"x"}"#,
                "at `column`: this key belongs to",
            ),
            (
                r#"{"by":"range","key":["x"]}"#,
                "at `key`: this key belongs to",
            ),
            (r#"{"time":"ts"}"#, "at `time`: this key belongs to"),
            (r#"{"until":["1","2"]}"#, "at `until`: this key belongs to"),
            (r#"{"embargo":3}"#, "at `embargo`: this key belongs to"),
            (
                r#"{"by":"expression","expression":"'train'","train":0.9}"#,
                "at `train`: this key belongs to",
            ),
            (
                r#"{"by":"time","time":"ts","until":["1","2"],"train":0.9,"test":0}"#,
                "at `until`: the times of `until` decide",
            ),
            (
                r#"{"by":"range","embargo":"7d"}"#,
                "at `embargo`: rows are split by their place, so it is a number of rows",
            ),
            (
                r#"{"test":0.2}"#,
                "train, validation and test are 0.8 + 0.1 + 0.2 =",
            ),
            (
                r#"{"train":0,"validation":0.5,"test":0.5}"#,
                "at `train`: nothing can be fitted",
            ),
            (r#"{"train":1.5}"#, "at `train`: must be 0 to 1, got 1.5"),
            (
                r#"{"tolerance":1.5}"#,
                "at `tolerance`: must be 0 to 1, got 1.5",
            ),
            (
                r#"{"by":"column","column":"who","tolerance":0.1}"#,
                "at `tolerance`: this key belongs to",
            ),
            (
                r#"{"frozen":"b","by":"range","train":0.9,"validation":0.1,"test":0}"#,
                "at `frozen`: this key belongs to `by = \"key\"`",
            ),
            (
                r#"{"frozen":"b"}"#,
                "at `frozen`: the frozen source is all of the test split",
            ),
        ] {
            let error = serde_json::from_str::<SplitConfig>(text)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
