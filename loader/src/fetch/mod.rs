//! Reading parts of files.

use std::{ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use feedline_storage::Store;

use crate::metrics::Meters;

/// Part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// File, relative to the dataset folder.
    pub(crate) path: Arc<str>,
    /// Bytes of it.
    pub(crate) range: Range<u64>,
    /// CRC32C that these bytes must have. Without one they are not believed yet, and a cache that outlives the run must
    /// not keep them.
    pub(crate) crc32c: Option<u32>,
    /// First batch that needs it.
    pub(crate) first: u64,
}

/// Where parts of files come from.
#[async_trait]
pub(crate) trait Extents: Send + Sync + std::fmt::Debug {
    /// Reads exactly the bytes of `extent`, with the right checksum if it has one.
    async fn get(&self, extent: &Extent) -> Result<Bytes, FetchError>;
}

/// Why an extent could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The store says no, or gives too few bytes.
    #[error("cannot read it")]
    Store(#[source] feedline_storage::Error),
    /// The bytes are not those that were written.
    #[error("its checksum is `{found:08x}` instead of `{expected:08x}`")]
    Checksum {
        /// Checksum it should have.
        expected: u32,
        /// Checksum of what came.
        found: u32,
    },
}

/// Extents straight from a store. What fails or is damaged is asked for once more.
#[derive(Debug)]
pub(crate) struct StoreExtents {
    store: Store,
    meters: Arc<Meters>,
}

impl StoreExtents {
    /// Files of the folder `store`.
    pub(crate) fn new(store: Store, meters: Arc<Meters>) -> Self {
        Self { store, meters }
    }

    async fn once(&self, extent: &Extent) -> Result<Bytes, FetchError> {
        let range = extent.range.clone();
        let bytes = self.store.get_range(&extent.path, range).await;
        let bytes = bytes.map_err(FetchError::Store)?;
        let Some(expected) = extent.crc32c else {
            return Ok(bytes);
        };
        let found = self
            .meters
            .time(&self.meters.check, || crc32c::crc32c(&bytes));
        if found == expected {
            Ok(bytes)
        } else {
            Err(FetchError::Checksum { expected, found })
        }
    }
}

#[async_trait]
impl Extents for StoreExtents {
    async fn get(&self, extent: &Extent) -> Result<Bytes, FetchError> {
        let reason = match self.once(extent).await {
            Ok(bytes) => return Ok(bytes),
            Err(FetchError::Store(error)) if error.is_not_found() => {
                return Err(FetchError::Store(error));
            }
            Err(error) => error.to_string(),
        };
        tracing::warn!(
            file = self.store.url_of(&extent.path),
            offset = extent.range.start,
            reason,
            "reading part of a file again"
        );
        self.meters.refetches.add(1);
        self.once(extent).await
    }
}
