//! The shards of a split as a file of their own, for datasets of so many that a JSON document of them would be large and
//! slow.
//!
//! It is laid out as a shard whose rows are shards, an uncompressed Arrow IPC file with a checksum for every record
//! batch, so that a reader takes it piece by piece and holds none of it whole. Its columns, in this order:
//!
//! | column | type | |
//! |---|---|---|
//! | `path` | `utf8` | [`Shard::path`] |
//! | `rows`, `bytes` | `uint64` | |
//! | `hash` | `fixed_size_binary[16]` | big-endian |
//! | `head_crc32c` | `uint32` | null where it is not known |
//! | `lengths_path`, `lengths_crc32c` | `utf8`, `uint32` | null without [`Shard::lengths`] |
//! | `blocks` | `list<struct<offset: uint64, metadata_bytes: uint32, body_bytes: uint64, rows: uint32, crc32c: uint32>>` | 28 bytes a block |
//! | `tokens` | `list<uint64>` | [`Block::tokens`] of each block, empty where none has any |
//!
//! [`SplitShards::table`](crate::manifest::SplitShards::table) holds its path, and is hashed with
//! the manifest. The columns change only with the version of the manifest. The table is written
//! before the manifest that names it, under a name that holds its hash: a crash in between leaves a
//! file that nothing names, and writing it again changes nothing.

use std::sync::{Arc, LazyLock};

use arrow::{
    array::{
        Array as _, ArrayRef, AsArray as _, FixedSizeBinaryArray, ListArray, RecordBatch,
        StringArray, StructArray, UInt32Array, UInt64Array,
    },
    buffer::{Buffer, OffsetBuffer},
    datatypes::{DataType, Field, Fields, Schema, SchemaRef, UInt32Type, UInt64Type},
    error::ArrowError,
    ipc::{
        self, MetadataVersion,
        reader::FileDecoder,
        writer::{FileWriter, IpcWriteOptions},
    },
};

use crate::{
    Classified, ErrorKind,
    guard::catching,
    ids::Hash128,
    manifest::{Block, Lengths, Shard},
    split::Split,
};

/// Most shards of a split that a manifest lists itself.
pub const MOST_LISTED_SHARDS: usize = 10_000;

/// Most shards of a record batch, and most blocks, unless it has one shard only: about a quarter of a megabyte. What a reader
/// takes apart at one time is several times as large, and much of that memory does not go back to the system.
const PART_SHARDS: usize = 512;
const PART_BLOCKS: usize = 8192;

static BLOCK_FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    Fields::from(vec![
        Field::new("offset", DataType::UInt64, false),
        Field::new("metadata_bytes", DataType::UInt32, false),
        Field::new("body_bytes", DataType::UInt64, false),
        Field::new("rows", DataType::UInt32, false),
        Field::new("crc32c", DataType::UInt32, false),
    ])
});

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        Field::new("rows", DataType::UInt64, false),
        Field::new("bytes", DataType::UInt64, false),
        Field::new("hash", DataType::FixedSizeBinary(16), false),
        Field::new("head_crc32c", DataType::UInt32, true),
        Field::new("lengths_path", DataType::Utf8, true),
        Field::new("lengths_crc32c", DataType::UInt32, true),
        Field::new("blocks", DataType::List(block_item()), false),
        Field::new("tokens", DataType::List(tokens_item()), false),
    ]))
});

fn block_item() -> Arc<Field> {
    Arc::new(Field::new(
        "item",
        DataType::Struct(BLOCK_FIELDS.clone()),
        false,
    ))
}

fn tokens_item() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::UInt64, true))
}

/// Reason that a table was refused.
#[derive(Debug, thiserror::Error)]
#[error("shard table `{path}` cannot be used: {reason}")]
pub struct TableError {
    /// Path of the table, relative to the dataset folder.
    pub path: String,
    /// Description of the error.
    pub reason: String,
}

