//! `[train.schedule]`.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use super::tagged::KeyTable;

/// `[train.schedule]`: how the learning rate changes. A key that the chosen type has no use for is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleConfig {
    /// `constant`, `cosine`, `cosine_restarts`, `linear`, `step` or `plateau`. Default `cosine`.
    pub r#type: ScheduleKind,
    /// Steps over which the rate rises from 0 to its peak, before anything else. Default: 100, and a tenth of the steps of a run that
    /// has fewer than 1,000.
    pub warmup_steps: Option<u64>,
    /// `cosine`, `cosine_restarts`, `linear`, `plateau`: lowest rate as a share of the peak, 0 to 1. Default 0.01.
    pub final_fraction: Option<f64>,
    /// `cosine_restarts`: length of the first period, at least 1, from the end of the warm-up; must be given.
    pub period: Option<u64>,
    /// `cosine_restarts`: how many times longer than the one before each period is, at least 1. Default 1.
    pub period_factor: Option<u32>,
    /// `step`: the rate falls each time this much of the run is over, at least 1. Give this or `milestones`.
    pub every: Option<u64>,
    /// `step`: the rate falls when this much of the run is over, rising. Give this or `every`.
    pub milestones: Option<Vec<u64>>,
    /// `step`, `plateau`: what the rate is multiplied by when it falls, above 0 and below 1. Default 0.1.
    pub factor: Option<f64>,
    /// `plateau`: epochs without a better validation loss after which the rate falls at the next one. Keep it below
    /// `train.patience`, or training ends first. Default 2.
    pub patience: Option<u32>,
    /// `plateau`: share of the best loss by which another must be below it to be better, 0 to below 1. Default 0.0001.
    pub threshold: Option<f64>,
    /// `cosine_restarts`, `step`: what `period`, `every` and `milestones` count, `steps` or `epochs`. Default `steps`.
    pub unit: Option<ScheduleUnit>,
    /// Batch size that `train.learning_rate` was chosen for; with another `train.batch_size` the peak is
    /// `learning_rate * batch_size / base_batch_size`. Absent: the peak is `learning_rate`.
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
    /// The peak throughout.
    Constant,
    /// Half a cosine from the peak to the end of the run.
    Cosine,
    /// Half a cosine from the peak in each period.
    CosineRestarts,
    /// A straight line from the peak to the end of the run.
    Linear,
    /// Stairs.
    Step,
    /// Falls when the validation loss no longer does.
    Plateau,
}

/// What a schedule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleUnit {
    /// Optimizer steps.
    Steps,
    /// Epochs.
    Epochs,
}
