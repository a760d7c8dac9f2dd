//! Conversion of the columns of a row group to rows.

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, StructArray},
    buffer::{Buffer, ScalarBuffer},
    compute::{CastOptions, cast_with_options},
    datatypes::{
        DataType, Field, Float32Type, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use feedline_schemas::manifest::TokenType;

use crate::input::block_rows::{Spans, TokenIds};

/// Rows whose numbers are put in place together, so that a row's cache lines are still near when its next column comes.
const TILE: usize = 256;

/// A column without nulls.
pub(super) fn get(batch: &RecordBatch, field: &Field) -> Result<ArrayRef, String> {
    let name = field.name();
    let column = batch.column_by_name(name);
    let column = column.ok_or_else(|| format!("column `{name}` is missing"))?;
    without_nulls(column, name)?;
    Ok(ArrayRef::clone(column))
}

pub(super) fn without_nulls(column: &dyn Array, name: &str) -> Result<(), String> {
    let Some(nulls) = column
        .logical_nulls()
        .filter(|nulls| nulls.null_count() > 0)
    else {
        return Ok(());
    };
    let row = (0..nulls.len())
        .find(|row| nulls.is_null(*row))
        .unwrap_or(0);
    Err(format!(
        "column `{name}` has `{}` nulls, the first in row `{row}`; fill them or drop those rows: `bad_values` holds for NaN, \
         which pandas writes as null, and not for nulls",
        nulls.null_count()
    ))
}

pub(super) fn cast(column: &ArrayRef, to: &DataType, name: &str) -> Result<ArrayRef, String> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(column, to, &options).map_err(|e| format!("column `{name}`: {e}"))
}

/// Integers that are another number as float32.
pub(super) fn inexact(integers: &ArrayRef, floats: &[f32]) -> u64 {
    fn count<T: Copy + Into<i128>>(integers: &[T], floats: &[f32]) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the float is a rounded integer of 64 bits"
        )]
        let differs = |(integer, float): (&T, &f32)| (*integer).into() != *float as i128;
        integers
            .iter()
            .zip(floats)
            .filter(|pair| differs(*pair))
            .count() as u64
    }
    match integers.data_type() {
        DataType::Int32 => count(integers.as_primitive::<Int32Type>().values(), floats),
        DataType::UInt32 => count(integers.as_primitive::<UInt32Type>().values(), floats),
        DataType::Int64 => count(integers.as_primitive::<Int64Type>().values(), floats),
        DataType::UInt64 => count(integers.as_primitive::<UInt64Type>().values(), floats),
        _ => 0,
    }
}

/// `[rows, elements]`, row-major. `rounded` gets the number of integers of each column that float32 cannot hold.
pub(super) fn dense(
    batch: &RecordBatch,
    columns: &[(Field, usize)],
    rows: usize,
    rounded: impl Fn(&str, u64),
) -> Result<ScalarBuffer<f32>, String> {
    let mut parts = Vec::with_capacity(columns.len());
    for (field, width) in columns {
        let column = get(batch, field)?;
        let (values, inexact) = numbers(&column, field.name(), *width, rows)?;
        rounded(field.name(), inexact);
        parts.push((values, *width));
    }
    if let [(only, _)] = parts.as_slice() {
        return Ok(only.clone());
    }
    let elements = columns.iter().map(|(_, width)| width).sum::<usize>();
    let mut x = vec![0.0; rows * elements];
    for (tile, to) in x.chunks_mut(TILE * elements.max(1)).enumerate() {
        let mut at = 0;
        for (values, width) in &parts {
            let values = &values[tile * TILE * width..];
            for (row, from) in to
                .chunks_exact_mut(elements)
                .zip(values.chunks_exact(*width))
            {
                row[at..at + width].copy_from_slice(from);
            }
            at += width;
        }
    }
    Ok(x.into())
}

