//! Files written again with the wider types that their columns have by now.
//!
//! A Delta table has one type for each column. Readers of tables without the feature
//! `typeWidening`, which few know, refuse a file with a narrower one (polars, Spark), or cast it by
//! rules of their own. So such files are copied. Values become those that exports and datasets read.
//! A copy also lacks the columns that readers for whom case does not matter take for others.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Decimal128Array, RecordBatch, StringArray, new_null_array},
    compute::{CastOptions, cast_with_options},
    datatypes::{
        DataType, Decimal128Type, Field, Float64Type, Int64Type, Schema, TimestampMicrosecondType,
    },
    error::ArrowError,
    temporal_conversions::timestamp_us_to_datetime,
};
use bytes::Bytes;
use feedline_schemas::{
    ids::Sequence,
    number::exact,
    record::{ColumnType, DECIMAL_PRECISION, DECIMAL_SCALE},
};
use feedline_storage::Store;
use serde_json::Value;

use super::table::{TableFile, WIDENED, Widened};
use crate::{batch::MergedFile, blocking::computing, error::Error, landed_file};

/// Digits of a decimal behind the point.
const DIGITS: usize = DECIMAL_SCALE.unsigned_abs() as usize;
/// 10^18, one in units of a decimal's last digit.
const ONE: u128 = 10_u128.pow(DECIMAL_SCALE.unsigned_abs() as u32);

/// Bytes of the copy of a landed file: equal files give equal bytes.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`], [`Error::Delta`] for a value that the wider type does not
/// hold.
pub(super) async fn copy(landing: &Store, file: &TableFile) -> Result<Bytes, Error> {
    let batches = landed_file::read_whole(landing, &file.file).await?;
    let (file, url) = (file.clone(), landing.url_of(&file.file.path));
    computing(move || {
        let refused = |reason: String| Error::Delta {
            url: url.clone(),
            reason,
        };
        let mut copied: Option<MergedFile> = None;
        for batch in &batches {
            let rows = widen(batch, &file).map_err(refused)?;
            let merged = match &mut copied {
                Some(file) => file,
                None => copied.insert(MergedFile::begin(rows.schema())?),
            };
            merged.push(&rows)?;
        }
        let copied = copied.ok_or_else(|| refused("the landed file has no rows".to_owned()))?;
        Ok(copied.finish(WIDENED, Sequence::new(0))?.bytes)
    })
    .await
}

fn widen(rows: &RecordBatch, file: &TableFile) -> Result<RecordBatch, String> {
    let schema = rows.schema();
    let mut fields: Vec<Field> = Vec::with_capacity(rows.num_columns());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(rows.num_columns());
    for (field, cells) in schema.fields().iter().zip(rows.columns()) {
        if file.dropped.contains(field.name()) {
            continue;
        }
        let mut widened = file.widened.iter();
        let Some(column) = widened.find(|column| column.name == *field.name()) else {
            fields.push(field.as_ref().clone());
            columns.push(Arc::clone(cells));
            continue;
        };
        let cells = convert(cells, column).map_err(|reason| {
            format!(
                "column `{0}` has a wider type now, and {reason}; declare `contract.column.{0}.type` as `float` or `text`, and ingest again into another root",
                column.name
            )
        })?;
        let field = field.as_ref().clone();
        fields.push(field.with_data_type(cells.data_type().clone()));
        columns.push(cells);
    }
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns);
    rows.map_err(|e| e.to_string())
}

/// Cells of a landed column with a wider type.
fn convert(cells: &ArrayRef, column: &Widened) -> Result<ArrayRef, String> {
    let wanted = super::columns::stored_type(column.to);
    match (column.from, &wanted) {
        (ColumnType::Null, _) => Ok(new_null_array(&wanted, cells.len())),
        (ColumnType::Decimal | ColumnType::Timestamp, DataType::Utf8) => texts(cells),
        (from, DataType::Utf8) if from.is_list() => texts(cells),
        (ColumnType::Float64, DataType::Decimal128(..)) => decimals(cells),
        _ => {
            if matches!(column.to, ColumnType::Float64 | ColumnType::ListFloat64) {
                refuse_inexact(cells)?;
            }
            let strict = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            cast_with_options(cells, &wanted, &strict).map_err(|e| e.to_string())
        }
    }
}

/// Refuses integers that a float may round.
fn refuse_inexact(cells: &ArrayRef) -> Result<(), String> {
    let lists = cells.as_list_opt::<i32>();
    let items = lists.map_or(cells, |lists| lists.values());
    let Some(integers) = items.as_primitive_opt::<Int64Type>() else {
        return Ok(());
    };
    match integers
        .iter()
        .flatten()
        .find(|value| exact(*value).is_none())
    {
        None => Ok(()),
        Some(value) => Err(format!("a float may round its {value}")),
    }
}

/// A decimal as its digits without trailing zeros, a timestamp as RFC 3339 in UTC, a list as JSON.
fn texts(cells: &ArrayRef) -> Result<ArrayRef, String> {
    let rows = 0..cells.len();
    let text = |row| cells.is_valid(row).then(|| text(cells, row)).transpose();
    let texts = rows.map(text).collect::<Result<StringArray, ArrowError>>();
    Ok(Arc::new(texts.map_err(|e| e.to_string())?))
}

