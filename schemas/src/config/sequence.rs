//! `[dataset.sequence]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounded::Bounded;

/// `[dataset.sequence]`: samples are windows over `[dataset.series]`, for models that read a series
/// step by step (`lstm`, whose `train.model.steps` defaults to `length`).
///
/// A sample holds the features of `length` consecutive rows of one entity, oldest first, and the
/// target of the row `horizon` rows after the last of them. Content, origin and passthrough columns
/// are those of the target's row. Features are computed, imputed and scaled before. All rows of a
/// sample and its target are in one split. They are neighbours among all rows of the entity whose
/// time can be read. A window that contains a boundary between splits, a rejected or filtered row,
/// or a gap (`dataset.series.max_gap`) is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SequenceConfig {
    /// Number of rows of a window, 1 to 65,536. More rows show a model more of the past and take
    /// more space in proportion.
    pub length: Bounded<u32, 1, 65_536>,
    /// Number of rows from the last row of the window to the row whose target is predicted, 0 to
    /// 65,536; 0 is the last row itself. Default 1. Refused without a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Bounded<u32, 0, 65_536>>,
    /// Number of rows from the start of a window to the start of the next, 1 to 65,536. Default 1:
    /// every row with enough past is predicted once. Raise it where windows that share most of
    /// their rows teach a model little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<Bounded<u32, 1, 65_536>>,
    /// Number of rows of a season, 1 to 65,536: 24 for the hours of a day, 168 for the hours of a
    /// week. Default none. It changes no sample. It adds a naive forecast to compare a model with:
    /// the newest known target a multiple of the season before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub season: Option<Bounded<u32, 1, 65_536>>,
}
