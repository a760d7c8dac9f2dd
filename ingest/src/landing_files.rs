//! Compares the files of a landing zone with those that its log names.
//!
//! A batch's files are written before the entry that names them. So a process that dies in between
//! leaves files that no entry names, and so does a writer that finds its position in the log taken.
//! `data/*.parquet` must contain each row once for readers of the folder. So every writer moves
//! such files to `orphans/` when it opens the log.
//!
//! Another writer may be alive and about to name such a file. No clock or lease is needed for
//! safety:
//!
//! - A file's name begins with the number of its entry. Once that entry exists, other files of this
//!   number are never named, since entries do not change.
//! - Any other file is moved, and then the log is read again. If the entry exists by then and names
//!   the file, the file is moved back. A writer in turn checks its files after its entry, and
//!   rewrites missing ones. Either the writer checks after the move, or the move came after the
//!   entry and the mover sees the entry.
//! - If both die before their checks, the next start finds a named file missing and its bytes in
//!   `orphans/`, and writes it again.
//!
//! Nothing is deleted: `orphans/` may be removed by hand while no run is in progress. A start costs
//! one listing of the source's landing folder (a request for each 1,000 objects) and the last bytes
//! of its newest files. If there is a snapshot of the log, only files whose numbers are not lower
//! than its mark are listed: an earlier writer has compared the others. A batch costs a metadata
//! request for each of its files and a read of the entry before.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    ids::{Hash128, Name, Sequence},
    report::{Damage, SourceReport, Warning},
};
use feedline_storage::{Listed, Store};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tracing::info;

use crate::{
    commit_log::entry_path,
    error::Error,
    log_entries::LogEntries,
    supersede::{ASIDE, set_paths_aside},
};

/// Folders of a source's landing zone with files that log entries name.
const FOLDERS: [&str; 7] = [
    "data",
    "rejects",
    "frontier",
    "validators",
    "raw",
    "marks",
    CHILDREN,
];
/// The one of them that has a folder for each table.
const CHILDREN: &str = "children";
/// Folder for files that no entry names.
pub(crate) const ORPHANS: &str = "orphans";
/// Folder for files and entries that a repair removes from the log.
pub(crate) const DAMAGED: &str = "damaged";

/// Number of newest files whose end is read at each start.
const ENDS_READ: usize = 8;
/// Last bytes of each Parquet file, after four bytes with the length of its footer.
const MAGIC: &[u8] = b"PAR1";
/// Size of the smallest Parquet file: a magic at either end and the length of the footer.
const LEAST_BYTES: u64 = 12;

/// Reason that is reported for a missing file.
pub(crate) const MISSING: &str = "it is missing";

/// Requests that are made at the same time.
const AT_ONCE: usize = 16;

/// A file that does not match its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadFile {
    /// File as the entry describes it.
    pub(crate) file: DataFile,
    /// Number of the entry.
    pub(crate) sequence: u64,
    /// Difference between the file and its entry.
    pub(crate) reason: String,
}

/// A landing zone's files, as one listing shows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stock {
    /// Named files that are missing, have another size, or (of the newest) lack the end of a
    /// Parquet file; by entry.
    pub(crate) bad: Vec<BadFile>,
    /// Files of batches that no entry names.
    pub(crate) unnamed: Vec<Listed>,
    /// Files in `orphans/`, by their former path.
    pub(crate) orphans: Vec<Listed>,
}

impl Stock {
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
    /// has compared. Reads older entries if these may name files that are listed.
    ///
    /// # Errors
    /// [`Error::Storage`], and those of the log.
    pub(crate) async fn take_new(landing: &Store, entries: &mut LogEntries) -> Result<Self, Error> {
        let since = entries.compare_since();
        if since.get() == 0 {
            entries.load_for_comparison(since).await?;
            return Self::take(landing, entries.all()).await;
        }
        entries.load_for_comparison(since).await?;
        let last = entries.last();
        let tables: Vec<&Name> = last.iter().flat_map(|last| last.children.keys()).collect();
        let listed = list_since(landing, &tables, since).await?;
        let stock = Self::compare(landing, entries.all(), &listed, since.get()).await?;
        if stock.unnamed.is_empty() {
            return Ok(stock);
        }
        // An older entry may name a file with a later number, which has taken the place of its own.
        entries.load_for_comparison(Sequence::new(0)).await?;
        Self::compare(landing, entries.all(), &listed, since.get()).await
    }

