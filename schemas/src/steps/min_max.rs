//! `min_max`: scale to 0 to 1.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_false;

/// Scale to 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MinMax {
    /// If true, a value outside of the training range becomes 0 or 1. Default false: it is scaled
    /// to a number outside of 0 to 1.
    pub clip: Option<bool>,
}

/// Fitted range of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedMinMax {
    /// Column.
    pub name: String,
    /// Smallest training value.
    pub min: f64,
    /// Largest training value; a constant column becomes 0.
    pub max: f64,
    /// Values outside become 0 or 1.
    #[serde(default, skip_serializing_if = "is_false")]
    pub clip: bool,
}
