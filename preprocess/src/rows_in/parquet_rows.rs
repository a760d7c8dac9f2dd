//! The rows of a Parquet file.

use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io::Read as _,
    sync::Arc,
};

use arrow::{
    array::{
        Array as _, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch,
        StringArray,
    },
    compute::cast,
    datatypes::DataType,
    error::ArrowError,
};
use bytes::Bytes;
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
    },
    file::reader::ChunkReader,
};

use super::{
    assembly::Assembly, names::Named, raw_cell::Raw, reading::RowSource, row_reader::RowReader,
};
use crate::plain::points_in_time;

/// Largest file from a pipe: its index is at its end, so the file is held in memory.
const PIPED: u64 = 1 << 30;

/// Rows of a file.
pub(super) struct ParquetRows {
    reader: ParquetRecordBatchReader,
    names: Named,
    /// Those that are read, in the order of the file.
    read: BTreeSet<usize>,
}

impl ParquetRows {
    pub(super) fn open(
        source: RowSource,
        wanted: &[String],
        batch_rows: usize,
    ) -> Result<Self, String> {
        match source {
            RowSource::File(path) => Self::of(
                File::open(path).map_err(|e| e.to_string())?,
                wanted,
                batch_rows,
            ),
            RowSource::Stream(stream) => {
                let mut bytes = Vec::new();
                let read = stream.take(PIPED + 1).read_to_end(&mut bytes);
                read.map_err(|e| e.to_string())?;
                if bytes.len() as u64 > PIPED {
                    return Err("it is larger than 1 GiB and has to be held in memory; give the file itself".into());
                }
                Self::of(Bytes::from(bytes), wanted, batch_rows)
            }
        }
    }

    fn of(
        file: impl ChunkReader + 'static,
        wanted: &[String],
        batch_rows: usize,
    ) -> Result<Self, String> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| e.to_string())?;
        let fields = builder.schema().fields().iter();
        let names = fields.map(|field| field.name().clone()).collect();
        let names = Named::new(names, wanted);
        let read: BTreeSet<usize> = names.places().iter().flatten().copied().collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), read.iter().copied());
        let reader = builder
            .with_projection(mask)
            .with_batch_size(batch_rows)
            .build()
            .map_err(|e| e.to_string())?;
        Ok(Self {
            reader,
            names,
            read,
        })
    }

    fn add(&self, batch: &RecordBatch, rows: &mut Assembly) -> Result<(), ArrowError> {
        let read: HashMap<&usize, &ArrayRef> = self.read.iter().zip(batch.columns()).collect();
        let mut columns = Vec::with_capacity(self.names.places().len());
        for place in self.names.places() {
            let column = place.and_then(|place| read.get(&place));
            columns.push(match column {
                Some(column) => Typed::of(column)?,
                None => Typed::Nothing,
            });
        }
        for row in 0..batch.num_rows() {
            let number = rows.number();
            rows.add(
                |column| columns[column].cell(row),
                || format!("row {number}"),
            );
        }
        Ok(())
    }
}

impl RowReader for ParquetRows {
    fn columns(&self) -> Option<&Named> {
        Some(&self.names)
    }

    fn fill(&mut self, rows: &mut Assembly) -> Result<bool, String> {
        rows.met.fill(true);
        match self.reader.next() {
            None => Ok(false),
            Some(batch) => {
                let added = batch.and_then(|batch| self.add(&batch, rows));
                added.map(|()| true).map_err(|e| e.to_string())
            }
        }
    }
}

/// A column as one of few types. Whatever has no type of its own (dates, decimals) is its text, as it lands.
enum Typed {
    Nothing,
    Bool(BooleanArray),
    Int(Int64Array),
    Float(Float64Array),
    Text(StringArray),
    Nested(ArrayRef, &'static str),
}

impl Typed {
    fn of(column: &ArrayRef) -> Result<Self, ArrowError> {
        let text = || {
            Ok::<_, ArrowError>(Self::Text(
                cast(column, &DataType::Utf8)?.as_string::<i32>().clone(),
            ))
        };
        Ok(match column.data_type() {
            DataType::Null => Self::Nothing,
            DataType::Boolean => Self::Bool(column.as_boolean().clone()),
            DataType::UInt64 => {
                let ints = cast(column, &DataType::Int64)?;
                // Those beyond 64 bits with a sign are null then.
                match ints.null_count() == column.null_count() {
                    true => Self::Int(ints.as_primitive().clone()),
                    false => text()?,
                }
            }
            number if number.is_integer() => {
                Self::Int(cast(column, &DataType::Int64)?.as_primitive().clone())
            }
            number if number.is_floating() => {
                Self::Float(cast(column, &DataType::Float64)?.as_primitive().clone())
            }
            DataType::Dictionary(_, inner) => Self::of(&cast(column, inner)?)?,
            list if list.is_nested() => Self::Nested(Arc::clone(column), "a list or an object"),
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::Nested(Arc::clone(column), "bytes"),
            DataType::Timestamp(..) => Self::Text(points_in_time(column)?),
            _ => text()?,
        })
    }

    fn cell(&self, row: usize) -> Raw<'_> {
        match self {
            Self::Bool(cells) if cells.is_valid(row) => Raw::Bool(cells.value(row)),
            Self::Int(cells) if cells.is_valid(row) => Raw::Int(cells.value(row)),
            Self::Float(cells) if cells.is_valid(row) => Raw::Float(cells.value(row)),
            Self::Text(cells) if cells.is_valid(row) => Raw::Text(cells.value(row).into()),
            Self::Nested(cells, what) if cells.is_valid(row) => Raw::Nested(what),
            _ => Raw::Null,
        }
    }
}
