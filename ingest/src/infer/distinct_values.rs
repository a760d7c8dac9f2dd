//! Count of the distinct values of one column.

use std::collections::{BTreeMap, HashSet};

use feedline_readers::value::Value;
use feedline_schemas::{ids::Hash128, record::ColumnType};

/// Distinct values of a column after which no further value is compared.
const MAX_DISTINCT: usize = 10_000;
/// Most distinct values that are counted one by one, and most bytes of one of them.
const MAX_COUNTED: usize = 64;
const MAX_COUNTED_BYTES: usize = 200;

/// Values of a column, and the hashes of the distinct ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct DistinctValues {
    /// Values that are not missing, up to the last one that was compared.
    pub(crate) compared: u64,
    hashes: HashSet<Hash128>,
    /// Number of records with each value, while these are few.
    counts: BTreeMap<String, u64>,
    /// True if there are too many values to count each, or a long one.
    has_many: bool,
    /// Type of values that inference leaves to the landing: bytes, lists and objects.
    pub(crate) content_type: Option<ColumnType>,
}

impl DistinctValues {
    /// Count of distinct values among the compared ones.
    pub(crate) fn count(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// Number of records with each value, as text without spaces around it; none for many values.
    pub(crate) fn counts(&self) -> Option<&BTreeMap<String, u64>> {
        (!self.has_many).then_some(&self.counts)
    }

    /// Counts a value that is not missing, while the distinct ones are few.
    pub(super) fn count_value(&mut self, value: &Value) {
        if self.has_many {
            return;
        }
        let text = match value {
            Value::Null | Value::Fault(_) => return,
            Value::Text(text) | Value::Cell(text) if text.trim().is_empty() => return,
            Value::Text(text) | Value::Cell(text) => text.trim().to_owned(),
            value => value.canonical(),
        };
        let is_known = self.counts.contains_key(&text);
        if text.len() > MAX_COUNTED_BYTES || (!is_known && self.counts.len() >= MAX_COUNTED) {
            self.has_many = true;
            self.counts = BTreeMap::new();
            return;
        }
        *self.counts.entry(text).or_default() += 1;
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
