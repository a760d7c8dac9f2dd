//! Merged files of a snapshot: the frontier of a crawl and validators of pages, which each batch adds to
//! by a file of its own.
//!
//! New rows take in the last file while that has at most twice as many. So there are few files, and a
//! row is written again a number of times that grows with the logarithm of their number. The cost of
//! reading them is that of the rows, however many batches have added them.

use arrow::array::{ArrayRef, RecordBatch};
use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    ids::Sequence,
    log_snapshot::{LogPart, LogSnapshot, MergedList, PARTS},
};
use feedline_storage::Store;

use super::parts::{create, read};
use crate::{batch::encode_again, error::Error, frontier, validators};

/// Rows of a merged file of the frontier that takes in no others.
const MOST_ROWS: u64 = 1 << 20;

/// A list that entries add to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergedKind {
    Frontier,
    Validators,
}

impl MergedKind {
    /// Files that an entry adds.
    fn of(self, entry: &CommitEntry) -> &[DataFile] {
        match self {
            Self::Frontier => &entry.frontier,
            Self::Validators => &entry.validators,
        }
    }

    /// Merged files of a snapshot.
    fn merged(self, snapshot: &LogSnapshot) -> &[MergedList] {
        match self {
            Self::Frontier => &snapshot.frontier,
            Self::Validators => &snapshot.validators,
        }
    }

    /// Returns true if a file of so many rows is written. Validators are of distinct pages in one file
    /// only, so their files have no bound.
    fn may_have(self, rows: u64) -> bool {
        self == Self::Validators || rows <= MOST_ROWS
    }

    async fn columns(
        self,
        landing: &Store,
        files: &[DataFile],
    ) -> Result<Vec<(&'static str, ArrayRef)>, Error> {
        match self {
            Self::Frontier => frontier::merged(landing, files).await,
            Self::Validators => validators::merged(landing, files).await,
        }
    }
}

/// Adds what the entries `tail` have added since the snapshot `before` to its merged files. `parts` are
/// those of the new snapshot.
///
/// # Errors
/// [`Error::Landed`] for a damaged or absent file, [`Error::Log`], [`Error::Storage`].
pub(super) async fn merge(
    landing: &Store,
    list: MergedKind,
    before: Option<&LogSnapshot>,
    parts: &[LogPart],
    tail: &[CommitEntry],
) -> Result<Vec<MergedList>, Error> {
    let mut kept = before.map_or(Vec::new(), |before| list.merged(before).to_vec());
    let (Some(first), Some(last)) = (tail.first(), tail.last()) else {
        return Ok(kept);
    };
    let mut added = lost(landing, list, &mut kept, (parts, tail, first.sequence)).await?;
    added.extend(tail.iter().flat_map(|entry| list.of(entry)).cloned());
    while !added.is_empty() {
        // As many as fit; at least one.
        let mut rows = 0;
        let fits = |file: &&DataFile| {
            rows += file.rows;
            list.may_have(rows)
        };
        let count = added.iter().take_while(fits).count().max(1);
        let files: Vec<DataFile> = added.drain(..count).collect();
        push(landing, list, &mut kept, (files, last.sequence)).await?;
    }
    Ok(kept)
}

/// Merges files into one, together with the last ones that are not much larger.
async fn push(
    landing: &Store,
    list: MergedKind,
    kept: &mut Vec<MergedList>,
    (mut files, last): (Vec<DataFile>, Sequence),
) -> Result<(), Error> {
    let mut rows: u64 = files.iter().map(|file| file.rows).sum();
    while let Some(before) = kept.last()
        && before.file.rows <= 2 * rows
        && list.may_have(before.file.rows + rows)
    {
        rows += before.file.rows;
        files.insert(0, before.file.clone());
        kept.pop();
    }
    let columns = list.columns(landing, &files).await?;
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    );
    let batch = batch.map_err(|cause| Error::Encode {
        what: "a merged file of a snapshot".into(),
        cause: cause.into(),
    })?;
    if let Some(encoded) = encode_again(PARTS, last, &batch)? {
        create(landing, &encoded.file.path, encoded.bytes).await?;
        let file = encoded.file;
        kept.push(MergedList { last, file });
    }
    Ok(())
}

/// Drops merged files with what `tail` has taken back. Returns the files of entries that these had and
/// that still count: entries before `first` that follow on the files that remain.
async fn lost(
    landing: &Store,
    list: MergedKind,
    kept: &mut Vec<MergedList>,
    (parts, tail, first): (&[LogPart], &[CommitEntry], Sequence),
) -> Result<Vec<DataFile>, Error> {
    let taken_back = tail.iter().filter_map(|entry| match &entry.reset_to {
        Some(_) => Some(Sequence::new(0)),
        None => entry.rewound_to.map(Sequence::next),
    });
    let taken_back = taken_back.min().filter(|taken_back| *taken_back < first);
    let Some(taken_back) = taken_back else {
        return Ok(Vec::new());
    };
    let before = kept.len();
    kept.retain(|file| file.last < taken_back);
    let mut files = Vec::new();
    if kept.len() == before {
        return Ok(files);
    }
    let from = kept
        .last()
        .map_or(Sequence::new(0), |file| file.last.next());
    for part in parts.iter().filter(|part| part.last >= from) {
        let entries = read(landing, part).await?;
        let entries = entries.iter();
        let wanted = entries.filter(|entry| entry.sequence >= from && entry.sequence < first);
        files.extend(wanted.flat_map(|entry| list.of(entry)).cloned());
    }
    Ok(files)
}
