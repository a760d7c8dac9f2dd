//! Storage format of rows: columns stored row by row, and columns stored as Arrow batches.

use std::{collections::BTreeSet, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch},
    compute::cast,
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
};
use datafusion::error::DataFusionError;

use super::fixed::Fixed;
use crate::{
    schema::system_columns::{self, column},
    staging::matrix,
    transform::column_of,
};

/// Storage format of rows.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// Of the rows as they are handed on.
    pub(super) schema: SchemaRef,
    /// Columns that are stored row by row.
    pub(super) numbers: Arc<[String]>,
    /// Of the other columns as they are handed on.
    pub(super) others: SchemaRef,
    /// Of the other columns in the files.
    pub(super) stored: SchemaRef,
    /// Those of them that are stored row by row.
    pub(super) fixed: Arc<Fixed>,
    /// Numbers of those that are stored as Arrow batches.
    pub(super) varied: Arc<[usize]>,
    /// These columns.
    pub(super) varied_schema: SchemaRef,
    /// Positions of a row's hash and origin among its cells of fixed width.
    hash: usize,
    origin: usize,
}

impl Form {
    /// For rows of `schema`: of their columns of floats 32 bits hold those that are `short`, and the `inputs` among these are
    /// stored row by row.
    pub(crate) fn new(
        schema: &SchemaRef,
        short: &BTreeSet<String>,
        inputs: &BTreeSet<&str>,
    ) -> Self {
        let is_short =
            |field: &Field| *field.data_type() == DataType::Float64 && short.contains(field.name());
        let is_number =
            |field: &&Arc<Field>| is_short(field) && inputs.contains(field.name().as_str());
        let (numbers, others): (Vec<_>, Vec<_>) = schema.fields().iter().partition(is_number);
        let shortened =
            |field: &Field| Field::new(field.name(), DataType::Float32, field.is_nullable());
        let stored = others.iter().map(|field| match is_short(field) {
            true => Arc::new(shortened(field)),
            false => Arc::clone(field),
        });
        let stored = Schema::new(stored.collect::<Vec<_>>());
        let fixed = Fixed::of(&stored);
        let varied = (0..stored.fields().len()).filter(|column| !fixed.has(*column));
        let varied: Arc<[usize]> = varied.collect();
        let varied_fields = varied.iter().map(|column| stored.field(*column).clone());
        let varied_schema = Schema::new(varied_fields.collect::<Vec<_>>());
        let start = |name| {
            let place = fixed.place(stored.index_of(name).ok()?)?;
            Some(place.start)
        };
        let (hash, origin) = (start(system_columns::HASH), start(system_columns::ORIGIN));
        let others: Vec<_> = others.into_iter().cloned().collect();
        Self {
            schema: Arc::clone(schema),
            numbers: numbers.iter().map(|field| field.name().clone()).collect(),
            others: Arc::new(Schema::new(others)),
            varied,
            varied_schema: Arc::new(varied_schema),
            stored: Arc::new(stored),
            hash: hash.expect("the plan makes this column"),
            origin: origin.expect("the plan makes this column"),
            fixed: Arc::new(fixed),
        }
    }

    /// Bytes of a row, without its columns of no fixed width.
    pub(super) fn row_bytes(&self) -> usize {
        self.numbers.len() * size_of::<f32>() + self.fixed.row_bytes()
    }

    /// The content hash of a row, of whose cells of fixed width these are the bytes.
    pub(super) fn hash_of<'a>(&self, row: &'a [u8]) -> &'a [u8] {
        &row[self.hash..self.hash + 16]
    }

    /// The origin of such a row.
    pub(super) fn origin_of(&self, row: &[u8]) -> u64 {
        let bytes = row[self.origin..self.origin + 8].try_into();
        u64::from_ne_bytes(bytes.expect("eight bytes"))
    }

    /// The columns that are stored row by row.
    pub(super) fn numbers_of<'a>(&self, rows: &'a RecordBatch) -> Vec<&'a ArrayRef> {
        self.numbers.iter().map(|name| column(rows, name)).collect()
    }

    /// The other columns as they are stored, whether row by row or as batches.
    pub(super) fn stored_of(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>, ArrowError> {
        let fields = self.stored.fields().iter();
        let columns = fields.map(|field| stored_as(column(rows, field.name()), field.data_type()));
        columns.collect()
    }

    /// Those among the other columns that are `wanted`, as they are stored: of rows at `places` with these cells of `fixed`
    /// width, and in that order those of no fixed width.
    pub(super) fn rows(
        &self,
        wanted: Option<&[usize]>,
        fixed: &[u8],
        places: &[u32],
        varied: Option<&RecordBatch>,
    ) -> Result<RecordBatch, ArrowError> {
        let mut columns = self.fixed.columns(&self.stored, wanted, fixed, places)?;
        if let Some(varied) = varied {
            let is_wanted = |at: &usize| wanted.is_none_or(|wanted| wanted.contains(at));
            let at = self.varied.iter().copied().filter(is_wanted);
            columns.extend(at.zip(varied.columns().iter().cloned()));
        }
        columns.sort_unstable_by_key(|(at, _)| *at);
        let at: Vec<usize> = columns.iter().map(|(at, _)| *at).collect();
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        RecordBatch::try_new(Arc::new(self.stored.project(&at)?), columns)
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
