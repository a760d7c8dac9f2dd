//! How rows are stored: which columns lie row by row, and which as Arrow batches.

use std::{collections::BTreeSet, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch},
    compute::cast,
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
};
use datafusion::error::DataFusionError;

use super::super::{column, matrix};
use crate::transform::column_of;

/// How rows are stored.
#[derive(Clone, Debug)]
pub(in crate::stage) struct Form {
    /// Of the rows as they are handed on.
    pub(super) schema: SchemaRef,
    /// Columns that are stored row by row.
    pub(super) numbers: Arc<[String]>,
    /// Of the other columns as they are handed on.
    pub(super) others: SchemaRef,
    /// Of the other columns in the files.
    pub(super) stored: SchemaRef,
}

impl Form {
    /// For rows of `schema`: of their columns of floats 32 bits hold those that are `short`, and the `inputs` among these are
    /// stored row by row.
    pub(in crate::stage) fn new(
        schema: &SchemaRef,
        short: &BTreeSet<String>,
        inputs: &BTreeSet<&str>,
    ) -> Self {
        let is_short =
            |field: &Field| *field.data_type() == DataType::Float64 && short.contains(field.name());
        let is_number =
            |field: &&Arc<Field>| is_short(field) && inputs.contains(field.name().as_str());
        let (numbers, others): (Vec<_>, Vec<_>) = schema.fields().iter().partition(is_number);
        let stored = others.iter().map(|field| match is_short(field) {
            true => Arc::new(Field::new(
                field.name(),
                DataType::Float32,
                field.is_nullable(),
            )),
            false => Arc::clone(field),
        });
        let stored: Vec<_> = stored.collect();
        let others: Vec<_> = others.into_iter().cloned().collect();
        Self {
            schema: Arc::clone(schema),
            numbers: numbers.iter().map(|field| field.name().clone()).collect(),
            others: Arc::new(Schema::new(others)),
            stored: Arc::new(Schema::new(stored)),
        }
    }

    /// The columns that are stored row by row.
    pub(super) fn numbers_of<'a>(&self, rows: &'a RecordBatch) -> Vec<&'a ArrayRef> {
        self.numbers.iter().map(|name| column(rows, name)).collect()
    }

    /// All columns of stored rows.
    pub(super) fn whole(
        &self,
        others: &RecordBatch,
        numbers: &[f32],
    ) -> Result<RecordBatch, DataFusionError> {
        let width = self.numbers.len();
        let places: Vec<usize> = (0..width).collect();
        let mut cells = Vec::new();
        matrix::columns_of(numbers, width, &places, &mut cells);
        let rows = others.num_rows();
        let mut numbers = (0..width).map(|place| -> ArrayRef {
            Arc::new(column_of(cells[place * rows..][..rows].to_vec()))
        });
        let others = as_of(others, &self.others)?;
        let mut others = others.into_iter();
        let columns = self.schema.fields().iter().map(|field| {
            let is_number = self.numbers.contains(field.name());
            let column = if is_number {
                numbers.next()
            } else {
                others.next()
            };
            column.expect("each column is of one or the other kind")
        });
        let columns = columns.collect();
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// Stored rows as those of `schema`.
pub(super) fn long(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, DataFusionError> {
    Ok(RecordBatch::try_new(
        Arc::clone(schema),
        as_of(rows, schema)?,
    )?)
}

/// The columns as those of `schema`, which differ in the width of floats.
fn as_of(rows: &RecordBatch, schema: &SchemaRef) -> Result<Vec<ArrayRef>, ArrowError> {
    let columns = rows.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| stored_as(column, field.data_type()));
    columns.collect()
}

pub(super) fn stored_as(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    match column.data_type() == wanted {
        true => Ok(Arc::clone(column)),
        false => cast(column, wanted),
    }
}
