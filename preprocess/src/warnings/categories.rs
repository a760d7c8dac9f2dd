//! Warnings of categories: values that are unknown, alike, numbers or times.

use std::collections::BTreeMap;

use feedline_schemas::{
    count::counted,
    manifest::Split,
    record::ColumnType,
    report::{WarnedColumn, Warning},
    transform::FittedCategories,
};

use super::{
    message::{
        COLUMNS, GROUPS, first_of, list_columns, percent, quoted, share, warned_columns, warning,
    },
    spelling::{alike, difference, is_number, remedy},
};
use crate::{operators::time_series::Instant, schema::landed_columns::shown};

/// Minimum value count for the check of a category.
const FEW_VALUES: usize = 5;

/// Minimum fraction of numeric values for a category to look numeric.
const MOSTLY: f64 = 0.8;

/// Code of a warning about values of categories that the transform does not know, in the rows of one build.
pub(super) const UNKNOWN_CATEGORIES: &str = "unknown_categories";

/// Code of a warning about a category whose values the transform knows in part.
pub(crate) const CATEGORIES_CUT: &str = "categories_cut";

/// Category with only its most frequent values known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CutCategories {
    pub(crate) column: String,
    /// Count of known values.
    pub(crate) known: usize,
    /// Count of distinct values in the training split.
    pub(crate) distinct: u64,
    /// Rows with an unknown value and all rows, per split in the order of [`Split::ALL`].
    pub(crate) unknown: [(u64, u64); 3],
}

impl CutCategories {
    /// Describes the column, its values and the rows that became unknown.
    pub(crate) fn warning(&self) -> Warning {
        let Self {
            column,
            known,
            distinct,
            unknown,
        } = self;
        let splits = Split::ALL.into_iter().zip(unknown);
        let splits = splits.filter(|(_, (_, rows))| *rows > 0);
        let splits: Vec<String> = splits
            .map(|(split, (unknown, rows))| {
                format!(
                    "{unknown} of {} ({})",
                    counted(*rows, &format!("{split} row")),
                    percent(*unknown, *rows)
                )
            })
            .collect();
        let message = format!(
            "column `{}` has {distinct} values in the training split and the {known} most frequent are known; {} became \
             unknown; raise `max_values` of its `categories` step, or encode it by `frequency` or `hash`",
            shown(column),
            splits.join(", ")
        );
        warning(CATEGORIES_CUT, "dataset.step.max_values", message)
            .with_columns(warned_columns([column.as_str()]))
    }
}

/// Warns of a column of times that became a category.
pub(super) fn times_as_categories(
    category: &FittedCategories,
    r#type: Option<ColumnType>,
) -> Option<Warning> {
    let values = &category.values;
    let iso = Instant::iso();
    let is_date = |value: &String| value.contains(['-', ':']) && iso.of_text(value).is_some();
    let is_time = r#type == Some(ColumnType::Timestamp)
        || (values.len() >= FEW_VALUES && values.iter().all(is_date));
    is_time.then(|| {
        let sample = values.first().map_or_else(String::new, |v| quoted(v));
        let message = format!(
            "column `{}` holds times such as {sample} and became a category of {} values: a time that comes later is unknown \
             to a model; leave it out with `dataset.drop`, make it the time of `dataset.series`, or compute numbers of it \
             with `dataset.sql`",
            shown(&category.name),
            values.len()
        );
        warning("times_as_categories", "dataset.drop", message)
            .with_columns(warned_columns([category.name.as_str()]))
    })
}

/// Warns of a column of mostly numeric strings that became a category.
pub(super) fn numbers_as_categories(
    category: &FittedCategories,
    r#type: Option<ColumnType>,
) -> Option<Warning> {
    if !matches!(r#type, Some(ColumnType::Utf8)) || category.values.len() < FEW_VALUES {
        return None;
    }
    let (numbers, others): (Vec<&String>, Vec<&String>) =
        category.values.iter().partition(|value| is_number(value));
    let most = share(numbers.len() as u64, category.values.len() as u64);
    (most >= MOSTLY).then(|| {
        let others: Vec<String> = others.iter().map(|value| quoted(value)).collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!(", the others are {}", first_of(&others, GROUPS)),
        };
        let key = match numbers.iter().any(|number| number.contains('%')) {
            true => "`csv.percent`, and `csv.decimal_separator` for commas, of its source, before it lands",
            false => "`dataset.decimal_separator`",
        };
        let message = format!(
            "column `{}` landed as text and became a category, yet {} of its {} known values look like numbers, such as \
             {}{others}; name the spellings of a missing value (`csv.null_values` of its source, before it lands), or how its \
             numbers are written ({key}), and list it in the `columns` of numeric steps",
            shown(&category.name),
            numbers.len(),
            category.values.len(),
            quoted(numbers.first().map_or("", |value| value.as_str())),
        );
        warning("numbers_as_categories", "dataset.step", message)
            .with_columns(warned_columns([category.name.as_str()]))
    })
}

/// Warns of values of a category that differ in their spelling only.
pub(super) fn categories_alike(category: &FittedCategories) -> Option<Warning> {
    let counted = category.values.iter().zip(category.counts.iter().copied());
    let alike = alike(counted);
    (!alike.is_empty()).then(|| {
        let message = format!(
            "values of column `{}` differ in {} only and are categories of their own: {}; {}",
            shown(&category.name),
            difference(&alike),
            first_of(&alike, GROUPS),
            remedy(&alike)
        );
        warning("categories_alike", "dataset.sql", message)
            .with_columns(warned_columns([category.name.as_str()]))
    })
}

/// Warns of rows whose category the transform does not know. Each column has such rows of each split, and all rows of it, in the
/// order of [`Split::ALL`]; splits without rows are absent from the message.
pub(crate) fn unknown_categories(
    cells: &BTreeMap<String, [u64; 3]>,
    rows: [u64; 3],
    splits: &[Split],
) -> Option<Warning> {
    let mut columns = Vec::new();
    for (column, cells) in cells {
        let counted = Split::ALL.into_iter().zip(cells).zip(rows);
        let counted = counted.filter(|((split, cells), _)| splits.contains(split) && **cells > 0);
        let counted: Vec<String> = counted
            .map(|((split, cells), rows)| {
                format!("{cells} of {rows} {split} rows, {}", percent(*cells, rows))
            })
            .collect();
        if !counted.is_empty() {
            columns.push(WarnedColumn::with_found(column, counted.join("; ")));
        }
    }
    (!columns.is_empty()).then(|| {
        // Only rows that were appended have training rows with values that the fit does not know.
        let (known, refit) = match splits.contains(&Split::Train) {
            true => (
                "the rows that the transform was fitted to",
                "learn new ones with `feedline shards build --refit`, ",
            ),
            false => ("training rows", ""),
        };
        let message = format!(
            "values of categories that are not known from {known} became unknown, so a model has learnt nothing of them: {}; \
             {refit}reject such rows with `unknown = \"reject\"` of a `categories` step without `min_count`, encode by `hash`, or \
             leave the column out with `dataset.drop`",
            list_columns(&columns, COLUMNS)
        );
        warning(UNKNOWN_CATEGORIES, "dataset.step.unknown", message).with_columns(columns)
    })
}
