//! Bringing a Delta table up to an entry of the commit log.

use std::{collections::BTreeSet, sync::Arc};

use feedline_schemas::{
    commit::CommitEntry,
    ids::{Hash128, Name, Sequence},
};
use feedline_storage::{Store, clock::Clock, log::entry_path};
use tracing::warn;

use super::{
    checkpoint,
    log::{self, AddedFile, CreateOutcome, LogMark, Metadata, NewVersion, TableHead, TableState},
    table::{DeltaTable, TableFile, TableKey, WIDENED, folder},
    widen,
};
use crate::{context::Context, error::Error};

/// Times that a table is read again that other programs change.
const TRIES: u32 = 8;

/// The program that writes, and its time.
#[derive(Clone, Debug)]
pub(super) struct Stamp {
    pub(super) run_id: String,
    clock: Arc<dyn Clock>,
    /// Versions after which a checkpoint is written.
    checkpoint_every: u64,
}

impl Stamp {
    pub(super) fn of(context: &Context) -> Self {
        Self {
            run_id: context.run_id.clone(),
            clock: Arc::clone(&context.clock),
            checkpoint_every: checkpoint::EVERY,
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.unix().as_millis()).unwrap_or(u64::MAX)
    }

    /// Sets the number of versions after which a checkpoint is written.
    #[cfg(test)]
    pub(super) fn checkpoint_every(&mut self, versions: u64) {
        self.checkpoint_every = versions;
    }
}

/// A table of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableRef<'a> {
    pub(super) landing: &'a Store,
    pub(super) source: &'a Name,
    pub(super) table: &'a TableKey,
}

impl TableRef<'_> {
    /// Folder of the table.
    pub(super) fn root(&self) -> Store {
        self.landing.child(&folder(self.table))
    }

    /// Name of the table: `SOURCE` or `SOURCE.TABLE`.
    pub(super) fn name(&self) -> String {
        match self.table {
            None => self.source.to_string(),
            Some(table) => format!("{}.{table}", self.source),
        }
    }

    /// Transaction identifier of the table.
    pub(super) fn app_id(&self) -> String {
        format!("feedline:{}", self.name())
    }
}

/// Outcome of [`sync`].
#[derive(Clone, Debug)]
pub(super) struct Synced {
    pub(super) head: TableHead,
    /// Files of the table.
    pub(super) files: u64,
    /// Files that were written again with other columns.
    pub(super) copies: u64,
    pub(super) copied_bytes: u64,
    /// Columns that the table cannot have.
    pub(super) left_out: Vec<String>,
}

/// Brings a table to the end of `entries`, which are complete and all of the log; `entry_hash` is the
/// hash of the last one. Creates the table if there is none. Writes one version, whatever is missing.
///
/// # Errors
/// [`Error::Delta`] if the table was changed by another program or cannot have the rows,
/// [`Error::Landed`] for a damaged file, [`Error::Storage`].
pub(super) async fn sync(
    of: &TableRef<'_>,
    entries: &[CommitEntry],
    entry_hash: Hash128,
    stamp: &Stamp,
) -> Result<Synced, Error> {
    let table = DeltaTable::of(entries, of.table);
    let last = entries.last().map(|last| last.sequence);
    let mark = LogMark {
        sequence: last.unwrap_or(Sequence::new(0)),
        entry_hash,
        columns: table.columns.hash(),
    };
    for _ in 0..TRIES {
        let root = of.root();
        let head = log::head(&root).await?;
        let synced = |head: TableHead, (copies, copied_bytes): (u64, u64)| Synced {
            head,
            files: table.files.len() as u64,
            copies,
            copied_bytes,
            left_out: table.columns.left_out.clone(),
        };
        if let Some(head) = &head
            && (head.mark == mark || is_ahead(of.landing, &head.mark, &mark).await?)
        {
            return Ok(synced(head.clone(), (0, 0)));
        }
        let state = match &head {
            Some(head) => log::replay(&root, head).await?,
            None => TableState::default(),
        };
        let changes_data = match &head {
            None => true,
            // After a repair the rows of the removed entries are unknown.
            Some(head) => {
                !is_of_log(of.landing, &head.mark).await?
                    || changes_rows(entries, head.mark.sequence)
            }
        };
        let change = TableChange {
            of,
            root: &root,
            table: &table,
            mark: &mark,
            changes_data,
            stamp,
        };
        if let Some((head, copied)) = Box::pin(change.write(head, &state)).await? {
            return Ok(synced(head, copied));
        }
    }
    Err(log::busy(&of.root()))
}

/// Returns true if a table follows an entry after the one of `mark`: another program has added it.
/// After a repair that has truncated the log it follows one that no longer exists.
async fn is_ahead(landing: &Store, found: &LogMark, mark: &LogMark) -> Result<bool, Error> {
    if found.sequence <= mark.sequence {
        return Ok(false);
    }
    is_of_log(landing, found).await
}

/// Returns true if the log has the entry that a table follows.
pub(super) async fn is_of_log(landing: &Store, mark: &LogMark) -> Result<bool, Error> {
    let entry = landing.get_opt(&entry_path(mark.sequence.get())).await?;
    Ok(entry.is_some_and(|entry| Hash128::of(&entry) == mark.entry_hash))
}

