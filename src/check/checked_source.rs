//! A source as a check found it.

use feedline_ingest::SourcePreview;
use feedline_schemas::{config::SourceConfig, ids::Name, report::Warning};
use serde::Serialize;

use super::version_samples::version_warning;

/// A source as the check found it.
#[derive(Debug, Serialize)]
pub(crate) struct CheckedSource {
    pub(crate) name: String,
    /// False under `--offline`, and for a source with invalid settings.
    pub(crate) asked: bool,
    /// Rows that were read to see the columns.
    pub(crate) rows: u64,
    /// Rows among those read that a run would reject. The contract is asked about the first page, or about
    /// the next files of a source that has landed.
    pub(crate) rejected: u64,
    /// One of them, after its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rejected_sample: Option<String>,
    /// Count of its columns.
    pub(crate) columns: usize,
    pub(crate) warnings: Vec<Warning>,
    /// Reason that it cannot be read, or that a run of it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl CheckedSource {
    /// A source that is not read.
    pub(super) fn not_asked(name: &Name) -> Self {
        Self {
            name: name.to_string(),
            asked: false,
            rows: 0,
            rejected: 0,
            rejected_sample: None,
            columns: 0,
            warnings: Vec::new(),
            error: None,
        }
    }

    /// Returns true if the source was read, and no usable row came.
    pub(super) fn is_without_columns(&self) -> bool {
        let is_read = self.error.is_none() || self.rejected > 0;
        is_read && self.asked && self.columns == 0
    }

    /// Adds what a preview of `config` found.
    pub(super) fn take(&mut self, preview: &SourcePreview, config: &SourceConfig) {
        self.asked = true;
        self.rows += preview.rows;
        self.rejected += preview.bad + preview.rejected;
        let samples = [&preview.bad_sample, &preview.rejected_sample];
        self.rejected_sample = samples.into_iter().flatten().next().cloned();
        self.columns += preview.columns.len();
        self.warnings.clone_from(&preview.warnings);
        let version = version_warning(preview, config);
        self.warnings.extend(version);
        self.error = preview.error.as_ref().or(preview.stop.as_ref()).cloned();
        if self.error.is_none() {
            self.judge_rejects(preview, config);
        }
    }
}
