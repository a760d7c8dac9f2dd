//! Steps of the transform: each module has the keys of a step in a pipeline, and its fitted form in
//! the transform artefact.
//!
//! [`Step`] lists the steps as they are configured, [`FittedStep`] as they are fitted.

mod bin;
mod categories;
mod groups;
mod impute;
mod log1p;
mod min_max;
mod power;
mod robust;
mod standardize;
mod winsorize;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::impute::ImputeKeys;
pub use self::{
    bin::{BinStrategy, Binning, FittedBin},
    categories::{
        Categories, CategoryEncoding, FIRST_KNOWN_ID, FittedCategories, FittedFrequency,
        FittedOutcome, FittedOutcomes, FoldBy, HashBuckets, NULL_ID, TargetEncoding, UNKNOWN_ID,
        UnknownCategories, VocabularyCategories,
    },
    groups::Groups,
    impute::{
        Constant, FittedImpute, FittedNeighbours, Impute, ImputeStatistic, ImputeStrategy, Knn,
        NeighbourWeights,
    },
    log1p::FittedLog1p,
    min_max::{FittedMinMax, MinMax},
    power::{FittedPower, Power, PowerMethod},
    robust::{FittedRobust, Robust},
    standardize::{FittedMoments, FittedScaleGroups, FittedStandardize, Standardize},
    winsorize::{FittedCapGroups, FittedCaps, FittedWinsorize, Winsorize},
};
use crate::config::{
    bounded::Bounded,
    tagged::{self, NoKeys, Tagged, Variant, nested, plain},
};

/// A step of the transform: its columns, and the operation with the keys of its type.
#[derive(Clone, Debug, PartialEq)]
pub struct StepConfig {
    /// Columns it applies to; empty for every feature of the step's kind.
    pub columns: Vec<String>,
    /// The operation.
    pub step: Step,
}

impl StepConfig {
    /// A step on `columns`.
    #[must_use]
    pub const fn new(step: Step, columns: Vec<String>) -> Self {
        Self { columns, step }
    }

    /// Returns true if the step encodes categories; all other steps change numbers.
    #[must_use]
    pub const fn is_categories(&self) -> bool {
        matches!(self.step, Step::Categories(_))
    }

    /// Column of groups with separate caps or scales.
    #[must_use]
    pub const fn by(&self) -> Option<&String> {
        match &self.step {
            Step::Winsorize(Winsorize { groups, .. })
            | Step::Standardize(Standardize { groups }) => match groups {
                Some(groups) => Some(&groups.by),
                None => None,
            },
            _ => None,
        }
    }

    /// Returns true if the step encodes categories by the target.
    #[must_use]
    pub const fn is_of_target(&self) -> bool {
        matches!(self.step, Step::Categories(Categories::Target(_)))
    }
}

/// Keys of every step.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnyStep {
    /// Columns to apply the step to. Default: every numeric feature, or for `categories` every
    /// categorical one. A numeric step reads a listed text column as numbers, and a cell that is
    /// not a number is missing. A warning counts such cells, and the build stops if they are more
    /// than half of the cells that landed with a value. A row with an integer beyond 2^53 is
    /// rejected, as in a column of integers.
    #[serde(default)]
    columns: Vec<String>,
}

/// The operation of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Fill missing numbers.
    Impute(Impute),
    /// Clip to percentiles.
    Winsorize(Winsorize),
    /// Subtract the mean, divide by the deviation.
    Standardize(Standardize),
    /// Scale to 0 to 1.
    MinMax(MinMax),
    /// Subtract the median, divide by the distance of two percentiles, which outliers hardly
    /// affect.
    Robust(Robust),
    /// The natural logarithm of one plus the number, for counts and sums that are never below 0. It
    /// cannot be fitted to a training value of -1 or less. A row of another split, or to predict,
    /// with such a value is rejected as `not_finite`, unless an earlier `winsorize` step caps it.
    Log1p,
    /// Raise to the power that makes the training values most like a normal distribution; a later
    /// `standardize` step gives them mean 0 and deviation 1.
    Power(Power),
    /// Replace by the number of the bin, counted from 0, as a number that later steps may scale.
    /// Missing numbers stay missing, and infinite ones are in the first or the last bin.
    Bin(Binning),
    /// Encode categories.
    Categories(Categories),
}

