//! Transform to fit: its columns, its steps and its targets.

use feedline_schemas::{
    config::{StepConfig, Task},
    transform::{InputColumn, InputKind, NumberSigns},
};

/// Most classes of a target, and most known values of a category.
pub(crate) const MOST_VALUES: u32 = 100_000;

/// Transform to fit.
#[derive(Clone, Debug)]
pub(crate) struct FitSpec {
    /// Input columns, in the order of the feature vector.
    pub(crate) inputs: Vec<InputColumn>,
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
