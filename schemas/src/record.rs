//! Record schema of a source: the columns of its landed data files.
//!
//! Nested objects become columns named by their path, joined with `.`; a `.` or `\` inside a key is written `\.` or
//! `\\`, so a name can be split back into its keys. Lists are kept as JSON text in one column, as lists of scalars, or as
//! the rows of a child table ([`crate::commit::ChildTable`]).
//!
//! A column's type only ever widens, in a new version of the schema: `Int64` to `Float64` where every integer is exact
//! as a float, otherwise to `Decimal`, and what no number holds to `Utf8`. Files of an older version keep the type they
//! were written with; whoever reads several versions takes [`ColumnType::widest`]. In a file each column carries its
//! [`Column::field_id`] as the Parquet field id.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::SchemaVersion;

/// Type of a landed column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// Only nulls have been seen; stored as a nullable string column.
    Null,
    /// True or false. It has no wider type but text.
    Bool,
    /// 64-bit signed integer.
    Int64,
    /// 64-bit float; integers fit up to 2^53.
    Float64,
    /// Decimal number of 38 digits, [`DECIMAL_SCALE`] of them behind the point: every 64-bit integer, signed or not, is
    /// exact.
    Decimal,
    /// Microseconds since 1970-01-01 UTC. It has no wider type but text.
    Timestamp,
    /// Text.
    Utf8,
    /// Lists that have had no item yet; stored as lists of strings.
    List,
    /// Lists of booleans.
    ListBool,
    /// Lists of 64-bit signed integers.
    ListInt64,
    /// Lists of 64-bit floats.
    ListFloat64,
    /// Lists of text.
    ListUtf8,
    /// A list (or a value under the depth limit) as JSON text.
    Json,
    /// Bytes, such as a whole image file. It has no wider type, and nothing widens to it.
    Binary,
}

/// Digits of a [`ColumnType::Decimal`].
pub const DECIMAL_PRECISION: u8 = 38;
/// Digits of a [`ColumnType::Decimal`] behind the point.
pub const DECIMAL_SCALE: i8 = 18;

impl ColumnType {
    /// Returns true for lists.
    #[must_use]
    pub const fn is_list(self) -> bool {
        matches!(
            self,
            Self::List | Self::ListBool | Self::ListInt64 | Self::ListFloat64 | Self::ListUtf8
        )
    }

    /// Returns true for numbers.
    #[must_use]
    pub const fn is_number(self) -> bool {
        matches!(self, Self::Int64 | Self::Float64 | Self::Decimal)
    }

    /// The narrowest type that holds the values of both, as text if need be; bytes stay bytes.
    #[must_use]
    pub const fn widest(self, other: Self) -> Self {
        match (self, other) {
            (Self::Null, wide) | (wide, Self::Null) => wide,
            (Self::Binary, _) | (_, Self::Binary) => Self::Binary,
            (Self::Bool, Self::Bool) => Self::Bool,
            (Self::Int64, Self::Int64) => Self::Int64,
            (Self::Int64 | Self::Float64, Self::Int64 | Self::Float64) => Self::Float64,
            (Self::Timestamp, Self::Timestamp) => Self::Timestamp,
            (a, b) if a.is_number() && b.is_number() => Self::Decimal,
            (Self::List, list) | (list, Self::List) if list.is_list() => list,
            (Self::ListBool, Self::ListBool) => Self::ListBool,
            (Self::ListInt64, Self::ListInt64) => Self::ListInt64,
            (Self::ListUtf8, Self::ListUtf8) => Self::ListUtf8,
            (Self::ListInt64 | Self::ListFloat64, Self::ListInt64 | Self::ListFloat64) => {
                Self::ListFloat64
            }
            (a, b) if a.is_list() || b.is_list() => Self::Json,
            (Self::Json, _) | (_, Self::Json) => Self::Json,
            _ => Self::Utf8,
        }
    }
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Number that stays with the column through renames and reordering; unique in the source, from 1.
    pub field_id: u32,
    /// Path name, see the module's documentation.
    pub name: String,
    /// Type.
    pub r#type: ColumnType,
    /// True when objects here are kept as one column of JSON text, since their keys are data: there
    /// were too many of them for columns, or the configuration says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

/// The columns of a source at one version, in order of first appearance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordSchema {
    /// Version; every change of columns or types makes the next one.
    pub version: SchemaVersion,
    /// Columns.
    pub columns: Vec<Column>,
}

