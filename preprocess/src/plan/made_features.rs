//! Features that time series make of earlier rows, and the expectations of them.

use datafusion::{
    logical_expr::{Expr, ident},
    prelude::{DataFrame, SessionContext},
};

use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::time_series::Series,
    schema::{dataset_spec::DatasetSpec, system_columns},
};

/// `rows` with the features of the dataset's time series, if it has one.
pub(super) fn add_series_features(
    session: &SessionContext,
    rows: DataFrame,
    spec: &DatasetSpec,
) -> Result<DataFrame, Error> {
    match &spec.series {
        Some(series) => reject_unexpected(series.onto(session, rows)?, spec, series),
        None => Ok(rows),
    }
}

/// `rows`, with those rejected whose generated features violate expectations.
fn reject_unexpected(
    rows: DataFrame,
    spec: &DatasetSpec,
    series: &Series,
) -> Result<DataFrame, Error> {
    let expect = spec.expect.as_ref();
    let Some((judge, judged)) = expect.and_then(|expect| expect.rows(|name| series.makes(name)))
    else {
        return Ok(rows);
    };
    let cells = judged.iter().map(|column| ident(&column.name));
    let arguments: Vec<Expr> = std::iter::once(ident(system_columns::REJECT))
        .chain(cells)
        .collect();
    let reject = judge.over(arguments).alias(system_columns::REJECT);
    let columns = rows.schema().fields().iter();
    let columns = columns.map(|field| match field.name().as_str() {
        system_columns::REJECT => reject.clone(),
        name => ident(name),
    });
    let columns: Vec<Expr> = columns.collect();
    Ok(rows.select(columns)?)
}
