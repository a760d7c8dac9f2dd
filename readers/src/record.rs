//! A record of a source.

use std::borrow::Cow;

use crate::{json::JsonRecord, value::Value};

/// A record of a source, or the flaw in its place.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A record.
    Value(Value),
    /// A record of a document of JSON without faults.
    Json(JsonRecord),
    /// Data that is no record; it goes to `rejects/` unchanged.
    Bad {
        /// The unchanged data.
        raw: String,
        /// One of a few fixed words, counted in the log, such as `malformed_line`.
        reason: &'static str,
        /// Place and details, such as `line 7: 3 fields, the header has 5`.
        detail: String,
    },
}

impl Record {
    /// Approximate size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Value(value) => value.size(),
            Self::Json(record) => record.size(),
            Self::Bad { raw, detail, .. } => (raw.len() + detail.len()) as u64,
        }
    }

    /// The record as a tree; none of a bad one.
    pub fn value(&self) -> Option<Cow<'_, Value>> {
        match self {
            Self::Value(value) => Some(Cow::Borrowed(value)),
            Self::Json(record) => Some(Cow::Owned(record.value())),
            Self::Bad { .. } => None,
        }
    }

    /// Canonical form of the record; that of null for a bad one.
    pub fn canonical(&self) -> String {
        self.value()
            .map_or_else(|| Value::Null.canonical(), |value| value.canonical())
    }

    /// The record as a tree; none of a bad one.
    pub fn into_value(self) -> Option<Value> {
        match self {
            Self::Value(value) => Some(value),
            Self::Json(record) => Some(record.value()),
            Self::Bad { .. } => None,
        }
    }

    /// Creates a record if `value` is an object, otherwise a bad one at `place` (such as `line 7`).
    pub fn of(value: Value, place: impl FnOnce() -> String) -> Self {
        match value {
            Value::Object(_) => Self::Value(value),
            other => Self::Bad {
                raw: other.written(),
                reason: "not_an_object",
                detail: format!("{}: {} where an object should be", place(), other.kind()),
            },
        }
    }
}
