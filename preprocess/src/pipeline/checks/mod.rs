//! Checks of a build: its configuration before any row is read, its rows before the write, its shards after.

pub(super) mod columns;
pub(super) mod equal_documents;
pub(super) mod equal_rows;
pub(super) mod extremes;
pub(super) mod group_leak;
pub(super) mod keys;
pub(super) mod leakage;
pub(super) mod mixed_types;
pub(super) mod new_rows;
pub(super) mod repeated_hours;
pub(super) mod row_numbers;
pub(super) mod sampled_numbers;
pub(super) mod splits;
pub(super) mod text_versions;
pub(super) mod train_values;
pub(super) mod verification;
