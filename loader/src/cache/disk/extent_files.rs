//! The extents on the disk: reading them, making room, leases, putting them there.
//!
//! Damage to the ledger, to leases or to temporary files never leads to wrong bytes: a file gets
//! its name in one step, when it is complete, and is checked before its bytes are used. Those three
//! only save room and requests.

use std::{
    fs::{self, File, FileTimes, Permissions},
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use bytes::Bytes;
use feedline_schemas::ids::Hash128;
use feedline_storage::clock::Clock;

use super::{
    counters::CacheCounters,
    folder::{CacheFolder, CacheSession, remove},
    lease::{Claim, ExtentLease},
    locked::Locked,
    map::map,
    memory::{CacheKnowledge, FileId},
    name::{Name, TRAILER_BYTES, disk_bytes},
};

/// Number of times that a dropped cache tries to lock the folder, and the pause between two tries.
pub(super) const DROP_LOOKS: u32 = 100;
pub(super) const DROP_LOOK: Duration = Duration::from_millis(3);

/// The extents of one open cache. What needs the folder's lock is in [`Locked`].
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) folder: CacheFolder,
    pub(super) budget: u64,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) counters: Arc<CacheCounters>,
    pub(super) session: CacheSession,
    memory: Mutex<CacheKnowledge>,
    /// Leases whose fetch was given up; whoever locks the folder next gives them back.
    given_up: Mutex<Vec<(Name, Hash128)>>,
}

/// Result of reading an extent's file.
#[derive(Debug)]
pub(super) enum FoundExtent {
    /// Its bytes, checked.
    Good(Bytes),
    /// There is none.
    Nothing,
    /// A file that is not what was written.
    Damaged {
        /// The file, so that one that has replaced it is not taken for it.
        file: FileId,
        reason: String,
    },
}

/// Next step for an extent that is missing.
#[derive(Debug)]
pub(super) enum MissingExtentStep {
    /// Fetch it and keep it.
    Lead(HeldLease),
    /// Wait for another process, whose lease says this.
    Follow(Claim),
    /// Look again: it has just come.
    Again,
    /// Fetch it and do not keep it.
    Pass,
}

/// A lease, given back when dropped without having been settled.
#[derive(Debug)]
pub(super) struct HeldLease {
    pub(super) lease: Arc<ExtentLease>,
    pub(super) disk: Arc<Disk>,
    pub(super) is_settled: bool,
}

/// A file under a temporary name, removed when dropped before it has another.
#[derive(Debug)]
pub(super) struct Temporary(pub(super) PathBuf);

impl Drop for HeldLease {
    fn drop(&mut self) {
        if !self.is_settled {
            let mut given_up = lock(&self.disk.given_up);
            given_up.push((self.lease.name, self.lease.holder));
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // One that stays behind is removed with its lease.
        remove(&self.0).ok();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Leases that cannot be given back soon go stale, for which others wait longer.
        if !lock(&self.given_up).is_empty()
            && let Ok(file) = self.folder.open_lock()
            && locks_soon(&file)
        {
            Locked::with(self, &file, |_| Ok(())).ok();
        }
    }
}

impl Disk {
    /// The extents in `folder`, which must be locked.
    pub(super) fn new(
        folder: CacheFolder,
        budget: u64,
        clock: Arc<dyn Clock>,
        counters: Arc<CacheCounters>,
    ) -> io::Result<Self> {
        let session = CacheSession::join(&folder, clock.as_ref())?;
        Ok(Self {
            folder,
            budget,
            clock,
            counters,
            session,
            memory: Mutex::default(),
            given_up: Mutex::default(),
        })
    }

    /// State of the cache in this process.
    pub(super) fn memory(&self) -> MutexGuard<'_, CacheKnowledge> {
        lock(&self.memory)
    }

    /// Takes the leases that are to be given back.
    pub(super) fn take_given_up(&self) -> Vec<(Name, Hash128)> {
        std::mem::take(&mut lock(&self.given_up))
    }

