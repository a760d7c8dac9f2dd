//! Warnings of features: columns that are none by default, are constant, or look like identifiers.

use std::collections::BTreeMap;

use feedline_schemas::{
    count::counted,
    report::{WarnedColumn, Warning},
    transform::{FittedCategories, FittedStep, TransformArtefact},
};

use super::{
    categories::{categories_alike, numbers_as_categories, times_as_categories},
    classes::class_warnings,
    message::{COLUMNS, list_columns, warned_columns, warning},
};
use crate::{
    schema::{
        landed_columns::{MergedColumn, listed},
        no_feature::NoFeatureReason,
    },
    steps::{self, ColumnWarning},
};

/// Code of the warnings about columns that are no features by default. They name all of these but the columns that a key names
/// for another use, such as `dataset.passthrough`: those are reported without a warning.
pub const COLUMNS_DROPPED: &str = "columns_dropped";

/// Warns of columns that are left out since none of `rows` training rows has a value, each with the rows of validation and test
/// that have one.
pub(crate) fn without_train_values(
    columns: &BTreeMap<String, [u64; 2]>,
    rows: u64,
) -> Option<Warning> {
    let describe = |(name, [validation, test]): (&String, &[u64; 2])| {
        let validation = counted(*validation, "validation row");
        let test = counted(*test, "test row");
        WarnedColumn::with_found(name, format!("{validation} and {test} have one"))
    };
    let columns: Vec<WarnedColumn> = columns.iter().map(describe).collect();
    (!columns.is_empty()).then(|| {
        let subject = match columns.len() {
            1 => "a column is no feature: it holds",
            _ => "columns are no features: each holds",
        };
        let message = format!(
            "{subject} no value in any of {rows} training rows: {}; list it in `dataset.drop` to say that this is meant, fill it \
             with an `impute` step of `strategy = \"constant\"` that lists it, or have rows with a value in the training split \
             (`dataset.split`)",
            list_columns(&columns, COLUMNS)
        );
        warning(COLUMNS_DROPPED, "dataset.drop", message).with_columns(columns)
    })
}

/// Warns of columns that are no features by default, grouped by reason.
pub(crate) fn columns_dropped(dropped: &BTreeMap<String, NoFeatureReason>) -> Vec<Warning> {
    let mut by_reason: BTreeMap<NoFeatureReason, Vec<&str>> = BTreeMap::new();
    for (column, reason) in dropped {
        by_reason.entry(*reason).or_default().push(column);
    }
    let each = by_reason.into_iter().filter_map(|(reason, columns)| {
        let (key, advice) = advice_on(reason)?;
        let names = listed(&columns, "`");
        let message = match columns.len() {
            1 => format!("column {names} is no feature: it {reason}; {advice}"),
            _ => format!("columns {names} are no features: each {reason}; {advice}"),
        };
        Some(warning(COLUMNS_DROPPED, key, message).with_columns(warned_columns(columns)))
    });
    each.collect()
}

/// Key and advice of the warning about columns that are no features for this reason; `None` if [`without_train_values`] warns of
/// them, or a key names them for another use.
const fn advice_on(reason: NoFeatureReason) -> Option<(&'static str, &'static str)> {
    match reason {
        NoFeatureReason::OwnTexts | NoFeatureReason::ManyTexts => Some((
            "dataset.categorical",
            "list it in `dataset.categorical` to have it as a category, or in `dataset.drop`",
        )),
        NoFeatureReason::OwnTimes | NoFeatureReason::ManyTimes => Some((
            "dataset.drop",
            "make it the time of `dataset.series`, compute numbers of it with `dataset.sql`, or list it in `dataset.drop`",
        )),
        NoFeatureReason::Bytes
        | NoFeatureReason::Lists
        | NoFeatureReason::ListsOrObjects
        | NoFeatureReason::NoValue => Some((
            "dataset.drop",
            "list it in `dataset.drop` to say that this is meant",
        )),
        NoFeatureReason::NoTrainValue | NoFeatureReason::NamedIn(_) => None,
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
        warning("knn_of_one_column", "dataset.step", message).with_columns(warned_columns(alone))
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
    let imputed = imputed_columns(artefact);
    let is_imputed = |name: &&str| imputed.contains_key(name);
    let (mut imputed_ones, constant): (Vec<&str>, Vec<&str>) =
        constant.into_iter().partition(is_imputed);
    imputed_ones.retain(|name| imputed.get(name) == Some(&false));
    let mut found = Vec::new();
    found.extend(one_value(constant));
    found.extend(one_value_or_missing(imputed_ones));
    found.extend(of_columns(&warned));
    found
}

/// Columns with missing training cells that a step fills; true for those with an indicator of these cells.
fn imputed_columns(artefact: &TransformArtefact) -> BTreeMap<&str, bool> {
    let mut found: BTreeMap<&str, bool> = BTreeMap::new();
    let mut add = |name, missing: u64, indicator: bool| {
        if missing > 0 {
            *found.entry(name).or_default() |= indicator;
        }
    };
    for step in &artefact.steps {
        match step {
            FittedStep::Impute { columns } => columns
                .iter()
                .for_each(|column| add(column.name.as_str(), column.missing, column.indicator)),
            FittedStep::Knn { columns, .. } => columns
                .iter()
                .for_each(|column| add(column.name.as_str(), column.missing, column.indicator)),
            _ => {}
        }
    }
    found
}

/// Warns of columns that have one value in all training rows.
fn one_value(columns: Vec<&str>) -> Option<Warning> {
    (!columns.is_empty()).then(|| {
        let message = format!(
            "the same value (as a 64-bit float) in all training rows, so a model cannot learn from it: {}; leave it out with `dataset.drop`",
            listed(&columns, "`")
        );
        warning("constant_columns", "dataset.drop", message).with_columns(warned_columns(columns))
    })
}

/// Warns of columns whose missing cells were filled with the only value that they have.
fn one_value_or_missing(columns: Vec<&str>) -> Option<Warning> {
    (!columns.is_empty()).then(|| {
        let message = format!(
            "one value or missing in all training rows, and missing cells were filled with that value, so a model cannot learn from \
             it: {}; with `indicator = true` in its `impute` step a model sees which cells are missing, or leave it out with \
             `dataset.drop`",
            listed(&columns, "`")
        );
        warning("constant_columns", "dataset.step", message).with_columns(warned_columns(columns))
    })
}

/// One warning for each code, with its columns in order.
fn of_columns(warned: &[(&str, ColumnWarning)]) -> Vec<Warning> {
    let mut found: Vec<Warning> = Vec::new();
    for (_, first) in warned {
        if found.iter().any(|warning| warning.code == first.code) {
            continue;
        }
        let same = warned.iter().filter(|(_, other)| other.code == first.code);
        let columns = same.map(|(name, of)| WarnedColumn::with_found(name, of.figures.as_str()));
        let columns: Vec<WarnedColumn> = columns.collect();
        let (problem, advice) = (first.problem, first.advice);
        let message = format!("{problem}: {}; {advice}", list_columns(&columns, COLUMNS));
        found.push(warning(first.code, "dataset.step", message).with_columns(columns));
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
            .with_columns(warned_columns(columns.iter().copied()))
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
            .with_columns(warned_columns(columns.iter().copied()))
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
            .with_columns(warned_columns(columns.iter().copied()))
    })
}