impl Step {
    /// `type` of the step.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Impute(_) => "impute",
            Self::Winsorize(_) => "winsorize",
            Self::Standardize(_) => "standardize",
            Self::MinMax(_) => "min_max",
            Self::Robust(_) => "robust",
            Self::Log1p => "log1p",
            Self::Power(_) => "power",
            Self::Bin(_) => "bin",
            Self::Categories(_) => "categories",
        }
    }
}

impl Tagged for Step {
    const TAG: &'static str = "type";
    const DOC: &'static str = "Type of the step; its other keys depend on it.";
    const DEFAULT: Option<&'static str> = None;

    fn variants() -> Vec<Variant<Self>> {
        vec![
            nested("impute", |keys: ImputeKeys, strategy| {
                let indicator = keys.indicator;
                Self::Impute(Impute {
                    indicator,
                    strategy,
                })
            }),
            plain("winsorize", Self::Winsorize),
            plain("standardize", Self::Standardize),
            plain("min_max", Self::MinMax),
            plain("robust", Self::Robust),
            plain("log1p", |NoKeys {}| Self::Log1p),
            plain("power", Self::Power),
            plain("bin", Self::Bin),
            nested("categories", |NoKeys {}, encoding| {
                Self::Categories(encoding)
            }),
        ]
    }
}

impl<'de> Deserialize<'de> for StepConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (AnyStep { columns }, step) = tagged::read(deserializer)?;
        Ok(Self { columns, step })
    }
}

impl JsonSchema for StepConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StepConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        tagged::schema::<AnyStep, Step>(generator, "`[[dataset.step]]`.")
    }
}

/// The keys of all steps in the order in which hashes of a dataset's settings hold them.
#[derive(Default, Serialize)]
struct StepKeys<'a> {
    r#type: &'static str,
    columns: &'a [String],
    strategy: Option<&'static str>,
    value: Option<f64>,
    indicator: Option<bool>,
    lower: Option<f64>,
    upper: Option<f64>,
    encoding: Option<&'static str>,
    max_values: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<UnknownCategories>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    smoothing: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clip: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<PowerMethod>,
    #[serde(skip_serializing_if = "Option::is_none")]
    neighbours: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<NeighbourWeights>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_rows: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bins: Option<u32>,
}

impl<'a> StepKeys<'a> {
    fn of(config: &'a StepConfig) -> Self {
        let mut written = Self {
            r#type: config.step.name(),
            columns: &config.columns,
            ..Self::default()
        };
        match &config.step {
            Step::Impute(impute) => {
                written.strategy = Some(impute.strategy.name());
                written.indicator = Some(impute.indicator);
                match impute.strategy {
                    ImputeStrategy::Constant(Constant { value }) => written.value = Some(value),
                    ImputeStrategy::Knn(knn) => {
                        written.neighbours = Some(knn.neighbours.get());
                        written.weights = Some(knn.weights);
                        written.reference_rows = Some(knn.reference_rows.get());
                    }
                    _ => {}
                }
            }
            Step::Winsorize(winsorize) => {
                (written.lower, written.upper) = (Some(winsorize.lower), Some(winsorize.upper));
                written.grouped(winsorize.groups.as_ref());
            }
            Step::Standardize(standardize) => written.grouped(standardize.groups.as_ref()),
            Step::MinMax(min_max) => written.clip = min_max.clip,
            Step::Robust(robust) => {
                (written.lower, written.upper) = (Some(robust.lower), Some(robust.upper));
            }
            Step::Log1p => {}
            Step::Power(power) => written.method = Some(power.method),
            Step::Bin(bin) => {
                written.strategy = Some(bin.strategy.name());
                written.bins = Some(bin.bins.get());
            }
            Step::Categories(categories) => written.encoded(categories),
        }
        written
    }

    fn grouped(&mut self, groups: Option<&'a Groups>) {
        self.by = groups.map(|groups| groups.by.as_str());
        self.min_count = groups.map(|groups| groups.min_count.get());
    }

