//! The commit log of a source: reads all of it, and appends to it.
//!
//! A batch lands in this order. Its files are written and durable. Then one log entry that names
//! them is created if its position is free. A crash before the entry leaves files that no entry
//! names; the next start moves them away ([`crate::landing_files`]). After the entry, the batch is
//! complete. If another writer's entry has the position, this writer removes its own files and
//! stops. After creating an entry, the writer checks that the files and the entry before it still
//! exist. If a repair has truncated the log meanwhile, the new entry is withdrawn. See
//! [`feedline_schemas::commit`] for the format.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use feedline_schemas::{
    ContractError,
    amendment::{SettingsRecord, Withdrawn},
    commit::{
        BatchCounts, ChildTable, CommitEntry, DataFile, FilePart, Position, Presence, Replaced,
        SourceState,
    },
    decode, encode,
    format::{COMMIT, COMMIT_MIN_READER},
    ids::{Hash128, Name, Sequence, WriterEpoch},
    record::RecordSchema,
    report::Warning,
};
use feedline_storage::{PutNew, Store};
use futures::{StreamExt, TryStreamExt};

use crate::{batch::Encoded, error::Error, landing_files};

/// Entries read at the same time.
const READS: usize = 16;

/// Verified state of what a source has landed: entries are contiguous and each names the hash of
/// the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Landed {
    /// Position of the last entry: the version of the landed data.
    pub sequence: Sequence,
    /// xxh3-128 of the last entry's bytes. Through the hash chain it identifies the complete log.
    pub entry_hash: Hash128,
    /// Schema of the last entry.
    pub schema: RecordSchema,
    /// All entries in order, at least one. They name the data files that count after the last
    /// entry.
    pub entries: Vec<CommitEntry>,
}

/// Reads the log of `source` below the pipeline's root folder; `None` before its first commit.
///
/// # Errors
/// [`Error::Log`] if entries are missing or damaged or the hash chain is broken,
/// [`Error::Contract`] for an entry of another version, [`Error::Storage`].
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
    /// Settings for the next entry to record, if none are recorded yet.
    settings: BTreeMap<String, String>,
    entries: Vec<CommitEntry>,
    last_hash: Option<Hash128>,
    /// Files of the next entry that have been written.
    written: Vec<Encoded>,
    tidied: Option<Warning>,
    /// Files that no longer count since an entry was appended.
    gone: Vec<DataFile>,
}

/// Contents of the log entry of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) schema: RecordSchema,
    pub(crate) files: Vec<DataFile>,
    pub(crate) rejects: Vec<DataFile>,
    pub(crate) frontier: Vec<DataFile>,
    pub(crate) validators: Vec<DataFile>,
    pub(crate) raw: Vec<DataFile>,
    pub(crate) children: BTreeMap<Name, ChildTable>,
    pub(crate) parts: Vec<FilePart>,
    pub(crate) replaced: Vec<Replaced>,
    pub(crate) counts: BatchCounts,
    pub(crate) settings: Option<SettingsRecord>,
    pub(crate) withdrawn: Vec<Withdrawn>,
    pub(crate) reset_to: Option<String>,
    pub(crate) state: SourceState,
}

impl Commit {
    /// An amendment that lands nothing and leaves the state that `last` left.
    pub(crate) fn amending(last: &CommitEntry) -> Self {
        let mut children = last.children.clone();
        children
            .values_mut()
            .for_each(|table| table.files = Vec::new());
        Self {
            schema: last.schema.clone(),
            files: Vec::new(),
            rejects: Vec::new(),
            frontier: Vec::new(),
            validators: Vec::new(),
            raw: Vec::new(),
            children,
            parts: Vec::new(),
            replaced: Vec::new(),
            counts: BatchCounts::default(),
            settings: None,
            withdrawn: Vec::new(),
            reset_to: None,
            state: last.state.clone(),
        }
    }
}

impl CommitLog {
    /// Reads and verifies the log, cleans up the landing folder, and takes the next writer epoch.
    /// The caller compares the settings with those of the log: [`crate::setting_changes`].
    ///
    /// # Errors
    /// Like [`landed`], and [`Error::Landed`] if a file of the log is missing or damaged.
    pub(crate) async fn open(
        root: &Store,
        source: &Name,
        run_id: &str,
        config_hash: Hash128,
    ) -> Result<Self, Error> {
        Self::open_kept(root, source, run_id, config_hash, Kept::Newest).await
    }

    /// Like [`Self::open`], with complete entries.
    ///
    /// # Errors
    /// Like [`landed`].
    pub(crate) async fn open_whole(
        root: &Store,
        source: &Name,
        run_id: &str,
        config_hash: Hash128,
    ) -> Result<Self, Error> {
        Self::open_kept(root, source, run_id, config_hash, Kept::All).await
    }

