//! `[train.schedule]`.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use super::tagged::KeyTable;

/// `[train.schedule]`: learning rate schedule. A key that the chosen type does not have is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleConfig {
    /// Kind of the schedule: `constant`, `cosine`, `cosine_restarts`, `linear`, `step` or
    /// `plateau`. Default `cosine`.
    pub r#type: ScheduleKind,
    /// Number of warm-up steps, in which the rate rises linearly to its peak, before the schedule
    /// begins. Default: 100, or a tenth of the steps of a run with fewer than 1,000 steps.
    pub warmup_steps: Option<u64>,
    /// `cosine`, `cosine_restarts`, `linear`, `plateau`: lowest rate as a fraction of the peak, 0
    /// to 1. Default 0.01.
    pub final_fraction: Option<f64>,
    /// `cosine_restarts`: length of the first period in `unit`, at least 1, from the end of the
    /// warm-up; required.
    pub period: Option<u64>,
    /// `cosine_restarts`: factor between the lengths of a period and the previous one, at least 1.
    /// Default 1.
    pub period_factor: Option<u32>,
    /// `step`: interval between drops of the rate in `unit`, at least 1. Give this or `milestones`.
    pub every: Option<u64>,
    /// `step`: ascending positions in the run, in `unit`, at which the rate drops. Give this or
    /// `every`.
    pub milestones: Option<Vec<u64>>,
    /// `step`, `plateau`: factor of the rate at each drop, above 0 and below 1. Default 0.1.
    pub factor: Option<f64>,
    /// `plateau`: number of epochs without a better validation loss; the rate drops at the next
    /// such epoch. Keep it below `train.patience`, otherwise training ends first. Default 2.
    pub patience: Option<u32>,
    /// `plateau`: smallest improvement that counts as better, as a fraction of the best loss, 0 to
    /// below 1. Default 0.0001.
    pub threshold: Option<f64>,
    /// `cosine_restarts`, `step`: unit of `period`, `every` and `milestones`, `steps` or `epochs`.
    /// Default `steps`.
    pub unit: Option<ScheduleUnit>,
    /// Batch size that `train.learning_rate` was chosen for. With another `train.batch_size`, the
    /// peak is `learning_rate * batch_size / base_batch_size`. Default: none, the peak is
    /// `learning_rate`.
    pub base_batch_size: Option<u32>,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self {
            r#type: ScheduleKind::Cosine,
            warmup_steps: None,
            final_fraction: None,
            period: None,
            period_factor: None,
            every: None,
            milestones: None,
            factor: None,
            patience: None,
            threshold: None,
            unit: None,
            base_batch_size: None,
        }
    }
}

/// The keys of each type.
const KEYS: KeyTable = KeyTable {
    tag: "type",
    default: "cosine",
    common: &["warmup_steps", "base_batch_size"],
    variants: &[
        ("constant", &[]),
        ("cosine", &["final_fraction"]),
        (
            "cosine_restarts",
            &["period", "period_factor", "unit", "final_fraction"],
        ),
        ("linear", &["final_fraction"]),
        ("step", &["every", "milestones", "factor", "unit"]),
        (
            "plateau",
            &["factor", "patience", "threshold", "final_fraction"],
        ),
    ],
};

/// Reads the section, and refuses a key of another type.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ScheduleConfig, D::Error> {
    KEYS.read(deserializer)
}

pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    KEYS.schema::<ScheduleConfig>(generator)
}

/// Kind of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// The peak rate in all steps.
    Constant,
    /// Half a cosine from the peak to the end of the run.
    Cosine,
    /// Half a cosine from the peak in each period.
    CosineRestarts,
    /// A straight line from the peak to the end of the run.
    Linear,
    /// Drops at fixed positions.
    Step,
    /// Drops when the validation loss no longer improves.
    Plateau,
}

/// Unit of positions in a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleUnit {
    /// Optimizer steps.
    Steps,
    /// Epochs.
    Epochs,
}