impl Classified for TableError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Data
    }
}

/// Path of the table with this hash, relative to the dataset folder.
#[must_use]
pub fn table_path(split: Split, hash: Hash128) -> String {
    format!("tables/{split}-{}.arrow", hash.short())
}

/// Writes the table of a split: how a manifest names it, and the file.
///
/// # Errors
/// [`TableError`] for more than 2^32 shards or a shard that cannot be described.
pub fn write(split: Split, shards: &[Shard]) -> Result<(Shard, Vec<u8>), TableError> {
    let refuse = |error: String| TableError {
        path: format!("tables/{split}"),
        reason: error,
    };
    let (file, blocks, head) = write_file(shards).map_err(|e| refuse(e.to_string()))?;
    let hash = Hash128::of(&file);
    let table = Shard {
        path: table_path(split, hash),
        rows: shards.len() as u64,
        bytes: file.len() as u64,
        hash,
        blocks,
        head_crc32c: Some(crc32c::crc32c(&file[..head])),
        lengths: None,
    };
    Ok((table, file))
}

/// Reads a whole table after checking its hash.
///
/// # Errors
/// [`TableError`], when the file is not the one that `table` describes.
pub fn read(table: &Shard, file: &[u8]) -> Result<Vec<Shard>, TableError> {
    let refuse = |reason: String| TableError {
        path: table.path.clone(),
        reason,
    };
    let found = Hash128::of(file);
    if found != table.hash {
        let reason = format!("its hash is `{found}`, the manifest says `{}`", table.hash);
        return Err(refuse(reason));
    }
    let mut shards = Vec::new();
    for part in &table.blocks {
        let range = usize::try_from(part.offset)
            .ok()
            .zip(usize::try_from(part.bytes()).ok())
            .and_then(|(start, bytes)| Some(start..start.checked_add(bytes)?));
        let bytes = range.and_then(|range| file.get(range));
        let bytes = bytes.ok_or_else(|| refuse("it is shorter than its parts".into()))?;
        shards.extend(read_part(table, part, bytes)?);
    }
    if shards.len() as u64 != table.rows {
        let reason = format!(
            "it has `{}` shards, the manifest says `{}`",
            shards.len(),
            table.rows
        );
        return Err(refuse(reason));
    }
    Ok(shards)
}

/// Reads the shards of one record batch of a table: `bytes` are its metadata and body. Its checksum is compared first.
///
/// # Errors
/// [`TableError`], when the bytes are not those that `part` describes.
pub fn read_part(table: &Shard, part: &Block, bytes: &[u8]) -> Result<Vec<Shard>, TableError> {
    let refuse = |reason: String| TableError {
        path: table.path.clone(),
        reason: format!("the part at byte `{}` {reason}", part.offset),
    };
    let found = crc32c::crc32c(bytes);
    if found != part.crc32c || bytes.len() as u64 != part.bytes() {
        return Err(refuse(format!(
            "has `{}` bytes with checksum `{found:08x}`, the manifest says `{}` with `{:08x}`",
            bytes.len(),
            part.bytes(),
            part.crc32c
        )));
    }
    // The library panics on bytes that were damaged before their checksum was computed.
    let shards = catching(|| decode(part, bytes).map_err(|e| e.to_string()));
    let shards = shards.and_then(|decoded| decoded);
    let shards = shards.map_err(|e| refuse(format!("cannot be read: {e}")))?;
    shards.ok_or_else(|| refuse(format!("does not hold `{}` shards", part.rows)))
}

