//! Reading one block of a shard: by range, checked before anybody sees it, asked for twice at most.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use feedline_schemas::{
    ids::Hash128,
    manifest::{Layout, Shard},
};
use feedline_storage::Store;
use tokio::sync::OnceCell;

use crate::{
    Error,
    block::BlockRows,
    columns::ShardColumns,
    geometry::{BlockId, Geometry},
    metrics::Meters,
};

/// The shards of a split. Shared by all passes over it, so that each shard's head is read once.
#[derive(Debug)]
pub(crate) struct Source {
    store: Store,
    geometry: Arc<Geometry>,
    layout: Layout,
    fingerprint: Hash128,
    columns: Vec<OnceCell<Arc<ShardColumns>>>,
    /// Columns of the shard read first, for all that have the same.
    usual_columns: OnceLock<Arc<ShardColumns>>,
    meters: Arc<Meters>,
}

/// Why bytes were not taken.
enum Refusal {
    Store(feedline_storage::Error),
    Content(String),
}

impl Source {
    /// The shards of `geometry` in the dataset folder `store`.
    pub(crate) fn new(
        store: Store,
        geometry: Arc<Geometry>,
        layout: Layout,
        fingerprint: Hash128,
        meters: Arc<Meters>,
    ) -> Self {
        let columns = (0..geometry.shard_count())
            .map(|_| OnceCell::new())
            .collect();
        Self {
            store,
            geometry,
            layout,
            fingerprint,
            columns,
            usual_columns: OnceLock::new(),
            meters,
        }
    }

    /// Reads a block.
    ///
    /// # Errors
    /// [`Error`], when the shard is missing or short, has other columns, or the block is damaged or unreadable twice.
    pub(crate) async fn read(&self, block: BlockId) -> Result<BlockRows, Error> {
        let columns = self.columns(block).await?;
        let shard = self.geometry.shard(block).0;
        let (entry, number) = self.geometry.block(block);
        let range = self.geometry.byte_range(block);
        let bytes = range.end - range.start;
        let read = |bytes| {
            self.meters.time(&self.meters.check, || {
                BlockRows::read(bytes, entry, columns, &self.layout)
            })
        };
        match self.twice(shard, range, read).await {
            Ok(rows) => {
                self.meters.blocks.add(1);
                self.meters.block_bytes.add(bytes);
                Ok(rows)
            }
            Err(Refusal::Content(reason)) => Err(Error::Corrupt {
                shard: self.url(shard),
                block: number,
                reason,
            }),
            Err(Refusal::Store(source)) => Err(self.explain(shard, number, source).await),
        }
    }

    async fn columns(&self, block: BlockId) -> Result<&ShardColumns, Error> {
        let (shard, number) = self.geometry.shard(block);
        let columns = self.columns[number].get_or_try_init(|| self.read_columns(shard));
        Ok(columns.await?.as_ref())
    }

    async fn read_columns(&self, shard: &Shard) -> Result<Arc<ShardColumns>, Error> {
        let head = 0..shard.blocks.first().map_or(0, |first| first.offset);
        match self
            .twice(shard, head, |bytes| {
                ShardColumns::read(&bytes, &self.layout)
            })
            .await
        {
            Ok(columns) => Ok(self.shared(columns)),
            Err(Refusal::Content(reason)) => Err(Error::ShardSchema {
                shard: self.url(shard),
                reason,
            }),
            Err(Refusal::Store(source)) => Err(self.explain(shard, 0, source).await),
        }
    }

    fn shared(&self, columns: ShardColumns) -> Arc<ShardColumns> {
        let usual = self.usual_columns.get_or_init(|| Arc::new(columns.clone()));
        if **usual == columns {
            Arc::clone(usual)
        } else {
            Arc::new(columns)
        }
    }

    /// Reads `range` of `shard` and has `accept` take it; on refusal, once more.
    async fn twice<T>(
        &self,
        shard: &Shard,
        range: Range<u64>,
        accept: impl Fn(Bytes) -> Result<T, String>,
    ) -> Result<T, Refusal> {
        let first = self.once(shard, range.clone(), &accept).await;
        let reason = match first {
            Ok(value) => return Ok(value),
            Err(Refusal::Store(error)) if error.is_not_found() => {
                return Err(Refusal::Store(error));
            }
            Err(Refusal::Store(error)) => error.to_string(),
            Err(Refusal::Content(reason)) => reason,
        };
        tracing::warn!(
            shard = self.url(shard),
            offset = range.start,
            reason,
            "reading part of a shard again"
        );
        self.meters.refetches.add(1);
        self.once(shard, range, &accept).await
    }

    async fn once<T>(
        &self,
        shard: &Shard,
        range: Range<u64>,
        accept: &impl Fn(Bytes) -> Result<T, String>,
    ) -> Result<T, Refusal> {
        let bytes = self
            .store
            .get_range(&shard.path, range)
            .await
            .map_err(Refusal::Store)?;
        accept(bytes).map_err(Refusal::Content)
    }

    /// Finds the plainest reason for which a shard cannot be read.
    async fn explain(&self, shard: &Shard, block: u32, source: feedline_storage::Error) -> Error {
        if source.is_not_found() {
            return Error::ShardMissing {
                shard: self.url(shard),
                fingerprint: self.fingerprint,
            };
        }
        match self.store.size(&shard.path).await {
            Ok(found) if found < shard.bytes => Error::ShardTruncated {
                shard: self.url(shard),
                expected: shard.bytes,
                found,
            },
            _ => Error::Read {
                shard: self.url(shard),
                block,
                source: Box::new(source),
            },
        }
    }

    fn url(&self, shard: &Shard) -> String {
        self.store.url_of(&shard.path)
    }
}
