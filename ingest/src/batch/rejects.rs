//! Rejected records, and the columns of their file besides the system ones.

use crate::{contract::Rejection, error::Error};
use feedline_readers::{
    record::Record,
    value::{Value, one_line, shorten},
};

/// Column with the reason code.
pub(crate) const REASON: &str = "reason";
/// Column with the path of the value; empty if the reason concerns the record.
pub(crate) const PATH: &str = "path";
/// Column with the details of the reason.
pub(crate) const DETAIL: &str = "detail";
/// Column with the record.
pub(crate) const RAW: &str = "raw";

/// A rejected record.
#[derive(Clone, Debug)]
pub(crate) struct Reject {
    pub(crate) row: u32,
    pub(crate) reason: &'static str,
    pub(super) path: String,
    pub(super) detail: String,
    pub(super) raw: String,
}

impl Reject {
    pub(super) fn of(row: u32, rejection: Rejection, raw: String) -> Self {
        Self {
            row,
            reason: rejection.reason,
            path: rejection.path,
            detail: rejection.detail,
            raw,
        }
    }

    pub(super) fn new(row: u32, record: Record) -> Self {
        match record {
            Record::Bad {
                raw,
                reason,
                detail,
            } => Self {
                row,
                reason,
                path: String::new(),
                detail,
                raw,
            },
            Record::Json(_) | Record::Value(_) => {
                let value = record.into_value().unwrap_or(Value::Null);
                let detail = format!("record {row} of the batch is {}", value.kind());
                Self {
                    row,
                    reason: "not_an_object",
                    path: String::new(),
                    detail,
                    raw: value.canonical(),
                }
            }
        }
    }

    /// Describes it for messages.
    pub(crate) fn sample(&self) -> String {
        describe(self.reason, &self.detail, &self.raw)
    }
}

/// Describes a rejected record for messages: the reason and the record.
pub(crate) fn describe(reason: &str, detail: &str, raw: &str) -> String {
    format!(
        "`{reason}`: {}: {}",
        one_line(&shorten(detail, 300)),
        one_line(&shorten(raw, 200))
    )
}

/// Error of a run that a rejection stops.
pub(super) fn frozen(source: &str, key: &'static str, rejection: Rejection, record: &str) -> Error {
    Error::Frozen {
        source: source.to_owned(),
        key,
        detail: rejection.detail,
        record: record.to_owned(),
    }
}
