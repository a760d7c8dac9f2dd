//! Warnings of features: columns that are none by default, are constant, or look like identifiers.

use std::collections::BTreeMap;

use feedline_schemas::{
    count::counted,
    record::ColumnType,
    report::Warning,
    transform::{FittedCategories, FittedStep, TransformArtefact},
};

use super::{
    categories::{categories_alike, numbers_as_categories, times_as_categories},
    classes::class_warnings,
    message::{COLUMNS, first_of, warning},
};
use crate::{
    schema::landed_columns::{MergedColumn, listed, shown},
    steps::{self, ColumnWarning},
};

/// Reason of a column that is left out since statistics have nothing to be made of.
pub(crate) const NO_TRAIN_VALUE: &str = "holds no value in any training row";

/// Beginning of the reason of a column that a key names for another use.
const NAMED_IN: &str = "is named in `";

/// Reason of a column that is no feature since `key` names it.
pub(crate) fn named_in(key: &str) -> String {
    format!("{NAMED_IN}{key}`, and `dataset.features` does not list it")
}

/// Returns true for the reason of a column that is no feature since a key names it for another use,
/// such as `dataset.passthrough`: it is reported without a warning.
#[must_use]
pub fn is_named_elsewhere(reason: &str) -> bool {
    reason.starts_with(NAMED_IN)
}

/// Warns of columns that are left out since none of `rows` training rows has a value, each with the rows of validation and test
/// that have one.
pub(crate) fn without_train_values(
    columns: &BTreeMap<String, [u64; 2]>,
    rows: u64,
) -> Option<Warning> {
    let describe = |(name, [validation, test]): (&String, &[u64; 2])| {
        format!(
            "`{}` ({} and {} have one)",
            shown(name),
            counted(*validation, "validation row"),
            counted(*test, "test row")
        )
    };
    let described: Vec<String> = columns.iter().map(describe).collect();
    (!columns.is_empty()).then(|| {
        let subject = match columns.len() {
            1 => "a column is no feature: it holds",
            _ => "columns are no features: each holds",
        };
        let message = format!(
            "{subject} no value in any of {rows} training rows: {}; list it in `dataset.drop` to say that this is meant, fill it \
             with an `impute` step of `strategy = \"constant\"` that lists it, or have rows with a value in the training split \
             (`dataset.split`)",
            first_of(&described, COLUMNS)
        );
        warning("columns_dropped", "dataset.drop", message)
    })
}

/// Warns of columns that are no features by default, grouped by reason.
pub(crate) fn columns_dropped(dropped: &BTreeMap<String, String>) -> Vec<Warning> {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let others = dropped
        .iter()
        .filter(|(_, reason)| *reason != NO_TRAIN_VALUE && !is_named_elsewhere(reason));
    for (column, reason) in others {
        by_reason.entry(reason).or_default().push(column);
    }
    let each = by_reason.into_iter().map(|(reason, columns)| {
        let (key, advice) = match reason {
            _ if reason.contains("text") => (
                "dataset.categorical",
                "list it in `dataset.categorical` to have it as a category, or in `dataset.drop`",
            ),
            _ if reason.contains("time") => (
                "dataset.drop",
                "make it the time of `dataset.series`, compute numbers of it with `dataset.sql`, or list it in `dataset.drop`",
            ),
            _ => (
                "dataset.drop",
                "list it in `dataset.drop` to say that this is meant",
            ),
        };
        let names = listed(&columns, "`");
        let message = match columns.len() {
            1 => format!("column {names} is no feature: it {reason}; {advice}"),
            _ => format!("columns {names} are no features: each {reason}; {advice}"),
        };
        warning("columns_dropped", key, message)
    });
    each.collect()
}

/// Returns the reason that a landed column of this type cannot be a feature, if any.
pub(crate) fn why_no_feature(r#type: ColumnType) -> Option<&'static str> {
    match r#type {
        ColumnType::Null => Some("holds no value in any row"),
        ColumnType::Binary => Some("holds bytes"),
        ColumnType::Json => Some("holds lists or objects"),
        list if list.is_list() => Some("holds lists"),
        _ => None,
    }
}

