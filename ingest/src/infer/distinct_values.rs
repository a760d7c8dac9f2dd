//! Count of the distinct values of one column.

use std::collections::HashSet;

use feedline_readers::value::Value;
use feedline_schemas::{ids::Hash128, record::ColumnType};

/// Distinct values of a column after which no further value is compared.
const MAX_DISTINCT: usize = 10_000;

/// Values of a column, and the hashes of the distinct ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct DistinctValues {
    /// Values that are not missing, up to the last one that was compared.
    pub(crate) compared: u64,
    hashes: HashSet<Hash128>,
    /// Type of values that inference leaves to the landing: bytes, lists and objects.
    pub(crate) content_type: Option<ColumnType>,
}

impl DistinctValues {
    /// Count of distinct values among the compared ones.
    pub(crate) fn count(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// Compares a value, unless it is missing.
    pub(super) fn add(&mut self, value: &Value) {
        if self.hashes.len() >= MAX_DISTINCT {
            return;
        }
        let text = match value {
            Value::Null | Value::Fault(_) => return,
            Value::Text(text) | Value::Cell(text) if text.trim().is_empty() => return,
            value => value.canonical(),
        };
        self.content_type = match value {
            Value::Bytes(_) => Some(ColumnType::Binary),
            Value::List(_) | Value::Object(_) => Some(ColumnType::Json),
            _ => self.content_type,
        };
        self.compared += 1;
        self.hashes.insert(Hash128::of(text.as_bytes()));
    }
}
