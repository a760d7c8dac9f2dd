//! Files of a batch, from its entry on: those that count, and superseded ones.

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{
    amendment::{Withdrawn, WithdrawnReason},
    commit::{CommitEntry, DataFile},
    ids::Sequence,
};

use super::{
    rewind::written,
    withdrawn_files::{earlier_path, files},
};
use crate::{commit_log::CommitLog, error::Error};

/// Files of a batch, those that were merged or rewritten since included.
#[derive(Clone, Debug)]
pub(super) struct BatchFiles {
    /// The entry of the batch, as it counts now.
    pub(super) entry: CommitEntry,
    /// Paths of all files that have had rows or rejects of it.
    pub(super) paths: Vec<String>,
    /// True if data files that count have rows of it.
    pub(super) has_rows: bool,
}

impl BatchFiles {
    /// Reads the entry of a batch as it was written, and follows its files through later entries.
    ///
    /// # Errors
    /// [`Error::Storage`], [`Error::Contract`].
    pub(super) async fn of(log: &CommitLog, entry: &CommitEntry) -> Result<Self, Error> {
        let written = written(log, entry.sequence).await?;
        let (paths, has_rows) = follow(&written, log.entries());
        Ok(Self {
            entry: entry.clone(),
            paths,
            has_rows,
        })
    }

    /// Returns true if files with rows, rejects or responses of the batch count. Otherwise all of
    /// them are superseded or gone.
    pub(super) fn counts(&self) -> bool {
        let is_merged = self.entry.merged_into.is_some() && self.has_rows;
        files(&self.entry).next().is_some() || is_merged
    }
}

/// Paths of the files that have had rows or rejects of a batch, and whether the newest ones have rows
/// of it.
fn follow(written: &CommitEntry, entries: &[CommitEntry]) -> (Vec<String>, bool) {
    let batch = written.sequence;
    let mut all: Vec<&DataFile> = files(written).collect();
    let mut has_rows = written.counts.rows > 0;
    // The entry whose files have its rows.
    let mut holder = batch;
    for later in entries.iter().filter(|later| later.sequence > batch) {
        if is_end(later, batch) {
            has_rows = false;
            break;
        }
        for merged in &later.compacted {
            if has_rows && (merged.first..=merged.last).contains(&batch) {
                all.extend(&merged.files);
                all.extend(merged.children.values().flatten());
                holder = merged.last;
            }
        }
        for replaced in &later.replaced {
            if replaced.sequence != batch && replaced.sequence != holder {
                continue;
            }
            all.extend(&replaced.files);
            all.extend(replaced.rejects.iter().flatten());
            all.extend(replaced.children.values().flatten());
            if replaced.sequence == holder {
                has_rows = !replaced.files.is_empty();
            }
        }
    }
    let paths = all.into_iter().map(|file| file.path.clone());
    (paths.collect(), has_rows)
}

/// Returns true if no file has rows of a batch because of a later entry, and no further entry brings
/// them back.
fn is_end(later: &CommitEntry, batch: Sequence) -> bool {
    let is_withdrawn =
        |lost: &Withdrawn| lost.sequence == batch && lost.reason != WithdrawnReason::Retried;
    later.reset_to.is_some()
        || later.rewound_to.is_some_and(|to| to < batch)
        || later.withdrawn.iter().any(is_withdrawn)
}

/// Superseded files of batches that are still in the landing folder: their sizes in bytes, by the paths
/// that they had.
///
/// # Errors
/// [`Error::Storage`].
pub(super) async fn superseded(
    log: &CommitLog,
    batches: &[BatchFiles],
) -> Result<BTreeMap<String, u64>, Error> {
    let named = log.entries().iter().flat_map(CommitEntry::named_files);
    let named: BTreeSet<&str> = named.map(|file| file.path.as_str()).collect();
    let paths = batches.iter().flat_map(|batch| &batch.paths);
    let paths: BTreeSet<&str> = paths.map(String::as_str).collect();
    let mut found = BTreeMap::new();
    for file in log.landing().list("").await? {
        let path = earlier_path(&file.path);
        if paths.contains(path) && !named.contains(path) {
            found.insert(path.to_owned(), file.bytes);
        }
    }
    Ok(found)
}

/// The folder that keeps rows of a batch since a reset or a reread, as a text with the remedy.
pub(super) fn kept_elsewhere(entries: &[CommitEntry], batch: Sequence) -> Option<String> {
    let mut later = entries.iter().filter(|later| later.sequence > batch);
    let by = later.find(|later| is_end(later, batch))?;
    let (source, sequence) = (&by.source, by.sequence);
    let is_reread =
        |lost: &Withdrawn| lost.sequence == batch && lost.reason == WithdrawnReason::Reread;
    if let Some(folder) = &by.reset_to {
        return Some(format!(
            "entry {sequence} has reset the source, and the folder `landing/{folder}` of the pipeline keeps what counted before; delete that folder to remove rows of batch {batch} from it too"
        ));
    }
    by.withdrawn.iter().any(is_reread).then(|| {
        format!(
            "entry {sequence} has withdrawn batch {batch} for a reread, and a folder `landing/{source}.<number>` of the pipeline, with the log up to entry {}, keeps its rows; delete that folder to remove them",
            sequence.get().saturating_sub(1)
        )
    })
}
