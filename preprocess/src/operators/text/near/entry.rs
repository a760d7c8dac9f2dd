//! A document as an index has it: its id, its group, and whether it is frozen.

/// Mark of a frozen document; others hold their group's.
const FROZEN: u8 = 0x80;

/// A document in an index. Of two, the frozen one is before the other, then the one with the smaller id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// True for a frozen set, which no other may be a near-duplicate of.
    pub is_frozen: bool,
    /// Its id, unique among the frozen documents, or among the others.
    pub id: u64,
    /// A number below 128 of the caller's, such as a split.
    pub group: u8,
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let place = |entry: &Self| (!entry.is_frozen, entry.id, entry.group);
        place(self).cmp(&place(other))
    }
}

impl Entry {
    pub(super) fn mark(self) -> u8 {
        assert!(self.group < FROZEN, "a group is below 128");
        self.group | if self.is_frozen { FROZEN } else { 0 }
    }

    pub(super) fn unpacked(id: u64, mark: u8) -> Self {
        Self {
            is_frozen: mark & FROZEN != 0,
            id,
            group: mark & !FROZEN,
        }
    }
}
