//! Splits that depend on more than one row: by time, by the order of all rows, and of each document into parts.

use datafusion::{
    functions_window::expr_fn::row_number,
    logical_expr::{Expr, ExprFunctionExt, ident, lit},
    prelude::DataFrame,
};
use feedline_schemas::{config::SplitConfig, manifest::Split};

use crate::{
    Error,
    engine::{scalar_function::RowFunction, union::append_rows},
    operators::{
        content_column::{ContentColumn, ContentKind, Part},
        dedup::content_hash::Cells,
        split::{
            Rule, code,
            range::{Borders, ByPlace, Embargo},
        },
    },
    schema::{dataset_spec::DatasetSpec, landed_cells::content_hash, system_columns},
};

/// The documents that the rows are made of, in a dataset of documents.
fn documents_of(spec: &DatasetSpec) -> Option<&ContentColumn> {
    let payload = spec.payload.as_ref();
    payload.filter(|payload| payload.kind == ContentKind::Text)
}

/// Number of rows, where they are split by their order; 0 elsewhere. Features of series neither add nor drop a row, and are
/// not worth making to count them.
pub(super) async fn count_for_range(rows: &DataFrame, spec: &DatasetSpec) -> Result<u64, Error> {
    match (&spec.rule, documents_of(spec)) {
        (Rule::Range, None) => Ok(rows.clone().count().await? as u64),
        _ => Ok(0),
    }
}

/// `rows` with the split that their time gives, where they are split by time.
pub(super) async fn split_by_time(rows: DataFrame, spec: &DatasetSpec) -> Result<DataFrame, Error> {
    match &spec.rule {
        Rule::Time(time) => time.split(rows).await,
        Rule::Hash | Rule::Named(_) | Rule::Range => Ok(rows),
    }
}

/// The documents that are kept, before they are divided, in a dataset of documents.
pub(super) fn whole_documents(
    rows: &DataFrame,
    spec: &DatasetSpec,
) -> Result<Option<DataFrame>, Error> {
    let Some(text) = documents_of(spec) else {
        return Ok(None);
    };
    let good = rows
        .clone()
        .filter(ident(system_columns::REJECT).is_null())?;
    Ok(Some(good.select(vec![ident(&text.column)])?))
}

/// `rows` split by their place among `count` rows, or documents divided into parts, where the split is by range.
pub(super) fn split_by_range(
    rows: DataFrame,
    spec: &DatasetSpec,
    count: u64,
) -> Result<DataFrame, Error> {
    match (&spec.rule, documents_of(spec)) {
        (Rule::Hash | Rule::Named(_) | Rule::Time(_), _) => Ok(rows),
        (Rule::Range, Some(text)) => parts(&rows, spec, text),
        (Rule::Range, None) => in_order(rows, &spec.config.split, count),
    }
}

/// The rows with the split that their place among all of them gives, in the order they landed.
fn in_order(rows: DataFrame, split: &SplitConfig, count: u64) -> Result<DataFrame, Error> {
    const PLACE: &str = "_place";
    let borders = Borders::new(split, count);
    let columns: Vec<Expr> = rows
        .schema()
        .fields()
        .iter()
        .map(|field| match field.name().as_str() {
            system_columns::SPLIT => ByPlace(borders)
                .over(vec![ident(PLACE)])
                .alias(system_columns::SPLIT),
            system_columns::REJECT => Embargo(borders)
                .over(vec![ident(system_columns::REJECT), ident(PLACE)])
                .alias(system_columns::REJECT),
            name => ident(name),
        })
        .collect();
    let place = row_number()
        .order_by(vec![ident(system_columns::ORIGIN).sort(true, false)])
        .build()?
        .alias(PLACE);
    Ok(rows.window(vec![place])?.select(columns)?)
}

/// Every document as a row per part, with the content hash of that part. A rejected document is one
/// row.
fn parts(rows: &DataFrame, spec: &DatasetSpec, text: &ContentColumn) -> Result<DataFrame, Error> {
    let mut all: Option<DataFrame> = None;
    for split in Split::ALL {
        let part = Part::new(&spec.config.split, split).over(vec![ident(&text.column)]);
        let is_there = ident(&text.column).is_not_null();
        let bad = ident(system_columns::REJECT).is_not_null();
        let kept = match split {
            Split::Train => is_there.or(bad),
            _ => is_there.and(bad.is_false()),
        };
        let hash = content_hash(std::iter::once(text.column.as_str()), Cells::Typed);
        let mut there = vec![
            ident(system_columns::ORIGIN),
            ident(system_columns::REJECT),
            part.alias(&text.column),
        ];
        let mut columns = vec![
            ident(system_columns::ORIGIN),
            hash.alias(system_columns::HASH),
            lit(code(split)).alias(system_columns::SPLIT),
            ident(system_columns::REJECT),
            ident(&text.column),
        ];
        if spec.config.text.is_some() {
            // A document counts once, with the part that each has.
            let count = match split {
                Split::Train => ident(system_columns::REDACTED),
                _ => lit(0_u64),
            };
            there.push(count.alias(system_columns::REDACTED));
            columns.push(ident(system_columns::REDACTED));
        }
        let part = rows.clone().select(there)?.filter(kept)?.select(columns)?;
        all = Some(append_rows(all, part)?);
    }
    Ok(all.expect("there are three splits"))
}
