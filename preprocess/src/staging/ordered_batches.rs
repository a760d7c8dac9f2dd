//! Batches of staged rows in the order they are written.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch},
    datatypes::UInt64Type,
};

use super::matrix::Matrix;
use crate::schema::system_columns;

/// Rows in the order they are written.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    pub(crate) rows: RecordBatch,
    /// Their numeric columns that `rows` lacks.
    pub(crate) numbers: Matrix,
}

impl Ordered {
    /// Place of the row with this packed origin.
    pub(super) fn position(&self, origin: u64) -> Option<usize> {
        let origins = self.rows.column_by_name(system_columns::ORIGIN)?;
        let origins = origins.as_primitive_opt::<UInt64Type>()?.values();
        origins.iter().position(|found| *found == origin)
    }

    /// Cell of the column `name` in a row, if there is such a column.
    pub(super) fn cell(&self, name: &str, row: usize) -> Option<ArrayRef> {
        let Some(place) = self.numbers.place(name) else {
            return Some(self.rows.column_by_name(name)?.slice(row, 1));
        };
        let mut numbers = Vec::new();
        self.numbers.fill(place, row..row + 1, &mut numbers);
        let cells = numbers.iter().map(|x| (!x.is_nan()).then_some(*x));
        Some(Arc::new(cells.collect::<Float64Array>()))
    }
}
