//! Column types, inferred from many values before any of them lands.
//!
//! A [`Survey`] counts the kinds of values in each column; the order of values does not matter. The
//! initial column types follow from the counts. CSV cells have no types. A CSV column is boolean,
//! numeric or timestamp when all its cells are. Missing cells and common spellings of a missing
//! value do not count. A small fraction of odd values (up to `infer.max_odd_fraction`) leaves a
//! column numeric or timestamp. The contract then decides about the odd values. A larger fraction
//! makes the column text. A column of typed values gets the narrowest type that holds all of them
//! without loss, by the same rule. A [`Warning`] reports a decision against some of the values, or
//! values with another plausible meaning.

mod amount_marks;
mod column_counts;
mod decide;
mod decimal_signs;
mod distinct_values;
mod held_advice;
mod inferred;
mod kind;
mod landed_types;
mod marked_numbers;
mod missing_words;
mod new_column_warnings;
mod number_evidence;
mod number_settings;
mod rounded_digits;
mod separator_warnings;
mod source_separators;
mod survey;
mod text_columns;
mod text_times;
mod type_warnings;
mod version_numbers;
mod without_csv;

use std::{collections::HashSet, mem};

use feedline_readers::{record::Record, value::Value};
use feedline_schemas::{config::SourceConfig, record::push_key};

use self::survey::is_nested;
pub(crate) use self::{
    distinct_values::DistinctValues,
    held_advice::hold_under,
    inferred::{Inferred, LandedTypes, Types},
    new_column_warnings::add_column_warning,
    survey::Survey,
    type_warnings::{CSV_NOT_USED, LOOKS_LIKE_DATES, MIXED_TYPES, TYPE_WARNINGS},
};
pub use self::{
    inferred::{LargeIntegers, NumberEvidence, SeparatorSamples},
    type_warnings::is_about_types,
};
use crate::record_places::RecordPlaces;

/// Infers the columns of a first batch of records at `places`. A `sample`, if any, overrides the
/// types of the columns that it has, and the warnings.
pub(crate) fn of_first(
    records: &[Record],
    places: &RecordPlaces,
    config: &SourceConfig,
    sample: Option<&Inferred>,
) -> Inferred {
    let mut survey = Survey::new(config);
    survey.set_places(places.clone());
    records.iter().for_each(|record| survey.add(record));
    let mut found = survey.infer(config);
    if let Some(sample) = sample {
        found.types.extend(sample.types.clone());
        found.warnings.clone_from(&sample.warnings);
    }
    found
}

/// Returns true if any of the records has a CSV cell.
pub(crate) fn has_cells(records: &[Record]) -> bool {
    fn holds_cell(value: &Value) -> bool {
        match value {
            Value::Cell(_) => true,
            Value::Object(entries) => entries.iter().any(|(_, value)| holds_cell(value)),
            _ => false,
        }
    }
    let mut records = records.iter();
    // A record of JSON without faults has none.
    records.any(|record| matches!(record, Record::Value(value) if holds_cell(value)))
}

/// Infers the columns that are not `known` in a later batch of records with cells.
pub(crate) fn of_new_columns(
    records: &[Record],
    places: &RecordPlaces,
    config: &SourceConfig,
    known: &HashSet<&str>,
) -> Inferred {
    let new = find_new_columns(records, config, known);
    if new.is_empty() {
        return Inferred::default();
    }
    let mut survey = Survey::new(config);
    survey.set_places(places.clone());
    records.iter().for_each(|record| survey.add(record));
    survey.keep_columns(&new);
    let mut found = survey.infer(config);
    // The columns that are known may have cells.
    found
        .warnings
        .retain(|warning| warning.code != CSV_NOT_USED);
    found
}

/// Names of columns with cells that are not `known`.
fn find_new_columns(
    records: &[Record],
    config: &SourceConfig,
    known: &HashSet<&str>,
) -> HashSet<String> {
    let mut new = HashSet::new();
    let mut last: &[(String, Value)] = &[];
    for record in records {
        let Record::Value(Value::Object(entries)) = record else {
            continue;
        };
        // The records of a file have the same columns in the same order.
        let before = mem::replace(&mut last, entries);
        let is_flat = !entries.iter().any(|(_, value)| is_nested(value));
        let names = entries.iter().map(|(key, _)| key);
        if is_flat && names.eq(before.iter().map(|(key, _)| key)) {
            continue;
        }
        let mut note = |name: &str| {
            if !known.contains(name) && !new.contains(name) {
                new.insert(name.to_owned());
            }
        };
        let levels = config.contract.max_depth.get();
        note_cells(entries, &mut String::new(), levels, &mut note);
    }
    new
}

/// Passes the path of each cell and null of a record to `note`. `name` is the path of `entries`.
fn note_cells(
    entries: &[(String, Value)],
    name: &mut String,
    levels: u32,
    note: &mut impl FnMut(&str),
) {
    let prefix = name.len();
    for (key, value) in entries {
        push_key(name, key);
        match value {
            Value::Cell(_) | Value::Time(_) | Value::ByteCell(_) => note(name),
            Value::Null if prefix == 0 => note(name),
            Value::Object(inner) if levels > 1 => {
                name.push('.');
                note_cells(inner, name, levels - 1, note);
            }
            _ => {}
        }
        name.truncate(prefix);
    }
}

#[cfg(test)]
mod tests;
