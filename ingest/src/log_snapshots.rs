//! Writing snapshots of a commit log, so that opening it costs the entries after the newest one.
//!
//! A snapshot is never needed: one that cannot be written is a warning in the log of the program, and
//! the next one is tried later. Its parts double in size: the new entries take in the last parts while
//! these are not larger, up to [`MOST`] entries. So an entry is written about six times until its part
//! is full. Parts whose entries an amendment has changed are written again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use feedline_schemas::{
    commit::CommitEntry,
    decode, encode,
    format::LOG_SNAPSHOT,
    ids::{Name, Sequence},
    log_effect::{self, Reach, settle},
    log_snapshot::{
        HEADS, LogPart, LogSnapshot, LogSums, PARTS, head_path, parse_head_path, part_path,
    },
};
use feedline_storage::{PutNew, Store, log};

use crate::{
    error::Error,
    log_entries::{LogEntries, NEWEST},
};

/// Entries after which a snapshot is written.
pub(crate) const EVERY: u64 = 64;
/// Most entries of a part that takes in others.
const MOST: u64 = 4_096;
/// Heads that are kept: a reader may have found an older one.
const HEADS_KEPT: usize = 3;
/// Heads at which older ones are removed.
const MOST_HEADS: usize = 8;
/// Files that are so many entries old are not compared with the log at each start.
const TIDIED_BEHIND: u64 = 4_096;

/// Returns true if a snapshot is due.
pub(crate) fn is_due(entries: &LogEntries, every: u64) -> bool {
    let covered = entries.snapshot().map(|snapshot| snapshot.sequence.next());
    let covered = covered.map_or(0, Sequence::get);
    entries.next_sequence().get() - covered >= every
}

/// Writes a snapshot of all entries of the log in `landing`. Files with numbers below `tidied` were
/// compared with the log, and those far below the end by earlier writers.
///
/// # Errors
/// [`Error::Storage`], [`Error::Log`] for a part of the last snapshot that is unreadable.
pub(crate) async fn write(
    landing: &Store,
    source: &Name,
    entries: &LogEntries,
    tidied: Sequence,
) -> Result<Option<LogSnapshot>, Error> {
    let (Some(last), Some(entry_hash)) = (entries.last(), entries.last_hash()) else {
        return Ok(None);
    };
    let sequence = last.sequence;
    let before = entries.snapshot();
    let covered = before.map(|before| before.sequence);
    let tail: Vec<CommitEntry> = entries
        .all()
        .iter()
        .filter(|entry| covered.is_none_or(|covered| entry.sequence > covered))
        .cloned()
        .collect();
    let old = before.map(|before| &before.parts[..]).unwrap_or_default();
    let parts = parts(landing, old, tail).await?;
    let newest = entries.all().len().saturating_sub(NEWEST);
    let behind = sequence.next().get().saturating_sub(TIDIED_BEHIND);
    let earlier = before.map_or(Sequence::new(0), |before| before.tidied);
    let tidied = tidied.max(earlier).max(Sequence::new(behind));
    let snapshot = LogSnapshot {
        format: LOG_SNAPSHOT.format.to_owned(),
        version: LOG_SNAPSHOT.version,
        min_reader: LOG_SNAPSHOT.version,
        source: source.clone(),
        sequence,
        entry_hash,
        parts,
        newest: entries.all()[newest..].to_vec(),
        tidied,
    };
    let bytes = Bytes::from(encode(&snapshot));
    create(landing, &head_path(sequence, &bytes), bytes).await?;
    prune(landing).await?;
    Ok(Some(snapshot))
}

