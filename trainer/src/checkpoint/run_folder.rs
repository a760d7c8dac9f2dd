//! The folder of one run, for blocking code: a store and the runtime that drives it.
//!
//! A run that was asked to stop must leave soon, however slow the store is: it says so by
//! [`RunFolder::hurry`], and an operation that the store has not finished a while after that fails.

use std::{
    fs::{self, File, TryLockError},
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use feedline_storage::{Listed, Store};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::paths::FOLDER as CHECKPOINTS;
use crate::error::Error;

/// Time that the store has once a run was asked to stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// Prefix of the names of files that the store writes.
const INCOMPLETE: &[u8] = b".tmp-";

/// Interval at which a wait for the store checks the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Looks at a locked folder before it counts as another run's.
const LOCK_LOOKS: u32 = 20;

/// Starts the runtime that storage and loader do their I/O on. It has a worker of its own, so that
/// reads continue while the training thread computes.
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

/// Returns whether no process holds the lock of the folder of a run, so that no process trains it. `false` also where that
/// is not known: for an object store, and for a disk that has no locks.
pub(crate) fn is_abandoned(folder: &Store) -> bool {
    let opened = folder.local_path().map(File::open);
    let Some(Ok(folder)) = opened else {
        return false;
    };
    folder.try_lock_shared().is_ok()
}

/// The folder of one run.
#[derive(Clone, Debug)]
pub(crate) struct RunFolder {
    runtime: Handle,
    store: Store,
    patience: Duration,
    /// When the store must have done what it does; `None` while there is time.
    deadline: Arc<watch::Sender<Option<Instant>>>,
}

impl RunFolder {
    /// The folder `store`, driven by `runtime`.
    pub(crate) fn new(runtime: Handle, store: Store) -> Self {
        Self {
            runtime,
            store,
            patience: PATIENCE,
            deadline: Arc::default(),
        }
    }

    /// The same, whose store has `patience` once a run was asked to stop.
    #[cfg(test)]
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Notes that the run was asked to stop. Operations that the store has not finished
    /// [`PATIENCE`] after the first time fail with [`Error::TooSlow`].
    pub(crate) fn hurry(&self) {
        self.deadline.send_if_modified(|deadline| {
            let first = deadline.is_none();
            deadline.get_or_insert_with(|| Instant::now() + self.patience);
            first
        });
    }

    /// Returns true if the store's time is over.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline
            .borrow()
            .is_some_and(|at| at <= Instant::now())
    }

    /// Waits until the store had its time.
    async fn late(&self) {
        let mut deadline = self.deadline.subscribe();
        // This holds the sender.
        let at = match deadline.wait_for(Option::is_some).await {
            Ok(at) => *at,
            Err(_) => None,
        };
        if let Some(at) = at {
            sleep_until(at).await;
        }
    }

    /// Waits for what the store does with an object.
    ///
    /// # Errors
    /// The error of the store, or [`Error::TooSlow`].
    pub(crate) fn wait_for<T>(
        &self,
        path: &str,
        work: impl Future<Output = Result<T, feedline_storage::Error>>,
    ) -> Result<T, Error> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                done = work => Ok(done?),
                () = self.late() => Err(Error::TooSlow {
                    url: self.url_of(path),
                    seconds: self.patience.as_secs(),
                }),
            }
        })
    }

    /// The folder, for code on the runtime.
    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }

    /// URL of the folder.
    pub(crate) fn url(&self) -> String {
        self.store.url()
    }

    /// URL of an object of it.
    pub(crate) fn url_of(&self, path: &str) -> String {
        self.store.url_of(path)
    }

    /// Locks a folder of the local disk against other processes, until the lock is dropped; creates it
    /// if it is missing. Returns `None` for an object store and for a disk that has no locks or cannot be
    /// written, which the first write reports.
    ///
    /// # Errors
    /// [`Error::Busy`] when another process holds the lock.
    pub(crate) fn lock(&self) -> Result<Option<File>, Error> {
        let Some(folder) = self.store.local_path() else {
            return Ok(None);
        };
        let Ok(folder) = fs::create_dir_all(&folder).and_then(|()| File::open(&folder)) else {
            return Ok(None);
        };
        let mut locked = folder.try_lock();
        for _ in 0..LOCK_LOOKS {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            // A list of runs that looks at this moment holds it for an instant, longer on a busy machine.
            self.pause(LOOK_EVERY);
            locked = folder.try_lock();
        }
        match locked {
            Ok(()) => Ok(Some(folder)),
            Err(TryLockError::WouldBlock) => Err(Error::Busy { url: self.url() }),
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }

    /// Removes files that a killed training was writing, which have no name yet: no other process writes to a folder that is
    /// locked. One that cannot be removed does no harm.
    pub(crate) fn remove_incomplete(&self) {
        let Some(folder) = self.store.local_path() else {
            return;
        };
        let folders = [folder.join(CHECKPOINTS), folder];
        let entries = folders
            .iter()
            .filter_map(|folder| fs::read_dir(folder).ok());
        for entry in entries.flatten().flatten() {
            let is_incomplete = entry.file_name().as_encoded_bytes().starts_with(INCOMPLETE);
            if is_incomplete && let Err(error) = fs::remove_file(entry.path()) {
                tracing::debug!(%error, "a file of a killed training stays");
            }
        }
    }

    /// Reads an object, or `None` when it is absent.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn get_opt(&self, path: &str) -> Result<Option<Bytes>, Error> {
        self.wait_for(path, self.store.get_opt(path))
    }

    /// Writes an object, whole and durable, or not at all.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn put(&self, path: &str, bytes: Vec<u8>) -> Result<(), Error> {
        self.wait_for(path, self.store.put(path, bytes.into()))
    }

    /// As [`put`](Self::put), of parts in several buffers.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn put_parts(&self, path: &str, parts: Vec<Bytes>) -> Result<(), Error> {
        self.wait_for(path, self.store.put_parts(path, parts))
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
        self.wait_for(path, put)
    }

    /// Returns true if it is on the local disk.
    pub(crate) fn is_local(&self) -> bool {
        self.store.local_path().is_some()
    }

    /// Begins `work`, which may block, on a thread of its own.
    pub(crate) fn background<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Background<T> {
        Background {
            folder: self.clone(),
            task: self.runtime.spawn_blocking(work),
        }
    }

    /// Lets `time` pass.
    pub(crate) fn pause(&self, time: Duration) {
        // A timer is made on the runtime.
        self.runtime.block_on(async { sleep(time).await });
    }

    /// Objects below a folder, sorted by path.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn list(&self, prefix: &str) -> Result<Vec<Listed>, Error> {
        self.wait_for(prefix, self.store.list(prefix))
    }

    /// Removes temporary files of dead processes. These can be complete checkpoints, if a machine
    /// is taken away while it writes one.
    pub(crate) fn sweep(&self) {
        if let Err(error) = self.store.sweep_all("") {
            tracing::debug!(%error, "temporary files were left where they are");
        }
    }

    /// Removes an object.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn delete(&self, path: &str) -> Result<(), Error> {
        self.wait_for(path, self.store.delete(path))
    }
}

