//! Reads landed files.

use arrow::array::RecordBatch;
use bytes::Bytes;
use feedline_schemas::{commit::DataFile, ids::Hash128};
use feedline_storage::Store;
use parquet::{
    arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder},
    errors::ParquetError,
};

use crate::{error::Error, superseded_files::aside};

/// Reads the named `columns` of a landed file, all rows or the first `limit`. The file is checked
/// against its hash first. One that was superseded since the log was read is found in `superseded/`.
///
/// # Errors
/// [`Error::Landed`] if the file is absent or does not match its log entry, [`Error::Storage`].
pub(crate) async fn read(
    landing: &Store,
    file: &DataFile,
    columns: &[&str],
    limit: Option<usize>,
) -> Result<Vec<RecordBatch>, Error> {
    read_columns(landing, file, Some(columns), limit).await
}

/// Reads all columns and rows of a landed file, which is checked against its hash first.
///
/// # Errors
/// Like [`read`].
pub(crate) async fn read_whole(
    landing: &Store,
    file: &DataFile,
) -> Result<Vec<RecordBatch>, Error> {
    read_columns(landing, file, None, None).await
}

async fn read_columns(
    landing: &Store,
    file: &DataFile,
    columns: Option<&[&str]>,
    limit: Option<usize>,
) -> Result<Vec<RecordBatch>, Error> {
    let damaged = |reason: String| Error::Landed {
        url: landing.url_of(&file.path),
        reason,
    };
    let bytes = match landing.get_opt(&file.path).await? {
        Some(bytes) => Some(bytes),
        // Another program may have superseded it since the log was read.
        None => landing.get_opt(&aside(file)).await?,
    };
    let bytes = bytes.ok_or_else(|| damaged("it is absent".into()))?;
    let hash = Hash128::of(&bytes);
    if hash != file.hash {
        return Err(damaged(format!(
            "its hash is {hash}, but {} in its log entry",
            file.hash
        )));
    }
    decode(bytes, columns, limit).map_err(|e| damaged(e.to_string()))
}

/// The named `columns` of a Parquet file, or all of them; all rows or the first `limit`.
pub(crate) fn decode(
    bytes: Bytes,
    columns: Option<&[&str]>,
    limit: Option<usize>,
) -> Result<Vec<RecordBatch>, ParquetError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
    let mask = match columns {
        Some(columns) => ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied()),
        None => ProjectionMask::all(),
    };
    let builder = builder.with_projection(mask);
    let reader = match limit {
        Some(limit) => builder.with_limit(limit).build()?,
        None => builder.build()?,
    };
    Ok(reader.collect::<Result<_, _>>()?)
}
