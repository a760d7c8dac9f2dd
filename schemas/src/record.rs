//! Record schema of a source: the columns of its landed data files.
//!
//! Nested objects become columns named by their path, joined with `.`; a `.` or `\` inside a key is written `\.` or
//! `\\`, so a name can be split back into its keys. Lists are kept as JSON text in one column.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::SchemaVersion;

/// Type of a landed column. The order is the widening order: a column may only move to a later type.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
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
    /// Text.
    Utf8,
    /// A list (or a value under the depth limit) as JSON text.
    Json,
    /// Bytes, such as a whole picture file. It has no wider type, and nothing widens to it.
    Binary,
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
    /// Prefix no source column may begin with.
    pub const PREFIX: &str = "_feedline_";
}

/// Joins path keys into a column name.
#[must_use]
pub fn join_path<'a>(keys: impl IntoIterator<Item = &'a str>) -> String {
    let mut name = String::new();
    for (i, key) in keys.into_iter().enumerate() {
        if i > 0 {
            name.push('.');
        }
        for c in key.chars() {
            if c == '.' || c == '\\' {
                name.push('\\');
            }
            name.push(c);
        }
    }
    name
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
