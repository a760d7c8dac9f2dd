//! Warnings of the last run of a source that its commit log does not have: `warnings.json` beside the log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    format::{RUN_WARNINGS, versioned},
    ids::Name,
    warning::Warning,
};

/// Name of the file in the landing folder of a source.
pub const WARNINGS_FILE: &str = "warnings.json";

/// Warnings of the last run of a source that the state of its commit log does not have: those about one run
/// alone, and those of a run that landed nothing. Only `ingest status` reads them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunWarnings {
    /// `feedline.run-warnings`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// The source.
    pub source: Name,
    /// Id of the first run in a row whose warnings had the same codes.
    pub run_id: String,
    /// When that run ended, in seconds since 1970-01-01 UTC.
    pub since_unix_s: u64,
    /// The warnings, at most one of each code.
    pub warnings: Vec<Warning>,
}
versioned!(RunWarnings, RUN_WARNINGS);
