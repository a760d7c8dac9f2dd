//! Our own shards: a manifest, and Arrow IPC files with a checksum for every block.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arrow::buffer::ScalarBuffer;
use bytes::Bytes;
use feedline_schemas::manifest::{Layout, Manifest, Split, TargetKind};
use feedline_storage::Store;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

use super::block_rows::{self, BlockRows};
use super::{
    columns::ShardColumns,
    foreign::OPEN_READS,
    labels,
    lengths::DocumentLengths,
    manifest,
    opened::{OpenedInput, Skipped},
    record::RowContent,
};
use crate::{
    Error,
    block_table::{BlockId, BlockTable},
    config::BadShards,
    fetch::{Extent, Extents, FetchError, Identity},
};

/// The shards of a split. Heads that are the same are read once.
#[derive(Debug)]
pub(crate) struct Shards {
    store: Store,
    manifest: Manifest,
    block_table: Arc<BlockTable>,
    /// Columns by head.
    heads: Mutex<HashMap<ShardHead, Arc<OnceCell<Arc<ShardColumns>>>>>,
    /// Columns of the shard read first, for all that have the same.
    usual_columns: OnceLock<Arc<ShardColumns>>,
    rereads: AtomicU64,
}

/// Head of a shard. Shards of a dataset mostly have the same: then it is read of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ShardHead {
    /// Known by length and checksum.
    Like { bytes: u64, crc32c: u32 },
    /// Of this shard.
    Of(u32),
}

impl Shards {
    /// Reads `CURRENT`, the manifest it names, and the sizes of the shards.
    pub(super) async fn open(
        store: &Store,
        split: Split,
        bad: BadShards,
    ) -> Result<(OpenedInput<Self>, Skipped), Error> {
        let manifest = manifest::read(store).await?;
        let url = store.url();
        let Some(shards) = manifest.split(split).filter(|split| split.rows > 0) else {
            return Err(Error::EmptySplit { url, split });
        };
        let refuse = |reason| Error::Manifest {
            url: url.clone(),
            reason,
        };
        if matches!(manifest.layout, Layout::Dense { features: 0, .. }) {
            return Err(refuse("its rows have no features".into()));
        }
        if let TargetKind::Classification { classes } = manifest.layout.target()
            && manifest.counts.classes.len() != classes as usize
        {
            let named = manifest.counts.classes.len();
            return Err(refuse(format!(
                "it names `{named}` of `{classes}` classes, so nobody can tell which class an id is; a release that gave ids \
                 by frequency built it: build it again"
            )));
        }
        let (block_table, skipped) = manifest::block_table(store, shards, bad).await?;
        let block_table = Arc::new(block_table);
        let opened = OpenedInput {
            record: RowContent::from(&manifest.layout),
            block_table: Arc::clone(&block_table),
            fingerprint: manifest.fingerprint,
            classes: Vec::new(),
            background: None,
            format: Self {
                store: store.clone(),
                block_table,
                heads: Mutex::default(),
                usual_columns: OnceLock::new(),
                rereads: AtomicU64::new(0),
                manifest,
            },
        };
        Ok((opened, skipped))
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) fn url_of(&self, block: BlockId) -> String {
        self.url(self.block_table.file_number(block))
    }

    pub(super) fn rereads(&self) -> u64 {
        self.rereads.load(Relaxed)
    }

    pub(super) async fn read(
        &self,
        block: BlockId,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<BlockRows, Error> {
        let columns = self.columns(block, first, extents).await?;
        let (shard, number) = (
            self.block_table.file_number(block),
            self.block_table.number(block),
        );
        let entry = self.block_table.block(block);
        let bytes = match extents.get(&self.extent(block, first)).await {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.explain(shard, number, error)),
        };
        block_rows::decode(bytes, &entry, &columns, &self.manifest.layout).map_err(|reason| {
            Error::Corrupt {
                shard: self.url(shard),
                block: number,
                reason,
            }
        })
    }

