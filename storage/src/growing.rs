//! Files that are written piece by piece, and get their names when they are complete.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    Error, Store,
    local::{PIECE, TEMPORARY, create_folders, remove, sync_folder, temporary_in},
};

/// Prefix of the names of incomplete files.
const GROWING: &str = ".tmp-growing-";

/// Name prefix of the file that reads the clock of the disk.
const CLOCK: &str = ".tmp-clock-";

/// Minimum age of a file without a lock that counts as left by a dead process.
const LEFT: Duration = Duration::from_secs(3600);

/// A file on the local disk that is written piece by piece. It is not listed before
/// [`Growing::put`], and removed if it is dropped without it.
///
/// ```
/// use std::io::Write as _;
///
/// use feedline_storage::{Store, StoreOptions};
///
/// # let folder = tempfile::tempdir()?;
/// # let url = folder.path().to_str().ok_or("not UTF-8")?;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = Store::open(url, &StoreOptions::default())?;
/// let mut growing = store.grow("shards")?.ok_or("the store is no local disk")?;
/// growing.write_all(b"first piece, ")?;
/// growing.write_all(b"second piece")?;
/// assert!(store.list("").await?.is_empty());
/// growing.put("shards/0.bin")?;
/// assert_eq!(store.get("shards/0.bin").await?, "first piece, second piece");
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Growing {
    store: Store,
    file: File,
    /// None once it has its name.
    temporary: Option<PathBuf>,
}

impl Growing {
    /// Begins a file in `folder`.
    pub(crate) fn begin(store: &Store, folder: &Path) -> io::Result<Self> {
        create_folders(folder)?;
        let temporary = temporary_in(folder, GROWING);
        let file = File::create_new(&temporary)?;
        // A locked file is in use. A file system without locks cannot be swept either.
        let locked = file.try_lock();
        drop(locked);
        Ok(Self {
            store: store.clone(),
            file,
            temporary: Some(temporary),
        })
    }

    /// Gives the file its name and replaces an existing one; durable when it returns. Blocks the
    /// thread.
    ///
    /// # Errors
    /// The error of the disk. After a failed fsync the file is given up.
    pub fn put(mut self, path: &str) -> Result<(), Error> {
        let target = self.store.local_path().unwrap_or_default().join(path);
        self.named(&target)
            .map_err(|e| Error::io("write", self.store.url_of(path), e))
    }

    fn named(&mut self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, target)?;
        }
        self.temporary = None;
        sync_folder(target)
    }

    /// Converts a failed write of it.
    #[must_use]
    pub fn error(&self, source: io::Error) -> Error {
        let path = self.temporary.as_deref().and_then(Path::parent);
        let url = path.unwrap_or(Path::new("")).display().to_string();
        Error::io("write into", url, source)
    }
}

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(&bytes[..bytes.len().min(PIECE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            remove(temporary);
        }
    }
}

/// Folders that a sweep covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The named folder only.
    One,
    /// The named folder and all below it.
    All,
}

/// Removes temporary files in `folder`, if it exists, that no process writes any longer.
pub(crate) fn sweep(folder: &Path, depth: Depth) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(());
        }
        entries => entries?,
    };
    let (mut temporaries, mut below) = (Vec::new(), Vec::new());
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str();
        if name.is_some_and(|name| name.starts_with(TEMPORARY)) {
            temporaries.push(entry.path());
        } else if depth == Depth::All && entry.file_type()?.is_dir() {
            below.push(entry.path());
        }
    }
    if !temporaries.is_empty()
        && let Some(now) = disk_time(folder)
    {
        temporaries.retain(|path| is_left(path, now));
        temporaries.iter().for_each(|path| remove(path));
    }
    below.iter().try_for_each(|folder| sweep(folder, depth))
}

/// Returns the timestamp that the disk gives a file written now. Its clock may be another
/// machine's, so it can differ from ours. Returns `None` if no file can be written.
fn disk_time(folder: &Path) -> Option<SystemTime> {
    let path = temporary_in(folder, CLOCK);
    let file = File::create_new(&path).ok()?;
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    remove(&path);
    modified.ok()
}

