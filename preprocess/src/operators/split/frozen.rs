//! A source that is the test split as a whole: nothing in it may be learnt from.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray},
    datatypes::DataType,
};
use datafusion::{
    common::JoinType,
    error::Result as EngineResult,
    logical_expr::{Expr, ident},
    prelude::DataFrame,
};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    engine::scalar_function::RowFunction,
    schema::{
        reject_reason::{self, Reason},
        system_columns,
    },
};

const THEIRS: &str = "_frozen";

/// The rows and those of the frozen source, each with a content of its own. Rows with the content
/// of a frozen row, or with a key in its group, are rejected.
pub(crate) fn apart(rows: DataFrame, frozen: DataFrame, has_key: bool) -> Result<DataFrame, Error> {
    let mut marked = mark(rows, &frozen, system_columns::HASH, "the same row")?;
    if has_key {
        marked = mark(
            marked,
            &frozen,
            system_columns::GROUP,
            "a row of the same `dataset.split.key`",
        )?;
    }
    Ok(marked.union(frozen)?)
}

/// Sets those of `rows` aside whose cell in column `by` a frozen row has, since that is `what`.
fn mark(rows: DataFrame, frozen: &DataFrame, by: &str, what: &str) -> Result<DataFrame, Error> {
    let names: Vec<String> = rows
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let theirs = frozen
        .clone()
        .select(vec![ident(by).alias(THEIRS)])?
        .distinct()?;
    // The side that comes first is held in memory: 16 bytes for each frozen row.
    let joined = theirs.join(rows, JoinType::Right, &[THEIRS], &[by], None)?;
    let columns: Vec<Expr> = names
        .iter()
        .map(|name| match name.as_str() {
            system_columns::REJECT => {
                let what = what.to_owned();
                let reason = OfFrozen { what }.over(vec![ident(name), ident(THEIRS)]);
                reason.alias(name)
            }
            name => ident(name),
        })
        .collect();
    Ok(joined.select(columns)?)
}

/// Reason to reject a row, from its earlier reason, if any, and the part that it shares with a
/// frozen row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct OfFrozen {
    what: String,
}

impl RowFunction for OfFrozen {
    const NAME: &'static str = "feedline_of_frozen";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> EngineResult<ArrayRef> {
        let (reasons, theirs) = (columns[0].as_string::<i32>(), &columns[1]);
        let reason = |row: usize| {
            if reasons.is_valid(row) {
                return Some(reasons.value(row).to_owned());
            }
            let reason = Reason {
                reason: reject_reason::OF_FROZEN.to_owned(),
                column: String::new(),
                value: format!("{} is in the frozen source", self.what),
            };
            theirs.is_valid(row).then(|| reason.to_json())
        };
        Ok(Arc::new((0..rows).map(reason).collect::<StringArray>()))
    }
}
