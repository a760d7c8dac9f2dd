//! The files of a landing zone, compared with the entries of its log.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    ids::{Hash128, Sequence},
};
use feedline_storage::{Listed, NameRange, Store, log::entry_path};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::folders::{CHILDREN, FOLDERS, ORPHANS, names, sequence_of};
use crate::{error::Error, log_entries::LogEntries};

/// Reason that is reported for a missing file.
pub(crate) const MISSING: &str = "it is missing";
/// Number of newest files whose end is read at each start.
const ENDS_READ: usize = 8;
/// Last bytes of each Parquet file, after four bytes with the length of its footer.
const MAGIC: &[u8] = b"PAR1";
/// Size of the smallest Parquet file: a magic at either end and the length of the footer.
const LEAST_BYTES: u64 = 12;
/// Requests that are made at the same time.
const AT_ONCE: usize = 16;
/// Most files of a slice that are looked up one by one, or whose entries are read.
const LOOKED_UP: usize = 64;

/// Difference between a landed file and its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileFault {
    #[error("{}", MISSING)]
    Missing,
    #[error("it has {found} bytes and should have {wanted}")]
    Size { found: u64, wanted: u64 },
    #[error("it is too short to be a Parquet file")]
    TooShort,
    #[error("it does not end as a Parquet file does")]
    WrongEnd,
}

/// A file that does not match its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadFile {
    /// File as the entry describes it.
    pub(crate) file: DataFile,
    /// Number of the entry.
    pub(crate) sequence: u64,
    pub(crate) fault: FileFault,
}

/// A landing zone's files, as one listing shows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LandingInventory {
    /// Named files that are missing, have another size, or (of the newest) lack the end of a
    /// Parquet file; by entry.
    pub(crate) bad: Vec<BadFile>,
    /// Files of batches that no entry names.
    pub(crate) unnamed: Vec<Listed>,
    /// Files in `orphans/`, by their former path.
    pub(crate) orphans: Vec<Listed>,
    /// Named files that were compared.
    pub(crate) compared: u64,
}