    /// Compares the files in `listed` with those that `entries` name, except those with numbers below
    /// `since`.
    async fn compare(
        landing: &Store,
        entries: &[CommitEntry],
        listed: &[Listed],
        since: u64,
    ) -> Result<Self, Error> {
        let found: BTreeMap<&str, u64> = listed
            .iter()
            .map(|file| (file.path.as_str(), file.bytes))
            .collect();
        let named: BTreeMap<&str, (u64, &DataFile)> = entries
            .iter()
            .flat_map(|entry| {
                let sequence = entry.sequence.get();
                entry
                    .named_files()
                    .map(move |file| (file.path.as_str(), (sequence, file)))
            })
            .filter(|(path, _)| since == 0 || sequence_of(path).is_none_or(|own| own >= since))
            .collect();
        let mut stock = Self::default();
        for (path, (sequence, file)) in &named {
            let mut bytes = found.get(path).copied();
            if bytes.is_none() {
                // A listing is not of one moment: another start may just have moved it back.
                bytes = match landing.size(path).await {
                    Err(e) if e.is_not_found() => None,
                    size => Some(size?),
                };
            }
            let reason = match bytes {
                Some(bytes) if bytes == file.bytes => continue,
                Some(bytes) => format!("it has {bytes} bytes and should have {}", file.bytes),
                None => MISSING.to_owned(),
            };
            stock.bad.push(BadFile {
                file: (*file).clone(),
                sequence: *sequence,
                reason,
            });
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
        for ((sequence, file), reason) in newest.into_iter().zip(ends) {
            if let Some(reason) = reason {
                stock.bad.push(BadFile {
                    file: file.clone(),
                    sequence,
                    reason,
                });
            }
        }
        stock.bad.sort_by_key(|bad| bad.sequence);
        for file in listed {
            if let Some(path) = file.path.strip_prefix(ORPHANS) {
                stock.orphans.push(Listed {
                    path: path.trim_start_matches('/').to_owned(),
                    ..file.clone()
                });
            } else if sequence_of(&file.path).is_some() && !named.contains_key(file.path.as_str()) {
                stock.unnamed.push(file.clone());
            }
        }
        Ok(stock)
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
                first.reason, first.sequence
            ),
        })
    }
}

/// Lists the files whose numbers are not lower than `since`, those of the child tables `tables`
/// included.
async fn list_since(
    landing: &Store,
    tables: &[&Name],
    since: Sequence,
) -> Result<Vec<Listed>, Error> {
    let after = format!("{:020}", since.get());
    let mut folders: Vec<String> = FOLDERS
        .iter()
        .filter(|folder| **folder != CHILDREN)
        .map(|folder| (*folder).to_owned())
        .collect();
    folders.extend(tables.iter().map(|table| format!("{CHILDREN}/{table}")));
    let lists: Vec<_> = folders
        .iter()
        .map(|folder| landing.list_after(folder, &after))
        .collect();
    let listed: Vec<Vec<Listed>> = stream::iter(lists).buffered(AT_ONCE).try_collect().await?;
    let mut listed = listed.concat();
    if tables.is_empty() {
        // Files of the first batch with a child table, which no entry names.
        listed.extend(landing.list(CHILDREN).await?);
    }
    Ok(listed)
}

/// Checks the end of a file whose size is right; returns its fault.
async fn wrong_end(landing: &Store, file: &DataFile) -> Result<Option<String>, Error> {
    if file.bytes < LEAST_BYTES {
        return Ok(Some("it is too short to be a Parquet file".to_owned()));
    }
    let end = landing
        .get_range(&file.path, file.bytes - 8..file.bytes)
        .await?;
    let footer = end.first_chunk().copied().map(u32::from_le_bytes);
    let fits = footer.is_some_and(|footer| u64::from(footer) + LEAST_BYTES <= file.bytes);
    let is_whole = end.ends_with(MAGIC) && fits;
    Ok((!is_whole).then(|| "it does not end as a Parquet file does".to_owned()))
}

