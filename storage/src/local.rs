//! The local disk.
//!
//! A write has this order: temporary file beside the target, write, fsync of the file, rename
//! (replace) or hard link (create), fsync of the folder. A crash leaves at most a file named
//! `.tmp-*`, which no listing shows.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    ops::Range,
    os::unix::fs::FileExt as _,
    path::{self, Component, Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, UNIX_EPOCH},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};

use crate::{
    Answer, Error, Listed, ReadFailure, ReadOnce,
    backend::{Backend, Created, NameRange},
    clock::{Clock as _, SystemClock},
    folder_walk::{FolderListing, walk},
};

pub(crate) const TEMPORARY: &str = ".tmp-";

/// Bytes per write call. The page cache stores the data of one call in equally large folios, and
/// large ones are rarely recycled from recent use: 512 MB took 0.15 CPU s in such pieces and 1.6 in
/// one.
pub(crate) const PIECE: usize = 256 << 10;

/// Returns the absolute path of `root`, without `.` and `..`, which would not survive joins.
pub(crate) fn resolved(root: &Path) -> io::Result<PathBuf> {
    let mut found = PathBuf::new();
    for part in path::absolute(root)?.components() {
        if part != Component::ParentDir {
            found.push(part);
            continue;
        }
        // The parent of a link is the parent of the folder that it points to.
        if let Ok(real) = found.canonicalize() {
            found = real;
        }
        found.pop();
    }
    Ok(found)
}

/// A folder of the local disk.
#[derive(Clone, Debug)]
pub(crate) struct LocalBackend {
    root: PathBuf,
}

impl LocalBackend {
    pub(crate) const fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn path_of(&self, path: &str) -> PathBuf {
        if path.is_empty() {
            self.root.clone()
        } else {
            self.root.join(path)
        }
    }

    /// Cuts the file at `offset` and writes `bytes` there, durably but not atomically.
    pub(crate) async fn put_tail(
        &self,
        path: &str,
        offset: u64,
        bytes: Bytes,
    ) -> Result<(), Error> {
        self.blocking("write", path, move |target| {
            let file = File::options().write(true).open(target)?;
            if file.metadata()?.len() < offset {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file.set_len(offset)?;
            file.write_all_at(&bytes, offset)?;
            file.sync_data()
        })
        .await
    }

    /// Lists all objects below a folder, and the entries that are not listed, each sorted by path.
    /// Their paths begin with `prefix`.
    pub(crate) async fn list_below(
        &self,
        folder: &str,
        prefix: &str,
    ) -> Result<FolderListing, Error> {
        let prefix = prefix.to_owned();
        self.blocking("list", folder, move |target| match walk(target, &prefix) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(FolderListing::default()),
            found => found,
        })
        .await
    }

    /// Runs `work` on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        path: &str,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let target = self.path_of(path);
        let result = tokio::task::spawn_blocking(move || work(&target)).await;
        let result = result.unwrap_or_else(|e| Err(io::Error::other(e)));
        result.map_err(|source| Error::io(operation, self.url_of(path), source))
    }
}

#[async_trait]
impl Backend for LocalBackend {
    fn url_of(&self, path: &str) -> String {
        self.path_of(path).display().to_string()
    }

    async fn get(&self, path: &str) -> Result<Bytes, Error> {
        self.blocking("read", path, |target| fs::read(target).map(Bytes::from))
            .await
    }

    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, Error> {
        self.blocking("read", path, move |target| {
            let mut file = File::open(target)?;
            file.seek(SeekFrom::Start(range.start))?;
            let mut bytes = Vec::new();
            file.take(range.end.saturating_sub(range.start))
                .read_to_end(&mut bytes)?;
            Ok(Bytes::from(bytes))
        })
        .await
    }

    async fn read_once(&self, path: &str, read: &ReadOnce) -> Result<Answer, ReadFailure> {
        let bytes = self.get_range(path, read.range.clone()).await?;
        Ok(Answer {
            etag: None,
            object_bytes: self.size(path).await?,
            body_bytes: bytes.len() as u64,
            body: stream::once(async { Ok(bytes) }).boxed(),
        })
    }

    fn reconnect(&self) {}

    async fn size(&self, path: &str) -> Result<u64, Error> {
        self.blocking("read", path, |target| fs::metadata(target).map(|m| m.len()))
            .await
    }

    async fn look_up(&self, path: &str) -> Result<Listed, Error> {
        let own = path.to_owned();
        self.blocking("read", path, move |target| {
            fs::metadata(target).map(|metadata| listed(own, &metadata))
        })
        .await
    }

    async fn modified(&self, path: &str) -> Result<Duration, Error> {
        let modified = |target: &Path| {
            let modified = fs::metadata(target)?.modified()?;
            // A file from before 1970 gets age 1970.
            Ok(modified.duration_since(UNIX_EPOCH).unwrap_or_default())
        };
        self.blocking("read", path, modified).await
    }

    async fn put(&self, path: &str, parts: Vec<Bytes>) -> Result<(), Error> {
        self.blocking("write", path, move |target| {
            let (temporary, _held) = write_temporary(target, &parts)?;
            fs::rename(&temporary, target).inspect_err(|_| remove(&temporary))?;
            sync_folder(target)
        })
        .await
    }