/// Work under way. The runtime waits for it when it is dropped.
#[derive(Debug)]
pub(crate) struct Background<T> {
    folder: RunFolder,
    task: JoinHandle<T>,
}

impl<T> Background<T> {
    /// Returns true if it is done.
    pub(crate) fn is_done(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until it is done; not for long, once `told` asks the run to stop.
    ///
    /// # Panics
    /// When the work panicked.
    pub(crate) fn wait(self, told: &AtomicBool) -> T {
        let Self { folder, mut task } = self;
        let done = folder.runtime.block_on(async {
            loop {
                match timeout(LOOK_EVERY, &mut task).await {
                    Ok(done) => return done,
                    Err(_) if told.load(Ordering::Relaxed) => folder.hurry(),
                    Err(_) => {}
                }
            }
        });
        done.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }
}

#[cfg(test)]
mod tests {
    use feedline_storage::StoreOptions;

    use super::*;

    #[test]
    fn a_run_is_trained_by_one_process_at_a_time() {
        let (runtime, place) = (runtime().unwrap(), tempfile::tempdir().unwrap());
        let open = || {
            let url = place.path().join("run").display().to_string();
            let store = Store::open(&url, &StoreOptions::default()).unwrap();
            RunFolder::new(runtime.handle().clone(), store)
        };
        let lock = open().lock().unwrap();
        let busy = open().lock().unwrap_err();
        assert!(matches!(busy, Error::Busy { .. }), "{busy}");
        assert!(!is_abandoned(&open().store));
        drop(lock);
        assert!(is_abandoned(&open().store));
        assert!(!is_abandoned(&Store::memory()));
        assert!(open().lock().unwrap().is_some());
    }

    #[test]
    fn files_that_a_killed_training_was_writing_are_removed() {
        let (runtime, place) = (runtime().unwrap(), tempfile::tempdir().unwrap());
        let path = place.path();
        let store = Store::open(path.to_str().unwrap(), &StoreOptions::default()).unwrap();
        let folder = RunFolder::new(runtime.handle().clone(), store);
        fs::create_dir(path.join(CHECKPOINTS)).unwrap();
        let kept = ["run.json", "checkpoints/step-00000001.safetensors"];
        let left = [".tmp-1-2", "checkpoints/.tmp-growing-7"];
        for name in kept.iter().chain(&left) {
            fs::write(path.join(name), "x").unwrap();
        }
        folder.remove_incomplete();
        assert!(kept.iter().all(|name| path.join(name).exists()));
        assert!(!left.iter().any(|name| path.join(name).exists()));
    }

    #[test]
    #[should_panic(expected = "the disk caught fire")]
    fn a_panic_in_the_background_surfaces_where_it_is_waited_for() {
        let runtime = runtime().unwrap();
        let folder = RunFolder::new(runtime.handle().clone(), Store::memory());
        let work = folder.background(|| panic!("the disk caught fire"));
        work.wait(&AtomicBool::new(false));
    }
}
