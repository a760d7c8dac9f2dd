//! Cells of landed rows as expressions of a plan: values of columns, content hashes and origins.

use arrow::datatypes::DataType;
use datafusion::{
    common::ScalarValue,
    logical_expr::{Expr, cast, ident, lit},
};
use feedline_schemas::{
    ids::Hash128,
    record::{self, Column, ColumnType, RecordSchema},
};

use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::{
        canonical_text::{self, CanonicalText},
        content_column::Text,
        dedup::content_hash::{Cells, ContentHash, HASH_BYTES},
    },
    schema::landed_columns::landed_type,
};

/// A column of a schema version; nulls where that lacks it. Types that have no function of their own here are text.
pub(crate) fn landed(schema: &RecordSchema, name: &str) -> Expr {
    match schema.columns.iter().find(|column| column.name == name) {
        Some(column) if canonical_text::is_needed(column.r#type) => {
            CanonicalText.over(vec![ident(name)])
        }
        Some(_) => ident(name),
        None => lit(ScalarValue::Utf8(None)),
    }
}

/// A column of a schema version as values of `type`, which holds all of them; nulls where that lacks it.
pub(crate) fn typed(schema: &RecordSchema, name: &str, r#type: ColumnType) -> Result<Expr, Error> {
    let wanted = landed_type(r#type);
    let found = schema.columns.iter().find(|column| column.name == name);
    let is_plain = |column: &Column| !canonical_text::is_needed(column.r#type);
    Ok(
        match found.map(|column| (landed_type(column.r#type), is_plain(column))) {
            Some((found, _)) if found == wanted => ident(name),
            Some((_, false)) if wanted == DataType::Utf8 => CanonicalText.over(vec![ident(name)]),
            Some(_) => cast(ident(name), wanted),
            None => lit(ScalarValue::try_from(&wanted)?),
        },
    )
}

/// A cell as the text that documents are compared by.
pub(crate) fn text(cell: Expr) -> Expr {
    Text.over(vec![cell])
}

/// Hash of the columns `names` of a row.
pub(crate) fn content_hash<'a>(names: impl Iterator<Item = &'a str>, cells: Cells) -> Expr {
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    if names.is_empty() {
        return lit(ScalarValue::FixedSizeBinary(
            HASH_BYTES,
            Some(Hash128::of(&[]).get().to_be_bytes().to_vec()),
        ));
    }
    let arguments = names.iter().map(ident).collect();
    ContentHash { names, cells }.over(arguments)
}

/// [`feedline_schemas::ids::Origin`] from the landed columns; the log was checked to hold no part that does not fit.
pub(crate) fn origin(source: u64) -> Expr {
    packed(source, record::system::ROW)
}

/// The same of the record that a row of a child table is in.
pub(crate) fn parent() -> Expr {
    packed(0, record::system::PARENT)
}

fn packed(source: u64, row: &str) -> Expr {
    let row = cast(ident(row), DataType::UInt64);
    lit(source << 56) + ident(record::system::SEQUENCE) * lit(1u64 << 24) + row
}
