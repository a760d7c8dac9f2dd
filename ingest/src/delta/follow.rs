//! Delta tables written behind the commits of a run.
//!
//! The commit log alone decides what has landed. So a table that cannot be written is a warning, and
//! the next run or command brings it up to the log.
//!
//! Without `ingest.delta` a table that exists stays behind. But an entry that changes earlier ones
//! moves files that the table names, so the table follows such an entry in any case.

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{
    commit::CommitEntry,
    count::{counted, first_of},
    ids::{Hash128, Name, Sequence},
    log_effect::Reach,
    report::Warning,
};
use feedline_storage::Store;
use tracing::warn;

use super::{
    log::{self, AddedFile, CreateOutcome, LogMark, NewVersion, TableHead},
    sync::{Stamp, Synced, TableRef, is_of_log, sync, take_checkpoint},
    table::{TableKey, own_path, part, tables},
};
use crate::{
    context::Context,
    error::Error,
    log_entries::{Kept, LogEntries},
};

/// The Delta tables of a source while its log is open for writing.
#[derive(Debug)]
pub(crate) struct DeltaFollower {
    stamp: Stamp,
    /// True if tables are created and follow each entry (`ingest.delta`), and false if only tables that
    /// exist follow, and only entries that move their files.
    follows_all: bool,
    /// Newest versions that are known.
    heads: BTreeMap<TableKey, TableHead>,
    /// Tables that do not exist, where only those that exist follow.
    absent: BTreeSet<TableKey>,
    warnings: BTreeMap<(TableKey, String), Warning>,
    /// Tables that are no longer written in this run.
    failed: BTreeSet<TableKey>,
    /// True once the tables were compared with the log as it was opened.
    has_caught_up: bool,
    /// True if a table names files that have moved.
    needs_entries: bool,
}

/// All entries of a log, complete, with the hash of the last one.
type WholeLog = (Vec<CommitEntry>, Hash128);

