//! Content hashes of recently landed records.

mod known_rejects;
mod page_runs;
pub(crate) mod repeat_loader;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::{BuildHasherDefault, Hasher},
};

use arrow::{
    array::{Array as _, AsArray, RecordBatch},
    datatypes::UInt64Type,
    util::display::array_value_to_string,
};
use bytes::Bytes;
use feedline_readers::value::Value;
use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    ids::Hash128,
    record::system,
};
use feedline_storage::Store;

pub(crate) use self::known_rejects::count_current_rejects;
use crate::{error::Error, landed_file};

/// Hashes of the last `size` landed records.
///
/// It depends only on the landed records, so a resumed run decides like an uninterrupted one.
#[derive(Debug, Default)]
pub(crate) struct Window {
    size: usize,
    /// Hashes in landing order.
    hashes: VecDeque<u128>,
    /// Landing number of the newest record with this hash, counted from the window's making.
    newest: HashMap<u128, u64, Hashed>,
    /// Landing number of the first of `hashes`.
    first: u64,
    /// Landed records of any age that may be returned again.
    known: HashSet<u128>,
    /// Hashes of earlier rejects that may be returned again.
    known_rejects: HashSet<u128>,
    /// True if landed records are added too.
    keeps: bool,
    /// Columns of `key` and `version`; empty if records are compared by their content alone.
    key: Vec<String>,
    /// Key of each landed record that is known, by content.
    keys: HashMap<u128, u128, Hashed>,
    /// Content of the newest landed record of each key.
    latest: HashMap<u128, u128, Hashed>,
    /// The same for the current batch, by the unconverted key of its records.
    landing: HashMap<u128, u128, Hashed>,
}

/// Hash map hasher that uses the keys as they are.
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
            ..Self::default()
        }
    }

    /// Returns true if a record is a duplicate only when it equals the latest version of its key.
    pub(crate) fn has_key(&self) -> bool {
        !self.key.is_empty()
    }

    /// Returns the unconverted key of a record; `None` if a part of it is missing or null.
    pub(crate) fn key_of(&self, record: &Value) -> Option<u128> {
        let parts = self.key.iter().map(|column| match record.at(column) {
            None | Some(Value::Null) => None,
            Some(value) => Some(value.canonical()),
        });
        hash_parts(parts)
    }

    /// Adds the keys of landed records, in their order.
    pub(crate) fn note_rows(&mut self, rows: impl IntoIterator<Item = (Hash128, Option<u128>)>) {
        for (hash, key) in rows {
            if let Some(key) = key {
                self.keys.insert(hash.get(), key);
                self.latest.insert(key, hash.get());
            }
        }
    }

    /// Adds the keys of the batch that was just decided, from its data file.
    ///
    /// # Errors
    /// A message about the fault of the file.
    pub(crate) fn settle(&mut self, file: Option<&Bytes>) -> Result<(), String> {
        self.landing.clear();
        if let Some(file) = file.filter(|_| self.has_key()) {
            let columns = columns_of(&self.key);
            let batches = landed_file::decode(file.clone(), Some(&columns), None);
            let batches = batches.map_err(|e| e.to_string())?;
            let rows: Vec<_> = batches.iter().flat_map(|b| rows_of(b, &self.key)).collect();
            self.note_rows(rows);
        }
        Ok(())
    }

    /// Sets the landed records of any age that may be returned again.
    pub(crate) fn know(&mut self, known: HashSet<u128>) {
        self.known = known;
        self.keeps = false;
    }

    /// Sets the earlier rejects that may be returned again.
    pub(crate) fn know_rejects(&mut self, known: HashSet<u128>) {
        self.known_rejects = known;
    }

    /// Adds earlier rejects that may be returned again.
    pub(crate) fn know_more_rejects(&mut self, known: HashSet<u128>) {
        self.known_rejects.extend(known);
    }

    /// Returns true if a reject with this hash is a known one.
    pub(crate) fn knows_reject(&self, hash: u128) -> bool {
        self.known_rejects.contains(&hash)
    }

    /// Adds landed records that may be returned again. From now on, landing records are added too.
    pub(crate) fn know_more(&mut self, hashes: impl IntoIterator<Item = Hash128>) {
        self.known.extend(hashes.into_iter().map(Hash128::get));
        self.keeps = true;
    }

    /// The window as it was after the last of `entries`, from the newest data files in `landing`.
    pub(crate) async fn rebuild(
        landing: &Store,
        entries: &[CommitEntry],
        size: u64,
        key: Vec<String>,
    ) -> Result<Self, Error> {
        let mut window = Self {
            key,
            ..Self::new(size)
        };
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
        // A merged file may have many more rows than the window: these are not looked at.
        let mut surplus = rows.saturating_sub(size);
        for file in files.into_iter().rev() {
            let columns = columns_of(&window.key);
            for batch in landed_file::read(landing, file, &columns, None).await? {
                let skipped = surplus.min(batch.num_rows() as u64);
                surplus -= skipped;
                let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
                let batch = batch.slice(skipped, batch.num_rows() - skipped);
                if window.has_key() {
                    let rows = rows_of(&batch, &window.key);
                    rows.iter().for_each(|(hash, _)| window.push(*hash, None));
                    window.note_rows(rows);
                } else {
                    let hashes = hashes_of(&batch);
                    hashes.into_iter().for_each(|hash| window.push(hash, None));
                }
            }
        }
        Ok(window)
    }

    /// Returns true if the record is among the last landed ones, or those that may repeat. A record
    /// with a `key` must also be the latest version of its key: a return to earlier content is a
    /// new version.
    pub(crate) fn contains(&self, hash: Hash128, key: Option<u128>) -> bool {
        let hash = hash.get();
        if !self.newest.contains_key(&hash) && !self.known.contains(&hash) {
            return false;
        }
        let here = key.and_then(|key| self.landing.get(&key));
        let before = || self.latest.get(self.keys.get(&hash)?);
        here.or_else(before).is_none_or(|latest| *latest == hash)
    }

    /// Forgets the key of a record that the window no longer knows.
    fn forget(&mut self, hash: u128) {
        if !self.known.is_empty() {
            return;
        }
        if let Some(key) = self.keys.remove(&hash)
            && self.latest.get(&key) == Some(&hash)
        {
            self.latest.remove(&key);
        }
    }

    /// Adds a landed record, and its unconverted key.
    pub(crate) fn push(&mut self, hash: Hash128, key: Option<u128>) {
        if self.size == 0 {
            return;
        }
        if let Some(key) = key {
            self.landing.insert(key, hash.get());
        }
        if self.keeps {
            self.known.insert(hash.get());
        }
        if self.hashes.len() == self.size
            && let Some(oldest) = self.hashes.pop_front()
        {
            if self.newest.get(&oldest) == Some(&self.first) {
                self.newest.remove(&oldest);
                self.forget(oldest);
            }
            self.first += 1;
        }
        self.newest
            .insert(hash.get(), self.first + self.hashes.len() as u64);
        self.hashes.push_back(hash.get());
    }
}