/// The number of the entry that a batch's file was written for; none of a file that no batch wrote.
pub(crate) fn sequence_of(path: &str) -> Option<u64> {
    let (folder, name) = path.rsplit_once('/')?;
    let top = folder.split('/').next().unwrap_or_default();
    let stem = name.strip_suffix(".parquet")?;
    let (number, hash) = stem.split_once('-')?;
    let is_ours = FOLDERS.contains(&top)
        && number.len() == 20
        && hash.len() == Hash128::of(b"").short().len()
        && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_ours.then(|| number.parse().ok()).flatten()
}

/// Brings a landing zone in line with its log, for a writer that has just opened `entries`. Files
/// that no entry names any more move to `superseded/`, files that none ever named to `orphans/`, and named files in `orphans/` come back. Temporary files
/// of dead processes are removed.
///
/// Returns a warning if files have moved to `orphans/`.
///
/// # Errors
/// [`Error::Landed`] when a named file is missing or damaged, [`Error::Storage`].
pub(crate) async fn tidy(
    landing: &Store,
    entries: &mut LogEntries,
) -> Result<Option<Warning>, Error> {
    if entries.snapshot().is_none() {
        sweep(landing).await;
    }
    let mut stock = Stock::take_new(landing, entries).await?;
    bring_back(landing, &mut stock).await?;
    let bad = stock.error(landing);
    let next = entries.next_sequence().get();
    let all = (entries.all(), next);
    let (superseded, unnamed) = split_superseded(landing, all, stock.unnamed).await?;
    set_paths_aside(landing, superseded.iter().map(String::as_str)).await?;
    let moved = move_unnamed(landing, next, &unnamed, ORPHANS).await?;
    let warning = (!moved.is_empty()).then(|| {
        let bytes: u64 = moved.iter().map(|file| file.bytes).sum();
        Warning {
            code: "files_moved_to_orphans".to_owned(),
            message: format!(
                "{} of {bytes} bytes that no log entry names went to `{}`: a run was killed before its entry was there, or two ran at once; all that has landed is still in its place",
                match moved.len() {
                    1 => "a file".to_owned(),
                    many => format!("{many} files"),
                },
                landing.url_of(ORPHANS)
            ),
            key: None,
        }
    });
    match bad {
        Some(error) => Err(error),
        None => Ok(warning),
    }
}

/// Separates the files that counted until a later entry replaced them from those that never counted.
/// A writer died before it moved the former to `superseded/`, where readers with an older view of the
/// log look for them. Files of deleted batches and of before a reset are none of them, and neither are
/// those of entries from `next` on, which a live writer may have added since.
async fn split_superseded(
    landing: &Store,
    (entries, next): (&[CommitEntry], u64),
    unnamed: Vec<Listed>,
) -> Result<(Vec<String>, Vec<Listed>), Error> {
    let withdrawn = entries.iter().flat_map(|entry| &entry.withdrawn);
    let withdrawn: BTreeSet<&str> = withdrawn
        .flat_map(|withdrawn| withdrawn.files.iter().map(String::as_str))
        .collect();
    let resets = entries.iter().filter(|entry| entry.reset_to.is_some());
    let reset = resets.map(|entry| entry.sequence.get()).max();
    let mut bodies: BTreeMap<u64, Option<Bytes>> = BTreeMap::new();
    let (mut superseded, mut others) = (Vec::new(), Vec::new());
    for file in unnamed {
        let own = sequence_of(&file.path).filter(|own| *own < next);
        let own = own.filter(|own| reset.is_none_or(|reset| *own > reset));
        let own = own.filter(|_| !withdrawn.contains(file.path.as_str()));
        let is_superseded = match own {
            None => false,
            Some(own) => {
                if !bodies.contains_key(&own) {
                    bodies.insert(own, landing.get_opt(&entry_path(own)).await?);
                }
                let body = bodies.get(&own).and_then(Option::as_ref);
                body.is_some_and(|body| names(body, &file.path))
            }
        };
        match is_superseded {
            true => superseded.push(file.path),
            false => others.push(file),
        }
    }
    Ok((superseded, others))
}

