//! Parts of a snapshot: each has the entries of a range of the log.

use bytes::Bytes;
use feedline_schemas::{
    commit::{CommitEntry, Interval, Position},
    ids::Hash128,
    log_effect::{self, Reach, settle},
    log_snapshot::{LogPart, LogSums, PARTS, part_path},
};
use feedline_storage::{PutNew, Store, log};

use crate::{backfill::span, error::Error};

/// Most entries of a part that takes in others.
pub(super) const MOST: u64 = 4_096;

/// Writes the parts of a snapshot whose predecessor had the parts `old`, with the entries `tail` after
/// them, which begin at the position `before`. Returns all parts.
pub(super) async fn write_parts(
    landing: &Store,
    old: &[LogPart],
    tail: &[CommitEntry],
    mut before: &Position,
) -> Result<Vec<LogPart>, Error> {
    let reaches = tail.iter().map(Reach::of);
    let reaches: Vec<Reach> = reaches.filter(|reach| !reach.is_empty()).collect();
    let mut kept = Vec::with_capacity(old.len() + 1);
    for part in old {
        let is_touched = reaches.iter().any(|r| r.touches(part.first, part.last));
        kept.push(match is_touched {
            true => {
                let mut entries = read(landing, part).await?;
                for newer in tail {
                    log_effect::apply(&mut entries, newer);
                }
                put_part(landing, &entries, part.slices).await?
            }
            false => part.clone(),
        });
    }
    let (mut open, mut slices) = (Vec::new(), None);
    let mut count = tail.len() as u64;
    while let Some(part) = kept.last()
        && part.entries() <= count
        && part.entries() + count <= MOST
    {
        let mut entries = read(landing, part).await?;
        entries.append(&mut open);
        (open, slices) = (entries, both(part.slices, slices));
        count += part.entries();
        kept.pop();
    }
    for newer in tail {
        let position = &newer.state.position;
        // A rewind seems to read everything up to where it returns to, and reads nothing.
        if !newer.is_amendment() {
            slices = both(slices, span(before, position));
        }
        before = position;
        let mut entry = newer.clone();
        settle(&mut entry);
        open.push(entry);
        if open.len() as u64 >= MOST {
            kept.push(put_part(landing, &open, slices.take()).await?);
            open.clear();
        }
    }
    if !open.is_empty() {
        kept.push(put_part(landing, &open, slices).await?);
    }
    Ok(kept)
}

/// An interval that has both.
fn both(a: Option<Interval>, b: Option<Interval>) -> Option<Interval> {
    match (a, b) {
        (Some(a), Some(b)) => Some([a[0].min(b[0]), a[1].max(b[1])]),
        (a, b) => a.or(b),
    }
}

pub(super) async fn read(landing: &Store, part: &LogPart) -> Result<Vec<CommitEntry>, Error> {
    let read = log::read_parts(landing, std::slice::from_ref(part)).await?;
    read.map_err(|reason| Error::Log {
        url: landing.url_of(PARTS),
        reason,
    })
}

pub(super) async fn put_part(
    landing: &Store,
    entries: &[CommitEntry],
    slices: Option<Interval>,
) -> Result<LogPart, Error> {
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
        hash: Hash128::of(&bytes),
        sums: LogSums::default().with(entries),
        slices,
    };
    create(landing, &part.path, bytes).await?;
    Ok(part)
}

/// Creates an object whose name has the hash of its bytes. One that exists with other bytes is
/// damaged, and is replaced.
pub(super) async fn create(landing: &Store, path: &str, bytes: Bytes) -> Result<(), Error> {
    if let PutNew::Taken(_) = landing.put_new(path, bytes.clone()).await? {
        landing.put(path, bytes).await?;
    }
    Ok(())
}