/// Columns that feedline adds to every landed file, in front of the source's own.
pub mod system {
    /// `u64`, log sequence of the batch.
    pub const SEQUENCE: &str = "_feedline_seq";
    /// `u32`, row in the batch, from 0.
    pub const ROW: &str = "_feedline_row";
    /// `fixed_size_binary(16)`, xxh3-128 (big endian) of the record's canonical form: compact JSON of the record as
    /// the source sent it, object keys sorted by bytes. Records with equal canonical forms are the same record.
    pub const HASH: &str = "_feedline_hash";
    /// `u32`, in a child table: the [`ROW`] of the record that the row is a part of.
    pub const PARENT: &str = "_feedline_parent";
    /// `u32`, in a child table: place of the row in its list, from 0. See [`index`].
    pub const INDEX: &str = "_feedline_index";
    /// Prefix no source column may begin with.
    pub const PREFIX: &str = "_feedline_";

    /// Column of a child table with the place in the list of this level, from 0 for the outermost:
    /// `_feedline_index`, `_feedline_index_2`, and so on. A row of a list in an item of another
    /// list has the places of both.
    #[must_use]
    pub fn index(level: usize) -> String {
        match level {
            0 => INDEX.to_owned(),
            level => format!("{INDEX}_{}", level + 1),
        }
    }
}

/// Joins path keys into a column name.
///
/// ```
/// use feedline_schemas::record::{join_path, split_path};
///
/// let name = join_path(["user", "e.mail"]);
/// assert_eq!(name, r"user.e\.mail");
/// assert_eq!(split_path(&name), ["user", "e.mail"]);
/// ```
#[must_use]
pub fn join_path<'a>(keys: impl IntoIterator<Item = &'a str>) -> String {
    let mut name = String::new();
    for (i, key) in keys.into_iter().enumerate() {
        if i > 0 {
            name.push('.');
        }
        push_key(&mut name, key);
    }
    name
}

/// Appends a path key to a column name, with `.` and `\` escaped; the dot between keys is the caller's.
pub fn push_key(name: &mut String, key: &str) {
    if !key.contains(['.', '\\']) {
        return name.push_str(key);
    }
    for c in key.chars() {
        if c == '.' || c == '\\' {
            name.push('\\');
        }
        name.push(c);
    }
}

/// Splits a column name back into its keys.
#[must_use]
pub fn split_path(name: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut key = String::new();
    let mut escaped = false;
    for c in name.chars() {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            '.' if !escaped => keys.push(std::mem::take(&mut key)),
            c => key.push(c),
        }
        escaped = false;
    }
    keys.push(key);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_type_does_not_depend_on_the_order() {
        use ColumnType::{
            Binary, Bool, Decimal, Float64, Int64, Json, List, ListBool, ListFloat64, ListInt64,
            ListUtf8, Null, Timestamp, Utf8,
        };
        let all = [
            Null,
            Bool,
            Int64,
            Float64,
            Decimal,
            Timestamp,
            Utf8,
            List,
            ListBool,
            ListInt64,
            ListFloat64,
            ListUtf8,
            Json,
            Binary,
        ];
        for a in all {
            assert_eq!(a.widest(a), a);
            assert_eq!(a.widest(Null), a);
            for b in all {
                assert_eq!(a.widest(b), b.widest(a), "{a:?} {b:?}");
                for c in all {
                    let (left, right) = (a.widest(b).widest(c), a.widest(b.widest(c)));
                    assert_eq!(left, right, "{a:?} {b:?} {c:?}");
                }
            }
        }
        assert_eq!(Int64.widest(Float64), Float64);
        assert_eq!(Float64.widest(Decimal), Decimal);
        assert_eq!(Decimal.widest(Bool), Utf8);
        assert_eq!(List.widest(ListUtf8), ListUtf8);
        assert_eq!(ListUtf8.widest(ListBool), Json);
    }

    fn check(keys: &[&str], name: &str) {
        assert_eq!(join_path(keys.iter().copied()), name);
        assert_eq!(split_path(name), keys);
    }

    #[test]
    fn path_names_are_reversible() {
        check(&["a"], "a");
        check(&["a", "b"], "a.b");
        check(&["a.b"], r"a\.b");
        check(&["a\\", "b"], r"a\\.b");
        check(&["", ""], ".");
    }
}
