//! Counts of the values of a column of texts.

use std::collections::BTreeMap;

use arrow::{array::AsArray, datatypes::Int64Type};
use datafusion::{
    functions_aggregate::{count::count_all, expr_fn::sum},
    logical_expr::{ident, lit, when},
};
use feedline_schemas::{
    manifest::Split,
    profile::{CategoricalCells, MOST_VALUES},
};

use crate::{
    Error,
    fit::aggregate::{ROWS, Rows, VALUE, changed, counts, texts},
};

/// The values of the training split that a profile lists.
pub(super) async fn values(train: &Rows, column: &str) -> Result<Vec<String>, Error> {
    let found = train.frequent_texts(column, MOST_VALUES).await?;
    Ok(found.into_iter().map(|counted| counted.value).collect())
}

/// Counts the rows with a value outside `values`, and all distinct values, in one pass.
pub(crate) async fn others(
    rows: &Rows,
    column: &str,
    values: &[String],
) -> Result<[u64; 2], Error> {
    let each = rows.values(ident(column))?;
    let each = each.aggregate(vec![ident(VALUE)], vec![count_all().alias(ROWS)])?;
    let listed = ident(VALUE).in_list(values.iter().map(lit).collect(), false);
    let other = when(listed, lit(0i64)).otherwise(ident(ROWS))?;
    let all = each.aggregate(
        vec![],
        vec![sum(other).alias(ROWS), count_all().alias("distinct")],
    )?;
    let mut found = [0; 2];
    for batch in Box::pin(all.collect()).await? {
        for (i, found) in found.iter_mut().enumerate() {
            let column = batch.column(i).as_primitive::<Int64Type>();
            *found += column.iter().flatten().map(i64::unsigned_abs).sum::<u64>();
        }
    }
    Ok(found)
}

/// Counts of each of `values` in the rows of `split`, and of all other values.
pub(crate) async fn cells(
    split: Split,
    rows: &Rows,
    column: &str,
    values: &[String],
) -> Result<CategoricalCells, Error> {
    let there = rows.values(ident(column))?;
    let filled = there.clone().count().await? as u64;
    let each = there.aggregate(vec![ident(VALUE)], vec![count_all().alias(ROWS)])?;
    let distinct = each.clone().count().await? as u64;
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    if !values.is_empty() {
        let listed = values.iter().map(lit).collect();
        let listed = each.filter(ident(VALUE).in_list(listed, false))?;
        let batches = Box::pin(listed.collect()).await?;
        found.extend(texts(&batches)?.into_iter().zip(counts(&batches)));
    }
    let counts: Vec<u64> = values
        .iter()
        .map(|value| found.get(value).copied().unwrap_or(0))
        .collect();
    let missing = rows.count().checked_sub(filled);
    let other = filled.checked_sub(counts.iter().sum());
    let (Some(missing), Some(other)) = (missing, other) else {
        return Err(changed("its values are more than it has rows"));
    };
    Ok(CategoricalCells {
        split,
        missing,
        distinct,
        counts,
        other,
    })
}