    async fn open_kept(
        root: &Store,
        source: &Name,
        run_id: &str,
        config_hash: Hash128,
        kept: Kept,
    ) -> Result<Self, Error> {
        root.check_creates().await?;
        let landing = landing(root, source);
        let (entries, last_hash) = read(&landing, source, kept).await?;
        let tidied = landing_files::tidy(&landing, &entries).await?;
        let epoch = entries
            .last()
            .map_or(WriterEpoch::new(1), |last| last.epoch.next());
        Ok(Self {
            landing,
            source: source.clone(),
            run_id: run_id.to_owned(),
            epoch,
            config_hash,
            settings: BTreeMap::new(),
            entries,
            last_hash,
            written: Vec::new(),
            tidied,
            gone: Vec::new(),
        })
    }

    /// Warning about unnamed files that were found when the log was opened.
    pub(crate) fn tidied(&self) -> Option<&Warning> {
        self.tidied.as_ref()
    }

    /// Writes a file of the next entry, durably.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) async fn put(&mut self, encoded: Encoded) -> Result<(), Error> {
        let Encoded { file, bytes } = &encoded;
        self.landing.put(&file.path, bytes.clone()).await?;
        self.written.push(encoded);
        Ok(())
    }

    /// Takes the files that entries appended since the last call withdraw. If a run dies before it
    /// moves them, opening the log moves them, like all files that no entry names.
    pub(crate) fn take_gone(&mut self) -> Vec<DataFile> {
        std::mem::take(&mut self.gone)
    }

    /// Hash of the settings that this run has.
    pub(crate) fn config_hash(&self) -> Hash128 {
        self.config_hash
    }

    /// The settings that the newest record has; none of a log without one.
    pub(crate) fn settings(&self) -> Option<&SettingsRecord> {
        let records = self.entries.iter().rev();
        let mut records = records.filter_map(|entry| entry.settings.as_ref());
        records.next()
    }

    /// Makes the next entry record `settings`, if no earlier entry does.
    pub(crate) fn record(&mut self, settings: BTreeMap<String, String>) {
        if self.settings().is_none() {
            self.settings = settings;
        }
    }

    /// The source's landing folder.
    pub(crate) fn landing(&self) -> &Store {
        &self.landing
    }

    /// The source.
    pub(crate) fn source(&self) -> &Name {
        &self.source
    }

    /// Names of the folders where resets have saved landed data.
    pub(crate) fn kept_folders(&self) -> impl Iterator<Item = &str> {
        self.entries
            .iter()
            .filter_map(|entry| entry.reset_to.as_deref())
    }

    /// All entries. Those before the last two keep only the parts that older entries are needed
    /// for: see [`lighten`].
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
    /// [`Error::Fenced`] if another run took the position, [`Error::Replaced`] if the log was
    /// truncated meanwhile (in both cases nothing of the entry stays), [`Error::Storage`]. After
    /// the latter the entry may have landed, which the next run finds out from the log.
    pub(crate) async fn append(&mut self, commit: Commit) -> Result<(), Error> {
        let sequence = self.next_sequence();
        let recorded = (!self.settings.is_empty()).then(|| SettingsRecord {
            values: self.settings.clone(),
            changes: Vec::new(),
        });
        let entry = CommitEntry {
            format: COMMIT.format.to_owned(),
            version: COMMIT.version,
            min_reader: Some(COMMIT_MIN_READER),
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
            parts: commit.parts,
            replaced: commit.replaced,
            counts: commit.counts,
            settings: commit.settings.or(recorded),
            withdrawn: commit.withdrawn,
            reset_to: commit.reset_to,
            state: commit.state,
        };
        let bytes = Bytes::from(encode(&entry));
        let hash = Hash128::of(&bytes);
        if let PutNew::Taken(body) = self.landing.put_new(&path(sequence), bytes).await? {
            let found: CommitEntry = decode(&self.landing.url_of(&path(sequence)), &body)?;
            if found.batch_id != entry.batch_id {
                for Encoded { file, .. } in &self.written {
                    // Identical responses of a source give both writers the same file.
                    if !landing_files::names(&body, &file.path) {
                        self.landing.delete(&file.path).await?;
                    }
                }
                return Err(Error::Fenced {
                    source: self.source.to_string(),
                    sequence,
                    other_run: found.run_id,
                    other_epoch: found.epoch.get(),
                    epoch: self.epoch.get(),
                });
            }
        }
        self.confirm(sequence).await?;
        self.last_hash = Some(hash);
        self.settings = BTreeMap::new();
        self.gone
            .extend(push(&mut self.entries, entry, Kept::Newest));
        Ok(())
    }

    /// Checks that the entry before the new one still exists, and the files of the new one.
    async fn confirm(&mut self, sequence: Sequence) -> Result<(), Error> {
        if let Some(before) = sequence.get().checked_sub(1) {
            let found = self.landing.get_opt(&entry_path(before)).await?;
            if found.map(|body| Hash128::of(&body)) != self.last_hash {
                self.landing.delete(&path(sequence)).await?;
                return Err(Error::Replaced {
                    source: self.source.to_string(),
                    sequence,
                    before,
                });
            }
        }
        for Encoded { file, bytes } in std::mem::take(&mut self.written) {
            match self.landing.size(&file.path).await {
                // Another writer removed it at its start, as a file that no entry will name.
                Err(e) if e.is_not_found() => self.landing.put(&file.path, bytes).await?,
                size => {
                    size?;
                }
            }
        }
        Ok(())
    }
}