    async fn create(&self, path: &str, bytes: Bytes) -> Result<Created, Error> {
        self.blocking("create", path, move |target| {
            let (temporary, _held) = write_temporary(target, &[bytes])?;
            let linked = fs::hard_link(&temporary, target);
            remove(&temporary);
            match linked {
                Ok(()) => sync_folder(target).map(|()| Created::Yes),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(Created::AlreadyThere),
                Err(e) => Err(e),
            }
        })
        .await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        let target = self.path_of(to);
        self.blocking("move", from, move |source| {
            create_folders(target.parent().unwrap_or_else(|| Path::new(".")))?;
            fs::rename(source, &target)?;
            sync_folder(&target)?;
            sync_folder(source)
        })
        .await
    }

    async fn swap(&self, path: &str, before: Option<Bytes>, bytes: Bytes) -> Result<bool, Error> {
        self.blocking("write", path, move |target| {
            let parent = target.parent().unwrap_or_else(|| Path::new("."));
            create_folders(parent)?;
            // From the read to the rename the lock keeps other processes of this machine from
            // swapping a file of the folder. It ends with the process.
            let folder = File::open(parent)?;
            folder.lock()?;
            let found = match fs::read(target) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                found => Some(found?),
            };
            if found.as_deref() != before.as_deref() {
                return Ok(false);
            }
            let (temporary, _held) = write_temporary(target, &[bytes])?;
            fs::rename(&temporary, target).inspect_err(|_| remove(&temporary))?;
            sync_folder(target).map(|()| true)
        })
        .await
    }

    async fn list(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        let listing = self.list_below(folder, folder).await?;
        Ok(listing.objects)
    }

    async fn list_ranges(&self, folder: &str, ranges: &[NameRange]) -> Result<Vec<Listed>, Error> {
        let (prefix, ranges) = (folder.to_owned(), ranges.to_vec());
        self.blocking("list", folder, move |target| {
            match files_in(target, &prefix, &ranges) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                found => found,
            }
        })
        .await
    }

    async fn delete(&self, path: &str) -> Result<(), Error> {
        self.blocking("delete", path, |target| match fs::remove_file(target) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        })
        .await
    }
}

/// Writes a temporary file beside `target`, durably. Until the handle is dropped it is in use, so
/// no sweep removes it.
pub(crate) fn write_temporary(target: &Path, parts: &[Bytes]) -> io::Result<(PathBuf, File)> {
    let parent = target.parent().unwrap_or_else(|| Path::new("."));
    create_folders(parent)?;
    let temporary = temporary_in(parent, TEMPORARY);
    let written = File::create_new(&temporary).and_then(|mut file| {
        // Without locks in the file system a sweep cannot test any either, so only the age counts.
        let locked = file.try_lock();
        drop(locked);
        let mut pieces = parts.iter().flat_map(|part| part.chunks(PIECE));
        pieces.try_for_each(|piece| file.write_all(piece))?;
        file.sync_all()?;
        Ok(file)
    });
    // After a failed fsync the kernel may have dropped the pages: the file is given up, never
    // synced again.
    let file = written.inspect_err(|_| remove(&temporary))?;
    Ok((temporary, file))
}

/// A unique name of a file in `folder` that begins with `prefix`.
pub(crate) fn temporary_in(folder: &Path, prefix: &str) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    // Two containers may both be process 1: the time makes their names differ, and an existing name
    // is not used.
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let time = SystemClock.unix().as_nanos();
    folder.join(format!("{prefix}{}-{number}-{time:x}", process::id()))
}

/// Creates missing folders and makes each durable in its parent.
pub(crate) fn create_folders(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        create_folders(parent)?;
    }
    match fs::create_dir(folder) {
        // A missing folder is no missing object, which a caller may take for an empty store.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(io::Error::other(format!(
            "the folder `{}` cannot be created: {e}",
            folder.display()
        ))),
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => sync_folder(folder),
    }
}

/// Makes the directory entry of `target` durable.
pub(crate) fn sync_folder(target: &Path) -> io::Result<()> {
    let parent = target
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    File::open(parent)?.sync_all()
}

/// Removes a temporary file; one that cannot be removed is invisible to readers anyway.
pub(crate) fn remove(temporary: &Path) {
    if let Err(error) = fs::remove_file(temporary) {
        tracing::debug!(path = %temporary.display(), %error, "temporary file was not removed");
    }
}

pub(crate) fn listed(path: String, metadata: &fs::Metadata) -> Listed {
    let modified = metadata.modified().ok();
    Listed {
        path,
        bytes: metadata.len(),
        modified: modified.map(|time| time.duration_since(UNIX_EPOCH).unwrap_or_default()),
        etag: None,
    }
}

/// The files of a folder whose names are in one of `ranges`. Only of these the metadata is read, since a folder may have a
/// million others.
fn files_in(folder: &Path, prefix: &str, ranges: &[NameRange]) -> io::Result<Vec<Listed>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.starts_with(TEMPORARY) || !ranges.iter().any(|range| range.has(&name)) {
            continue;
        }
        let metadata = match fs::metadata(entry.path()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        if !metadata.is_dir() {
            let path = match prefix {
                "" => name,
                prefix => format!("{prefix}/{name}"),
            };
            found.push(listed(path, &metadata));
        }
    }
    Ok(found)
}
