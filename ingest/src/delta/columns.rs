//! Columns of a Delta table and their types.
//!
//! | landed type | Delta type |
//! |---|---|
//! | `bool`, `int64`, `float64` | `boolean`, `long`, `double` |
//! | `decimal` | `decimal(38,18)` |
//! | `timestamp` | `timestamp` |
//! | `utf8`, `json` | `string` |
//! | `list_*`, `list` | `array` of `boolean`, `long`, `double` or `string` |
//! | `binary` | `binary` |
//! | `null` | the column appears with its first value |
//!
//! `_feedline_seq` is an unsigned integer of 64 bits. Delta has no such type, and polars refuses to
//! read the column as any other, so a table does not have it.

use std::{collections::BTreeSet, sync::Arc};

use arrow::datatypes::{DataType, Field, TimeUnit};
use feedline_schemas::{
    ids::Hash128,
    record::{ColumnType, DECIMAL_PRECISION, DECIMAL_SCALE, RecordSchema, system},
};
use serde_json::{Value, json};

/// Columns of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeltaColumns {
    /// Names and Delta types of feedline's own columns.
    system: Vec<(String, &'static str)>,
    /// Columns of the source that have had a value.
    own: Vec<(String, ColumnType)>,
    /// Columns that the table cannot have beside another one, which Delta takes for the same.
    pub(super) left_out: Vec<String>,
}