/// Entries that are kept in memory completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    All,
    /// The last two: a log may be long, and a run adds to it.
    Newest,
}

/// Appends an entry in memory and applies its amendments to earlier ones. Stored entries stay as
/// written. Returns the files that no longer count.
pub(crate) fn push(
    entries: &mut Vec<CommitEntry>,
    entry: CommitEntry,
    kept: Kept,
) -> Vec<DataFile> {
    entries.push(entry);
    let gone = amend(entries);
    if kept == Kept::Newest
        && let [.., old, _, _] = &mut entries[..]
    {
        lighten(old);
    }
    gone
}

/// Applies the amendments of the newest entry to earlier ones. Returns the files that no longer
/// count.
fn amend(entries: &mut [CommitEntry]) -> Vec<DataFile> {
    let mut gone = Vec::new();
    let Some((newest, before)) = entries.split_last_mut() else {
        return gone;
    };
    if newest.reset_to.is_some() {
        before.iter_mut().for_each(forget);
    }
    for replaced in &newest.replaced {
        if let Some(entry) = at(before, replaced.sequence) {
            gone.extend(replaced.put_into(entry));
        }
    }
    for withdrawn in &newest.withdrawn {
        let Some(entry) = at(before, withdrawn.sequence) else {
            continue;
        };
        let paths: BTreeSet<&str> = withdrawn.files.iter().map(String::as_str).collect();
        for files in files_mut(entry) {
            files.retain(|file| !paths.contains(file.path.as_str()));
        }
    }
    let mut changes = newest.settings.iter().flat_map(|record| &record.changes);
    if changes.any(|change| change.key == "incremental.cursor") {
        // The progress of another cursor does not apply to this one.
        before.iter_mut().for_each(forget_cursor);
    }
    gone
}

fn at(entries: &mut [CommitEntry], sequence: Sequence) -> Option<&mut CommitEntry> {
    let place = usize::try_from(sequence.get()).unwrap_or(usize::MAX);
    entries.get_mut(place)
}

/// All lists of files that an entry names.
fn files_mut(entry: &mut CommitEntry) -> impl Iterator<Item = &mut Vec<DataFile>> {
    let children = entry.children.values_mut().map(|table| &mut table.files);
    [
        &mut entry.files,
        &mut entry.rejects,
        &mut entry.frontier,
        &mut entry.validators,
        &mut entry.raw,
    ]
    .into_iter()
    .chain(children)
}

/// Clears an entry except for its existence.
fn forget(entry: &mut CommitEntry) {
    files_mut(entry).for_each(Vec::clear);
    entry.state = SourceState::default();
    entry.counts = BatchCounts::default();
    entry.settings = None;
}

fn forget_cursor(entry: &mut CommitEntry) {
    if let Position::Page { run, .. } | Position::Done { run, .. } = &mut entry.state.position {
        run.high = None;
    }
}

/// Clears an entry except for its files, pages and position: runs need no more of older entries.
fn lighten(entry: &mut CommitEntry) {
    entry.schema.columns = Vec::new();
    entry.counts = BatchCounts {
        pages: entry.counts.pages,
        ..BatchCounts::default()
    };
    entry.state.totals = BatchCounts::default();
    entry.state.presence = Presence::default();
    entry.state.warnings = Vec::new();
    entry.state.planned.clear();
    for table in entry.children.values_mut() {
        table.schema.columns = Vec::new();
        table.presence = Presence::default();
    }
}

fn path(sequence: Sequence) -> String {
    entry_path(sequence.get())
}

/// Path of the entry with this sequence number.
pub(crate) fn entry_path(sequence: u64) -> String {
    format!("log/{sequence:020}.json")
}

/// Decodes and checks the entry in `body`, found at `path` at the position `sequence`, after an
/// entry with the hash `before`.
///
/// # Errors
/// [`Error::Log`] for an entry that is damaged or belongs to another position or source,
/// [`Error::Contract`] for one of another version or with parts that only a newer release knows.
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
            "`{path}` claims to be entry {sequence} of source `{source}`"
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
