//! `impute`: fill missing numbers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{
    bounded::Bounded,
    tagged::{Tagged, Variant, bare, plain},
};

/// Keys of every strategy of `impute`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ImputeKeys {
    /// If true, the step adds a column `<name>__missing` of 0 and 1. Default false.
    #[serde(default)]
    pub(super) indicator: bool,
}

/// `impute`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Impute {
    /// If true, a column `<name>__missing` is added.
    pub indicator: bool,
    /// Source of the values.
    pub strategy: ImputeStrategy,
}

/// Replacement for a missing number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ImputeStrategy {
    /// The median of the observed values.
    #[default]
    Median,
    /// The mean of the observed values.
    Mean,
    /// The most frequent value; of several, the smallest.
    MostFrequent,
    /// A given value.
    Constant(Constant),
    /// The mean over the nearest training rows that have the cell.
    Knn(Knn),
}

impl ImputeStrategy {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::Mean => "mean",
            Self::MostFrequent => "most_frequent",
            Self::Constant(_) => "constant",
            Self::Knn(_) => "knn",
        }
    }
}

impl Tagged for ImputeStrategy {
    const TAG: &'static str = "strategy";
    const DOC: &'static str = "Replacement for missing numbers: `median` (default), `mean`, \
                               `most_frequent` (of several, the smallest), `constant` or `knn`: \
                               the mean over the nearest training rows that have the cell. \
                               Distances use the step's columns as they are at that point, so \
                               scale them first: otherwise a column of large numbers dominates.";
    const DEFAULT: Option<&'static str> = Some("median");

    fn variants() -> Vec<Variant<Self>> {
        vec![
            bare("median", Self::Median),
            bare("mean", Self::Mean),
            bare("most_frequent", Self::MostFrequent),
            plain("constant", Self::Constant),
            plain("knn", Self::Knn),
        ]
    }
}

/// Fill missing numbers with a given value.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Value of missing numbers.
    pub value: f64,
}

/// Fill missing numbers with the mean over the nearest training rows that have the cell.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Knn {
    /// Number of neighbours to average, 1 to 1,000. More neighbours give smoother values. Default
    /// 5.
    pub neighbours: Bounded<u32, 1, 1_000>,
    /// Weights of the neighbours: `uniform` (default) or `distance`.
    pub weights: NeighbourWeights,
    /// Number of training rows to search for neighbours, 1 to 100,000, chosen by a hash of their
    /// content if the split has more. The transform artefact stores them, at most 5,000,000 cells.
    /// The time per row grows with their number. Default 10,000.
    pub reference_rows: Bounded<u32, 1, 100_000>,
}

impl Default for Knn {
    fn default() -> Self {
        Self {
            neighbours: Bounded::literal::<5>(),
            weights: NeighbourWeights::default(),
            reference_rows: Bounded::literal::<10_000>(),
        }
    }
}

/// Weight of each neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NeighbourWeights {
    /// All weights are equal.
    #[default]
    Uniform,
    /// The weight is one over the distance. Neighbours at distance 0 count alone.
    Distance,
}

/// Fitted imputation of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedImpute {
    /// Column.
    pub name: String,
    /// Value put in place of a missing numeric cell.
    pub value: f64,
    /// Statistic the value is.
    pub statistic: ImputeStatistic,
    /// Missing cells in the training split.
    pub missing: u64,
    /// True when an indicator column is added.
    pub indicator: bool,
}

/// Statistic of an imputed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImputeStatistic {
    /// Median of the observed values: the mean of the two middle ones when their count is even.
    Median,
    /// Mean of the observed values.
    Mean,
    /// A value from the configuration.
    Constant,
    /// The most frequent observed value; the smallest of several.
    MostFrequent,
}

/// A column of the reference rows that neighbours are looked for among.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedNeighbours {
    /// Column.
    pub name: String,
    /// Mean over the training split, for a row that shares no column with any row that has the cell.
    pub mean: f64,
    /// Missing cells in the training split.
    pub missing: u64,
    /// True when an indicator column is added.
    pub indicator: bool,
    /// Its cells in the reference rows, which all columns have in the same order; null where missing.
    pub reference: Vec<Option<f64>>,
}
