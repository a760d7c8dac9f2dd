//! Rejected records whose key has landed since they were rejected.
//!
//! Of the rows with one key and version a dataset reads the one that landed last. A retried record
//! lands last, so it would take the place of a row that the source has returned after it.

use std::collections::{HashMap, HashSet};

use arrow::{
    array::{Array as _, ArrayRef, AsArray},
    datatypes::{UInt32Type, UInt64Type},
    util::display::array_value_to_string,
};
use feedline_readers::{calendar_time::parse_nanos, record::Record, value::Value};
use feedline_schemas::{
    amendment::WithdrawnReason, commit::CommitEntry, config::SourceConfig, record::system,
};
use feedline_storage::Store;

use crate::{error::Error, landed_file};

/// Number of the batch of a record, and its row in the batch.
pub(super) type LandingOrder = (u64, u64);

/// Returns, for each record and its place in the order of landing, true if a row of its key has landed
/// after it with the same version, or with any version if the source has none.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`].
pub(super) async fn find_overtaken(
    config: &SourceConfig,
    landing: &Store,
    entries: &[CommitEntry],
    records: &[(&Record, LandingOrder)],
) -> Result<Vec<bool>, Error> {
    if config.key.is_empty() {
        return Ok(vec![false; records.len()]);
    }
    let columns: Vec<&str> = config
        .key
        .iter()
        .chain(&config.version)
        .map(String::as_str)
        .collect();
    let keys: Vec<Option<Vec<String>>> = records
        .iter()
        .map(|(record, _)| key_of(record, &columns))
        .collect();
    let wanted: HashSet<&Vec<String>> = keys.iter().flatten().collect();
    let newest = newest_landings(landing, entries, &columns, &wanted).await?;
    let orders = records.iter().map(|(_, order)| order);
    let overtaken = keys.iter().zip(orders).map(|(key, order)| {
        let landed = key.as_ref().and_then(|key| newest.get(key));
        landed.is_some_and(|landed| landed > order)
    });
    Ok(overtaken.collect())
}

/// Values of the key of a record; `None` if one is null or missing.
fn key_of(record: &Record, columns: &[&str]) -> Option<Vec<String>> {
    let record = record.value()?;
    let part = |column: &&str| match record.at(column)? {
        Value::Null => None,
        Value::Text(text) | Value::Cell(text) => Some(normalized(text.trim())),
        other => Some(normalized(&other.canonical())),
    };
    columns.iter().map(part).collect()
}

/// Place of the newest landed row of each of the `wanted` keys. Retried records do not count: the source
/// returned them before they landed.
async fn newest_landings(
    landing: &Store,
    entries: &[CommitEntry],
    columns: &[&str],
    wanted: &HashSet<&Vec<String>>,
) -> Result<HashMap<Vec<String>, LandingOrder>, Error> {
    let mut newest: HashMap<Vec<String>, LandingOrder> = HashMap::new();
    let is_retry = |entry: &&CommitEntry| {
        let mut withdrawn = entry.withdrawn.iter();
        withdrawn.any(|withdrawn| withdrawn.reason == WithdrawnReason::Retried)
    };
    let retries = entries.iter().filter(is_retry);
    let retries: HashSet<u64> = retries.map(|entry| entry.sequence.get()).collect();
    let names = [&[system::SEQUENCE, system::ROW][..], columns].concat();
    for file in entries.iter().flat_map(|entry| &entry.files) {
        for batch in landed_file::read(landing, file, &names, None).await? {
            let sequences = batch.column_by_name(system::SEQUENCE);
            let sequences = sequences.and_then(|column| column.as_primitive_opt::<UInt64Type>());
            let numbers = batch.column_by_name(system::ROW);
            let numbers = numbers.and_then(|column| column.as_primitive_opt::<UInt32Type>());
            let parts = columns.iter().map(|name| batch.column_by_name(name));
            let parts: Option<Vec<&ArrayRef>> = parts.collect();
            let (Some(sequences), Some(numbers), Some(parts)) = (sequences, numbers, parts) else {
                continue;
            };
            for row in 0..batch.num_rows() {
                let key = landed_key(&parts, row).filter(|key| wanted.contains(key));
                let order = (sequences.value(row), u64::from(numbers.value(row)));
                if let Some(key) = key.filter(|_| !retries.contains(&order.0)) {
                    let known = newest.entry(key).or_insert(order);
                    *known = (*known).max(order);
                }
            }
        }
    }
    Ok(newest)
}

/// Values of the key of a landed row; `None` if one is null.
fn landed_key(parts: &[&ArrayRef], row: usize) -> Option<Vec<String>> {
    let part = |column: &ArrayRef| {
        let text = array_value_to_string(column, row).ok();
        text.filter(|_| !column.is_null(row))
            .map(|text| normalized(text.trim()))
    };
    parts.iter().copied().map(part).collect()
}

/// One notation for the values that a column may convert: times, and floats without a fraction.
fn normalized(text: &str) -> String {
    match parse_nanos(text) {
        Some(nanos) => format!("{nanos} ns"),
        None => text.strip_suffix(".0").unwrap_or(text).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_same_notation_in_a_record_and_in_a_column() {
        assert_eq!(
            normalized("2026-11-01T01:00:00+01:00"),
            normalized("2026-11-01T00:00:00Z")
        );
        assert_eq!(normalized("4.0"), normalized("4"));
        assert_ne!(normalized("04"), normalized("4"));
    }
}
