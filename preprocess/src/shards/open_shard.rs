//! A shard while it is written: in a growing file where the store is a local disk, otherwise in
//! memory. Hash and checksums are computed as the bytes pass.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{
    array::RecordBatch,
    datatypes::SchemaRef,
    error::ArrowError,
    ipc::{
        MetadataVersion,
        writer::{FileWriter, IpcWriteOptions},
    },
};
use bytes::Bytes;
use feedline_schemas::{
    ids::Hash128,
    manifest::{Block, Shard, Split},
};
use feedline_storage::{Growing, Store};
use xxhash_rust::xxh3::Xxh3;

use super::{
    footer::footer_blocks,
    stored_shard::{Stored, path_of, put_lengths},
};
use crate::Error;

/// Alignment of buffers, in bytes.
const ALIGNMENT: usize = 64;

fn options() -> Result<IpcWriteOptions, ArrowError> {
    IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)
}

/// Bytes of a shard before its first block.
pub(crate) fn head_of(schema: &SchemaRef) -> Result<Vec<u8>, ArrowError> {
    let file = FileWriter::try_new_with_options(Vec::new(), schema, options()?)?;
    Ok(file.get_ref().clone())
}

/// A shard that blocks are put to.
pub(super) struct OpenShard {
    file: FileWriter<Sink>,
    head_crc32c: u32,
    blocks: Vec<Written>,
    /// Tokens of each row.
    lengths: Vec<u32>,
}

/// A block that was written.
struct Written {
    rows: u32,
    tokens: Option<u64>,
    crc32c: u32,
    /// Its first byte, and the one behind its last.
    bytes: (u64, u64),
}

impl OpenShard {
    /// A shard that will be in `folder` of `store`. Where that is no local disk, it is in the memory of `room`, with space for
    /// the `expected` bytes.
    pub(super) fn begin(
        store: &Store,
        folder: &str,
        schema: &SchemaRef,
        mut room: Vec<u8>,
        expected: usize,
    ) -> Result<Self, Error> {
        let to = match store.grow(folder)? {
            Some(file) => To::File(Box::new(file)),
            None => {
                room.clear();
                room.reserve_exact(expected);
                To::Memory(room)
            }
        };
        let failed = Failed::default();
        let sink = Sink {
            to,
            bytes: 0,
            hash: Xxh3::new(),
            crc32c: 0,
            tail: None,
            failed: failed.clone(),
        };
        let file = FileWriter::try_new_with_options(sink, schema, options()?);
        let mut file = file.map_err(|e| failed.error(e))?;
        Ok(Self {
            head_crc32c: file.get_mut().checksum(),
            file,
            blocks: Vec::new(),
            lengths: Vec::new(),
        })
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.file.get_ref().bytes
    }

    pub(super) fn is_in_memory(&self) -> bool {
        matches!(self.file.get_ref().to, To::Memory(_))
    }

    /// Writes a block, whose documents have so many `tokens` and these `lengths`.
    pub(super) fn write(
        &mut self,
        batch: &RecordBatch,
        tokens: Option<u64>,
        lengths: &[u32],
    ) -> Result<(), Error> {
        let start = self.bytes();
        let written = self.file.write(batch);
        let sink = self.file.get_mut();
        written.map_err(|e| sink.failed.error(e))?;
        self.blocks.push(Written {
            rows: u32::try_from(batch.num_rows()).expect("a block has fewer than 2^31 rows"),
            tokens,
            crc32c: sink.checksum(),
            bytes: (start, sink.bytes),
        });
        self.lengths.extend_from_slice(lengths);
        Ok(())
    }

