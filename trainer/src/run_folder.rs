//! The folder of one run, for blocking code: a store and the runtime that drives it.

use bytes::Bytes;
use feedline_storage::{Listed, Store};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::Error;

/// Starts the runtime that storage and loader do their I/O on. It has a worker of its own, so that reads go on while
/// the training thread computes.
///
/// # Errors
/// [`Error::Runtime`] when the machine gives no thread.
pub(crate) fn runtime() -> Result<Runtime, Error> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("trainer-io")
        .enable_all()
        .build()
        .map_err(Error::Runtime)
}

/// The folder of one run.
#[derive(Clone, Debug)]
pub(crate) struct RunFolder {
    runtime: Handle,
    store: Store,
}

impl RunFolder {
    /// The folder `store`, driven by `runtime`.
    pub(crate) const fn new(runtime: Handle, store: Store) -> Self {
        Self { runtime, store }
    }

    /// Where the folder is.
    pub(crate) fn url(&self) -> String {
        self.store.url()
    }

    /// Where an object of it is.
    pub(crate) fn url_of(&self, path: &str) -> String {
        self.store.url_of(path)
    }

    /// Reads an object, or `None` when it is absent.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn get_opt(&self, path: &str) -> Result<Option<Bytes>, Error> {
        Ok(self.runtime.block_on(self.store.get_opt(path))?)
    }

    /// Writes an object, whole and durable, or not at all.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn put(&self, path: &str, bytes: Vec<u8>) -> Result<(), Error> {
        Ok(self.runtime.block_on(self.store.put(path, bytes.into()))?)
    }

    /// Objects below a folder, sorted by path.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn list(&self, prefix: &str) -> Result<Vec<Listed>, Error> {
        Ok(self.runtime.block_on(self.store.list(prefix))?)
    }

    /// Removes an object.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn delete(&self, path: &str) -> Result<(), Error> {
        Ok(self.runtime.block_on(self.store.delete(path))?)
    }
}
