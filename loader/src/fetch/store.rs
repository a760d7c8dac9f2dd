//! Extents straight from a store.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use feedline_storage::{Lane, Store};

use super::{
    Extent, Extents, FetchConfig, FetchError, local::LocalExtents, memory::Memory,
    remote::RemoteExtents,
};
use crate::metrics::Meters;

/// Extents straight from a store, checked; what is damaged is asked for once more.
#[derive(Debug)]
pub(crate) struct StoreExtents {
    store: Store,
    place: Place,
    meters: Arc<Meters>,
}

#[derive(Debug)]
enum Place {
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
            Some(files) => Place::Local(LocalExtents::new(files, store.url(), config, shared)),
            None => {
                let remote = RemoteExtents::new(store.clone(), config, most_requests, shared);
                Place::Remote(Box::new(remote))
            }
        };
        Self {
            store,
            place,
            meters,
        }
    }

    /// The bytes and their checksum; the second time by another way.
    async fn read(&self, extent: &Extent, is_again: bool) -> Result<(Memory, u32), FetchError> {
        match &self.place {
            Place::Local(local) => {
                if is_again {
                    local.forget(extent);
                }
                local.read(extent).await
            }
            Place::Remote(remote) => {
                let lane = if is_again { Lane::Second } else { Lane::First };
                let whole = remote.read(extent, lane).await?;
                Ok((whole.memory, whole.crc32c))
            }
        }
    }
}

#[async_trait]
impl Extents for StoreExtents {
    async fn get(&self, extent: &Extent) -> Result<Bytes, FetchError> {
        if extent.range.is_empty() {
            return Ok(Bytes::new());
        }
        let mut is_again = false;
        loop {
            let (memory, found) = self.read(extent, is_again).await?;
            let expected = extent.crc32c.unwrap_or(found);
            if found == expected {
                return Ok(memory.into_bytes());
            }
            self.meters.fetches.crc_failures.add(1);
            let url = self.store.url_of(&extent.path);
            if is_again {
                return Err(FetchError::Corrupt {
                    url,
                    range: extent.range.clone(),
                    expected,
                    found,
                });
            }
            let offset = extent.range.start;
            tracing::warn!(file = url, offset, "damaged: reading part of a file again");
            self.meters.refetches.add(1);
            is_again = true;
        }
    }
}
