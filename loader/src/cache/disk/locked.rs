//! Operations under the folder's lock: taking and releasing leases, evicting extents, naming files.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    extent_files::{Disk, HeldLease, MissingExtentStep, Temporary, file_id},
    folder::{create_folder, remove, unique},
    lease::{Claim, EXPIRY, ExtentLease},
    ledger::Ledger,
    memory::FileId,
    name::{DISK_BLOCK, Name, disk_bytes},
};

/// Extents of others that may go unnoticed before the folder is looked through again.
const UNKNOWN_EXTENTS: u64 = 64;

/// The folder while it is locked.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    disk: &'a Disk,
    ledger: Ledger,
}

impl<'a> Locked<'a> {
    /// Runs `work` on the folder, which is locked by `lock`.
    pub(super) fn with<T>(
        disk: &'a Disk,
        lock: &File,
        work: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        // A folder that was removed and made again has another lock, which is not held.
        let path = disk.folder.lock();
        if fs::metadata(path)?.ino() != lock.metadata()?.ino() {
            let reason = "the cache's folder was replaced by another";
            return Err(io::Error::new(ErrorKind::NotFound, reason));
        }
        let ledger = Ledger::read(&disk.folder.ledger())?;
        let mut locked = Self {
            disk,
            ledger: ledger.unwrap_or_default(),
        };
        if ledger.is_none() {
            locked.look_through()?;
        }
        let result = locked.settle().and_then(|()| work(&mut locked));
        locked.write()?;
        result
    }

