//! Lease of a scheduled source: `lease/<sequence, 20 digits>.json` beside its commit log.
//!
//! The program that runs a source holds its lease: objects created only if absent, with sequence
//! numbers that grow; the one with the highest counts. The holder writes another one well before
//! `ttl_s` have passed and a last one, with `held = false`, when it ends. Others may take over a
//! lease that has not changed for `ttl_s` of their own clock, which no jump of any clock can
//! shorten. Older objects are deleted. The lease only keeps two programs from doing the same work:
//! the commit log keeps their data apart.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    format::{LEASE, versioned},
    ids::Name,
};

/// One object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseEntry {
    /// `feedline.lease`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// The source.
    pub source: Name,
    /// Number of the object.
    pub sequence: u64,
    /// Unique id of the program that wrote it.
    pub holder: String,
    /// True while the source is being run.
    pub held: bool,
    /// Seconds that the lease holds without another object.
    pub ttl_s: u64,
    /// Boot of the machine whose lock on the folder the holder has too: a program on it that gets the lock knows that the
    /// holder has died. Absent where files cannot be locked, as in object stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_on: Option<String>,
    /// The last run that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<LastRun>,
}
versioned!(LeaseEntry, LEASE);

/// A run that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LastRun {
    /// When it was due, in seconds since 1970-01-01 UTC, without jitter.
    pub due_unix_s: i64,
    /// When it began.
    pub began_unix_s: i64,
    /// When it ended.
    pub ended_unix_s: i64,
    /// Outcome of it.
    pub outcome: RunOutcome,
    /// The error, when it failed, and why it was deferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Runs that failed in a row, this one included; a run that was deferred or stopped changes nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u64,
    /// Earliest resumption of a deferred run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_unix_s: Option<i64>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Outcome of a run.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Everything there was has landed.
    Complete,
    /// A server asked to wait for long.
    Deferred,
    /// The program was asked to stop; what was read until then has landed.
    Stopped,
    /// By an error.
    Failed,
}

impl RunOutcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Complete, Self::Deferred, Self::Stopped, Self::Failed];

    /// Its name, as in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Deferred => "deferred",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}
