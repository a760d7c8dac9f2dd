//! Our own shards: a manifest, and Arrow IPC files with a checksum for every block.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use arrow::buffer::ScalarBuffer;
use bytes::Bytes;
use feedline_schemas::{
    decode,
    manifest::{Layout, Manifest, Shard, Split},
};
use feedline_storage::Store;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

use super::{DocumentLengths, Opened, Record, columns::ShardColumns, foreign::OPEN_READS, labels};
use crate::{
    Error,
    block::{self, BlockRows},
    fetch::{Extent, Extents, FetchError, Identity},
    geometry::{BlockId, Geometry},
};

/// The shards of a split. Each shard's head is read once.
#[derive(Debug)]
pub(crate) struct Shards {
    store: Store,
    manifest: Manifest,
    geometry: Arc<Geometry>,
    split: Split,
    /// Path and columns of every shard.
    heads: Vec<(Arc<str>, OnceCell<Arc<ShardColumns>>)>,
    /// Columns of the shard read first, for all that have the same.
    usual_columns: OnceLock<Arc<ShardColumns>>,
    rereads: AtomicU64,
}

impl Shards {
    /// Reads `CURRENT` and the manifest it names, and no shard yet.
    pub(super) async fn open(store: &Store, split: Split) -> Result<Opened<Self>, Error> {
        let manifest = read_manifest(store).await?;
        let url = store.url();
        let Some(shards) = manifest.split(split).filter(|split| split.rows > 0) else {
            return Err(Error::EmptySplit { url, split });
        };
        let refuse = |reason| Error::Manifest {
            url: url.clone(),
            reason,
        };
        let geometry = Geometry::new(shards).map_err(refuse)?;
        if matches!(manifest.layout, Layout::Dense { features: 0, .. }) {
            return Err(refuse("its rows have no features".into()));
        }
        let heads = shards.shards.iter().map(|s| s.path.as_str().into());
        let heads = heads.map(|path| (path, OnceCell::new())).collect();
        let geometry = Arc::new(geometry);
        Ok(Opened {
            record: Record::from(&manifest.layout),
            geometry: Arc::clone(&geometry),
            fingerprint: manifest.fingerprint,
            format: Self {
                store: store.clone(),
                geometry,
                heads,
                usual_columns: OnceLock::new(),
                rereads: AtomicU64::new(0),
                split,
                manifest,
            },
        })
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) fn url_of(&self, block: BlockId) -> String {
        self.url(self.geometry.shard(block).0)
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
        let shard = self.geometry.shard(block).0;
        let (entry, number) = self.geometry.block(block);
        let bytes = match extents.get(&self.extent(block, first)).await {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.explain(shard, number, error)),
        };
        block::decode(bytes, entry, columns, &self.manifest.layout).map_err(|reason| {
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
        let columns = self.columns(block, 0, extents).await?;
        let (shard, (entry, number)) = (self.geometry.shard(block).0, self.geometry.block(block));
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
        let Some(classes) = labels::range_of_classes(&metadata, columns, entry.rows)
            .filter(|range| range.end <= entry.body_bytes)
        else {
            return Ok(None);
        };
        let bytes = part(body + classes.start..body + classes.end).await?;
        Ok(Some(labels::classes(&bytes)))
    }

    /// What is read for a block.
    pub(super) fn extent(&self, block: BlockId, first: u64) -> Extent {
        Extent {
            path: Arc::clone(&self.heads[self.geometry.shard(block).1].0),
            range: self.geometry.byte_range(block),
            crc32c: Some(self.geometry.block(block).0.crc32c),
            identity: Identity::Checksum,
            first,
        }
    }

    async fn columns(
        &self,
        block: BlockId,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<&ShardColumns, Error> {
        let (shard, number) = self.geometry.shard(block);
        let columns = &self.heads[number].1;
        let columns = columns.get_or_try_init(|| self.read_columns(shard, number, first, extents));
        Ok(columns.await?.as_ref())
    }

    /// Reads the head of a shard. Older manifests have no checksum of it; so when it makes no sense it is read once more.
    async fn read_columns(
        &self,
        shard: &Shard,
        number: usize,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<Arc<ShardColumns>, Error> {
        let extent = Extent {
            path: Arc::clone(&self.heads[number].0),
            range: 0..shard.blocks.first().map_or(0, |first| first.offset),
            crc32c: shard.head_crc32c,
            identity: match shard.head_crc32c {
                Some(_) => Identity::Checksum,
                None => Identity::Version,
            },
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
        let shards = self
            .manifest
            .split(self.split)
            .map_or(&[][..], |split| &split.shards);
        // By number: over references the compiler cannot see that the future may move to another thread.
        let reads = (0..shards.len()).map(|number| self.lengths_of(&shards[number], extents));
        let lengths = stream::iter(reads)
            .buffered(OPEN_READS)
            .try_collect()
            .await?;
        Ok(DocumentLengths::new(&self.geometry, lengths))
    }

    async fn lengths_of(
        &self,
        shard: &Shard,
        extents: &dyn Extents,
    ) -> Result<ScalarBuffer<u32>, Error> {
        let refuse = |reason: String| Error::Manifest {
            url: self.store.url(),
            reason,
        };
        let Some(lengths) = &shard.lengths else {
            return Err(refuse(format!(
                "shard `{}` has no lengths of documents",
                shard.path
            )));
        };
        let extent = Extent {
            path: lengths.path.as_str().into(),
            range: 0..shard.rows * 4,
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
        for block in &shard.blocks {
            let sum: u64 = rest
                .by_ref()
                .take(block.rows as usize)
                .map(|n| u64::from(*n))
                .sum();
            if block.tokens.is_some_and(|tokens| tokens != sum) {
                return Err(refuse(format!(
                    "the lengths of shard `{}` do not fit its blocks",
                    shard.path
                )));
            }
        }
        Ok(numbers)
    }

    /// Finds the plainest reason for which a shard cannot be read.
    fn explain(&self, shard: &Shard, block: u32, error: FetchError) -> Error {
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
                expected: shard.bytes,
                found: size,
            },
            error => Error::Read {
                shard: url,
                block,
                source: Box::new(error),
            },
        }
    }

    fn url(&self, shard: &Shard) -> String {
        self.store.url_of(&shard.path)
    }
}

async fn read_manifest(dataset: &Store) -> Result<Manifest, Error> {
    let url = dataset.url();
    let storage = |source| Error::Storage {
        url: dataset.url(),
        source: Box::new(source),
    };
    let Some(current) = dataset.get_opt("CURRENT").await.map_err(storage)? else {
        return Err(Error::NoDataset { url });
    };
    let name = String::from_utf8_lossy(&current).trim().to_owned();
    if !name.starts_with("manifest-") || !name.ends_with(".json") || name.contains('/') {
        return Err(Error::Manifest {
            url,
            reason: format!("`CURRENT` names `{name}`, which is not a manifest"),
        });
    }
    let bytes = dataset.get(&name).await.map_err(storage)?;
    let manifest: Manifest =
        decode(&dataset.url_of(&name), &bytes).map_err(|source| Error::Contract { url, source })?;
    let computed = manifest.compute_fingerprint();
    if computed != manifest.fingerprint {
        return Err(Error::Fingerprint {
            url: dataset.url_of(&name),
            found: manifest.fingerprint,
            computed,
        });
    }
    Ok(manifest)
}