/// Returns the warnings of the fitted statistics. `columns` are the landed ones, and `by_default`
/// says which of them are features only by default.
pub(crate) fn of_transform(
    artefact: &TransformArtefact,
    columns: &[MergedColumn],
    by_default: impl Fn(&str) -> bool,
) -> Vec<Warning> {
    let steps = artefact.steps.iter();
    let categories: Vec<&FittedCategories> = steps
        .filter_map(|step| match step {
            FittedStep::Categories { columns } => Some(columns),
            _ => None,
        })
        .flatten()
        .collect();
    let mut found = Vec::new();
    found.extend(constant_columns(artefact, &categories));
    found.extend(knn_of_one_column(artefact));
    let asked = |c: &&&FittedCategories| by_default(&c.name) && c.buckets.is_none();
    for category in categories.iter().filter(asked) {
        let landed = columns.iter().find(|column| column.name == category.name);
        let r#type = landed.map(|column| column.r#type);
        found.extend(times_as_categories(category, r#type));
        found.extend(numbers_as_categories(category, r#type));
    }
    found.extend(
        categories
            .iter()
            .filter_map(|category| categories_alike(category)),
    );
    found.extend(class_warnings(artefact));
    found
}

/// Warns of columns that an `impute` step fills from neighbours without another column that rows may be near in.
fn knn_of_one_column(artefact: &TransformArtefact) -> Option<Warning> {
    let alone = artefact.steps.iter().filter_map(|step| match step {
        FittedStep::Knn { columns, .. } => match &columns[..] {
            [column] => Some(column.name.as_str()),
            _ => None,
        },
        _ => None,
    });
    let alone: Vec<&str> = alone.collect();
    (!alone.is_empty()).then(|| {
        let message = format!(
            "`impute` with `strategy = \"knn\"` finds no neighbours, and fills missing cells with the mean, in the only column of \
             a step: {}; distances use the columns of the step alone, so list numbers that make rows alike in its `columns` too, or \
             write `strategy = \"mean\"`, which fills the same number",
            listed(&alone, "`")
        );
        warning("knn_of_one_column", "dataset.step", message)
    })
}

/// Warns of columns that are (nearly) constant over all training rows after the steps.
fn constant_columns(
    artefact: &TransformArtefact,
    categories: &[&FittedCategories],
) -> Vec<Warning> {
    let mut constant: Vec<&str> = Vec::new();
    let mut warned: Vec<(&str, ColumnWarning)> = Vec::new();
    for column in artefact.steps.iter().flat_map(steps::columns) {
        let name = column.name();
        let is_warned = warned.iter().any(|(other, _)| *other == name);
        if column.is_constant() && !is_warned {
            constant.push(name);
        }
        warned.extend(column.warning().map(|warning| (name, warning)));
    }
    let rows = artefact.fitted_rows;
    let is_same = |c: &&&FittedCategories| match c.counts.as_slice() {
        [] => c.buckets.is_none(),
        [all] => *all == rows,
        _ => false,
    };
    constant.extend(categories.iter().filter(is_same).map(|c| c.name.as_str()));
    constant.sort_unstable();
    constant.dedup();
    let mut found = Vec::new();
    if !constant.is_empty() {
        let message = format!(
            "the same value (as a 64-bit float) in all training rows, so a model cannot learn from it: {}; leave it out with `dataset.drop`",
            listed(&constant, "`")
        );
        found.push(warning("constant_columns", "dataset.drop", message));
    }
    found.extend(of_columns(&warned));
    found
}

/// One warning for each code, with its columns in order.
fn of_columns(warned: &[(&str, ColumnWarning)]) -> Vec<Warning> {
    let mut found: Vec<Warning> = Vec::new();
    for (_, first) in warned {
        if found.iter().any(|warning| warning.code == first.code) {
            continue;
        }
        let same = warned.iter().filter(|(_, other)| other.code == first.code);
        let columns = same.map(|(name, of)| format!("`{}` ({})", shown(name), of.figures));
        let columns: Vec<String> = columns.collect();
        let (problem, advice) = (first.problem, first.advice);
        let message = format!("{problem}: {}; {advice}", first_of(&columns, COLUMNS));
        found.push(warning(first.code, "dataset.step", message));
    }
    found
}

/// Warns of integer features that count up by one and restart, as a number of the rows of each group does.
pub fn looks_like_row_number(columns: &[&str]) -> Option<Warning> {
    (!columns.is_empty()).then(|| {
        let message = format!(
            "integers that count up by one and restart, as the row number of a group does, and a feature: {}; leave it out \
             with `dataset.drop`, or list it in `dataset.features` if it is a quantity",
            listed(columns, "`")
        );
        warning("looks_like_row_number", "dataset.drop", message)
    })
}

/// Warns of features that are the index of pandas, by their names in Parquet, or by their names and their integers, which rise
/// from row to row in each file.
pub fn looks_like_index(columns: &[&str]) -> Option<Warning> {
    (!columns.is_empty()).then(|| {
        let message = format!(
            "the index that pandas writes, by its name and numbers, and a feature: {}; it has the order of the rows, which may \
             follow the target; leave it out with `dataset.drop`, or list it in `dataset.features` if it is a quantity",
            listed(columns, "`")
        );
        warning("looks_like_row_number", "dataset.drop", message)
    })
}

/// Warns of integer features that differ from row to row, as identifiers do.
pub(crate) fn look_like_identifiers(columns: &[&str], rows: u64) -> Option<Warning> {
    (!columns.is_empty()).then(|| {
        let message = format!(
            "a different integer in each of {rows} training rows, as an identifier has, and a feature: {}; leave it out with \
             `dataset.drop`, or list it in `dataset.features` if it is a quantity",
            listed(columns, "`")
        );
        warning("looks_like_identifier", "dataset.drop", message)
    })
}
