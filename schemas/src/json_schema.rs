//! JSON Schema documents of the contracts, generated from the types.

use schemars::{Schema, schema_for};

/// File name and schema of each contract, as kept in `schemas/json/`.
#[must_use]
pub fn all() -> Vec<(&'static str, Schema)> {
    vec![
        (
            "pipeline.schema.json",
            schema_for!(crate::config::PipelineConfig),
        ),
        (
            "commit.schema.json",
            schema_for!(crate::commit::CommitEntry),
        ),
        (
            "log-snapshot.schema.json",
            schema_for!(crate::log_snapshot::LogSnapshot),
        ),
        ("lease.schema.json", schema_for!(crate::lease::LeaseEntry)),
        (
            "failures.schema.json",
            schema_for!(crate::failures::FailedRuns),
        ),
        (
            "run-warnings.schema.json",
            schema_for!(crate::run_warnings::RunWarnings),
        ),
        (
            "transform.schema.json",
            schema_for!(crate::transform::TransformArtefact),
        ),
        (
            "expect.schema.json",
            schema_for!(crate::expect::Expectations),
        ),
        (
            "profile.schema.json",
            schema_for!(crate::profile::DatasetProfile),
        ),
        (
            "manifest.schema.json",
            schema_for!(crate::manifest::Manifest),
        ),
        (
            "loader-state.schema.json",
            schema_for!(crate::loader_state::LoaderState),
        ),
        (
            "checkpoint.schema.json",
            schema_for!(crate::checkpoint::CheckpointHeader),
        ),
        (
            "export.schema.json",
            schema_for!(crate::export::ExportRecord),
        ),
        ("run.schema.json", schema_for!(crate::run::RunRecord)),
        (
            "run-report.schema.json",
            schema_for!(crate::report::RunReport),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// With `FEEDLINE_WRITE_SCHEMAS=1` it writes the files instead.
    #[test]
    fn the_checked_in_schemas_are_those_of_the_types() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("json");
        let write = std::env::var_os("FEEDLINE_WRITE_SCHEMAS").is_some();
        for (name, schema) in all() {
            let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
            let path = folder.join(name);
            if write {
                fs::create_dir_all(&folder).unwrap();
                fs::write(&path, &text).unwrap();
            }
            let found = fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(
                found, text,
                "{name} has drifted: run the test with FEEDLINE_WRITE_SCHEMAS=1 and commit the file"
            );
        }
    }
}
