//! The commit log of a source: reading it whole, and appending to it.
//!
//! A batch lands in this order: its files are written and durable, then one log entry that names them is created if its
//! position is free. A crash before the entry leaves files that nothing names (the next run writes the same names with
//! the same bytes); after it, everything is there. When the position is taken by an entry that is not ours, another
//! process writes to this log, and we stop. See [`feedline_schemas::commit`] for the format.

use std::collections::BTreeMap;

use bytes::Bytes;
use feedline_schemas::{
    ContractError,
    commit::{BatchCounts, ChildTable, CommitEntry, DataFile, Presence, SourceState},
    decode, encode,
    format::COMMIT,
    ids::{Hash128, Name, Sequence, WriterEpoch},
    record::RecordSchema,
};
use feedline_storage::{PutNew, Store};
use futures::{StreamExt, TryStreamExt};

use crate::error::Error;

/// Entries read at the same time.
const READS: usize = 16;

/// What a source has landed, verified: entries are contiguous and each names the hash of the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Landed {
    /// Position of the last entry: the version of the landed data.
    pub sequence: Sequence,
    /// xxh3-128 of the last entry's bytes; through the chain it stands for the whole log.
    pub entry_hash: Hash128,
    /// Schema of the last entry.
    pub schema: RecordSchema,
    /// All entries in order, at least one.
    pub entries: Vec<CommitEntry>,
}

/// Reads what `source` has landed below the pipeline's root folder; `None` when it has committed nothing yet.
///
/// # Errors
/// [`Error::Log`] when entries are missing or damaged or the hash chain is broken, [`Error::Contract`] for an entry of another
/// version, [`Error::Storage`].
pub async fn landed(root: &Store, source: &Name) -> Result<Option<Landed>, Error> {
    let (entries, last_hash) = read(&landing(root, source), source, Kept::All).await?;
    let last = entries
        .last()
        .map(|entry| (entry.sequence, entry.schema.clone()));
    Ok(last
        .zip(last_hash)
        .map(|((sequence, schema), entry_hash)| Landed {
            sequence,
            entry_hash,
            schema,
            entries,
        }))
}

/// Landing folder of a source.
pub(crate) fn landing(root: &Store, source: &Name) -> Store {
    root.child(&format!("landing/{source}"))
}

/// A log opened for writing by one run.
#[derive(Debug)]
pub(crate) struct CommitLog {
    landing: Store,
    source: Name,
    run_id: String,
    epoch: WriterEpoch,
    config_hash: Hash128,
    entries: Vec<CommitEntry>,
    last_hash: Option<Hash128>,
}

/// What a batch puts into its entry.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) schema: RecordSchema,
    pub(crate) files: Vec<DataFile>,
    pub(crate) rejects: Vec<DataFile>,
    pub(crate) frontier: Vec<DataFile>,
    pub(crate) validators: Vec<DataFile>,
    pub(crate) raw: Vec<DataFile>,
    pub(crate) children: BTreeMap<Name, ChildTable>,
    pub(crate) counts: BatchCounts,
    pub(crate) state: SourceState,
}

impl CommitLog {
    /// Reads and verifies the log and takes the next writer epoch.
    ///
    /// # Errors
    /// As [`landed`], and [`Error::Config`] when the log was written with other settings (`config_hash`).
    pub(crate) async fn open(
        root: &Store,
        source: &Name,
        run_id: &str,
        config_hash: Hash128,
    ) -> Result<Self, Error> {
        let landing = landing(root, source);
        let (entries, last_hash) = read(&landing, source, Kept::Newest).await?;
        if entries
            .last()
            .is_some_and(|last| last.config_hash != config_hash)
        {
            return Err(Error::config(
                "url",
                format!(
                    "`{}` was landed with other settings of what to fetch and how to parse it (url, records, params, headers, pagination, incremental, slices, for_each, crawl, page, format or csv); going on would mix two sources: put the settings back, give the source another name, or remove that folder to read everything again",
                    landing.url()
                ),
            ));
        }
        let epoch = entries
            .last()
            .map_or(WriterEpoch::new(1), |last| last.epoch.next());
        Ok(Self {
            landing,
            source: source.clone(),
            run_id: run_id.to_owned(),
            epoch,
            config_hash,
            entries,
            last_hash,
        })
    }

    /// The source's landing folder.
    pub(crate) fn landing(&self) -> &Store {
        &self.landing
    }

    /// All entries; of those before the last two only what the older ones are needed for: see [`lighten`].
    pub(crate) fn entries(&self) -> &[CommitEntry] {
        &self.entries
    }

    /// The newest entry.
    pub(crate) fn last(&self) -> Option<&CommitEntry> {
        self.entries.last()
    }

    /// Position of the next entry.
    pub(crate) fn next_sequence(&self) -> Sequence {
        Sequence::new(self.entries.len() as u64)
    }

