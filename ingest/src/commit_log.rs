//! The commit log of a source: opens it from its newest snapshot on, and appends to it.
//!
//! A batch lands in this order. Its files are written and durable. Then one log entry that names
//! them is created if its position is free. A crash before the entry leaves files that no entry
//! names; the next start moves them away ([`crate::landing_files`]). After the entry, the batch is
//! complete. If another writer's entry has the position, this writer removes its own files and
//! stops. After creating an entry, the writer checks that the files and the entry before it still
//! exist. If a repair has truncated the log meanwhile, the new entry is withdrawn. See
//! [`feedline_schemas::commit`] for the format.

mod commit;

use std::collections::BTreeMap;

use bytes::Bytes;
use feedline_schemas::{
    amendment::SettingsRecord,
    commit::{CommitEntry, DataFile, Interval},
    decode, encode,
    format::COMMIT,
    ids::{Hash128, Name, Sequence, WriterEpoch},
    log_effect::Reach,
    log_snapshot::LogSums,
    record::RecordSchema,
    report::Warning,
};
use feedline_storage::{PutNew, Store, log::entry_path};
use tracing::warn;

pub(crate) use self::commit::Commit;
use crate::{
    amend::withdrawn_files::{remove_expired, sweep},
    batch::Encoded,
    context::Context,
    delta::DeltaFollower,
    error::Error,
    landing_files::{self, folders::names},
    landing_folder::landing,
    log_entries::{FilesBefore, Kept, LogEntries, Resumed},
    log_snapshots,
};

/// Times that a log is opened again because other writers have added entries meanwhile.
const TRIES: u32 = 8;

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
    /// entry. Those that come from a snapshot lack totals, warnings and presence.
    pub entries: Vec<CommitEntry>,
}

