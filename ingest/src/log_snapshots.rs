//! Writing snapshots of a commit log, so that opening it costs the entries after the newest one.
//!
//! A snapshot is never needed: one that cannot be written is a warning in the log of the program, and
//! the next one is tried later. Its parts double in size: the new entries take in the last parts while
//! these are not larger, up to [`parts::MOST`] entries. So an entry is written about six times until its part
//! is full. Parts whose entries an amendment has changed are written again, one after another.

mod merged;
mod parts;

use std::collections::BTreeSet;

use bytes::Bytes;
use feedline_schemas::{
    commit::Position,
    decode, encode,
    format::LOG_SNAPSHOT,
    ids::{Name, Sequence},
    log_snapshot::{HEADS, LogSnapshot, PARTS, head_path, parse_head_path},
};
use feedline_storage::{Listed, Store, log::entry_path};

use self::{
    merged::{MergedKind, merge},
    parts::{create, write_parts},
};
use crate::{
    error::Error,
    log_entries::{LogEntries, NEWEST},
};

/// Entries after which a snapshot is written.
pub(crate) const EVERY: u64 = 64;
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

/// Returns true if the file at `url` belongs to a snapshot of the log in `landing`.
pub(crate) fn is_own(landing: &Store, url: &str) -> bool {
    url.starts_with(&landing.url_of(PARTS))
}

/// Writes a snapshot of all entries of the log in `landing`. Files with numbers below `tidied` were
/// compared with the log, and those far below the end by earlier writers.
///
/// # Errors
/// [`Error::Storage`], [`Error::Log`] or [`Error::Landed`] if a file of the last snapshot is unreadable.
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
    let tail = entries.tail();
    let old = before.map(|before| &before.parts[..]).unwrap_or_default();
    let begins = entries.all().len() - tail.len();
    let start = Position::Start;
    let position = match begins.checked_sub(1) {
        Some(last) => &entries.all()[last].state.position,
        None => &start,
    };
    let parts = write_parts(landing, old, tail, position).await?;
    let [frontier, validators] = [MergedKind::Frontier, MergedKind::Validators];
    let (frontier, validators) = (
        merge(landing, frontier, before, &parts, tail).await?,
        merge(landing, validators, before, &parts, tail).await?,
    );
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
        frontier,
        validators,
    };
    let bytes = Bytes::from(encode(&snapshot));
    let path = head_path(sequence, &bytes);
    create(landing, &path, bytes).await?;
    prune(landing, &snapshot, &path).await?;
    Ok(Some(snapshot))
}

/// Removes old heads, and then the parts that no other head names. `own` is the snapshot that was just
/// written, at `path`: a listing may not show it yet.
async fn prune(landing: &Store, own: &LogSnapshot, path: &str) -> Result<(), Error> {
    let found = landing.list(HEADS).await?;
    let mut heads: Vec<(Sequence, Listed)> = Vec::with_capacity(found.len());
    for head in found {
        let Some((sequence, _)) = parse_head_path(&head.path) else {
            continue;
        };
        if sequence <= own.sequence {
            heads.push((sequence, head));
            continue;
        }
        match landing.size(&entry_path(sequence.get())).await {
            // The log was restored from a copy or repaired since: it is a head of entries that are gone.
            Err(e) if e.is_not_found() => landing.delete(&head.path).await?,
            // Another writer continues the log, and removes what is old.
            size => return size.map(|_| ()).map_err(Error::from),
        }
    }
    heads.retain(|(_, head)| head.path != path);
    if heads.len() < MOST_HEADS {
        return Ok(());
    }
    heads.sort_unstable();
    let kept = heads.split_off(heads.len() + 1 - HEADS_KEPT);
    let mut named: BTreeSet<String> = own.paths().map(str::to_owned).collect();
    for (_, head) in &kept {
        let Some(body) = landing.get_opt(&head.path).await? else {
            continue;
        };
        // A head of a newer release may name files that this one does not know of.
        let Ok(decoded) = decode::<LogSnapshot>(&head.path, &body) else {
            return Ok(());
        };
        named.extend(decoded.paths().map(str::to_owned));
    }
    for (_, head) in &heads {
        landing.delete(&head.path).await?;
    }
    // A part that is newer than a head may belong to one that is being written.
    let oldest = kept.iter().filter_map(|(_, head)| head.modified).min();
    for part in landing.list(PARTS).await? {
        let is_old = part
            .modified
            .zip(oldest)
            .is_none_or(|(part, head)| part < head);
        if is_old && !named.contains(&part.path) {
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
