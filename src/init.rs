//! `feedline init`: inspects a URL, a file or a folder and writes a pipeline for it.

mod location;
mod pipeline;
mod table;

use std::fmt;

use feedline_ingest::SourcePreview;
use serde::Serialize;

pub(crate) use self::{
    location::{Content, Location, is_data_file},
    pipeline::{Hints, Pagination, source_text, text},
    table::{Columns, Dropped, NumberFormat, has_decimal_commas, numbers},
};
use crate::output::{Text, line};

/// Most dropped columns that are shown; the file and `--json` have all.
const MAX_SHOWN: usize = 8;

/// The written pipeline, and the decisions in it.
#[derive(Debug, Serialize)]
pub(crate) struct InitReport {
    /// File that was written.
    pub(crate) file: String,
    /// Kind of the data, such as `a table`.
    pub(crate) content: String,
    /// Number of examined rows.
    pub(crate) rows: u64,
    /// Examined rows that a run would reject.
    pub(crate) rejected: u64,
    /// Columns found.
    pub(crate) columns: usize,
    /// Column that a model predicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    /// Columns that are no features, with the reason.
    pub(crate) dropped: Vec<Dropped>,
    /// Decisions to review, each with its key.
    pub(crate) decisions: Vec<String>,
    /// Commands to run next.
    pub(crate) next: Vec<String>,
}

impl InitReport {
    /// Report on a pipeline that is written to `file`.
    pub(crate) fn new(
        file: String,
        location: &Location,
        preview: Option<&SourcePreview>,
        columns: Option<Columns>,
    ) -> Self {
        let content = &location.content;
        let trains = content.trains(columns.as_ref());
        let next = if trains {
            ["check", "run"]
                .map(|command| format!("feedline {command} {file}"))
                .to_vec()
        } else {
            ["check", "preview", "ingest"]
                .map(|command| format!("feedline {command} {file}"))
                .to_vec()
        };
        let columns = columns.unwrap_or_default();
        let decisions = columns.decisions.into_iter().chain(location.decisions());
        let decisions = decisions.chain(preview.into_iter().flat_map(notes_of));
        Self {
            file,
            content: content.to_string(),
            rows: preview.map_or(0, |preview| preview.rows),
            rejected: preview.map_or(0, |preview| preview.bad),
            columns: preview.map_or(0, |preview| preview.columns.len()),
            target: columns.target,
            dropped: columns.dropped,
            decisions: decisions.collect(),
            next,
        }
    }
}

/// Count of rejected rows of a preview, with one of them; `None` if there are none.
pub(crate) fn rejected_note(preview: &SourcePreview) -> Option<String> {
    let SourcePreview {
        rows,
        bad,
        bad_sample,
        ..
    } = preview;
    let sample = bad_sample.as_deref().unwrap_or_default();
    let all = rows + bad;
    (*bad > 0).then(|| format!("{bad} of {all} rows looked at are rejected, such as {sample}"))
}

/// Rejected rows of a preview, and its warnings, each with its key.
fn notes_of(preview: &SourcePreview) -> Vec<String> {
    let rejected = rejected_note(preview);
    let warnings = preview.warnings.iter().map(|warning| {
        let key = warning.key.iter().map(|key| format!("; see `{key}`"));
        [warning.message.clone()].into_iter().chain(key).collect()
    });
    rejected.into_iter().chain(warnings).collect()
}

impl Text for InitReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        use fmt::Write as _;

        writeln!(out, "init: wrote {}", self.file)?;
        line(out, "found", &self.content)?;
        if self.columns > 0 {
            let text = format!("{} in {} rows looked at", self.columns, self.rows);
            line(out, "columns", text)?;
        }
        if let Some(target) = &self.target {
            line(out, "target", target)?;
        }
        for Dropped { column, reason } in self.dropped.iter().take(MAX_SHOWN) {
            line(out, "no feature", format!("{column}: {reason}"))?;
        }
        if self.dropped.len() > MAX_SHOWN {
            let text = format!("and {} more, see the file", self.dropped.len() - MAX_SHOWN);
            line(out, "no feature", text)?;
        }
        for decision in &self.decisions {
            line(out, "look at", decision)?;
        }
        for command in &self.next {
            line(out, "next", command)?;
        }
        Ok(())
    }
}