    /// Adds reads to the end of the plan.
    pub(super) fn foresee(&self, plan: impl Iterator<Item = Name>) {
        let now = self.now();
        for name in plan {
            let mut memory = self.memory();
            memory.foresight.append(name);
            memory.renew(name, now);
        }
    }

    /// Says that an extent is being read.
    pub(super) fn note(&self, name: Name) {
        let now = self.now();
        let mut memory = self.memory();
        memory.foresight.read(name);
        memory.renew(name, now);
    }

    /// Reads an extent of `bytes` bytes. A file is checked against its own checksum and `crc32c`, if that is known, when
    /// it is read for the first time in this run.
    pub(super) fn read(
        &self,
        name: Name,
        bytes: u64,
        crc32c: Option<u32>,
    ) -> io::Result<FoundExtent> {
        let file = match File::open(self.folder.extent(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(FoundExtent::Nothing),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        let id = file_id(&metadata);
        let damaged = |reason| Ok(FoundExtent::Damaged { file: id, reason });
        let whole = match self.whole(file, metadata.len(), bytes) {
            Ok(whole) => whole,
            Err(error) => return damaged(error.to_string()),
        };
        let content = whole.slice(..whole.len() - TRAILER_BYTES);
        if !self.memory().is_checked(name, id) {
            let found = crc32c::crc32c(&content);
            let trailer = name.trailer(content.len() as u64, found);
            if whole[content.len()..] != trailer || crc32c.is_some_and(|crc32c| found != crc32c) {
                return damaged(format!("checksum `{found:08x}` is not the one written"));
            }
            self.memory()
                .set_checked(name, disk_bytes(bytes), id, self.now());
        }
        Ok(FoundExtent::Good(content))
    }

    /// The bytes of an extent's file, trailer included.
    fn whole(&self, mut file: File, length: u64, bytes: u64) -> io::Result<Bytes> {
        let expected = usize::try_from(bytes).map_err(io::Error::other)? + TRAILER_BYTES;
        if length != expected as u64 {
            let reason = format!("it has `{length}` bytes instead of `{expected}`");
            return Err(io::Error::new(ErrorKind::InvalidData, reason));
        }
        // The last access, for other jobs, which do not know this one's plan. Nothing depends on it.
        let now = UNIX_EPOCH + Duration::from_nanos(self.now());
        file.set_times(FileTimes::new().set_accessed(now)).ok();
        if self.folder.is_mappable() {
            return map(&file, expected);
        }
        let mut whole = Vec::with_capacity(expected);
        file.read_to_end(&mut whole)?;
        if whole.len() == expected {
            Ok(whole.into())
        } else {
            Err(ErrorKind::UnexpectedEof.into())
        }
    }

    /// Writes the file of an extent under a temporary name.
    pub(super) fn write(&self, lease: &ExtentLease, bytes: &Bytes) -> io::Result<Temporary> {
        let path = self.folder.temporary(lease.name, lease.holder);
        let mut file = File::create_new(&path)?;
        let temporary = Temporary(path);
        let crc32c = crc32c::crc32c(bytes);
        file.write_all(bytes)?;
        file.write_all(&lease.name.trailer(bytes.len() as u64, crc32c))?;
        file.set_permissions(Permissions::from_mode(0o444))?;
        file.sync_all()?;
        Ok(temporary)
    }

    /// Nanoseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.clock.unix().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Locks the folder if that takes no longer than the others have it locked for their work, as a rule. Not for longer,
/// since one that hangs must not keep whoever drops a cache.
fn locks_soon(file: &File) -> bool {
    (0..DROP_LOOKS).any(|_| {
        let is_locked = file.try_lock().is_ok();
        if !is_locked {
            thread::park_timeout(DROP_LOOK);
        }
        is_locked
    })
}

/// Identity of a file.
pub(super) fn file_id(metadata: &fs::Metadata) -> FileId {
    let changed = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    (metadata.ino(), changed)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
