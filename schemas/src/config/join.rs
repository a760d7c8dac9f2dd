//! `[[dataset.join]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Name;

/// `[[dataset.join]]`: columns of another source, put beside the rows that have its key. Joins come before everything
/// else, in the order written, so what they bring is part of a row's content and may be feature, target or split key.
///
/// Keys are compared by their text, as `dataset.split.key` does: `5`, `5.0` and `"5"` are one; texts by their composed
/// form (NFC), with case and spaces. An empty text and a null are no key. In the joined source a key stands once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinConfig {
    /// The source that is joined on. It is no part of `dataset.sources`.
    pub source: Name,
    /// Column of the rows that names the row of `source`; an earlier join may have brought it.
    pub left: String,
    /// Column of `source` that it is compared with. Default: as `left`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<String>,
    /// What of the two is compared: `exact` (default), `name` or `stem`.
    #[serde(default, skip_serializing_if = "KeyMatch::is_exact")]
    pub r#match: KeyMatch,
    /// What becomes of a row that `source` has nothing for: `reject` (default), `drop` or `null`.
    #[serde(default)]
    pub unmatched: Unmatched,
    /// Columns that are taken. Default: all but `right`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Text put before the names of the columns that are taken, where the rows have columns of the same names. Default
    /// none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
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
}

impl KeyMatch {
    /// Whether all of it is compared.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        matches!(self, Self::Exact)
    }
}

/// What becomes of a row without a partner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unmatched {
    /// It is set aside as `unmatched`, and counts towards `dataset.max_reject_share`.
    #[default]
    Reject,
    /// It is left out by choice, listed as `unmatched_dropped`.
    Drop,
    /// It stays, with nulls.
    Null,
}
