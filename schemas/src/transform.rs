//! Transform artefact, `transform.json`: every fitted number, and nothing else, needed to turn a raw row into features.
//!
//! Steps are applied in order to the columns they name. Applying is a pure function of the artefact and the row, the
//! same in the batch build, the loader and prediction. `hash` is the xxh3-128 of the document with `hash` set to zero.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::{NeighbourWeights, PowerMethod, StoredImageConfig},
    format::{TRANSFORM, versioned},
    ids::{Hash128, Name},
};

/// The artefact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransformArtefact {
    /// `feedline.transform`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// Hash of the document with this field zero.
    pub hash: Hash128,
    /// Rows of the training split the numbers were fitted on.
    pub fitted_rows: u64,
    /// Text values read as missing, compared after trimming spaces.
    pub null_values: Vec<String>,
    /// Numbers read as missing (such as `-200`).
    pub missing_values: Vec<f64>,
    /// Input columns in order.
    pub inputs: Vec<InputColumn>,
    /// Fitted steps in the order they are applied.
    pub steps: Vec<FittedStep>,
    /// Feature vector: name and origin of each element of `x`, in order.
    pub features: Vec<Feature>,
    /// Target, when the dataset has one.
    pub target: Option<FittedTarget>,
    /// The further targets, all numbers, where the dataset has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_targets: Vec<FittedTarget>,
    /// Ids of characters, when the dataset holds texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub characters: Option<FittedCharacters>,
    /// Preparation of images, when the dataset decodes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<FittedImages>,
    /// The tokenizer, when the dataset holds tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<FittedTokens>,
    /// Number format of strings that are read as numbers, where one was declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signs: Option<NumberSigns>,
}
versioned!(TransformArtefact, TRANSFORM);

impl TransformArtefact {
    /// The artefact with the preparation of images, under its new hash.
    #[must_use]
    pub fn with_images(self, images: FittedImages) -> Self {
        let mut with = Self {
            images: Some(images),
            ..self
        };
        with.hash = with.compute_hash();
        with
    }

    /// Returns the artefact without its hash and without the counts and figures that only describe the training split. Of a target that is a class it has the names, sorted. Two artefacts whose forms are equal make the
    /// same features of every row.
    #[must_use]
    pub fn applied(&self) -> Self {
        let mut applied = Self {
            hash: Hash128::new(0),
            fitted_rows: 0,
            ..self.clone()
        };
        applied.steps.iter_mut().for_each(forget_counts);
        for target in applied.target.iter_mut().chain(&mut applied.other_targets) {
            match target {
                FittedTarget::Regression { mean, .. } => *mean = 0.0,
                FittedTarget::Classification {
                    classes, counts, ..
                } => {
                    classes.sort_unstable();
                    counts.clear();
                }
            }
        }
        if let Some(characters) = &mut applied.characters {
            characters.counts.clear();
        }
        if let Some(images) = &mut applied.images {
            (images.pixels, images.mean, images.deviation) = (0, [0.0; 3], [0.0; 3]);
        }
        if let Some(tokens) = &mut applied.tokens {
            tokens.learnt_bytes = None;
        }
        applied
    }

    /// All targets, in the order of a model's outputs.
    pub fn targets(&self) -> impl Iterator<Item = &FittedTarget> + Clone {
        self.target.iter().chain(&self.other_targets)
    }

    /// Returns whether column `name` is a target.
    #[must_use]
    pub fn is_target(&self, name: &str) -> bool {
        self.targets().any(|target| target.column() == name)
    }

    /// Names of the targets where there are several, in the order of a model's outputs; otherwise none.
    #[must_use]
    pub fn target_names(&self) -> Vec<String> {
        match self.other_targets.is_empty() {
            true => Vec::new(),
            false => self
                .targets()
                .map(|target| target.column().to_owned())
                .collect(),
        }
    }

    /// Computes the hash this artefact should carry.
    #[must_use]
    pub fn compute_hash(&self) -> Hash128 {
        let zeroed = Self {
            hash: Hash128::new(0),
            ..self.clone()
        };
        Hash128::of(&crate::encode(&zeroed))
    }
}

/// Removes from a step what it does not apply.
fn forget_counts(step: &mut FittedStep) {
    match step {
        FittedStep::Impute { columns } => {
            for column in columns {
                (column.missing, column.statistic) = (0, ImputeStatistic::Constant);
            }
        }
        FittedStep::Winsorize { columns } => {
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
        FittedStep::Standardize { columns } => {
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
        FittedStep::Robust { columns } => {
            for column in columns {
                (column.lower, column.upper, column.low, column.high) = (0.0, 0.0, 0.0, 0.0);
            }
        }
        FittedStep::Knn { columns, .. } => columns.iter_mut().for_each(|c| c.missing = 0),
        FittedStep::Categories { columns } => {
            for column in columns {
                column.min_count = None;
                if column.encoding != CategoryEncoding::Frequency {
                    column.counts.clear();
                }
            }
        }
        FittedStep::MinMax { .. } | FittedStep::Log1p { .. } | FittedStep::Power { .. } => {}
    }
}

/// Number format of strings that are read as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NumberSigns {
    /// Decimal sign.
    pub decimal: char,
    /// Separator allowed between groups of three digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thousands: Option<char>,
}

/// Preparation of the images of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedImages {
    /// Column they come from.
    pub column: String,
    /// Transforms of each image, the filter included.
    pub prepared: StoredImageConfig,
    /// Pixels of the training split.
    pub pixels: u64,
    /// Mean of their red, green and blue, as stored but before they were encoded, in units of the full range (0 to 1).
    pub mean: [f64; 3],
    /// Standard deviation of all of them, in the same units.
    pub deviation: [f64; 3],
}

