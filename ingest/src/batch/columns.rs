//! Columns of a batch as Arrow arrays.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayBuilder, ArrayRef, BinaryBuilder, BooleanBuilder, Decimal128Builder, Float64Builder,
        Int64Builder, ListBuilder, StringBuilder, TimestampMicrosecondBuilder,
    },
    error::ArrowError,
};
use feedline_readers::{
    cell::{Cell, Held},
    value::{Value, shorten},
};
use feedline_schemas::record::{
    Column, ColumnType, DECIMAL_PRECISION, DECIMAL_SCALE, RecordSchema,
};

use super::cells::Cells;
use crate::contract::{self, Reading};

/// Characters of a value in a sample.
const SAMPLE: usize = 100;

/// The columns of a schema; every cell was admitted to its column by the contract.
pub(super) fn arrays(
    schema: &RecordSchema,
    cells: &Cells,
    reading: &Reading,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let columns = schema.columns.iter().enumerate();
    columns
        .map(|(index, column)| array(column, index, cells, reading))
        .collect()
}

/// Values that were converted to get into their column.
pub(super) struct Coerced<'a> {
    pub(super) column: &'a str,
    pub(super) count: u64,
    /// The first converted value, for messages.
    pub(super) sample: String,
}

/// Counts of converted values by column, for columns that have any.
pub(super) fn coerced<'a>(
    schema: &'a RecordSchema,
    cells: &'a Cells,
) -> impl Iterator<Item = Coerced<'a>> {
    let columns = schema.columns.iter().enumerate();
    columns.filter_map(|(index, column)| {
        let is_coerced = |cell: &&Cell| is_coerced(column.r#type, cell, cells);
        let mut coerced = cells.column(index).filter(is_coerced);
        let first = cells.value(coerced.next()?).canonical();
        Some(Coerced {
            column: &column.name,
            count: 1 + coerced.count() as u64,
            sample: format!("`{}`", shorten(&first, SAMPLE)),
        })
    })
}

/// Returns true if a cell was converted to fit a column of type `column`.
fn is_coerced(column: ColumnType, cell: &Cell, cells: &Cells) -> bool {
    match (column, cell.held) {
        (_, Held::Null | Held::Cell)
        | (ColumnType::Bool, Held::Bool)
        | (ColumnType::Int64, Held::Int)
        | (ColumnType::Float64, Held::Float)
        | (ColumnType::Utf8 | ColumnType::Timestamp, Held::Text)
        | (ColumnType::Json, Held::Json) => false,
        _ => contract::is_coerced(column, &cells.value(cell)),
    }
}

/// Column number `index`.
fn array(
    column: &Column,
    index: usize,
    cells: &Cells,
    reading: &Reading,
) -> Result<ArrayRef, ArrowError> {
    let held = Admitted {
        column,
        index,
        cells,
    };
    let rows = cells.rows.len();
    Ok(match column.r#type {
        ColumnType::Bool => {
            let mut array = BooleanBuilder::with_capacity(rows);
            held.each(contract::boolean, |value| array.append_option(value));
            Arc::new(array.finish())
        }
        ColumnType::Int64 => {
            let mut array = Int64Builder::with_capacity(rows);
            for cell in cells.column(index) {
                array.append_option(match cell.held {
                    Held::Int => Some(cell.as_int()),
                    _ => held.as_held(cell, contract::integer),
                });
            }
            Arc::new(array.finish())
        }
        ColumnType::Float64 => {
            let mut array = Float64Builder::with_capacity(rows);
            for cell in cells.column(index) {
                array.append_option(match cell.held {
                    Held::Float => Some(cell.as_float()),
                    _ => held.as_held(cell, contract::float),
                });
            }
            Arc::new(array.finish())
        }
        ColumnType::Decimal => {
            let array = Decimal128Builder::with_capacity(rows);
            let mut array = array.with_precision_and_scale(DECIMAL_PRECISION, DECIMAL_SCALE)?;
            held.each(contract::decimal, |value| array.append_option(value));
            Arc::new(array.finish())
        }
        ColumnType::Timestamp => {
            let mut array = TimestampMicrosecondBuilder::with_capacity(rows);
            held.each(
                |value| reading.timestamp(value),
                |micros| array.append_option(micros),
            );
            Arc::new(array.finish().with_timezone("UTC"))
        }
        ColumnType::Utf8 | ColumnType::Null => held.texts(contract::text),
        ColumnType::Json => held.texts(|value| Some(value.written())),
        ColumnType::Binary => {
            let mut array = BinaryBuilder::new();
            held.each(contract::bytes, |bytes| array.append_option(bytes));
            Arc::new(array.finish())
        }
        ColumnType::ListBool => held.lists(BooleanBuilder::new(), |items, item| {
            items.append_option(contract::boolean(item));
        }),
        ColumnType::ListInt64 => held.lists(Int64Builder::new(), |items, item| {
            items.append_option(contract::integer(item));
        }),
        ColumnType::ListFloat64 => held.lists(Float64Builder::new(), |items, item| {
            items.append_option(contract::float(item));
        }),
        ColumnType::ListUtf8 | ColumnType::List => {
            held.lists(StringBuilder::new(), |items, item| {
                items.append_option(contract::text(item));
            })
        }
    })
}

/// Cells that were admitted to a column.
struct Admitted<'a> {
    column: &'a Column,
    index: usize,
    cells: &'a Cells,
}

impl Admitted<'_> {
    /// Value of a cell in the type of the column.
    fn as_held<T>(&self, cell: &Cell, convert: impl Fn(&Value) -> Option<T>) -> Option<T> {
        if cell.held == Held::Null {
            return None;
        }
        let value = self.cells.value(cell);
        let held = convert(&value);
        let column = self.column;
        assert!(
            held.is_some(),
            "the contract let {value:?} into column {column:?}"
        );
        held
    }

    fn each<T>(&self, convert: impl Fn(&Value) -> Option<T>, mut append: impl FnMut(Option<T>)) {
        for cell in self.cells.column(self.index) {
            append(self.as_held(cell, &convert));
        }
    }

    fn texts(&self, convert: impl Fn(&Value) -> Option<String>) -> ArrayRef {
        let cells = self.cells;
        let bytes = cells.column(self.index).map(Cell::text_len).sum();
        let mut array = StringBuilder::with_capacity(cells.rows.len(), bytes);
        for cell in cells.column(self.index) {
            match cell.held {
                Held::Null => array.append_null(),
                Held::Written | Held::Text | Held::Cell | Held::Json => {
                    array.append_value(cell.as_text(&cells.texts));
                }
                _ => array.append_option(self.as_held(cell, &convert)),
            }
        }
        Arc::new(array.finish())
    }

    fn lists<B: ArrayBuilder>(&self, items: B, append: impl Fn(&mut B, &Value)) -> ArrayRef {
        let mut lists = ListBuilder::new(items);
        for cell in self.cells.column(self.index) {
            if cell.held == Held::Odd
                && let Value::List(list) = self.cells.odd(cell)
            {
                list.iter().for_each(|item| append(lists.values(), item));
            }
            lists.append(cell.held != Held::Null);
        }
        Arc::new(lists.finish())
    }
}
