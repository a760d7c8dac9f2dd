//! Files of rows that have landed, with the rows that are rejected.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::Context as _;
use feedline_ingest::{Landed, LandedReject};
use feedline_preprocess::LandedRows;
use feedline_readers::value::Value;
use feedline_schemas::{
    commit::BatchCounts,
    record::{ColumnType, join_path},
    report::SourceReport,
};

use super::Landing;
use crate::predict::rejected::time_advice;

/// A file of rows that has landed.
pub(crate) struct LandedFile {
    pub(crate) rows: LandedRows,
    /// Report of its landing. The rejected row in it is the first one, with advice.
    pub(crate) report: SourceReport,
    /// Rows that have not landed.
    pub(crate) rejects: Vec<FileReject>,
}

/// Reason of a row with a value that its column cannot hold.
const TYPE_CONFLICT: &str = "type_conflict";

/// A row of a file that is rejected, and so has not landed.
pub(crate) struct FileReject {
    /// Its number in the file, from 0.
    pub(super) number: u64,
    pub(super) reason: String,
    pub(super) detail: String,
    /// The row, if it could be parsed.
    row: Option<Value>,
    /// Types that the columns have in the file, or otherwise in the landing zone.
    types: Arc<BTreeMap<String, ColumnType>>,
}

impl FileReject {
    /// Its cell in the column `name`, as an accepted row would have it: a text, or an integer or a
    /// boolean of such a column. Others are left out, since the file may have another notation than
    /// the output.
    pub(super) fn cell(&self, name: &str) -> Option<String> {
        let value = self.row.as_ref()?.at(name)?;
        let text = match value {
            Value::Null | Value::Fault(_) => return None,
            Value::Text(text) | Value::Cell(text) | Value::Time(text) => text.clone(),
            other => other.written(),
        };
        let is_kept = match self.types.get(name) {
            // Lists and objects are the cells that are not of the type.
            Some(ColumnType::Utf8) => !matches!(value, Value::List(_) | Value::Object(_)),
            Some(ColumnType::Int64) => is_integer(&text),
            Some(ColumnType::Bool) => ["true", "false"].contains(&text.as_str()),
            // The column has no value in any other row.
            None | Some(ColumnType::Null) => matches!(value, Value::Text(_) | Value::Int(_)),
            Some(_) => false,
        };
        is_kept.then_some(text)
    }
}

/// Returns true for an integer in the notation of the output: without a plus and leading zeros.
fn is_integer(text: &str) -> bool {
    let number = text.parse::<i64>();
    number.is_ok_and(|number| number.to_string() == text)
}

impl LandedFile {
    /// The file of `landing`, which has landed with this `report` and this `log`. Columns of the
    /// dataset's source have the types `landed`.
    pub(crate) async fn read(
        landing: Landing,
        mut report: SourceReport,
        log: Option<Landed>,
        landed: &BTreeMap<String, ColumnType>,
    ) -> anyhow::Result<Self> {
        let file = landing.file.clone();
        let mut rows = landing.landed();
        rows.is_empty = report.rows == 0;
        let mut rejects = Vec::new();
        if let Some(log) = log {
            let found = feedline_ingest::landed_rejects(&rows.root, &rows.source.name, &log);
            let found = Box::pin(found).await;
            let found = found.with_context(|| format!("cannot read `{file}`"))?;
            rows.starts = starts(log.entries.iter().map(|entry| &entry.counts));
            let types = Arc::new(types_of(&log, landed));
            let dates = &rows.source.contract.dates;
            if let Some(first) = found.first() {
                let row = Value::parse(first.raw.as_bytes()).ok();
                let advice = advice_for(first, row.as_ref(), &types, dates);
                report.reject_sample = Some(first.describe() + &advice);
            }
            let read = |reject| file_reject(reject, &rows.starts, &types, dates);
            rejects.extend(found.into_iter().map(read));
        }
        rows.rejected_columns = columns_of(&rejects);
        Ok(Self {
            rows,
            report,
            rejects,
        })
    }
}

/// The rejected row, in a file whose batches begin with the rows `starts` and whose times are read by the
/// formats `dates`.
fn file_reject(
    reject: LandedReject,
    starts: &[u64],
    types: &Arc<BTreeMap<String, ColumnType>>,
    dates: &[String],
) -> FileReject {
    let batch = usize::try_from(reject.sequence).unwrap_or(usize::MAX);
    let row = Value::parse(reject.raw.as_bytes()).ok();
    let advice = advice_for(&reject, row.as_ref(), types, dates);
    FileReject {
        number: starts.get(batch).copied().unwrap_or(0) + reject.row,
        row,
        reason: reject.reason,
        detail: reject.detail + &advice,
        types: Arc::clone(types),
    }
}

/// Advice for a rejected `row` with a text in a column of timestamps, at the end of a message; empty for others.
fn advice_for(
    reject: &LandedReject,
    row: Option<&Value>,
    types: &BTreeMap<String, ColumnType>,
    dates: &[String],
) -> String {
    let is_time = types.get(&reject.column) == Some(&ColumnType::Timestamp);
    let value = row.and_then(|row| row.at(&reject.column));
    let is_text = matches!(value, Some(Value::Text(_) | Value::Cell(_)));
    match reject.reason == TYPE_CONFLICT && is_time && is_text {
        true => time_advice(dates),
        false => String::new(),
    }
}

