//! Landed columns over all sources and schema versions: found by name, and their types in the engine.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use feedline_schemas::{
    count::first_of,
    record::{self, ColumnType, DECIMAL_PRECISION, DECIMAL_SCALE, RecordSchema},
};

use crate::Error;

/// Most columns that an error lists.
const LISTED: usize = 20;

/// A landed column over all sources and schema versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MergedColumn {
    pub(crate) name: String,
    pub(crate) r#type: ColumnType,
}

/// The columns of all schema versions, in order of first appearance, each of the type that holds all of its values.
pub(crate) fn merge<'a>(schemas: impl IntoIterator<Item = &'a RecordSchema>) -> Vec<MergedColumn> {
    let mut merged: Vec<MergedColumn> = Vec::new();
    for column in schemas.into_iter().flat_map(|schema| &schema.columns) {
        match merged.iter_mut().find(|m| m.name == column.name) {
            Some(found) => found.r#type = found.r#type.widest(column.r#type),
            None => merged.push(MergedColumn {
                name: column.name.clone(),
                r#type: column.r#type,
            }),
        }
    }
    merged
}

/// Columns of a landed file; of a child table, with the row of the record if that is asked for.
pub(crate) fn landed_schema(schema: &RecordSchema, with_parent: bool) -> Schema {
    let parent = with_parent.then_some((record::system::PARENT, DataType::UInt32));
    let system = [
        (record::system::SEQUENCE, DataType::UInt64),
        (record::system::ROW, DataType::UInt32),
    ];
    let system = system.into_iter().chain(parent);
    let system = system.map(|(name, r#type)| Field::new(name, r#type, true));
    let own = schema
        .columns
        .iter()
        .map(|c| Field::new(&c.name, landed_type(c.r#type), true));
    Schema::new(system.chain(own).collect::<Vec<_>>())
}

/// Type of a landed column in the engine.
pub(crate) fn landed_type(column: ColumnType) -> DataType {
    match column {
        ColumnType::Bool => DataType::Boolean,
        ColumnType::Int64 => DataType::Int64,
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Decimal => DataType::Decimal128(DECIMAL_PRECISION, DECIMAL_SCALE),
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ColumnType::ListBool => list_of(DataType::Boolean),
        ColumnType::ListInt64 => list_of(DataType::Int64),
        ColumnType::ListFloat64 => list_of(DataType::Float64),
        ColumnType::List | ColumnType::ListUtf8 => list_of(DataType::Utf8),
        ColumnType::Binary => DataType::Binary,
        ColumnType::Null | ColumnType::Utf8 | ColumnType::Json => DataType::Utf8,
    }
}

fn list_of(items: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(items, true)))
}

/// Finds the column called `name`, which the configuration has at `key`.
pub(crate) fn find<'a>(
    key: &str,
    name: &str,
    columns: &'a [MergedColumn],
) -> Result<&'a MergedColumn, Error> {
    columns.iter().find(|c| c.name == name).ok_or_else(|| {
        let nearest = nearest(name, columns.iter().map(|c| c.name.as_str()));
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        Error::config(
            key,
            format!(
                "there is no column `{}` among {}{nearest}{}",
                shown(name),
                listed(&names, "`"),
                delimiter_hint(name, &names)
            ),
        )
    })
}

/// Advice for a header that was not split: a column has `name` between delimiters of CSV in its
/// name, or is the only column and has a delimiter there. Empty otherwise.
fn delimiter_hint(name: &str, names: &[&str]) -> String {
    let signs = [(';', ";"), ('\t', "\\t"), ('|', "|"), (',', ",")];
    let has_name = |sign: char| {
        let mut columns = names.iter().filter(|column| column.contains(sign));
        columns.any(|column| column.split(sign).any(|part| part.trim() == name))
    };
    let is_only = |sign: char| matches!(names, [column] if sign != ',' && column.contains(sign));
    let found = signs.iter().find(|(sign, _)| has_name(*sign));
    let found = found.or_else(|| signs.iter().find(|(sign, _)| is_only(*sign)));
    found.map_or_else(String::new, |(_, shown)| {
        format!(
            "; a column has `{shown}` in its name: if that separates the columns of the file, set `csv.delimiter = \"{shown}\"` of its source and ingest again"
        )
    })
}

/// Error of a file that lacks the columns `lacking`, at least one, of `all` needed ones; it has the columns
/// `known`.
pub(crate) fn lacks_columns<'a>(
    file: &str,
    lacking: &[&str],
    all: usize,
    known: impl Iterator<Item = &'a str>,
    advice: &str,
) -> Error {
    let nearest = match lacking.first() {
        Some(first) => nearest(first, known),
        None => String::new(),
    };
    let lacks = match all {
        1 => "the needed column".to_owned(),
        all => format!("{} of the {all} needed columns", lacking.len()),
    };
    let names = listed(lacking, "`");
    Error::input(
        format!("`{file}`"),
        format!("it lacks {lacks}: {names}{nearest}"),
        advice,
    )
}

/// The names, each in `quotes`, or the first of many and how many more there are.
pub(crate) fn listed(names: &[&str], quotes: &str) -> String {
    let names = names.iter();
    let names = names.map(|name| format!("{quotes}{}{quotes}", shown(name)));
    first_of(&names.collect::<Vec<_>>(), LISTED)
}

/// A name in a line of text: control characters are written as what they are.
pub(crate) fn shown(name: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    name.chars().map(escaped).collect()
}

/// Names the values of a column of this type, for a message.
pub(crate) const fn values_of(r#type: ColumnType) -> &'static str {
    match r#type {
        ColumnType::Null => "no value",
        ColumnType::Bool => "booleans",
        ColumnType::Int64 => "integers",
        ColumnType::Float64 => "numbers",
        ColumnType::Decimal => "decimals",
        ColumnType::Timestamp => "timestamps",
        ColumnType::Binary => "bytes",
        ColumnType::Utf8 => "text",
        ColumnType::Json => "lists or objects",
        _ => "lists",
    }
}

/// `; did you mean ...?` when something near is known.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let scored = known.map(|k| {
        (
            strsim::jaro_winkler(&name.to_lowercase(), &k.to_lowercase()),
            k,
        )
    });
    match scored.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((score, k)) if score > 0.7 => format!("; did you mean `{}`?", shown(k)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        ids::SchemaVersion,
        record::{Column, ColumnType::*},
    };

    use super::*;

    #[test]
    fn columns_of_all_versions_are_merged_to_the_type_that_holds_them() {
        let merged = |versions: &[&[ColumnType]]| {
            let schema = |types: &&[ColumnType]| RecordSchema {
                version: SchemaVersion::new(1),
                columns: types
                    .iter()
                    .enumerate()
                    .map(|(i, r#type)| Column {
                        field_id: 1,
                        name: format!("c{i}"),
                        r#type: *r#type,
                        whole: false,
                    })
                    .collect(),
            };
            let schemas: Vec<RecordSchema> = versions.iter().map(schema).collect();
            merge(&schemas)
                .into_iter()
                .map(|c| c.r#type)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            merged(&[&[Int64, Null, Bool], &[Float64, Bool, Int64, Json]]),
            [Float64, Bool, Utf8, Json]
        );
        assert_eq!(
            merged(&[&[Float64, Json, Utf8], &[Int64, Utf8, Float64]]),
            [Float64, Json, Utf8]
        );
    }
}
