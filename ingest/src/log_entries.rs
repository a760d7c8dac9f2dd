//! Entries of a commit log in memory: those after the newest snapshot, and older ones where they are needed.

mod resumed;

use feedline_schemas::{
    commit::{CommitEntry, DataFile, Interval},
    ids::{Hash128, Name, Sequence},
    log_effect::{self, Reach, lighten, settle},
    log_snapshot::{LogPart, LogSnapshot, LogSums, MergedList},
    report::Warning,
};
use feedline_storage::{
    Store,
    log::{self, LogError},
};
use tracing::warn;

pub(crate) use self::resumed::{ComparedColumns, FilesBefore, Resumed};
use crate::{error::Error, watermark::highs};

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

    /// Reads the log again, after another writer has added entries.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn reopen(&mut self) -> Result<(), Error> {
        *self = Self::open(&self.landing, &self.source, self.kept).await?;
        Ok(())
    }

    /// The entries in memory: all of them after [`Self::load_all`].
    pub(crate) fn all(&self) -> &[CommitEntry] {
        &self.all
    }

    /// The entries after the snapshot.
    pub(crate) fn tail(&self) -> &[CommitEntry] {
        let first = match &self.snapshot {
            Some(snapshot) => {
                let is_covered = |entry: &CommitEntry| entry.sequence <= snapshot.sequence;
                self.all.partition_point(is_covered)
            }
            None => 0,
        };
        &self.all[first..]
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
    /// longer count, as far as entries in memory named them.
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
        let reached = self
            .tail()
            .iter()
            .filter_map(|entry| Reach::of(entry).first());
        reached.fold(snapshot.tidied, Sequence::min)
    }

    /// Reads older entries from `first` on into memory. They leave it with the next snapshot.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn load_for_comparison(&mut self, first: Sequence) -> Result<(), Error> {
        self.load_from(first).await
    }

    /// A part of the entries below the number `below`, as they count now, chosen by `seed`; none if
    /// no part is below it.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn slice(
        &mut self,
        seed: Hash128,
        below: Sequence,
    ) -> Result<Vec<CommitEntry>, Error> {
        let parts = self.snapshot.iter().flat_map(|snapshot| &snapshot.parts);
        let parts: Vec<&LogPart> = parts.filter(|part| part.last < below).collect();
        let count = u128::try_from(parts.len().max(1)).unwrap_or(1);
        let chosen = usize::try_from(seed.get() % count).unwrap_or_default();
        let Some(part) = parts.get(chosen).map(|part| (*part).clone()) else {
            return Ok(Vec::new());
        };
        match self.read_part(&part).await? {
            Ok(entries) => Ok(entries),
            Err(reason) => {
                // All of them are compared then.
                self.read_log(reason).await?;
                Ok(Vec::new())
            }
        }
    }

    /// Returns true if entries after the snapshot change some that it covers: then its sums are
    /// outdated.
    fn changes_covered(&self) -> bool {
        let Some(covered) = self.snapshot.as_ref().map(|snapshot| snapshot.sequence) else {
            return false;
        };
        let mut reaches = self.tail().iter().map(Reach::of);
        reaches.any(|reach| reach.touches(Sequence::new(0), covered))
    }

    /// Returns true if entries after the snapshot take back entries or cursors that it covers.
    fn takes_back_covered(&self) -> bool {
        let Some(covered) = self.snapshot.as_ref().map(|snapshot| snapshot.sequence) else {
            return false;
        };
        let is_back = |entry: &CommitEntry| {
            entry.rewound_to.is_some_and(|to| to < covered) || Reach::of(entry) == Reach::All
        };
        self.tail().iter().any(is_back)
    }

    /// Landed state that a source resumes from. Reads older entries only if some were taken back
    /// since the snapshot.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn resumed(&mut self) -> Result<Resumed, Error> {
        self.load_taken_back().await?;
        let snapshot = self
            .snapshot
            .as_ref()
            .filter(|_| !self.takes_back_covered());
        let (entries, highs_before, ends_before) = match snapshot {
            Some(snapshot) => (self.tail(), snapshot.highs(), snapshot.ends()),
            None => (self.all(), Vec::new(), Vec::new()),
        };
        let lists = |merged: fn(&LogSnapshot) -> &Vec<MergedList>,
                     own: fn(&CommitEntry) -> &Vec<DataFile>|
         -> Vec<DataFile> {
            let merged = snapshot.map(merged).into_iter().flatten();
            let merged = merged.map(|list| &list.file);
            merged
                .chain(entries.iter().flat_map(own))
                .cloned()
                .collect()
        };
        let ledgers = entries
            .iter()
            .filter_map(|entry| entry.state.position.ledger());
        Ok(Resumed {
            last: self.last().cloned(),
            highs: highs_before.into_iter().chain(highs(entries)).collect(),
            ends: ends_before
                .into_iter()
                .chain(ledgers.map(|ledger| ledger.target[1]))
                .collect(),
            frontier: lists(|snapshot| &snapshot.frontier, |entry| &entry.frontier),
            validators: lists(|snapshot| &snapshot.validators, |entry| &entry.validators),
            compared: self.compared_columns(),
        })
    }

    /// Columns that the headers of CSV files are compared with.
    fn compared_columns(&self) -> ComparedColumns {
        let covered = self.snapshot.as_ref().filter(|_| self.base().get() > 0);
        let change = covered.and_then(|snapshot| snapshot.sums().change);
        let older = change.map(|change| change.changes).unwrap_or_default();
        ComparedColumns::after(&self.all, &older)
    }

    /// Highest cursors of the log in their order: all newer ones, and some of the older ones.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn highs(&mut self) -> Result<Vec<String>, Error> {
        self.load_taken_back().await?;
        let snapshot = self
            .snapshot
            .as_ref()
            .filter(|_| !self.takes_back_covered());
        Ok(match snapshot {
            Some(snapshot) => {
                let mut all = snapshot.highs();
                all.extend(highs(self.tail()));
                all
            }
            None => highs(self.all()),
        })
    }

    /// Reads all entries if some were taken back since the snapshot.
    async fn load_taken_back(&mut self) -> Result<(), Error> {
        if self.base().get() > 0 && self.takes_back_covered() {
            self.load_from(Sequence::new(0)).await?;
        }
        Ok(())
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

    /// Reads older entries into memory, part by part, until one of those in memory `is_enough`.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn load_until(
        &mut self,
        is_enough: impl Fn(&CommitEntry) -> bool,
    ) -> Result<(), Error> {
        while self.base().get() > 0 && !self.all.iter().any(&is_enough) {
            let base = self.base();
            let mut older = self.snapshot.iter().flat_map(|snapshot| &snapshot.parts);
            let before = older.rfind(|part| part.first < base);
            let first = before.map_or(Sequence::new(0), |part| part.first);
            self.load_from(first).await?;
        }
        Ok(())
    }

    /// Reads older entries into memory, from before the first one that may have read slices near
    /// `interval`. If entries remain that are not in memory, the first one in memory is none of these.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn load_near(&mut self, interval: Interval) -> Result<(), Error> {
        let [from, to] = interval;
        let mut parts = self.snapshot.iter().flat_map(|snapshot| &snapshot.parts);
        let is_near = |part: &LogPart| {
            part.slices
                .is_some_and(|[begin, end]| begin <= to && from <= end)
        };
        if let Some(near) = parts.find(|part| is_near(part)) {
            let before = near.first.get().saturating_sub(1);
            self.load_from(Sequence::new(before)).await?;
        }
        Ok(())
    }

    /// All data files, and which of them have rows of the first entries: those before the first one
    /// that is not `is_first`. Older entries are read part by part and do not stay in memory.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn files_before(
        &mut self,
        is_first: impl Fn(&CommitEntry) -> bool,
    ) -> Result<FilesBefore, Error> {
        let mut found = FilesBefore::default();
        let base = self.base();
        let parts = self.snapshot.iter().flat_map(|snapshot| &snapshot.parts);
        let older: Vec<LogPart> = parts.filter(|part| part.first < base).cloned().collect();
        for part in older {
            match self.read_part(&part).await? {
                Ok(entries) => {
                    for entry in entries.iter().filter(|entry| entry.sequence < base) {
                        found.add(entry, &is_first);
                    }
                }
                Err(reason) => {
                    // All entries are in memory then.
                    self.read_log(reason).await?;
                    found = FilesBefore::default();
                    break;
                }
            }
        }
        for entry in &self.all {
            found.add(entry, &is_first);
        }
        Ok(found)
    }

    /// Adds all entries, as they count now, to what `start` gives. Those of the snapshot are read part by
    /// part, so that memory holds those of one part only. They lack what [`settle`] clears.
    ///
    /// # Errors
    /// Like [`Self::open`].
    pub(crate) async fn fold<T>(
        &mut self,
        start: impl Fn() -> T,
        add: impl Fn(&mut T, &CommitEntry),
    ) -> Result<T, Error> {
        let mut all = start();
        let parts = self.snapshot.iter().flat_map(|snapshot| &snapshot.parts);
        let parts: Vec<LogPart> = parts.cloned().collect();
        for part in parts {
            match self.read_part(&part).await? {
                Ok(entries) => entries.iter().for_each(|entry| add(&mut all, entry)),
                Err(reason) => {
                    // All entries are in memory then, and none is of a snapshot.
                    self.read_log(reason).await?;
                    all = start();
                    break;
                }
            }
        }
        self.tail().iter().for_each(|entry| add(&mut all, entry));
        Ok(all)
    }

    /// Entries of a part of the snapshot, as they count now; the reason if it is unreadable.
    async fn read_part(&self, part: &LogPart) -> Result<Result<Vec<CommitEntry>, String>, Error> {
        let read = log::read_parts(&self.landing, std::slice::from_ref(part)).await?;
        Ok(read.map(|mut entries| {
            for newer in self.tail() {
                log_effect::apply(&mut entries, newer);
            }
            entries
        }))
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
        let mut older = Vec::new();
        for part in &parts {
            match self.read_part(part).await? {
                Ok(mut entries) => {
                    entries.retain(|entry| entry.sequence < base);
                    if self.kept == Kept::Newest {
                        entries.iter_mut().for_each(lighten);
                    }
                    older.append(&mut entries);
                }
                Err(reason) => return self.read_log(reason).await,
            }
        }
        older.append(&mut self.all);
        self.all = older;
        Ok(())
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
            self.load_from(Sequence::new(0)).await?;
        }
        Ok(self.sums_of_loaded())
    }

    /// Sums over all entries, as far as they are known without reading older ones.
    pub(crate) fn sums_of_loaded(&self) -> LogSums {
        match &self.snapshot {
            Some(snapshot) if self.base().get() > 0 || !self.changes_covered() => {
                snapshot.sums().with(self.tail())
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
