//! Reading the commit log of a source: its newest snapshot, and the entries after it.
//!
//! See [`feedline_schemas::commit`] and [`feedline_schemas::log_snapshot`] for the formats. An opening costs one listing of
//! the snapshots' heads, two reads, and the entries after the snapshot. The log itself is listed only if there is no snapshot.

use std::slice;

use bytes::Bytes;
use feedline_schemas::{
    ContractError,
    commit::CommitEntry,
    decode,
    ids::{Hash128, Name, Sequence},
    log_effect,
    log_snapshot::{HEADS, LogPart, LogSnapshot, parse_head_path},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{Error, Store};

/// Objects read at the same time. So many entries are requested before it is known that they exist.
const READS: usize = 16;
/// Compression of parts: entries of one source resemble each other.
const LEVEL: i32 = 3;

/// Reason that a log cannot be read.
#[derive(Debug)]
pub enum LogError {
    /// Entries are missing or damaged, or the chain of hashes is broken.
    Damaged(String),
    /// An entry is of another version.
    Contract(ContractError),
    /// The store failed.
    Storage(Error),
}

impl From<Error> for LogError {
    fn from(error: Error) -> Self {
        Self::Storage(error)
    }
}

/// A log as its newest snapshot and the entries after it show it.
#[derive(Clone, Debug)]
pub struct LogTail {
    /// The newest snapshot that fits the log.
    pub snapshot: Option<LogSnapshot>,
    /// The entries after it, or all entries, as they were written.
    pub entries: Vec<CommitEntry>,
    /// xxh3-128 of the last entry's bytes; `None` for an empty log.
    pub last_hash: Option<Hash128>,
    /// Snapshots that are damaged or do not fit, each with the reason. Those of an earlier format version are not among
    /// them: a run replaces them.
    pub passed_over: Vec<String>,
}

/// Reads the newest snapshot of the log in the folder `landing` that covers no entry above `at_most`, and all entries after
/// it, up to `at_most`.
///
/// # Errors
/// [`LogError`].
pub async fn open(
    landing: &Store,
    source: &Name,
    at_most: Option<Sequence>,
) -> Result<LogTail, LogError> {
    let mut passed_over = Vec::new();
    let snapshot = newest_snapshot(landing, source, at_most, &mut passed_over).await?;
    for reason in &passed_over {
        tracing::warn!(%source, "a snapshot of the commit log is passed over: {reason}");
    }
    let (entries, last_hash) = match &snapshot {
        Some(snapshot) => {
            let before = (snapshot.sequence.next().get(), snapshot.entry_hash);
            let (entries, last) = entries_after(landing, source, before, at_most).await?;
            (entries, Some(last))
        }
        None => all_entries(landing, source, at_most).await?,
    };
    Ok(LogTail {
        snapshot,
        entries,
        last_hash,
        passed_over,
    })
}

/// Reads all entries of the log in the folder `landing`, up to `at_most`, as they were written, without a snapshot. Also
/// returns the hash of the last one's bytes.
///
/// # Errors
/// [`LogError`].
pub async fn all_entries(
    landing: &Store,
    source: &Name,
    at_most: Option<Sequence>,
) -> Result<(Vec<CommitEntry>, Option<Hash128>), LogError> {
    let mut listed = landing.list("log").await?;
    for (sequence, file) in (0..).zip(&listed) {
        let wanted = entry_path(sequence);
        if file.path != wanted {
            let reason = format!("`{}` was found where `{wanted}` should be", file.path);
            return Err(LogError::Damaged(reason));
        }
    }
    if let Some(last) = at_most {
        let count = usize::try_from(last.get().saturating_add(1)).unwrap_or(usize::MAX);
        listed.truncate(count);
    }
    let reads: Vec<_> = listed.iter().map(|file| landing.get(&file.path)).collect();
    let mut bodies = stream::iter(reads).buffered(READS);
    let mut entries = Vec::with_capacity(listed.len());
    let mut last_hash = None;
    for (sequence, file) in (0..).zip(&listed) {
        let Some(body) = bodies.try_next().await? else {
            break;
        };
        let url = landing.url_of(&file.path);
        let entry = check_entry(&url, source, sequence, last_hash, &file.path, &body)?;
        last_hash = Some(Hash128::of(&body));
        entries.push(entry);
    }
    Ok((entries, last_hash))
}

/// Path of the entry with this sequence number.
#[must_use]
pub fn entry_path(sequence: u64) -> String {
    format!("log/{sequence:020}.json")
}

/// Decodes and checks the entry in `body`, found at `path` (with its `url`) at the position `sequence`, after an entry with
/// the hash `before`.
///
/// # Errors
/// [`LogError::Damaged`] for an entry that is damaged or belongs to another position or source, [`LogError::Contract`] for
/// one of another version or with parts that only a newer release knows.
pub fn check_entry(
    url: &str,
    source: &Name,
    sequence: u64,
    before: Option<Hash128>,
    path: &str,
    body: &[u8],
) -> Result<CommitEntry, LogError> {
    let entry: CommitEntry = match decode(url, body) {
        Err(ContractError::Malformed {
            path: at, reason, ..
        }) => {
            let reason = format!("`{path}` cannot be read: {reason} at `{at}`");
            return Err(LogError::Damaged(reason));
        }
        entry => entry.map_err(LogError::Contract)?,
    };
    if entry.sequence.get() != sequence || entry.source != *source {
        let CommitEntry {
            source, sequence, ..
        } = entry;
        return Err(LogError::Damaged(format!(
            "`{path}` claims to be entry {sequence} of source `{source}`"
        )));
    }
    if entry.prev_hash != before {
        return Err(LogError::Damaged(format!(
            "the entry before `{path}` is not the one it was written after"
        )));
    }
    Ok(entry)
}

/// Sequence number of the newest entry in the folder `landing`, found without reading it; `None` for an empty log.
///
/// # Errors
/// The error of the store.
pub async fn newest_sequence(landing: &Store) -> Result<Option<u64>, Error> {
    let heads = landing.list(HEADS).await?;
    let heads = heads.iter().filter_map(|head| parse_head_path(&head.path));
    if let Some(covered) = heads.map(|(sequence, _)| sequence.get()).max()
        && exists(landing, &entry_path(covered)).await?
    {
        let mut newest = covered;
        loop {
            let numbers = (newest + 1)..=(newest + READS as u64);
            let asked = numbers.map(|number| async move {
                Ok::<_, Error>((number, exists(landing, &entry_path(number)).await?))
            });
            let asked: Vec<_> = asked.collect();
            let found: Vec<(u64, bool)> = stream::iter(asked).buffered(READS).try_collect().await?;
            let present = found.iter().take_while(|(_, exists)| *exists).count();
            newest += present as u64;
            if present < READS {
                return Ok(Some(newest));
            }
        }
    }
    let listed = landing.list("log").await?;
    Ok(listed.len().checked_sub(1).map(|last| last as u64))
}

async fn exists(landing: &Store, path: &str) -> Result<bool, Error> {
    match landing.size(path).await {
        Err(e) if e.is_not_found() => Ok(false),
        size => size.map(|_| true),
    }
}

/// Reads the newest snapshot that fits the log.
async fn newest_snapshot(
    landing: &Store,
    source: &Name,
    at_most: Option<Sequence>,
    passed_over: &mut Vec<String>,
) -> Result<Option<LogSnapshot>, LogError> {
    let listed = landing.list(HEADS).await?;
    let mut heads: Vec<(Sequence, &str, &str)> = listed
        .iter()
        .filter_map(|file| {
            let (sequence, hash) = parse_head_path(&file.path)?;
            Some((sequence, hash, file.path.as_str()))
        })
        .filter(|(sequence, ..)| at_most.is_none_or(|most| *sequence <= most))
        .collect();
    heads.sort_unstable();
    for (sequence, hash, path) in heads.into_iter().rev() {
        let Some(body) = landing.get_opt(path).await? else {
            // A writer has removed it, and written newer ones.
            continue;
        };
        match read_head(landing, source, (sequence, hash, path), &body).await? {
            Ok(head) => return Ok(Some(head)),
            Err(UnusableHead::Outdated) => {
                tracing::debug!(%source, path, "a snapshot of an earlier format version is not used");
            }
            Err(UnusableHead::Wrong(reason)) => {
                passed_over.push(format!("`{}`: {reason}", landing.url_of(path)));
            }
        }
    }
    Ok(None)
}

/// Head of a snapshot that is not used.
enum UnusableHead {
    /// An earlier release wrote it, in a version that is no longer read.
    Outdated,
    /// It is damaged, or does not fit the log, for this reason.
    Wrong(String),
}

/// Reads a head; returns the reason if it cannot be used.
async fn read_head(
    landing: &Store,
    source: &Name,
    (sequence, hash, path): (Sequence, &str, &str),
    body: &[u8],
) -> Result<Result<LogSnapshot, UnusableHead>, LogError> {
    let wrong = |reason: String| Ok(Err(UnusableHead::Wrong(reason)));
    if Hash128::of(body).short() != hash {
        return wrong("its bytes do not have the hash in its name".to_owned());
    }
    let head: LogSnapshot = match decode(&landing.url_of(path), body) {
        Ok(head) => head,
        Err(ContractError::Outdated { .. }) => return Ok(Err(UnusableHead::Outdated)),
        Err(error) => return wrong(error.to_string()),
    };
    if head.source != *source || head.sequence != sequence || !is_contiguous(&head.parts, sequence)
    {
        return wrong(format!(
            "it is entry {} of source `{}`, or its parts have a gap",
            head.sequence, head.source
        ));
    }
    let entry = landing.get_opt(&entry_path(sequence.get())).await?;
    if entry.map(|body| Hash128::of(&body)) != Some(head.entry_hash) {
        return wrong(format!(
            "entry {sequence} of the log is missing or another one: the log was repaired or restored since"
        ));
    }
    Ok(Ok(head))
}

/// Returns true if the parts cover all entries up to `last`.
fn is_contiguous(parts: &[LogPart], last: Sequence) -> bool {
    let mut next = Sequence::new(0);
    for part in parts {
        if part.first != next || part.last < part.first {
            return false;
        }
        next = part.last.next();
    }
    next == last.next()
}

/// Entries from the number `from` on, after an entry with the hash `before`, and the hash of the last one.
async fn entries_after(
    landing: &Store,
    source: &Name,
    (mut from, mut before): (u64, Hash128),
    at_most: Option<Sequence>,
) -> Result<(Vec<CommitEntry>, Hash128), LogError> {
    let end = at_most.map_or(u64::MAX, |last| last.get().saturating_add(1));
    let mut entries = Vec::new();
    while from < end {
        let to = end.min(from + READS as u64);
        let reads: Vec<_> = (from..to)
            .map(|sequence| {
                let path = entry_path(sequence);
                async move { landing.get_opt(&path).await }
            })
            .collect();
        let bodies: Vec<Option<Bytes>> = stream::iter(reads).buffered(READS).try_collect().await?;
        let present = bodies.iter().take_while(|body| body.is_some()).count();
        let has_later = bodies.iter().skip(present).any(Option::is_some);
        let is_full = present == bodies.len();
        for body in bodies.into_iter().take(present).flatten() {
            let path = entry_path(from);
            let url = landing.url_of(&path);
            entries.push(check_entry(&url, source, from, Some(before), &path, &body)?);
            (before, from) = (Hash128::of(&body), from + 1);
        }
        if has_later {
            // A writer may have added both entries between the two reads.
            let missing = entry_path(from);
            if !exists(landing, &missing).await? {
                let reason = format!("`{missing}` is missing, and later entries exist");
                return Err(LogError::Damaged(reason));
            }
        } else if !is_full {
            break;
        }
    }
    Ok((entries, before))
}

/// Reads parts of a snapshot: the entries that they have, in order, as they count after the snapshot's last entry. Returns the
/// reason if a part is missing or damaged: then the log has to be read.
///
/// # Errors
/// The error of the store.
pub async fn read_parts(
    landing: &Store,
    parts: &[LogPart],
) -> Result<Result<Vec<CommitEntry>, String>, Error> {
    let reads: Vec<_> = parts
        .iter()
        .map(|part| landing.get_opt(&part.path))
        .collect();
    let mut bodies = stream::iter(reads).buffered(READS);
    let mut entries = Vec::new();
    for part in parts {
        let Some(body) = bodies.try_next().await? else {
            break;
        };
        let url = landing.url_of(&part.path);
        match body.map_or(Err("it is missing".to_owned()), |body| {
            decode_part(part, &body)
        }) {
            Ok(found) => entries.extend(found),
            Err(reason) => return Ok(Err(format!("`{url}`: {reason}"))),
        }
    }
    Ok(Ok(entries))
}

/// Entries of a part.
pub(crate) fn decode_part(part: &LogPart, body: &Bytes) -> Result<Vec<CommitEntry>, String> {
    if Hash128::of(body) != part.hash {
        return Err("its bytes do not have the hash that the snapshot names".to_owned());
    }
    let lines = zstd::decode_all(&body[..]).map_err(|e| e.to_string())?;
    let entries: Result<Vec<CommitEntry>, _> = serde_json::Deserializer::from_slice(&lines)
        .into_iter::<CommitEntry>()
        .collect();
    let entries = entries.map_err(|e| e.to_string())?;
    let numbers = entries.iter().map(|entry| entry.sequence.get());
    if !numbers.eq(part.first.get()..=part.last.get()) {
        return Err("its entries are others than the snapshot names".to_owned());
    }
    Ok(entries)
}

/// Encodes entries as a part.
///
/// # Errors
/// The reason, if the compression fails.
pub fn encode_part(entries: &[CommitEntry]) -> Result<Bytes, String> {
    let mut lines = Vec::new();
    for entry in entries {
        serde_json::to_writer(&mut lines, entry).map_err(|e| e.to_string())?;
        lines.push(b'\n');
    }
    let packed = zstd::encode_all(&lines[..], LEVEL).map_err(|e| e.to_string())?;
    Ok(packed.into())
}

/// Reads all entries of the log in the folder `landing`, up to `at_most`, as they count after the last of them: from the
/// newest snapshot and the entries after it. Also returns the hash of the last entry's bytes. Entries that come from a
/// snapshot lack what [`feedline_schemas::log_effect::settle`] clears, but for the two newest that it covers.
///
/// # Errors
/// [`LogError`].
pub async fn read_all(
    landing: &Store,
    source: &Name,
    at_most: Option<Sequence>,
) -> Result<(Vec<CommitEntry>, Option<Hash128>), LogError> {
    fold_all(landing, source, at_most, Vec::new, Vec::push).await
}

/// Like [`read_all`], and adds the entries one after another to what `start` gives, so that memory holds those of one part of
/// the snapshot and those after it.
///
/// # Errors
/// [`LogError`].
pub async fn fold_all<T>(
    landing: &Store,
    source: &Name,
    at_most: Option<Sequence>,
    start: impl Fn() -> T,
    add: impl Fn(&mut T, CommitEntry),
) -> Result<(T, Option<Hash128>), LogError> {
    let tail = open(landing, source, at_most).await?;
    let mut all = start();
    let (mut later, mut last_hash) = (tail.entries, tail.last_hash);
    let mut newest = Vec::new();
    if let Some(snapshot) = &tail.snapshot {
        newest.clone_from(&snapshot.newest);
        let first = newest.first().map(|first| first.sequence);
        let first = first.unwrap_or(snapshot.sequence.next());
        for part in &snapshot.parts {
            match read_parts(landing, slice::from_ref(part)).await? {
                Ok(mut entries) => {
                    entries.retain(|entry| entry.sequence < first);
                    for newer in &later {
                        log_effect::apply(&mut entries, newer);
                    }
                    entries.into_iter().for_each(|entry| add(&mut all, entry));
                }
                Err(reason) => {
                    tracing::warn!(%source, "the commit log is read from its first entry, since a part of its snapshot is unreadable: {reason}");
                    (all, newest) = (start(), Vec::new());
                    (later, last_hash) = all_entries(landing, source, at_most).await?;
                    break;
                }
            }
        }
    }
    for entry in later {
        log_effect::push(&mut newest, entry);
    }
    newest.into_iter().for_each(|entry| add(&mut all, entry));
    Ok((all, last_hash))
}
