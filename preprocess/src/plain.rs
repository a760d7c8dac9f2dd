//! Landed columns of types that no other function reads, as text: decimals, points in time, lists.
//!
//! A decimal is its digits without zeros at the end, a point in time is RFC 3339 in UTC, a list is its JSON text. So a
//! column that was widened reads the same in files of all versions, and a decimal is parsed as any number in a text is.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Decimal128Array, StringArray},
    datatypes::{
        DataType, Decimal128Type, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType,
    },
    temporal_conversions::timestamp_us_to_datetime,
};
use datafusion::error::{DataFusionError, Result};
use feedline_schemas::record::{ColumnType, DECIMAL_SCALE};
use serde_json::Value;

use crate::scalar::RowFunction;

/// 10^18, one in units of a decimal's last digit.
const ONE: u128 = 10_u128.pow(DECIMAL_SCALE.unsigned_abs() as u32);

/// Whether a column of this type is read through [`Plain`].
pub(crate) const fn is_needed(column: ColumnType) -> bool {
    matches!(column, ColumnType::Decimal | ColumnType::Timestamp) || column.is_list()
}

/// A cell of such a column as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plain;

impl RowFunction for Plain {
    const NAME: &'static str = "feedline_plain";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        let column = &columns[0];
        let rows = 0..column.len();
        let cells = rows.map(|row| column.is_valid(row).then(|| text(column, row)).transpose());
        Ok(Arc::new(cells.collect::<Result<StringArray>>()?))
    }
}

/// Row `row`, which is not null, of a column that [`is_needed`] for.
pub(crate) fn text(column: &ArrayRef, row: usize) -> Result<String> {
    match column.data_type() {
        DataType::Decimal128(..) => Ok(decimal(column.as_primitive::<Decimal128Type>(), row)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let micros = column.as_primitive::<TimestampMicrosecondType>().value(row);
            // Its debug form is ISO 8601, without an offset.
            let instant = timestamp_us_to_datetime(micros).map(|at| format!("{at:?}Z"));
            Ok(instant.unwrap_or_else(|| micros.to_string()))
        }
        DataType::List(_) => {
            let items = column.as_list::<i32>().value(row);
            let items = (0..items.len()).map(|i| item(&items, i));
            Ok(Value::Array(items.collect::<Result<_>>()?).to_string())
        }
        other => Err(unknown(other)),
    }
}

/// Units of the last digit as digits.
pub(crate) fn decimal(column: &Decimal128Array, row: usize) -> String {
    let units = column.value(row);
    let (whole, part) = (units.unsigned_abs() / ONE, units.unsigned_abs() % ONE);
    let sign = if units < 0 { "-" } else { "" };
    let digits = format!("{part:018}");
    match digits.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        part => format!("{sign}{whole}.{part}"),
    }
}

fn item(items: &ArrayRef, i: usize) -> Result<Value> {
    if items.is_null(i) {
        return Ok(Value::Null);
    }
    Ok(match items.data_type() {
        DataType::Boolean => items.as_boolean().value(i).into(),
        DataType::Int64 => items.as_primitive::<Int64Type>().value(i).into(),
        DataType::Float64 => items.as_primitive::<Float64Type>().value(i).into(),
        DataType::Utf8 => items.as_string::<i32>().value(i).into(),
        other => return Err(unknown(other)),
    })
}

fn unknown(found: &DataType) -> DataFusionError {
    DataFusionError::Internal(format!("no landed column is of type {found}"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Float64Builder, Int64Builder, ListBuilder, StringBuilder, TimestampMicrosecondArray,
    };
    use feedline_schemas::record::DECIMAL_PRECISION;

    use super::*;

    fn check(column: ArrayRef, expected: &[Option<&str>]) {
        let rows = column.len();
        let found = Plain.call(&[column], rows).unwrap();
        assert_eq!(
            found.as_string::<i32>().iter().collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn decimals_are_their_digits_without_zeros_at_the_end() {
        let one = ONE.cast_signed();
        let units = [
            Some(0),
            Some(-one),
            Some(-1),
            None,
            Some(5 * one / 2),
            Some(i128::from(u64::MAX) * one),
        ];
        let column = Decimal128Array::from(units.to_vec())
            .with_precision_and_scale(DECIMAL_PRECISION, DECIMAL_SCALE)
            .unwrap();
        let expected = [
            "0",
            "-1",
            "-0.000000000000000001",
            "",
            "2.5",
            "18446744073709551615",
        ];
        let expected = expected.map(|text| (!text.is_empty()).then_some(text));
        check(Arc::new(column), &expected);
    }

    #[test]
    fn points_in_time_are_utc() {
        let micros = vec![
            Some(1_709_211_909_000_000),
            None,
            Some(-1),
            Some(-62_135_596_800_000_000),
        ];
        let column = TimestampMicrosecondArray::from(micros).with_timezone("UTC");
        let expected = [
            Some("2024-02-29T13:05:09Z"),
            None,
            Some("1969-12-31T23:59:59.999999Z"),
            Some("0001-01-01T00:00:00Z"),
        ];
        check(Arc::new(column), &expected);
    }

    #[test]
    fn lists_are_their_json_text() {
        let mut ints = ListBuilder::new(Int64Builder::new());
        ints.append_value([Some(1), None, Some(i64::MAX)]);
        ints.append_null();
        ints.append_value([]);
        check(
            Arc::new(ints.finish()),
            &[Some("[1,null,9223372036854775807]"), None, Some("[]")],
        );
        let mut floats = ListBuilder::new(Float64Builder::new());
        floats.append_value([Some(1.0), Some(2.5)]);
        check(Arc::new(floats.finish()), &[Some("[1.0,2.5]")]);
        let mut texts = ListBuilder::new(StringBuilder::new());
        texts.append_value([Some("a\"b")]);
        check(Arc::new(texts.finish()), &[Some(r#"["a\"b"]"#)]);
    }
}
