//! Files of datasets that were not written by us: what they are called, how long they are, and what has been read of
//! them.
//!
//! Most of these formats have no checksums. The CRC32C of every part is remembered when it is first read and makes sense;
//! a part that comes back different later in the run is refused, so that no epoch mixes two versions of a file.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use feedline_schemas::{
    ids::Hash128,
    manifest::{Block, Shard, Split, SplitShards},
};
use feedline_storage::{Listed, Store};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{
    Error,
    block_table::BlockTable,
    fetch::{Extent, Extents, FetchError, Identity},
};

/// Reads of files' descriptions under way at one time while a dataset is opened.
pub(super) const OPEN_READS: usize = 16;

/// The files of a dataset.
#[derive(Debug)]
pub(super) struct Foreign {
    store: Store,
    files: Vec<File>,
    /// CRC32C of what has been read, by file and offset.
    remembered: Mutex<HashMap<(u32, u64), u32>>,
    rereads: AtomicU64,
}

/// A file of a dataset.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) path: Arc<str>,
    pub(super) bytes: u64,
    /// Hash of its name without the folder it was found in, so that a dataset that was moved keeps its keys.
    name_hash: u64,
}

/// Reason not to use bytes that were read.
#[derive(Clone, Debug)]
pub(super) enum RefusedBytes {
    /// It makes no sense.
    Damaged(String),
    /// It is as it was written, and no model can use it.
    Content(String),
}

impl From<String> for RefusedBytes {
    fn from(reason: String) -> Self {
        Self::Damaged(reason)
    }
}

impl RefusedBytes {
    fn reason(&self) -> &str {
        match self {
            Self::Damaged(reason) | Self::Content(reason) => reason,
        }
    }
}

/// A block to be: rows, and bytes it takes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockSize {
    pub(super) rows: u32,
    pub(super) bytes: u64,
}

impl Foreign {
    /// The files `listed` of the folder `store`; `folder` is the part of it that is read.
    pub(super) fn new(store: &Store, folder: &str, listed: Vec<Listed>) -> Self {
        let files = listed.into_iter().map(|file| File {
            name_hash: xxh3_64(
                file.path
                    .strip_prefix(folder)
                    .unwrap_or(&file.path)
                    .trim_matches('/')
                    .as_bytes(),
            ),
            path: file.path.into(),
            bytes: file.bytes,
        });
        Self {
            store: store.clone(),
            files: files.collect(),
            remembered: Mutex::default(),
            rereads: AtomicU64::new(0),
        }
    }

    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    pub(super) fn file(&self, file: u32) -> &File {
        &self.files[file as usize]
    }

    pub(super) fn rereads(&self) -> u64 {
        self.rereads.load(Relaxed)
    }

    /// URL of a file, for messages.
    pub(super) fn url(&self, file: u32) -> String {
        self.store.url_of(&self.file(file).path)
    }

    /// An error about a file as a whole.
    pub(super) fn refuse(&self, file: u32, reason: impl Into<String>) -> Error {
        Error::File {
            url: self.url(file),
            reason: reason.into(),
        }
    }

    /// Reads part of a file while the dataset is opened.
    pub(super) async fn get_range(&self, file: u32, range: Range<u64>) -> Result<Bytes, Error> {
        let read = self.store.get_range(&self.file(file).path, range);
        read.await.map_err(|source| Error::Storage {
            url: self.url(file),
            source: Box::new(source),
        })
    }

