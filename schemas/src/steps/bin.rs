//! `bin`: replace numbers by the number of their bin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::bounded::Bounded;

/// Replace numbers by the number of their bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Binning {
    /// Number of bins, 2 to 100. A number is replaced by the number of its bin, from 0, which later
    /// steps may scale. A number equal to a boundary is in the bin above it. Numbers outside of the
    /// training range, and infinite ones, are in the first or the last bin. Missing ones stay
    /// missing. More bins keep more of the differences between numbers. Default 10.
    pub bins: Bounded<u32, 2, 100>,
    /// Boundaries of the bins: `quantile` (default) or `uniform`.
    pub strategy: BinStrategy,
}

impl Default for Binning {
    fn default() -> Self {
        Self {
            bins: Bounded::literal::<10>(),
            strategy: BinStrategy::default(),
        }
    }
}

/// Boundaries of bins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BinStrategy {
    /// Quantiles of the training values, so that bins have about the same number of rows. Equal
    /// boundaries are merged, with a warning: a frequent value leaves fewer bins.
    #[default]
    Quantile,
    /// Bins of the same width between the smallest and the largest training value. An outlier
    /// leaves most rows in few bins, unless an earlier `winsorize` step caps it.
    Uniform,
}

impl BinStrategy {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Quantile => "quantile",
            Self::Uniform => "uniform",
        }
    }
}

/// Fitted bins of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedBin {
    /// Column.
    pub name: String,
    /// Strategy of the boundaries.
    pub strategy: BinStrategy,
    /// Configured number of bins; there are fewer where boundaries were equal.
    pub bins: u32,
    /// Boundaries in ascending order, each once: the smallest training value, the boundaries between
    /// bins, and the largest training value; one for a constant column. A value equal to a boundary
    /// is in the bin above it, or in the last bin. Values outside are in the first or the last bin.
    pub boundaries: Vec<f64>,
}
