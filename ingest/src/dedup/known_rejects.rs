//! Landed rejects that a source may return again.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::Range,
};

use arrow::{array::AsArray, datatypes::UInt64Type};
use feedline_readers::value::Value;
use feedline_schemas::{
    commit::{CommitEntry, DataFile, PageRun, Position},
    log_effect::holder,
    record::system,
};
use feedline_storage::Store;

use super::{
    columns_of, hash_parts,
    page_runs::{is_below_bound, is_earlier, run_number},
    rows_of,
};
use crate::{
    batch::rejects::{RAW, REASON, reject_hash},
    error::Error,
    landed_file,
};

/// An open reject of an earlier page run.
#[derive(Debug)]
struct EarlierReject {
    /// Hash of its reason and record.
    hash: u128,
    /// Its key, in the notation of landed columns.
    key: Option<u128>,
    /// Number of the page run that rejected it, or of the batch.
    order: u64,
}

/// Loads the hashes of open rejects that the page run `run` may return again. `entries` are the
/// newest ones of the log, from one that is below its bound on or from the first one. A reject is forgotten
/// once a later page run has landed a record with the same values of the columns `key`: after that, the
/// rejected version is a new one.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`].
pub(super) async fn rejects_from_bound(
    landing: &Store,
    entries: &[CommitEntry],
    run: &PageRun,
    key: &[String],
) -> Result<HashSet<u128>, Error> {
    let count = entries
        .iter()
        .take_while(|entry| is_earlier(entry, run))
        .count();
    let below = entries[..count]
        .iter()
        .rposition(|entry| is_below_bound(entry, run));
    let first = below.map_or(0, |below| below + 1);
    let mut rejects = Vec::new();
    for entry in &entries[first..count] {
        for file in &entry.rejects {
            rejects.extend(read_rejects(landing, file, key, run_number(entry)).await?);
        }
    }
    let landed = match rejects.iter().any(|reject| reject.key.is_some()) {
        true => newest_landings(landing, entries, first..count, key, run_number).await?,
        false => HashMap::new(),
    };
    let is_newest = |reject: &EarlierReject| {
        let landed = reject.key.and_then(|key| landed.get(&key));
        landed.is_none_or(|landed| *landed <= reject.order)
    };
    Ok(rejects
        .into_iter()
        .filter(is_newest)
        .map(|reject| reject.hash)
        .collect())
}

/// Loads the hashes of open rejects of the crawls before the one that is in progress, or begins, after
/// the last of `entries`.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`].
pub(super) async fn rejects_of_earlier_crawls(
    landing: &Store,
    entries: &[CommitEntry],
) -> Result<HashSet<u128>, Error> {
    let is_end = |entry: &CommitEntry| matches!(entry.state.position, Position::Done { .. });
    let count = entries.iter().rposition(is_end).map_or(0, |end| end + 1);
    let files = entries[..count].iter().flat_map(|entry| &entry.rejects);
    reject_hashes(landing, files.cloned().collect()).await
}

/// Counts the rejects that are the newest version of their record: no later batch has landed or rejected a
/// record with the same values of the columns `key`.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`].
pub(crate) async fn count_current_rejects(
    landing: &Store,
    entries: &[CommitEntry],
    key: &[String],
) -> Result<u64, Error> {
    let number = |entry: &CommitEntry| entry.sequence.get();
    let mut count = 0;
    let mut rejected: HashMap<u128, u64> = HashMap::new();
    for entry in entries {
        for file in &entry.rejects {
            for reject in read_rejects(landing, file, key, number(entry)).await? {
                match reject.key {
                    Some(key) => {
                        rejected.insert(key, reject.order);
                    }
                    None => count += 1,
                }
            }
        }
    }
    let landed = newest_landings(landing, entries, 0..entries.len(), key, number).await?;
    let is_newest =
        |(key, order): &(&u128, &u64)| landed.get(key).is_none_or(|landed| landed <= order);
    count += rejected.iter().filter(is_newest).count() as u64;
    Ok(count)
}

/// Reads the hashes of the rejects in `files`.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`].
pub(super) async fn reject_hashes(
    landing: &Store,
    files: Vec<DataFile>,
) -> Result<HashSet<u128>, Error> {
    let mut hashes = HashSet::new();
    for file in &files {
        let rejects = read_rejects(landing, file, &[], 0).await?;
        hashes.extend(rejects.into_iter().map(|reject| reject.hash));
    }
    Ok(hashes)
}

/// Rejected records of a file, with the number `order` of their page run or batch.
async fn read_rejects(
    landing: &Store,
    file: &DataFile,
    key: &[String],
    order: u64,
) -> Result<Vec<EarlierReject>, Error> {
    let mut rejects = Vec::new();
    for batch in landed_file::read(landing, file, &[REASON, RAW], None).await? {
        let text = |name: &str| {
            let column = batch.column_by_name(name);
            column.and_then(|column| column.as_string_opt::<i32>())
        };
        if let (Some(reasons), Some(records)) = (text(REASON), text(RAW)) {
            let rows = 0..batch.num_rows();
            rejects.extend(rows.map(|row| EarlierReject {
                hash: reject_hash(reasons.value(row), records.value(row)),
                key: key_of(records.value(row), key),
                order,
            }));
        }
    }
    Ok(rejects)
}

/// Key of a rejected record; `None` without `key`, if a part of it is null or missing, or if the text is
/// no JSON. A part that lands in another notation, such as a float, is not found among the landed ones.
fn key_of(raw: &str, key: &[String]) -> Option<u128> {
    if key.is_empty() {
        return None;
    }
    let record = Value::parse(raw.as_bytes()).ok()?;
    hash_parts(key.iter().map(|column| match record.at(column)? {
        Value::Null => None,
        Value::Text(text) => Some(text.clone()),
        other => Some(other.canonical()),
    }))
}

/// The largest `order` of a batch that landed a record of each key, among those at `range` of `entries`.
async fn newest_landings(
    landing: &Store,
    entries: &[CommitEntry],
    range: Range<usize>,
    key: &[String],
    order: fn(&CommitEntry) -> u64,
) -> Result<HashMap<u128, u64>, Error> {
    let mut orders = HashMap::new();
    for entry in &entries[range.clone()] {
        orders.insert(entry.sequence.get(), order(entry));
    }
    // A compaction may have merged rows of these batches into the files of a later one.
    let holders: BTreeSet<usize> = range.map(|index| holder(entries, index)).collect();
    let mut columns = vec![system::SEQUENCE];
    columns.extend(columns_of(key));
    let mut newest: HashMap<u128, u64> = HashMap::new();
    for file in holders.iter().flat_map(|index| &entries[*index].files) {
        for batch in landed_file::read(landing, file, &columns, None).await? {
            let sequences = batch.column_by_name(system::SEQUENCE);
            let sequences = sequences.and_then(|column| column.as_primitive_opt::<UInt64Type>());
            let sequences = sequences
                .into_iter()
                .flat_map(|column| column.values().iter());
            for (sequence, (_, key)) in sequences.zip(rows_of(&batch, key)) {
                if let (Some(key), Some(order)) = (key, orders.get(sequence)) {
                    let known = newest.entry(key).or_default();
                    *known = (*known).max(*order);
                }
            }
        }
    }
    Ok(newest)
}