fn numbers(
    column: &ArrayRef,
    name: &str,
    width: usize,
    rows: usize,
) -> Result<(ScalarBuffer<f32>, u64), String> {
    let values = match column.data_type() {
        DataType::FixedSizeList(..) => ArrayRef::clone(column.as_fixed_size_list().values()),
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            equal_lengths(list.offsets().windows(2).map(|o| o[1] - o[0]), width, name)?;
            span(list.values(), list.offsets().first(), list.offsets().last())
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            equal_lengths(list.offsets().windows(2).map(|o| o[1] - o[0]), width, name)?;
            span(list.values(), list.offsets().first(), list.offsets().last())
        }
        _ => ArrayRef::clone(column),
    };
    without_nulls(&values, name)?;
    let given = values;
    let values = cast(&given, &DataType::Float32, name)?;
    let values = values.as_primitive::<Float32Type>().values();
    if values.len() != rows * width {
        let found = values.len();
        return Err(format!(
            "column `{name}` has `{found}` numbers for `{rows}` rows of `{width}`"
        ));
    }
    Ok((values.clone(), inexact(&given, values)))
}

fn equal_lengths<T: TryInto<usize>>(
    lengths: impl Iterator<Item = T>,
    width: usize,
    name: &str,
) -> Result<(), String> {
    let differs = |length: T| length.try_into().ok() != Some(width);
    match lengths.map(differs).position(|differs| differs) {
        None => Ok(()),
        Some(row) => Err(format!(
            "the list in column `{name}` of row `{row}` does not have `{width}` numbers as in the first row group"
        )),
    }
}

/// The values of a list between its first and last offset.
fn span<T: Copy + TryInto<usize>>(values: &ArrayRef, from: Option<&T>, to: Option<&T>) -> ArrayRef {
    let number = |offset: Option<&T>| offset.and_then(|o| (*o).try_into().ok()).unwrap_or(0);
    let (from, to) = (number(from), number(to));
    values.slice(from, to - from)
}

pub(super) fn image_bytes(column: &ArrayRef, name: &str) -> Result<(Buffer, Spans), String> {
    let column = match column.as_any().downcast_ref::<StructArray>() {
        Some(fields) => fields
            .column_by_name("bytes")
            .ok_or_else(|| format!("column `{name}` has no field `bytes`"))?,
        None => column,
    };
    without_nulls(column, name)?;
    let column = match column.data_type() {
        DataType::BinaryView => cast(column, &DataType::LargeBinary, name)?,
        _ => ArrayRef::clone(column),
    };
    Ok(match column.data_type() {
        DataType::LargeBinary => {
            let (offsets, bytes, _) = column.as_binary::<i64>().clone().into_parts();
            (bytes, Spans::AdjacentLarge(offsets.into_inner()))
        }
        _ => {
            let (offsets, bytes, _) = column.as_binary::<i32>().clone().into_parts();
            (bytes, Spans::Adjacent(offsets.into_inner()))
        }
    })
}

pub(super) fn tokens(
    column: &ArrayRef,
    name: &str,
    id: TokenType,
) -> Result<(TokenIds, ScalarBuffer<i32>), String> {
    let (values, offsets) = match column.data_type() {
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            (list.values(), from_zero(list.offsets()))
        }
        DataType::FixedSizeList(_, length) => {
            let list = column.as_fixed_size_list();
            let offsets = (0..).map(|row| row * i64::from(*length));
            let offsets: Vec<i64> = offsets.take(list.len() + 1).collect();
            (list.values(), from_zero(&offsets))
        }
        _ => {
            let list = column.as_list::<i32>();
            (list.values(), from_zero(list.offsets()))
        }
    };
    let (first, offsets) = offsets.ok_or("a row group has 2^31 tokens or more")?;
    let held = offsets
        .last()
        .map_or(0, |last| usize::try_from(*last).unwrap_or(0));
    let values = values.slice(first, held);
    without_nulls(&values, name)?;
    let ids = match id {
        TokenType::U16 => {
            let values = cast(&values, &DataType::UInt16, name)?;
            TokenIds::U16(values.as_primitive::<UInt16Type>().values().clone())
        }
        TokenType::U32 => {
            let values = cast(&values, &DataType::UInt32, name)?;
            TokenIds::U32(values.as_primitive::<UInt32Type>().values().clone())
        }
    };
    Ok((ids, offsets))
}

/// Start of the first list, and offsets relative to it.
fn from_zero<T: Copy + Into<i64>>(offsets: &[T]) -> Option<(usize, ScalarBuffer<i32>)> {
    let first: i64 = offsets.first().map_or(0, |first| (*first).into());
    let moved = offsets.iter().map(|o| i32::try_from((*o).into() - first));
    let moved: Vec<i32> = moved.collect::<Result<_, _>>().ok()?;
    Some((usize::try_from(first).ok()?, moved.into()))
}
