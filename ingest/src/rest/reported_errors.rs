//! Errors that a body reports.

use feedline_readers::{record::Record, value::Value};

/// Keys that APIs report errors with.
pub(super) const ERRORS: [&str; 2] = ["error", "errors"];

/// Key and text of the error that is the only record of a page of lines.
pub(super) fn error_alone(records: &[Record]) -> Option<(String, String)> {
    let [record] = records else { return None };
    let value = record.value()?;
    let Value::Object(fields) = &*value else {
        return None;
    };
    let [(key, error)] = fields.as_slice() else {
        return None;
    };
    let is_error = ERRORS.contains(&key.as_str()) && is_something(error);
    is_error.then(|| (key.clone(), error_text(error)))
}

/// Returns true if a document without an error shows that it is none: by a field at `error_path`, even
/// null or empty. An empty path is the document itself, so that no error is looked for.
pub(super) fn shows_no_error(document: &Value, error_path: Option<&str>) -> bool {
    error_path.is_some_and(|path| document.at(path).is_some())
}

/// Formats an error for messages; it may contain secrets.
pub(super) fn error_text(error: &Value) -> String {
    match error {
        Value::Text(text) => text.clone(),
        other => other.canonical(),
    }
}

/// Returns true if a value reports something: not null, false, zero or empty.
pub(super) fn is_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) => false,
        Value::Text(text) => !text.is_empty(),
        Value::List(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        _ => true,
    }
}
