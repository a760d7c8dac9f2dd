//! `winsorize`: clip to percentiles.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Groups;
use crate::config::{
    bounded::{Bounded, Fraction},
    tagged::KeyError,
};

/// Clip to percentiles.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(try_from = "WinsorizeKeys")]
#[schemars(with = "WinsorizeKeys")]
pub struct Winsorize {
    /// Lower percentile, from 0 and less than `upper`.
    pub lower: f64,
    /// Upper percentile, up to 1.
    pub upper: f64,
    /// Groups with separate caps.
    pub groups: Option<Groups>,
}

impl Default for Winsorize {
    fn default() -> Self {
        Self {
            lower: 0.01,
            upper: 0.99,
            groups: None,
        }
    }
}

/// Keys of `winsorize`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WinsorizeKeys {
    /// Lower percentile, 0 to 1. Default 0.01.
    lower: Option<Fraction>,
    /// Upper percentile, 0 to 1. Default 0.99.
    upper: Option<Fraction>,
    /// Categorical column, such as a station, whose values have separate caps; at most 10,000
    /// values. It must be a feature. Use it where groups differ in level or spread, so that a usual
    /// value of one group is an outlier in another. Values that the training split lacks, or has
    /// few rows of, use the caps of all rows, as do missing ones. Default: all rows are one group.
    by: Option<String>,
    /// With `by`: fewest finite training values of a group with separate caps; smaller groups use
    /// those of all rows. Default 30.
    min_count: Option<Bounded<u64, 1, { u64::MAX }>>,
}

impl TryFrom<WinsorizeKeys> for Winsorize {
    type Error = KeyError;

    fn try_from(keys: WinsorizeKeys) -> Result<Self, KeyError> {
        let plain = Self::default();
        let lower = keys.lower.map_or(plain.lower, Fraction::get);
        let upper = keys.upper.map_or(plain.upper, Fraction::get);
        check_percentiles(lower, upper)?;
        let groups = Groups::read(keys.by, keys.min_count)?;
        Ok(Self {
            lower,
            upper,
            groups,
        })
    }
}

pub(super) fn check_percentiles(lower: f64, upper: f64) -> Result<(), KeyError> {
    if lower < upper {
        return Ok(());
    }
    let reason = format!("must be less than `upper`, got {lower} with `upper` {upper}");
    Err(KeyError::new("lower", reason))
}

/// Fitted caps of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedWinsorize {
    /// Column.
    pub name: String,
    /// Lower percentile, 0 to 1.
    pub lower: f64,
    /// Upper percentile, 0 to 1.
    pub upper: f64,
    /// Lower cap: smaller values become it. Percentiles are interpolated linearly (numpy's default).
    pub low: f64,
    /// Upper cap.
    pub high: f64,
    /// Training values below the lower cap; with groups, those in rows that no group has caps for.
    pub clipped_low: u64,
    /// Training values above the upper cap, in the same rows.
    pub clipped_high: u64,
    /// Caps of groups, where they have some of their own. Those above are of all training rows and hold for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<FittedCapGroups>,
}

/// Caps of a column by group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedCapGroups {
    /// Column whose values are the groups.
    pub by: String,
    /// Fewest finite training values of a group with caps of its own.
    pub min_count: u64,
    /// Per group.
    pub caps: BTreeMap<String, FittedCaps>,
}

/// Caps of a column in one group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedCaps {
    /// Finite training values.
    pub rows: u64,
    /// Lower cap.
    pub low: f64,
    /// Upper cap.
    pub high: f64,
    /// Training values below the lower cap.
    pub clipped_low: u64,
    /// Training values above the upper cap.
    pub clipped_high: u64,
}
