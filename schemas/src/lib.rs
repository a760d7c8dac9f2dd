//! Contracts between the stages of feedline: configuration, record schema, commit-log entry, transform artefact,
//! shard manifest, loader state, checkpoint header, and the ids and units they are made of.
//!
//! No I/O happens here, and nothing here knows a runtime or a device. Every format carries `format` and `version`;
//! formats evolve by adding optional fields, and a reader refuses a version it does not know by name.
//! The JSON Schema files under `schemas/json/` are generated from these types; a test compares them.

pub mod amendment;
mod check;
pub mod checkpoint;
pub mod commit;
pub mod config;
pub mod count;
pub mod csv_cell;
pub mod diagnostics;
pub mod edit;
pub mod expect;
pub mod export;
pub mod failures;
pub mod file_signature;
pub mod format;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod guard;
pub mod ids;
pub mod json_schema;
mod kind;
pub mod lease;
pub mod loader_state;
pub mod log_effect;
pub mod log_snapshot;
pub mod manifest;
pub mod number;
pub mod performance;
pub mod pnm;
pub mod profile;
pub mod progress;
pub mod record;
pub mod report;
pub mod row_counter;
pub mod run;
pub mod run_warnings;
#[cfg(test)]
mod samples;
pub mod shard_table;
mod split;
pub mod steps;
pub mod transform;
pub mod units;
mod warning;

pub use check::{ContractError, Versioned, decode, encode};
pub use kind::{Classified, ErrorKind};
