//! Types that the schema of a file declares, as types of columns.

use arrow::datatypes::{DataType, Schema};
use feedline_schemas::record::ColumnType;

/// Type of the column at `place`, or of the value at the path `below` in its objects, as
/// [`Rows::declared_type`](crate::rows::Rows::declared_type) returns it.
pub(crate) fn declared_type(schema: &Schema, place: usize, below: &[String]) -> Option<ColumnType> {
    let mut field = schema.fields().get(place)?;
    for key in below {
        let DataType::Struct(fields) = field.data_type() else {
            return None;
        };
        field = fields.iter().find(|field| field.name() == key)?;
    }
    Some(column_type(field.data_type()))
}

/// Type of a column that holds every value of the type `found`. Integers that 64 bits with a sign
/// may not hold are text, and so are decimals.
fn column_type(found: &DataType) -> ColumnType {
    match found {
        DataType::Boolean => ColumnType::Bool,
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => ColumnType::Int64,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => ColumnType::Float64,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => ColumnType::Binary,
        DataType::Struct(_) => ColumnType::Json,
        DataType::Dictionary(_, inner) => column_type(inner),
        _ => ColumnType::Utf8,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Fields};

    use super::*;

    #[test]
    fn a_column_holds_every_value_of_the_type_that_a_file_declares() {
        let dictionary = |inner| DataType::Dictionary(Box::new(DataType::Int32), Box::new(inner));
        for (found, expected) in [
            (DataType::Boolean, ColumnType::Bool),
            (DataType::Int8, ColumnType::Int64),
            (DataType::UInt32, ColumnType::Int64),
            (DataType::UInt64, ColumnType::Utf8),
            (DataType::Decimal128(9, 2), ColumnType::Utf8),
            (DataType::Float32, ColumnType::Float64),
            (DataType::Date32, ColumnType::Utf8),
            (DataType::BinaryView, ColumnType::Binary),
            (dictionary(DataType::Int64), ColumnType::Int64),
            (dictionary(DataType::Utf8), ColumnType::Utf8),
        ] {
            let schema = Schema::new(vec![Field::new("a", found.clone(), true)]);
            assert_eq!(declared_type(&schema, 0, &[]), Some(expected), "{found}");
        }
    }

    #[test]
    fn a_value_in_objects_has_the_type_of_its_field() {
        let fields: Fields = vec![Field::new("bytes", DataType::Binary, true)].into();
        let schema = Schema::new(vec![Field::new("image", DataType::Struct(fields), true)]);
        let find = |place: usize, below: &[&str]| {
            let below: Vec<String> = below.iter().map(|key| (*key).to_owned()).collect();
            declared_type(&schema, place, &below)
        };
        assert_eq!(find(0, &[]), Some(ColumnType::Json));
        assert_eq!(find(0, &["bytes"]), Some(ColumnType::Binary));
        assert_eq!(find(0, &["path"]), None);
        assert_eq!(find(0, &["bytes", "x"]), None);
        assert_eq!(find(1, &[]), None);
    }
}
