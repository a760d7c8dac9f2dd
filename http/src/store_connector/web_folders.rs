//! Folders of a listing of a web server: those that may have wanted files, and those that the server left out.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Returns true for the path of a folder that may have wanted files.
type FolderFilter = dyn Fn(&str) -> bool + Send + Sync;

/// Folders below the folder of one listing, by their paths in it. Clones share the folders that were left out.
///
/// ```
/// use feedline_http::WebFolders;
///
/// let folders = WebFolders::with_filter(|folder| folder.starts_with("2026"));
/// assert!(folders.wants("") && folders.wants("2026-01") && !folders.wants("old"));
/// assert!(folders.left_out().is_empty());
/// ```
#[derive(Clone, Default)]
pub struct WebFolders {
    filter: Option<Arc<FolderFilter>>,
    /// Statuses of the responses by path.
    left_out: Arc<Mutex<BTreeMap<String, u16>>>,
}

impl WebFolders {
    /// Folders of a listing that requests those below only if `filter` returns true for their paths. A filter that
    /// refuses a folder has to refuse all folders in it.
    #[must_use]
    pub fn with_filter(filter: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self {
            filter: Some(Arc::new(filter)),
            ..Self::default()
        }
    }

    /// Returns true if a folder may have wanted files. The listed folder itself has an empty path.
    #[must_use]
    pub fn wants(&self, path: &str) -> bool {
        let filter = self.filter.as_ref();
        path.is_empty() || filter.is_none_or(|filter| filter(path))
    }

    /// Folders that the last complete listing names and whose files the server does not list, with the status of the
    /// response.
    #[must_use]
    pub fn left_out(&self) -> BTreeMap<String, u16> {
        let left_out = self.left_out.lock();
        left_out.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the folders that a complete listing leaves out, in place of those of an earlier one.
    pub(super) fn leave_out(&self, folders: BTreeMap<String, u16>) {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        *left_out = folders;
    }
}

impl fmt::Debug for WebFolders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("WebFolders");
        fields.field("has_filter", &self.filter.is_some());
        fields.field("left_out", &self.left_out()).finish()
    }
}
