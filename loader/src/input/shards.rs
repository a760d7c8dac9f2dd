//! Our own shards: a manifest, and Arrow IPC files with a checksum for every block.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use feedline_schemas::{
    decode,
    manifest::{Layout, Manifest, Shard, Split},
};
use feedline_storage::Store;
use tokio::sync::OnceCell;

use super::columns::ShardColumns;
use crate::{
    Error,
    block::{self, BlockRows},
    fetch::{Extent, Extents, FetchError},
    geometry::{BlockId, Geometry},
};

/// The shards of a split. Each shard's head is read once.
#[derive(Debug)]
pub(crate) struct Shards {
    store: Store,
    manifest: Manifest,
    geometry: Arc<Geometry>,
    /// Path and columns of every shard.
    heads: Vec<(Arc<str>, OnceCell<Arc<ShardColumns>>)>,
    /// Columns of the shard read first, for all that have the same.
    usual_columns: OnceLock<Arc<ShardColumns>>,
    rereads: AtomicU64,
}

impl Shards {
    /// Reads `CURRENT` and the manifest it names, and no shard yet.
    pub(super) async fn open(store: &Store, split: Split) -> Result<Self, Error> {
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
        Ok(Self {
            store: store.clone(),
            geometry: Arc::new(geometry),
            heads,
            usual_columns: OnceLock::new(),
            rereads: AtomicU64::new(0),
            manifest,
        })
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) fn geometry(&self) -> &Arc<Geometry> {
        &self.geometry
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
        let (shard, shard_number) = self.geometry.shard(block);
        let (entry, number) = self.geometry.block(block);
        let extent = Extent {
            path: Arc::clone(&self.heads[shard_number].0),
            range: self.geometry.byte_range(block),
            crc32c: Some(entry.crc32c),
            first,
        };
        let bytes = match extents.get(&extent).await {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.explain(shard, number, error).await),
        };
        block::decode(bytes, entry, columns, &self.manifest.layout).map_err(|reason| {
            Error::Corrupt {
                shard: self.url(shard),
                block: number,
                reason,
            }
        })
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

    /// Reads the head of a shard. It is under no checksum; so when it makes no sense it is read once more.
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
            crc32c: None,
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
                Err(error) => return Err(self.explain(shard, 0, error).await),
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

    /// Finds the plainest reason for which a shard cannot be read.
    async fn explain(&self, shard: &Shard, block: u32, error: FetchError) -> Error {
        match error {
            FetchError::Corrupt {
                expected, found, ..
            } => {
                return Error::Corrupt {
                    shard: self.url(shard),
                    block,
                    reason: format!(
                        "its checksum is `{found:08x}` and the manifest says `{expected:08x}`"
                    ),
                };
            }
            FetchError::Missing { .. } => {
                return Error::ShardMissing {
                    shard: self.url(shard),
                    fingerprint: self.manifest.fingerprint,
                };
            }
            FetchError::Truncated { size, .. } => {
                return Error::ShardTruncated {
                    shard: self.url(shard),
                    expected: shard.bytes,
                    found: size,
                };
            }
            _ => {}
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
