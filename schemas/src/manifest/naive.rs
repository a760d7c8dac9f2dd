//! Naive forecasts: those that need no model.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::split::Split;

/// A forecast that needs no model, measured on the windows of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NaiveForecast {
    /// Method.
    pub method: NaiveMethod,
    /// Rows from that whose target is the forecast to that of the target.
    pub lag: u32,
    /// Metrics of each split that has a window with such a row before.
    pub splits: BTreeMap<Split, NaiveMetrics>,
}

/// Method of a forecast without a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NaiveMethod {
    /// The newest target that is known when the forecast is made.
    LastValue,
    /// The newest known target that is a multiple of the season earlier
    /// (`dataset.sequence.season`).
    Seasonal,
}

impl NaiveMethod {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LastValue => "last_value",
            Self::Seasonal => "seasonal",
        }
    }
}

/// Errors of a naive forecast, in the units of the target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NaiveMetrics {
    /// Windows with a known value.
    pub windows: u64,
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Mean absolute error.
    pub mae: f64,
    /// Share of the variance about the mean of the same windows that is explained; absent where that is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
}
