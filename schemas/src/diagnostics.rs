//! Diagnostics of a model on one split besides its metrics. Every list has a bound, so that reports and checkpoints stay small.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Classes up to which the confusion matrix is complete.
pub const MATRIX_CLASSES: usize = 20;

/// Classes with figures of their own, at most; of more, those with the lowest F1.
pub const LISTED_CLASSES: usize = 100;

/// Confusions listed, at most: the most frequent.
pub const LISTED_CONFUSIONS: usize = 30;

/// Bins of confidence.
pub const CONFIDENCE_BINS: usize = 10;

/// Points of a ROC curve, at most.
pub const ROC_POINTS: usize = 51;

/// Rows of a sample of predictions, at most.
pub const SAMPLED_ROWS: usize = 300;

/// Diagnostics of a model on one split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Diagnostics {
    /// Of a model that predicts classes.
    Classification(ClassDiagnostics),
    /// Of a model that predicts numbers.
    Regression(NumberDiagnostics),
    /// Of a model that predicts several numbers of each row.
    Regressions(Vec<TargetDiagnostics>),
}

/// Counts of rows by class and by predicted class. A class is an index into the report's `classes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassDiagnostics {
    /// Rows of the split.
    pub rows: u64,
    /// Figures of the classes, by id where all are listed, else by rising F1.
    pub classes: Vec<ClassScores>,
    /// Rows by class and predicted class; absent above [`MATRIX_CLASSES`] classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matrix: Vec<Vec<u64>>,
    /// Pairs of a class and another that was predicted for it, the most frequent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confusions: Vec<Confusion>,
    /// Wrong predictions whose pair was not counted, since there were too many different pairs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uncounted: u64,
    /// Bins of equal width of the probability of the predicted class, from 0 to 1; bins without rows are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confidence: Vec<ConfidenceBin>,
    /// The same bins of the probability of the second of two classes; absent for more classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calibration: Vec<ConfidenceBin>,
    /// Points of the ROC curve of the second of two classes, as false and true positive rate, both ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roc: Vec<[f64; 2]>,
}

/// Figures of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassScores {
    /// Class.
    pub class: u64,
    /// Rows of the class.
    pub rows: u64,
    /// Rows that it was predicted for.
    pub predicted: u64,
    /// Rows of the class that it was predicted for.
    pub hits: u64,
    /// `hits / predicted`; absent where it was never predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<f64>,
    /// `hits / rows`; absent where it has no rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<f64>,
    /// `2 hits / (predicted + rows)`; absent where both are 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f1: Option<f64>,
}

/// A class, and another that was predicted for some of its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confusion {
    /// Class of the rows.
    pub class: u64,
    /// Class that was predicted.
    pub predicted: u64,
    /// Rows.
    pub rows: u64,
}

/// Rows with a probability between two bounds: of the predicted class, or in `calibration` of the second class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfidenceBin {
    /// Rows.
    pub rows: u64,
    /// Mean probability.
    pub mean: f64,
    /// Rows whose predicted class is right; in `calibration` rows of the second class.
    pub hits: u64,
}

/// Errors of predicted numbers, in the target's units. An error is the prediction less the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NumberDiagnostics {
    /// Rows of the split.
    pub rows: u64,
    /// Mean error.
    pub bias: f64,
    /// Targets and predictions of rows spread evenly over the split, at most [`SAMPLED_ROWS`].
    pub sample: Vec<[f32; 2]>,
    /// Rows between two of the sample: each `stride`-th row is in it.
    pub stride: u64,
}

/// Errors of the predictions of one of several targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetDiagnostics {
    /// Name of the target.
    pub target: String,
    /// Errors of its predictions.
    pub numbers: NumberDiagnostics,
}

/// A target, or a prediction of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TargetValue {
    /// A number in the target's units.
    Number(f64),
    /// Name of a class.
    Class(String),
    /// Several numbers, each in the units of its target, in the order of the targets.
    Numbers(Vec<f64>),
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}
