//! Landed columns of types that no other function reads, as text: decimals, timestamps, lists.
//!
//! A decimal becomes its digits without trailing zeros, a timestamp RFC 3339 in UTC, a list its
//! JSON text. So a widened column reads the same in files of all versions, and a decimal is parsed
//! like any number in a text. Timestamps without a zone are no instants: they become ISO 8601
//! without an offset, in every unit.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Decimal128Array, StringArray},
    buffer::OffsetBuffer,
    compute::cast,
    datatypes::{
        DataType, Decimal128Type, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType,
    },
    error::ArrowError,
    temporal_conversions::{
        timestamp_ms_to_datetime, timestamp_ns_to_datetime, timestamp_s_to_datetime,
        timestamp_us_to_datetime,
    },
};
use datafusion::error::{DataFusionError, Result};
use feedline_schemas::record::{ColumnType, DECIMAL_SCALE};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::scalar_function::RowFunction;

/// 10^18, one in units of a decimal's last digit.
const ONE: u128 = 10_u128.pow(DECIMAL_SCALE.unsigned_abs() as u32);

/// Returns true if a column of this type is read through [`CanonicalText`].
pub(crate) const fn is_needed(column: ColumnType) -> bool {
    matches!(column, ColumnType::Decimal | ColumnType::Timestamp) || column.is_list()
}

/// A cell of such a column as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct CanonicalText;

impl RowFunction for CanonicalText {
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
            Ok(instant(micros))
        }
        DataType::List(_) => {
            let items = column.as_list::<i32>().value(row);
            let items = (0..items.len()).map(|i| item(&items, i));
            Ok(Value::Array(items.collect::<Result<_>>()?).to_string())
        }
        other => Err(unknown(other)),
    }
}

