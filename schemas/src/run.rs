//! `run.json`, the record of a run that can be read without opening its checkpoints. It is stored
//! in the run's folder and is written when the run begins, every 15 seconds while it runs, and when
//! it ends.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    checkpoint::BestEpoch,
    config::TrainConfig,
    diagnostics::Diagnostics,
    format::{RUN, versioned},
    ids::Hash128,
    manifest::{Layout, SplitContent},
    performance::Performance,
    report::{ImagesReport, MixedSource},
    split::Split,
};

/// The record of a run. Fields may be added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecord {
    /// `feedline.run`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// Name of the run and of its folder.
    pub name: String,
    /// Version of the program.
    pub program: String,
    /// Dataset folder.
    pub dataset: String,
    /// Fingerprint of the dataset's manifest.
    pub fingerprint: Hash128,
    /// Hash of the transform that made its shards; `transform.json` beside this record is a copy of it. Absent from records
    /// of older versions, as the next three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Hash128>,
    /// Hash of the settings that decide what its columns mean, as in the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns_hash: Option<Hash128>,
    /// Layout of its shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// Rows and content of its splits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub splits: BTreeMap<Split, SplitContent>,
    /// The checkpoint of another run that this one began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_from: Option<ContinuedFrom>,
    /// Names of the classes by id; none where the run predicts no class. Of two, `f1` is about the second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Names of the targets where the model predicts several numbers of each row. The metrics of each have its name behind a dot; without
    /// one, `rmse` and `mae` are over the targets as stored (standardized, unless `dataset.scale_target` is false), and `r2` is the mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Resolved training configuration.
    pub config: TrainConfig,
    /// Last recorded state of the run.
    pub state: RunState,
    /// Reason of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was first started, in milliseconds since 1970.
    pub started_ms: u64,
    /// When this record was written, in milliseconds since 1970.
    pub updated_ms: u64,
    /// Time of its end, in milliseconds since 1970; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Steps, one per batch, with those that were left out.
    pub step: u64,
    /// Steps left out, since their gradient overflowed f16; absent where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_steps: u64,
    /// Steps of all epochs.
    pub steps_planned: u64,
    /// Epochs finished.
    pub epochs: u64,
    /// Trainable parameters.
    pub parameters: u64,
    /// Share of the time since the last start that the trainer waited for batches, 0 to 1.
    pub data_wait_share: f64,
    /// Speed of the steps since the last start, and use of the device; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub performance: Option<Performance>,
    /// The best epoch so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<BestEpoch>,
    /// Treatment of images; absent where the dataset has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<ImagesReport>,
    /// Samples that each dataset of a mixture gave, once the run has finished.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mixture: Vec<MixedSource>,
    /// Samples that cannot be used, once the run has finished; see the report of training.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub quarantined: u64,
    /// Shards that are left out, by split, since their files are incomplete (`train.loader.bad_shards`); absent where there
    /// are none. Those of the training split are the same until the run ends.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out_shards: BTreeMap<Split, LeftOutShards>,
    /// Metrics on the test split, once the run has finished.
    #[serde(default)]
    pub test: BTreeMap<String, f64>,
    /// The same of a baseline that looks at no feature.
    #[serde(default)]
    pub baseline: BTreeMap<String, f64>,
    /// Diagnostics on the test split, once the run has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Diagnostics>,
}
versioned!(RunRecord, RUN);

const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A checkpoint of another run that a run began with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContinuedFrom {
    /// Name of that run.
    pub run: String,
    /// Steps taken by then.
    pub step: u64,
    /// Epochs finished by then.
    pub epoch: u64,
    /// Keys of `[train]` whose values there were others, with these.
    pub before: BTreeMap<String, String>,
    /// `true` if the result has the bits of one run of the whole length.
    pub equals_one_run: bool,
    /// Reason why it has not; absent where it has, and from records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Shards that are left out of a split, since their files are missing or have another length than the manifest states.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOutShards {
    /// Number of them.
    pub shards: u64,
    /// Rows in them, as the manifest counts.
    pub rows: u64,
    /// Paths of the first 20, each relative to its dataset folder.
    pub paths: Vec<String>,
}

impl LeftOutShards {
    /// Most shards that are named.
    pub const MOST_PATHS: usize = 20;
}

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// In progress.
    Running,
    /// It reached its end.
    Finished,
    /// It was asked to stop, and saved everything.
    Interrupted,
    /// A search stopped it early, since its metric was worse than those of other trials.
    Pruned,
    /// It ended with an error.
    Failed,
    /// It went silent without a word: killed, or its machine is gone. Never written: it is what a reader makes of an old
    /// `running`.
    Stopped,
}

impl RunState {
    /// As the configuration and tables write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
            Self::Pruned => "pruned",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

impl RunRecord {
    /// Milliseconds between two records of a run in progress.
    pub const HEARTBEAT_MS: u64 = 15_000;

    /// The state as seen at `now_ms`: a run that has missed four heartbeats has stopped.
    #[must_use]
    pub const fn state_at(&self, now_ms: u64) -> RunState {
        let silent = now_ms.saturating_sub(self.updated_ms) > 4 * Self::HEARTBEAT_MS;
        match self.state {
            RunState::Running if silent => RunState::Stopped,
            state => state,
        }
    }
}