/// Returns true if rows have appeared or vanished after the entry `since`, and false if they have only
/// moved to merged files.
fn changes_rows(entries: &[CommitEntry], since: Sequence) -> bool {
    let mut later = entries.iter().filter(|entry| entry.sequence > since);
    later.any(|entry| {
        let moves_only = entry.replaced.is_empty()
            && entry.withdrawn.is_empty()
            && entry.reset_to.is_none()
            && entry.rewound_to.is_none()
            && entry.compacted.iter().all(|merged| merged.last <= since);
        !moves_only || entry.counts.rows > 0
    })
}

/// A version that makes a table what the log has.
struct TableChange<'a> {
    of: &'a TableRef<'a>,
    root: &'a Store,
    table: &'a DeltaTable,
    mark: &'a LogMark,
    changes_data: bool,
    stamp: &'a Stamp,
}

impl TableChange<'_> {
    /// Writes the version after `head`, whose contents are `state`. Returns it with the number of
    /// copies and their bytes; `None` if another program was quicker.
    async fn write(
        &self,
        head: Option<TableHead>,
        state: &TableState,
    ) -> Result<Option<(TableHead, (u64, u64))>, Error> {
        let paths: BTreeSet<&str> = self.table.files.iter().map(|f| f.path.as_str()).collect();
        let gone = state.files.keys().filter(|p| !paths.contains(p.as_str()));
        let removed: Vec<String> = gone.cloned().collect();
        let new = self.table.files.iter();
        let new: Vec<&TableFile> = new
            .filter(|file| !state.files.contains_key(&file.path))
            .collect();
        let (added, copied) = self.add(&new).await?;
        let schema = self.table.columns.schema_string();
        let id = state.id.clone().unwrap_or_else(|| self.new_id());
        let is_new = head.is_none() || state.schema != schema;
        let app_id = self.of.app_id();
        let version = NewVersion {
            mark: self.mark,
            app_id: &app_id,
            run_id: &self.stamp.run_id,
            now_ms: self.stamp.now_ms(),
            metadata: is_new.then(|| Metadata {
                id,
                name: self.of.name(),
                schema,
            }),
            creates: head.is_none(),
            changes_data: self.changes_data,
            removed: removed.clone(),
            added,
        };
        let number = head.as_ref().map_or(0, |head| head.version + 1);
        if log::create(self.root, number, &version).await? == CreateOutcome::Changed {
            return Ok(None);
        }
        self.confirm(&new).await?;
        for path in removed.iter().filter(|path| path.starts_with(WIDENED)) {
            self.root.delete(path).await?;
        }
        let mut head = TableHead {
            version: number,
            mark: self.mark.clone(),
            checkpoint: head.and_then(|head| head.checkpoint),
        };
        take_checkpoint(self.of, &mut head, self.stamp).await;
        Ok(Some((head, copied)))
    }

    /// Files as the table gets them, with the number and the bytes of those that were copied.
    async fn add(
        &self,
        new: &[&TableFile],
    ) -> Result<(Vec<(String, AddedFile)>, (u64, u64)), Error> {
        let mut added = Vec::with_capacity(new.len());
        let (mut copies, mut copied_bytes) = (0, 0);
        for file in new {
            let bytes = match file.is_copy() {
                false => file.file.bytes,
                true => {
                    let bytes = self.copy(file).await?;
                    (copies, copied_bytes) = (copies + 1, copied_bytes + bytes);
                    bytes
                }
            };
            let file_added = AddedFile {
                bytes,
                rows: file.file.rows,
                modified_ms: self.stamp.now_ms(),
            };
            added.push((file.path.clone(), file_added));
        }
        Ok((added, (copies, copied_bytes)))
    }

    /// Writes the copy of a file, and returns its size in bytes.
    async fn copy(&self, file: &TableFile) -> Result<u64, Error> {
        let bytes = widen::copy(self.of.landing, file).await?;
        let size = bytes.len() as u64;
        self.root.put(&file.path, bytes).await?;
        Ok(size)
    }

    /// Writes copies again that another program has removed since, as unused ones.
    async fn confirm(&self, new: &[&TableFile]) -> Result<(), Error> {
        for file in new.iter().filter(|file| file.is_copy()) {
            match self.root.size(&file.path).await {
                Err(e) if e.is_not_found() => {
                    self.copy(file).await?;
                }
                size => {
                    size?;
                }
            }
        }
        Ok(())
    }

    /// Id of a new table, in the form of a UUID. A table that is written again has another one.
    fn new_id(&self) -> String {
        let seed = format!(
            "{} {} {}",
            self.of.app_id(),
            self.mark.entry_hash,
            self.stamp.run_id
        );
        let hex = Hash128::of(seed.as_bytes()).to_string();
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        parts.join("-")
    }
}

/// Writes a checkpoint if one is due. A failure does no harm: the versions have everything.
pub(super) async fn take_checkpoint(of: &TableRef<'_>, head: &mut TableHead, stamp: &Stamp) {
    if !checkpoint::is_due(head, stamp.checkpoint_every) {
        return;
    }
    let (app_id, name) = (of.app_id(), of.name());
    let root = of.root();
    let names = (app_id.as_str(), name.as_str());
    let written = Box::pin(checkpoint::write(&root, head, names, stamp.now_ms())).await;
    match written {
        Ok(last) => {
            head.checkpoint = Some(last);
            if let Err(error) = checkpoint::prune(&root, last.version).await {
                warn!(table = %name, %error, "old versions of the Delta table stay: each listing of its folder includes them");
            }
        }
        Err(error) => {
            warn!(table = %name, %error, "no checkpoint of the Delta table was written: opening it costs one read for each version since the last one");
        }
    }
}
