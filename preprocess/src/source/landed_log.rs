//! The commit log of a source, and its difference from an earlier position.

use feedline_schemas::{
    commit::{CommitEntry, Compacted, DataFile},
    decode,
    ids::{Hash128, Name, Origin, Sequence},
    log_effect::{Reach, index_of},
};
use feedline_storage::{
    Store,
    log::{self, LogError},
};

use crate::{Error, source::superseded_files};

/// Reads and verifies the log of `source` up to `at_most`, from its newest snapshot on: all entries as they count then, and
/// the hash of the last one's bytes.
pub(crate) async fn read_log(
    store: &Store,
    source: &Name,
    at_most: Option<Sequence>,
) -> Result<(Vec<CommitEntry>, Option<Hash128>), Error> {
    let read = log::read_all(store, source, at_most).await;
    let (entries, last_hash) = read.map_err(|error| log_error(store, error))?;
    for entry in &entries {
        check_entry(store, entry)?;
    }
    Ok((entries, last_hash))
}

/// Reads and verifies the log of `source`, and adds its entries as they count now to what `start` gives, without holding all
/// of them in memory. Also returns the hash of the last one's bytes.
pub(crate) async fn fold_log<T>(
    store: &Store,
    source: &Name,
    start: impl Fn() -> T,
    add: impl Fn(&mut T, CommitEntry),
) -> Result<(T, Option<Hash128>), Error> {
    let read = log::fold_all(store, source, None, start, add).await;
    read.map_err(|error| log_error(store, error))
}

fn log_error(store: &Store, error: LogError) -> Error {
    match error {
        LogError::Damaged(reason) => damaged(store.url_of("log"), reason),
        LogError::Contract(error) => error.into(),
        LogError::Storage(error) => error.into(),
    }
}

/// Checks that the rows of an entry can have origins.
pub(crate) fn check_entry(store: &Store, entry: &CommitEntry) -> Result<(), Error> {
    check_origins(entry).map_err(|reason| {
        let path = log::entry_path(entry.sequence.get());
        damaged(store.url_of(&path), reason)
    })
}

/// Checks that the last row of a batch can have an origin.
fn check_origins(entry: &CommitEntry) -> Result<(), String> {
    let (sequence, counts) = (entry.sequence, &entry.counts);
    let records = counts.rows + counts.duplicates + counts.rejected;
    let records = counts.children.values().copied().fold(records, u64::max);
    match Origin::pack(0, sequence.get(), records.saturating_sub(1)) {
        Some(_) => Ok(()),
        None => Err(format!(
            "batch {sequence} of {records} records is beyond what a dataset can refer to"
        )),
    }
}

/// Hash of the bytes of an entry; `None` where it is missing.
pub(crate) async fn hash_of(store: &Store, sequence: Sequence) -> Result<Option<Hash128>, Error> {
    let body = store.get_opt(&log::entry_path(sequence.get())).await?;
    Ok(body.map(|body| Hash128::of(&body)))
}

/// Returns true if `entry` adds rows or withdraws some. Other entries record changed settings, merged files or pages without
/// a new record.
pub(crate) fn changes_rows(entry: &CommitEntry) -> bool {
    entry.counts.rows > 0
        || !entry.replaced.is_empty()
        || entry.reset_to.is_some()
        || entry.rewound_to.is_some()
        || entry.withdrawn.iter().any(|lost| has_rows(&lost.files))
}

/// Reason that rows which had landed by the entry `first` no longer count, as a text about the source.
pub(crate) fn taken_back(entries: &[CommitEntry], first: Sequence) -> Option<String> {
    const END: &str = "rows that the dataset was built from no longer count";
    let later = entries.iter().filter(|entry| entry.sequence > first);
    let mut reasons = later.filter_map(|entry| {
        let by = entry.sequence;
        if entry.reset_to.is_some() {
            return Some(format!("was reset by entry {by}: {END}"));
        }
        if let Some(to) = entry.rewound_to.filter(|to| *to < first) {
            return Some(format!("was rewound to entry {to} by entry {by}: {END}"));
        }
        let lost = entry.withdrawn.iter();
        let mut lost = lost.filter(|lost| lost.sequence <= first && has_rows(&lost.files));
        let mut replaced = entry.replaced.iter();
        let replaced = replaced.find(|replaced| replaced.sequence <= first);
        let lost = lost.next().map(|lost| lost.sequence);
        let lost = lost.or(replaced.map(|replaced| replaced.sequence))?;
        Some(format!(
            "has withdrawn rows of batch {lost} by entry {by}: {END}"
        ))
    });
    reasons.next()
}

