//! `[[dataset.join]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::series::{AmbiguousTime, TimeSpan, TimeUnit};
use crate::ids::Name;

/// `[[dataset.join]]`: columns of another source, joined to the rows by key. Joins run after
/// `dataset.sql` and before all other steps, in the order written. So joined columns are part of a
/// row's content and may be feature, target or split key.
///
/// Keys are compared as strings, as in `dataset.split.key`: `5`, `5.0` and `"5"` are equal. Strings
/// are compared in composed form (NFC), with case and spaces. An empty string and a null are not
/// keys. A key must be unique in the joined source. With `match = "asof"` it must be unique at each
/// instant, and a row gets the newest earlier row with its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinConfig {
    /// Source to join. It is not part of `dataset.sources`. If it has a `key`, the latest version of
    /// each key is joined.
    pub source: Name,
    /// Column of the rows that holds the key of a row in `source`; an earlier join may have added
    /// it. `asof`: it may be omitted; all rows of both then have one key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
    /// Column of `source` that holds the key. Default: the name in `left`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<String>,
    /// Comparison of the keys: `exact` (default), `name`, `stem`, or `asof`, which also compares
    /// times.
    #[serde(default, skip_serializing_if = "KeyMatch::is_exact")]
    pub r#match: KeyMatch,
    /// Action for a row without a match in `source`: `reject` (default), `drop` or `null`.
    #[serde(default)]
    pub unmatched: Unmatched,
    /// Columns to add. Default: all but `right`, and with `asof` all but its time, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Prefix for the names of the added columns, where the rows have columns of the same names.
    /// Default none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// `asof`: time of each row. Values that became known later are not joined. Required with
    /// `asof`, refused otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeColumn>,
    /// `asof`: time when each row of `source` became known, which may be later than the event it
    /// describes. Default: as `time`, if both have columns of the same names in the same format;
    /// otherwise it is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right_time: Option<TimeColumn>,
    /// `asof`: largest age of a joined row of `source`, such as `2h`. Default: no limit. Set it
    /// where a value that is no longer updated could pass for a current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<TimeSpan>,
    /// `asof`: if true, a row of `source` at exactly the time of a row is joined too. Default
    /// false: only earlier rows are joined, so that nothing leaks that is written together with the
    /// value to predict. Set it to true where `source` is certainly known first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_exact_matches: bool,
    /// `asof`: choice among several rows of `source` with one key and time: `error` (default),
    /// `first` or `last`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<JoinDuplicates>,
    /// `asof`: name of an additional column with the age of the joined values, in seconds. Default:
    /// no such column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<String>,
}

/// A column of timestamps, read like the `time` of `[dataset.series]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeColumn {
    /// Name of the column. A row whose cell is missing or cannot be read has no time, and finds no
    /// match.
    pub column: String,
    /// Column of the time of day, where `column` holds only the date; the two strings are read with
    /// a space between them. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// Format of strings, such as `%d/%m/%Y %H:%M:%S`; `%z` is an offset, `%Q` the name of a zone,
    /// `%s` seconds since 1970. Default: ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Unit since 1970 of a numeric column: `s`, `ms`, `us` or `ns`. Required for a numeric column,
    /// refused for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<TimeUnit>,
    /// Time zone, such as `Europe/Rome`, of strings without an offset or zone of their own.
    /// Timestamps of a Parquet file without a zone are such strings. Where clocks are set back, they
    /// show an hour twice (`ambiguous`). Default `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Reading of strings in the hour that clocks of the zone show twice: `earlier`, `later` or
    /// `reject`. A row with a rejected time finds no match, or is never joined. In `time` it also
    /// applies to the joined source if `right_time` is absent. If this key is absent, a row is at
    /// the earlier of the two instants, and a row of the joined source at the later one, so that it
    /// is not known too early. A warning (`ambiguous_times`) counts both; an explicit value turns it
    /// off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ambiguous: Option<AmbiguousTime>,
}

/// Choice among several rows of the joined source with one key and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinDuplicates {
    /// None: the build stops and names one.
    #[default]
    Error,
    /// The row that landed first.
    First,
    /// The row that landed last, for sources where corrections land after the rows that they
    /// correct.
    Last,
}

/// Comparison of two keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyMatch {
    /// The complete keys.
    #[default]
    Exact,
    /// The part of both keys after the last `/` or `\`: `cat/1.jpg` is `1.jpg`. Two rows with
    /// different keys must not share this part.
    Name,
    /// As `name`, but only up to the last dot: `cat/1.jpg` is `1`.
    Stem,
    /// The complete keys, and the times: the newest earlier row with the key is joined.
    Asof,
}

impl KeyMatch {
    /// Returns true for `exact`.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        matches!(self, Self::Exact)
    }

    /// Returns true if times are compared, too.
    #[must_use]
    pub const fn is_asof(&self) -> bool {
        matches!(self, Self::Asof)
    }
}

/// Action for a row without a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unmatched {
    /// The row is rejected as `unmatched`, and counts towards `dataset.max_reject_fraction`.
    #[default]
    Reject,
    /// The row is filtered out as `unmatched_dropped`, and does not count as rejected.
    Drop,
    /// The row is kept, with nulls in the added columns.
    Null,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_used_is_not_written() {
        let join: JoinConfig = serde_json::from_str(r#"{"source":"b","left":"id"}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&join).unwrap(),
            r#"{"source":"b","left":"id","unmatched":"reject"}"#
        );
    }
}
