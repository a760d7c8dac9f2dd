//! The report of predictions as text.

use std::{collections::BTreeMap, fmt};

use feedline_schemas::{
    count::{first_counted, noun_of},
    report::{PredictReport, PredictedJoin},
};

use super::unusual::split_far_outside;
use crate::output::{Text, counted, line, used_run, write_rejects, write_warnings};

/// Columns that one line of the report names.
const NAMED: usize = 10;

/// Lists the columns with the most cells, and the number of further ones.
fn most_of(cells: &BTreeMap<String, u64>) -> String {
    let mut columns: Vec<(&String, &u64)> = cells.iter().collect();
    columns.sort_by_key(|(name, cells)| (std::cmp::Reverse(**cells), *name));
    let columns: Vec<String> = columns
        .iter()
        .map(|(name, cells)| format!("`{name}` ({cells})"))
        .collect();
    first_counted(&columns, NAMED, "column")
}

/// Writes the joins of the rows, and the rows that needed none.
fn write_joins(report: &PredictReport, out: &mut String) -> fmt::Result {
    for join in &report.joins {
        let PredictedJoin {
            source,
            matched,
            unmatched,
        } = join;
        let matched = counted(*matched, "row");
        let text = format!("`{source}`: {matched} matched, {unmatched} did not");
        line(out, "joined", text)?;
    }
    if report.joined_before > 0 {
        let rows = counted(report.joined_before, "row");
        let text = format!("{rows} had the joined columns, so nothing was joined to them");
        line(out, "joined", text)?;
    }
    Ok(())
}

impl Text for PredictReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        use fmt::Write as _;
        writeln!(out, "predict")?;
        line(out, "rows", self.rows.to_string())?;
        write_rejects(&self.rejected_by_reason, self.reject_sample.as_deref(), out)?;
        write_joins(self, out)?;
        for (name, columns) in [("ignored", &self.ignored), ("absent", &self.absent)] {
            if !columns.is_empty() {
                let noun = noun_of(columns.len() as u64, "column");
                line(out, name, format!("{noun} `{}`", columns.join("`, `")))?;
            }
        }
        let [beyond_caps, outside] = split_far_outside(self);
        for (name, cells, what) in [
            ("missing", &self.missing_cells, "cells without a value"),
            (
                "unknown",
                &self.unknown_categories,
                "rows with a category that too few training rows have, or none",
            ),
            (
                "far",
                &beyond_caps,
                "cells far beyond the caps of `winsorize`",
            ),
            ("far", &outside, "cells far outside of the training rows"),
        ] {
            if !cells.is_empty() {
                line(out, name, format!("{what}: {}", most_of(cells)))?;
            }
        }
        if !self.ordered_by.is_empty() {
            let order = self.ordered_by.join("`, `");
            line(
                out,
                "order",
                format!("by `{order}`; `row` counts in this order"),
            )?;
        }
        line(out, "transform", &self.transform)?;
        if self.copies > 0 {
            line(
                out,
                "copies",
                format!(
                    "{} without a prediction of their own",
                    counted(self.copies, "duplicate row")
                ),
            )?;
        }
        if self.rejected_before > 0 {
            line(
                out,
                "past",
                counted(self.rejected_before, "row") + " rejected, as in a build",
            )?;
        }
        if let Some(used) = &self.used {
            used_run::write(used, out)?;
        }
        if let Some(checkpoint) = &self.checkpoint {
            line(out, "model", checkpoint)?;
        }
        line(out, "predictions", &self.to)?;
        write_warnings(&self.warnings, out)
    }
}
