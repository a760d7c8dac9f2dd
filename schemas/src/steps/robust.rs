//! `robust`: subtract the median, divide by the distance of two percentiles.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::winsorize::check_percentiles;
use crate::config::{bounded::Fraction, tagged::KeyError};

/// Subtract the median, divide by the distance of two percentiles, which outliers hardly affect.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(try_from = "RobustKeys")]
#[schemars(with = "RobustKeys")]
pub struct Robust {
    /// Lower end of the spread, from 0 and less than `upper`.
    pub lower: f64,
    /// Upper end of the spread, up to 1.
    pub upper: f64,
}

impl Default for Robust {
    fn default() -> Self {
        let (lower, upper) = (0.25, 0.75);
        Self { lower, upper }
    }
}

/// Keys of `robust`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RobustKeys {
    /// Lower end of the spread, a percentile from 0 to 1. Default 0.25.
    lower: Option<Fraction>,
    /// Upper end of the spread, a percentile from 0 to 1. Default 0.75.
    upper: Option<Fraction>,
}

impl TryFrom<RobustKeys> for Robust {
    type Error = KeyError;

    fn try_from(keys: RobustKeys) -> Result<Self, KeyError> {
        let plain = Self::default();
        let lower = keys.lower.map_or(plain.lower, Fraction::get);
        let upper = keys.upper.map_or(plain.upper, Fraction::get);
        check_percentiles(lower, upper)?;
        Ok(Self { lower, upper })
    }
}

/// Fitted centre and spread of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedRobust {
    /// Column.
    pub name: String,
    /// Lower percentile, 0 to 1.
    pub lower: f64,
    /// Upper percentile, 0 to 1.
    pub upper: f64,
    /// Median of the training values.
    pub median: f64,
    /// Their lower percentile, interpolated linearly.
    pub low: f64,
    /// Their upper percentile.
    pub high: f64,
    /// Divisor: `high - low`, or 1 where the two are equal or nearly so.
    pub scale: f64,
    /// True when they are equal or nearly so.
    pub constant: bool,
}