/// Names of the hash column and of those of a key.
fn columns_of(key: &[String]) -> Vec<&str> {
    let key = key.iter().map(String::as_str);
    std::iter::once(system::HASH).chain(key).collect()
}

/// Reads content hash and key of the rows of a landed file. The key is `None` if a part of it is
/// null or missing.
pub(crate) async fn read_rows(
    landing: &Store,
    file: &DataFile,
    key: &[String],
) -> Result<Vec<(Hash128, Option<u128>)>, Error> {
    let batches = landed_file::read(landing, file, &columns_of(key), None).await?;
    Ok(batches
        .iter()
        .flat_map(|batch| rows_of(batch, key))
        .collect())
}

fn rows_of(batch: &RecordBatch, key: &[String]) -> Vec<(Hash128, Option<u128>)> {
    let columns: Vec<_> = key.iter().map(|name| batch.column_by_name(name)).collect();
    let part = |row: usize| {
        columns.iter().map(move |column| {
            let column = column.filter(|column| !column.is_null(row))?;
            array_value_to_string(column, row).ok()
        })
    };
    let hashes = hashes_of(batch);
    let rows = (0..).zip(hashes);
    rows.map(|(row, hash)| (hash, hash_parts(part(row))))
        .collect()
}

fn hashes_of(batch: &RecordBatch) -> Vec<Hash128> {
    let column = batch
        .column_by_name(system::HASH)
        .and_then(|c| c.as_fixed_size_binary_opt());
    let values = column.into_iter().flatten().flatten();
    let bytes = values.filter_map(|b| b.try_into().ok());
    bytes
        .map(|b| Hash128::new(u128::from_be_bytes(b)))
        .collect()
}

/// Hash of the parts of a key; `None` if one is missing.
fn hash_parts(parts: impl Iterator<Item = Option<String>>) -> Option<u128> {
    let parts: Option<Vec<String>> = parts.collect();
    let parts = parts.filter(|parts| !parts.is_empty())?;
    Some(Hash128::of(parts.join("\u{1f}").as_bytes()).get())
}

/// The `_feedline_hash` column of a landed file.
pub(crate) async fn read_hashes(landing: &Store, file: &DataFile) -> Result<Vec<Hash128>, Error> {
    read_hashes_of(landing, file, |_| true).await
}

/// Content hashes of the rows of a data file that are of batches that `is_wanted`: a compaction may have
/// merged the rows of others into the file.
pub(crate) async fn read_hashes_of(
    landing: &Store,
    file: &DataFile,
    is_wanted: impl Fn(u64) -> bool,
) -> Result<Vec<Hash128>, Error> {
    let mut hashes = Vec::new();
    for batch in landed_file::read(landing, file, &[system::SEQUENCE, system::HASH], None).await? {
        let sequences = batch.column_by_name(system::SEQUENCE);
        let sequences = sequences.and_then(|column| column.as_primitive_opt::<UInt64Type>());
        let of_batch = hashes_of(&batch).into_iter().enumerate();
        hashes.extend(
            of_batch
                .filter(|(row, _)| {
                    sequences.is_none_or(|sequences| is_wanted(sequences.value(*row)))
                })
                .map(|(_, hash)| hash),
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
            .for_each(|hash| window.push(Hash128::new(*hash), None));
        window
    }

    fn check(size: u64, pushed: &[u128], inside: &[u128], outside: &[u128]) {
        let window = window(size, pushed);
        assert!(
            inside
                .iter()
                .all(|hash| window.contains(Hash128::new(*hash), None))
        );
        assert!(
            !outside
                .iter()
                .any(|hash| window.contains(Hash128::new(*hash), None))
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
