//! Files of a batch, from its entry on: those that count, and superseded ones.

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{
    amendment::{Withdrawn, WithdrawnReason},
    commit::{CommitEntry, DataFile},
    ids::Sequence,
    log_effect::index_of,
};

use super::{
    rewind::written,
    withdrawn_files::{earlier_path, files},
};
use crate::{commit_log::CommitLog, error::Error, supersede::batches_in};

/// Files of a batch, those that were merged or rewritten since included.
#[derive(Clone, Debug)]
pub(super) struct BatchFiles {
    /// The entry of the batch, as it counts now; without data files that have rows of other batches alone.
    pub(super) entry: CommitEntry,
    /// Paths of all files that have had rows or rejects of it. Of those that count, all have some.
    pub(super) paths: Vec<String>,
    /// True if data files that count have rows of it.
    pub(super) has_rows: bool,
    /// The entry that names the data files with its rows.
    pub(super) holder: Sequence,
}

impl BatchFiles {
    /// Reads the entry of a batch as it was written, and follows its files through later entries. Rows
    /// in merged files are looked for in these files.
    ///
    /// # Errors
    /// [`Error::Landed`] for a damaged merged file, [`Error::Storage`], [`Error::Contract`].
    pub(super) async fn of(
        log: &CommitLog,
        entry: &CommitEntry,
        merged: &mut MergedRows,
    ) -> Result<Self, Error> {
        let written = written(log, entry.sequence).await?;
        let mut followed = follow(&written, log.entries());
        if followed.has_rows && followed.is_merged {
            // The merged file may have been written again without them.
            merged.read(log, followed.holder).await?;
            let together = merged.batches(followed.holder);
            followed.has_rows = together.is_some_and(|all| all.contains(&entry.sequence.get()));
        }
        let mut entry = entry.clone();
        if !followed.has_rows {
            let index = index_of(log.entries(), followed.holder);
            let holder = index.and_then(|index| log.entries().get(index));
            let others = holder.into_iter().flat_map(data_files);
            let others: BTreeSet<&str> = others.map(|file| file.path.as_str()).collect();
            followed
                .paths
                .retain(|path| !others.contains(path.as_str()));
            entry.files.clear();
            for table in entry.children.values_mut() {
                table.files.clear();
            }
        }
        Ok(Self {
            entry,
            paths: followed.paths,
            has_rows: followed.has_rows,
            holder: followed.holder,
        })
    }

    /// Returns true if files with rows, rejects or responses of the batch count. Otherwise all of
    /// them are superseded or gone.
    pub(super) fn counts(&self) -> bool {
        self.has_rows || files(&self.entry).next().is_some()
    }
}

/// Data files that an entry names, those of child tables included.
pub(super) fn data_files(entry: &CommitEntry) -> impl Iterator<Item = &DataFile> {
    let children = entry.children.values().flat_map(|table| &table.files);
    entry.files.iter().chain(children)
}

/// Batches with rows in merged files, by the entry that names these files.
#[derive(Debug, Default)]
pub(super) struct MergedRows(BTreeMap<Sequence, BTreeSet<u64>>);

impl MergedRows {
    /// Reads the batches in the merged files of the entry `holder`, once.
    async fn read(&mut self, log: &CommitLog, holder: Sequence) -> Result<(), Error> {
        if self.0.contains_key(&holder) {
            return Ok(());
        }
        let entry = index_of(log.entries(), holder).and_then(|index| log.entries().get(index));
        let files = entry.map(|entry| &entry.files[..]).unwrap_or_default();
        let batches = batches_in(log.landing(), files).await?;
        self.0.insert(holder, batches);
        Ok(())
    }

    /// Sequence numbers of the batches with rows in the merged files of the entry `holder`; `None` if
    /// no batch was looked for in them.
    pub(super) fn batches(&self, holder: Sequence) -> Option<&BTreeSet<u64>> {
        self.0.get(&holder)
    }
}

/// Files of a batch, as the entries of the log name them.
struct FollowedFiles {
    /// Paths of those that may have had rows or rejects of it.
    paths: Vec<String>,
    /// True if the newest data files have rows of it, or may have some if they are merged.
    has_rows: bool,
    /// The entry that names these data files.
    holder: Sequence,
    /// True if a compaction has merged them.
    is_merged: bool,
}

/// Follows the files of a batch from its entry, as it was written, through later ones.
fn follow(written: &CommitEntry, entries: &[CommitEntry]) -> FollowedFiles {
    let batch = written.sequence;
    let mut all: Vec<&DataFile> = files(written).collect();
    let mut has_rows = written.counts.rows > 0;
    let (mut holder, mut is_merged) = (batch, false);
    for later in entries.iter().filter(|later| later.sequence > batch) {
        if is_end(later, batch) {
            has_rows = false;
            break;
        }
        for merged in &later.compacted {
            let range = merged.first..=merged.last;
            // Earlier releases left a batch out of a second merge once its rejects were retried.
            if !range.contains(&batch) && !range.contains(&holder) {
                continue;
            }
            (holder, is_merged) = (merged.last, true);
            if has_rows {
                all.extend(&merged.files);
                all.extend(merged.children.values().flatten());
            }
        }
        for replaced in &later.replaced {
            if replaced.sequence == batch {
                all.extend(replaced.rejects.iter().flatten());
            }
            // A merged file gets no rows that it had not.
            let has_own = replaced.sequence == holder && (has_rows || !is_merged);
            if has_own {
                has_rows = !replaced.files.is_empty();
            }
            if has_own || (replaced.sequence == batch && batch != holder) {
                all.extend(&replaced.files);
                all.extend(replaced.children.values().flatten());
            }
        }
    }
    let paths = all.into_iter().map(|file| file.path.clone());
    FollowedFiles {
        paths: paths.collect(),
        has_rows,
        holder,
        is_merged,
    }
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