    /// Reads the parts `ranges` of a file for block `block` of it and has `accept` take them; on refusal once more.
    pub(super) async fn read<T>(
        &self,
        extents: &dyn Extents,
        place: (u32, u32),
        ranges: &[Range<u64>],
        first: u64,
        accept: impl Fn(Vec<Bytes>) -> Result<T, RefusedBytes> + Clone + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
    {
        let (file, block) = place;
        let mut refused: Option<RefusedBytes> = None;
        for _ in 0..2 {
            if let Some(reason) = &refused {
                tracing::warn!(
                    file = self.url(file),
                    block,
                    reason = reason.reason(),
                    "reading a block again"
                );
                self.rereads.fetch_add(1, Relaxed);
            }
            let mut parts = Vec::with_capacity(ranges.len());
            for range in ranges {
                let part = self.part(extents, file, range.clone(), first).await;
                parts.push(part.map_err(|error| self.explain(place, error))?);
            }
            let sums = self.sums(file, ranges, &parts);
            let accept = accept.clone();
            let accepted = tokio::task::spawn_blocking(move || accept(parts)).await;
            match accepted.unwrap_or_else(|panic| Err(panic.to_string().into())) {
                Ok(value) => {
                    self.remember(file, sums);
                    return Ok(value);
                }
                Err(reason) => refused = Some(reason),
            }
        }
        match refused {
            Some(RefusedBytes::Content(reason)) => {
                Err(self.refuse(file, format!("in block `{block}`, {reason}")))
            }
            refused => Err(Error::Corrupt {
                shard: self.url(file),
                block,
                reason: refused.map_or_else(String::new, |refused| refused.reason().to_owned()),
            }),
        }
    }

    /// Reads part of a file without remembering it.
    pub(super) async fn glance(
        &self,
        extents: &dyn Extents,
        place: (u32, u32),
        (range, identity): (Range<u64>, Identity),
        first: u64,
    ) -> Result<Bytes, Error> {
        let extent = Extent {
            crc32c: None,
            identity,
            ..self.extent(place.0, range, first)
        };
        let read = extents.get(&extent).await;
        read.map_err(|error| self.explain(place, error))
    }

    async fn part(
        &self,
        extents: &dyn Extents,
        file: u32,
        range: Range<u64>,
        first: u64,
    ) -> Result<Bytes, FetchError> {
        extents.get(&self.extent(file, range, first)).await
    }

    /// Part of a file, with the checksum that it had when it was read before.
    pub(super) fn extent(&self, file: u32, range: Range<u64>, first: u64) -> Extent {
        Extent {
            path: Arc::clone(&self.file(file).path),
            crc32c: self.lock().get(&(file, range.start)).copied(),
            identity: Identity::Version,
            range,
            first,
        }
    }

    /// Checksums of the parts that were not compared with a remembered one.
    fn sums(&self, file: u32, ranges: &[Range<u64>], parts: &[Bytes]) -> Vec<(u64, u32)> {
        let unknown = |start| !self.lock().contains_key(&(file, start));
        let starts = ranges.iter().map(|range| range.start);
        let fresh = starts.zip(parts).filter(|(start, _)| unknown(*start));
        fresh
            .map(|(start, part)| (start, crc32c::crc32c(part)))
            .collect()
    }

    fn remember(&self, file: u32, sums: Vec<(u64, u32)>) {
        let entries = sums.into_iter().map(|(start, sum)| ((file, start), sum));
        self.lock().extend(entries);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(u32, u64), u32>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn explain(&self, (file, block): (u32, u32), error: FetchError) -> Error {
        match error {
            FetchError::Corrupt {
                expected, found, ..
            } => Error::Corrupt {
                shard: self.url(file),
                block,
                reason: format!(
                    "its checksum is `{found:08x}` and was `{expected:08x}` when it was first read"
                ),
            },
            other => Error::Read {
                shard: self.url(file),
                block,
                source: Box::new(other),
            },
        }
    }

    /// The block table of files with these blocks, in the order of the files.
    pub(super) fn block_table(
        &self,
        split: Split,
        blocks: &[Vec<BlockSize>],
    ) -> Result<Arc<BlockTable>, Error> {
        let shards: Vec<Shard> = self
            .files
            .iter()
            .zip(blocks)
            .map(|(file, blocks)| shard_of(&file.path, blocks))
            .collect();
        let refuse = |reason: String| Error::File {
            url: self.store.url(),
            reason,
        };
        let rows = shards.iter().map(|shard| shard.rows).sum();
        if rows == 0 {
            return Err(refuse("none of its files has a sample".into()));
        }
        let split = SplitShards {
            split,
            rows,
            shards,
            table: None,
        };
        BlockTable::new(&split).map(Arc::new).map_err(refuse)
    }

    /// Keys of the rows from `first` on of a file that has none.
    pub(super) fn keys(&self, file: u32, first: u64, rows: usize) -> Vec<u64> {
        let seed = self.file(file).name_hash;
        let key = |row: u64| xxh3_64_with_seed(&row.to_le_bytes(), seed);
        (first..first + rows as u64).map(key).collect()
    }
}

/// Offsets are those of the blocks' decoded rows, stored one after the other.
fn shard_of(path: &str, sizes: &[BlockSize]) -> Shard {
    let mut offset = 0;
    let blocks = sizes.iter().map(|size| {
        let block = Block {
            offset,
            metadata_bytes: 0,
            body_bytes: size.bytes,
            rows: size.rows,
            crc32c: 0,
            tokens: None,
        };
        offset += size.bytes;
        block
    });
    let blocks = blocks.collect();
    Shard {
        path: path.to_owned(),
        rows: sizes.iter().map(|size| u64::from(size.rows)).sum(),
        bytes: offset,
        hash: Hash128::new(0),
        blocks,
        head_crc32c: None,
        lengths: None,
    }
}

/// Origins of the rows from `first` on of a file: file (24 bits) and row (40 bits).
pub(super) fn origins(file: u32, first: u64, rows: usize) -> Vec<u64> {
    let base = u64::from(file) << 40;
    (first..first + rows as u64).map(|row| base | row).collect()
}