impl DeltaFollower {
    /// Prepares to follow; reads and writes nothing.
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            stamp: Stamp::of(context),
            follows_all: context.delta,
            heads: BTreeMap::new(),
            absent: BTreeSet::new(),
            warnings: BTreeMap::new(),
            failed: BTreeSet::new(),
            has_caught_up: false,
            needs_entries: false,
        }
    }

    /// Warnings about the tables.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.warnings.values()
    }

    /// Returns true if the next program must find in the log that files of a table have moved, since the
    /// table could not be written. A table that is unusable is written again as a whole.
    pub(crate) fn needs_entries(&self) -> bool {
        self.needs_entries
    }

    /// Brings the tables to the last of `tail`, the newest entries of the log, whose bytes have the
    /// hash `hash`. A second call does nothing.
    pub(crate) async fn catch_up(
        &mut self,
        landing: &Store,
        source: &Name,
        tail: &[CommitEntry],
        hash: Hash128,
    ) {
        let Some(last) = tail.last().filter(|_| !self.has_caught_up) else {
            return;
        };
        self.has_caught_up = true;
        let mut changes = tail.iter().rev().filter(|e| !Reach::of(e).is_empty());
        let known = Known::Stored {
            changed: changes.next().map(|entry| entry.sequence),
            loses_tables: tail.iter().any(loses_tables),
        };
        let at = EntryRef {
            landing,
            source,
            entry: last,
            hash,
        };
        Box::pin(self.bring(at, known)).await;
    }

    /// Writes the version of `entry`, which has just been appended and whose bytes have the hash `hash`.
    pub(crate) async fn follow(
        &mut self,
        landing: &Store,
        source: &Name,
        entry: &CommitEntry,
        hash: Hash128,
    ) {
        if !self.follows_all && Reach::of(entry).is_empty() {
            return;
        }
        let at = EntryRef {
            landing,
            source,
            entry,
            hash,
        };
        Box::pin(self.bring(at, Known::Held)).await;
    }

    async fn bring(&mut self, at: EntryRef<'_>, known: Known) {
        let loses = match known {
            Known::Stored { loses_tables, .. } => loses_tables,
            Known::Held => loses_tables(at.entry),
        };
        let mut whole: Option<WholeLog> = None;
        let mut keys = tables([at.entry]);
        if loses {
            // Their files have moved all the same.
            match read_whole(at.landing, at.source).await {
                Ok(found) => {
                    keys.extend(found.iter().flat_map(|(entries, _)| tables(entries)));
                    whole = found;
                }
                Err(error) => self.note(at, &None, &error),
            }
        }
        for key in keys {
            if self.absent.contains(&key) || self.failed.contains(&key) {
                continue;
            }
            if let Err(error) = self.bring_table(at, &key, known, &mut whole).await {
                self.note(at, &key, &error);
            }
        }
    }

    async fn bring_table(
        &mut self,
        at: EntryRef<'_>,
        key: &TableKey,
        known: Known,
        whole: &mut Option<WholeLog>,
    ) -> Result<(), Error> {
        let of = TableRef {
            landing: at.landing,
            source: at.source,
            table: key,
        };
        if let Some(head) = self.simple(&of, at, known).await? {
            self.heads.insert(key.clone(), head);
            return Ok(());
        }
        if !self.follows_all && self.needs_nothing(&of, known).await? {
            return Ok(());
        }
        if whole.is_none() {
            *whole = read_whole(at.landing, at.source).await?;
        }
        let Some((entries, entry_hash)) = whole else {
            return Ok(());
        };
        let synced = sync(&of, entries, *entry_hash, &self.stamp).await?;
        self.warn_of(&of, &synced);
        self.heads.insert(key.clone(), synced.head);
        Ok(())
    }

    /// The newest version of a table that needs no comparison with the log: one that follows `entry`
    /// already, or follows the entry before and gets files of the columns that it has.
    async fn simple(
        &self,
        of: &TableRef<'_>,
        EntryRef { entry, hash, .. }: EntryRef<'_>,
        known: Known,
    ) -> Result<Option<TableHead>, Error> {
        match known {
            Known::Stored { .. } => {
                let head = log::head(&of.root()).await?;
                let is_same = |head: &TableHead| {
                    (head.mark.sequence, head.mark.entry_hash) == (entry.sequence, hash)
                };
                Ok(head.filter(is_same))
            }
            Known::Held => match self.heads.get(of.table) {
                Some(head) if only_adds(head, entry, of.table) => {
                    append(of, head, entry, hash, &self.stamp).await
                }
                _ => Ok(None),
            },
        }
    }

    /// Returns true if there is no table, or if no later entry has moved its files and no repair has removed
    /// the entry that it follows.
    async fn needs_nothing(&mut self, of: &TableRef<'_>, known: Known) -> Result<bool, Error> {
        let Some(head) = log::head(&of.root()).await? else {
            self.absent.insert(of.table.clone());
            return Ok(true);
        };
        Ok(match known {
            Known::Held => false,
            Known::Stored { changed, .. } => {
                changed.is_none_or(|changed| changed <= head.mark.sequence)
                    && is_of_log(of.landing, &head.mark).await?
            }
        })
    }

    fn note(&mut self, at: EntryRef<'_>, key: &TableKey, error: &Error) {
        let source = at.source;
        warn!(%source, %error, "the Delta table does not follow the commit log");
        self.failed.insert(key.clone());
        let message = match error {
            Error::Delta { .. } => error.to_string(),
            error => {
                self.needs_entries = true;
                format!(
                    "a Delta table is behind: {error}; landed rows are not affected, and `feedline ingest delta` or the next run brings the table up to them"
                )
            }
        };
        self.warn(key, Warning::new("delta_behind", message));
    }

    /// Adds a warning, in place of one of the table with its code.
    fn warn(&mut self, key: &TableKey, warning: Warning) {
        let place = (key.clone(), warning.code.clone());
        self.warnings
            .insert(place, warning.with_key("ingest.delta"));
    }

    fn warn_of(&mut self, of: &TableRef<'_>, synced: &Synced) {
        if synced.copies > 0 {
            let were = if synced.copies == 1 { "was" } else { "were" };
            let message = format!(
                "Delta table `{}`: {} {were} written again as {} bytes below `widened/`, since columns have wider types by now, or names that differ in case only, and a Delta table has one type for each name",
                of.name(),
                counted(synced.copies, "file"),
                synced.copied_bytes
            );
            let warning = Warning::new("delta_files_copied", message);
            self.warn(of.table, warning);
        }
        if let Some(warning) = left_out(&of.name(), &synced.left_out) {
            self.warn(of.table, warning);
        }
    }
}

