//! Columns as the bytes of a Parquet file.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array},
    datatypes::{Field, Schema, SchemaRef},
};
use bytes::Bytes;
use feedline_schemas::{
    commit::DataFile,
    ids::{Hash128, Sequence},
    record::system,
};
use parquet::{
    arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY},
    basic::{Compression, Encoding, ZstdLevel},
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties},
    schema::types::ColumnPath,
};

use crate::error::Error;

/// Most records of a batch: rows have 24 bits in [`feedline_schemas::ids::Origin`].
pub(super) const MAX_RECORDS: usize = 1 << 24;

/// A file ready to be written.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    /// Its entry in the log.
    pub(crate) file: DataFile,
    /// Its content.
    pub(crate) bytes: Bytes,
}

/// A column of a file.
pub(super) struct Named<'a> {
    name: &'a str,
    array: ArrayRef,
    field_id: Option<u32>,
}

impl<'a> Named<'a> {
    /// A column that no field id follows.
    pub(super) fn new(name: &'a str, array: ArrayRef) -> Self {
        Self {
            name,
            array,
            field_id: None,
        }
    }

    /// A column of the source, with its field id.
    pub(super) fn of_source(name: &'a str, field_id: u32, array: ArrayRef) -> Self {
        Self {
            name,
            array,
            field_id: Some(field_id),
        }
    }

    fn field(&self) -> Field {
        let is_nullable = !self.name.starts_with(system::PREFIX);
        let field = Field::new(self.name, self.array.data_type().clone(), is_nullable);
        match self.field_id {
            None => field,
            Some(id) => {
                let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string());
                field.with_metadata(HashMap::from([id]))
            }
        }
    }
}

/// Encodes a file of the kind `folder`; `None` when it has no rows.
pub(super) fn encode(
    folder: &str,
    sequence: Sequence,
    rows: impl ExactSizeIterator<Item = u32>,
    columns: Vec<Named<'_>>,
) -> Result<Option<Encoded>, Error> {
    let count = rows.len();
    if count == 0 {
        return Ok(None);
    }
    let system = [
        Named::new(
            system::SEQUENCE,
            Arc::new(UInt64Array::from(vec![sequence.get(); count])),
        ),
        Named::new(system::ROW, Arc::new(UInt32Array::from_iter_values(rows))),
    ];
    let all = || system.iter().chain(&columns);
    let schema = Arc::new(Schema::new(all().map(Named::field).collect::<Vec<_>>()));
    let arrays = all().map(|column| Arc::clone(&column.array)).collect();
    let batch = RecordBatch::try_new(schema, arrays);
    let batch = batch.map_err(|cause| encode_error(folder, cause.into()))?;
    encode_again(folder, sequence, &batch)
}

/// Encodes the remaining rows of a file of the kind `folder`; `None` if there are none.
pub(crate) fn encode_again(
    folder: &str,
    sequence: Sequence,
    batch: &RecordBatch,
) -> Result<Option<Encoded>, Error> {
    let count = batch.num_rows();
    if count == 0 {
        return Ok(None);
    }
    let bytes = write(batch).map_err(|cause| encode_error(folder, cause))?;
    Ok(Some(encoded(folder, sequence, count as u64, bytes)))
}

/// A file that is written batch by batch: the rows of other files, in their order.
pub(crate) struct MergedFile {
    writer: ArrowWriter<Vec<u8>>,
    rows: u64,
}

impl MergedFile {
    /// Begins a file with these columns.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn begin(schema: SchemaRef) -> Result<Self, Error> {
        let writer = properties()
            .and_then(|properties| ArrowWriter::try_new(Vec::new(), schema, Some(properties)));
        let writer = writer.map_err(|cause| encode_error("merged", cause))?;
        Ok(Self { writer, rows: 0 })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let written = self.writer.write(batch);
        written.map_err(|cause| encode_error("merged", cause))?;
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Ends the file: one of the kind `folder`, which the entry `sequence` names.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn finish(self, folder: &str, sequence: Sequence) -> Result<Encoded, Error> {
        let bytes = self.writer.into_inner();
        let bytes = bytes.map_err(|cause| encode_error("merged", cause))?;
        Ok(encoded(folder, sequence, self.rows, bytes.into()))
    }
}

fn encoded(folder: &str, sequence: Sequence, rows: u64, bytes: Bytes) -> Encoded {
    let hash = Hash128::of(&bytes);
    let path = format!("{folder}/{:020}-{}.parquet", sequence.get(), hash.short());
    let file = DataFile {
        path,
        rows,
        bytes: bytes.len() as u64,
        hash,
    };
    Encoded { file, bytes }
}

/// Parquet with fixed settings: nothing in it depends on time, machine or release.
fn write(batch: &RecordBatch) -> Result<Bytes, ParquetError> {
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties()?))?;
    writer.write(batch)?;
    Ok(writer.into_inner()?.into())
}

fn properties() -> Result<WriterProperties, ParquetError> {
    let [hash, row] = [system::HASH, system::ROW].map(ColumnPath::from);
    let properties = WriterProperties::builder()
        .set_created_by("feedline".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(MAX_RECORDS))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // Hashes never repeat, and row numbers increase by one.
        .set_column_dictionary_enabled(hash.clone(), false)
        .set_column_statistics_enabled(hash.clone(), EnabledStatistics::None)
        .set_column_compression(hash, Compression::UNCOMPRESSED)
        .set_column_dictionary_enabled(row.clone(), false)
        .set_column_encoding(row, Encoding::DELTA_BINARY_PACKED)
        .build();
    Ok(properties)
}

pub(super) fn encode_error(what: &str, cause: ParquetError) -> Error {
    Error::Encode {
        what: format!("the {what} file of a batch"),
        cause,
    }
}
