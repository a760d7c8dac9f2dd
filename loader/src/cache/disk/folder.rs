//! The cache's own folder below the one that the user names.
//!
//! ```text
//! feedline-cache-v1/       mode 0700
//!   CACHEDIR.TAG           says that this program made the folder; backup programs skip such folders
//!   lock                   locked (flock) while the ledger, leases or names change
//!   ledger                 bytes in use, see `ledger`
//!   extents/ab/ab..        extents, see `name`; mode 0444
//!   leases/ab..            who is fetching an extent, see `lease`
//!   tmp/ab..-holder        an extent that is being written
//!   sessions/holder        one per cache that is open; locked (flock) as long as its process lives
//! ```
//!
//! Nothing outside this folder is ever written or removed, and in it only names of the forms above. So the cache may
//! even be given the dataset's own folder. All of it can be deleted at any time.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use feedline_schemas::ids::Hash128;
use feedline_storage::{clock::Clock, private::own_uid};

use super::name::Name;

/// Name of the cache's own folder.
pub(super) const OWN: &str = "feedline-cache-v1";

const MARKER: &str = "CACHEDIR.TAG";
const MARKER_TEXT: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
    # This folder is a cache of feedline. It can be deleted at any time.\n";

/// Permission bits of other users, and those that let them add files to a folder.
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// File systems that are on this machine. Files of any other are read instead of mapped.
const LOCAL: &[&str] = &[
    "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "tmpfs", "ramfs", "overlay",
];

/// The folder, and whether its files can be mapped.
#[derive(Debug)]
pub(super) struct CacheFolder {
    root: PathBuf,
    mappable: bool,
}

/// Reason that the folder cannot be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// The cache's own folder was made by somebody else.
    Foreign(PathBuf),
    /// The system says so.
    Io(io::Error),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl CacheFolder {
    /// The cache's folder below `parent`, made if need be.
    pub(super) fn open(parent: &Path) -> Result<Self, Unusable> {
        let root = parent.join(OWN);
        DirBuilder::new().recursive(true).create(parent)?;
        if let Err(error) = DirBuilder::new().mode(0o700).create(&root)
            && error.kind() != ErrorKind::AlreadyExists
        {
            return Err(error.into());
        }
        // The marker is the first file of all, so a folder with files but without it is somebody else's. The order of
        // the two looks makes it safe against another process that is just making it.
        let is_empty = fs::read_dir(&root)?.next().is_none();
        if !root.join(MARKER).is_file() {
            if !is_empty {
                return Err(Unusable::Foreign(root));
            }
            fs::write(root.join(MARKER), MARKER_TEXT)?;
        }
        for name in ["extents", "leases", "tmp", "sessions"] {
            create_folder(&root.join(name))?;
        }
        Ok(Self {
            mappable: is_mappable(&root),
            root,
        })
    }

    /// Returns true if its files may be mapped: they are on a local disk and only their owner can
    /// have written them.
    pub(super) fn is_mappable(&self) -> bool {
        self.mappable
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn extents(&self) -> PathBuf {
        self.root.join("extents")
    }

    pub(super) fn extent(&self, name: Name) -> PathBuf {
        self.extents().join(name.file())
    }

    pub(super) fn leases(&self) -> PathBuf {
        self.root.join("leases")
    }

    pub(super) fn lease(&self, name: Name) -> PathBuf {
        self.leases().join(name.to_string())
    }

    pub(super) fn temporaries(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Path of the file that `holder` writes an extent to.
    pub(super) fn temporary(&self, name: Name, holder: Hash128) -> PathBuf {
        self.temporaries().join(format!("{name}-{holder}"))
    }

    pub(super) fn ledger(&self) -> PathBuf {
        self.root.join("ledger")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Opens the file whose lock guards the folder.
    pub(super) fn open_lock(&self) -> io::Result<File> {
        open_or_create(&self.lock())
    }

    fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }
}

/// Says that a cache is open, for as long as the process lives.
#[derive(Debug)]
pub(super) struct CacheSession {
    path: PathBuf,
    _lock: File,
}

impl CacheSession {
    /// Joins the caches that have `folder` open.
    pub(super) fn join(folder: &CacheFolder, clock: &dyn Clock) -> io::Result<Self> {
        let path = folder.sessions().join(unique(clock).to_string());
        let lock = open_or_create(&path)?;
        lock.try_lock().map_err(io::Error::from)?;
        Ok(Self { path, _lock: lock })
    }

    /// Counts the other caches that are open, and removes what dead ones left. The folder must be locked.
    pub(super) fn others(&self, folder: &CacheFolder) -> io::Result<u64> {
        let mut others = 0;
        for entry in fs::read_dir(folder.sessions())? {
            let path = entry?.path();
            if path == self.path || !is_own(&path) {
                continue;
            }
            match File::open(&path).map(|file| file.try_lock()) {
                Ok(Err(TryLockError::WouldBlock)) => others += 1,
                Ok(Ok(())) => remove(&path)?,
                Ok(Err(TryLockError::Error(error))) => return Err(error),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(others)
    }
}

impl Drop for CacheSession {
    fn drop(&mut self) {
        // One that stays behind is removed by the next cache.
        remove(&self.path).ok();
    }
}

/// A value that no other process, container or call has: it names sessions and holders of leases.
pub(super) fn unique(clock: &dyn Clock) -> Hash128 {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut text = Vec::with_capacity(64);
    text.extend(process::id().to_le_bytes());
    text.extend(COUNTER.fetch_add(1, Relaxed).to_le_bytes());
    text.extend(clock.unix().as_nanos().to_le_bytes());
    text.extend(clock.monotonic().as_nanos().to_le_bytes());
    Hash128::of(&text)
}

/// Returns true if the cache gives such file names: 32 hexadecimal digits.
fn is_own(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str());
    name.and_then(Name::parse).is_some()
}

/// Removes a file; a missing one is no error.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates one folder; its parent must be there, so that a cache that was deleted is not made again by a writer.
pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Opens a file for reading and writing, and keeps what is in it.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

/// Writes the first bytes of a file in place.
pub(super) fn write_in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    open_or_create(path)?.write_all_at(bytes, 0)
}

/// Returns whether this user owns the folders of the extents and no other user can write to them.
fn is_mappable(root: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(root) else {
        return false;
    };
    // No other user reaches the content of a closed folder, whatever its own permissions.
    let is_closed = found.mode() & OTHERS == 0;
    let own = own_uid();
    let is_private = |path: &Path| {
        fs::symlink_metadata(path).is_ok_and(|found| {
            found.is_dir()
                && own.is_none_or(|own| found.uid() == own)
                && (is_closed || found.mode() & OTHERS_WRITE == 0)
        })
    };
    let extents = root.join("extents");
    let mut folders = fs::read_dir(&extents).into_iter().flatten();
    [root, &extents].into_iter().all(is_private)
        && folders.all(|entry| entry.is_ok_and(|entry| is_private(&entry.path())))
        && is_on_local_disk(root)
}

/// Returns true if a path is known to be on a disk of this machine, by the mount table.
pub(crate) fn is_on_local_disk(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    fs::canonicalize(path)
        .is_ok_and(|path| file_system(&mounts, &path).is_some_and(|kind| LOCAL.contains(&kind)))
}

/// The kind of file system that holds `path`, by the mount table.
fn file_system<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mounts = mounts.lines().filter_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let point = PathBuf::from(unescape(head.split(' ').nth(4)?));
        let depth = point.components().count();
        path.starts_with(&point)
            .then_some((depth, tail.split(' ').next()?))
    });
    // Of two mounts on one point the later one is on top, and `max_by_key` returns the last of equals.
    mounts.max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

