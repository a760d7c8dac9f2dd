//! Profile of a dataset, `profile-<hash>.json`: what each feature and the target hold in each split, as integers and exact numbers.
//!
//! It is written beside the transform artefact, before the manifest that names it. `hash` is the
//! xxh3-128 of the document with `hash` set to zero. Cells are counted as they enter the first
//! step: typed, without duplicates and rejected rows.
//!
//! `edges` bound the bins of a numeric column. They are the quantiles of the training split at
//! 1/20, 2/20, ... 19/20, each once: bin i holds values greater than edge i-1 and at most edge i,
//! the first and the last the values outside, infinities included. Every split is counted in the
//! bins of the training split, so that their shares can be compared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    format::{PROFILE, versioned},
    ids::Hash128,
    split::Split,
};

/// Number of bins of a column of the training split, where its values allow.
pub const BINS: usize = 20;

/// Bars of a histogram, without the two outside of its range.
pub const BARS: usize = 32;

/// Values of a category that a profile lists, at most: the most frequent of the training split.
pub const MOST_VALUES: usize = 1000;

/// The profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetProfile {
    /// `feedline.profile`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// Hash of the document with this field zero.
    pub hash: Hash128,
    /// Columns of numbers, in the order of the features, then the target.
    pub numeric: Vec<NumericProfile>,
    /// Columns of texts, in the order of the features, then the target.
    pub categorical: Vec<CategoricalProfile>,
    /// Missing cells by their landed form, of the columns of sources that have some: those of
    /// numbers, then those of strings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingCells>,
}
versioned!(DatasetProfile, PROFILE);

impl DatasetProfile {
    /// Computes the hash this profile should carry.
    #[must_use]
    pub fn compute_hash(&self) -> Hash128 {
        let zeroed = Self {
            hash: Hash128::new(0),
            ..self.clone()
        };
        Hash128::of(&crate::encode(&zeroed))
    }
}

/// Landed forms of the missing cells of a column, in all landed rows. Duplicates, superseded rows
/// and rejected rows are among them, so they may be more than those of the splits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MissingCells {
    /// Column.
    pub name: String,
    /// Cells without a value, those of rows that landed before or without the column among them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub null: u64,
    /// NaN, as a float or as text.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nan: u64,
    /// Texts without a character but spaces.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub empty: u64,
    /// Texts of `null_values` and numbers of `missing_values`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub declared: u64,
    /// Other texts, in a column that is read as numbers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub no_number: u64,
}

impl MissingCells {
    /// All of them.
    #[must_use]
    pub const fn cells(&self) -> u64 {
        self.null + self.nan + self.empty + self.declared + self.no_number
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A column of numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NumericProfile {
    /// Column.
    pub name: String,
    /// True for the target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub target: bool,
    /// Edges of the bins, ascending; none where the training split has no finite number.
    pub edges: Vec<f64>,
    /// Lower and upper end of the histograms; absent where the training split has no finite number.
    pub range: Option<[f64; 2]>,
    /// Cells of each split, in the order train, validation, test.
    pub splits: Vec<NumericCells>,
    /// The training cells after all steps; absent for a target, and where a step looks at several columns at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Histogram>,
}

/// The cells of a column of numbers in one split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NumericCells {
    /// Split.
    pub split: Split,
    /// Finite numbers.
    pub finite: u64,
    /// Missing cells.
    pub missing: u64,
    /// Negative infinities.
    pub low_infinite: u64,
    /// Positive infinities.
    pub high_infinite: u64,
    /// Smallest finite number.
    pub min: Option<f64>,
    /// Largest finite number.
    pub max: Option<f64>,
    /// Mean of the finite numbers.
    pub mean: Option<f64>,
    /// Their standard deviation (dividing by n); absent where it is too large for a number.
    pub deviation: Option<f64>,
    /// Cells in each bin, one more than there are edges.
    pub bins: Vec<u64>,
    /// Cells below `range`, in each of [`BARS`] parts of equal width, and above.
    pub histogram: Vec<u64>,
    /// Cells with values that the training split lacks; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<OutsideCells>,
}

/// Cells of a column outside of the caps of its `winsorize` step, infinities included; outside of the finite numbers of the
/// training split where there is no such step, its caps are those of groups, or a step before it has changed the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutsideCells {
    /// Below the lower end.
    pub below: u64,
    /// Above the upper end.
    pub above: u64,
}

impl NumericCells {
    /// All cells.
    #[must_use]
    pub const fn cells(&self) -> u64 {
        self.finite + self.missing + self.low_infinite + self.high_infinite
    }
}

/// A histogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    /// Lower and upper end.
    pub range: [f64; 2],
    /// Cells below `range`, in each of [`BARS`] parts of equal width, and above.
    pub counts: Vec<u64>,
    /// Cells that are still missing.
    pub missing: u64,
}

/// A column of texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CategoricalProfile {
    /// Column.
    pub name: String,
    /// True for the target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub target: bool,
    /// Values of the training split by falling count, then by bytes; at most [`MOST_VALUES`].
    pub values: Vec<String>,
    /// Cells of each split, in the order train, validation, test.
    pub splits: Vec<CategoricalCells>,
}

/// The cells of a column of texts in one split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CategoricalCells {
    /// Split.
    pub split: Split,
    /// Missing cells.
    pub missing: u64,
    /// Different values.
    pub distinct: u64,
    /// Cells of each of the column's `values`.
    pub counts: Vec<u64>,
    /// Cells of other values.
    pub other: u64,
}

impl CategoricalCells {
    /// All cells.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.missing + self.other + self.counts.iter().sum::<u64>()
    }
}

/// Location of the profile of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileReference {
    /// Path relative to the dataset folder.
    pub path: String,
    /// The profile's `hash`.
    pub hash: Hash128,
}