/// Returns true if a file was not written for long at `now`, and no process holds it. A file that
/// cannot be inspected counts as in use.
fn is_left(path: &Path, now: SystemTime) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = modified.ok().and_then(|at| now.duration_since(at).ok());
    let file = || File::options().write(true).open(path).ok();
    age.is_some_and(|age| age >= LEFT) && file().is_some_and(|file| file.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::UNIX_EPOCH};

    use super::*;
    use crate::{
        Faults,
        clock::{Clock as _, SystemClock},
        local::write_temporary,
    };

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap(), &Default::default()).unwrap();
        (folder, store)
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        names.collect()
    }

    #[tokio::test]
    async fn a_file_is_there_when_it_is_whole_and_not_before() {
        let (folder, store) = store();
        let mut growing = store.grow("a").unwrap().unwrap();
        let bytes: Vec<u8> = (0..=250).cycle().take(PIECE + 5).collect();
        growing.write_all(&bytes).unwrap();
        growing.write_all(b"the end").unwrap();
        assert!(store.list("").await.unwrap().is_empty());
        growing.put("a/file").unwrap();
        assert_eq!(names(&folder.path().join("a")), ["file"]);
        let found = store.get("a/file").await.unwrap();
        assert_eq!(found, [&bytes[..], b"the end"].concat());
        // It replaces an existing file.
        let mut growing = store.grow("a").unwrap().unwrap();
        growing.write_all(b"other").unwrap();
        growing.put("a/file").unwrap();
        assert_eq!(store.get("a/file").await.unwrap(), b"other"[..]);
    }

    #[test]
    fn one_that_is_given_up_leaves_nothing() {
        let (folder, store) = store();
        let mut growing = store.grow("a").unwrap().unwrap();
        growing.write_all(b"half").unwrap();
        assert_eq!(names(&folder.path().join("a")).len(), 1);
        drop(growing);
        assert!(names(&folder.path().join("a")).is_empty());
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_lives_is_not() {
        let (folder, store) = store();
        let live = store.grow("").unwrap().unwrap();
        let old = UNIX_EPOCH + SystemClock.unix() - 2 * LEFT;
        live.file.set_modified(old).unwrap();
        let dead = folder.path().join(format!("{GROWING}1-2-3"));
        let whole = folder.path().join(format!("{TEMPORARY}1-2-3"));
        let young = folder.path().join(format!("{GROWING}1-2-4"));
        let other = folder.path().join("old");
        for path in [&dead, &whole, &young, &other] {
            fs::write(path, "x").unwrap();
        }
        for path in [&dead, &whole, &other] {
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(old).unwrap();
        }
        store.sweep("").unwrap();
        store.sweep("absent").unwrap();
        assert!(!dead.exists() && !whole.exists());
        assert!(young.exists() && other.exists());
        assert!(live.temporary.as_deref().unwrap().exists());
    }

    #[test]
    fn a_temporary_file_of_a_write_under_way_is_not_swept_however_old_it_seems() {
        let (folder, store) = store();
        let old = UNIX_EPOCH + SystemClock.unix() - 2 * LEFT;
        let write = |name: &str| {
            let target = folder.path().join("deep/er").join(name);
            let (path, held) = write_temporary(&target, &["x".into()]).unwrap();
            held.set_modified(old).unwrap();
            (path, held)
        };
        let ((live, held), (dead, gone)) = (write("a"), write("b"));
        drop(gone);
        store.sweep("").unwrap();
        assert!(live.exists() && dead.exists(), "of one folder only");
        store.sweep_all("").unwrap();
        assert!(live.exists() && !dead.exists());
        drop(held);
        store.sweep_all("").unwrap();
        assert!(!live.exists());
        assert!(names(&folder.path().join("deep/er")).is_empty());
    }

    #[test]
    fn age_is_told_by_the_clock_of_the_disk() {
        let (folder, _store) = store();
        let now = disk_time(folder.path()).unwrap();
        let path = folder.path().join(format!("{TEMPORARY}1-2-3"));
        fs::write(&path, "x").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        for (modified, left) in [(now, false), (now + 9 * LEFT, false), (now - LEFT, true)] {
            file.set_modified(modified).unwrap();
            assert_eq!(is_left(&path, now), left, "{modified:?} at {now:?}");
        }
        assert_eq!(names(folder.path()).len(), 1, "it leaves nothing itself");
    }

    #[test]
    fn only_local_disks_without_faults_have_files_that_grow() {
        let (_folder, store) = store();
        let faulty = store.with_faults(Arc::new(Faults::default()));
        assert!(faulty.grow("").unwrap().is_none());
        assert!(Store::memory().grow("").unwrap().is_none());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_said() {
        let (folder, store) = store();
        fs::write(folder.path().join("file"), "x").unwrap();
        let error = store.grow("file/below").unwrap_err().to_string();
        assert!(error.contains("file/below"), "{error}");
    }
}
