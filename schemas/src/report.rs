//! Reports of the commands with `--json`. The names are a contract; fields may be added.

mod dataset;
mod inference;
mod landing;
mod training;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    dataset::{
        AddedReport, DatasetReport, EditReport, ExpectReport, FeatureShift, PruneReport,
        VerifyReport,
    },
    inference::{
        GenerateReport, GeneratedEnd, GeneratedText, GeneratingRule, PredictReport, PredictedJoin,
    },
    landing::{
        Damage, DeltaReport, DeltaTableReport, IngestReport, LandingVerifyReport, LastRunWarnings,
        RepairReport, RepairedSource, ResumeReport, ResumedSource, SlicesReport, SourceReport,
        Standing, ValueCursor, ValueCursorsReport, VerifiedSource,
    },
    training::{
        ChosenBy, DatasetRelation, EarlyStop, EvalReport, ExportReport, ImagesReport, MixedSource,
        MuonParameters, NormalizedBy, TrainReport, UsedRun,
    },
};
pub use crate::warning::{
    Finding, NAMED_COLUMNS, WarnedColumn, WarnedRows, Warning, replace_warning,
};

/// Report of `run`: sections that did not run are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    /// Ingest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingest: Option<IngestReport>,
    /// Dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset: Option<DatasetReport>,
    /// Training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<TrainReport>,
}
