//! Extents of local files: a few threads that read and check, into memory that is used again.

use std::{
    sync::{Arc, OnceLock},
    thread::{self, JoinHandle},
};

use crossbeam_channel::{Receiver, Sender};
use feedline_storage::{Error, LocalFiles};
use tokio::sync::oneshot;

use super::{
    Extent, FetchConfig, FetchError,
    memory::{MemoryPool, PooledMemory},
};
use crate::metrics::Meters;

/// Bytes that are read and checked at a time: they are still in the processor's cache when they are checked.
const PIECE: usize = 256 << 10;

/// Extents of a local folder.
#[derive(Debug)]
pub(super) struct LocalExtents {
    shared: Arc<SharedFiles>,
    threads: u32,
    /// Started when first needed.
    readers: OnceLock<Result<Readers, Arc<Error>>>,
}

/// Bytes that were read, and their checksum.
pub(super) type Checked = (PooledMemory, u32);

#[derive(Debug)]
struct SharedFiles {
    files: LocalFiles,
    pool: Arc<MemoryPool>,
    meters: Arc<Meters>,
    /// URL of the folder, for errors.
    url: String,
}

#[derive(Debug)]
struct Readers {
    jobs: Option<Sender<ReadJob>>,
    threads: Vec<JoinHandle<()>>,
}

struct ReadJob {
    extent: Extent,
    reply: oneshot::Sender<Result<Checked, FetchError>>,
}

impl LocalExtents {
    pub(super) fn new(
        files: LocalFiles,
        url: String,
        config: &FetchConfig,
        meters: Arc<Meters>,
    ) -> Self {
        let processors = thread::available_parallelism().map_or(2, usize::from);
        let automatic = u32::try_from(processors / 2).unwrap_or(8).clamp(2, 8);
        Self {
            shared: Arc::new(SharedFiles {
                files,
                pool: Arc::default(),
                meters,
                url,
            }),
            threads: match config.local_threads {
                0 => automatic,
                threads => threads,
            },
            readers: OnceLock::new(),
        }
    }

    /// All bytes of an extent and their checksum, which is not yet compared.
    pub(super) async fn read(&self, extent: &Extent) -> Result<Checked, FetchError> {
        let failed = |source: &Arc<Error>| FetchError::Read {
            url: self.shared.url_of(extent),
            source: Arc::clone(source),
        };
        let readers = self.readers.get_or_init(|| self.start());
        let readers = readers.as_ref().map_err(failed)?;
        let (reply, answer) = oneshot::channel();
        let job = ReadJob {
            extent: extent.clone(),
            reply,
        };
        let sent = readers
            .jobs
            .as_ref()
            .is_some_and(|jobs| jobs.send(job).is_ok());
        match answer.await {
            Ok(result) if sent => result,
            _ => Err(failed(&Arc::new(self.thread_error(std::io::Error::other(
                "a thread that reads files died",
            ))))),
        }
    }

    /// Closes a file, so that the next read opens it again.
    pub(super) fn forget(&self, extent: &Extent) {
        self.shared.files.forget(&extent.path);
    }

    fn start(&self) -> Result<Readers, Arc<Error>> {
        let (jobs, queue) = crossbeam_channel::unbounded();
        let mut readers = Readers {
            jobs: Some(jobs),
            threads: Vec::new(),
        };
        for number in 0..self.threads {
            let (shared, queue) = (Arc::clone(&self.shared), queue.clone());
            let thread = thread::Builder::new()
                .name(format!("read-{number}"))
                .spawn(move || shared.work(&queue));
            match thread {
                Ok(thread) => readers.threads.push(thread),
                // Fewer will do.
                Err(error) if number > 0 => {
                    tracing::warn!(%error, threads = number, "fewer threads read files than asked for");
                    break;
                }
                Err(error) => return Err(Arc::new(self.thread_error(error))),
            }
        }
        Ok(readers)
    }

    fn thread_error(&self, source: std::io::Error) -> Error {
        Error::Io {
            operation: "start a thread that reads",
            url: self.shared.url.clone(),
            source,
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            // A thread that panicked has closed its channel, which its caller has seen.
            thread.join().ok();
        }
    }
}

impl SharedFiles {
    fn work(&self, queue: &Receiver<ReadJob>) {
        while let Ok(job) = queue.recv() {
            // Whoever asked may have gone.
            if !job.reply.is_closed() {
                drop(job.reply.send(self.read(&job.extent)));
            }
        }
    }

    fn read(&self, extent: &Extent) -> Result<Checked, FetchError> {
        let start = self.meters.now();
        let result = match self.once(extent) {
            Err(error @ Error::Io { .. }) => {
                let (path, offset) = (&*extent.path, extent.range.start);
                tracing::warn!(path, offset, %error, "reading part of a file again");
                self.once(extent)
            }
            result => result,
        };
        let checked = result.map_err(|error| self.explain(extent, error))?;
        let time = self.meters.now().saturating_sub(start);
        self.meters.fetches.extent_times.add(time);
        Ok(checked)
    }

    fn once(&self, extent: &Extent) -> Result<Checked, Error> {
        let mut memory = self.pool.take(extent.bytes());
        let (mut crc32c, mut offset) = (0, extent.range.start);
        for piece in memory.as_mut_slice().chunks_mut(PIECE) {
            self.files.read(&extent.path, offset, piece)?;
            offset += piece.len() as u64;
            crc32c = self
                .meters
                .time(&self.meters.check, || crc32c::crc32c_append(crc32c, piece));
        }
        Ok((memory, crc32c))
    }

    fn explain(&self, extent: &Extent, error: Error) -> FetchError {
        let url = self.url_of(extent);
        match error {
            Error::NotFound { .. } => FetchError::Missing { url },
            Error::Short { .. } => FetchError::Truncated {
                url,
                range: extent.range.clone(),
                size: self.files.size(&extent.path).unwrap_or_default(),
            },
            Error::Denied { .. } => FetchError::Denied {
                url,
                source: error.into(),
            },
            _ => FetchError::Read {
                url,
                source: error.into(),
            },
        }
    }

    fn url_of(&self, extent: &Extent) -> String {
        format!("{}/{}", self.url, extent.path)
    }
}
