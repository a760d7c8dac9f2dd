//! Entries of a commit log in memory: those after the newest snapshot, and older ones where they are needed.

use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    ids::{Hash128, Name, Sequence},
    log_effect::{self, Reach, lighten, settle},
    log_snapshot::{LogPart, LogSnapshot, LogSums},
    report::Warning,
};
use feedline_storage::{
    Store,
    log::{self, LogError},
};
use tracing::warn;

use crate::error::Error;

/// Entries that are kept in memory completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    All,
    /// The last two: a log may be long, and a run adds to it.
    Newest,
}

/// Number of newest entries that are complete.
pub(crate) const NEWEST: usize = 2;

/// Entries of a log, in order and without a gap, up to the last one.
#[derive(Clone, Debug)]
pub(crate) struct LogEntries {
    landing: Store,
    source: Name,
    kept: Kept,
    /// The newest snapshot; its parts have the entries before those in memory.
    snapshot: Option<LogSnapshot>,
    all: Vec<CommitEntry>,
    last_hash: Option<Hash128>,
    /// True if entries before the newest ones stay in memory.
    is_whole: bool,
    /// Snapshots that did not fit, with reasons.
    passed_over: Vec<String>,
}

impl LogEntries {
    /// Reads the newest snapshot of the log in `landing`, and the entries after it.
    ///
    /// # Errors
    /// [`Error::Log`] if entries are missing or damaged or the chain of hashes is broken,
    /// [`Error::Contract`] for an entry of another version, [`Error::Storage`].
    pub(crate) async fn open(landing: &Store, source: &Name, kept: Kept) -> Result<Self, Error> {
        Self::open_at(landing, source, kept, None).await
    }

