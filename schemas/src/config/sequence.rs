//! `[dataset.sequence]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounded::Bounded;

/// `[dataset.sequence]`: samples are windows over `[dataset.series]`, for models that read a series step by step (`lstm`, whose
/// `train.model.steps` are `length` where they are not given).
///
/// A sample holds the features of `length` rows of one entity that follow one another, oldest first, and the target of the
/// row `horizon` rows behind the last of them; content, origin and what is kept are that row's. Features are made, filled and
/// scaled before. All rows of a sample and its target are of one split, and neighbours among all rows of the entity whose
/// time can be read: a window that a border of splits, a row that was set aside or a gap (`dataset.series.max_gap`) lies in
/// is left out, and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SequenceConfig {
    /// Rows of a window, 1 to 65,536. More show a model more of the past, and take as much more space.
    pub length: Bounded<u32, 1, 65_536>,
    /// How many rows behind the last row of the window the row is whose target is predicted, 0 to 65,536; 0 is the last row
    /// itself. Default 1. Without a target there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Bounded<u32, 0, 65_536>>,
    /// How many rows further each next window begins, 1 to 65,536. Default 1: every row that has the past for it is predicted
    /// once. Raise it where windows that share most of their rows teach little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<Bounded<u32, 1, 65_536>>,
    /// Rows after which values come again, 1 to 65,536: 24 for hours of a day, 168 for hours of a week. Default none. It
    /// changes no sample; it adds a naive forecast to compare a model with: the target of the newest row that lies whole seasons before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub season: Option<Bounded<u32, 1, 65_536>>,
}