/// Adds to a source's report what one listing shows of lost and damaged files. Nothing is changed.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn report_damage(
    landing: &Store,
    entries: &mut LogEntries,
    report: &mut SourceReport,
) -> Result<(), Error> {
    let stock = Stock::take_new(landing, entries).await?;
    if !stock.bad.is_empty() {
        report.status = "damaged".to_owned();
    }
    report
        .damage
        .extend(stock.bad.into_iter().map(|bad| Damage {
            path: bad.file.path,
            entry: bad.sequence,
            reason: bad.reason,
        }));
    Ok(())
}

/// Removes temporary files of dead processes. A file that cannot be removed does no harm.
pub(crate) async fn sweep(landing: &Store) {
    let store = landing.clone();
    let swept = tokio::task::spawn_blocking(move || store.sweep_all("")).await;
    if let Ok(Err(error)) = swept {
        tracing::debug!(%error, "temporary files were left where they are");
    }
}

/// Rewrites named files that are missing or damaged, if `orphans/` or `superseded/` has their bytes.
async fn bring_back(landing: &Store, stock: &mut Stock) -> Result<(), Error> {
    let mut bad = Vec::new();
    // The listing may be outdated: a concurrent start may have moved a file back and forth.
    for file in std::mem::take(&mut stock.bad) {
        let DataFile { path, bytes, .. } = &file.file;
        let mut is_restored = false;
        for folder in [ORPHANS, ASIDE] {
            let copy = format!("{folder}/{path}");
            is_restored = is_restored || restore(landing, &file.file, &copy).await?;
        }
        if is_restored {
            info!(%path, "a landed file was missing and was restored from a copy");
            continue;
        }
        let is_back = file.reason == MISSING
            && match landing.size(path).await {
                Err(e) if e.is_not_found() => false,
                size => size? == *bytes,
            };
        if !is_back {
            bad.push(file);
        }
    }
    stock.bad = bad;
    Ok(())
}

/// Rewrites `file` from the copy at `from`, if that has the right bytes. The copy stays: its mover
/// may be about to move it back.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn restore(landing: &Store, file: &DataFile, from: &str) -> Result<bool, Error> {
    let copy = landing.get_opt(from).await?;
    let Some(bytes) = copy.filter(|bytes| Hash128::of(bytes) == file.hash) else {
        return Ok(false);
    };
    landing.put(&file.path, bytes).await?;
    Ok(true)
}

/// Moves files that no entry names below the folder `to`, except those named meanwhile. `next` is
/// the number of the next entry. Returns the moved files.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn move_unnamed(
    landing: &Store,
    next: u64,
    unnamed: &[Listed],
    to: &str,
) -> Result<Vec<Listed>, Error> {
    let mut moved = Vec::new();
    for file in unnamed {
        match landing
            .rename(&file.path, &format!("{to}/{}", file.path))
            .await
        {
            // Another start, or the writer itself, was quicker.
            Err(e) if e.is_not_found() => {}
            done => {
                done?;
                moved.push(file.clone());
            }
        }
    }
    // Entries that were added after the log was read.
    let later: BTreeSet<u64> = moved
        .iter()
        .filter_map(|file| sequence_of(&file.path))
        .filter(|sequence| *sequence >= next)
        .collect();
    for sequence in later {
        let Some(body) = landing.get_opt(&entry_path(sequence)).await? else {
            continue;
        };
        let mut kept = Vec::new();
        for file in moved {
            if sequence_of(&file.path) == Some(sequence) && names(&body, &file.path) {
                // Copies the file back: in an object store, another start may have copied it as
                // well, be about to delete it, and look for the copy after that.
                let from = format!("{to}/{}", file.path);
                if let Some(bytes) = landing.get_opt(&from).await? {
                    landing.put(&file.path, bytes).await?;
                }
            } else {
                kept.push(file);
            }
        }
        moved = kept;
    }
    Ok(moved)
}

/// Returns true if the bytes of an entry, of any version, name a file.
pub(crate) fn names(entry: &[u8], path: &str) -> bool {
    let quoted = format!("\"{path}\"");
    entry
        .windows(quoted.len())
        .any(|window| window == quoted.as_bytes())
}

#[cfg(test)]
mod tests;
