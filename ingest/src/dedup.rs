//! Which records have landed lately, by content hash.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::{BuildHasherDefault, Hasher},
};

use arrow::array::AsArray;
use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    ids::Hash128,
    record::system,
};
use feedline_storage::Store;

use crate::{error::Error, landed_file};

/// The hashes of the last `size` landed records.
///
/// It is a function of what has landed and nothing else, so a resumed run decides as one that never stopped.
#[derive(Debug, Default)]
pub(crate) struct Window {
    size: usize,
    /// In landing order.
    hashes: VecDeque<u128>,
    /// Landing number of the newest record with this hash, counted from the window's making.
    newest: HashMap<u128, u64, Hashed>,
    /// Landing number of the first of `hashes`.
    first: u64,
    /// Records that landed before and may come again, however long ago.
    known: HashSet<u128>,
    /// Whether what lands is among them too.
    keeps: bool,
}

/// Takes hashes as they are: they need no hashing.
type Hashed = BuildHasherDefault<Same>;

#[derive(Debug, Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, hash: u128) {
        let [low, high] = [hash, hash >> 64].map(|half| half & u128::from(u64::MAX));
        self.0 = u64::try_from(low ^ high).unwrap_or_default();
    }
}

impl Window {
    /// An empty window.
    pub(crate) fn new(size: u64) -> Self {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Self {
            size,
            hashes: VecDeque::new(),
            newest: HashMap::default(),
            first: 0,
            known: HashSet::new(),
            keeps: false,
        }
    }

    /// Sets the records that landed before and may come again, however long ago.
    pub(crate) fn know(&mut self, known: HashSet<u128>) {
        self.known = known;
        self.keeps = false;
    }

    /// Adds to the records that landed before and may come again; from now on those that land are among them.
    pub(crate) fn know_more(&mut self, hashes: impl IntoIterator<Item = Hash128>) {
        self.known.extend(hashes.into_iter().map(Hash128::get));
        self.keeps = true;
    }

    /// The window as it was after the last of `entries`, from the newest data files in `landing`.
    pub(crate) async fn rebuild(
        landing: &Store,
        entries: &[CommitEntry],
        size: u64,
    ) -> Result<Self, Error> {
        let mut window = Self::new(size);
        let mut files = Vec::new();
        let mut rows = 0;
        for file in entries
            .iter()
            .rev()
            .flat_map(|entry| entry.files.iter().rev())
        {
            if rows >= size {
                break;
            }
            rows += file.rows;
            files.push(file);
        }
        for file in files.into_iter().rev() {
            for hash in read_hashes(landing, file).await? {
                window.push(hash);
            }
        }
        Ok(window)
    }

    /// Whether the record is among the last landed ones, or those that may come again.
    pub(crate) fn contains(&self, hash: Hash128) -> bool {
        self.newest.contains_key(&hash.get()) || self.known.contains(&hash.get())
    }

    /// Takes note of a landed record.
    pub(crate) fn push(&mut self, hash: Hash128) {
        if self.size == 0 {
            return;
        }
        if self.keeps {
            self.known.insert(hash.get());
        }
        if self.hashes.len() == self.size
            && let Some(oldest) = self.hashes.pop_front()
        {
            if self.newest.get(&oldest) == Some(&self.first) {
                self.newest.remove(&oldest);
            }
            self.first += 1;
        }
        self.newest
            .insert(hash.get(), self.first + self.hashes.len() as u64);
        self.hashes.push_back(hash.get());
    }
}

/// The `_feedline_hash` column of a landed file.
pub(crate) async fn read_hashes(landing: &Store, file: &DataFile) -> Result<Vec<Hash128>, Error> {
    let mut hashes = Vec::new();
    for batch in landed_file::read(landing, file, &[system::HASH], None).await? {
        let column = batch
            .column_by_name(system::HASH)
            .and_then(|c| c.as_fixed_size_binary_opt());
        let values = column.into_iter().flatten().flatten();
        hashes.extend(
            values
                .filter_map(|b| b.try_into().ok())
                .map(|b| Hash128::new(u128::from_be_bytes(b))),
        );
    }
    Ok(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(size: u64, hashes: &[u128]) -> Window {
        let mut window = Window::new(size);
        hashes
            .iter()
            .for_each(|hash| window.push(Hash128::new(*hash)));
        window
    }

    fn check(size: u64, pushed: &[u128], inside: &[u128], outside: &[u128]) {
        let window = window(size, pushed);
        assert!(
            inside
                .iter()
                .all(|hash| window.contains(Hash128::new(*hash)))
        );
        assert!(
            !outside
                .iter()
                .any(|hash| window.contains(Hash128::new(*hash)))
        );
        assert!(window.hashes.len() as u64 <= size);
        assert!(window.newest.len() <= window.hashes.len());
    }

    #[test]
    fn the_last_ones_are_inside() {
        check(3, &[1, 2, 3, 4], &[2, 3, 4], &[1]);
        check(3, &[1], &[1], &[2]);
        check(0, &[1], &[], &[1]);
    }

    #[test]
    fn a_repeated_hash_stays_as_long_as_its_newest() {
        check(3, &[1, 1, 2, 3], &[1, 2, 3], &[]);
        check(3, &[1, 1, 2, 3, 4], &[2, 3, 4], &[1]);
    }
}
