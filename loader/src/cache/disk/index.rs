//! Index of the cached extents, and choice of the one to evict.
//!
//! Extents that this job will read again are ordered by their next use, all others by their last access: those of
//! other jobs, whose plans are not known, those of earlier runs, and those the plan does not name. The others go first,
//! longest unused first, until this job's extents fill its share of the budget; then the one that is needed last
//! (Belady), if it is needed later than the one that comes in.

use std::collections::{BTreeSet, HashMap};

use super::name::Name;

/// When an extent is or was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Position of its next use in the job's plan.
    Next(u64),
    /// Last access, in nanoseconds since 1970. Only an order among extents: a jump of the clock costs hits, not more.
    Last(u64),
}

/// Identity of a file version: inode and time of its last change.
pub(super) type FileId = (u64, i128);

/// An extent in the cache.
#[derive(Clone, Copy, Debug)]
struct Resident {
    disk_bytes: u64,
    usage: Use,
    /// The file whose checksum was right in this run.
    checked: Option<FileId>,
}

/// The extents in the cache, as far as this process knows: others put and remove some too.
#[derive(Debug, Default)]
pub(super) struct ExtentIndex {
    residents: HashMap<Name, Resident>,
    planned: BTreeSet<(u64, Name)>,
    others: BTreeSet<(u64, Name)>,
    planned_bytes: u64,
}

impl ExtentIndex {
    /// Adds an extent, or changes its use.
    pub(super) fn put(&mut self, name: Name, disk_bytes: u64, usage: Use) {
        let checked = self.remove(name);
        match usage {
            Use::Next(at) => {
                self.planned.insert((at, name));
                self.planned_bytes += disk_bytes;
            }
            Use::Last(at) => {
                self.others.insert((at, name));
            }
        }
        let resident = Resident {
            disk_bytes,
            usage,
            checked,
        };
        self.residents.insert(name, resident);
    }

    /// Takes an extent out. Returns the file that was checked, if any.
    pub(super) fn remove(&mut self, name: Name) -> Option<FileId> {
        let resident = self.residents.remove(&name)?;
        match resident.usage {
            Use::Next(at) => {
                self.planned.remove(&(at, name));
                self.planned_bytes -= resident.disk_bytes;
            }
            Use::Last(at) => {
                self.others.remove(&(at, name));
            }
        }
        resident.checked
    }

    /// Says that the file of an extent was read whole and is good.
    pub(super) fn set_checked(&mut self, name: Name, file: FileId) {
        if let Some(resident) = self.residents.get_mut(&name) {
            resident.checked = Some(file);
        }
    }

    /// Returns true if this very file was checked and found intact in this run.
    pub(super) fn is_checked(&self, name: Name, file: FileId) -> bool {
        self.residents.get(&name).and_then(|r| r.checked) == Some(file)
    }

    /// Disk bytes of a cached extent.
    pub(super) fn disk_bytes(&self, name: Name) -> Option<u64> {
        self.residents.get(&name).map(|r| r.disk_bytes)
    }

    /// All extents.
    pub(super) fn names(&self) -> Vec<Name> {
        self.residents.keys().copied().collect()
    }

    /// Number of extents.
    pub(super) fn len(&self) -> usize {
        self.residents.len()
    }

    /// Extents whose next use is before `position`, the earliest first.
    pub(super) fn due_before(&self, position: u64) -> Vec<Name> {
        let due = self.planned.iter().take_while(|(at, _)| *at < position);
        due.map(|(_, name)| *name).collect()
    }

    /// The extent that should go for one of `disk_bytes` whose next use is `next`; `None` when all that could go are
    /// worth more. `share` is what this job's planned extents may fill.
    pub(super) fn victim(&self, disk_bytes: u64, next: Option<u64>, share: u64) -> Option<Name> {
        let idle = self.others.first().map(|(_, name)| *name);
        let over = self.planned_bytes + disk_bytes > share;
        let latest = self.planned.last();
        match next {
            Some(next) if over => latest
                .filter(|(at, _)| *at > next)
                .map(|(_, name)| *name)
                .or(idle.filter(|_| self.planned.is_empty())),
            _ => idle.or_else(|| {
                let next = next?;
                latest.filter(|(at, _)| *at > next).map(|(_, name)| *name)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::name::testing::name, *};

    fn index(residents: &[(u64, Use)]) -> ExtentIndex {
        let mut index = ExtentIndex::default();
        for (number, usage) in residents {
            index.put(name(*number), 10, *usage);
        }
        index
    }

    #[test]
    fn the_longest_unused_of_others_goes_before_anything_that_is_planned() {
        let index = index(&[(1, Use::Next(900)), (2, Use::Last(8)), (3, Use::Last(7))]);
        assert_eq!(index.victim(10, Some(5), 100), Some(name(3)));
        assert_eq!(index.victim(10, None, 100), Some(name(3)));
    }

    #[test]
    fn the_extent_that_is_needed_last_goes_if_the_new_one_is_needed_earlier() {
        let index = index(&[(1, Use::Next(50)), (2, Use::Next(70)), (3, Use::Next(60))]);
        assert_eq!(index.victim(10, Some(69), 30), Some(name(2)));
        assert_eq!(index.victim(10, Some(71), 30), None);
        assert_eq!(index.victim(10, None, 30), None);
    }

    #[test]
    fn a_job_over_its_share_gives_way_itself() {
        let index = index(&[(1, Use::Next(50)), (2, Use::Next(70)), (3, Use::Last(1))]);
        assert_eq!(index.victim(10, Some(60), 30), Some(name(3)));
        assert_eq!(index.victim(10, Some(60), 29), Some(name(2)));
        assert_eq!(index.victim(10, Some(80), 29), None);
        assert_eq!(index.victim(10, None, 29), Some(name(3)));
    }

    #[test]
    fn an_extent_has_one_use_at_a_time() {
        let mut index = index(&[(1, Use::Last(1)), (2, Use::Next(9))]);
        index.put(name(1), 10, Use::Next(5));
        index.put(name(2), 10, Use::Last(3));
        assert_eq!(index.planned_bytes, 10);
        assert_eq!(index.due_before(6), [name(1)]);
        assert_eq!(index.victim(10, Some(0), 100), Some(name(2)));
        index.remove(name(2));
        index.remove(name(1));
        assert_eq!((index.len(), index.planned_bytes), (0, 0));
    }

    #[test]
    fn a_check_holds_for_the_file_that_was_checked_only() {
        let mut index = index(&[(1, Use::Last(1))]);
        assert!(!index.is_checked(name(1), (1, 2)));
        index.set_checked(name(1), (1, 2));
        index.put(name(1), 10, Use::Last(2));
        assert!(index.is_checked(name(1), (1, 2)));
        assert!(!index.is_checked(name(1), (3, 2)));
        index.remove(name(1));
        index.put(name(1), 10, Use::Last(3));
        assert!(!index.is_checked(name(1), (1, 2)));
    }
}
