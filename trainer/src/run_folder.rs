//! The folder of one run, for blocking code: a store and the runtime that drives it.

use std::{panic::resume_unwind, time::Duration};

use bytes::Bytes;
use feedline_storage::{Listed, Store};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinHandle,
};

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

    /// What drives the store.
    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The folder, for code on the runtime.
    pub(crate) const fn store(&self) -> &Store {
        &self.store
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

    /// As [`put`](Self::put), of parts that lie in several places.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn put_parts(&self, path: &str, parts: Vec<Bytes>) -> Result<(), Error> {
        Ok(self.runtime.block_on(self.store.put_parts(path, parts))?)
    }

    /// Replaces what is behind `offset` of a file, where files can be changed; says whether they can.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn put_tail(
        &self,
        path: &str,
        offset: usize,
        bytes: Vec<u8>,
    ) -> Result<bool, Error> {
        let put = self.store.put_tail(path, offset as u64, bytes.into());
        Ok(self.runtime.block_on(put)?)
    }

    /// Whether it is on the local disk.
    pub(crate) fn is_local(&self) -> bool {
        self.store.local_path().is_some()
    }

    /// Begins `work`, which may block, on a thread of its own.
    pub(crate) fn background<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Background<T> {
        Background {
            runtime: self.runtime.clone(),
            task: self.runtime.spawn_blocking(work),
        }
    }

    /// Lets `time` pass.
    pub(crate) fn pause(&self, time: Duration) {
        // A timer is made on the runtime.
        self.runtime
            .block_on(async { tokio::time::sleep(time).await });
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

/// Work under way. The runtime waits for it when it is dropped.
#[derive(Debug)]
pub(crate) struct Background<T> {
    runtime: Handle,
    task: JoinHandle<T>,
}

impl<T> Background<T> {
    /// Whether it is done.
    pub(crate) fn is_done(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until it is done.
    ///
    /// # Panics
    /// When the work panicked.
    pub(crate) fn wait(self) -> T {
        let done = self.runtime.block_on(self.task);
        done.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "the disk caught fire")]
    fn a_panic_in_the_background_surfaces_where_it_is_waited_for() {
        let runtime = runtime().unwrap();
        let folder = RunFolder::new(runtime.handle().clone(), Store::memory());
        folder.background(|| panic!("the disk caught fire")).wait();
    }
}