/// Formats a timestamp in microseconds since 1970 as RFC 3339 in UTC, with as many groups of three
/// decimal digits as it needs.
fn instant(micros: i64) -> String {
    let mut text = Vec::new();
    write_instant(micros, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Appends a timestamp to `text`, in the format of [`text`].
pub(crate) fn write_instant(micros: i64, text: &mut Vec<u8>) {
    write(micros, TimeUnit::Microsecond, true, text);
}

/// Formats timestamps of any unit: RFC 3339 in UTC if their column has a zone, otherwise ISO 8601
/// without an offset. They have zero, three, six or nine decimal digits.
///
/// # Errors
/// For a column that holds something else, and one of more than 2 GiB of text.
pub(crate) fn points_in_time(column: &ArrayRef) -> Result<StringArray, ArrowError> {
    let DataType::Timestamp(unit, zone) = column.data_type() else {
        let found = column.data_type();
        let reason = format!("{found} holds no timestamps");
        return Err(ArrowError::CastError(reason));
    };
    let numbers = cast(column, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    let mut text = Vec::with_capacity(numbers.len() * SHORT);
    let mut ends = Vec::with_capacity(numbers.len() + 1);
    ends.push(0);
    for row in 0..numbers.len() {
        if numbers.is_valid(row) {
            write(numbers.value(row), *unit, zone.is_some(), &mut text);
        }
        let end = i32::try_from(text.len());
        ends.push(end.map_err(|_| ArrowError::OffsetOverflowError(text.len()))?);
    }
    let ends = OffsetBuffer::new(ends.into());
    StringArray::try_new(ends, text.into(), numbers.nulls().cloned())
}

/// Bytes of a timestamp in whole seconds.
const SHORT: usize = 20;

/// So many units since 1970, with an offset of zero or without any, behind `text`.
fn write(value: i64, unit: TimeUnit, in_utc: bool, text: &mut Vec<u8>) {
    const DAY: i64 = 86_400;
    let (units, nanos) = match unit {
        TimeUnit::Second => (1, 0),
        TimeUnit::Millisecond => (1_000, 1_000_000),
        TimeUnit::Microsecond => (1_000_000, 1_000),
        TimeUnit::Nanosecond => (1_000_000_000, 1),
    };
    let (second, fraction) = (value.div_euclid(units), value.rem_euclid(units) * nanos);
    let (year, month, day) = civil(second.div_euclid(DAY));
    if !(0..=9999).contains(&year) {
        let at = match unit {
            TimeUnit::Second => timestamp_s_to_datetime(value),
            TimeUnit::Millisecond => timestamp_ms_to_datetime(value),
            TimeUnit::Microsecond => timestamp_us_to_datetime(value),
            TimeUnit::Nanosecond => timestamp_ns_to_datetime(value),
        };
        let zone = if in_utc { "Z" } else { "" };
        // Its debug form is ISO 8601, without an offset.
        let written = at.map(|at| format!("{at:?}{zone}"));
        text.extend(written.unwrap_or_else(|| value.to_string()).into_bytes());
        return;
    }
    let small = |number: i64| u32::try_from(number).unwrap_or(0);
    let (second, fraction) = (small(second.rem_euclid(DAY)), small(fraction));
    let mut digits = *b"0000-00-00T00:00:00.000000000Z";
    two(&mut digits, 0, small(year) / 100);
    two(&mut digits, 2, small(year) % 100);
    two(&mut digits, 5, small(month));
    two(&mut digits, 8, small(day));
    two(&mut digits, 11, second / 3600);
    two(&mut digits, 14, second / 60 % 60);
    two(&mut digits, 17, second % 60);
    let end = match (fraction, fraction % 1_000_000, fraction % 1_000) {
        (0, ..) => 19,
        (_, 0, _) => 23,
        (.., 0) => 26,
        _ => 29,
    };
    if fraction > 0 {
        two(&mut digits, 20, fraction / 10_000_000);
        two(&mut digits, 22, fraction / 100_000 % 100);
        two(&mut digits, 24, fraction / 1_000 % 100);
        two(&mut digits, 26, fraction / 10 % 100);
        digits[28] = b'0' + u8::try_from(fraction % 10).unwrap_or(0);
    }
    digits[end] = b'Z';
    text.extend_from_slice(&digits[..end + usize::from(in_utc)]);
}

/// Puts a number below 100 as two digits into `text`.
fn two(text: &mut [u8; 30], at: usize, number: u32) {
    let number = u8::try_from(number).unwrap_or(0);
    text[at] = b'0' + number / 10;
    text[at + 1] = b'0' + number % 10;
}

/// Year, month and day of a day counted from 1970-01-01: Howard Hinnant's `civil_from_days`, in which years begin in March.
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + 400 * era + i64::from(month <= 2), month, day)
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
        Float64Builder, Int64Array, Int64Builder, ListBuilder, StringBuilder,
        TimestampMicrosecondArray,
    };
    use feedline_schemas::record::DECIMAL_PRECISION;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn points_in_time_are_written_as_the_calendar_library_writes_them(
            micros in prop_oneof![
                any::<i64>(),
                -62_200_000_000_000_000_i64..253_500_000_000_000_000,
                (-70_000_000_000_i64..260_000_000_000).prop_map(|s| s * 1_000_000),
                (-70_000_000_000_000_i64..260_000_000_000_000).prop_map(|ms| ms * 1000),
            ],
        ) {
            let expected = timestamp_us_to_datetime(micros).map(|at| format!("{at:?}Z"));
            prop_assert_eq!(instant(micros), expected.unwrap_or_else(|| micros.to_string()));
        }
    }

    #[test]
    fn leap_days_and_the_ends_of_the_calendar_are_right() {
        for (micros, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00Z"),
            (1_709_164_800_120_000, "2024-02-29T00:00:00.120Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00Z"),
            (-62_167_219_200_000_000, "0000-01-01T00:00:00Z"),
            (253_402_300_799_000_000, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(instant(micros), expected);
        }
    }

    #[test]
    fn points_in_time_of_every_unit_and_zone_are_written_as_a_source_lands_them() {
        use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        let values = |unit| {
            let units = match unit {
                Second => 1,
                Millisecond => 1_000,
                Microsecond => 1_000_000,
                Nanosecond => 1_000_000_000,
            };
            let mut values = vec![None];
            for second in [0, 951_782_400, -1, -2_208_988_800, 1_709_164_801] {
                let parts = [0, 1, 999, 1_000, 120_000, 999_999, 100_000_000];
                let parts = parts.into_iter().filter(|part| *part < units);
                values.extend(parts.map(|part| Some(second * units + part)));
            }
            values
        };
        for unit in [Second, Millisecond, Microsecond, Nanosecond] {
            let whole: ArrayRef = Arc::new(Int64Array::from(values(unit)));
            for zone in [None, Some("UTC"), Some("+02:00"), Some("Europe/Berlin")] {
                let of = |zone: Option<&str>| DataType::Timestamp(unit, zone.map(Into::into));
                let column = cast(&whole, &of(zone)).unwrap();
                let found = points_in_time(&column).unwrap();
                // The general cast writes what the source writes, in the zone that the column has.
                let expected = cast(&whole, &of(zone.map(|_| "UTC"))).unwrap();
                let expected = cast(&expected, &DataType::Utf8).unwrap();
                assert_eq!(&found, expected.as_string::<i32>(), "{unit:?} {zone:?}");
            }
        }
        let large: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, 253_402_300_800]));
        let large = cast(&large, &DataType::Timestamp(Second, None)).unwrap();
        let found = points_in_time(&large).unwrap();
        let found: Vec<_> = found.iter().flatten().collect();
        assert_eq!(found, ["9223372036854775807", "+10000-01-01T00:00:00"]);
    }

    fn check(column: ArrayRef, expected: &[Option<&str>]) {
        let rows = column.len();
        let found = CanonicalText.call(&[column], rows).unwrap();
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
