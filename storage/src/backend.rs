//! Operations of a kind of store.

use std::{fmt::Debug, ops::Range, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{Answer, Error, ReadFailure, ReadOnce};

/// An object found by [`Store::list`](crate::Store::list).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Path relative to the store's folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the write, by the clock of the store; absent if the store has none.
    pub modified: Option<Duration>,
    /// Entity tag of the content; absent if the store has none, such as a local disk.
    pub etag: Option<String>,
}

/// Range of names of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRange {
    /// They come after this one.
    pub after: String,
    /// They come before this one; absent for a range without an end.
    pub before: Option<String>,
}

impl NameRange {
    /// All names after this one.
    #[must_use]
    pub fn after(name: impl Into<String>) -> Self {
        Self {
            after: name.into(),
            before: None,
        }
    }

    /// Returns true if it has `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        name > self.after.as_str() && self.before.as_deref().is_none_or(|before| name < before)
    }
}

/// Outcome of one attempt to create an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    /// The object was absent and exists now.
    Yes,
    /// The store reports that the object exists already. After a lost response it may be our own.
    AlreadyThere,
}

/// A flat store of objects by path; paths are relative to the backend's root and never begin with
/// `/`.
#[async_trait]
pub(crate) trait Backend: Debug + Send + Sync {
    /// URL of a path, without credentials.
    fn url_of(&self, path: &str) -> String;
    /// Reads the complete object.
    async fn get(&self, path: &str) -> Result<Bytes, Error>;
    /// Reads a range of it; may return fewer bytes, which the caller checks.
    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, Error>;
    /// A range of it, by one request and no more.
    async fn read_once(&self, path: &str, read: &ReadOnce) -> Result<Answer, ReadFailure>;
    /// Forgets connections and credentials, so that the next request makes new ones.
    fn reconnect(&self);
    /// Returns its size in bytes.
    async fn size(&self, path: &str) -> Result<u64, Error>;
    /// Returns its path, size, timestamp and etag.
    async fn look_up(&self, path: &str) -> Result<Listed, Error>;
    /// Returns the same with the `Content-Encoding` that the store reports, if it reports one.
    async fn look_up_with_encoding(&self, path: &str) -> Result<(Listed, Option<String>), Error> {
        Ok((self.look_up(path).await?, None))
    }
    /// Returns the time of the write, since 1970-01-01 UTC, by the store's clock.
    async fn modified(&self, path: &str) -> Result<Duration, Error>;
    /// Replaces it with `parts`, one after the other, atomically and durably.
    async fn put(&self, path: &str, parts: Vec<Bytes>) -> Result<(), Error>;
    /// Creates it if absent, atomically and durably.
    async fn create(&self, path: &str, bytes: Bytes) -> Result<Created, Error>;
    /// Renames it, replacing an object that has the new name. A store without such a call copies it
    /// and removes the original, and a crash in between leaves both.
    async fn rename(&self, from: &str, to: &str) -> Result<(), Error>;
    /// Replaces it with `bytes` if it holds `before` (`None`: is absent), atomically and durably.
    /// Returns false otherwise.
    async fn swap(&self, path: &str, before: Option<Bytes>, bytes: Bytes) -> Result<bool, Error>;
    /// All objects below a folder (the empty one is everything), in any order.
    async fn list(&self, folder: &str) -> Result<Vec<Listed>, Error>;
    /// The objects of a folder, without those of folders below it, in any order.
    async fn list_own(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        self.list_ranges(folder, &[NameRange::after("")]).await
    }
    /// The objects of a folder, without those of folders below it, whose names are in one of `ranges`, in any order.
    async fn list_ranges(&self, folder: &str, ranges: &[NameRange]) -> Result<Vec<Listed>, Error> {
        let mut found = self.list(folder).await?;
        found.retain(|listed| is_in_ranges(&listed.path, folder, ranges));
        Ok(found)
    }
    /// Removes it; an absent one is fine.
    async fn delete(&self, path: &str) -> Result<(), Error>;
}

/// Returns true if the object at `path` is directly in `folder`, and its name is in one of `ranges`.
pub(crate) fn is_in_ranges(path: &str, folder: &str, ranges: &[NameRange]) -> bool {
    let own = path.strip_prefix(folder).unwrap_or(path);
    let own = own.strip_prefix('/').unwrap_or(own);
    !own.contains('/') && ranges.iter().any(|range| range.has(own))
}
