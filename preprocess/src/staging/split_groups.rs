//! Groups of the split's key among staged rows.

/// Groups of the split's key among staged rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// Groups of each split, by the first one that they have rows in.
    pub(crate) splits: [u64; 3],
    /// Rows of the largest group.
    pub(crate) largest: u64,
    /// Groups with rows in more than one split.
    pub(crate) leaked: u64,
    /// Hashes of the keys of some of these.
    pub(crate) samples: Vec<u64>,
}

impl Groups {
    /// Counts `count` groups with rows in the splits of these two codes; the largest has `rows`.
    pub(super) fn add(&mut self, [first, last]: [u8; 2], count: u64, rows: u64) {
        self.splits[usize::from(first)] += count;
        self.largest = self.largest.max(rows);
        self.leaked += if first == last { 0 } else { count };
    }

    /// Name of a group in messages.
    pub(crate) fn named(key: u64) -> String {
        format!("rows of the split key with hash `{key:016x}`")
    }
}