    /// Stores the shard as the one at `index` of `split`; returns memory that is free again.
    pub(super) async fn stored(
        self,
        store: Store,
        split: Split,
        index: usize,
        has_lengths: bool,
    ) -> Result<Stored, Error> {
        let ended = tokio::task::spawn_blocking(move || self.ended(split, index));
        let (mut shard, to, lengths) = ended.await??;
        if has_lengths {
            shard.lengths = Some(put_lengths(&store, &shard.path, &lengths).await?);
        }
        let room = match to {
            To::File(file) => {
                let path = shard.path.clone();
                let put = tokio::task::spawn_blocking(move || file.put(&path));
                put.await??;
                Vec::new()
            }
            To::Memory(bytes) => {
                let bytes = Bytes::from(bytes);
                store.put(&shard.path, bytes.clone()).await?;
                // No copy: nothing else refers to them any longer.
                Vec::from(bytes)
            }
        };
        Ok((index, shard, room))
    }

    /// Writes the footer. Returns what the manifest says of the shard, its bytes, and the lengths of its documents.
    fn ended(mut self, split: Split, index: usize) -> Result<(Shard, To, Vec<u32>), Error> {
        self.file.get_mut().tail = Some(Vec::new());
        let finished = self.file.finish();
        finished.map_err(|e| self.file.get_ref().failed.error(e))?;
        let sink = self.file.into_inner()?;
        let hash = Hash128::new(sink.hash.digest128());
        let listed = footer_blocks(sink.tail.as_deref().unwrap_or_default())?;
        let places = self.blocks.iter().map(|block| block.bytes);
        let found = listed.iter().map(|(offset, metadata, body)| {
            let end = offset + u64::from(*metadata) + body;
            (*offset, end)
        });
        assert!(
            found.eq(places),
            "the footer lists every block where it was written"
        );
        let blocks = listed.into_iter().zip(&self.blocks);
        let blocks = blocks.map(|((offset, metadata_bytes, body_bytes), written)| Block {
            offset,
            metadata_bytes,
            body_bytes,
            rows: written.rows,
            crc32c: written.crc32c,
            tokens: written.tokens,
        });
        let shard = Shard {
            path: path_of(split, index, hash),
            rows: self.blocks.iter().map(|block| u64::from(block.rows)).sum(),
            bytes: sink.bytes,
            hash,
            head_crc32c: (!self.blocks.is_empty()).then_some(self.head_crc32c),
            blocks: blocks.collect(),
            lengths: None,
        };
        Ok((shard, sink.to, self.lengths))
    }
}

/// Takes the bytes of a shard.
struct Sink {
    to: To,
    /// Bytes so far.
    bytes: u64,
    hash: Xxh3,
    /// Of the bytes since [`Sink::checksum`].
    crc32c: u32,
    /// Bytes written since the last put.
    tail: Option<Vec<u8>>,
    /// Cause of the last failed write.
    failed: Failed,
}

enum To {
    Memory(Vec<u8>),
    File(Box<Growing>),
}

/// Cause of a failed write, which Arrow's errors cannot hold.
#[derive(Clone, Default)]
struct Failed(Arc<Mutex<Option<feedline_storage::Error>>>);

impl Failed {
    fn put(&self, error: feedline_storage::Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Error of a failed write.
    fn error(&self, error: ArrowError) -> Error {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or_else(|| error.into(), Error::from)
    }
}

impl Sink {
    /// Checksum of the bytes since it was last asked for.
    fn checksum(&mut self) -> u32 {
        std::mem::take(&mut self.crc32c)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = match &mut self.to {
            To::Memory(all) => all.write(bytes)?,
            To::File(file) => file.write(bytes).map_err(|e| {
                let kind = e.kind();
                // An interrupted write is made again.
                if kind != io::ErrorKind::Interrupted {
                    self.failed.put(file.error(e));
                }
                io::Error::from(kind)
            })?,
        };
        let written = &bytes[..count];
        self.bytes += count as u64;
        self.hash.update(written);
        self.crc32c = crc32c::crc32c_append(self.crc32c, written);
        if let Some(tail) = &mut self.tail {
            tail.extend_from_slice(written);
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