/// A raw column the transform reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputColumn {
    /// Column name.
    pub name: String,
    /// Way of reading it.
    pub kind: InputKind,
}

/// Way of reading a raw column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// As a 64-bit float; text is parsed.
    Numeric,
    /// As text.
    Categorical,
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

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
const fn is_false(value: &bool) -> bool {
    !*value
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

/// A column that becomes its logarithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedLog1p {
    /// Column.
    pub name: String,
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

/// Fitted categories of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedCategories {
    /// Column.
    pub name: String,
    /// Known values; the first has id 2. None for `hash`.
    pub values: Vec<String>,
    /// Training rows of each known value.
    pub counts: Vec<u64>,
    /// Encoding of the id in the feature vector.
    pub encoding: CategoryEncoding,
    /// Fewest training rows of a known value, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_count: Option<u64>,
    /// True when a row with another value is rejected. Then every training value is known.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rejects_unknown: bool,
    /// `hash`: ids that values share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<u32>,
    /// `frequency`: what shares are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency: Option<FittedFrequency>,
    /// `target`: what the target is like in the rows of each value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcomes: Option<FittedOutcomes>,
}

impl FittedCategories {
    /// Categories of these values, which have `counts` training rows each, and of nothing else.
    #[must_use]
    pub const fn new(
        name: String,
        values: Vec<String>,
        counts: Vec<u64>,
        encoding: CategoryEncoding,
    ) -> Self {
        Self {
            name,
            values,
            counts,
            encoding,
            min_count: None,
            rejects_unknown: false,
            buckets: None,
            frequency: None,
            outcomes: None,
        }
    }
}

/// Mean target in the rows of each value of a category. With `n` rows of a value, the sum `s` of
/// their targets and the mean `p` over all rows it is `(s + smoothing * p) / (n + smoothing)`, and
/// where the target is stored standardized, that less the mean, divided by the deviation of the
/// same rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedOutcomes {
    /// Parts of the training split. A row's is `xxh3-64("feedline.fold" | 0 as u64 | hash) * folds / 2^64`, with the hash that
    /// `fold_by` names.
    pub folds: u32,
    /// Rows that share a fold. Absent: those of equal content.
    #[serde(default, skip_serializing_if = "FoldBy::is_content")]
    pub fold_by: FoldBy,
    /// Rows of the mean that are added to those of each value.
    pub smoothing: f64,
    /// One for a number to predict; one per class, by bytes, without the first where there are two.
    pub elements: Vec<FittedOutcome>,
}

/// Rows of the training split that are in one fold, so that none gets a number made of the targets of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FoldBy {
    /// Rows of equal content, by their content hash.
    #[default]
    Content,
    /// Rows of one group of the split, by the hash of `dataset.split.key` or of their cluster of near-duplicates.
    Group,
}

impl FoldBy {
    /// Returns whether rows of equal content share a fold, and no others.
    #[must_use]
    pub const fn is_content(&self) -> bool {
        matches!(self, Self::Content)
    }
}

/// One element of a category that became what the target is like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedOutcome {
    /// The class whose share it is; absent for a number to predict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// By id, what rows outside of the training split get: from all training rows. Unknown values get the mean.
    pub all: Vec<f64>,
    /// Per fold, by id, what its rows get: from the training rows of all other folds.
    pub others: Vec<Vec<f64>>,
}

/// Rows that the shares of categories are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedFrequency {
    /// Rows of the training split, above 0.
    pub rows: u64,
    /// Those of them whose cell is missing.
    pub missing: u64,
}

/// Reserved id of a category not seen in the training split.
pub const UNKNOWN_ID: u32 = 0;
/// Reserved id of a missing category.
pub const NULL_ID: u32 = 1;
/// Id of the first known category.
pub const FIRST_KNOWN_ID: u32 = 2;

/// Encoding of a category id in the feature vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CategoryEncoding {
    /// One element per id, the reserved ones included.
    #[default]
    OneHot,
    /// One element: the id as a number.
    Ordinal,
    /// One element: the share of the training rows that have the value, missing counted as a value. 0 where unknown.
    Frequency,
    /// One element per id; a value's id is 2 + xxh3-64 (seed 0) of its text after Unicode's NFC, modulo `buckets`. Nothing
    /// is fitted, so no value is unknown: id 0 is reserved and never used, id 1 is null.
    Hash,
    /// One element: the mean target of the training rows that have the value, drawn to the mean of
    /// all by `smoothing`; for classes the share of each, an element per class, or one of two.
    /// Training rows get it from the other `folds`, so that no row sees its own target; all other
    /// rows from all training rows. Unknown values get the mean of all.
    Target,
}