/// Writes the parts of a snapshot whose predecessor had the parts `old`, with the entries `tail` after
/// them. Returns all parts.
async fn parts(
    landing: &Store,
    old: &[LogPart],
    mut tail: Vec<CommitEntry>,
) -> Result<Vec<LogPart>, Error> {
    let reaches: Vec<Reach> = tail.iter().map(Reach::of).collect();
    let mut kept = Vec::with_capacity(old.len() + 1);
    let mut changed: BTreeMap<Sequence, Vec<CommitEntry>> = BTreeMap::new();
    for part in old {
        let is_touched = reaches.iter().any(|r| r.touches(part.first, part.last));
        if is_touched {
            let mut entries = read(landing, part).await?;
            for newer in &tail {
                log_effect::apply(&mut entries, newer);
            }
            changed.insert(part.first, entries);
        }
        kept.push(part.clone());
    }
    tail.iter_mut().for_each(settle);
    while let Some(part) = kept.last()
        && part.entries() <= tail.len() as u64
        && part.entries() + tail.len() as u64 <= MOST
    {
        let mut entries = match changed.remove(&part.first) {
            Some(entries) => entries,
            None => read(landing, part).await?,
        };
        entries.append(&mut tail);
        tail = entries;
        kept.pop();
    }
    for part in &mut kept {
        if let Some(entries) = changed.remove(&part.first) {
            *part = put_part(landing, &entries).await?;
        }
    }
    let most = usize::try_from(MOST).unwrap_or(usize::MAX);
    for entries in tail.chunks(most) {
        kept.push(put_part(landing, entries).await?);
    }
    Ok(kept)
}

async fn read(landing: &Store, part: &LogPart) -> Result<Vec<CommitEntry>, Error> {
    let read = log::read_parts(landing, std::slice::from_ref(part)).await?;
    read.map_err(|reason| Error::Log {
        url: landing.url_of(PARTS),
        reason,
    })
}

async fn put_part(landing: &Store, entries: &[CommitEntry]) -> Result<LogPart, Error> {
    let fault = |reason: String| Error::Log {
        url: landing.url_of(PARTS),
        reason,
    };
    let ends = entries.first().zip(entries.last());
    let (first, last) = ends.ok_or_else(|| fault("a part has no entries".to_owned()))?;
    let bytes = log::encode_part(entries).map_err(fault)?;
    let path = part_path(first.sequence, last.sequence, &bytes);
    let files = entries.iter().flat_map(|entry| &entry.files);
    let part = LogPart {
        path,
        first: first.sequence,
        last: last.sequence,
        rows: files.map(|file| file.rows).sum(),
        bytes: bytes.len() as u64,
        hash: feedline_schemas::ids::Hash128::of(&bytes),
        sums: LogSums::default().with(entries),
    };
    create(landing, &part.path, bytes).await?;
    Ok(part)
}

/// Creates an object whose name has the hash of its bytes. One that exists with other bytes is
/// damaged, and is replaced.
async fn create(landing: &Store, path: &str, bytes: Bytes) -> Result<(), Error> {
    if let PutNew::Taken(_) = landing.put_new(path, bytes.clone()).await? {
        landing.put(path, bytes).await?;
    }
    Ok(())
}

/// Removes old heads, and then the parts that no other head names.
async fn prune(landing: &Store) -> Result<(), Error> {
    let mut heads: Vec<String> = landing
        .list(HEADS)
        .await?
        .into_iter()
        .map(|head| head.path)
        .filter(|path| parse_head_path(path).is_some())
        .collect();
    if heads.len() <= MOST_HEADS {
        return Ok(());
    }
    let kept = heads.split_off(heads.len() - HEADS_KEPT);
    let mut named = BTreeSet::new();
    for path in &kept {
        let Some(body) = landing.get_opt(path).await? else {
            continue;
        };
        // A head of a newer release may name parts that this one does not know of.
        let Ok(head) = decode::<LogSnapshot>(path, &body) else {
            return Ok(());
        };
        named.extend(head.parts.into_iter().map(|part| part.path));
    }
    for path in &heads {
        landing.delete(path).await?;
    }
    for part in landing.list(PARTS).await? {
        if !named.contains(&part.path) {
            landing.delete(&part.path).await?;
        }
    }
    Ok(())
}

/// Removes the heads that cover entries from the number `count` on, after a repair has truncated the
/// log there.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn remove_from(landing: &Store, count: u64) -> Result<(), Error> {
    for head in landing.list(HEADS).await? {
        let covered = parse_head_path(&head.path).map(|(covered, _)| covered.get());
        if covered.is_some_and(|covered| covered >= count) {
            landing.delete(&head.path).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