/// The shards of a record batch; `None` if it holds another number of them.
fn decode(part: &Block, bytes: &[u8]) -> Result<Option<Vec<Shard>>, ArrowError> {
    let too_long = |e: std::num::TryFromIntError| ArrowError::IpcError(e.to_string());
    let metadata = i32::try_from(part.metadata_bytes).map_err(too_long)?;
    let body = i64::try_from(part.body_bytes).map_err(too_long)?;
    let batch = FileDecoder::new(Arc::clone(&SCHEMA), MetadataVersion::V5)
        .read_record_batch(&ipc::Block::new(0, metadata, body), &Buffer::from(bytes))?;
    let batch = batch.filter(|batch| batch.num_rows() == part.rows as usize);
    Ok(batch.map(|batch| shards_of(&batch)))
}

/// The file, its record batches, and the bytes before the first of them.
fn write_file(shards: &[Shard]) -> Result<(Vec<u8>, Vec<Block>, usize), ArrowError> {
    let options = IpcWriteOptions::try_new(64, false, MetadataVersion::V5)?;
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &SCHEMA, options)?;
    let head = writer.get_ref().len();
    let mut parts = Vec::new();
    let mut rest = shards;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(part_length(rest));
        let start = writer.get_ref().len();
        writer.write(&batch_of(part)?)?;
        let message = &writer.get_ref()[start..];
        let length: [u8; 4] = message[4..8].try_into().unwrap_or_default();
        let metadata_bytes = u32::from_le_bytes(length) + 8;
        parts.push(Block {
            offset: start as u64,
            metadata_bytes,
            body_bytes: message.len() as u64 - u64::from(metadata_bytes),
            // There are at most `PART_SHARDS`.
            rows: u32::try_from(part.len()).unwrap_or(u32::MAX),
            crc32c: crc32c::crc32c(message),
            tokens: None,
        });
        rest = after;
    }
    Ok((writer.into_inner()?, parts, head))
}

/// Number of shards in the next record batch.
fn part_length(shards: &[Shard]) -> usize {
    let mut blocks = 0;
    let fits = shards.iter().take(PART_SHARDS).take_while(|shard| {
        let is_first = blocks == 0;
        blocks += shard.blocks.len();
        is_first || blocks <= PART_BLOCKS
    });
    fits.count().max(1)
}

fn batch_of(shards: &[Shard]) -> Result<RecordBatch, ArrowError> {
    let blocks = || shards.iter().flat_map(|shard| &shard.blocks);
    let lengths = || shards.iter().map(|shard| shard.lengths.as_ref());
    let hashes = shards.iter().map(|shard| shard.hash.get().to_be_bytes());
    let columns: [ArrayRef; 5] = [
        Arc::new(UInt64Array::from_iter_values(blocks().map(|b| b.offset))),
        Arc::new(UInt32Array::from_iter_values(
            blocks().map(|b| b.metadata_bytes),
        )),
        Arc::new(UInt64Array::from_iter_values(
            blocks().map(|b| b.body_bytes),
        )),
        Arc::new(UInt32Array::from_iter_values(blocks().map(|b| b.rows))),
        Arc::new(UInt32Array::from_iter_values(blocks().map(|b| b.crc32c))),
    ];
    let blocks = StructArray::try_new(BLOCK_FIELDS.clone(), columns.into(), None)?;
    let counts = OffsetBuffer::from_lengths(shards.iter().map(|shard| shard.blocks.len()));
    let with_tokens = shards.iter().map(tokens_of);
    let token_counts = OffsetBuffer::from_lengths(with_tokens.clone().map(<[Block]>::len));
    let tokens: UInt64Array = with_tokens.flatten().map(|block| block.tokens).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(
            shards.iter().map(|s| &s.path),
        )),
        Arc::new(UInt64Array::from_iter_values(shards.iter().map(|s| s.rows))),
        Arc::new(UInt64Array::from_iter_values(
            shards.iter().map(|s| s.bytes),
        )),
        Arc::new(FixedSizeBinaryArray::try_from_iter(hashes)?),
        Arc::new(
            shards
                .iter()
                .map(|s| s.head_crc32c)
                .collect::<UInt32Array>(),
        ),
        Arc::new(
            lengths()
                .map(|l| l.map(|l| l.path.as_str()))
                .collect::<StringArray>(),
        ),
        Arc::new(
            lengths()
                .map(|l| l.map(|l| l.crc32c))
                .collect::<UInt32Array>(),
        ),
        Arc::new(ListArray::try_new(
            block_item(),
            counts,
            Arc::new(blocks),
            None,
        )?),
        Arc::new(ListArray::try_new(
            tokens_item(),
            token_counts,
            Arc::new(tokens),
            None,
        )?),
    ];
    RecordBatch::try_new(Arc::clone(&SCHEMA), columns)
}

