//! Columns in the dataset report: a table of all of them, and a section each.

use feedline_report::{
    Histogram, TableRow, bars, escape, foldable, link, percent, significant, table,
};
use feedline_schemas::{
    count::counted,
    manifest::Split,
    profile::{CategoricalProfile, DatasetProfile, MissingCells, NumericCells, NumericProfile},
    transform::TransformArtefact,
};

use crate::statistics::profile::{caps, outside::rate};

/// Columns of each kind that are drawn.
const DRAWN: usize = 100;

/// Columns in the table of columns that are shown at once.
const LISTED: usize = 40;

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
            "<p class=\"quiet\">Some are missing in {} too.</p>\n",
            counted((all - MISSING) as u64, "more column")
        );
    }
    out + &kinds(profile)
}

/// Kinds of the missing cells, as they landed.
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

/// A column of either kind.
#[derive(Clone, Copy)]
enum Column<'a> {
    Numbers(&'a NumericProfile),
    Texts(&'a CategoricalProfile),
}

impl Column<'_> {
    const fn is_target(&self) -> bool {
        match self {
            Self::Numbers(column) => column.target,
            Self::Texts(column) => column.target,
        }
    }

    /// Cells of the column in the table of columns, as HTML; `drawn` is the number of its section, where it has one.
    fn cells(&self, drawn: Option<usize>) -> Vec<String> {
        let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
        let none = || "-".to_owned();
        let (name, kind, missing, figures) = match self {
            Self::Numbers(column) => {
                let train = column.splits.first();
                let missing = train.map(|cells| percent(cells.missing, cells.cells()));
                let of = |value: fn(&NumericCells) -> Option<f64>| shown(train.and_then(value));
                let figures = [
                    none(),
                    of(|cells| cells.mean),
                    of(|cells| cells.deviation),
                    of(|cells| cells.min),
                    of(|cells| cells.max),
                ];
                (&column.name, "number", missing, figures)
            }
            Self::Texts(column) => {
                let train = column.splits.first();
                let missing = train.map(|cells| percent(cells.missing, cells.cells()));
                let distinct = train.map_or_else(none, |cells| cells.distinct.to_string());
                let figures = [distinct, none(), none(), none(), none()];
                (&column.name, "text", missing, figures)
            }
        };
        let name = drawn.map_or_else(|| escape(name), |i| link(&format!("#c{i}"), name));
        let role = if self.is_target() {
            "target"
        } else {
            "feature"
        };
        let first = [
            name,
            role.to_owned(),
            kind.to_owned(),
            missing.unwrap_or_else(none),
        ];
        first.into_iter().chain(figures).collect()
    }
}

/// All columns in the order of the page: the target, then the numbers and the texts that are drawn, then the others.
fn ordered(profile: &DatasetProfile) -> (Vec<Column<'_>>, usize) {
    let numbers: Vec<_> = profile.numeric.iter().map(Column::Numbers).collect();
    let texts: Vec<_> = profile.categorical.iter().map(Column::Texts).collect();
    let (first_numbers, more_numbers) = numbers.split_at(numbers.len().min(DRAWN));
    let (first_texts, more_texts) = texts.split_at(texts.len().min(DRAWN));
    let mut all = [first_numbers, first_texts, more_numbers, more_texts].concat();
    let mut drawn = first_numbers.len() + first_texts.len();
    if let Some(target) = all.iter().position(Column::is_target) {
        drawn += usize::from(target >= drawn);
        all[..=target].rotate_right(1);
    }
    (all, drawn)
}

