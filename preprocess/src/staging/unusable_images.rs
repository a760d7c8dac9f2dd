//! Images that cannot be decoded, and the rows of equal bytes that were dropped as their duplicates.
//!
//! Equal bytes are found before any image is decoded. A row of an image that proves unusable is no duplicate of
//! anything: it is rejected with the reason of that image. For each such image about 200 bytes are held in memory.

use std::collections::HashMap;

use arrow::{array::AsArray, datatypes::UInt64Type};
use datafusion::prelude::DataFrame;
use futures::TryStreamExt;

use crate::{
    Error,
    operators::dedup::content_hash::HASH_BYTES,
    schema::system_columns::{self, column},
    staging::rejects::RejectWriter,
};

type ContentHashBytes = [u8; HASH_BYTES as usize];

/// Contents of images that cannot be decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnusableImages {
    by_hash: HashMap<ContentHashBytes, RejectedImage>,
}

/// The row of an image that cannot be decoded.
#[derive(Clone, Debug)]
struct RejectedImage {
    origin: u64,
    /// The reason of its reject, as JSON.
    reason: String,
}

impl UnusableImages {
    /// Adds the content of the rejected row of `origin`.
    pub(super) fn add(&mut self, hash: &[u8], origin: u64, reason: String) {
        let hash = hash.try_into().expect("a content hash has 16 bytes");
        self.by_hash.insert(hash, RejectedImage { origin, reason });
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.by_hash.extend(other.by_hash);
    }

    /// Returns true if all images could be decoded.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// Returns true if the content of this hash is such an image.
    pub(crate) fn contains(&self, hash: &[u8]) -> bool {
        self.by_hash.contains_key(hash)
    }

    /// Rejects the other rows of these contents in `copied`, which has hash and origin of all rows.
    ///
    /// # Errors
    /// Failures of the engine.
    pub(crate) async fn reject_copies(
        &self,
        copied: DataFrame,
        rejects: &mut RejectWriter,
    ) -> Result<(), Error> {
        let mut batches = Box::pin(copied.execute_stream()).await?;
        while let Some(batch) = batches.try_next().await? {
            let hashes = column(&batch, system_columns::HASH).as_fixed_size_binary();
            let origins = column(&batch, system_columns::ORIGIN).as_primitive::<UInt64Type>();
            let rows = hashes.iter().flatten().zip(origins.values());
            let copies = rows.filter_map(|(hash, origin)| {
                let image = self.by_hash.get(hash)?;
                (image.origin != *origin).then(|| (*origin, image.reason.clone()))
            });
            rejects.push(copies.collect())?;
        }
        Ok(())
    }
}
