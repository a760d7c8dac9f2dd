//! `[[dataset.join]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::series::{TimeSpan, TimeUnit};
use crate::ids::Name;

/// `[[dataset.join]]`: columns of another source, put beside the rows that have its key. Joins come before everything
/// else, in the order written, so what they bring is part of a row's content and may be feature, target or split key.
///
/// Keys are compared by their text, as `dataset.split.key` does: `5`, `5.0` and `"5"` are one; texts by their composed
/// form (NFC), with case and spaces. An empty text and a null are no key. In the joined source a key stands once, but
/// with `match = "asof"`: there it stands once at each instant, and a row gets the newest of its rows that came before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinConfig {
    /// The source that is joined on. It is no part of `dataset.sources`.
    pub source: Name,
    /// Column of the rows that names the row of `source`; an earlier join may have brought it. `asof`: it may be left out,
    /// all rows of both have one key then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
    /// Column of `source` that it is compared with. Default: as `left`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<String>,
    /// What of the two is compared: `exact` (default), `name`, `stem`, or `asof`, which looks at the time too.
    #[serde(default, skip_serializing_if = "KeyMatch::is_exact")]
    pub r#match: KeyMatch,
    /// What becomes of a row that `source` has nothing for: `reject` (default), `drop` or `null`.
    #[serde(default)]
    pub unmatched: Unmatched,
    /// Columns that are taken. Default: all but `right`, and with `asof` the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Text put before the names of the columns that are taken, where the rows have columns of the same names. Default
    /// none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// `asof`: when each row is, that is from when on nothing may be known of it yet. `asof` needs it, and nothing else has
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeColumn>,
    /// `asof`: from when on each row of `source` was known, which is not always when what it tells of happened. Default: as
    /// `time`, of columns of the same names that are written the same way; else it has to be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right_time: Option<TimeColumn>,
    /// `asof`: age beyond which a row of `source` is not taken, such as `2h`. Default: any. Set it where a value that is
    /// no longer renewed would pass for a fresh one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<TimeSpan>,
    /// `asof`: whether a row of `source` at the very time of a row is taken. Default false: only what came before, so that
    /// nothing leaks that is written together with what is to be predicted. Set it where `source` is surely known first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_exact_matches: bool,
    /// `asof`: which of several rows of `source` with one key and time is taken: `error` (default), `first` or `last`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<JoinDuplicates>,
    /// `asof`: name of a further column that tells how old what was taken is, in seconds. Default: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<String>,
}

/// A column that holds points in time, read as `[dataset.series]` reads its `time`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeColumn {
    /// Name of the column. A cell that is missing or cannot be read is no time, and its row finds no partner.
    pub column: String,
    /// Column of the time of day, where `column` holds the date alone; the two texts are read with a space between them.
    /// Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// How texts are written, such as `%d/%m/%Y %H:%M:%S`; `%z` is an offset, `%Q` the name of a zone, `%s` seconds since 1970.
    /// Default: ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Unit since 1970 of a column of numbers: `s`, `ms`, `us` or `ns`. Goes with such a column, and only with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<TimeUnit>,
    /// Time zone, such as `Europe/Rome`, of texts without an offset or zone of their own, as points in time of a Parquet file
    /// without a zone are. Where clocks are set back, a row is at the earlier of the
    /// two instants and a row of the joined source at the later, so that it is not known too early. Default `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// Which of several rows of the joined source with one key and time is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinDuplicates {
    /// None: the build stops and names one.
    #[default]
    Error,
    /// The one that landed first.
    First,
    /// The one that landed last, as where corrections land behind what they correct.
    Last,
}

/// What of two keys is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyMatch {
    /// All of it.
    #[default]
    Exact,
    /// Of both, what stands behind the last `/` or `\`: `cat/1.jpg` is `1.jpg`. Two rows with different keys must not
    /// share it.
    Name,
    /// As `name`, up to its last dot: `cat/1.jpg` is `1`.
    Stem,
    /// All of it; of the rows that have it the newest counts that came before.
    Asof,
}

impl KeyMatch {
    /// Whether all of it is compared.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        matches!(self, Self::Exact)
    }

    /// Whether the time counts too.
    #[must_use]
    pub const fn is_asof(&self) -> bool {
        matches!(self, Self::Asof)
    }
}

/// What becomes of a row without a partner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unmatched {
    /// It is set aside as `unmatched`, and counts towards `dataset.max_reject_fraction`.
    #[default]
    Reject,
    /// It is left out by choice, listed as `unmatched_dropped`.
    Drop,
    /// It stays, with nulls.
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
