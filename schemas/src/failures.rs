//! Failed runs of a source: `failures.json` beside its commit log, from the first run that fails to the next that does not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    format::{FAILURES, versioned},
    ids::Name,
};

/// Name of the file in the landing folder of a source.
pub const FAILED_RUNS: &str = "failures.json";

/// Runs of a source that failed in a row. Reports show it, and a build of a source without rows
/// names failed runs as the reason if the file is there; what is read or built does not depend on
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailedRuns {
    /// `feedline.failures`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// The source.
    pub source: Name,
    /// Count of failed runs in a row.
    pub failures: u64,
    /// When the first of them ended, in seconds since 1970-01-01 UTC.
    pub since_unix_s: u64,
    /// When the last of them ended, in seconds since 1970-01-01 UTC.
    pub last_unix_s: u64,
    /// Its error.
    pub error: String,
}
versioned!(FailedRuns, FAILURES);
