//! `[[dataset.step]]`.

mod categories;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::categories::{
    Categories, HashBuckets, TargetEncoding, UnknownCategories, VocabularyCategories,
};
use super::{
    bounded::{Bounded, Fraction},
    tagged::{self, KeyError, NoKeys, Tagged, Variant, bare, nested, plain},
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
            nested("categories", |NoKeys {}, encoding| {
                Self::Categories(encoding)
            }),
        ]
    }
}

/// Keys of every strategy of `impute`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ImputeKeys {
    /// If true, the step adds a column `<name>__missing` of 0 and 1. Default false.
    #[serde(default)]
    indicator: bool,
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
    const fn name(&self) -> &'static str {
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

/// Groups by a categorical column, each with separate statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The column.
    pub by: String,
    /// Fewest finite training values of a group with separate statistics.
    pub min_count: Bounded<u64, 1, { u64::MAX }>,
}

impl Groups {
    /// Groups of `by` with the default of `min_count`.
    #[must_use]
    pub fn new(by: String) -> Self {
        let min_count = Bounded::literal::<30>();
        Self { by, min_count }
    }

    fn read(
        by: Option<String>,
        min_count: Option<Bounded<u64, 1, { u64::MAX }>>,
    ) -> Result<Option<Self>, KeyError> {
        match (by, min_count) {
            (Some(by), min_count) => {
                let plain = Self::new(by);
                let min_count = min_count.unwrap_or(plain.min_count);
                Ok(Some(Self { min_count, ..plain }))
            }
            (None, Some(_)) => {
                let reason = "this key counts the values of a group: name the column of groups with `by`, or remove it";
                Err(KeyError::new("min_count", reason))
            }
            (None, None) => Ok(None),
        }
    }
}

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

fn check_percentiles(lower: f64, upper: f64) -> Result<(), KeyError> {
    if lower < upper {
        return Ok(());
    }
    let reason = format!("must be less than `upper`, got {lower} with `upper` {upper}");
    Err(KeyError::new("lower", reason))
}

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

/// Scale to 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MinMax {
    /// If true, a value outside of the training range becomes 0 or 1. Default false: it is scaled
    /// to a number outside of 0 to 1.
    pub clip: Option<bool>,
}

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
struct Written<'a> {
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
}

impl<'a> Written<'a> {
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
        Written::of(self).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<StepConfig, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_step_is_written_with_the_keys_and_the_order_that_hashes_hold() {
        for (text, expected) in [
            (
                r#"{"type":"impute"}"#,
                r#"{"type":"impute","columns":[],"strategy":"median","value":null,"indicator":false,"lower":null,"upper":null,"encoding":null,"max_values":null}"#,
            ),
            (
                r#"{"type":"impute","columns":["a"],"strategy":"knn","weights":"distance"}"#,
                r#"{"type":"impute","columns":["a"],"strategy":"knn","value":null,"indicator":false,"lower":null,"upper":null,"encoding":null,"max_values":null,"neighbours":5,"weights":"distance","reference_rows":10000}"#,
            ),
            (
                r#"{"type":"standardize","by":"g"}"#,
                r#"{"type":"standardize","columns":[],"strategy":null,"value":null,"indicator":null,"lower":null,"upper":null,"encoding":null,"max_values":null,"min_count":30,"by":"g"}"#,
            ),
            (
                r#"{"type":"winsorize","upper":1}"#,
                r#"{"type":"winsorize","columns":[],"strategy":null,"value":null,"indicator":null,"lower":0.01,"upper":1.0,"encoding":null,"max_values":null}"#,
            ),
            (
                r#"{"type":"categories","encoding":"target"}"#,
                r#"{"type":"categories","columns":[],"strategy":null,"value":null,"indicator":null,"lower":null,"upper":null,"encoding":"target","max_values":10000,"folds":5,"smoothing":10.0}"#,
            ),
            (
                r#"{"type":"categories","encoding":"hash"}"#,
                r#"{"type":"categories","columns":[],"strategy":null,"value":null,"indicator":null,"lower":null,"upper":null,"encoding":"hash","max_values":null,"buckets":64}"#,
            ),
            (
                r#"{"type":"log1p"}"#,
                r#"{"type":"log1p","columns":[],"strategy":null,"value":null,"indicator":null,"lower":null,"upper":null,"encoding":null,"max_values":null}"#,
            ),
        ] {
            let step = read(text).unwrap();
            let written = serde_json::to_string(&step).unwrap();
            assert_eq!(written, expected);
            let again = read(&written).unwrap();
            assert_eq!(serde_json::to_string(&again).unwrap(), expected);
        }
    }

    #[test]
    fn a_key_of_another_type_is_refused_with_its_owner_and_the_keys_that_fit() {
        for (text, expected) in [
            (
                r#"{"type":"min_max","lower":0.1}"#,
                "at `lower`: this key belongs to `type = \"winsorize\"` and `type = \"robust\"`; `type = \"min_max\"` has the \
                 keys `type`, `columns`, `clip`",
            ),
            (
                r#"{"type":"impute","neighbours":3}"#,
                "at `neighbours`: this key belongs to `strategy = \"knn\"`; `strategy = \"median\"` has the keys `strategy`, \
                 `indicator`",
            ),
            (
                r#"{"type":"impute","strategy":"constant"}"#,
                "at `value`: `strategy = \"constant\"` needs this key, add it",
            ),
            (
                r#"{"type":"categories","encoding":"hash","max_values":3}"#,
                "at `max_values`: this key belongs to `encoding = \"one_hot\"`, `encoding = \"ordinal\"`, `encoding = \
                 \"frequency\"` and `encoding = \"target\"`; `encoding = \"hash\"` has the keys `encoding`, `buckets`",
            ),
            (
                r#"{"type":"standardize","min_count":3}"#,
                "at `min_count`: this key counts the values of a group: name the column of groups with `by`, or remove it",
            ),
            (
                r#"{"type":"winsorize","lower":0.9,"upper":0.1}"#,
                "at `lower`: must be less than `upper`, got 0.9 with `upper` 0.1",
            ),
            (
                r#"{"type":"winsorize","lower":-0.5}"#,
                "at `lower`: must be 0 to 1, got -0.5",
            ),
            (
                r#"{"type":"scale"}"#,
                "at `type`: unknown variant `scale`, expected one of `impute`, `winsorize`, `standardize`, `min_max`, \
                 `robust`, `log1p`, `power`, `categories`",
            ),
            (r#"{"columns":[]}"#, "missing field `type`"),
            (
                r#"{"type":"power","methd":"box_cox"}"#,
                "unknown field `methd`, expected one of `type`, `columns`, `method`",
            ),
        ] {
            assert_eq!(
                read(text).unwrap_err().split(" at line").next(),
                Some(expected),
                "{text}"
            );
        }
    }
}