/// Types of the columns: those of the file's log where it has values, otherwise those of `landed`.
fn types_of(log: &Landed, landed: &BTreeMap<String, ColumnType>) -> BTreeMap<String, ColumnType> {
    let mut types = landed.clone();
    let own = log.schema.columns.iter();
    let own = own.filter(|column| column.r#type != ColumnType::Null);
    types.extend(own.map(|column| (column.name.clone(), column.r#type)));
    types
}

/// Names of the columns of the rejected rows.
fn columns_of(rejects: &[FileReject]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for row in rejects.iter().filter_map(|reject| reject.row.as_ref()) {
        add_columns("", row, &mut names);
    }
    names.into_iter().collect()
}

/// Adds the names of the columns in `value`, which is at `path` of its row.
fn add_columns(path: &str, value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let dot = if path.is_empty() { "" } else { "." };
                let name = format!("{path}{dot}{}", join_path([key.as_str()]));
                add_columns(&name, value, names);
            }
        }
        _ if path.is_empty() => {}
        _ => {
            names.insert(path.to_owned());
        }
    }
}

/// Number in the file of the row that each of the batches begins with.
fn starts<'a>(batches: impl Iterator<Item = &'a BatchCounts>) -> Vec<u64> {
    let mut next = 0;
    let starts = batches.map(|counts| {
        let start = next;
        next += counts.rows + counts.duplicates + counts.rejected;
        start
    });
    starts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reject(raw: &str, types: &[(&str, ColumnType)]) -> FileReject {
        let types = types.iter().map(|(name, own)| ((*name).to_owned(), *own));
        let reject = LandedReject {
            sequence: 1,
            row: 2,
            reason: "type_conflict".to_owned(),
            column: String::new(),
            detail: String::new(),
            raw: raw.to_owned(),
        };
        file_reject(reject, &[0, 10], &Arc::new(types.collect()), &[])
    }

    #[test]
    fn cells_of_a_rejected_row_are_those_of_an_accepted_one_or_empty() {
        let raw = r#"{"id":123456789012345678901234,"version":1.10,"large":1e400,"word":"a","count":7,
            "signed":"+7","float":7,"time":1704931200,"flag":true,"yes":"yes","new":"b","new_count":8,
            "new_float":7.5,"none":null,"user":{"e.mail":"c"}}"#;
        let types = [
            ("id", ColumnType::Utf8),
            ("version", ColumnType::Utf8),
            ("large", ColumnType::Utf8),
            ("word", ColumnType::Utf8),
            ("count", ColumnType::Int64),
            ("signed", ColumnType::Int64),
            ("float", ColumnType::Float64),
            ("time", ColumnType::Timestamp),
            ("flag", ColumnType::Bool),
            ("yes", ColumnType::Bool),
            ("new", ColumnType::Null),
            (r"user.e\.mail", ColumnType::Utf8),
        ];
        let row = reject(raw, &types);
        assert_eq!(row.number, 12);
        for (name, expected) in [
            ("id", Some("123456789012345678901234")),
            ("version", Some("1.10")),
            ("large", Some("1e400")),
            ("word", Some("a")),
            ("count", Some("7")),
            ("signed", None),
            ("float", None),
            ("time", None),
            ("flag", Some("true")),
            ("yes", None),
            ("new", Some("b")),
            ("new_count", Some("8")),
            ("new_float", None),
            ("none", None),
            (r"user.e\.mail", Some("c")),
            ("absent", None),
        ] {
            assert_eq!(row.cell(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_text_in_a_column_of_timestamps_gets_advice_by_the_type_of_the_column() {
        let types = [("at", ColumnType::Timestamp), ("n", ColumnType::Float64)];
        let types = types.map(|(name, own)| (name.to_owned(), own));
        let types = Arc::new(BTreeMap::from(types));
        let detail = |column: &str, reason: &str, raw: &str| {
            let reject = LandedReject {
                sequence: 0,
                row: 0,
                reason: reason.to_owned(),
                column: column.to_owned(),
                detail: "in its own words".to_owned(),
                raw: raw.to_owned(),
            };
            file_reject(reject, &[0], &types, &["%d.%m.%Y".to_owned()]).detail
        };
        let row = r#"{"at":"soon","n":"many"}"#;
        let advised = detail("at", "type_conflict", row);
        let begin = "in its own words; the value fits none of the formats";
        assert!(advised.starts_with(begin), "{advised}");
        for (column, reason, raw) in [
            ("at", "missing_value", row),
            ("n", "type_conflict", row),
            ("", "type_conflict", row),
            ("at", "type_conflict", r#"{"at":7}"#),
            ("at", "type_conflict", "no,json"),
        ] {
            let found = detail(column, reason, raw);
            assert_eq!(found, "in its own words", "{column} {reason} {raw}");
        }
    }

    #[test]
    fn columns_of_rejected_rows_are_named_once_and_with_their_paths() {
        let rows = [
            reject(r#"{"b":1,"user":{"e.mail":"c","age":3}}"#, &[]),
            reject(r#"{"a":[1],"b":2}"#, &[]),
            reject("no,json", &[]),
        ];
        assert_eq!(columns_of(&rows), ["a", "b", "user.age", r"user.e\.mail"]);
    }

    #[test]
    fn each_batch_begins_after_all_rows_of_those_before() {
        let counts = |rows, duplicates, rejected| BatchCounts {
            rows,
            duplicates,
            rejected,
            ..BatchCounts::default()
        };
        let batches = [counts(5, 2, 1), counts(0, 0, 4), counts(3, 0, 0)];
        assert_eq!(starts(batches.iter()), [0, 8, 12]);
    }
}