/// An entry of a log, with the hash of its bytes.
#[derive(Clone, Copy, Debug)]
struct EntryRef<'a> {
    landing: &'a Store,
    source: &'a Name,
    entry: &'a CommitEntry,
    hash: Hash128,
}

/// Returns true if an entry may lack child tables of earlier ones: a reset has none, and a rewind none that
/// came later.
fn loses_tables(entry: &CommitEntry) -> bool {
    entry.reset_to.is_some() || entry.rewound_to.is_some()
}

/// Versions that are compared with the log.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// Those in the store.
    Stored {
        /// Newest entry that changes earlier ones.
        changed: Option<Sequence>,
        /// True if an entry lacks child tables of earlier ones.
        loses_tables: bool,
    },
    /// Those that this program has read or written.
    Held,
}

/// Warning about columns that a table cannot have.
pub(super) fn left_out(table: &str, columns: &[String]) -> Option<Warning> {
    if columns.is_empty() {
        return None;
    }
    let named = columns.iter().map(|column| format!("`{column}`"));
    let named: Vec<String> = named.collect();
    let message = format!(
        "Delta table `{table}`: column {} is left out, since another one differs in case only and no Delta reader accepts both; the landed files have it",
        first_of(&named, 1)
    );
    Some(Warning::new("delta_columns_left_out", message).with_key("ingest.delta"))
}

/// Reads all entries of a log; `None` for an empty one.
///
/// # Errors
/// Like [`crate::landed`].
pub(super) async fn read_whole(landing: &Store, source: &Name) -> Result<Option<WholeLog>, Error> {
    let mut entries = LogEntries::open(landing, source, Kept::All).await?;
    entries.load_all().await?;
    let hash = entries.last_hash();
    Ok(hash.map(|hash| (entries.into_all(), hash)))
}

/// Returns true if `entry` follows the one of `head`, changes no earlier one, and has files with the
/// columns of the table.
fn only_adds(head: &TableHead, entry: &CommitEntry, table: &TableKey) -> bool {
    let LogMark {
        sequence,
        entry_hash,
        columns,
    } = &head.mark;
    let is_next = sequence.next() == entry.sequence && entry.prev_hash == Some(*entry_hash);
    let fits = part(entry, table).is_some_and(|part| {
        let own = part.columns();
        let mut names = part.schema.columns.iter().map(|column| &column.name);
        let has_shadows = names.any(|name| own.is_shadow(name));
        part.files.is_empty() || (own.hash() == *columns && !has_shadows)
    });
    is_next && fits && Reach::of(entry).is_empty()
}

/// Writes the version of an entry that [`only_adds`] files; `None` if another program was quicker.
async fn append(
    of: &TableRef<'_>,
    head: &TableHead,
    entry: &CommitEntry,
    hash: Hash128,
    stamp: &Stamp,
) -> Result<Option<TableHead>, Error> {
    let mark = LogMark {
        sequence: entry.sequence,
        entry_hash: hash,
        columns: head.mark.columns.clone(),
    };
    let now_ms = stamp.now_ms();
    let files = part(entry, of.table).map_or(&[][..], |part| part.files);
    let added = files.iter().map(|file| {
        let added = AddedFile {
            bytes: file.bytes,
            rows: file.rows,
            modified_ms: now_ms,
        };
        (own_path(file, of.table).to_owned(), added)
    });
    let app_id = of.app_id();
    let version = NewVersion {
        mark: &mark,
        app_id: &app_id,
        run_id: &stamp.run_id,
        now_ms,
        metadata: None,
        creates: false,
        changes_data: true,
        removed: Vec::new(),
        added: added.collect(),
    };
    let number = head.version + 1;
    if log::create(&of.root(), number, &version).await? == CreateOutcome::Changed {
        return Ok(None);
    }
    let mut head = TableHead {
        version: number,
        mark,
        checkpoint: head.checkpoint,
    };
    take_checkpoint(of, &mut head, stamp).await;
    Ok(Some(head))
}
