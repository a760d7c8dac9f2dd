//! Reading of one shard part by part, checked against its manifest entry.
//!
//! A damaged file must not be decoded, but only its last byte completes the checksum. To read the
//! file once all the same, blocks are decoded as they arrive, if the bytes around them are those
//! that our writer puts there. Their content is dropped if the file proves damaged. Any other file
//! is read twice, following its footer.

use std::{mem, ops::Range, sync::Arc};

use arrow::{
    array::{AsArray, RecordBatch},
    buffer::Buffer,
    datatypes::{Schema, SchemaRef, UInt64Type},
    error::ArrowError,
    ipc::{self, MetadataVersion, convert::fb_to_schema, reader::FileDecoder},
};
use feedline_schemas::{
    ids::Hash128,
    manifest::{Block, Shard},
};
use feedline_storage::LocalFiles;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    Error,
    shards::{
        footer::{TRAILER, footer_at, footer_blocks, footer_of},
        open_shard::head_of,
    },
};

/// Bytes that are read at a time outside of blocks.
const PIECE: u64 = 1 << 20;

/// Faults of a shard, and its keys.
type Checked = (Vec<String>, Vec<u64>);

/// Offset, metadata and body length of a block.
type Place = (u64, u32, u64);

/// Origin of a shard's bytes.
pub(super) enum Source {
    /// A local file; one part is in memory at a time.
    Local {
        files: LocalFiles,
        path: String,
        /// Memory of the last part, for the next one.
        room: Vec<u8>,
    },
    /// A complete object.
    Whole(Buffer),
}

impl Source {
    pub(super) fn local(files: LocalFiles, path: &str) -> Self {
        Self::Local {
            files,
            path: path.trim_matches('/').to_owned(),
            room: Vec::new(),
        }
    }

