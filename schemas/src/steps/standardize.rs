//! `standardize`: subtract the mean, divide by the deviation.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Groups;
use crate::config::{bounded::Bounded, tagged::KeyError};

/// Subtract the mean, divide by the deviation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(try_from = "StandardizeKeys")]
#[schemars(with = "StandardizeKeys")]
pub struct Standardize {
    /// Groups with a separate mean and deviation.
    pub groups: Option<Groups>,
}

/// Keys of `standardize`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StandardizeKeys {
    /// Categorical column, such as a station, whose values have a separate mean and deviation each;
    /// at most 10,000 values. It must be a feature. Use it where groups differ in level or spread.
    /// Values that the training split lacks, or has few rows of, use the mean and deviation of all
    /// rows, as do missing ones. Default: all rows are one group.
    by: Option<String>,
    /// With `by`: fewest finite training values of a group with a separate mean and deviation;
    /// smaller groups use those of all rows. Default 30.
    min_count: Option<Bounded<u64, 1, { u64::MAX }>>,
}

impl TryFrom<StandardizeKeys> for Standardize {
    type Error = KeyError;

    fn try_from(keys: StandardizeKeys) -> Result<Self, KeyError> {
        let groups = Groups::read(keys.by, keys.min_count)?;
        Ok(Self { groups })
    }
}

/// Fitted standardization of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedStandardize {
    /// Column.
    pub name: String,
    /// Mean of the training values.
    pub mean: f64,
    /// Standard deviation (dividing by n).
    pub deviation: f64,
    /// Divisor: `deviation`, or 1 for a constant column.
    pub scale: f64,
    /// True when the column is constant or nearly so in the training split.
    pub constant: bool,
    /// Numbers of groups, where they have some of their own. Those above are of all training rows and hold for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<FittedScaleGroups>,
}

/// Standardization of a column by group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedScaleGroups {
    /// Column whose values are the groups.
    pub by: String,
    /// Fewest finite training values of a group with numbers of its own.
    pub min_count: u64,
    /// Per group.
    pub moments: BTreeMap<String, FittedMoments>,
}

/// Mean and deviation of a column in one group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedMoments {
    /// Finite training values.
    pub rows: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (dividing by n).
    pub deviation: f64,
    /// Divisor: `deviation`, or 1 for a constant group.
    pub scale: f64,
    /// True when the group is constant or nearly so.
    pub constant: bool,
}
