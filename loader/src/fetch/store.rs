//! Extents straight from a store.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use feedline_storage::{Lane, Store};
use futures::future::join_all;

use super::{
    Extent, Extents, FetchConfig, FetchError,
    joined::{ExtentPiece, Joined},
    local::LocalExtents,
    memory::PooledMemory,
    remote::RemoteExtents,
};
use crate::metrics::Meters;

/// Extents straight from a store, checked; what is damaged is asked for once more.
#[derive(Debug)]
pub(crate) struct StoreExtents {
    store: Store,
    place: StorePlace,
    meters: Arc<Meters>,
}

#[derive(Debug)]
enum StorePlace {
    Local(LocalExtents),
    Remote(Box<RemoteExtents>),
}

impl StoreExtents {
    /// Files of the folder `store`, asked for by at most `most_requests` requests at a time when it is remote. Nothing
    /// is opened or requested yet.
    pub(crate) fn new(
        store: Store,
        config: &FetchConfig,
        most_requests: u32,
        meters: Arc<Meters>,
    ) -> Self {
        let shared = Arc::clone(&meters);
        let place = match store.local_files() {
            Some(files) => StorePlace::Local(LocalExtents::new(files, store.url(), config, shared)),
            None => {
                let remote = RemoteExtents::new(store.clone(), config, most_requests, shared);
                StorePlace::Remote(Box::new(remote))
            }
        };
        Self {
            store,
            place,
            meters,
        }
    }

    /// The bytes and their checksum; the second time by another way.
    async fn read(
        &self,
        extent: &Extent,
        is_again: bool,
    ) -> Result<(PooledMemory, u32), FetchError> {
        match &self.place {
            StorePlace::Local(local) => {
                if is_again {
                    local.forget(extent);
                }
                local.read(extent).await
            }
            StorePlace::Remote(remote) => {
                let lane = if is_again { Lane::Second } else { Lane::First };
                let whole = remote.read(&extent.into(), lane).await?;
                let mut pieces = whole.pieces.into_pieces();
                let ExtentPiece { memory, crc32c } = pieces.swap_remove(0);
                Ok((memory, crc32c))
            }
        }
    }

    /// The bytes of an extent if they have the right checksum; otherwise it is read again, by itself.
    async fn check(
        &self,
        extent: &Extent,
        (memory, found): (PooledMemory, u32),
    ) -> Result<Bytes, FetchError> {
        let expected = extent.crc32c.unwrap_or(found);
        if found == expected {
            return Ok(memory.into_bytes());
        }
        drop(memory);
        self.meters.fetches.crc_failures.add(1);
        let (url, offset) = (self.store.url_of(&extent.path), extent.range.start);
        tracing::warn!(file = url, offset, "damaged: reading part of a file again");
        self.meters.refetches.add(1);
        let (memory, found) = self.read(extent, true).await?;
        if found == expected {
            return Ok(memory.into_bytes());
        }
        self.meters.fetches.crc_failures.add(1);
        Err(FetchError::Corrupt {
            url,
            range: extent.range.clone(),
            expected,
            found,
        })
    }

    async fn get_each(&self, run: &[Extent]) -> Vec<Result<Bytes, FetchError>> {
        join_all(run.iter().map(|extent| self.get(extent))).await
    }
}

#[async_trait]
impl Extents for StoreExtents {
    async fn get(&self, extent: &Extent) -> Result<Bytes, FetchError> {
        if extent.range.is_empty() {
            return Ok(Bytes::new());
        }
        let read = self.read(extent, false).await?;
        self.check(extent, read).await
    }

    async fn get_run(&self, run: &[Extent]) -> Vec<Result<Bytes, FetchError>> {
        let joined = Joined::of(run).filter(|joined| !joined.whole.range.is_empty());
        let (StorePlace::Remote(remote), Some(joined)) = (&self.place, joined) else {
            return self.get_each(run).await;
        };
        match remote.read(&joined, Lane::First).await {
            Ok(whole) => {
                let pieces = whole.pieces.into_pieces().into_iter();
                let pieces = pieces.map(|piece| (piece.memory, piece.crc32c));
                let checks = run.iter().zip(pieces);
                join_all(checks.map(|(extent, piece)| self.check(extent, piece))).await
            }
            // Those before the place where the file ends can still be had.
            Err(FetchError::Truncated { .. }) => self.get_each(run).await,
            Err(error) => vec![Err(error); run.len()],
        }
    }

    async fn version(&self, extent: &Extent) -> Result<Option<String>, FetchError> {
        match &self.place {
            StorePlace::Local(_) => Ok(None),
            StorePlace::Remote(remote) => remote.version(extent).await,
        }
    }

    fn joins(&self) -> bool {
        matches!(self.place, StorePlace::Remote(_))
    }
}