/// Returns whether the files of a batch include rows, beyond rejects and raw responses.
fn has_rows(files: &[String]) -> bool {
    let others = ["rejects/", "raw/"];
    files
        .iter()
        .any(|file| !others.iter().any(|folder| file.starts_with(folder)))
}

/// Gives entries after `first` their own files back where a compaction has merged these with files of entries up to `first`,
/// so that rows of both sides are in different files.
///
/// Returns a reason instead if they are gone, or have changed since.
pub(crate) async fn split_merged(
    store: &Store,
    entries: &mut [CommitEntry],
    first: Sequence,
) -> Result<Result<(), String>, Error> {
    let across = |merged: &&Compacted| merged.first <= first && first < merged.last;
    let later = entries.iter().filter(|entry| entry.sequence > first);
    let found: Vec<(Sequence, Compacted)> = later
        .flat_map(|entry| {
            let merged = entry.compacted.iter().filter(across).cloned();
            merged.map(move |merged| (entry.sequence, merged))
        })
        .collect();
    for (by, merged) in found {
        let reason = |why: &str| {
            Ok(Err(format!(
                "had batches {} to {} merged by entry {by}, and the dataset has a part of them: {why}, so it is built from all rows",
                merged.first, merged.last
            )))
        };
        // A further merge of them changes no row: the files that they were landed with have all of them.
        let changes = |entry: &CommitEntry| {
            entry.sequence > first
                && entry.sequence != by
                && Reach::on_rows(entry).touches(first.next(), merged.last)
        };
        if entries.iter().any(changes) {
            return reason("they have changed since");
        }
        let mut own = Vec::new();
        let mut sequence = first.next();
        while sequence <= merged.last {
            match files_of(store, sequence, &merged).await? {
                Some(files) => own.push((sequence, files)),
                None => return reason("their own files were removed by retention"),
            }
            sequence = sequence.next();
        }
        // Of entries up to `first` only the schema is needed, which all entries of a merge share.
        let before = entries.iter_mut().filter(|entry| entry.sequence <= first);
        if let Some(entry) = before.last() {
            entry.files.clone_from(&merged.files);
            for (name, files) in &merged.children {
                if let Some(table) = entry.children.get_mut(name) {
                    table.files.clone_from(files);
                }
            }
        }
        for (sequence, (files, tables)) in own {
            let Some(index) = index_of(entries, sequence) else {
                continue;
            };
            entries[index].files = files;
            for (name, files) in tables {
                if let Some(table) = entries[index].children.get_mut(&name) {
                    table.files = files;
                }
            }
        }
    }
    Ok(Ok(()))
}

/// Data files, and those of child tables.
type OwnFiles = (Vec<DataFile>, Vec<(Name, Vec<DataFile>)>);

/// The files that an entry had before they were merged, where they are now; `None` if one is gone.
async fn files_of(
    store: &Store,
    sequence: Sequence,
    merged: &Compacted,
) -> Result<Option<OwnFiles>, Error> {
    let path = log::entry_path(sequence.get());
    let bytes = store.get(&path).await?;
    let entry: CommitEntry = decode(&store.url_of(&path), &bytes)?;
    let Some(files) = moved(store, entry.files).await? else {
        return Ok(None);
    };
    let mut tables = Vec::new();
    for (name, table) in entry.children {
        if !merged.children.contains_key(&name) {
            continue;
        }
        let Some(files) = moved(store, table.files).await? else {
            return Ok(None);
        };
        tables.push((name, files));
    }
    Ok(Some((files, tables)))
}

/// The files with the paths that they have since they were superseded; `None` if one is gone.
async fn moved(store: &Store, files: Vec<DataFile>) -> Result<Option<Vec<DataFile>>, Error> {
    let mut found = Vec::with_capacity(files.len());
    for file in files {
        let mut now = None;
        for path in [superseded_files::path(&file.path), file.path.clone()] {
            match store.size(&path).await {
                Err(e) if e.is_not_found() => {}
                size => {
                    now = (size? == file.bytes).then_some(path);
                    break;
                }
            }
        }
        let Some(path) = now else {
            return Ok(None);
        };
        found.push(DataFile { path, ..file });
    }
    Ok(Some(found))
}

pub(crate) fn damaged(url: String, reason: String) -> Error {
    Error::input(
        format!("`{url}`"),
        reason,
        "it was changed or damaged after it landed: restore it, or remove the source's landing folder and ingest again",
    )
}
