//! Files of an export while they are written.
//!
//! A file grows under a temporary name. When it is complete it gets an incoming name, which no reader of its format takes for
//! one of its files: `.train-000000.tar.incoming`. Once all rows are written, all files get their final names.

use std::{
    fmt::Display,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use arrow::error::ArrowError;
use bytes::Bytes;
use feedline_schemas::{export::ExportedFile, ids::Hash128, manifest::Split};
use feedline_storage::{Growing, Store};
use tokio::runtime::Handle;
use xxhash_rust::xxh3::Xxh3;

use crate::Error;

/// End of incoming names.
const INCOMING: &str = ".incoming";

/// Incoming name of the file `path`.
fn incoming(path: &str) -> String {
    match path.rsplit_once('/') {
        Some((folder, name)) => format!("{folder}/.{name}{INCOMING}"),
        None => format!(".{path}{INCOMING}"),
    }
}

/// Name of the file with this incoming name; `None` for another name.
pub(super) fn of_incoming(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(INCOMING)
}

/// A complete file.
#[derive(Debug)]
pub(super) struct StoredFile {
    /// Its path until all files are complete.
    pub(super) incoming: String,
    /// The file, with its final path.
    pub(super) file: ExportedFile,
}

/// Gives files their final names, the first one last: until all have theirs, the numbers do not begin with the first.
/// Until then, a reader of a pattern may see some of them.
pub(super) async fn name_files(store: &Store, files: &[StoredFile]) -> Result<(), Error> {
    for StoredFile { incoming, file } in files.iter().rev() {
        store.rename(incoming, &file.path).await?;
    }
    Ok(())
}

/// The folder that files are written into. Its functions block the thread, which must not be one of the runtime's own.
#[derive(Clone, Debug)]
pub(super) struct OutFolder {
    store: Store,
    runtime: Handle,
}

impl OutFolder {
    /// Must be called on a runtime.
    pub(super) fn new(store: &Store) -> Self {
        Self {
            store: store.clone(),
            runtime: Handle::current(),
        }
    }

    /// Begins a file in `folder`, which is a path in this one. On a local disk it grows there under a temporary name; elsewhere
    /// it is in memory until it is complete.
    pub(super) fn create(&self, folder: &str) -> Result<OutFile, Error> {
        let to = match self.store.grow(folder)? {
            Some(file) => OutSink::Disk(Box::new(file)),
            None => OutSink::Memory(Vec::new()),
        };
        Ok(OutFile {
            folder: self.clone(),
            to,
            bytes: 0,
            hash: Xxh3::new(),
            failure: WriteFailure::default(),
        })
    }
}

/// A file that is written.
pub(super) struct OutFile {
    folder: OutFolder,
    to: OutSink,
    bytes: u64,
    hash: Xxh3,
    failure: WriteFailure,
}

enum OutSink {
    Memory(Vec<u8>),
    Disk(Box<Growing>),
}

impl OutFile {
    /// Bytes so far.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Cause of failed writes, for encoders that own the file.
    pub(super) fn failure(&self) -> WriteFailure {
        self.failure.clone()
    }

    /// Writes all of `bytes`.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.write_all(bytes);
        written.map_err(|e| self.failure.error(e))
    }

    /// Ends the file, whose final path is `path`. It is durable on return, under its incoming name.
    pub(super) fn store_as(
        self,
        path: String,
        (split, rows): (Option<Split>, u64),
    ) -> Result<StoredFile, Error> {
        let incoming = incoming(&path);
        match self.to {
            OutSink::Disk(file) => file.put(&incoming)?,
            OutSink::Memory(bytes) => {
                let OutFolder { store, runtime } = &self.folder;
                runtime.block_on(store.put(&incoming, Bytes::from(bytes)))?;
            }
        }
        let file = ExportedFile {
            path,
            split,
            rows,
            bytes: self.bytes,
            hash: Hash128::new(self.hash.digest128()),
        };
        Ok(StoredFile { incoming, file })
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = match &mut self.to {
            OutSink::Memory(all) => all.write(bytes)?,
            OutSink::Disk(file) => file.write(bytes).map_err(|e| {
                let kind = e.kind();
                // An interrupted write is repeated.
                if kind != io::ErrorKind::Interrupted {
                    self.failure.put(file.error(e));
                }
                io::Error::from(kind)
            })?,
        };
        self.bytes += count as u64;
        self.hash.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Cause of a failed write, which errors of encoders cannot hold.
#[derive(Clone, Default)]
pub(super) struct WriteFailure(Arc<Mutex<Option<feedline_storage::Error>>>);

impl WriteFailure {
    fn put(&self, error: feedline_storage::Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Error of a failed write, or of its encoder.
    pub(super) fn error(&self, of_encoder: impl Display) -> Error {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or_else(
            || {
                Error::Arrow(ArrowError::IoError(
                    of_encoder.to_string(),
                    io::ErrorKind::Other.into(),
                ))
            },
            Error::from,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incoming_names_lead_back_to_the_final_ones() {
        assert_eq!(incoming("a/b.tar"), "a/.b.tar.incoming");
        assert_eq!(incoming("b.tar"), ".b.tar.incoming");
        assert_eq!(of_incoming(".b.tar.incoming"), Some("b.tar"));
        assert_eq!(of_incoming("b.tar"), None);
    }
}
