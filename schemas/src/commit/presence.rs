//! Columns that had values, and other counts of the landed cells of columns.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_zero;

/// Columns that had values in landed records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Presence {
    /// Landed records that were counted: all of them but those of a log that was begun before this was.
    pub rows: u64,
    /// Those without a value, by column; a column that all of them have is left out.
    pub missing: BTreeMap<String, Missing>,
    /// Columns of integers, and of lists of integers, that have landed an integer beyond 2^53: they never become columns of
    /// floats.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub large_integers: BTreeSet<String>,
    /// Landed cells with a percent sign (`csv.percent`), by column.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub percents: BTreeMap<String, u64>,
    /// Landed numbers without a percent sign, by column, of batches that were read with `csv.percent`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plain_numbers: BTreeMap<String, u64>,
}

impl Presence {
    /// Returns true if nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Counted records without a value in `column`.
    #[must_use]
    pub fn missing(&self, column: &str) -> Missing {
        self.missing.get(column).copied().unwrap_or_default()
    }
}

/// Number of landed records without a value in a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Missing {
    /// Records without the key.
    #[serde(skip_serializing_if = "is_zero")]
    pub absent: u64,
    /// Records in which it is null.
    #[serde(skip_serializing_if = "is_zero")]
    pub null: u64,
}

impl Missing {
    /// Absent and null together.
    #[must_use]
    pub const fn sum(self) -> u64 {
        self.absent + self.null
    }
}
