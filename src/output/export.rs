//! Report of `feedline export`.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use feedline_schemas::{
    count::first_of,
    export::{DataExportReport, ExportedRows},
    units::ByteSize,
};

use super::text::{Text, counted, grouped, line, write_warnings};

/// Columns that are listed, each with its reason.
const LISTED: usize = 10;

impl Text for DataExportReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        let replaced = if self.replaced {
            " (an earlier export was replaced)"
        } else {
            ""
        };
        writeln!(out, "export{replaced}")?;
        match &self.of {
            ExportedRows::Source {
                name,
                sequence,
                latest,
                ..
            } => {
                line(
                    out,
                    "source",
                    format!("`{name}` up to entry {}", sequence.get()),
                )?;
                if *latest {
                    let text = format!(
                        "{} left out; `--all-versions` exports them",
                        grouped(self.older_versions)
                    );
                    line(out, "older versions", text)?;
                }
            }
            ExportedRows::Dataset {
                name,
                fingerprint,
                transform,
            } => {
                line(
                    out,
                    "dataset",
                    format!("`{name}`, fingerprint {fingerprint}"),
                )?;
                let text = format!("values are after {transform}");
                line(out, "transform", text)?;
            }
        }
        line(
            out,
            "rows",
            format!(
                "{} in {}",
                grouped(self.rows),
                counted(self.columns, "column")
            ),
        )?;
        for (split, rows) in &self.splits {
            line(out, &format!("  {split}"), grouped(*rows))?;
        }
        write_columns("  converted", &self.converted, out)?;
        write_columns("  left out", &self.left_out, out)?;
        if !self.json_text.is_empty() {
            line(out, "  JSON text", json_text(&self.json_text))?;
        }
        if self.not_finite > 0 {
            let text = format!(
                "{} NaN or infinite, written as Python's `json` does; standard JSON has none",
                grouped(self.not_finite)
            );
            line(out, "  numbers", text)?;
        }
        let text = format!("{} with {}", self.files, ByteSize::new(self.bytes));
        line(out, "files", text)?;
        write_warnings(&self.warnings, out)?;
        line(out, self.format.name(), &self.url)
    }
}

/// Columns with JSON text, and the key that lands lists instead.
fn json_text(columns: &[String]) -> String {
    let columns = columns.iter().map(|column| format!("`{column}`"));
    let columns: Vec<String> = columns.collect();
    format!(
        "{}, as landed; `contract.lists = \"list\"` lands lists as lists",
        first_of(&columns, LISTED)
    )
}

fn write_columns(name: &str, columns: &BTreeMap<String, String>, out: &mut String) -> fmt::Result {
    for (column, reason) in columns.iter().take(LISTED) {
        line(out, name, format!("`{column}`: {reason}"))?;
    }
    match columns.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => line(
            out,
            name,
            counted(more as u64, "column") + " more; `--json` lists all",
        ),
    }
}