/// The blocks of a shard if their tokens are to be written, otherwise none.
fn tokens_of(shard: &Shard) -> &[Block] {
    let is_known = shard.blocks.iter().any(|block| block.tokens.is_some());
    if is_known { &shard.blocks } else { &[] }
}

/// The columns have the types of [`SCHEMA`].
fn shards_of(batch: &RecordBatch) -> Vec<Shard> {
    let paths = batch.column(0).as_string::<i32>();
    let [rows, bytes] = [1, 2].map(|at: usize| batch.column(at).as_primitive::<UInt64Type>());
    let hashes = batch.column(3).as_fixed_size_binary();
    let heads = batch.column(4).as_primitive::<UInt32Type>();
    let lengths = batch.column(5).as_string::<i32>();
    let length_sums = batch.column(6).as_primitive::<UInt32Type>();
    let shard = |row: usize| Shard {
        path: paths.value(row).to_owned(),
        rows: rows.value(row),
        bytes: bytes.value(row),
        hash: Hash128::new(u128::from_be_bytes(
            hashes.value(row).try_into().unwrap_or_default(),
        )),
        blocks: blocks_of(batch, row),
        head_crc32c: heads.is_valid(row).then(|| heads.value(row)),
        lengths: lengths.is_valid(row).then(|| Lengths {
            path: lengths.value(row).to_owned(),
            crc32c: length_sums.value(row),
        }),
    };
    (0..batch.num_rows()).map(shard).collect()
}

fn blocks_of(batch: &RecordBatch, row: usize) -> Vec<Block> {
    let list = batch.column(7).as_list::<i32>();
    let [start, end] = [list.value_offsets()[row], list.value_offsets()[row + 1]];
    let columns = list.values().as_struct().columns();
    let [offsets, bodies] = [0, 2].map(|at: usize| columns[at].as_primitive::<UInt64Type>());
    let [metadata, rows, sums] =
        [1, 3, 4].map(|at: usize| columns[at].as_primitive::<UInt32Type>());
    let tokens = batch.column(8).as_list::<i32>().value(row);
    let tokens = tokens.as_primitive::<UInt64Type>();
    let places = (start..end).filter_map(|at| usize::try_from(at).ok());
    let block = |(number, at): (usize, usize)| Block {
        offset: offsets.value(at),
        metadata_bytes: metadata.value(at),
        body_bytes: bodies.value(at),
        rows: rows.value(at),
        crc32c: sums.value(at),
        tokens: (number < tokens.len() && tokens.is_valid(number)).then(|| tokens.value(number)),
    };
    places.enumerate().map(block).collect()
}

#[cfg(test)]
mod tests {
    use arrow::ipc::reader::FileReader;

    use super::*;

    /// Shard `i` has `i % 4` blocks; every third records its tokens, every fifth its lengths.
    fn shards(count: u32) -> Vec<Shard> {
        let block = |shard: u32, block: u32| Block {
            offset: 64 + u64::from(block) * 1000,
            metadata_bytes: 200,
            body_bytes: 800,
            rows: shard + block,
            crc32c: shard ^ 0xffff_0000,
            tokens: (shard.is_multiple_of(3) && block != 1).then_some(u64::from(shard) << 33),
        };
        let shard = |i: u32| Shard {
            path: format!("shards/train/{i:05}-é.arrow"),
            rows: u64::from(i) << 32,
            bytes: u64::MAX - u64::from(i),
            hash: Hash128::new(u128::from(i) << 100 | 7),
            blocks: (0..i % 4).map(|b| block(i, b)).collect(),
            head_crc32c: i.is_multiple_of(2).then_some(i),
            lengths: i.is_multiple_of(5).then(|| Lengths {
                path: format!("{i}.lengths"),
                crc32c: i,
            }),
        };
        (0..count).map(shard).collect()
    }