    fn size(&self) -> Result<u64, feedline_storage::Error> {
        match self {
            Self::Local { files, path, .. } => files.size(path),
            Self::Whole(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Bytes of `range`, which is inside the file.
    fn part(&mut self, range: Range<u64>) -> Result<Buffer, Error> {
        let fits = |bytes: u64| usize::try_from(bytes).expect("part of a file fits into memory");
        let length = fits(range.end - range.start);
        match self {
            Self::Local { files, path, room } => {
                let mut part = mem::take(room);
                part.resize(length, 0);
                files.read(path, range.start, &mut part)?;
                Ok(Buffer::from_vec(part))
            }
            Self::Whole(bytes) => Ok(bytes.slice_with_length(fits(range.start), length)),
        }
    }

    /// Takes back a part that is no longer needed.
    fn give_back(&mut self, part: Buffer) {
        if let Self::Local { room, .. } = self {
            *room = part.into_vec().unwrap_or_default();
        }
    }
}

/// Faults of a missing shard.
pub(super) fn absent() -> Checked {
    (vec!["the file does not exist".into()], Vec::new())
}

/// Checks a shard and returns its faults, and its keys if the file is intact. `lengths` are the
/// lengths of its documents, or their faults. Blocks the thread.
pub(super) fn check(
    source: &mut Source,
    shard: &Shard,
    schema: &SchemaRef,
    lengths: Option<Result<Vec<u32>, String>>,
) -> Result<Checked, Error> {
    let size = match source.size() {
        Ok(size) => size,
        Err(e) if e.is_not_found() => return Ok(absent()),
        Err(e) => return Err(e.into()),
    };
    let mut problems = Vec::new();
    if size != shard.bytes {
        problems.push(format!(
            "the file has {size} bytes, the manifest says {}",
            shard.bytes
        ));
    }
    let decoder = is_ours(source, size, shard, schema)?
        .then(|| FileDecoder::new(Arc::clone(schema), MetadataVersion::V5));
    let rows = checksums(source, size, shard, decoder.as_ref(), &mut problems)?;
    let lengths = lengths.transpose().unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    if !problems.is_empty() {
        return Ok((problems, Vec::new()));
    }
    let footer = match Footer::read(source, size) {
        Ok(footer) => footer,
        Err(Error::Arrow(e)) => return Ok((vec![unreadable(&e)], Vec::new())),
        Err(e) => return Err(e),
    };
    if footer.blocks != table(shard) {
        problems.push("the footer's block table differs from the manifest's".into());
    }
    if footer.schema != **schema {
        problems.push("its schema is not the one the manifest describes".into());
        return Ok((problems, Vec::new()));
    }
    let is_read = rows.is_some();
    let mut rows = rows.unwrap_or_default();
    let read = if is_read {
        Ok(())
    } else {
        rows.read(source, size, &footer, schema)
    };
    match read {
        Ok(()) => problems.extend(rows.problems(shard, lengths.as_deref())),
        Err(Error::Arrow(e)) => problems.push(unreadable(&e)),
        Err(e) => return Err(e),
    }
    Ok((problems, rows.keys))
}

fn unreadable(error: &ArrowError) -> String {
    format!("the file is not a readable Arrow file: {error}")
}

fn place((offset, metadata_bytes, body_bytes): Place, size: u64) -> Option<Range<u64>> {
    let end = offset
        .checked_add(u64::from(metadata_bytes))?
        .checked_add(body_bytes)?;
    (end <= size).then_some(offset..end)
}

fn listed(block: &Block) -> Place {
    (block.offset, block.metadata_bytes, block.body_bytes)
}

/// The manifest's block table.
fn table(shard: &Shard) -> Vec<Place> {
    shard.blocks.iter().map(listed).collect()
}

/// Returns true if the file begins as our writer begins it for `schema`, and its footer lists the
/// same blocks as the manifest: a block with the right checksum can then be decoded.
pub(super) fn is_ours(
    source: &mut Source,
    size: u64,
    shard: &Shard,
    schema: &SchemaRef,
) -> Result<bool, Error> {
    let table = table(shard);
    let inside = |block: Option<&Place>| block.and_then(|block| place(*block, size));
    let (Ok(head), Some(first), Some(last)) =
        (head_of(schema), inside(table.first()), inside(table.last()))
    else {
        return Ok(false);
    };
    let is_fit = first.start == head.len() as u64 && size - last.end <= PIECE;
    if size != shard.bytes || !is_fit {
        return Ok(false);
    }
    let part = source.part(0..first.start)?;
    let begins = part.as_slice() == head.as_slice();
    source.give_back(part);
    let part = source.part(last.end..size)?;
    let ends = footer_blocks(&part).is_ok_and(|blocks| blocks == table);
    source.give_back(part);
    Ok(begins && ends)
}

/// Reads all of the file once and says which checksums differ. With a decoder, also what all blocks hold, unless one is
/// damaged or cannot be decoded.
fn checksums(
    source: &mut Source,
    size: u64,
    shard: &Shard,
    decoder: Option<&FileDecoder>,
    problems: &mut Vec<String>,
) -> Result<Option<Rows>, Error> {
    let mut rows = decoder.map(|_| Rows::default());
    let mut hasher = Xxh3::new();
    let mut hashed = 0;
    for (i, block) in shard.blocks.iter().enumerate() {
        let mut is_whole = false;
        if let Some(range) = place(listed(block), size) {
            // A table that is not in the order of the file does not change what the file's hash is.
            let is_next = range.start >= hashed;
            if is_next {
                hash(source, hashed..range.start, &mut hasher)?;
                hashed = range.end;
            }
            let part = source.part(range)?;
            if is_next {
                hasher.update(&part);
            }
            is_whole = crc32c::crc32c(&part) == block.crc32c;
            if is_whole
                && let (Some(decoder), Some(found)) = (decoder, &mut rows)
                && found.push(decoder, listed(block), &part).is_err()
            {
                // The second read of the file reports the reason.
                rows = None;
            }
            source.give_back(part);
        }
        if !is_whole {
            rows = None;
            problems.push(format!(
                "block {i} at offset {} is damaged: its checksum differs",
                block.offset
            ));
        }
    }
    hash(source, hashed..size, &mut hasher)?;
    let hash = Hash128::new(hasher.digest128());
    if hash != shard.hash {
        problems.push(format!(
            "the file's hash is {hash}, the manifest says {}",
            shard.hash
        ));
    }
    Ok(rows)
}

/// Hashes a range in pieces.
fn hash(source: &mut Source, range: Range<u64>, hasher: &mut Xxh3) -> Result<(), Error> {
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at + PIECE);
        let part = source.part(at..end)?;
        hasher.update(&part);
        source.give_back(part);
        at = end;
    }
    Ok(())
}

/// Content of a file's footer.
struct Footer {
    blocks: Vec<Place>,
    schema: Schema,
    version: MetadataVersion,
}

impl Footer {
    /// Of a file that is known to be undamaged.
    fn read(source: &mut Source, size: u64) -> Result<Self, Error> {
        let trailer = source.part(size.saturating_sub(TRAILER as u64)..size)?;
        let start = footer_at(size, &trailer)?;
        let end = source.part(start..size)?;
        let blocks = footer_blocks(&end)?;
        let footer = footer_of(&end)?;
        let schema = footer
            .schema()
            .filter(|schema| schema.endianness().equals_to_target_endianness())
            .ok_or_else(|| ArrowError::IpcError("no schema of this machine's byte order".into()))?;
        Ok(Self {
            blocks,
            schema: fb_to_schema(schema),
            version: footer.version(),
        })
    }
}

/// Rows from the blocks of a shard.
#[derive(Default)]
struct Rows {
    keys: Vec<u64>,
    /// Rows of each block.
    rows: Vec<u64>,
    /// Tokens of each block.
    tokens: Vec<Option<u64>>,
    /// Tokens of each row.
    lengths: Vec<u32>,
}

impl Rows {
    /// Reads all blocks that the footer lists.
    fn read(
        &mut self,
        source: &mut Source,
        size: u64,
        footer: &Footer,
        schema: &SchemaRef,
    ) -> Result<(), Error> {
        let decoder = FileDecoder::new(Arc::clone(schema), footer.version);
        for block in &footer.blocks {
            let range = place(*block, size).ok_or_else(|| unfit(*block))?;
            let part = source.part(range)?;
            self.push(&decoder, *block, &part)?;
            source.give_back(part);
        }
        Ok(())
    }

