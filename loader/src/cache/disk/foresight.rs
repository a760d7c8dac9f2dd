//! Future reads of the job, with their times.

use std::collections::HashMap;

use super::name::Name;

/// Extents whose uses are known at most: about 60 MB of memory. Those beyond it count as not planned.
const MOST_EXTENTS: usize = 1 << 20;

/// No further use.
const NEVER: u64 = u64::MAX;

/// Largest distance of reads from the planned order.
const DISORDER: u64 = 4096;

/// The planned uses of extents: positions in the sequence of all reads. Of each extent the next two uses are known,
/// which is what two epochs have.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    uses: HashMap<Name, [u64; 2]>,
    /// Uses planned so far: the position of the next one.
    planned: u64,
    /// One past the latest use that has been read.
    read: u64,
}

impl Foresight {
    /// Adds a use behind all others.
    pub(super) fn append(&mut self, name: Name) {
        let position = self.planned;
        self.planned += 1;
        if self.uses.len() >= MOST_EXTENTS && !self.uses.contains_key(&name) {
            return;
        }
        let uses = self.uses.entry(name).or_insert([NEVER; 2]);
        if let Some(free) = uses.iter_mut().find(|u| **u == NEVER) {
            *free = position;
        }
    }

    /// Says that an extent is being read: its next use is over.
    pub(super) fn read(&mut self, name: Name) {
        if let Some(position) = self.shift(name) {
            self.read = self.read.max(position + 1);
        }
    }

    /// The next use of an extent. One that was passed over without a read no longer counts.
    pub(super) fn next(&mut self, name: Name) -> Option<u64> {
        loop {
            let next = self.uses.get(&name)?[0];
            if next + DISORDER >= self.read {
                return Some(next);
            }
            self.shift(name);
        }
    }

    /// Uses before this position are over, also those that were not read.
    pub(super) fn horizon(&self) -> u64 {
        self.read.saturating_sub(DISORDER)
    }

    fn shift(&mut self, name: Name) -> Option<u64> {
        let uses = self.uses.get_mut(&name)?;
        let [first, second] = *uses;
        *uses = [second, NEVER];
        if second == NEVER {
            self.uses.remove(&name);
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::name::testing::name, *};

    fn foresight(plan: &[u64]) -> Foresight {
        let mut foresight = Foresight::default();
        plan.iter().for_each(|n| foresight.append(name(*n)));
        foresight
    }

    #[test]
    fn reads_use_up_the_planned_uses_in_order() {
        let mut foresight = foresight(&[5, 6, 5]);
        assert_eq!(foresight.next(name(5)), Some(0));
        foresight.read(name(5));
        assert_eq!(foresight.next(name(5)), Some(2));
        assert_eq!(foresight.next(name(6)), Some(1));
        foresight.read(name(5));
        assert_eq!(foresight.next(name(5)), None);
        assert_eq!(foresight.next(name(7)), None);
    }

    #[test]
    fn a_use_that_was_passed_over_does_not_count_for_ever() {
        let plan: Vec<u64> = (0..=DISORDER + 1).chain([0]).collect();
        let mut foresight = foresight(&plan);
        foresight.read(name(DISORDER - 1));
        assert_eq!(foresight.next(name(0)), Some(0));
        foresight.read(name(DISORDER));
        assert_eq!(foresight.next(name(0)), Some(DISORDER + 2));
    }
}
