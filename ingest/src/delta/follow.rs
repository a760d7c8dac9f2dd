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
    ids::{Hash128, Name, Sequence},
    log_effect::Reach,
    report::{Warning, replace_warning},
};
use feedline_storage::Store;
use tracing::warn;

use super::{
    log::{self, AddedFile, CreateOutcome, LogMark, NewVersion, TableHead},
    sync::{Stamp, Synced, TableRef, sync, take_checkpoint},
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
    warnings: Vec<Warning>,
    /// True if the tables are no longer written in this run.
    has_failed: bool,
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
            warnings: Vec::new(),
            has_failed: false,
        }
    }

    /// Warnings about the tables.
    pub(crate) fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Brings the tables to the last of `tail`, the newest entries of the log, whose bytes have the
    /// hash `hash`.
    pub(crate) async fn catch_up(
        &mut self,
        landing: &Store,
        source: &Name,
        tail: &[CommitEntry],
        hash: Hash128,
    ) {
        let mut changes = tail.iter().rev().filter(|e| !Reach::of(e).is_empty());
        let changed = changes.next().map(|entry| entry.sequence);
        let (Some(last), true) = (tail.last(), self.follows_all || changed.is_some()) else {
            return;
        };
        let known = Known::Stored { changed };
        let done = Box::pin(self.bring(landing, source, last, hash, known)).await;
        self.note(source, done);
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
        let done = Box::pin(self.bring(landing, source, entry, hash, Known::Held)).await;
        self.note(source, done);
    }

    async fn bring(
        &mut self,
        landing: &Store,
        source: &Name,
        entry: &CommitEntry,
        hash: Hash128,
        known: Known,
    ) -> Result<(), Error> {
        if self.has_failed {
            return Ok(());
        }
        let mut whole: Option<WholeLog> = None;
        for table in tables([entry]) {
            if self.absent.contains(&table) {
                continue;
            }
            let of = TableRef {
                landing,
                source,
                table: &table,
            };
            if let Some(head) = self.simple(&of, entry, hash, known).await? {
                self.heads.insert(table, head);
                continue;
            }
            if !self.follows_all && self.needs_nothing(&of, known).await? {
                continue;
            }
            if whole.is_none() {
                whole = read_whole(landing, source).await?;
            }
            let Some((entries, entry_hash)) = &whole else {
                return Ok(());
            };
            let synced = sync(&of, entries, *entry_hash, &self.stamp).await?;
            self.warn_of(&of, &synced);
            self.heads.insert(table, synced.head);
        }
        Ok(())
    }

    /// The newest version of a table that needs no comparison with the log: one that follows `entry`
    /// already, or follows the entry before and gets files of the columns that it has.
    async fn simple(
        &self,
        of: &TableRef<'_>,
        entry: &CommitEntry,
        hash: Hash128,
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

    /// Returns true if there is no table, or if no later entry has moved its files.
    async fn needs_nothing(&mut self, of: &TableRef<'_>, known: Known) -> Result<bool, Error> {
        let Some(head) = log::head(&of.root()).await? else {
            self.absent.insert(of.table.clone());
            return Ok(true);
        };
        Ok(match known {
            Known::Held => false,
            Known::Stored { changed } => {
                changed.is_none_or(|changed| changed <= head.mark.sequence)
            }
        })
    }

    fn note(&mut self, source: &Name, done: Result<(), Error>) {
        let Err(error) = done else {
            return;
        };
        warn!(%source, %error, "the Delta table does not follow the commit log");
        self.has_failed = true;
        let message = match &error {
            Error::Delta { .. } => error.to_string(),
            error => format!(
                "a Delta table is behind: {error}; landed rows are not affected, and `feedline ingest delta` or the next run brings the table up to them"
            ),
        };
        let warning = Warning::new("delta_behind", message).with_key("ingest.delta");
        replace_warning(&mut self.warnings, warning);
    }

    fn warn_of(&mut self, of: &TableRef<'_>, synced: &Synced) {
        if synced.copies > 0 {
            let message = format!(
                "Delta table `{}`: {} files were written again as {} bytes below `widened/`, since columns have wider types by now and a Delta table has one type for each",
                of.name(),
                synced.copies,
                synced.copied_bytes
            );
            let warning = Warning::new("delta_files_copied", message);
            replace_warning(&mut self.warnings, warning.with_key("ingest.delta"));
        }
        if let Some(warning) = left_out(&of.name(), &synced.left_out) {
            replace_warning(&mut self.warnings, warning);
        }
    }
}

/// Versions that are compared with the log.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// Those in the store, with the newest entry that changes earlier ones.
    Stored { changed: Option<Sequence> },
    /// Those that this program has read or written.
    Held,
}

/// Warning about columns that a table cannot have.
pub(super) fn left_out(table: &str, columns: &[String]) -> Option<Warning> {
    let first = columns.first()?;
    let message = format!(
        "Delta table `{table}`: column `{first}`{} is left out, since another one differs in case only and no Delta reader accepts both; the landed files have it",
        match columns.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        }
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
    let fits = part(entry, table)
        .is_some_and(|part| part.files.is_empty() || part.columns().hash() == *columns);
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