    /// Like [`Self::open`], of the log as it was after the entry `at_most`.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn open_at(
        landing: &Store,
        source: &Name,
        kept: Kept,
        at_most: Option<Sequence>,
    ) -> Result<Self, Error> {
        let opened = log::open(landing, source, at_most).await;
        let tail = opened.map_err(|e| log_error(landing, e))?;
        let mut entries = Self {
            landing: landing.clone(),
            source: source.clone(),
            kept,
            all: Vec::with_capacity(NEWEST + tail.entries.len()),
            is_whole: tail.snapshot.is_none(),
            snapshot: tail.snapshot,
            last_hash: tail.last_hash,
            passed_over: tail.passed_over,
        };
        if let Some(snapshot) = &entries.snapshot {
            entries.all.clone_from(&snapshot.newest);
        }
        for entry in tail.entries {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// The entries in memory: all of them after [`Self::load_all`].
    pub(crate) fn all(&self) -> &[CommitEntry] {
        &self.all
    }

    /// The newest entry.
    pub(crate) fn last(&self) -> Option<&CommitEntry> {
        self.all.last()
    }

    /// Hash of the bytes of the newest entry.
    pub(crate) fn last_hash(&self) -> Option<Hash128> {
        self.last_hash
    }

    /// Position of the next entry.
    pub(crate) fn next_sequence(&self) -> Sequence {
        let last = self.last().map(|last| last.sequence.next());
        last.unwrap_or(Sequence::new(0))
    }

    /// The newest snapshot.
    pub(crate) fn snapshot(&self) -> Option<&LogSnapshot> {
        self.snapshot.as_ref()
    }

    /// Warning about snapshots that do not fit the log.
    pub(crate) fn warning(&self) -> Option<Warning> {
        let first = self.passed_over.first()?;
        let more = match self.passed_over.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let message = format!(
            "a snapshot of the commit log is passed over: {first}{more}; the log itself was read, and all that has landed is there"
        );
        Some(Warning::new("snapshot_passed_over", message))
    }

    /// First entry in memory.
    fn base(&self) -> Sequence {
        let first = self.all.first().map(|first| first.sequence);
        first.unwrap_or(Sequence::new(0))
    }

    /// Adds the entry that was appended, whose bytes have the hash `hash`. Returns the files that no
    /// longer count.
    pub(crate) fn append(&mut self, entry: CommitEntry, hash: Hash128) -> Vec<DataFile> {
        self.last_hash = Some(hash);
        self.push(entry)
    }

    fn push(&mut self, entry: CommitEntry) -> Vec<DataFile> {
        let gone = log_effect::push(&mut self.all, entry);
        if self.kept == Kept::Newest
            && let [.., old, _, _] = &mut self.all[..]
        {
            settle(old);
        }
        gone
    }

    /// Lowest number of the files that no writer has compared with the log since they may have
    /// changed: from the mark of the snapshot on, and those of entries that were amended since.
    pub(crate) fn compare_since(&self) -> Sequence {
        let Some(snapshot) = &self.snapshot else {
            return Sequence::new(0);
        };
        let covered = snapshot.sequence;
        let tail = self.all.iter().filter(|entry| entry.sequence > covered);
        let reached = tail.map(|entry| match Reach::of(entry) {
            Reach::All => Some(Sequence::new(0)),
            Reach::Ranges(ranges) => ranges.into_iter().map(|(first, _)| first).min(),
        });
        let reached = reached.flatten().min();
        reached.map_or(snapshot.tidied, |reached| reached.min(snapshot.tidied))
    }

    /// Reads older entries from `first` on into memory. They leave it with the next snapshot.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn load_for_comparison(&mut self, first: Sequence) -> Result<(), Error> {
        self.load_from(first).await
    }

    /// Returns true if entries after the snapshot change some that it covers: then its sums are
    /// outdated.
    fn changes_covered(&self) -> bool {
        let Some(covered) = self.snapshot.as_ref().map(|snapshot| snapshot.sequence) else {
            return false;
        };
        let tail = self.all.iter().filter(|entry| entry.sequence > covered);
        tail.map(Reach::of)
            .any(|reach| reach.touches(Sequence::new(0), covered))
    }

    /// Reads all older entries into memory.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn load_all(&mut self) -> Result<(), Error> {
        self.is_whole = true;
        self.load_from(Sequence::new(0)).await
    }

    /// Reads older entries into memory until those in memory name data files with `rows` rows.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn load_rows(&mut self, rows: u64) -> Result<(), Error> {
        loop {
            let files = self.all.iter().flat_map(|entry| &entry.files);
            let mut found: u64 = files.map(|file| file.rows).sum();
            let base = self.base();
            if found >= rows || base.get() == 0 {
                return Ok(());
            }
            let older = self.snapshot.iter().flat_map(|snapshot| &snapshot.parts);
            let mut older: Vec<&LogPart> = older.filter(|part| part.first < base).collect();
            let mut first = Sequence::new(0);
            while let Some(part) = older.pop() {
                first = part.first;
                found += part.rows;
                if found >= rows {
                    break;
                }
            }
            self.load_from(first).await?;
        }
    }

    async fn load_from(&mut self, first: Sequence) -> Result<(), Error> {
        let base = self.base();
        if first >= base {
            return Ok(());
        }
        let Some(snapshot) = &self.snapshot else {
            return Ok(());
        };
        let parts = snapshot.parts.iter();
        let parts = parts.filter(|part| part.first < base && part.last >= first);
        let parts: Vec<LogPart> = parts.cloned().collect();
        match log::read_parts(&self.landing, &parts).await? {
            Ok(mut older) => {
                older.retain(|entry| entry.sequence < base);
                let covered = snapshot.sequence;
                for newer in self.all.iter().filter(|entry| entry.sequence > covered) {
                    log_effect::apply(&mut older, newer);
                }
                if self.kept == Kept::Newest {
                    older.iter_mut().for_each(lighten);
                }
                older.append(&mut self.all);
                self.all = older;
                Ok(())
            }
            Err(reason) => self.read_log(reason).await,
        }
    }

    /// Reads the log from its first entry, since a part of the snapshot is unreadable.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn read_log(&mut self, reason: String) -> Result<(), Error> {
        warn!(source = %self.source, "the commit log is read from its first entry, since a part of its snapshot is unreadable: {reason}");
        self.passed_over.push(reason);
        let last = self.last().map(|last| last.sequence);
        let read = log::all_entries(&self.landing, &self.source, last).await;
        let (entries, last_hash) = read.map_err(|e| log_error(&self.landing, e))?;
        if last_hash != self.last_hash {
            return Err(Error::Log {
                url: self.landing.url_of("log"),
                reason: "its entries were replaced while it was read".to_owned(),
            });
        }
        (self.snapshot, self.is_whole) = (None, true);
        self.all = Vec::with_capacity(entries.len());
        for entry in entries {
            self.push(entry);
        }
        Ok(())
    }

    /// Sums over all entries. Reads older ones if amendments have changed them since the snapshot.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn sums(&mut self) -> Result<LogSums, Error> {
        if self.base().get() > 0 && self.changes_covered() {
            self.load_all().await?;
        }
        Ok(self.sums_of_loaded())
    }

    /// Sums over all entries, as far as they are known without reading older ones.
    pub(crate) fn sums_of_loaded(&self) -> LogSums {
        match &self.snapshot {
            Some(snapshot) if self.base().get() > 0 => {
                let covered = snapshot.sequence;
                let tail = self.all.iter().filter(|entry| entry.sequence > covered);
                let mut sums = snapshot.sums();
                tail.for_each(|entry| sums.add(entry));
                sums
            }
            _ => {
                let mut sums = LogSums::default().with(&self.all);
                if let Some(snapshot) = &self.snapshot {
                    // Entries in memory do not have their columns.
                    let covered = snapshot.sums().schema_versions;
                    sums.schema_versions.extend(covered);
                }
                sums
            }
        }
    }

    /// Takes a snapshot that covers all entries. Entries that it has leave memory, or become light
    /// where older ones are needed.
    pub(crate) fn cover(&mut self, snapshot: LogSnapshot) {
        self.snapshot = Some(snapshot);
        if self.kept == Kept::All {
            return;
        }
        let old = self.all.len().saturating_sub(NEWEST);
        if self.is_whole {
            self.all.iter_mut().take(old).for_each(lighten);
        } else {
            self.all.drain(..old);
        }
    }

    /// Lets entries leave memory once a snapshot has them, unless older ones are needed.
    pub(crate) fn need_newest_only(&mut self) {
        self.is_whole = false;
    }

    /// The entries in memory.
    pub(crate) fn into_all(self) -> Vec<CommitEntry> {
        self.all
    }
}

/// The error of this crate for one of a log.
pub(crate) fn log_error(landing: &Store, error: LogError) -> Error {
    match error {
        LogError::Damaged(reason) => Error::Log {
            url: landing.url_of("log"),
            reason,
        },
        LogError::Contract(error) => error.into(),
        LogError::Storage(error) => error.into(),
    }
}
