//! Warnings of the key of the split and of the entities of series.

use feedline_schemas::{count::counted, report::Warning};

use super::{
    message::{GROUPS, first_of, percent, warned_columns, warning},
    spelling::{difference, remedy},
};
use crate::schema::landed_columns::{listed, shown};

/// Code of a warning about rows without a key, in the rows of one build.
pub(super) const MISSING_KEYS: &str = "missing_keys";

/// Warns of rows that have no value in any column of the split's `key`, where the configuration does not say what they are.
pub(crate) fn missing_keys(without: u64, rows: u64, key: &[String]) -> Option<Warning> {
    let names: Vec<&str> = key.iter().map(String::as_str).collect();
    let (listed, share) = (listed(&names, "`"), percent(without, rows));
    (without > 0).then(|| {
        let message = format!(
            "{without} of {rows} rows ({share}) have no value in {listed}, the key of the split: each is a group of its own, so rows of \
             one entity may be in several splits; hold them in one split with `dataset.split.missing_key = \"one\"`, reject them with \
             `\"reject\"`, say that this is meant with `\"own\"`, or fill in the key in the source"
        );
        warning(MISSING_KEYS, "dataset.split.missing_key", message)
            .with_columns(warned_columns(names))
    })
}

/// Warns of values of a `column` of the key that differ in blanks, letter case or Unicode form only.
pub(crate) fn keys_alike(key: &str, column: &str, alike: &[String], more: bool) -> Option<Warning> {
    (!alike.is_empty()).then(|| {
        let count = if more { "at least " } else { "" };
        let message = format!(
            "values of column `{}` differ in {} only, and rows of each are a group of their own ({count}{}): {}; {}",
            shown(column),
            difference(alike),
            counted(alike.len() as u64, "case"),
            first_of(alike, GROUPS),
            remedy(alike)
        );
        warning("keys_alike", key, message).with_columns(warned_columns([column]))
    })
}

/// Warns of rows that have a value in some of several columns of a key and not in all.
pub(crate) fn keys_incomplete(
    key: &str,
    names: &[String],
    partly: u64,
    rows: u64,
) -> Option<Warning> {
    (partly > 0).then(|| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let message = format!(
            "{partly} of {rows} landed rows ({}) have a value in some of the columns {} and not in all: those that agree in what they \
             have are one group; fill in the columns in the source, or leave those out that are often missing",
            percent(partly, rows),
            listed(&names, "`")
        );
        warning("keys_incomplete", key, message).with_columns(warned_columns(names))
    })
}

/// Code of a warning about a category that is the key of the split.
pub(crate) const KEY_IS_FEATURE: &str = "key_is_feature";

/// Warns of a category that is the key of the split, so that other splits have other values of it. `key` lists it as a feature.
pub(crate) fn key_is_feature(column: &str, key: &str) -> Warning {
    let message = format!(
        "column `{}` is the key of the split and a category too: rows of one value are in one split, so its values in validation \
         and test rows occur in no training row, and a model cannot use what it learns of it; take it out of `{key}` (it remains \
         the key), or split by another `dataset.split.key`",
        shown(column)
    );
    warning(KEY_IS_FEATURE, key, message).with_columns(warned_columns([column]))
}