impl LandingInventory {
    /// Lists the landing zone and compares it with `entries`, all of the log, which the caller must
    /// read first.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) async fn take(landing: &Store, entries: &[CommitEntry]) -> Result<Self, Error> {
        let listed = landing.list("").await?;
        Self::compare(landing, entries, &listed, 0).await
    }

    /// Like [`Self::take`], for files whose numbers are not lower than those that an earlier writer
    /// has compared, and a slice of the older ones that `seed` chooses. Reads older entries if these
    /// may name files that are listed.
    ///
    /// # Errors
    /// [`Error::Storage`], and those of the log.
    pub(crate) async fn take_new(
        landing: &Store,
        entries: &mut LogEntries,
        seed: Option<Hash128>,
    ) -> Result<Self, Error> {
        let mut since = entries.compare_since();
        let slice = match seed {
            Some(seed) => entries.slice(seed, since).await?,
            None => Vec::new(),
        };
        // A snapshot with an unreadable part is none.
        since = since.min(entries.compare_since());
        entries.load_for_comparison(since).await?;
        if since.get() == 0 {
            return Self::take(landing, entries.all()).await;
        }
        let range = slice.first().zip(slice.last());
        let range = range.map(|(first, last)| (first.sequence, last.sequence));
        let listed = list_since(landing, (entries.last(), &slice[..]), since, range).await?;
        let is_new = |file: &Listed| sequence_of(&file.path).is_none_or(|own| own >= since.get());
        let (new, old): (Vec<_>, Vec<_>) = listed.into_iter().partition(is_new);
        let mut inventory = Self::compare(landing, entries.all(), &new, since.get()).await?;
        if !inventory.unnamed.is_empty() {
            // An older entry may name a file with a later number, which has taken the place of its own.
            entries.load_for_comparison(Sequence::new(0)).await?;
            inventory = Self::compare(landing, entries.all(), &new, since.get()).await?;
        }
        inventory.compare_slice(landing, &slice, &old).await?;
        Ok(inventory)
    }

    /// Compares the files in `listed` with those that `entries` name, except those with numbers below
    /// `since`.
    async fn compare(
        landing: &Store,
        entries: &[CommitEntry],
        listed: &[Listed],
        since: u64,
    ) -> Result<Self, Error> {
        let found = sizes(listed);
        let mut named = named_by(entries);
        named.retain(|path, _| since == 0 || sequence_of(path).is_none_or(|own| own >= since));
        let mut inventory = Self {
            compared: named.len() as u64,
            ..Self::default()
        };
        for (path, (sequence, file)) in &named {
            inventory
                .check(landing, *sequence, file, found.get(path).copied())
                .await?;
        }
        let newest: Vec<_> = entries
            .iter()
            .rev()
            .flat_map(|entry| {
                let files: Vec<_> = entry.named_files().collect();
                files
                    .into_iter()
                    .map(move |file| (entry.sequence.get(), file))
            })
            .filter(|(_, file)| found.get(file.path.as_str()) == Some(&file.bytes))
            .take(ENDS_READ)
            .collect();
        let ends = newest
            .iter()
            .map(|(_, file)| wrong_end(landing, file))
            .collect::<Vec<_>>();
        let ends: Vec<_> = stream::iter(ends).buffered(AT_ONCE).try_collect().await?;
        for ((sequence, file), fault) in newest.into_iter().zip(ends) {
            if let Some(fault) = fault {
                inventory.bad.push(BadFile {
                    file: file.clone(),
                    sequence,
                    fault,
                });
            }
        }
        inventory.bad.sort_by_key(|bad| bad.sequence);
        for file in listed {
            if let Some(path) = file.path.strip_prefix(ORPHANS) {
                inventory.orphans.push(Listed {
                    path: path.trim_start_matches('/').to_owned(),
                    ..file.clone()
                });
            } else if sequence_of(&file.path).is_some() && !named.contains_key(file.path.as_str()) {
                inventory.unnamed.push(file.clone());
            }
        }
        Ok(inventory)
    }

    /// Compares the files of older entries, `slice`, with those `listed` that have their numbers. Files
    /// of theirs with other numbers, as a compaction makes them, are looked up one by one.
    async fn compare_slice(
        &mut self,
        landing: &Store,
        slice: &[CommitEntry],
        listed: &[Listed],
    ) -> Result<(), Error> {
        let (Some(first), Some(last)) = (slice.first(), slice.last()) else {
            return Ok(());
        };
        let numbers = first.sequence.get()..=last.sequence.get();
        let (found, named) = (sizes(listed), named_by(slice));
        let mut others = 0;
        for (path, (sequence, file)) in &named {
            if !sequence_of(path).is_some_and(|own| numbers.contains(&own)) {
                others += 1;
                if others > LOOKED_UP {
                    continue;
                }
            }
            self.compared += 1;
            self.check(landing, *sequence, file, found.get(path).copied())
                .await?;
        }
        // A file that its own entry does not name is garbage, whatever other entries name.
        let mut bodies: BTreeMap<u64, Option<Bytes>> = BTreeMap::new();
        let unnamed = listed
            .iter()
            .filter(|file| !named.contains_key(file.path.as_str()));
        for file in unnamed {
            let Some(own) = sequence_of(&file.path) else {
                continue;
            };
            if !bodies.contains_key(&own) {
                if bodies.len() == LOOKED_UP {
                    break;
                }
                bodies.insert(own, landing.get_opt(&entry_path(own)).await?);
            }
            let body = bodies.get(&own).and_then(Option::as_ref);
            if body.is_some_and(|body| !names(body, &file.path)) {
                self.unnamed.push(file.clone());
            }
        }
        Ok(())
    }

    /// Compares the size of a named file with the one that a listing has `found`.
    async fn check(
        &mut self,
        landing: &Store,
        sequence: u64,
        file: &DataFile,
        mut found: Option<u64>,
    ) -> Result<(), Error> {
        if found.is_none() {
            // A listing is not of one moment: another start may just have moved it back.
            found = match landing.size(&file.path).await {
                Err(e) if e.is_not_found() => None,
                size => Some(size?),
            };
        }
        let wanted = file.bytes;
        let fault = match found {
            Some(found) if found == wanted => return Ok(()),
            Some(found) => FileFault::Size { found, wanted },
            None => FileFault::Missing,
        };
        self.bad.push(BadFile {
            file: file.clone(),
            sequence,
            fault,
        });
        Ok(())
    }

    /// Error about the first bad file; `None` if all are good.
    pub(crate) fn error(&self, landing: &Store) -> Option<Error> {
        let first = self.bad.first()?;
        let more = match self.bad.len() - 1 {
            0 => String::new(),
            more => format!(", and so with {more} more"),
        };
        Some(Error::Landed {
            url: landing.url_of(&first.file.path),
            reason: format!(
                "{}, as entry {} of the log has it{more}",
                first.fault, first.sequence
            ),
        })
    }
}

