//! `power`: raise to the power that makes values most like a normal distribution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Raise to the power that makes the training values most like a normal distribution; a later
/// `standardize` step gives them mean 0 and deviation 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Power {
    /// Family of the transform: `yeo_johnson` (default) or `box_cox`.
    pub method: PowerMethod,
}

/// A family of power transforms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PowerMethod {
    /// For all numbers (I.-K. Yeo, R. Johnson, "A new family of power transformations", Biometrika
    /// 87(4), 2000).
    #[default]
    YeoJohnson,
    /// For numbers above 0 (G. Box, D. Cox, "An analysis of transformations", J. R. Stat. Soc. B
    /// 26(2), 1964). It cannot be fitted to other training values. A row of another split, or to
    /// predict, is rejected as `not_finite` if the power has no finite result for its value. These
    /// are all values below 0, and 0 if the power is 0 or less. An earlier `winsorize` step that
    /// caps the value prevents this.
    BoxCox,
}

/// Fitted power transform of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedPower {
    /// Column.
    pub name: String,
    /// Family.
    pub method: PowerMethod,
    /// The power, of the greatest likelihood among those that keep the values of the column apart; 1 for a constant column.
    pub lambda: f64,
    /// True when the column is constant or nearly so in the training split.
    pub constant: bool,
}