/// Reads the log of `source` below the pipeline's root folder, from its newest snapshot on; `None`
/// before its first commit.
///
/// # Errors
/// [`Error::Log`] if entries are missing or damaged or the hash chain is broken,
/// [`Error::Contract`] for an entry of another version, [`Error::Storage`].
pub async fn landed(root: &Store, source: &Name) -> Result<Option<Landed>, Error> {
    let mut entries = LogEntries::open(&landing(root, source), source, Kept::All).await?;
    entries.load_all().await?;
    let last = entries
        .last()
        .map(|entry| (entry.sequence, entry.schema.clone()));
    Ok(last
        .zip(entries.last_hash())
        .map(|((sequence, schema), entry_hash)| Landed {
            sequence,
            entry_hash,
            schema,
            entries: entries.into_all(),
        }))
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
    entries: LogEntries,
    /// Position of the next entry when the log was opened, and files were compared with it.
    opened: Sequence,
    /// Entries after which a snapshot is written.
    snapshot_every: u64,
    /// Position of the next entry when the last snapshot was tried.
    snapshot_tried: Sequence,
    /// Files that were compared with the log when it was opened.
    compared_files: u64,
    /// Rows of the entries that were appended.
    appended_rows: u64,
    /// Rejected records of these entries.
    appended_rejects: u64,
    /// Files of the next entry that have been written.
    written: Vec<Encoded>,
    tidied: Vec<Warning>,
    /// Files that no longer count since an entry was appended.
    gone: Vec<DataFile>,
    /// Delta tables that follow the log.
    delta: Option<DeltaFollower>,
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
        let mut log = Self::open_tail(root, source, run_id, config_hash).await?;
        log.load_all().await?;
        Ok(log)
    }

    /// Like [`Self::open`], with the entries after the newest snapshot alone. Older ones leave memory
    /// with each further snapshot, until they are loaded.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn open_tail(
        root: &Store,
        source: &Name,
        run_id: &str,
        config_hash: Hash128,
    ) -> Result<Self, Error> {
        let mut log = Self::open_kept(root, source, run_id, config_hash, Kept::Newest).await?;
        log.entries.need_newest_only();
        Ok(log)
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
        let mut log = Self::open_kept(root, source, run_id, config_hash, Kept::All).await?;
        log.load_all().await?;
        Ok(log)
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
        let mut entries = LogEntries::open(&landing, source, kept).await?;
        let seed = Hash128::of(run_id.as_bytes());
        let mut tries = 0;
        let tidied = loop {
            tries += 1;
            let is_last = tries == TRIES;
            match landing_files::tidy(&landing, &mut entries, seed, is_last).await? {
                Some(tidied) => break tidied,
                None => entries.reopen().await?,
            }
        };
        let withdraws =
            |entry: &CommitEntry| entry.reset_to.is_some() || !entry.withdrawn.is_empty();
        if entries.tail().iter().any(withdraws) {
            // Cleans up after a command that was killed, before a snapshot covers its entry.
            entries.load_for_comparison(Sequence::new(0)).await?;
            sweep(&landing, entries.all()).await?;
        }
        remove_expired(&landing, entries.tail()).await?;
        let compared_files = tidied.compared;
        let tidied = tidied.warning.into_iter().chain(entries.warning());
        let tidied = tidied.collect();
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
            opened: entries.next_sequence(),
            entries,
            snapshot_every: log_snapshots::EVERY,
            snapshot_tried: Sequence::new(0),
            compared_files,
            appended_rows: 0,
            appended_rejects: 0,
            written: Vec::new(),
            tidied,
            gone: Vec::new(),
            delta: None,
        })
    }

    /// Writes Delta tables behind further entries: all of them if the run is asked to, otherwise those
    /// that exist where an entry moves their files.
    #[must_use]
    pub(crate) fn with_delta(mut self, context: &Context) -> Self {
        self.delta = Some(DeltaFollower::new(context));
        self
    }

    /// Brings the Delta tables to the newest entry, where an earlier program has not. The first append does
    /// so too.
    pub(crate) async fn catch_up_delta(&mut self) {
        if let (Some(delta), Some(hash)) = (&mut self.delta, self.entries.last_hash()) {
            let tail = self.entries.all();
            Box::pin(delta.catch_up(&self.landing, &self.source, tail, hash)).await;
        }
    }

    /// Reads all older entries into memory, and keeps them there.
    ///
    /// # Errors
    /// Like [`landed`].
    pub(crate) async fn load_all(&mut self) -> Result<(), Error> {
        self.entries.load_all().await
    }

    /// Reads older entries into memory until those in memory name data files with `rows` rows.
    ///
    /// # Errors
    /// Like [`landed`].
    pub(crate) async fn load_rows(&mut self, rows: u64) -> Result<(), Error> {
        self.entries.load_rows(rows).await
    }

    /// Landed state that a source resumes from.
    ///
    /// # Errors
    /// Like [`landed`].
    pub(crate) async fn resumed(&mut self) -> Result<Resumed, Error> {
        self.entries.resumed().await
    }

    /// Highest cursors of the log in their order: all newer ones, and some of the older ones.
    ///
    /// # Errors
    /// Like [`landed`].
    pub(crate) async fn highs(&mut self) -> Result<Vec<String>, Error> {
        self.entries.highs().await
    }

    /// Reads older entries into memory, part by part, until one of those in memory `is_enough`.
    ///
    /// # Errors
    /// Like [`landed`].
    pub(crate) async fn load_until(
        &mut self,
        is_enough: impl Fn(&CommitEntry) -> bool,
    ) -> Result<(), Error> {
        self.entries.load_until(is_enough).await
    }

    /// Reads older entries into memory, from before the first one that may have read slices near
    /// `interval`.
    ///
    /// # Errors
    /// Like [`landed`].
    pub(crate) async fn load_near(&mut self, interval: Interval) -> Result<(), Error> {
        self.entries.load_near(interval).await
    }

    /// All data files, and which of them have rows of the first entries, before the first one that is
    /// not `is_first`.
    ///
    /// # Errors
    /// Like [`landed`].
    pub(crate) async fn files_before(
        &mut self,
        is_first: impl Fn(&CommitEntry) -> bool,
    ) -> Result<FilesBefore, Error> {
        self.entries.files_before(is_first).await
    }

    /// Adds all entries, as they count now, to what `start` gives, without holding them in memory.
    ///
    /// # Errors
    /// Like [`landed`].
    pub(crate) async fn fold<T>(
        &mut self,
        start: impl Fn() -> T,
        add: impl Fn(&mut T, &CommitEntry),
    ) -> Result<T, Error> {
        self.entries.fold(start, add).await
    }

    /// Reads the log from its first entry, since a file of its snapshot is unreadable.
    ///
    /// # Errors
    /// Like [`landed`].
    pub(crate) async fn read_log(&mut self, reason: String) -> Result<(), Error> {
        self.entries.read_log(reason).await
    }

    /// Files that were compared with the log when it was opened.
    pub(crate) fn compared_files(&self) -> u64 {
        self.compared_files
    }

    /// Sums over all entries, for reports.
    ///
    /// # Errors
    /// Like [`landed`].
    pub(crate) async fn sums(&mut self) -> Result<LogSums, Error> {
        self.entries.sums().await
    }

    /// Sums over all entries, but for changes of older ones since the newest snapshot.
    pub(crate) fn known_sums(&self) -> LogSums {
        self.entries.sums_of_loaded()
    }

    /// Rows of the entries that were appended since the log was opened.
    pub(crate) fn appended_rows(&self) -> u64 {
        self.appended_rows
    }

    /// Rejected records of the entries that were appended since the log was opened.
    pub(crate) fn appended_rejects(&self) -> u64 {
        self.appended_rejects
    }

    /// Sets the number of entries after which a snapshot is written.
    #[cfg(test)]
    pub(crate) fn snapshot_every(&mut self, entries: u64) {
        self.snapshot_every = entries;
    }

    /// Warnings about unnamed files and unusable snapshots that were found when the log was opened.
    pub(crate) fn tidied(&self) -> &[Warning] {
        &self.tidied
    }

    /// Warnings about Delta tables.
    pub(crate) fn delta_warnings(&self) -> impl Iterator<Item = &Warning> {
        self.delta.iter().flat_map(DeltaFollower::warnings)
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
    pub(crate) fn settings(&self) -> Option<SettingsRecord> {
        let records = self.entries.all().iter().rev();
        let mut records = records.filter_map(|entry| entry.settings.clone());
        records.next().or_else(|| self.known_sums().settings)
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
    pub(crate) fn kept_folders(&self) -> Vec<String> {
        self.known_sums().kept_folders
    }

    /// The entries in memory: all of them, unless the log was opened by [`Self::open_tail`]. Those
    /// before the last two keep only the parts that older entries are needed for.
    pub(crate) fn entries(&self) -> &[CommitEntry] {
        self.entries.all()
    }

    /// The entries in memory, and the snapshot with those before them.
    pub(crate) fn log_entries(&self) -> &LogEntries {
        &self.entries
    }

    /// The newest entry.
    pub(crate) fn last(&self) -> Option<&CommitEntry> {
        self.entries.last()
    }

    /// Position of the next entry.
    pub(crate) fn next_sequence(&self) -> Sequence {
        self.entries.next_sequence()
    }

    /// Appends an entry. Its files must be durable already.
    ///
    /// # Errors
    /// [`Error::Fenced`] if another run took the position, [`Error::Replaced`] if the log was
    /// truncated meanwhile (in both cases nothing of the entry stays), [`Error::Storage`]. After
    /// the latter the entry may have landed, which the next run finds out from the log.
    pub(crate) async fn append(&mut self, commit: Commit) -> Result<(), Error> {
        self.catch_up_delta().await;
        let sequence = self.next_sequence();
        let recorded = (!self.settings.is_empty()).then(|| SettingsRecord {
            values: self.settings.clone(),
            changes: Vec::new(),
        });
        let last_hash = self.entries.last_hash();
        let mut entry = CommitEntry {
            format: COMMIT.format.to_owned(),
            version: COMMIT.version,
            min_reader: None,
            source: self.source.clone(),
            sequence,
            prev_hash: last_hash,
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
            compacted: commit.compacted,
            marks: commit.marks,
            counts: commit.counts,
            settings: commit.settings.or(recorded),
            withdrawn: commit.withdrawn,
            reset_to: commit.reset_to,
            rewound_to: commit.rewound_to,
            expired: commit.expired,
            merged_into: None,
            state: commit.state,
        };
        entry.min_reader = Some(entry.oldest_reader());
        let bytes = Bytes::from(encode(&entry));
        let hash = Hash128::of(&bytes);
        if let PutNew::Taken(body) = self.landing.put_new(&path(sequence), bytes).await? {
            let found: CommitEntry = decode(&self.landing.url_of(&path(sequence)), &body)?;
            if found.batch_id != entry.batch_id {
                for Encoded { file, .. } in &self.written {
                    // Identical responses of a source give both writers the same file.
                    if !names(&body, &file.path) {
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
        self.settings = BTreeMap::new();
        self.appended_rows += entry.counts.rows;
        self.appended_rejects += entry.counts.rejected;
        self.gone.extend(self.entries.append(entry, hash));
        // Before the caller moves the files that no longer count.
        if let (Some(delta), Some(last)) = (&mut self.delta, self.entries.last()) {
            Box::pin(delta.follow(&self.landing, &self.source, last, hash)).await;
        }
        // Files that an entry names as expired leave their folders first, like withdrawn ones.
        let is_settled = |last: &CommitEntry| Reach::of(last).is_empty() && last.expired.is_empty();
        if self.last().is_some_and(is_settled) {
            self.snapshot_if_due().await;
        }
        Ok(())
    }

    /// Writes a snapshot of a log that is long enough, after amendments whose files have left their
    /// folders.
    pub(crate) async fn cover_amendments(&mut self) {
        if self.next_sequence().get() >= self.snapshot_every {
            self.write_snapshot().await;
        }
    }

    /// Writes a snapshot if one is due. Files that the newest entry withdraws must have left their
    /// folders: as long as no snapshot covers it, the next writer compares these with the log.
    pub(crate) async fn snapshot_if_due(&mut self) {
        // One that failed is tried again after as many entries.
        let since = self.next_sequence().get() - self.snapshot_tried.get();
        let is_due = log_snapshots::is_due(&self.entries, self.snapshot_every);
        if is_due && since >= self.snapshot_every {
            self.write_snapshot().await;
        }
    }

    /// Writes a snapshot. A failure does no harm: the log has everything.
    async fn write_snapshot(&mut self) {
        if self
            .delta
            .as_ref()
            .is_some_and(DeltaFollower::needs_entries)
        {
            // The next program finds in the log that files of a Delta table have moved.
            return;
        }
        self.snapshot_tried = self.next_sequence();
        let (landing, source) = (&self.landing, &self.source);
        let written = log_snapshots::write(landing, source, &self.entries, self.opened).await;
        match written {
            Ok(None) => {}
            Ok(Some(snapshot)) => self.entries.cover(snapshot),
            Err(error) => {
                warn!(source = %self.source, %error, "no snapshot of the commit log was written: opening the source costs one read for each entry since the last one");
                if let Error::Log { reason, .. } | Error::Landed { reason, .. } = error
                    && let Err(error) = self.entries.read_log(reason).await
                {
                    warn!(source = %self.source, %error, "the commit log cannot be read either");
                }
            }
        }
    }

    /// Checks that the entry before the new one still exists, and the files of the new one.
    async fn confirm(&mut self, sequence: Sequence) -> Result<(), Error> {
        if let Some(before) = sequence.get().checked_sub(1) {
            let found = self.landing.get_opt(&entry_path(before)).await?;
            if found.map(|body| Hash128::of(&body)) != self.entries.last_hash() {
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

fn path(sequence: Sequence) -> String {
    entry_path(sequence.get())
}
