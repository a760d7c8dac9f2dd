//! Detects records in an order that a request can filter by.

use jiff::civil::Date;

use super::line::Line;
use feedline_readers::{calendar_time::parse_nanos, value::Value};

/// Usual names of an id.
pub(super) const KEYS: [&str; 5] = ["id", "ID", "Id", "_id", "key"];
const TIMES: [&str; 15] = [
    "updated_at",
    "updatedAt",
    "updated",
    "modified_at",
    "modified",
    "last_modified",
    "created_at",
    "createdAt",
    "created",
    "timestamp",
    "time",
    "date",
    "datetime",
    "ts",
    "published_at",
];

/// Suggests a keyset for records in ascending order of an id, or of a time with an id beside it.
pub(super) fn keyset(list: &[Value]) -> Option<(Line, String)> {
    let key = KEYS
        .into_iter()
        .find(|key| list.iter().all(|record| is_key(record, key)))?;
    let ids: Option<Vec<i128>> = list.iter().map(|record| of(record, key, false)).collect();
    let last = |by: &str| match list.last()?.at(by)? {
        Value::Text(text) => Some(text.clone()),
        other => Some(other.canonical()),
    };
    let line = |by: &str, param: &str| {
        let line = Line::new("keyset")
            .with("time_path", by)
            .with("time_param", param)
            .with("key_path", key)
            .with_number("page_size", list.len() as u64);
        Line {
            unnumbered: Some("page".to_owned()),
            after_last: last(by).map(|last| (param.to_owned(), last)),
            ..line
        }
    };
    let reason = |by: &str, param: &str| {
        format!(
            "its records come in ascending order of `{by}`, and {} are as many as a page may hold; {}, and so is that it can be asked by it",
            list.len(),
            super::guessed("time_param", param)
        )
    };
    if ids.is_some_and(|ids| ids.is_sorted_by(|a, b| a < b)) {
        let mut line = line(key, "since");
        // An id belongs to one record only.
        line.text += ", exclusive = true";
        return Some((line, reason(key, "since")));
    }
    let is_ascending = |time: &&str| {
        let times: Option<Vec<i128>> = list.iter().map(|record| of(record, time, true)).collect();
        times.is_some_and(|times| times.is_sorted() && times.first() < times.last())
    };
    let time = TIMES.iter().find(|time| is_ascending(time))?;
    Some((line(time, "since"), reason(time, "since")))
}

fn is_key(record: &Value, key: &str) -> bool {
    matches!(record.at(key), Some(Value::Int(_) | Value::Text(_)))
}

/// Returns the integer at `key`, or the time as a number.
fn of(record: &Value, key: &str, is_time: bool) -> Option<i128> {
    match record.at(key)? {
        Value::Int(number) => Some((*number).into()),
        Value::Text(text) if is_time => {
            let day = |date: Date| {
                i128::from(date.year()) * 10_000
                    + i128::from(date.month()) * 100
                    + i128::from(date.day())
            };
            parse_nanos(text).or_else(|| text.parse::<Date>().map(day).ok())
        }
        _ => None,
    }
}