    /// Starts: counts the extents and removes files of dead processes, if no other cache has the
    /// folder open. Otherwise watches the existing leases.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        if self.disk.session.others(&self.disk.folder)? == 0 {
            for folder in [self.disk.folder.leases(), self.disk.folder.temporaries()] {
                for (_, path) in entries(&folder)? {
                    remove(&path)?;
                }
            }
            return self.look_through();
        }
        let now = self.disk.clock.monotonic();
        for (name, path) in entries(&self.disk.folder.leases())? {
            if let Some(claim) = Claim::read(&path)? {
                self.disk.memory().watched.insert(name, (claim, now));
            }
        }
        Ok(())
    }

    /// Next step for a missing extent. `stale` is the claim that its lease has repeated for too
    /// long.
    pub(super) fn turn(
        &mut self,
        disk: &Arc<Disk>,
        name: Name,
        bytes: u64,
        stale: Option<Claim>,
    ) -> io::Result<MissingExtentStep> {
        self.sweep()?;
        if disk.folder.extent(name).try_exists()? {
            return Ok(MissingExtentStep::Again);
        }
        match Claim::read(&disk.folder.lease(name))? {
            Some(claim) if Some(claim) != stale => return Ok(MissingExtentStep::Follow(claim)),
            Some(claim) => self.give_back(name, claim)?,
            None => {}
        }
        let disk_bytes = disk_bytes(bytes);
        if !self.make_room(name, disk_bytes)? {
            return Ok(MissingExtentStep::Pass);
        }
        let lease = self.reserve(name, disk_bytes)?;
        Ok(MissingExtentStep::Lead(HeldLease {
            lease: Arc::new(lease),
            disk: Arc::clone(disk),
            is_settled: false,
        }))
    }

    /// Gives the file of an extent its name, unless its lease was lost.
    pub(super) fn keep(&mut self, mut held: HeldLease, temporary: Temporary) -> io::Result<bool> {
        let (disk, lease) = (self.disk, Arc::clone(&held.lease));
        let path = disk.folder.extent(lease.name);
        if !lease.is_held(&disk.folder.lease(lease.name))? || path.try_exists()? {
            return Ok(false);
        }
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        // Its folder is not synced: after a power cut the extent is there or not, and is checked before it is used.
        fs::rename(&temporary.0, &path)?;
        held.is_settled = true;
        self.ledger.added += 1;
        let mut memory = disk.memory();
        memory.added += 1;
        memory.put(lease.name, lease.disk_bytes, disk.now());
        drop(memory);
        remove(&disk.folder.lease(lease.name))?;
        Ok(true)
    }

    /// Removes a damaged file, unless another one has taken its place.
    pub(super) fn discard(&mut self, name: Name, file: FileId) -> io::Result<()> {
        let path = self.disk.folder.extent(name);
        match fs::metadata(&path) {
            Ok(metadata) if file_id(&metadata) == file => {
                self.remove_extent(name, metadata.len().next_multiple_of(DISK_BLOCK))
            }
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Counts the bytes of an extent and takes its lease.
    fn reserve(&mut self, name: Name, disk_bytes: u64) -> io::Result<ExtentLease> {
        self.ledger.used += disk_bytes;
        self.write()?;
        let path = self.disk.folder.lease(name);
        let holder = unique(self.disk.clock.as_ref());
        ExtentLease::take(&path, name, holder, disk_bytes).inspect_err(|_| {
            self.ledger.used -= disk_bytes;
        })
    }

    /// Removes extents until one of `disk_bytes` fits; `false` when that is not worth it.
    fn make_room(&mut self, name: Name, disk_bytes: u64) -> io::Result<bool> {
        let fits = |used: u64| used.saturating_add(disk_bytes) <= self.disk.budget;
        if fits(self.ledger.used) {
            return Ok(true);
        }
        if disk_bytes > self.disk.budget {
            return Ok(false);
        }
        let mut has_looked = self.look_if_stale()?;
        let caches = self.disk.session.others(&self.disk.folder)? + 1;
        let share = self.disk.budget / caches;
        self.disk.memory().renew_passed(self.disk.now());
        while !fits(self.ledger.used) {
            match self.victim(name, disk_bytes, share) {
                Some((victim, bytes)) => self.evict(victim, bytes)?,
                None if !has_looked && self.unknown() > 0 => {
                    self.look_through()?;
                    has_looked = true;
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn victim(&self, name: Name, disk_bytes: u64, share: u64) -> Option<(Name, u64)> {
        let mut memory = self.disk.memory();
        let next = memory.foresight.next(name);
        let victim = memory.index.victim(disk_bytes, next, share)?;
        Some((victim, memory.index.disk_bytes(victim)?))
    }

    fn evict(&mut self, name: Name, disk_bytes: u64) -> io::Result<()> {
        let used = self.ledger.used;
        self.remove_extent(name, disk_bytes)?;
        if self.ledger.used < used {
            self.disk.counters.evictions.add(1);
            self.disk.counters.evicted_bytes.add(disk_bytes);
        }
        Ok(())
    }

    /// Removes an extent's file and counts it down, if it was still there.
    fn remove_extent(&mut self, name: Name, disk_bytes: u64) -> io::Result<()> {
        match fs::remove_file(self.disk.folder.extent(name)) {
            Ok(()) => self.ledger.used = self.ledger.used.saturating_sub(disk_bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        self.disk.memory().index.remove(name);
        Ok(())
    }

    /// Gives back the leases whose fetch was given up.
    fn settle(&mut self) -> io::Result<()> {
        for (name, holder) in self.disk.take_given_up() {
            if let Some(claim) = Claim::read(&self.disk.folder.lease(name))?
                && claim.holder == holder
            {
                self.give_back(name, claim)?;
            }
        }
        Ok(())
    }

    /// Ends leases of the start that have not changed for too long.
    fn sweep(&mut self) -> io::Result<()> {
        let now = self.disk.clock.monotonic();
        let mut memory = self.disk.memory();
        let due = memory
            .watched
            .extract_if(|_, (_, since)| now.saturating_sub(*since) >= EXPIRY);
        let due: Vec<_> = due.collect();
        drop(memory);
        for (name, (claim, _)) in due {
            if Claim::read(&self.disk.folder.lease(name))? == Some(claim) {
                self.give_back(name, claim)?;
            }
        }
        Ok(())
    }

    /// Removes a lease and what its holder wrote, and counts its bytes down.
    fn give_back(&mut self, name: Name, claim: Claim) -> io::Result<()> {
        remove(&self.disk.folder.temporary(name, claim.holder))?;
        remove(&self.disk.folder.lease(name))?;
        self.ledger.used = self.ledger.used.saturating_sub(claim.disk_bytes);
        Ok(())
    }

    /// Extents that others added since the folder was last looked through.
    fn unknown(&self) -> u64 {
        self.ledger.added.saturating_sub(self.disk.memory().added)
    }

    /// Looks through the folder if too much of it may be unknown.
    fn look_if_stale(&mut self) -> io::Result<bool> {
        let known = self.disk.memory().index.len() as u64;
        let is_stale = self.unknown() > UNKNOWN_EXTENTS + known / 8 || known == 0;
        if is_stale {
            self.look_through()?;
        }
        Ok(is_stale)
    }

    /// Finds all extents, and recounts them and the leases.
    fn look_through(&mut self) -> io::Result<()> {
        let mut found = Vec::new();
        for folder in fs::read_dir(self.disk.folder.extents())? {
            let folder = folder?;
            if folder.file_type()?.is_dir() {
                look(&folder.path(), &mut found)?;
            }
        }
        let mut used: u64 = found.iter().map(|(_, disk_bytes, _)| disk_bytes).sum();
        for (_, path) in entries(&self.disk.folder.leases())? {
            used += Claim::read(&path)?.map_or(0, |claim| claim.disk_bytes);
        }
        self.ledger.used = used;
        let mut memory = self.disk.memory();
        memory.replace(&found);
        memory.added = self.ledger.added;
        Ok(())
    }

    fn write(&self) -> io::Result<()> {
        self.ledger.write(&self.disk.folder.ledger())
    }
}

/// The extents in one of the folders: name, disk bytes, last access.
fn look(folder: &Path, found: &mut Vec<(Name, u64, u64)>) -> io::Result<()> {
    for (name, path) in entries(folder)? {
        if !path.ends_with(name.file()) {
            continue;
        }
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_file() => {
                let seconds = u64::try_from(metadata.atime()).unwrap_or(0);
                let nanoseconds = u64::try_from(metadata.atime_nsec()).unwrap_or(0);
                let last_access = seconds.saturating_mul(1_000_000_000) + nanoseconds;
                let disk_bytes = metadata.len().next_multiple_of(DISK_BLOCK);
                found.push((name, disk_bytes, last_access));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The files of a folder whose names are those of extents, also followed by a holder. All others are left alone.
fn entries(folder: &Path) -> io::Result<Vec<(Name, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let file_name = entry.file_name();
        let Some(text) = file_name.to_str() else {
            continue;
        };
        let (name, holder) = text.split_once('-').unwrap_or((text, ""));
        let is_holder = holder.is_empty() || Name::parse(holder).is_some();
        if let Some(name) = Name::parse(name).filter(|_| is_holder) {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}