    /// The class of every row of a block, read without the rest and so without a checksum; `None` where that makes no
    /// sense.
    pub(super) async fn classes(
        &self,
        block: BlockId,
        extents: &dyn Extents,
    ) -> Result<Option<Vec<i32>>, Error> {
        let bytes = self.column(block, extents, labels::range_of_classes);
        Ok(bytes.await?.map(|bytes| labels::classes(&bytes)))
    }

    /// The key of every row of a block, as [`classes`](Self::classes).
    pub(super) async fn keys(
        &self,
        block: BlockId,
        extents: &dyn Extents,
    ) -> Result<Option<Vec<u64>>, Error> {
        let bytes = self.column(block, extents, labels::range_of_keys);
        Ok(bytes.await?.map(|bytes| labels::keys(&bytes)))
    }

    /// The bytes of a column of a block, which `range_of` finds by its metadata, read without the rest.
    async fn column(
        &self,
        block: BlockId,
        extents: &dyn Extents,
        range_of: fn(&[u8], &ShardColumns, u32) -> Option<Range<u64>>,
    ) -> Result<Option<Bytes>, Error> {
        let columns = self.columns(block, 0, extents).await?;
        let (shard, number) = (
            self.block_table.file_number(block),
            self.block_table.number(block),
        );
        let entry = self.block_table.block(block);
        if entry.rows == 0 {
            return Ok(Some(Bytes::new()));
        }
        let body = entry.offset + u64::from(entry.metadata_bytes);
        let part = async |range| {
            let extent = Extent {
                range,
                crc32c: None,
                ..self.extent(block, 0)
            };
            let bytes = extents.get(&extent).await;
            bytes.map_err(|error| self.explain(shard, number, error))
        };
        let metadata = part(entry.offset..body).await?;
        let Some(range) =
            range_of(&metadata, &columns, entry.rows).filter(|range| range.end <= entry.body_bytes)
        else {
            return Ok(None);
        };
        Ok(Some(part(body + range.start..body + range.end).await?))
    }

    /// Extent to read for a block.
    pub(super) fn extent(&self, block: BlockId, first: u64) -> Extent {
        Extent {
            path: self
                .block_table
                .path(self.block_table.file_number(block))
                .into(),
            range: self.block_table.byte_range(block),
            crc32c: Some(self.block_table.crc32c(block)),
            identity: Identity::Checksum,
            first,
        }
    }

