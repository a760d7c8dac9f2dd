//! Rows of files that have changed since they were read: they no longer count once the new content
//! lands.
//!
//! A batch may hold rows of several files. So the data files with rows of a changed file are
//! rewritten without them. The entry that lands the new content names the replacements
//! ([`Replaced`]). From then on, and not before, readers of the log skip the old files. These move
//! to `superseded/` after that, so that the folder of data files holds each valid row once. If a
//! run dies before, the next start does.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Range, RangeInclusive},
};

use arrow::{
    array::{AsArray, BooleanArray, RecordBatch},
    compute::{concat_batches, filter_record_batch},
    datatypes::{UInt32Type, UInt64Type},
};
use feedline_http::without_user_info;
use feedline_schemas::{
    commit::{CommitEntry, DataFile, Position, Replaced},
    ids::{Name, Sequence},
    log_effect::holder,
    record::system,
};
use feedline_storage::Store;
use parquet::errors::ParquetError;

use crate::{
    batch::{Encoded, encode_again, rejects},
    blocking::computing,
    error::Error,
    landed_file,
};

/// Rows of a batch: its sequence number and a range of `_feedline_row`.
type Rows = (Sequence, Range<u64>);

/// Finds the landed rows of the files at `urls`, by index in `entries`, the log from its beginning.
/// Rows of a merged batch are found at its own entry, at the one that has its data files, and at those
/// of the merged range that have files of child tables left.
///
/// # Errors
/// [`Error::File`] if an entry of an earlier version has rows of one and of another file.
pub(crate) fn spans(
    entries: &[CommitEntry],
    urls: &[String],
) -> Result<BTreeMap<usize, Vec<Rows>>, Error> {
    let mut spans: BTreeMap<usize, Vec<Rows>> = BTreeMap::new();
    let mut before = &Position::Start;
    let left = left_files(entries);
    let mut add = |place: usize, rows: Rows| {
        let holder = holder(entries, place);
        let left = left.get(&holder).into_iter().flatten().copied();
        let places: BTreeSet<usize> = left.chain([place, holder]).collect();
        for place in places {
            spans.entry(place).or_default().push(rows.clone());
        }
    };
    for (place, entry) in entries.iter().enumerate() {
        let mut first = 0;
        for part in &entry.parts {
            let rows = first..first + part.records;
            first = rows.end;
            let part = without_user_info(&part.url);
            if !rows.is_empty() && urls.iter().any(|url| *url == part) {
                add(place, (entry.sequence, rows));
            }
        }
        let has_landed = !entry.files.is_empty() || entry.merged_into.is_some();
        if entry.parts.is_empty() && has_landed && entry.withdrawn.is_empty() {
            let read = files_between(before, &entry.state.position);
            let own = read.iter().filter(|url| urls.iter().any(|own| own == *url));
            match own.count() {
                0 => {}
                own if own == read.len() => add(place, (entry.sequence, 0..u64::MAX)),
                _ => return Err(mixed(urls, entry.sequence)),
            }
        }
        before = &entry.state.position;
    }
    Ok(spans)
}

/// Merged entries that have files of child tables left, by the entry that has their data files. Earlier
/// releases moved no single file of a child table when they merged a range again.
fn left_files(entries: &[CommitEntry]) -> BTreeMap<usize, Vec<usize>> {
    let mut left: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        let mut tables = entry.children.values();
        if entry.merged_into.is_some() && tables.any(|table| !table.files.is_empty()) {
            left.entry(holder(entries, place)).or_default().push(place);
        }
    }
    left
}

/// The files that were read from one position to another.
fn files_between<'p>(from: &'p Position, to: &'p Position) -> Vec<&'p str> {
    let of = |position: &'p Position| match position {
        Position::File { done, current } => (&done[..], current.as_ref()),
        Position::Done { files, .. } => (&files[..], None),
        Position::Start | Position::Page { .. } => (&[][..], None),
    };
    let ((old, begun), (new, current)) = (of(from), of(to));
    let mut urls: Vec<&str> = new
        .iter()
        .filter(|mark| !old.contains(mark))
        .map(|mark| mark.url.as_str())
        .collect();
    urls.extend(
        [begun, current]
            .into_iter()
            .flatten()
            .map(|file| file.url.as_str()),
    );
    urls.sort_unstable();
    urls.dedup();
    urls
}