/// A table of all columns.
pub(super) fn overview(profile: &DatasetProfile) -> String {
    let (all, drawn) = ordered(profile);
    if all.is_empty() {
        return String::new();
    }
    let row =
        |(i, column): (usize, &Column<'_>)| TableRow::new(column.cells((i < drawn).then_some(i)));
    let rows: Vec<_> = all.iter().enumerate().map(row).collect();
    let head = [
        "column",
        "role",
        "type",
        "missing",
        "distinct",
        "mean",
        "deviation",
        "min",
        "max",
    ];
    let caption = "Cells of the training split before the first step. Texts have distinct values, numbers the other figures.";
    let table = foldable(caption, &head, 3..9, &rows, LISTED);
    format!("<h2>Overview of columns</h2>\n{table}")
}

/// Each column, drawn and in figures, the target first.
pub(super) fn all(profile: &DatasetProfile, artefact: &TransformArtefact) -> String {
    let mut out = "<h2>Columns</h2>\n".to_owned();
    let (all, drawn) = ordered(profile);
    for (i, column) in all.iter().take(drawn).enumerate() {
        out += &match column {
            Column::Numbers(column) => numeric(i, column, artefact),
            Column::Texts(column) => categorical(i, column),
        };
    }
    let left = all.len() - drawn;
    if left > 0 {
        let left = counted(left as u64, "more column");
        out += &format!("<p class=\"quiet\">The profile has {left}.</p>\n");
    }
    out
}

fn heading(i: usize, name: &str, target: bool) -> String {
    let target = if target { " (target)" } else { "" };
    format!("<h3 id=\"c{i}\">{}{target}</h3>\n", escape(name))
}

fn numeric(i: usize, column: &NumericProfile, artefact: &TransformArtefact) -> String {
    let mut out = heading(i, &column.name, column.target);
    out += "<div class=\"charts\">\n";
    if let (Some(range), Some(train)) = (column.range, column.splits.first()) {
        let marks: Vec<_> = caps(artefact, &column.name)
            .into_iter()
            .flatten()
            .map(mark)
            .collect();
        let title = format!("{}, training split as it landed", column.name);
        let test = column
            .splits
            .iter()
            .find(|cells| cells.split == Split::Test);
        let histogram = Histogram {
            title: &title,
            range,
            counts: &train.histogram,
            beside: test.map(|test| ("test", &test.histogram[..])),
            marks: &marks,
        };
        out += &histogram.figure();
    }
    if let Some(after) = &column.after {
        let title = format!("{}, training split after all steps", column.name);
        let histogram = Histogram {
            title: &title,
            range: after.range,
            counts: &after.counts,
            beside: None,
            marks: &[],
        };
        out += &histogram.figure();
    }
    out += "</div>\n";
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
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

/// Fraction of the present cells that are outside.
fn outside(cells: &NumericCells) -> String {
    let (outside, there) = rate(cells);
    percent(outside, there)
}

/// A cap with its percentile, 0 to 1, as a place on an axis.
fn mark((share, at): (f64, f64)) -> (f64, String) {
    let word = format!(
        "cap at {} %: {}",
        significant(share * 100.0),
        significant(at)
    );
    (at, word)
}

fn categorical(i: usize, column: &CategoricalProfile) -> String {
    let mut out = heading(i, &column.name, column.target);
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

#[cfg(test)]
mod tests {
    use feedline_schemas::Versioned as _;

    use super::*;

    fn numbers(name: &str, target: bool) -> NumericProfile {
        NumericProfile {
            name: name.to_owned(),
            target,
            edges: Vec::new(),
            range: None,
            splits: Vec::new(),
            after: None,
        }
    }

    #[test]
    fn the_target_is_first_even_where_it_would_not_be_drawn() {
        let profile = |features: usize, target: bool| {
            let mut numeric: Vec<_> = (0..features)
                .map(|i| numbers(&format!("f{i}"), false))
                .collect();
            numeric.extend(target.then(|| numbers("<t>", true)));
            DatasetProfile {
                format: DatasetProfile::TAG.format.to_owned(),
                version: DatasetProfile::TAG.version,
                hash: feedline_schemas::ids::Hash128::new(0),
                numeric,
                categorical: Vec::new(),
                missing: Vec::new(),
            }
        };
        for (features, target, drawn) in [(3, true, 4), (3, false, 3), (DRAWN + 5, true, DRAWN + 1)]
        {
            let profile = profile(features, target);
            assert_eq!(ordered(&profile).1, drawn);
            let table = overview(&profile);
            assert_eq!(
                table.matches("<th scope=\"row\">").count(),
                features + usize::from(target)
            );
            assert_eq!(table.matches("href=\"#c").count(), drawn);
            let first = "<tr><th scope=\"row\"><a href=\"#c0\">&lt;t&gt;</a></th><td>target</td>";
            assert_eq!(
                table.contains(&format!("<tbody>\n{first}")),
                target,
                "{table}"
            );
        }
    }
}
