//! `log1p`: the natural logarithm of one plus the number.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A column that becomes its logarithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedLog1p {
    /// Column.
    pub name: String,
}