fn mixed(urls: &[String], sequence: Sequence) -> Error {
    Error::File {
        url: urls.join("`, `"),
        reason: format!(
            "it has changed since its records landed, and entry {sequence} of the log, of an earlier version, does not record which of its rows come from this file; restore the old content, or remove the source's landing folder to re-read everything"
        ),
    }
}

/// Replacement for the data files of an entry.
pub(crate) struct Without {
    pub(crate) replaced: Replaced,
    /// Rows of child tables that no longer count.
    pub(crate) child_rows: BTreeMap<Name, u64>,
    /// Rejected records that no longer count, by reason.
    pub(crate) rejected_by_reason: BTreeMap<String, u64>,
    /// Files to be written.
    pub(crate) encoded: Vec<Encoded>,
}

/// Returns the files of `entry` without `rows`, to be named by the entry `next`; `None` if they
/// have none of these. The name of a file begins with the number of the entry that names it, since
/// other writers decide by it about the file (see [`crate::landing_files`]).
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`], [`Error::Encode`].
pub(crate) async fn without(
    landing: &Store,
    entry: &CommitEntry,
    rows: &[Rows],
    next: Sequence,
) -> Result<Option<Without>, Error> {
    let mut encoded = Vec::new();
    let by = (system::ROW, rows);
    let (files, gone) = filter(landing, next, &entry.files, by, &mut encoded).await?;
    let rejected_by_reason = count_rejects(landing, &entry.rejects, rows).await?;
    let (rejects, rejected) = filter(landing, next, &entry.rejects, by, &mut encoded).await?;
    let (mut children, mut child_rows) = (BTreeMap::new(), BTreeMap::new());
    for (name, table) in &entry.children {
        let by = (system::PARENT, rows);
        let (files, gone) = filter(landing, next, &table.files, by, &mut encoded).await?;
        if gone > 0 {
            children.insert(name.clone(), files);
            child_rows.insert(name.clone(), gone);
        }
    }
    let replaced = Replaced {
        sequence: entry.sequence,
        rows: gone,
        files,
        children,
        rejects: (rejected > 0).then_some(rejects),
    };
    let is_any = gone > 0 || rejected > 0 || !child_rows.is_empty();
    Ok(is_any.then_some(Without {
        replaced,
        child_rows,
        rejected_by_reason,
        encoded,
    }))
}

/// Counts the rejected records in `rows` by reason.
async fn count_rejects(
    landing: &Store,
    files: &[DataFile],
    rows: &[Rows],
) -> Result<BTreeMap<String, u64>, Error> {
    let mut counts = BTreeMap::new();
    for file in files {
        for batch in landed_file::read_whole(landing, file).await? {
            let numbers = batch.column_by_name(system::ROW);
            let numbers = numbers.and_then(|column| column.as_primitive_opt::<UInt32Type>());
            let reasons = batch.column_by_name(rejects::REASON);
            let reasons = reasons.and_then(|column| column.as_string_opt::<i32>());
            let (Some(numbers), Some(reasons)) = (numbers, reasons) else {
                return Err(Error::Landed {
                    url: landing.url_of(&file.path),
                    reason: "its columns are not those of rejected records".into(),
                });
            };
            let sequences = sequences(&batch).unwrap_or_default();
            let both = sequences.iter().zip(numbers.values());
            for ((sequence, number), reason) in both.zip(reasons.iter()) {
                if has(rows, *sequence, *number) {
                    let reason = reason.unwrap_or_default().to_owned();
                    *counts.entry(reason).or_default() += 1;
                }
            }
        }
    }
    Ok(counts)
}

/// Returns the files without the rows whose `column` is in `rows`, and the number of these rows.
/// New files are added to `encoded`.
async fn filter(
    landing: &Store,
    sequence: Sequence,
    files: &[DataFile],
    (column, rows): (&'static str, &[Rows]),
    encoded: &mut Vec<Encoded>,
) -> Result<(Vec<DataFile>, u64), Error> {
    let (mut kept, mut gone) = (Vec::new(), 0);
    for file in files {
        let batches = landed_file::read_whole(landing, file).await?;
        let (rows, folder) = (rows.to_vec(), file.path.clone());
        let work = move || {
            let folder = folder.rsplit_once('/').map_or("", |(folder, _)| folder);
            let batch = filtered(&batches, column, &rows);
            let batch = batch.map_err(|cause| Error::Encode {
                what: "a data file without superseded rows".into(),
                cause,
            })?;
            let left = batch.num_rows() as u64;
            Ok((left, encode_again(folder, sequence, &batch)?))
        };
        let (left, new): (u64, Option<Encoded>) = computing(work).await?;
        gone += file.rows - left.min(file.rows);
        match new {
            _ if left == file.rows => kept.push(file.clone()),
            Some(new) => {
                kept.push(new.file.clone());
                encoded.push(new);
            }
            None => {}
        }
    }
    Ok((kept, gone))
}

fn filtered(
    batches: &[RecordBatch],
    column: &str,
    rows: &[Rows],
) -> Result<RecordBatch, ParquetError> {
    let whole = concatenated(batches)?;
    let numbers = whole.column_by_name(column);
    let numbers = numbers.and_then(|column| column.as_primitive_opt::<UInt32Type>());
    let (Some(numbers), Some(sequences)) = (numbers, sequences(&whole)) else {
        return Err(ParquetError::General(format!(
            "it has no column `{column}`, or none `{}`",
            system::SEQUENCE
        )));
    };
    let both = sequences.iter().zip(numbers.values());
    let stay: BooleanArray = both
        .map(|(sequence, row)| Some(!has(rows, *sequence, *row)))
        .collect();
    Ok(filter_record_batch(&whole, &stay)?)
}

/// Sequence numbers of the batches that rows are of.
fn sequences(batch: &RecordBatch) -> Option<Vec<u64>> {
    let column = batch.column_by_name(system::SEQUENCE)?;
    let column = column.as_primitive_opt::<UInt64Type>()?;
    Some(column.values().to_vec())
}

/// Sequence numbers of the batches that have rows in `files`.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`].
pub(crate) async fn batches_in(
    landing: &Store,
    files: &[DataFile],
) -> Result<BTreeSet<u64>, Error> {
    let mut batches = BTreeSet::new();
    for file in files {
        for read in landed_file::read(landing, file, &[system::SEQUENCE], None).await? {
            let Some(own) = sequences(&read) else {
                return Err(Error::Landed {
                    url: landing.url_of(&file.path),
                    reason: format!("it has no column `{}` of batch numbers", system::SEQUENCE),
                });
            };
            batches.extend(own);
        }
    }
    Ok(batches)
}

