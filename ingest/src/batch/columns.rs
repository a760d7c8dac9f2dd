//! Columns of a batch as Arrow arrays.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayBuilder, ArrayRef, BinaryArray, BooleanArray, BooleanBuilder, Decimal128Array,
        Float64Array, Float64Builder, Int64Array, Int64Builder, ListBuilder, StringBuilder,
        TimestampMicrosecondArray,
    },
    error::ArrowError,
};
use feedline_schemas::record::{Column, ColumnType, DECIMAL_PRECISION, DECIMAL_SCALE};

use crate::{
    contract::{self, Reading},
    value::Value,
};

/// A column; every cell was admitted to it by the contract.
pub(super) fn array(
    column: &Column,
    cells: Vec<Option<&Value>>,
    reading: &Reading,
) -> Result<ArrayRef, ArrowError> {
    let cells = Cells { column, cells };
    Ok(match column.r#type {
        ColumnType::Bool => Arc::new(BooleanArray::from(cells.held(contract::boolean))),
        ColumnType::Int64 => Arc::new(Int64Array::from(cells.held(contract::integer))),
        ColumnType::Float64 => Arc::new(Float64Array::from(cells.held(contract::float))),
        ColumnType::Decimal => Arc::new(
            Decimal128Array::from(cells.held(contract::decimal))
                .with_precision_and_scale(DECIMAL_PRECISION, DECIMAL_SCALE)?,
        ),
        ColumnType::Timestamp => {
            let held = cells.held(|value| reading.timestamp(value));
            Arc::new(TimestampMicrosecondArray::from(held).with_timezone("UTC"))
        }
        ColumnType::Utf8 | ColumnType::Null => texts(cells.held(contract::text)),
        ColumnType::Json => texts(cells.held(|value| Some(value.canonical()))),
        ColumnType::Binary => Arc::new(BinaryArray::from_iter(cells.held(contract::bytes))),
        ColumnType::ListBool => cells.lists(BooleanBuilder::new(), |items, item| {
            items.append_option(contract::boolean(item));
        }),
        ColumnType::ListInt64 => cells.lists(Int64Builder::new(), |items, item| {
            items.append_option(contract::integer(item));
        }),
        ColumnType::ListFloat64 => cells.lists(Float64Builder::new(), |items, item| {
            items.append_option(contract::float(item));
        }),
        ColumnType::ListUtf8 | ColumnType::List => {
            cells.lists(StringBuilder::new(), |items, item| {
                items.append_option(contract::text(item));
            })
        }
    })
}

struct Cells<'a> {
    column: &'a Column,
    cells: Vec<Option<&'a Value>>,
}

impl Cells<'_> {
    fn held<T>(self, as_held: impl Fn(&Value) -> Option<T>) -> Vec<Option<T>> {
        let column = self.column;
        let convert = |value| {
            let held = as_held(value);
            assert!(
                held.is_some(),
                "the contract let {value:?} into column {column:?}"
            );
            held
        };
        self.cells
            .into_iter()
            .map(|cell| cell.and_then(convert))
            .collect()
    }

    fn lists<B: ArrayBuilder>(self, items: B, append: impl Fn(&mut B, &Value)) -> ArrayRef {
        let mut lists = ListBuilder::new(items);
        for cell in &self.cells {
            if let Some(Value::List(list)) = cell {
                list.iter().for_each(|item| append(lists.values(), item));
            }
            lists.append(cell.is_some());
        }
        Arc::new(lists.finish())
    }
}

fn texts(cells: Vec<Option<String>>) -> ArrayRef {
    let mut builder = StringBuilder::new();
    cells
        .into_iter()
        .for_each(|cell| builder.append_option(cell));
    Arc::new(builder.finish())
}
