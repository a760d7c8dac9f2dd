//! Reading parts of files.

mod error;

use std::{ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use feedline_storage::{Error, Store};

pub use error::FetchError;

use crate::metrics::Meters;

/// Part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    ///
    /// May be dropped at any time; what was under way is then given up.
    ///
    /// # Errors
    /// [`FetchError`], after everything that could be tried was tried: the caller need not try again.
    async fn get(&self, extent: &Extent) -> Result<Bytes, FetchError>;
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
        let bytes = bytes.map_err(|error| self.explain(extent, error))?;
        let Some(expected) = extent.crc32c else {
            return Ok(bytes);
        };
        let found = self
            .meters
            .time(&self.meters.check, || crc32c::crc32c(&bytes));
        if found == expected {
            Ok(bytes)
        } else {
            Err(FetchError::Corrupt {
                url: self.store.url_of(&extent.path),
                range: extent.range.clone(),
                expected,
                found,
            })
        }
    }

    fn explain(&self, extent: &Extent, error: Error) -> FetchError {
        let (url, range) = (self.store.url_of(&extent.path), extent.range.clone());
        match error {
            Error::NotFound { .. } => FetchError::Missing { url },
            Error::Denied { .. } => FetchError::Denied {
                url,
                source: Arc::new(error),
            },
            error if error.is_retryable() => FetchError::Unavailable {
                url,
                range,
                attempts: 2,
                seconds: 0,
                failures: "2 failed reads".into(),
                source: Arc::new(error),
            },
            error => FetchError::Read {
                url,
                source: Arc::new(error),
            },
        }
    }
}

#[async_trait]
impl Extents for StoreExtents {
    async fn get(&self, extent: &Extent) -> Result<Bytes, FetchError> {
        let reason = match self.once(extent).await {
            Ok(bytes) => return Ok(bytes),
            Err(error @ FetchError::Missing { .. }) => return Err(error),
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
