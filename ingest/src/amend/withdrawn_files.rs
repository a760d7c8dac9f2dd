//! Removal of the files that amendments withdraw.

use std::collections::BTreeSet;

use feedline_schemas::{
    amendment::WithdrawnReason,
    commit::{CommitEntry, DataFile},
};
use feedline_storage::Store;

use crate::{
    delta::table::copied_from,
    error::Error,
    landing_files::folders::{ORPHANS, sequence_of},
    superseded_files::ASIDE,
};

/// Removes the files that amendments of the log withdraw, and after a reset all files of earlier
/// entries, with the copies that Delta tables have of them. This includes withdrawn files that a
/// killed command left, and that the next start moved to `orphans/`. Files in `superseded/` are
/// removed if they have rows of deleted batches, or if an entry names them as expired. All others stay
/// there, in `orphans/` and in `damaged/`, for inspection and repair.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn sweep(landing: &Store, entries: &[CommitEntry]) -> Result<(), Error> {
    let others = entries.iter().flat_map(|entry| {
        entry
            .frontier
            .iter()
            .chain(&entry.validators)
            .chain(&entry.marks)
    });
    let named = entries.iter().flat_map(files).chain(others);
    let named: BTreeSet<&str> = named.map(|file| file.path.as_str()).collect();
    let (mut withdrawn, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for own in entries.iter().flat_map(|entry| &entry.withdrawn) {
        withdrawn.extend(own.files.iter().map(String::as_str));
        if own.reason == WithdrawnReason::Deleted {
            deleted.extend(own.files.iter().map(String::as_str));
        }
    }
    for path in entries.iter().flat_map(|entry| &entry.expired) {
        withdrawn.insert(path.as_str());
        deleted.insert(path.as_str());
    }
    let resets = entries.iter().filter(|entry| entry.reset_to.is_some());
    let reset = resets.map(|entry| entry.sequence.get()).max();
    for found in landing.list("").await? {
        let inside = |folder: &str| found.path.strip_prefix(folder)?.strip_prefix('/');
        if let Some(path) = inside(ASIDE) {
            if deleted.contains(path) {
                landing.delete(&found.path).await?;
            }
            continue;
        }
        let path = inside(ORPHANS).unwrap_or(&found.path);
        let is_before_reset = sequence_of(path)
            .zip(reset)
            .is_some_and(|(own, reset)| own < reset);
        let is_gone = is_before_reset || withdrawn.contains(path);
        let is_copy = copied_from(path).is_some_and(|own| !named.contains(own.as_str()));
        if is_copy || (is_gone && !named.contains(found.path.as_str())) {
            landing.delete(&found.path).await?;
        }
    }
    Ok(())
}

/// Removes files from `superseded/` that entries name as expired and that a killed command has left.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn remove_expired(landing: &Store, entries: &[CommitEntry]) -> Result<(), Error> {
    let expired = entries.iter().flat_map(|entry| &entry.expired);
    let expired: BTreeSet<&str> = expired.map(String::as_str).collect();
    if expired.is_empty() {
        return Ok(());
    }
    for found in landing.list(ASIDE).await? {
        if expired.contains(earlier_path(&found.path)) {
            landing.delete(&found.path).await?;
        }
    }
    Ok(())
}

/// The path that a file in `superseded/` or `orphans/` had before it was moved there. That of any other
/// file is returned as it is.
pub(super) fn earlier_path(path: &str) -> &str {
    let inside = |folder: &str| path.strip_prefix(folder)?.strip_prefix('/');
    let earlier = inside(ASIDE).or_else(|| inside(ORPHANS));
    earlier.unwrap_or(path)
}

/// Iterates over the files that an entry names, except those of the frontier and of validators. A
/// crawl resumes with these.
pub(super) fn files(entry: &CommitEntry) -> impl Iterator<Item = &DataFile> {
    let children = entry.children.values().flat_map(|table| &table.files);
    let own = entry.files.iter().chain(&entry.rejects).chain(&entry.raw);
    own.chain(children)
}