    async fn columns(
        &self,
        block: BlockId,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<Arc<ShardColumns>, Error> {
        let shard = self.block_table.file_number(block);
        let head = match self.block_table.head(shard) {
            (bytes, Some(crc32c)) => ShardHead::Like { bytes, crc32c },
            (_, None) => ShardHead::Of(shard),
        };
        let columns = {
            let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(heads.entry(head).or_default())
        };
        let read = columns.get_or_try_init(async || {
            // Always of the same one, so that every run finds it in a cache; unless that one cannot be read.
            let alike = self.first_with(head, shard);
            if alike != shard
                && let Ok(columns) = self.read_columns(alike, first, extents).await
            {
                return Ok(columns);
            }
            self.read_columns(shard, first, extents).await
        });
        read.await.map(Arc::clone)
    }

    /// The first shard that begins like `shard`.
    fn first_with(&self, head: ShardHead, shard: u32) -> u32 {
        match head {
            ShardHead::Of(shard) => shard,
            ShardHead::Like { bytes, crc32c } => (0..shard)
                .find(|other| self.block_table.head(*other) == (bytes, Some(crc32c)))
                .unwrap_or(shard),
        }
    }

    /// Reads the head of a shard. Older manifests have no checksum of it; so when it makes no sense it is read once more.
    async fn read_columns(
        &self,
        shard: u32,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<Arc<ShardColumns>, Error> {
        let (bytes, crc32c) = self.block_table.head(shard);
        let extent = Extent {
            path: self.block_table.path(shard).into(),
            range: 0..bytes,
            identity: match crc32c {
                Some(_) => Identity::Checksum,
                None => Identity::Version,
            },
            crc32c,
            first,
        };
        let mut refused = None;
        for _ in 0..2 {
            if let Some(reason) = &refused {
                tracing::warn!(
                    shard = self.url(shard),
                    reason,
                    "reading the head of a shard again"
                );
                self.rereads.fetch_add(1, Relaxed);
            }
            let head = match extents.get(&extent).await {
                Ok(head) => head,
                Err(error) => return Err(self.explain(shard, 0, error)),
            };
            match self.understand(&head) {
                Ok(columns) => return Ok(columns),
                Err(reason) => refused = Some(reason),
            }
        }
        Err(Error::ShardSchema {
            shard: self.url(shard),
            reason: refused.unwrap_or_default(),
        })
    }

    fn understand(&self, head: &Bytes) -> Result<Arc<ShardColumns>, String> {
        let columns = ShardColumns::read(head, &self.manifest.layout)?;
        let usual = self.usual_columns.get_or_init(|| Arc::new(columns.clone()));
        Ok(if **usual == columns {
            Arc::clone(usual)
        } else {
            Arc::new(columns)
        })
    }

    /// Reads the lengths of all documents.
    pub(super) async fn lengths(&self, extents: &dyn Extents) -> Result<DocumentLengths, Error> {
        let shards = (0..).take(self.block_table.shard_count());
        let reads = shards.map(|shard| self.lengths_of(shard, extents));
        let lengths = stream::iter(reads)
            .buffered(OPEN_READS)
            .try_collect()
            .await?;
        Ok(DocumentLengths::new(&self.block_table, lengths))
    }

    async fn lengths_of(
        &self,
        shard: u32,
        extents: &dyn Extents,
    ) -> Result<ScalarBuffer<u32>, Error> {
        let name = self.block_table.path(shard);
        let blocks = self.block_table.blocks_of(shard);
        let refuse = |reason: String| Error::Manifest {
            url: self.store.url(),
            reason,
        };
        let Some(lengths) = self.block_table.lengths(shard) else {
            return Err(refuse(format!(
                "shard `{name}` has no lengths of documents"
            )));
        };
        let rows: u64 = blocks
            .clone()
            .map(|b| u64::from(self.block_table.rows(b)))
            .sum();
        let extent = Extent {
            path: lengths.path.as_str().into(),
            range: 0..rows * 4,
            crc32c: Some(lengths.crc32c),
            identity: Identity::Checksum,
            first: 0,
        };
        let bytes = extents.get(&extent).await.map_err(|source| Error::Read {
            shard: self.store.url_of(&lengths.path),
            block: 0,
            source: Box::new(source),
        })?;
        let numbers = bytes.chunks_exact(4);
        let numbers: ScalarBuffer<u32> = numbers
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        let mut rest = numbers.iter();
        for block in blocks {
            let rows = rest.by_ref().take(self.block_table.rows(block) as usize);
            let sum: u64 = rows.map(|n| u64::from(*n)).sum();
            if self
                .block_table
                .tokens(block)
                .is_some_and(|tokens| tokens != sum)
            {
                return Err(refuse(format!(
                    "the lengths of shard `{name}` do not fit its blocks"
                )));
            }
        }
        Ok(numbers)
    }

    /// Finds the plainest reason for which a shard cannot be read.
    fn explain(&self, shard: u32, block: u32, error: FetchError) -> Error {
        let url = self.url(shard);
        match error {
            FetchError::Corrupt {
                expected, found, ..
            } => Error::Corrupt {
                shard: url,
                block,
                reason: format!(
                    "its checksum is `{found:08x}` and the manifest says `{expected:08x}`"
                ),
            },
            FetchError::Missing { .. } => Error::ShardMissing {
                shard: url,
                fingerprint: self.manifest.fingerprint,
            },
            FetchError::Truncated { size, .. } => Error::ShardTruncated {
                shard: url,
                expected: self.block_table.shard_bytes(shard),
                found: size,
            },
            error => Error::Read {
                shard: url,
                block,
                source: Box::new(error),
            },
        }
    }

    fn url(&self, shard: u32) -> String {
        self.store.url_of(&self.block_table.path(shard))
    }
}