/// Sizes of files by path.
fn sizes(listed: &[Listed]) -> BTreeMap<&str, u64> {
    let sizes = listed.iter().map(|file| (file.path.as_str(), file.bytes));
    sizes.collect()
}

/// Files that entries name, by path, each with the number of its entry.
fn named_by(entries: &[CommitEntry]) -> BTreeMap<&str, (u64, &DataFile)> {
    let files = entries.iter().flat_map(|entry| {
        let sequence = entry.sequence.get();
        entry
            .named_files()
            .map(move |file| (file.path.as_str(), (sequence, file)))
    });
    files.collect()
}

/// Lists the files whose numbers are not lower than `since` or in the range `slice`, those of the child
/// tables of the newest entry and of `entries` included.
async fn list_since(
    landing: &Store,
    (last, entries): (Option<&CommitEntry>, &[CommitEntry]),
    since: Sequence,
    slice: Option<(Sequence, Sequence)>,
) -> Result<Vec<Listed>, Error> {
    let name = |sequence: Sequence| format!("{:020}", sequence.get());
    let slice = slice.map(|(first, last)| NameRange {
        after: name(first),
        before: Some(name(last.next())),
    });
    let ranges: Vec<NameRange> = slice
        .into_iter()
        .chain([NameRange::after(name(since))])
        .collect();
    let tables: BTreeSet<_> = entries
        .iter()
        .chain(last)
        .flat_map(|entry| entry.children.keys())
        .collect();
    let mut folders: Vec<String> = FOLDERS
        .iter()
        .filter(|folder| **folder != CHILDREN)
        .map(|folder| (*folder).to_owned())
        .collect();
    folders.extend(tables.iter().map(|table| format!("{CHILDREN}/{table}")));
    let lists: Vec<_> = folders
        .iter()
        .map(|folder| landing.list_ranges(folder, &ranges))
        .collect();
    let listed: Vec<Vec<Listed>> = stream::iter(lists).buffered(AT_ONCE).try_collect().await?;
    let mut listed = listed.concat();
    if tables.is_empty() {
        // Files of the first batch with a child table, which no entry names. Tables that are no longer
        // configured have older files.
        let mut others = landing.list(CHILDREN).await?;
        others.retain(|file| sequence_of(&file.path).is_some_and(|own| own >= since.get()));
        listed.extend(others);
    }
    Ok(listed)
}

/// Checks the end of a file whose size is right; returns its fault.
pub(super) async fn wrong_end(
    landing: &Store,
    file: &DataFile,
) -> Result<Option<FileFault>, Error> {
    if file.bytes < LEAST_BYTES {
        return Ok(Some(FileFault::TooShort));
    }
    let end = landing.get_range(&file.path, file.bytes - 8..file.bytes);
    let end = match end.await {
        // A writer beside a reader may have removed it after it was listed.
        Err(e) if e.is_not_found() => return Ok(Some(FileFault::Missing)),
        end => end?,
    };
    let footer = end.first_chunk().copied().map(u32::from_le_bytes);
    let fits = footer.is_some_and(|footer| u64::from(footer) + LEAST_BYTES <= file.bytes);
    let is_whole = end.ends_with(MAGIC) && fits;
    Ok((!is_whole).then_some(FileFault::WrongEnd))
}
