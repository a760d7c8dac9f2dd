//! The versions of files, asked for once each.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use futures::{StreamExt as _, stream};
use tokio::sync::OnceCell;

use crate::fetch::{Extent, Extents};

/// Files that are asked about at one time.
const AT_ONCE: usize = 16;

/// Holds `None` when the store has no version.
type Cell = Arc<OnceCell<Option<Arc<str>>>>;

/// Versions by path.
#[derive(Debug, Default)]
pub(super) struct Versions {
    files: Mutex<HashMap<Arc<str>, Cell>>,
    has_warned: AtomicBool,
}

impl Versions {
    /// The version of an extent's file. `None` where the store has none, which is a warning the
    /// first time, and where the request failed; then the read of the file reports the error.
    pub(super) async fn of(&self, inner: &dyn Extents, extent: &Extent) -> Option<Arc<str>> {
        let cell = Arc::clone(self.lock().entry(Arc::clone(&extent.path)).or_default());
        let ask = || async { inner.version(extent).await.map(|v| v.map(Arc::from)) };
        let version = cell.get_or_try_init(ask).await.ok()?.clone();
        if version.is_none() && !self.has_warned.swap(true, Relaxed) {
            tracing::warn!(
                file = &*extent.path,
                "the disk cache does not keep this dataset: its format has no checksums and its store gives files no \
                 version (a strong ETag), so that old bytes could be taken for new ones; convert it to shards of ours, \
                 or serve it from a store that has ETags"
            );
        }
        version
    }

    /// The version of a file, if it was asked for and is known.
    pub(super) fn known(&self, path: &str) -> Option<Arc<str>> {
        let files = self.lock();
        files.get(path)?.get()?.clone()
    }

    /// Asks for the versions of the files of these extents.
    pub(super) async fn learn<'a>(
        &self,
        inner: &dyn Extents,
        extents: impl Iterator<Item = &'a Extent>,
    ) {
        let mut seen = HashSet::new();
        let files: Vec<_> = extents
            .filter(|extent| seen.insert(Arc::clone(&extent.path)))
            .cloned()
            .collect();
        let asked = files.iter().map(|extent| self.of(inner, extent));
        stream::iter(asked)
            .for_each_concurrent(AT_ONCE, |asked| async {
                asked.await;
            })
            .await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Cell>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