    /// Appends an entry. Its files must be durable already.
    ///
    /// # Errors
    /// [`Error::Fenced`] when another run took the position, [`Error::Storage`]; after the latter the entry may have
    /// landed, which the next run finds out by reading the log.
    pub(crate) async fn append(&mut self, commit: Commit) -> Result<(), Error> {
        let sequence = self.next_sequence();
        let entry = CommitEntry {
            format: COMMIT.format.to_owned(),
            version: COMMIT.version,
            source: self.source.clone(),
            sequence,
            prev_hash: self.last_hash,
            epoch: self.epoch,
            run_id: self.run_id.clone(),
            batch_id: format!("{}-{}-{sequence}", self.run_id, self.epoch),
            config_hash: self.config_hash,
            schema: commit.schema,
            files: commit.files,
            rejects: commit.rejects,
            frontier: commit.frontier,
            validators: commit.validators,
            raw: commit.raw,
            children: commit.children,
            counts: commit.counts,
            state: commit.state,
        };
        let bytes = Bytes::from(encode(&entry));
        let hash = Hash128::of(&bytes);
        if let PutNew::Taken(found) = self.landing.put_new(&path(sequence), bytes).await? {
            let found: CommitEntry = decode(&self.landing.url_of(&path(sequence)), &found)?;
            if found.batch_id != entry.batch_id {
                return Err(Error::Fenced {
                    source: self.source.to_string(),
                    sequence,
                    other_run: found.run_id,
                    other_epoch: found.epoch.get(),
                    epoch: self.epoch.get(),
                });
            }
        }
        self.last_hash = Some(hash);
        push(&mut self.entries, entry, Kept::Newest);
        Ok(())
    }
}

/// Which entries are held in memory whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    All,
    /// The last two: a log may be long, and a run adds to it.
    Newest,
}

fn push(entries: &mut Vec<CommitEntry>, entry: CommitEntry, kept: Kept) {
    entries.push(entry);
    if kept == Kept::Newest
        && let [.., old, _, _] = &mut entries[..]
    {
        lighten(old);
    }
}

/// Leaves the files, the pages and the position of an entry: what a run asks of one that others have followed.
fn lighten(entry: &mut CommitEntry) {
    entry.schema.columns = Vec::new();
    entry.counts = BatchCounts {
        pages: entry.counts.pages,
        ..BatchCounts::default()
    };
    entry.state.totals = BatchCounts::default();
    entry.state.presence = Presence::default();
    for table in entry.children.values_mut() {
        table.schema.columns = Vec::new();
        table.presence = Presence::default();
    }
}

fn path(sequence: Sequence) -> String {
    entry_path(sequence.get())
}

/// Where the entry with this sequence number lies.
pub(crate) fn entry_path(sequence: u64) -> String {
    format!("log/{sequence:020}.json")
}

/// The entry in `body`, found at `path` where number `sequence` should be, after one whose bytes have the hash `before`.
///
/// # Errors
/// [`Error::Log`] for an entry that is damaged or of another place or source, [`Error::Contract`] for one of another version.
pub(crate) fn checked(
    landing: &Store,
    source: &Name,
    sequence: u64,
    before: Option<Hash128>,
    path: &str,
    body: &[u8],
) -> Result<CommitEntry, Error> {
    let damaged = |reason: String| Error::Log {
        url: landing.url_of("log"),
        reason,
    };
    let entry: CommitEntry = match decode(&landing.url_of(path), body) {
        Err(ContractError::Malformed {
            path: at, reason, ..
        }) => {
            return Err(damaged(format!(
                "`{path}` cannot be read: {reason} at `{at}`"
            )));
        }
        entry => entry?,
    };
    if entry.sequence.get() != sequence || entry.source != *source {
        let CommitEntry {
            source, sequence, ..
        } = entry;
        return Err(damaged(format!(
            "`{path}` says that it is entry {sequence} of source `{source}`"
        )));
    }
    if entry.prev_hash != before {
        return Err(damaged(format!(
            "the entry before `{path}` is not the one it was written after"
        )));
    }
    Ok(entry)
}

/// All entries, verified, and the hash of the last one's bytes.
async fn read(
    landing: &Store,
    source: &Name,
    kept: Kept,
) -> Result<(Vec<CommitEntry>, Option<Hash128>), Error> {
    let damaged = |reason: String| Error::Log {
        url: landing.url_of("log"),
        reason,
    };
    let listed = landing.list("log").await?;
    for (i, file) in listed.iter().enumerate() {
        let wanted = path(Sequence::new(i as u64));
        if file.path != wanted {
            return Err(damaged(format!(
                "`{}` was found where `{wanted}` should be",
                file.path
            )));
        }
    }
    let reads: Vec<_> = listed.iter().map(|file| landing.get(&file.path)).collect();
    let mut bodies = futures::stream::iter(reads).buffered(READS);
    let mut entries: Vec<CommitEntry> = Vec::with_capacity(listed.len());
    let mut last_hash = None;
    for file in &listed {
        let Some(body) = bodies.try_next().await? else {
            break;
        };
        let entry = checked(
            landing,
            source,
            entries.len() as u64,
            last_hash,
            &file.path,
            &body,
        )?;
        last_hash = Some(Hash128::of(&body));
        push(&mut entries, entry, kept);
    }
    Ok((entries, last_hash))
}