    /// Adds the block whose bytes are `part`.
    fn push(
        &mut self,
        decoder: &FileDecoder,
        block: Place,
        part: &Buffer,
    ) -> Result<(), ArrowError> {
        let batch = decode(decoder, block, part)?;
        self.rows.push(batch.num_rows() as u64);
        let documents = batch
            .column_by_name("tokens")
            .and_then(|column| column.as_list_opt::<i32>());
        let tokens = documents.map(|documents| documents.values().len() as u64);
        self.tokens.push(tokens);
        let each = documents.into_iter().flat_map(|d| d.offsets().lengths());
        let each = each.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
        self.lengths.extend(each);
        let column = batch
            .column_by_name("key")
            .ok_or_else(|| ArrowError::SchemaError("no column `key`".into()))?;
        let keys = column.as_primitive::<UInt64Type>().values();
        self.keys.extend_from_slice(keys);
        Ok(())
    }

    fn problems(&self, shard: &Shard, lengths: Option<&[u32]>) -> Vec<String> {
        let mut problems = Vec::new();
        let expected: Vec<u64> = shard.blocks.iter().map(|b| u64::from(b.rows)).collect();
        if self.rows != expected || self.rows.iter().sum::<u64>() != shard.rows {
            problems.push("the rows of its blocks are not those the manifest says".into());
        }
        let listed: Vec<Option<u64>> = shard.blocks.iter().map(|b| b.tokens).collect();
        if self.tokens != listed || lengths.is_some_and(|lengths| lengths != self.lengths) {
            problems.push("its documents are not as long as the manifest says".into());
        }
        problems
    }
}

fn unfit((offset, ..): Place) -> ArrowError {
    ArrowError::IpcError(format!("no record batch at offset {offset}"))
}

/// Rows of the block with bytes `part`, which may share its memory.
fn decode(decoder: &FileDecoder, block: Place, part: &Buffer) -> Result<RecordBatch, ArrowError> {
    // Marker and length before a message.
    const PREFIX: u32 = 8;
    let (offset, metadata_bytes, body_bytes) = block;
    let (Ok(offset), Ok(metadata), Ok(body)) = (
        i64::try_from(offset),
        i32::try_from(metadata_bytes),
        i64::try_from(body_bytes),
    ) else {
        return Err(unfit(block));
    };
    if metadata_bytes < PREFIX {
        return Err(unfit(block));
    }
    let message = ipc::Block::new(offset, metadata, body);
    let rows = decoder.read_record_batch(&message, part)?;
    rows.ok_or_else(|| unfit(block))
}
