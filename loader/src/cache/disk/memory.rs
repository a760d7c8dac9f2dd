//! One process's knowledge of the cache: the extents in it, and their next uses.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::{
    foresight::Foresight,
    index::{ExtentIndex, Use},
    lease::Claim,
    name::Name,
};

pub(super) use super::index::FileId;

/// Knowledge of one process.
#[derive(Debug, Default)]
pub(super) struct CacheKnowledge {
    pub(super) index: ExtentIndex,
    pub(super) foresight: Foresight,
    /// The ledger's `added` when the folder was last looked through, plus what this process added since.
    pub(super) added: u64,
    /// Leases of others found at the start, each with the time since when it has not changed.
    pub(super) watched: HashMap<Name, (Claim, Duration)>,
}

impl CacheKnowledge {
    /// Notes that an extent is there.
    pub(super) fn put(&mut self, name: Name, disk_bytes: u64, last_access: u64) {
        let next = self.foresight.next(name);
        let usage = next.map_or(Use::Last(last_access), Use::Next);
        self.index.put(name, disk_bytes, usage);
    }

    /// Updates the next use of an extent, if it is in the cache.
    pub(super) fn renew(&mut self, name: Name, now: u64) {
        if let Some(disk_bytes) = self.index.disk_bytes(name) {
            self.put(name, disk_bytes, now);
        }
    }

    /// Updates the next use of extents whose planned use has passed without a read.
    pub(super) fn renew_passed(&mut self, now: u64) {
        for name in self.index.due_before(self.foresight.horizon()) {
            self.renew(name, now);
        }
    }

    /// Makes the index what a look through the folder found.
    pub(super) fn replace(&mut self, found: &[(Name, u64, u64)]) {
        let known = self.index.names();
        let there: HashSet<_> = found.iter().map(|(name, ..)| *name).collect();
        for name in known.into_iter().filter(|n| !there.contains(n)) {
            self.index.remove(name);
        }
        for (name, disk_bytes, last_access) in found {
            self.put(*name, *disk_bytes, *last_access);
        }
    }

    /// Returns true if this very file was checked and found intact in this run.
    pub(super) fn is_checked(&self, name: Name, file: FileId) -> bool {
        self.index.is_checked(name, file)
    }

    /// Notes that an extent is there and that its file is good.
    pub(super) fn set_checked(&mut self, name: Name, disk_bytes: u64, file: FileId, now: u64) {
        self.put(name, disk_bytes, now);
        self.index.set_checked(name, file);
    }
}