/// Returns true if `rows` include the row with this number of a batch.
fn has(rows: &[Rows], sequence: u64, row: u32) -> bool {
    rows.iter()
        .any(|(own, gone)| own.get() == sequence && gone.contains(&u64::from(row)))
}

/// Returns the files without the rows of batches outside of `batches`, under names of the entry `next`,
/// and the files to be written.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`], [`Error::Encode`].
pub(crate) async fn only_batches(
    landing: &Store,
    files: &[DataFile],
    batches: RangeInclusive<u64>,
    next: Sequence,
) -> Result<(Vec<DataFile>, Vec<Encoded>), Error> {
    let (mut kept, mut encoded) = (Vec::new(), Vec::new());
    for file in files {
        let read = landed_file::read_whole(landing, file).await?;
        let (batches, path) = (batches.clone(), file.path.clone());
        let work = move || {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let fault = |cause| Error::Encode {
                what: "a data file without later batches".into(),
                cause,
            };
            let whole = concatenated(&read).map_err(fault)?;
            let own = sequences(&whole).unwrap_or_default();
            let stay: BooleanArray = own.iter().map(|own| Some(batches.contains(own))).collect();
            let left = filter_record_batch(&whole, &stay).map_err(|e| fault(e.into()))?;
            encode_again(folder, next, &left)
        };
        if let Some(left) = computing(work).await? {
            kept.push(left.file.clone());
            encoded.push(left);
        }
    }
    Ok((kept, encoded))
}

fn concatenated(batches: &[RecordBatch]) -> Result<RecordBatch, ParquetError> {
    let Some(first) = batches.first() else {
        return Err(ParquetError::General("it has no rows".into()));
    };
    Ok(concat_batches(&first.schema(), batches)?)
}
