//! `feedline init`: inspects a URL, a file or a folder and writes a pipeline for it.

mod advice;
mod archive;
mod folder;
mod location;
mod number_query;
mod numbers;
mod pipeline;
mod table;
mod table_headers;

use std::fmt;

use feedline_ingest::SourcePreview;
use feedline_schemas::record::system;
use serde::Serialize;

pub(crate) use self::{
    advice::{advice, with_remedies},
    archive::{named_texts, texts_in, unread_members, with_images, with_texts},
    location::{Content, Location, is_data_file},
    numbers::{NumberFormat, describe_open_numbers, has_decimal_commas, is_number_column, numbers},
    pipeline::{Hints, Pagination, source_text, text},
    table::{ColumnRoles, Dropped, has_empty_header},
};
use crate::output::{Text, counted, line, shell_word};

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
    /// Number of rows among them whose values were compared.
    pub(crate) compared: u64,
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
        pagination: &Pagination,
        columns: Option<ColumnRoles>,
    ) -> Self {
        let content = &location.content;
        let word = shell_word(&file);
        let all_rejected = preview.and_then(describe_all_rejected);
        let commands: &[&str] = match content.trains(columns.as_ref()) {
            _ if all_rejected.is_some() => &["check"],
            true => &["check", "run"],
            false => &["check", "preview", "ingest"],
        };
        let next = commands.iter();
        let next = next.map(|command| format!("feedline {command} {word}"));
        let next: Vec<String> = next.collect();
        let columns = columns.unwrap_or_default();
        let decisions = all_rejected.into_iter().chain(columns.decisions);
        let decisions = decisions.chain(location.decisions());
        let decisions = decisions.chain(pagination.decision());
        let decisions = decisions.chain(preview.into_iter().flat_map(notes_of));
        Self {
            file,
            content: content.to_string(),
            rows: preview.map_or(0, |preview| preview.rows),
            compared: preview.map_or(0, compared_rows),
            rejected: preview.map_or(0, |preview| preview.bad + preview.rejected),
            columns: preview.map_or(0, |preview| preview.columns.len()),
            target: columns.target,
            dropped: columns.dropped,
            decisions: decisions.collect(),
            next,
        }
    }
}

/// Rows whose values were compared to count the distinct ones, by the column with the most.
fn compared_rows(preview: &SourcePreview) -> u64 {
    let columns = preview.columns.iter();
    let most = columns.map(|column| match column.compared {
        // Cells without a value are not compared, and count as looked at where they are the rest.
        compared if compared + column.missing == preview.rows => preview.rows,
        compared => compared,
    });
    most.max().unwrap_or_default().min(preview.rows)
}

/// Count of rejected rows of a preview, with one of them; `None` if there are none.
pub(crate) fn rejected_note(preview: &SourcePreview) -> Option<String> {
    let SourcePreview {
        rows,
        bad,
        bad_sample,
        rejected,
        rejected_sample,
        ..
    } = preview;
    let sample = bad_sample.as_ref().or(rejected_sample.as_ref());
    let sample = sample.map(String::as_str).unwrap_or_default();
    let (count, all) = (bad + rejected, rows + bad);
    let are = if count == 1 { "is" } else { "are" };
    let all = counted(all, "row");
    (count > 0).then(|| format!("{count} of {all} looked at {are} rejected, such as {sample}"))
}

/// Fault of a preview whose rows would all be rejected, and the remedy; `None` if some would land.
fn describe_all_rejected(preview: &SourcePreview) -> Option<String> {
    if preview.rows == 0 || preview.rejected < preview.rows {
        return None;
    }
    let mut columns = preview.columns.iter();
    let own = columns.find(|column| column.name.starts_with(system::PREFIX));
    let remedy = match own {
        Some(own) => format!(
            "`{}` is a column of an export of feedline: use the data that the export was made from, or rename or remove its columns \
             that begin with `{}`",
            own.name,
            system::PREFIX
        ),
        None => "correct the rows, or the settings that the reason names".to_owned(),
    };
    Some(format!(
        "a run would land nothing, because all {} looked at are rejected; {remedy}, then repeat `feedline init` with `--force`",
        counted(preview.rows, "row")
    ))
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
            let rows = counted(self.rows, "row");
            let mut text = format!("{} in {rows} looked at", self.columns);
            if self.compared < self.rows {
                text += &format!("; distinct values are those of the first {}", self.compared);
            }
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

#[cfg(test)]
mod tests {
    use feedline_ingest::ColumnPreview;

    use super::*;

    fn report(rows: u64, column: ColumnPreview, pagination: &Pagination) -> String {
        let location = Location::new("https://a.org/v1/items").unwrap();
        let preview = SourcePreview {
            rows,
            columns: vec![column],
            ..SourcePreview::default()
        };
        let file = "mit leer/b.toml".to_owned();
        let report = InitReport::new(file, &location, Some(&preview), pagination, None);
        let mut out = String::new();
        report.write(&mut out).unwrap();
        out
    }

    #[test]
    fn rows_that_are_all_rejected_are_no_data_for_a_run() {
        let location = Location::new("https://a.org/v1/items").unwrap();
        let init = |rejected: u64, name: &str| {
            let preview = SourcePreview {
                rows: 7,
                rejected,
                columns: vec![ColumnPreview {
                    name: name.to_owned(),
                    ..ColumnPreview::default()
                }],
                ..SourcePreview::default()
            };
            let (file, pages) = ("a.toml".to_owned(), Pagination::default());
            InitReport::new(file, &location, Some(&preview), &pages, None)
        };
        let report = init(7, "_feedline_key");
        assert_eq!(report.next, ["feedline check a.toml"]);
        let fault = "a run would land nothing, because all 7 rows looked at are rejected; `_feedline_key` is a column of an export";
        assert!(report.decisions[0].starts_with(fault), "{report:?}");
        let report = init(7, "a");
        assert!(report.decisions[0].contains("; correct the rows, or the settings"));
        assert_eq!(init(6, "a").next.len(), 3);
    }

    #[test]
    fn the_screen_shows_how_many_rows_were_judged_and_the_guess_about_pages() {
        let column = |compared: u64, missing: u64| ColumnPreview {
            compared,
            missing,
            ..ColumnPreview::default()
        };
        let guess = Pagination {
            pagination: Some("pagination = { type = \"keyset\" }".to_owned()),
            records: None,
            reason: Some("its ids ascend".to_owned()),
        };
        let text = report(100, column(60, 40), &guess);
        assert!(text.contains("1 in 100 rows looked at\n"), "{text}");
        assert!(
            text.contains("`pagination = { type = \"keyset\" }`, because its ids ascend; `source.pagination` changes it"),
            "{text}"
        );
        assert!(
            text.contains("feedline check 'mit leer/b.toml'\n"),
            "{text}"
        );
        let text = report(10_000, column(4096, 0), &Pagination::default());
        let judged = "1 in 10000 rows looked at; distinct values are those of the first 4096\n";
        assert!(text.contains(judged), "{text}");
    }
}