fn text(cells: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    match cells.data_type() {
        DataType::Decimal128(..) => {
            let units = cells.as_primitive::<Decimal128Type>().value(row);
            Ok(decimal_text(units))
        }
        DataType::Timestamp(..) => {
            let micros = cells.as_primitive::<TimestampMicrosecondType>().value(row);
            let at = timestamp_us_to_datetime(micros);
            // The debug form is ISO 8601 without an offset.
            Ok(at.map_or_else(|| micros.to_string(), |at| format!("{at:?}Z")))
        }
        DataType::List(_) => {
            let items = cells.as_list::<i32>().value(row);
            let items = (0..items.len()).map(|i| item(&items, i));
            Ok(Value::Array(items.collect::<Result<_, _>>()?).to_string())
        }
        other => Err(unknown(other)),
    }
}

fn decimal_text(units: i128) -> String {
    let (whole, part) = (units.unsigned_abs() / ONE, units.unsigned_abs() % ONE);
    let sign = if units < 0 { "-" } else { "" };
    let digits = format!("{part:0DIGITS$}");
    match digits.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        part => format!("{sign}{whole}.{part}"),
    }
}

fn item(items: &ArrayRef, i: usize) -> Result<Value, ArrowError> {
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

fn unknown(found: &DataType) -> ArrowError {
    ArrowError::CastError(format!("no landed column is of type {found}"))
}

/// Floats as decimals with the digits that name them. A cast would multiply floats, which adds digits.
fn decimals(cells: &ArrayRef) -> Result<ArrayRef, String> {
    let floats = cells.as_primitive::<Float64Type>().iter();
    let units = floats.map(|float| {
        let decimal =
            |value: f64| units_of(value).ok_or_else(|| format!("no decimal holds {value}"));
        float.map(decimal).transpose()
    });
    let units = units.collect::<Result<Vec<Option<i128>>, String>>()?;
    let decimals = Decimal128Array::from(units);
    let decimals = decimals.with_precision_and_scale(DECIMAL_PRECISION, DECIMAL_SCALE);
    Ok(Arc::new(decimals.map_err(|e| e.to_string())?))
}

/// A float in units of a decimal's last digit, from its shortest digits, rounded to nearest; `None`
/// if no decimal holds it.
fn units_of(value: f64) -> Option<i128> {
    let text = format!("{value}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.as_str()),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let first = part.get(..DIGITS).unwrap_or(part);
    let next = part.as_bytes().get(DIGITS);
    let is_up = next.is_some_and(|next| *next >= b'5');
    let units: i128 = format!("{whole}{first:0<DIGITS$}").parse().ok()?;
    let units = units + i128::from(is_up);
    (units < 10_i128.pow(DECIMAL_PRECISION.into())).then_some(sign * units)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, ListBuilder, TimestampMicrosecondArray};

    use super::*;

    fn check(cells: ArrayRef, from: ColumnType, to: ColumnType, expected: &[&str]) {
        let column = Widened {
            name: "c".into(),
            from,
            to,
        };
        let wide = convert(&cells, &column).unwrap();
        assert_eq!(wide.data_type(), &super::super::columns::stored_type(to));
        let found: Vec<String> = (0..wide.len())
            .map(|row| match wide.data_type() {
                DataType::Utf8 => wide.as_string::<i32>().value(row).to_owned(),
                DataType::Float64 => wide.as_primitive::<Float64Type>().value(row).to_string(),
                _ => text(&wide, row).unwrap(),
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn values_keep_their_digits() {
        use ColumnType::{Decimal, Float64, Int64, Timestamp, Utf8};
        let integers: ArrayRef = Arc::new(Int64Array::from(vec![10, -3]));
        check(Arc::clone(&integers), Int64, Float64, &["10", "-3"]);
        check(Arc::clone(&integers), Int64, Utf8, &["10", "-3"]);
        check(integers, Int64, Decimal, &["10", "-3"]);
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![2.5, -0.1]));
        check(Arc::clone(&floats), Float64, Decimal, &["2.5", "-0.1"]);
        check(floats, Float64, Utf8, &["2.5", "-0.1"]);
        let times = TimestampMicrosecondArray::from(vec![1_767_323_045_000_000]);
        let times: ArrayRef = Arc::new(times.with_timezone("UTC"));
        check(times, Timestamp, Utf8, &["2026-01-02T03:04:05Z"]);
    }

    #[test]
    fn lists_become_lists_of_wider_items_or_json() {
        let mut lists = ListBuilder::new(arrow::array::Int64Builder::new());
        lists.append_value([Some(1), None]);
        let lists: ArrayRef = Arc::new(lists.finish());
        let from = ColumnType::ListInt64;
        check(Arc::clone(&lists), from, ColumnType::Json, &["[1,null]"]);
        check(lists, from, ColumnType::ListFloat64, &["[1.0,null]"]);
    }

    #[test]
    fn an_integer_that_a_float_may_round_is_refused() {
        let large = (1 << 53) + 1;
        let integers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(large)]));
        let mut lists = ListBuilder::new(arrow::array::Int64Builder::new());
        lists.append_value([Some(large)]);
        let lists: ArrayRef = Arc::new(lists.finish());
        let columns = [
            (integers, ColumnType::Int64, ColumnType::Float64),
            (lists, ColumnType::ListInt64, ColumnType::ListFloat64),
        ];
        for (cells, from, to) in columns {
            let column = Widened {
                name: "c".into(),
                from,
                to,
            };
            let refused = convert(&cells, &column).unwrap_err();
            assert!(refused.contains("9007199254740993"), "{refused}");
        }
    }

    #[test]
    fn a_float_that_no_decimal_holds_is_refused() {
        let column = Widened {
            name: "c".into(),
            from: ColumnType::Float64,
            to: ColumnType::Decimal,
        };
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![1e300]));
        let refused = convert(&floats, &column).unwrap_err();
        assert!(refused.contains("no decimal"), "{refused}");
    }
}
