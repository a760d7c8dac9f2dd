//! What the page says of each column.

use feedline_schemas::{
    profile::{CategoricalProfile, DatasetProfile, MissingCells, NumericCells, NumericProfile},
    transform::TransformArtefact,
};

use super::html::{bars, escape, histogram, number, percent, table};
use crate::profile::{caps, outside::rate};

/// Columns of each kind that are drawn.
const DRAWN: usize = 100;

/// Values of a category that are drawn.
const VALUES: usize = 12;

/// Columns whose missing cells are drawn.
const MISSING: usize = 30;

/// The columns that lack the most cells.
pub(super) fn missing(profile: &DatasetProfile) -> String {
    let numbers = profile.numeric.iter().filter_map(|c| {
        let train = c.splits.first()?;
        Some((c.name.clone(), train.missing, train.cells()))
    });
    let texts = profile.categorical.iter().filter_map(|c| {
        let train = c.splits.first()?;
        Some((c.name.clone(), train.missing, train.cells()))
    });
    let mut columns: Vec<_> = numbers.chain(texts).filter(|c| c.1 > 0).collect();
    columns.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut out = "<h2>Missing cells</h2>\n".to_owned();
    if columns.is_empty() {
        return out + "<p>No cell of the training split is missing.</p>\n" + &kinds(profile);
    }
    let all = columns.len();
    columns.truncate(MISSING);
    let rows: Vec<_> = columns
        .into_iter()
        .map(|(name, missing, cells)| (name, missing, format!("({})", percent(missing, cells))))
        .collect();
    out += &bars("Missing cells of the training split", &rows);
    if all > MISSING {
        out += &format!(
            "<p class=\"quiet\">{} more columns lack some.</p>\n",
            all - MISSING
        );
    }
    out + &kinds(profile)
}

/// What missing cells were as they landed.
fn kinds(profile: &DatasetProfile) -> String {
    if profile.missing.is_empty() {
        return String::new();
    }
    let row = |cells: &MissingCells| -> Vec<String> {
        let counts = [
            cells.null,
            cells.nan,
            cells.empty,
            cells.declared,
            cells.no_number,
        ];
        let counts = counts.map(|count| count.to_string());
        std::iter::once(cells.name.clone()).chain(counts).collect()
    };
    let rows: Vec<_> = profile.missing.iter().take(MISSING).map(row).collect();
    table(
        "What missing cells were, in all rows as they landed, copies and bad rows included.",
        &[
            "column",
            "null",
            "nan",
            "empty text",
            "declared missing",
            "text that is no number",
        ],
        1..6,
        &rows,
    )
}

/// Each column, drawn and in figures.
pub(super) fn all(profile: &DatasetProfile, artefact: &TransformArtefact) -> String {
    let mut out = "<h2>Columns</h2>\n".to_owned();
    for column in profile.numeric.iter().take(DRAWN) {
        out += &numeric(column, artefact);
    }
    for column in profile.categorical.iter().take(DRAWN) {
        out += &categorical(column);
    }
    let left = |count: usize| count.saturating_sub(DRAWN);
    let left = left(profile.numeric.len()) + left(profile.categorical.len());
    if left > 0 {
        out += &format!("<p class=\"quiet\">{left} more columns are in the profile.</p>\n");
    }
    out
}

fn heading(name: &str, target: bool) -> String {
    let target = if target { " (target)" } else { "" };
    format!("<h3>{}{target}</h3>\n", escape(name))
}

fn numeric(column: &NumericProfile, artefact: &TransformArtefact) -> String {
    let mut out = heading(&column.name, column.target);
    out += "<div class=\"charts\">\n";
    if let (Some(range), Some(train)) = (column.range, column.splits.first()) {
        let marks: Vec<_> = caps(artefact, &column.name)
            .into_iter()
            .flatten()
            .map(mark)
            .collect();
        let title = format!("{}, training split as it landed", column.name);
        out += &histogram(&title, range, &train.histogram, &marks);
    }
    if let Some(after) = &column.after {
        let title = format!("{}, training split after all steps", column.name);
        out += &histogram(&title, after.range, &after.counts, &[]);
    }
    out += "</div>\n";
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let row = |cells: &NumericCells| {
        vec![
            cells.split.to_string(),
            cells.cells().to_string(),
            cells.missing.to_string(),
            percent(cells.missing, cells.cells()),
            (cells.low_infinite + cells.high_infinite).to_string(),
            shown(cells.min),
            shown(cells.mean),
            shown(cells.deviation),
            shown(cells.max),
            outside(cells),
        ]
    };
    let rows: Vec<_> = column.splits.iter().map(row).collect();
    let head = [
        "split",
        "cells",
        "missing",
        "share",
        "infinite",
        "min",
        "mean",
        "deviation",
        "max",
        "outside",
    ];
    out + &table("Cells before the first step.", &head, 1..10, &rows)
}

/// The share of the cells that are not missing that lies outside.
fn outside(cells: &NumericCells) -> String {
    let (outside, there) = rate(cells);
    percent(outside, there)
}

/// A cap with its percentile, 0 to 1, as a place on an axis.
fn mark((share, at): (f64, f64)) -> (f64, String) {
    let word = format!("cap at {} %: {}", number(share * 100.0), number(at));
    (at, word)
}

fn categorical(column: &CategoricalProfile) -> String {
    let mut out = heading(&column.name, column.target);
    let Some(train) = column.splits.first() else {
        return out;
    };
    let counted = column.values.iter().zip(&train.counts);
    let mut rows: Vec<_> = counted
        .take(VALUES)
        .map(|(value, count)| {
            (
                value.clone(),
                *count,
                format!("({})", percent(*count, train.cells())),
            )
        })
        .collect();
    let rare = train.counts.iter().skip(VALUES).sum::<u64>() + train.other;
    for (name, count) in [("all others", rare), ("missing", train.missing)] {
        if count > 0 {
            let share = format!("({})", percent(count, train.cells()));
            rows.push((format!("[{name}]"), count, share));
        }
    }
    let title = format!("{}, training split", column.name);
    out += &bars(&title, &rows);
    let row = |cells: &feedline_schemas::profile::CategoricalCells| {
        vec![
            cells.split.to_string(),
            cells.cells().to_string(),
            cells.missing.to_string(),
            percent(cells.missing, cells.cells()),
            cells.distinct.to_string(),
            cells.other.to_string(),
        ]
    };
    let rows: Vec<_> = column.splits.iter().map(row).collect();
    let head = [
        "split",
        "cells",
        "missing",
        "share",
        "different values",
        "of values not listed",
    ];
    out + &table("Cells before the first step.", &head, 1..6, &rows)
}