impl DeltaColumns {
    /// Columns of files with these `schemas`, in order of first appearance, each of the type that
    /// holds all of its values. A child table whose list is `depth` lists deep has more columns of
    /// feedline; records have the depth 0.
    pub(super) fn of<'a>(
        schemas: impl IntoIterator<Item = &'a RecordSchema>,
        depth: usize,
    ) -> Self {
        let mut merged: Vec<(String, ColumnType)> = Vec::new();
        for column in schemas.into_iter().flat_map(|schema| &schema.columns) {
            match merged.iter_mut().find(|(name, _)| *name == column.name) {
                Some((_, found)) => *found = found.widest(column.r#type),
                None => merged.push((column.name.clone(), column.r#type)),
            }
        }
        merged.retain(|(_, r#type)| *r#type != ColumnType::Null);
        let system = system_columns(depth);
        let mut taken: BTreeSet<String> = system.iter().map(|(name, _)| name.clone()).collect();
        let (mut own, mut left_out) = (Vec::new(), Vec::new());
        for (name, r#type) in merged {
            match taken.insert(name.to_lowercase()) {
                true => own.push((name, r#type)),
                false => left_out.push(name),
            }
        }
        Self {
            system,
            own,
            left_out,
        }
    }

    /// Type of a column of the source; `None` for one that the table does not have.
    pub(super) fn type_of(&self, name: &str) -> Option<ColumnType> {
        let found = self.own.iter().find(|(own, _)| own == name);
        found.map(|(_, r#type)| *r#type)
    }

    /// Returns true for a column that the table does not have, but that a reader for whom case does not
    /// matter takes for one of its columns.
    pub(super) fn is_shadow(&self, name: &str) -> bool {
        let folded = name.to_lowercase();
        let mut own = self.own.iter();
        self.type_of(name).is_none()
            && (own.any(|(own, _)| own.to_lowercase() == folded)
                || self.system.iter().any(|(own, _)| *own == folded))
    }

    /// The schema as a table's metadata has it.
    pub(super) fn schema_string(&self) -> String {
        let field = |name: &str, r#type: Value| json!({ "name": name, "type": r#type, "nullable": true, "metadata": {} });
        let system = self.system.iter();
        let system = system.map(|(name, r#type)| field(name, json!(r#type)));
        let own = self.own.iter();
        let own = own.filter_map(|(name, r#type)| Some(field(name, delta_type(*r#type)?)));
        let fields: Vec<Value> = system.chain(own).collect();
        json!({ "type": "struct", "fields": fields }).to_string()
    }

    /// Hash of the schema.
    pub(super) fn hash(&self) -> String {
        Hash128::of(self.schema_string().as_bytes()).short()
    }
}

fn system_columns(depth: usize) -> Vec<(String, &'static str)> {
    let mut columns = vec![
        (system::ROW.to_owned(), "long"),
        (system::HASH.to_owned(), "binary"),
    ];
    if depth > 0 {
        columns.push((system::PARENT.to_owned(), "long"));
        columns.extend((0..depth).map(|level| (system::index(level), "long")));
    }
    columns
}

fn delta_type(column: ColumnType) -> Option<Value> {
    let array =
        |items: &str| json!({ "type": "array", "elementType": items, "containsNull": true });
    Some(match column {
        ColumnType::Null => return None,
        ColumnType::Bool => json!("boolean"),
        ColumnType::Int64 => json!("long"),
        ColumnType::Float64 => json!("double"),
        ColumnType::Decimal => json!(format!("decimal({DECIMAL_PRECISION},{DECIMAL_SCALE})")),
        ColumnType::Timestamp => json!("timestamp"),
        ColumnType::Utf8 | ColumnType::Json => json!("string"),
        ColumnType::Binary => json!("binary"),
        ColumnType::ListBool => array("boolean"),
        ColumnType::ListInt64 => array("long"),
        ColumnType::ListFloat64 => array("double"),
        ColumnType::List | ColumnType::ListUtf8 => array("string"),
    })
}

/// The type that a landed column is stored as.
pub(super) fn stored_type(column: ColumnType) -> DataType {
    let list = |items| DataType::List(Arc::new(Field::new_list_field(items, true)));
    match column {
        ColumnType::Bool => DataType::Boolean,
        ColumnType::Int64 => DataType::Int64,
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Decimal => DataType::Decimal128(DECIMAL_PRECISION, DECIMAL_SCALE),
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ColumnType::Null | ColumnType::Utf8 | ColumnType::Json => DataType::Utf8,
        ColumnType::Binary => DataType::Binary,
        ColumnType::ListBool => list(DataType::Boolean),
        ColumnType::ListInt64 => list(DataType::Int64),
        ColumnType::ListFloat64 => list(DataType::Float64),
        ColumnType::List | ColumnType::ListUtf8 => list(DataType::Utf8),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{ids::SchemaVersion, record::Column};

    use super::*;

    fn schema(columns: &[(&str, ColumnType)]) -> RecordSchema {
        let columns = (1..).zip(columns);
        RecordSchema {
            version: SchemaVersion::new(1),
            columns: columns
                .map(|(field_id, (name, r#type))| Column {
                    field_id,
                    name: (*name).to_owned(),
                    r#type: *r#type,
                    whole: false,
                })
                .collect(),
        }
    }

    #[test]
    fn a_column_has_the_type_that_holds_the_values_of_all_versions() {
        let old = schema(&[("id", ColumnType::Int64), ("note", ColumnType::Null)]);
        let new = schema(&[
            ("id", ColumnType::Float64),
            ("note", ColumnType::Null),
            ("at", ColumnType::Timestamp),
        ]);
        let columns = DeltaColumns::of([&old, &new], 0);
        assert_eq!(columns.type_of("id"), Some(ColumnType::Float64));
        assert_eq!(columns.type_of("at"), Some(ColumnType::Timestamp));
        assert_eq!(columns.type_of("note"), None);
        assert_ne!(columns.hash(), DeltaColumns::of([&old], 0).hash());
        assert_eq!(
            columns.hash(),
            DeltaColumns::of([&old, &new, &old], 0).hash()
        );
    }

    #[test]
    fn names_that_differ_in_case_only_are_left_out_but_the_first() {
        let own = schema(&[("Id", ColumnType::Int64), ("id", ColumnType::Utf8)]);
        let columns = DeltaColumns::of([&own], 0);
        assert_eq!(columns.left_out, ["id"]);
        assert_eq!(columns.type_of("Id"), Some(ColumnType::Int64));
        let shadows =
            ["Id", "id", "ID", "_Feedline_Row", "other"].map(|name| columns.is_shadow(name));
        assert_eq!(shadows, [false, true, true, true, false]);
    }

    #[test]
    fn a_child_table_has_the_places_of_its_rows() {
        let columns = DeltaColumns::of([&schema(&[("value", ColumnType::ListBool)])], 2);
        let text = columns.schema_string();
        for name in ["_feedline_parent", "_feedline_index", "_feedline_index_2"] {
            assert!(text.contains(&format!("\"{name}\"")), "{text}");
        }
        assert!(!text.contains("_feedline_seq"), "{text}");
        assert!(text.contains(r#""elementType":"boolean""#), "{text}");
    }
}
