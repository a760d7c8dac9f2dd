//! Warnings of columns that sources type differently.

use feedline_schemas::{
    record::ColumnType,
    report::{WarnedColumn, Warning},
};

use super::message::{COLUMNS, list_columns, quoted, warning};
use crate::schema::landed_columns::{shown, values_of};

/// A column that is text in the dataset and another type in some of its sources.
#[derive(Clone, Debug)]
pub(crate) struct MixedColumn {
    pub(crate) name: String,
    /// Sources that have a type for it.
    pub(crate) sources: Vec<SourceColumnType>,
}

/// Type of a column in a source.
#[derive(Clone, Debug)]
pub(crate) struct SourceColumnType {
    pub(crate) source: String,
    pub(crate) r#type: ColumnType,
    /// A value as text; absent where the source has none.
    pub(crate) example: Option<String>,
}

/// Warns of columns that hold text in one source and another type in another.
pub(crate) fn mixed_types(columns: &[MixedColumn]) -> Option<Warning> {
    let first = columns.first()?;
    let sources = |column: &MixedColumn| {
        let sources = column.sources.iter().map(|of| {
            let example = of.example.as_deref();
            let example =
                example.map_or_else(String::new, |text| format!(", such as {}", quoted(text)));
            format!("{} in `{}`{example}", values_of(of.r#type), of.source)
        });
        let sources = sources.collect::<Vec<_>>().join("; ");
        WarnedColumn::with_found(&column.name, sources)
    };
    let warned: Vec<WarnedColumn> = columns.iter().map(sources).collect();
    let odd = first
        .sources
        .iter()
        .find(|of| of.r#type != ColumnType::Utf8);
    let odd = odd.map_or("", |of| of.source.as_str());
    let message = format!(
        "sources have columns of different types, which are text in the dataset: {}; rows, categories and keys are compared by that \
         text, so values that mean the same may differ in how they are written; land each such column with one type, such as \
         `contract.column.\"{}\".type = \"text\"` of source `{odd}`, under another source name if it has landed already",
        list_columns(&warned, COLUMNS),
        shown(&first.name),
    );
    Some(warning("mixed_types", "contract.column", message).with_columns(warned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_source_are_listed_with_an_example_and_the_key_that_makes_them_equal() {
        let of = |source: &str, r#type, example: Option<&str>| SourceColumnType {
            source: source.to_owned(),
            r#type,
            example: example.map(str::to_owned),
        };
        let day = MixedColumn {
            name: "day".to_owned(),
            sources: vec![
                of("a", ColumnType::Timestamp, Some("2026-01-03T00:00:00Z")),
                of("b", ColumnType::Utf8, Some("2026-01-03")),
                of("c", ColumnType::Bool, None),
            ],
        };
        let message = mixed_types(&[day]).unwrap().message;
        assert!(
            message.contains(
                "`day` (timestamps in `a`, such as `2026-01-03T00:00:00Z`; text in `b`, such as `2026-01-03`; booleans in `c`);"
            ),
            "{message}"
        );
        assert!(
            message.contains("`contract.column.\"day\".type = \"text\"` of source `a`"),
            "{message}"
        );
        assert!(mixed_types(&[]).is_none());
    }
}
