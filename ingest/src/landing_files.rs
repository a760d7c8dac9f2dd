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
//! of its newest files. If there is a snapshot of the log, files are listed whose numbers are not lower
//! than its mark, since an earlier writer has compared the others, and those of one part of the
//! snapshot: a slice of at most 4,096 entries that the id of the run chooses. A batch costs a metadata
//! request for each of its files and a read of the entry before.

pub(crate) mod folders;
pub(crate) mod inventory;

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use bytes::Bytes;
use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    ids::Hash128,
    report::{Damage, SourceReport, Warning},
};
use feedline_storage::{Listed, Store, log::entry_path};
use tracing::info;

pub(crate) use self::inventory::LandingInventory;
use self::{
    folders::{ORPHANS, names, sequence_of},
    inventory::FileFault,
};
use crate::{
    error::Error,
    log_entries::LogEntries,
    superseded_files::{ASIDE, set_paths_aside},
};

/// Entries up to which each start looks for temporary files. With more, only compaction and repair do:
/// that reads the metadata of every file.
const SWEPT: u64 = 65_536;
/// Times that a source is looked at which a writer keeps changing.
const TRIES: u32 = 4;

/// Result of a comparison of a landing zone with its log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tidied {
    /// Warning about files that have moved to `orphans/`.
    pub(crate) warning: Option<Warning>,
    /// Files that were compared.
    pub(crate) compared: u64,
}

/// Brings a landing zone in line with its log, for a writer that has just opened `entries`. Files
/// that no entry names any more move to `superseded/`, files that none ever named to `orphans/`, and
/// named files in `orphans/` come back. Temporary files of dead processes are removed. `seed` chooses
/// the slice of older files that is compared too.
///
/// Returns `None` if files are missing since another writer has added entries, which may have replaced
/// them: the log must be read again. With `is_last` they are damage.
///
/// # Errors
/// [`Error::Landed`] when a named file is missing or damaged, [`Error::Storage`].
pub(crate) async fn tidy(
    landing: &Store,
    entries: &mut LogEntries,
    seed: Hash128,
    is_last: bool,
) -> Result<Option<Tidied>, Error> {
    if entries.next_sequence().get() <= SWEPT {
        sweep(landing).await;
    }
    let mut inventory = LandingInventory::take_new(landing, entries, Some(seed)).await?;
    let next = entries.next_sequence().get();
    // An entry that replaces files exists before they are moved.
    if !is_last && !inventory.bad.is_empty() && has_entry(landing, next).await? {
        return Ok(None);
    }
    bring_back(landing, &mut inventory).await?;
    let bad = inventory.error(landing);
    let all = (entries.all(), next);
    let (superseded, unnamed) = split_superseded(landing, all, inventory.unnamed).await?;
    set_paths_aside(landing, superseded.iter().map(String::as_str)).await?;
    let moved = move_unnamed(landing, next, &unnamed, ORPHANS).await?;
    let warning = (!moved.is_empty()).then(|| {
        let bytes: u64 = moved.iter().map(|file| file.bytes).sum();
        let message = format!(
            "{} of {bytes} bytes that no log entry names went to `{}`: a run was killed before its entry was there, or two ran at once; all that has landed is still in its place",
            match moved.len() {
                1 => "a file".to_owned(),
                many => format!("{many} files"),
            },
            landing.url_of(ORPHANS)
        );
        Warning::new("files_moved_to_orphans", message)
    });
    match bad {
        Some(error) => Err(error),
        None => Ok(Some(Tidied {
            warning,
            compared: inventory.compared,
        })),
    }
}

async fn has_entry(landing: &Store, sequence: u64) -> Result<bool, Error> {
    match landing.size(&entry_path(sequence)).await {
        Err(e) if e.is_not_found() => Ok(false),
        size => Ok(size.map(|_| true)?),
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
                let body = match bodies.entry(own) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(landing.get_opt(&entry_path(own)).await?),
                };
                body.as_ref().is_some_and(|body| names(body, &file.path))
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
    let mut inventory = LandingInventory::take_new(landing, entries, None).await?;
    for _ in 1..TRIES {
        let next = entries.next_sequence().get();
        if inventory.bad.is_empty() || !has_entry(landing, next).await? {
            break;
        }
        // A writer has added entries, and moved files that they replace.
        entries.reopen().await?;
        inventory = LandingInventory::take_new(landing, entries, None).await?;
    }
    report.compared_files = inventory.compared;
    if !inventory.bad.is_empty() {
        report.status = "damaged".to_owned();
    }
    report
        .damage
        .extend(inventory.bad.into_iter().map(|bad| Damage {
            path: bad.file.path,
            entry: bad.sequence,
            reason: bad.fault.to_string(),
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
async fn bring_back(landing: &Store, inventory: &mut LandingInventory) -> Result<(), Error> {
    let mut bad = Vec::new();
    // The listing may be outdated: a concurrent start may have moved a file back and forth.
    for file in std::mem::take(&mut inventory.bad) {
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
        let is_back = file.fault == FileFault::Missing
            && match landing.size(path).await {
                Err(e) if e.is_not_found() => false,
                size => size? == *bytes,
            };
        if !is_back {
            bad.push(file);
        }
    }
    inventory.bad = bad;
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

#[cfg(test)]
mod tests;
