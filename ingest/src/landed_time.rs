//! Time of the newest batch that landed rows. A deferred run, `ingest resume` and a compaction add
//! entries without rows, and must not make a source look fresh.

use feedline_schemas::{commit::CommitEntry, ids::Sequence};
use feedline_storage::{Store, log::entry_path};

use crate::{error::Error, log_entries::LogEntries};

/// Returns the commit time of the newest batch with rows, in seconds since 1970-01-01 UTC, by the clock
/// of the store; `None` if no rows have landed. Reads parts of the snapshot only if no entry in memory
/// has rows.
///
/// # Errors
/// [`Error::Log`] if older entries are damaged, [`Error::Storage`].
pub(crate) async fn landed_unix_s(
    landing: &Store,
    entries: &LogEntries,
) -> Result<Option<u64>, Error> {
    let last = entries.last();
    if last.is_none_or(|last| last.state.totals.rows == 0) {
        return Ok(None);
    }
    let found = match newest_with_rows(entries.all()) {
        Some(found) => Some(found),
        None => {
            let mut older = entries.clone();
            Box::pin(older.load_until(|entry| entry.counts.rows > 0)).await?;
            newest_with_rows(older.all())
        }
    };
    match found {
        Some(found) => Ok(Some(committed_unix_s(landing, found).await?)),
        None => Ok(None),
    }
}

/// Returns the commit time of an entry, in seconds since 1970-01-01 UTC, by the clock of the store.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn committed_unix_s(landing: &Store, sequence: Sequence) -> Result<u64, Error> {
    let committed = landing.modified(&entry_path(sequence.get())).await?;
    Ok(committed.as_secs())
}

fn newest_with_rows(entries: &[CommitEntry]) -> Option<Sequence> {
    let newest = entries.iter().rfind(|entry| entry.counts.rows > 0);
    newest.map(|entry| entry.sequence)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        commit::SourceState,
        ids::{Hash128, Name, SchemaVersion},
        record::RecordSchema,
    };

    use super::*;
    use crate::{
        commit_log::{Commit, CommitLog},
        log_entries::Kept,
    };

    #[tokio::test]
    async fn entries_without_rows_have_the_time_of_the_last_one_with_rows() {
        // All entries are in memory, or most of them are in a snapshot.
        for (snapshot_every, is_in_memory) in [(100, true), (4, false)] {
            let (root, source) = (Store::memory(), Name::new("s").unwrap());
            let settings = Hash128::of(b"settings");
            let log = CommitLog::open(&root, &source, "run", settings).await;
            let mut log = log.unwrap();
            log.snapshot_every(snapshot_every);
            for number in 0..12 {
                let schema = RecordSchema {
                    version: SchemaVersion::new(1),
                    columns: Vec::new(),
                };
                let mut commit = Commit::of_columns(schema, SourceState::default());
                commit.state.totals.rows = 7;
                commit.counts.rows = if number == 0 { 7 } else { 0 };
                log.append(commit).await.unwrap();
            }
            let landing = log.landing().clone();
            let entries = LogEntries::open(&landing, &source, Kept::Newest).await;
            let entries = entries.unwrap();
            let has_rows = newest_with_rows(entries.all()).is_some();
            assert_eq!(has_rows, is_in_memory);
            // Without their files, the time of no other entry is known.
            for number in 1..12 {
                landing.delete(&entry_path(number)).await.unwrap();
            }
            let landed = landing.modified(&entry_path(0)).await.unwrap().as_secs();
            let found = landed_unix_s(&landing, &entries).await.unwrap();
            assert_eq!(found, Some(landed));
        }
        let (landing, source) = (Store::memory(), Name::new("s").unwrap());
        let entries = LogEntries::open(&landing, &source, Kept::Newest).await;
        let found = landed_unix_s(&landing, &entries.unwrap()).await;
        assert_eq!(found.unwrap(), None);
    }
}
