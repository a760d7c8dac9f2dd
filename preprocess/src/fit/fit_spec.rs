//! Transform to fit: its columns, its steps and its targets.

use std::collections::BTreeMap;

use feedline_schemas::{
    config::{StepConfig, Task},
    manifest::JoinCounts,
    transform::{InputColumn, InputKind, NumberSigns},
};

use crate::{
    Error,
    schema::{landed_columns::shown, no_feature::NoFeatureReason},
};

/// Most classes of a target, and most known values of a category.
pub(crate) const MOST_VALUES: u32 = 100_000;

/// Most columns that the error of a dataset without a feature names.
const NAMED: usize = 5;

/// Transform to fit.
#[derive(Clone, Debug)]
pub(crate) struct FitSpec {
    /// Input columns, in the order of the feature vector.
    pub(crate) inputs: Vec<InputColumn>,
    /// Columns that were to be inputs and are left out, with the reasons.
    pub(crate) left_out: BTreeMap<String, NoFeatureReason>,
    /// Columns that joins bring, each with the counts of its join.
    pub(crate) joined: BTreeMap<String, JoinCounts>,
    /// Steps with their columns listed; a step without columns does nothing.
    pub(crate) steps: Vec<StepConfig>,
    /// Target, if there is one.
    pub(crate) target: Option<TargetSpec>,
    /// The further targets, where there are several.
    pub(crate) other_targets: Vec<TargetSpec>,
    /// Recorded in the artefact; the frame has made such texts null.
    pub(crate) null_values: Vec<String>,
    /// Recorded in the artefact; the frame has made such numbers null.
    pub(crate) missing_values: Vec<f64>,
    /// Recorded in the artefact; the frame has read texts by them.
    pub(crate) signs: Option<NumberSigns>,
}

impl FitSpec {
    /// Error of a dataset without an input, with the columns that are left out.
    pub(super) fn no_feature(&self) -> Error {
        let left_out = self.left_out.iter().take(NAMED);
        let left_out = left_out.map(|(name, reason)| format!("`{}` {reason}", shown(name)));
        let left_out: Vec<String> = left_out.collect();
        let mut reason = "no column is left to be a feature".to_owned();
        if !left_out.is_empty() {
            reason += &format!(
                ": {}; list one in `dataset.categorical`, or set `dataset.kind` for images or documents",
                left_out.join(", ")
            );
        }
        Error::config("dataset.features", reason)
    }
}

/// The column to predict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetSpec {
    /// Column.
    pub(crate) column: String,
    /// Task of the target.
    pub(crate) task: Task,
    /// True if a regression target is standardized.
    pub(crate) scale: bool,
    /// All classes by id, where the configuration lists them.
    pub(crate) classes: Vec<String>,
}

/// The kind of the columns that a step works on.
pub(crate) const fn kind_of(step: &StepConfig) -> InputKind {
    match step.is_categories() {
        true => InputKind::Categorical,
        false => InputKind::Numeric,
    }
}
