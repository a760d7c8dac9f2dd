//! Cells as bytes, as JSON, and cast to another type.

use std::{io::Write as _, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    compute::{CastOptions, cast_with_options},
    datatypes::{
        DataType, Float32Type, Float64Type, Int32Type, Int64Type, TimeUnit,
        TimestampMicrosecondType, UInt16Type, UInt32Type, UInt64Type,
    },
    error::ArrowError,
};

use crate::{
    Error,
    operators::canonical_text::{decimal, write_instant},
};

/// Returns true for types that JSON has no type of its own for: their cells are text.
pub(super) const fn is_text_in_json(r#type: &DataType) -> bool {
    matches!(r#type, DataType::Decimal128(..) | DataType::Timestamp(..))
}

/// Appends the cell in `row` as JSON. Numbers that are not finite are written as Python's `json` does, which is no standard
/// JSON; `not_finite` counts them.
pub(super) fn write_json(
    column: &ArrayRef,
    row: usize,
    out: &mut Vec<u8>,
    not_finite: &mut u64,
) -> Result<(), Error> {
    if column.is_null(row) {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    match column.data_type() {
        DataType::Boolean => write_text(out, column.as_boolean().value(row)),
        DataType::Int32 => write_text(out, column.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => write_text(out, column.as_primitive::<Int64Type>().value(row)),
        DataType::UInt16 => write_text(out, column.as_primitive::<UInt16Type>().value(row)),
        DataType::UInt32 => write_text(out, column.as_primitive::<UInt32Type>().value(row)),
        DataType::UInt64 => write_text(out, column.as_primitive::<UInt64Type>().value(row)),
        DataType::Float32 => {
            let value = column.as_primitive::<Float32Type>().value(row);
            write_number(value.into(), out, not_finite)?;
        }
        DataType::Float64 => {
            let value = column.as_primitive::<Float64Type>().value(row);
            write_number(value, out, not_finite)?;
        }
        DataType::List(_) => {
            let items = column.as_list::<i32>().value(row);
            write_items(&items, out, not_finite)?;
        }
        DataType::FixedSizeList(..) => {
            let items = column.as_fixed_size_list().value(row);
            write_items(&items, out, not_finite)?;
        }
        DataType::Utf8 => write_serialized(out, &column.as_string::<i32>().value(row))?,
        DataType::LargeUtf8 => write_serialized(out, &column.as_string::<i64>().value(row))?,
        _ => {
            out.push(b'"');
            write_as_text(column, row, out)?;
            out.push(b'"');
        }
    }
    Ok(())
}

/// Appends a cell that is text, or that other formats hold as text: a decimal or a timestamp.
pub(super) fn write_as_text(column: &ArrayRef, row: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    match column.data_type() {
        DataType::Utf8 => out.extend_from_slice(column.as_string::<i32>().value(row).as_bytes()),
        DataType::LargeUtf8 => {
            out.extend_from_slice(column.as_string::<i64>().value(row).as_bytes());
        }
        DataType::Decimal128(..) => {
            out.extend_from_slice(decimal(column.as_primitive(), row).as_bytes());
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let micros = column.as_primitive::<TimestampMicrosecondType>().value(row);
            write_instant(micros, out);
        }
        other => return Err(unknown(other)),
    }
    Ok(())
}

/// Error for a type that no exported column has.
pub(super) fn unknown(r#type: &DataType) -> Error {
    let reason = format!("a column of type {}", r#type);
    Error::Arrow(ArrowError::NotYetImplemented(reason))
}

fn write_items(items: &ArrayRef, out: &mut Vec<u8>, not_finite: &mut u64) -> Result<(), Error> {
    out.push(b'[');
    for item in 0..items.len() {
        if item > 0 {
            out.push(b',');
        }
        write_json(items, item, out, not_finite)?;
    }
    out.push(b']');
    Ok(())
}

fn write_text(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    // A vector takes all that is written.
    write!(out, "{value}").ok();
}

fn write_serialized(out: &mut Vec<u8>, value: &impl serde::Serialize) -> Result<(), Error> {
    let written = serde_json::to_writer(out, value);
    written.map_err(|e| Error::Arrow(ArrowError::JsonError(e.to_string())))
}

/// Readers take a number for a double, so a float32 has as many digits as its double.
fn write_number(value: f64, out: &mut Vec<u8>, not_finite: &mut u64) -> Result<(), Error> {
    let name: &[u8] = match value {
        _ if value.is_finite() => return write_serialized(out, &value),
        _ if value.is_nan() => b"NaN",
        _ if value > 0.0 => b"Infinity",
        _ => b"-Infinity",
    };
    out.extend_from_slice(name);
    *not_finite += 1;
    Ok(())
}

/// Bytes of a cell of a binary column; `None` for nulls and other types.
pub(super) fn bytes_of(column: &ArrayRef, row: usize) -> Option<&[u8]> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Binary => Some(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => Some(column.as_binary::<i64>().value(row)),
        _ => None,
    }
}

/// Casts a column. A value that the type does not hold is an error, but integers beyond 2^53 are rounded to floats.
pub(super) fn cast_all(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, Error> {
    if column.data_type() == to {
        return Ok(Arc::clone(column));
    }
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    Ok(cast_with_options(column, to, &strict)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BooleanArray, Decimal128Array, Float32Array, Float64Array, Int64Array, ListArray,
        StringArray, TimestampMicrosecondArray, UInt64Array,
    };

    use super::*;

    fn check(column: ArrayRef, expected: &[&str]) {
        let mut not_finite = 0;
        let cells = (0..column.len()).map(|row| {
            let mut out = Vec::new();
            write_json(&column, row, &mut out, &mut not_finite).unwrap();
            String::from_utf8(out).unwrap()
        });
        assert_eq!(cells.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn cells_keep_their_values_in_json() {
        check(
            Arc::new(Int64Array::from(vec![Some(i64::MIN), None])),
            &["-9223372036854775808", "null"],
        );
        check(
            Arc::new(UInt64Array::from(vec![u64::MAX])),
            &["18446744073709551615"],
        );
        check(
            Arc::new(BooleanArray::from(vec![true, false])),
            &["true", "false"],
        );
        check(
            Arc::new(Float32Array::from(vec![0.1, 1e30])),
            &["0.10000000149011612", "1.0000000150474662e+30"],
        );
        check(
            Arc::new(Float64Array::from(vec![0.1, f64::NAN, f64::NEG_INFINITY])),
            &["0.1", "NaN", "-Infinity"],
        );
        check(
            Arc::new(StringArray::from(vec!["a\"b\n", "\u{e9}\u{1f600}"])),
            &["\"a\\\"b\\n\"", "\"\u{e9}\u{1f600}\""],
        );
        let decimals = Decimal128Array::from(vec![-1_500_000_000_000_000_000]);
        let decimals = decimals.with_precision_and_scale(38, 18).unwrap();
        check(Arc::new(decimals), &["\"-1.5\""]);
        let times = TimestampMicrosecondArray::from(vec![1_500_000]).with_timezone("UTC");
        check(Arc::new(times), &["\"1970-01-01T00:00:01.500Z\""]);
        let lists = [Some(vec![Some(1), None]), None, Some(vec![])];
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
        check(Arc::new(lists), &["[1,null]", "null", "[]"]);
    }

    #[test]
    fn numbers_that_are_not_finite_are_counted() {
        let column: ArrayRef = Arc::new(Float64Array::from(vec![1.0, f64::NAN, f64::INFINITY]));
        let mut not_finite = 0;
        for row in 0..3 {
            write_json(&column, row, &mut Vec::new(), &mut not_finite).unwrap();
        }
        assert_eq!(not_finite, 2);
    }
}
