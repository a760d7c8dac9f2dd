//! Byte range of the target or key column in a block of our own shards, so that it can be read
//! without the rest.

use std::ops::Range;

use arrow::{datatypes::DataType, ipc};

use super::columns::ShardColumns;
use crate::guard::catching;

/// Marker and length before a message.
const PREFIX_BYTES: usize = 8;

/// Bytes of a class.
const CLASS_BYTES: u64 = 4;

/// Bytes of a key.
const KEY_BYTES: u64 = 8;

/// Byte range of the classes of a block with `rows` rows in its body, by its metadata. `None` when
/// it makes no sense.
pub(super) fn range_of_classes(
    metadata: &[u8],
    columns: &ShardColumns,
    rows: u32,
) -> Option<Range<u64>> {
    range_of(metadata, columns, columns.y?, CLASS_BYTES * u64::from(rows))
}

/// Byte range of the keys of a block, as [`range_of_classes`].
pub(super) fn range_of_keys(
    metadata: &[u8],
    columns: &ShardColumns,
    rows: u32,
) -> Option<Range<u64>> {
    range_of(metadata, columns, columns.key, KEY_BYTES * u64::from(rows))
}

/// Byte range of the numbers of a column of a block in its body, which take so many bytes.
fn range_of(
    metadata: &[u8],
    columns: &ShardColumns,
    column: usize,
    bytes: u64,
) -> Option<Range<u64>> {
    catching(|| {
        let message = ipc::root_as_message(metadata.get(PREFIX_BYTES..)?).ok()?;
        let batch = message.header_as_record_batch()?;
        let fields = columns.schema.fields().iter();
        let before: usize = fields
            .take(column)
            .map(|field| buffers(field.data_type()))
            .sum();
        let buffers = batch.buffers()?;
        // The first buffer of a column holds its validity bits.
        let values = (before + 1 < buffers.len()).then(|| buffers.get(before + 1))?;
        let start = u64::try_from(values.offset()).ok()?;
        let is_whole =
            u64::try_from(values.length()).ok()? >= bytes && batch.compression().is_none();
        is_whole.then_some(start..start + bytes)
    })
    .ok()
    .flatten()
}

/// Buffers of a column, of those types that a shard may have.
fn buffers(data_type: &DataType) -> usize {
    match data_type {
        DataType::Binary | DataType::LargeBinary | DataType::Utf8 | DataType::LargeUtf8 => 3,
        DataType::FixedSizeList(field, _) => 1 + buffers(field.data_type()),
        DataType::List(field) => 2 + buffers(field.data_type()),
        _ => 2,
    }
}

/// The classes in little-endian bytes.
pub(super) fn classes(bytes: &[u8]) -> Vec<i32> {
    let numbers = bytes.chunks_exact(4);
    numbers
        .map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect()
}

/// The keys in little-endian bytes.
pub(super) fn keys(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}
