//! What is expected of whole columns, and of rows that are kept all the same.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray};
use arrow::datatypes::UInt64Type;
use datafusion::{
    common::ScalarValue,
    logical_expr::{Expr, ident, lit},
    prelude::DataFrame,
};
use feedline_schemas::{config::OnViolation, manifest::Split};
use futures::TryStreamExt;

use super::{Expect, REASON, Rows};
use crate::{Error, columns::system, scalar::RowFunction, stage::Staged, typing::Reason};

/// An expectation that data do not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// As `price.max`: the column and the key.
    pub(crate) path: String,
    /// Rows that violate it.
    pub(crate) rows: u64,
    /// One of the values, or what was found.
    pub(crate) sample: String,
}

/// Violations of what is expected of columns; where rows are kept that are not as expected, theirs too.
pub(crate) async fn violations(staged: &Staged, expect: &Expect) -> Result<Vec<Violation>, Error> {
    let mut all: Option<DataFrame> = None;
    for split in Split::ALL
        .into_iter()
        .filter(|split| staged.rows(*split) > 0)
    {
        let rows = staged.frame(split)?;
        all = Some(match all {
            Some(above) => above.union(rows)?,
            None => rows,
        });
    }
    let Some(all) = all else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for column in &expect.columns {
        if column.max_missing_share.is_none() && !column.unique {
            continue;
        }
        let cells = all.clone().select(vec![ident(&column.name)])?;
        let there = cells.filter(ident(&column.name).is_not_null())?;
        let filled = Box::pin(there.clone().count()).await? as u64;
        if let Some(share) = column.max_missing_share {
            found.extend(too_many_missing(
                &column.name,
                staged.total(),
                filled,
                share,
            ));
        }
        if column.unique {
            let distinct = Box::pin(there.distinct()?.count()).await? as u64;
            if distinct < filled {
                found.push(Violation {
                    path: format!("{}.unique", column.name),
                    rows: filled - distinct,
                    sample: format!("{filled} cells hold {distinct} different values"),
                });
            }
        }
    }
    if expect.on_violation == OnViolation::Warn {
        found.extend(rows(all, expect).await?);
    }
    Ok(found)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn too_many_missing(column: &str, rows: u64, filled: u64, share: f64) -> Option<Violation> {
    let missing = rows.saturating_sub(filled);
    (missing as f64 > share * rows as f64).then(|| Violation {
        path: format!("{column}.max_missing_share"),
        rows: missing,
        sample: format!("{missing} of {rows} cells are missing, more than a share of {share}"),
    })
}

/// Rows that are not as expected; of each expectation the first in landing order is shown.
async fn rows(all: DataFrame, expect: &Expect) -> Result<Vec<Violation>, Error> {
    const WHY: &str = "why";
    let nothing = lit(ScalarValue::Utf8(None));
    let cells = expect.columns.iter().map(|column| ident(&column.name));
    let arguments: Vec<Expr> = std::iter::once(nothing).chain(cells).collect();
    let why = Rows::new(&expect.columns).over(arguments).alias(WHY);
    let odd = all
        .select(vec![ident(system::ORIGIN), why])?
        .filter(ident(WHY).is_not_null())?;
    let mut found: BTreeMap<String, (u64, u64, String)> = BTreeMap::new();
    let mut batches = Box::pin(odd.execute_stream()).await?;
    while let Some(batch) = batches.try_next().await? {
        let origins = batch.column(0).as_primitive::<UInt64Type>();
        let reasons = batch.column(1).as_string::<i32>();
        for row in 0..reasons.len() {
            let why = Reason::from_json(reasons.value(row));
            let key = why.reason.strip_prefix(REASON).unwrap_or_default();
            let path = format!("{}.{key}", why.column);
            let (count, first, sample) = found.entry(path).or_insert((0, u64::MAX, String::new()));
            *count += 1;
            if origins.value(row) < *first {
                (*first, *sample) = (origins.value(row), why.value);
            }
        }
    }
    let violation = |(path, (rows, _, sample))| Violation { path, rows, sample };
    Ok(found.into_iter().map(violation).collect())
}