/// Undoes the octal escapes of the mount table.
fn unescape(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n")];
    let text = escapes
        .iter()
        .fold(text.to_owned(), |t, (from, to)| t.replace(from, to));
    text.replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_path_is_that_of_the_nearest_mount() {
        let mounts = "21 1 8:1 / / rw - ext4 /dev/sda rw\n\
             30 21 0:40 / /mnt/share rw,relatime shared:1 - nfs4 host:/x rw\n\
             31 30 0:41 / /mnt/share/my\\040disk rw - xfs /dev/sdb rw\n\
             32 21 0:42 / /run rw - tmpfs none rw\n\
             33 21 0:43 / /run rw - fuse.sshfs none rw\n";
        let kind = |path: &str| file_system(mounts, Path::new(path)).unwrap();
        assert_eq!(kind("/home/me"), "ext4");
        assert_eq!(kind("/mnt/share/cache"), "nfs4");
        assert_eq!(kind("/mnt/shared"), "ext4");
        assert_eq!(kind("/mnt/share/my disk/cache"), "xfs");
        assert_eq!(kind("/run/x"), "fuse.sshfs");
        assert!(file_system("", Path::new("/")).is_none());
    }

    #[test]
    fn a_folder_of_that_name_with_files_of_others_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join(OWN);
        fs::create_dir(&root).unwrap();
        fs::write(root.join("precious"), "data").unwrap();
        let refused = CacheFolder::open(parent.path());
        assert!(matches!(refused, Err(Unusable::Foreign(path)) if path == root));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_not_mapped() {
        use std::os::unix::fs::PermissionsExt as _;
        let parent = tempfile::tempdir().unwrap();
        CacheFolder::open(parent.path()).unwrap();
        let root = parent.path().join(OWN);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!CacheFolder::open(parent.path()).unwrap().is_mappable());
    }

    #[test]
    fn folders_in_it_that_others_may_write_to_are_not_mapped() {
        use std::os::unix::fs::PermissionsExt as _;
        let parent = tempfile::tempdir().unwrap();
        let folder = CacheFolder::open(parent.path()).unwrap();
        let (extents, one) = (folder.extents(), folder.extents().join("ab"));
        fs::create_dir(&one).unwrap();
        let set = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let is_mappable = || CacheFolder::open(parent.path()).unwrap().is_mappable();
        set(&one, 0o777);
        let before = is_mappable();
        assert_eq!(before, is_on_local_disk(parent.path()));
        // Other users may reach its content.
        set(folder.root(), 0o755);
        assert!(!is_mappable());
        set(&one, 0o755);
        assert_eq!(is_mappable(), before);
        for path in [&extents, &one] {
            set(path, 0o777);
            assert!(!is_mappable(), "{}", path.display());
            set(path, 0o755);
            assert_eq!(is_mappable(), before);
        }
        fs::remove_dir(&one).unwrap();
        std::os::unix::fs::symlink(parent.path(), &one).unwrap();
        assert!(!is_mappable());
    }
}