    #[test]
    fn a_table_gives_back_every_field_of_every_shard_in_parts() {
        for count in [0, 1, 4096, 4097, 9001] {
            let shards = shards(count);
            let (table, file) = write(Split::Train, &shards).unwrap();
            assert_eq!(table.blocks.len(), shards.len().div_ceil(PART_SHARDS));
            assert_eq!((table.rows, table.bytes), (count.into(), file.len() as u64));
            assert_eq!(read(&table, &file).unwrap(), shards);
            assert_eq!(write(Split::Train, &shards).unwrap(), (table, file));
        }
    }

    #[test]
    fn a_part_ends_where_it_has_enough_blocks() {
        let mut shards = shards(8);
        let block = shards[1].blocks[0].clone();
        shards[5].blocks = vec![block; PART_BLOCKS + 1];
        let (table, file) = write(Split::Test, &shards).unwrap();
        let rows: Vec<_> = table.blocks.iter().map(|part| part.rows).collect();
        assert_eq!(rows, [5, 1, 2]);
        assert_eq!(read(&table, &file).unwrap(), shards);
    }

    #[test]
    fn other_readers_of_arrow_files_can_read_it() {
        let (table, file) = write(Split::Validation, &shards(9)).unwrap();
        assert!(table.path.starts_with("tables/validation-"));
        let reader = FileReader::try_new(std::io::Cursor::new(file), None).unwrap();
        let batches: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(batches.len(), 1);
        assert_eq!(
            batches[0].column(1).as_primitive::<UInt64Type>().value(8),
            8 << 32
        );
    }

    /// A checksum of damaged bytes fits them: the library panics on an offset beyond their end.
    #[test]
    fn a_part_that_was_damaged_before_its_checksum_is_refused() {
        let (table, file) = write(Split::Train, &shards(20)).unwrap();
        let part = &table.blocks[0];
        let start = usize::try_from(part.offset).unwrap();
        let bytes = &file[start..][..usize::try_from(part.bytes()).unwrap()];
        let mut panics = 0;
        for at in 0..part.metadata_bytes as usize {
            let mut damaged = bytes.to_vec();
            damaged[at] = 0x7f;
            let crc32c = crc32c::crc32c(&damaged);
            let part = Block {
                crc32c,
                ..part.clone()
            };
            if let Err(error) = read_part(&table, &part, &damaged) {
                panics += usize::from(error.reason.contains("cannot exceed the existing length"));
            }
        }
        assert!(panics > 0);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let (table, file) = write(Split::Train, &shards(20)).unwrap();
        let part = &table.blocks[0];
        let range = usize::try_from(part.offset).unwrap()..;
        let bytes = &file[range][..usize::try_from(part.bytes()).unwrap()];
        assert_eq!(read_part(&table, part, bytes).unwrap(), shards(20));
        for bit in (0..bytes.len() * 8).step_by(13) {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = read_part(&table, part, &damaged).unwrap_err().to_string();
            assert!(error.contains("the manifest says"), "{error}");
        }
        assert!(read_part(&table, part, &bytes[..bytes.len() - 1]).is_err());
        for at in [0, file.len() / 2, file.len() - 1] {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            let error = read(&table, &damaged).unwrap_err().to_string();
            assert!(error.contains("its hash is"), "{error}");
            assert!(read(&table, &file[..at]).is_err());
        }
    }
}