    fn encoded(&mut self, categories: &Categories) {
        self.encoding = Some(categories.name());
        self.max_values = categories.max_values();
        if let Some(vocabulary) = categories.vocabulary() {
            self.min_count = vocabulary.min_count.map(Bounded::get);
            self.unknown = vocabulary.unknown;
        }
        match categories {
            Categories::Hash(hash) => self.buckets = Some(hash.buckets.get()),
            Categories::Target(target) => {
                self.folds = Some(target.folds.get());
                self.smoothing = Some(target.smoothing.get());
            }
            _ => {}
        }
    }
}

impl Serialize for StepConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        StepKeys::of(self).serialize(serializer)
    }
}

/// One fitted step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
pub enum FittedStep {
    /// Fills missing cells; adds an indicator column `<name>__missing` where asked.
    Impute {
        /// Per column.
        columns: Vec<FittedImpute>,
    },
    /// Clips to caps.
    Winsorize {
        /// Per column.
        columns: Vec<FittedWinsorize>,
    },
    /// `(x - mean) / scale`.
    Standardize {
        /// Per column.
        columns: Vec<FittedStandardize>,
    },
    /// `(x - min) / (max - min)`.
    MinMax {
        /// Per column.
        columns: Vec<FittedMinMax>,
    },
    /// `(x - median) / scale`.
    Robust {
        /// Per column.
        columns: Vec<FittedRobust>,
    },
    /// `ln(1 + x)`; minus infinity from -1 down.
    Log1p {
        /// Per column.
        columns: Vec<FittedLog1p>,
    },
    /// A power transform.
    Power {
        /// Per column.
        columns: Vec<FittedPower>,
    },
    /// The number of the bin, from 0.
    Bin {
        /// Per column.
        columns: Vec<FittedBin>,
    },
    /// Fills missing cells from the nearest of reference rows, all columns at once.
    Knn {
        /// Neighbours whose values make one.
        neighbours: u32,
        /// Weights of the neighbours.
        weights: NeighbourWeights,
        /// Columns that define the distance and are filled.
        columns: Vec<FittedNeighbours>,
    },
    /// Category ids: 0 is unknown, 1 is null, known values follow by falling count, then by bytes.
    Categories {
        /// Per column.
        columns: Vec<FittedCategories>,
    },
}

impl FittedStep {
    /// Removes the counts and figures that only describe the training split.
    pub(crate) fn forget_counts(&mut self) {
        match self {
            Self::Impute { columns } => {
                for column in columns {
                    (column.missing, column.statistic) = (0, ImputeStatistic::Constant);
                }
            }
            Self::Winsorize { columns } => {
                for column in columns {
                    (column.lower, column.upper) = (0.0, 0.0);
                    (column.clipped_low, column.clipped_high) = (0, 0);
                    if let Some(groups) = &mut column.groups {
                        groups.min_count = 0;
                        for caps in groups.caps.values_mut() {
                            (caps.rows, caps.clipped_low, caps.clipped_high) = (0, 0, 0);
                        }
                    }
                }
            }
            Self::Standardize { columns } => {
                for column in columns {
                    column.deviation = 0.0;
                    if let Some(groups) = &mut column.groups {
                        groups.min_count = 0;
                        for moments in groups.moments.values_mut() {
                            (moments.rows, moments.deviation) = (0, 0.0);
                        }
                    }
                }
            }
            Self::Robust { columns } => {
                for column in columns {
                    (column.lower, column.upper, column.low, column.high) = (0.0, 0.0, 0.0, 0.0);
                }
            }
            Self::Bin { columns } => {
                for column in columns {
                    (column.bins, column.strategy) = (0, BinStrategy::default());
                }
            }
            Self::Knn { columns, .. } => columns.iter_mut().for_each(|c| c.missing = 0),
            Self::Categories { columns } => {
                for column in columns {
                    column.min_count = None;
                    if column.encoding != CategoryEncoding::Frequency {
                        column.counts.clear();
                    }
                }
            }
            Self::MinMax { .. } | Self::Log1p { .. } | Self::Power { .. } => {}
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests;
