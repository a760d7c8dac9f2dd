//! Exchanges as a Parquet file, and back.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, LargeBinaryArray, RecordBatch, StringArray, UInt16Array,
        UInt32Array, UInt64Array,
    },
    datatypes::{UInt16Type, UInt32Type},
};
use bytes::Bytes;
use feedline_schemas::{
    commit::DataFile,
    ids::{Hash128, Sequence},
    record::system,
};
use feedline_storage::Store;
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties},
    schema::types::ColumnPath,
};

use super::Exchange;
use crate::{batch::Encoded, error::Error, landed_file};

const REQUEST: &str = "request";
const URL: &str = "url";
const FROM: &str = "from";
const STATUS: &str = "status";
const HEADERS: &str = "headers";
const REASON: &str = "reason";
const DETAIL: &str = "detail";
const MASKED: &str = "masked";
const BODY: &str = "body";
const COLUMNS: [&str; 9] = [
    REQUEST, URL, FROM, STATUS, HEADERS, REASON, DETAIL, MASKED, BODY,
];

/// Encodes the file of a batch's exchanges; `None` if there are none.
///
/// # Errors
/// [`Error::Encode`].
pub(crate) fn file(exchanges: &[Exchange], sequence: Sequence) -> Result<Option<Encoded>, Error> {
    if exchanges.is_empty() {
        return Ok(None);
    }
    let encoded = batch(exchanges, sequence).and_then(|batch| write(&batch));
    let bytes = encoded.map_err(|cause| Error::Encode {
        what: "the raw file of a batch".into(),
        cause,
    })?;
    let hash = Hash128::of(&bytes);
    let file = DataFile {
        path: format!("raw/{:020}-{}.parquet", sequence.get(), hash.short()),
        rows: exchanges.len() as u64,
        bytes: bytes.len() as u64,
        hash,
    };
    Ok(Some(Encoded { file, bytes }))
}

fn batch(all: &[Exchange], sequence: Sequence) -> Result<RecordBatch, ParquetError> {
    let texts = |get: fn(&Exchange) -> Option<&str>| -> ArrayRef {
        Arc::new(all.iter().map(get).collect::<StringArray>())
    };
    let names = all.iter().map(|exchange| exchange.request.to_string());
    let headers = all.iter().map(|exchange| {
        let json = serde_json::to_string(&exchange.headers);
        json.expect("lists of strings by string are valid JSON")
    });
    let statuses = all.iter().map(|exchange| exchange.status);
    let bodies = all.iter().map(|exchange| &exchange.body[..]);
    let masked = all.iter().map(|exchange| exchange.masked);
    let rows = (0_u32..).take(all.len());
    let columns: [(&str, ArrayRef); 11] = [
        (
            system::SEQUENCE,
            Arc::new(UInt64Array::from(vec![sequence.get(); all.len()])),
        ),
        (system::ROW, Arc::new(UInt32Array::from_iter_values(rows))),
        (REQUEST, Arc::new(StringArray::from_iter_values(names))),
        (URL, texts(|e| Some(&e.url))),
        (FROM, texts(|e| e.from.as_deref())),
        (STATUS, Arc::new(statuses.collect::<UInt16Array>())),
        (HEADERS, Arc::new(StringArray::from_iter_values(headers))),
        (REASON, texts(|e| e.reason.as_deref())),
        (DETAIL, texts(|e| e.detail.as_deref())),
        (MASKED, Arc::new(UInt32Array::from_iter_values(masked))),
        (BODY, Arc::new(LargeBinaryArray::from_iter_values(bodies))),
    ];
    let columns = columns.map(|(name, array)| (name, array, !name.starts_with(system::PREFIX)));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

/// Writes Parquet with fixed settings. Bodies are large and all different: no dictionary, no
/// statistics, and pages of one or few bodies.
fn write(batch: &RecordBatch) -> Result<Bytes, ParquetError> {
    let body = || ColumnPath::from(BODY);
    let properties = WriterProperties::builder()
        .set_created_by("feedline".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_write_batch_size(1)
        .set_max_row_group_row_count(None)
        .set_column_dictionary_enabled(body(), false)
        .set_column_statistics_enabled(body(), EnabledStatistics::None)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(batch)?;
    Ok(writer.into_inner()?.into())
}

/// The exchanges in a landed file.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`].
pub(super) async fn read(landing: &Store, file: &DataFile) -> Result<Vec<Exchange>, Error> {
    let mut all = Vec::new();
    for batch in landed_file::read(landing, file, &COLUMNS, None).await? {
        all.extend(rows(&batch).ok_or_else(|| Error::Landed {
            url: landing.url_of(&file.path),
            reason: "its columns are not those of an archive".into(),
        })?);
    }
    Ok(all)
}

fn rows(batch: &RecordBatch) -> Option<Vec<Exchange>> {
    let text = |name| batch.column_by_name(name)?.as_string_opt::<i32>();
    let (request, url, from) = (text(REQUEST)?, text(URL)?, text(FROM)?);
    let (headers, reason, detail) = (text(HEADERS)?, text(REASON)?, text(DETAIL)?);
    let status = batch.column_by_name(STATUS)?;
    let status = status.as_primitive_opt::<UInt16Type>()?;
    let masked = batch.column_by_name(MASKED)?;
    let masked = masked.as_primitive_opt::<UInt32Type>()?;
    let body = batch.column_by_name(BODY)?.as_binary_opt::<i64>()?;
    let some = |column: &StringArray, i| column.is_valid(i).then(|| column.value(i).to_owned());
    let row = |i| {
        Some(Exchange {
            request: Hash128::new(u128::from_str_radix(request.value(i), 16).ok()?),
            url: url.value(i).to_owned(),
            from: some(from, i),
            status: status.is_valid(i).then(|| status.value(i)),
            headers: serde_json::from_str(headers.value(i)).ok()?,
            reason: some(reason, i),
            detail: some(detail, i),
            masked: masked.value(i),
            body: Bytes::copy_from_slice(body.value(i)),
        })
    };
    (0..batch.num_rows()).map(row).collect()
}
