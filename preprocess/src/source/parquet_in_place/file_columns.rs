//! Columns of Parquet files that are read in place: their landed types, and the conversion to these.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    compute::cast,
    datatypes::{
        DataType, Float32Type, Float64Type, SchemaRef, TimeUnit, TimestampMicrosecondType,
    },
};
use datafusion::error::DataFusionError;
use feedline_schemas::{
    ids::SchemaVersion,
    record::{Column, ColumnType, RecordSchema, system},
};

use crate::{operators::canonical_text::points_in_time, schema::landed_columns::landed_type};

/// The first column whose name no column of a source may have: a landed file has such ones beside those of its source.
pub(super) fn reserved(schema: &SchemaRef) -> Option<&str> {
    let mut names = schema.fields().iter().map(|field| field.name().as_str());
    names.find(|name| name.starts_with(system::PREFIX))
}

/// The columns of a file as a schema of landed ones.
pub(super) fn columns(schema: &SchemaRef) -> Result<RecordSchema, String> {
    let mut seen = HashSet::new();
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (field, id) in schema.fields().iter().zip(1..) {
        let name = field.name();
        if !seen.insert(name) {
            return Err(format!("it has column `{name}` twice"));
        }
        let r#type = landed_as(field.data_type()).ok_or_else(|| {
            format!(
                "column `{name}` is {}, which is not supported",
                field.data_type()
            )
        })?;
        columns.push(Column {
            field_id: id,
            name: name.clone(),
            r#type,
            whole: false,
        });
    }
    Ok(RecordSchema {
        version: SchemaVersion::new(1),
        columns,
    })
}

pub(super) fn short_floats(schema: &SchemaRef) -> BTreeSet<String> {
    let is_short = |found: &DataType| matches!(found, DataType::Float16 | DataType::Float32);
    let fields = schema.fields().iter();
    let short = fields.filter(|field| is_short(field.data_type()));
    short.map(|field| field.name().clone()).collect()
}

fn landed_as(found: &DataType) -> Option<ColumnType> {
    Some(match found {
        DataType::Boolean => ColumnType::Bool,
        whole if whole.is_integer() && *whole != DataType::UInt64 => ColumnType::Int64,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => ColumnType::Float64,
        // Without a zone they are no instants, and nanoseconds need more digits than landed ones have.
        DataType::Timestamp(_, None) | DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            ColumnType::Utf8
        }
        DataType::Timestamp(..) => ColumnType::Timestamp,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ColumnType::Utf8,
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) => {
            ColumnType::Utf8
        }
        DataType::Dictionary(_, values) if landed_as(values) == Some(ColumnType::Utf8) => {
            ColumnType::Utf8
        }
        DataType::Null => ColumnType::Null,
        _ => return None,
    })
}

/// A column as one of landed type.
pub(super) fn read(column: &ArrayRef, wanted: ColumnType) -> Result<ArrayRef, DataFusionError> {
    let wanted = landed_type(wanted);
    if let (Some(short), DataType::Float64) = (column.as_primitive_opt::<Float32Type>(), &wanted) {
        // Each of them is one of 64 bits, which the general cast asks cell by cell.
        return Ok(Arc::new(short.unary::<_, Float64Type>(f64::from)));
    }
    if let (DataType::Timestamp(unit, _), DataType::Timestamp(_, zone)) =
        (column.data_type(), &wanted)
    {
        // The values count from the same instant in every zone; only the name of it changes.
        let micros = match unit {
            TimeUnit::Microsecond => Arc::clone(column),
            _ => cast(column, &DataType::Timestamp(TimeUnit::Microsecond, None))?,
        };
        let micros = micros.as_primitive::<TimestampMicrosecondType>().clone();
        return Ok(Arc::new(micros.with_timezone_opt(zone.clone())));
    }
    if matches!(column.data_type(), DataType::Timestamp(..)) {
        return Ok(Arc::new(points_in_time(column)?));
    }
    match *column.data_type() == wanted {
        true => Ok(Arc::clone(column)),
        false => Ok(cast(column, &wanted)?),
    }
}

/// Checks that two files have the same columns, in any order.
pub(super) fn same(first: &RecordSchema, other: &RecordSchema) -> Result<(), String> {
    for column in &first.columns {
        let found = other.columns.iter().find(|c| c.name == column.name);
        match found.map(|c| c.r#type) {
            Some(r#type) if r#type == column.r#type => {}
            Some(r#type) => {
                return Err(format!(
                    "its column `{}` is {:?}, in the first file it is {:?}",
                    column.name, r#type, column.r#type
                ));
            }
            None => {
                return Err(format!(
                    "it lacks column `{}`, which the first file has",
                    column.name
                ));
            }
        }
    }
    let new = |c: &&Column| first.columns.iter().all(|f| f.name != c.name);
    match other.columns.iter().find(new) {
        Some(column) => Err(format!(
            "it has column `{}`, which the first file lacks",
            column.name
        )),
        None => Ok(()),
    }
}