/// One element of the feature vector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Feature name: a column, `<column>__missing`, `<column>=<value>`, `<column>=#<bucket>`,
    /// or `<column>~<class>`.
    pub name: String,
    /// Column it comes from.
    pub column: String,
    /// Category id of a one-hot element.
    pub category: Option<u32>,
}

/// Fitted target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "task", deny_unknown_fields)]
pub enum FittedTarget {
    /// A number, stored as `(y - mean) / scale`.
    Regression {
        /// Column.
        column: String,
        /// Mean over the training split, in the target's units; what the baseline predicts.
        mean: f64,
        /// Standard deviation over the training split (dividing by n); 1 when it is 0 or scaling is off.
        scale: f64,
        /// Subtracted before dividing: `mean`, or 0 when scaling is off.
        offset: f64,
    },
    /// A class id, from 0.
    Classification {
        /// Column.
        column: String,
        /// Class names by id: those of `dataset.classes`, or else those of the training split, numbers by value, then
        /// texts by code points.
        classes: Vec<String>,
        /// Rows of each class in the training split that the transform was fitted on; 0 only for classes that
        /// `dataset.classes` lists.
        counts: Vec<u64>,
    },
}

impl FittedTarget {
    /// Column.
    #[must_use]
    pub fn column(&self) -> &str {
        match self {
            Self::Regression { column, .. } | Self::Classification { column, .. } => column,
        }
    }
}

/// Fitted ids of characters: 0 ([`UNKNOWN_ID`]) is one that the training split lacks, known ones follow by falling
/// count, then by code point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedCharacters {
    /// Column of the documents.
    pub column: String,
    /// Known characters; the first has id 1.
    pub characters: Vec<char>,
    /// Count of each in the training split.
    pub counts: Vec<u64>,
}

/// The tokenizer that makes ids of documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedTokens {
    /// Column of the documents.
    pub column: String,
    /// xxh3-128 of its `tokenizer.json`.
    pub tokenizer: Hash128,
    /// Number of ids there are: every id is below it.
    pub vocabulary: u32,
    /// Id behind each document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_of_text: Option<u32>,
    /// Bytes of the training split that it was learnt from; absent for one that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt_bytes: Option<u64>,
}

/// Origin of a dataset's fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransformReference {
    /// Path relative to the dataset folder.
    pub path: String,
    /// The artefact's `hash`.
    pub hash: Hash128,
    /// Dataset name.
    pub dataset: Name,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Versioned;

    fn artefact(mean: f64, fitted_rows: u64, classes: &[&str]) -> TransformArtefact {
        TransformArtefact {
            format: TransformArtefact::TAG.format.into(),
            version: TransformArtefact::TAG.version,
            hash: Hash128::new(u128::from(fitted_rows)),
            fitted_rows,
            null_values: vec![],
            missing_values: vec![],
            inputs: vec![],
            steps: vec![
                FittedStep::Standardize {
                    columns: vec![FittedStandardize {
                        name: "size".into(),
                        mean,
                        deviation: 2.0,
                        scale: 2.0,
                        constant: false,
                        groups: None,
                    }],
                },
                FittedStep::Categories {
                    columns: vec![FittedCategories::new(
                        "kind".into(),
                        vec!["a".into()],
                        vec![fitted_rows],
                        CategoryEncoding::OneHot,
                    )],
                },
            ],
            features: vec![],
            target: Some(FittedTarget::Classification {
                column: "class".into(),
                classes: classes.iter().map(|&class| class.into()).collect(),
                counts: vec![fitted_rows; classes.len()],
            }),
            other_targets: Vec::new(),
            characters: None,
            images: None,
            tokens: None,
            signs: None,
        }
    }

    #[test]
    fn transforms_of_other_rows_that_do_the_same_are_told_from_those_that_do_not() {
        let one = artefact(3.0, 10, &["x", "y"]);
        let of_more_rows = artefact(3.0, 20, &["y", "x"]);
        assert_ne!(one, of_more_rows);
        assert_eq!(one.applied(), of_more_rows.applied());
        assert_ne!(one.applied(), artefact(3.5, 10, &["x", "y"]).applied());
        assert_ne!(one.applied(), artefact(3.0, 10, &["x", "z"]).applied());
        // The share of a value is made of its count.
        let by_share = |rows| {
            let mut artefact = artefact(3.0, rows, &["x"]);
            if let FittedStep::Categories { columns } = &mut artefact.steps[1] {
                columns[0].encoding = CategoryEncoding::Frequency;
            }
            artefact.applied()
        };
        assert_ne!(by_share(10), by_share(20));
    }
}
