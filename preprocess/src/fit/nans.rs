//! NaN cells of numeric features. A build reads them as missing, like nulls, but a NaN is often a
//! fault of the source.
//!
//! A typed row has lost the difference, so the landed cells are counted. Builds without a NaN skip
//! this pass: the cast to numbers detects any.

use std::collections::BTreeMap;

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{DataType, Float64Type},
};
use datafusion::{
    logical_expr::{Expr, ident},
    prelude::SessionContext,
};
use feedline_schemas::{
    config::Step,
    record::ColumnType,
    report::Warning,
    transform::{InputKind, NumberSigns},
};
use futures::TryStreamExt;

use crate::{
    Error,
    operators::number_format,
    schema::{dataset_spec::DatasetSpec, landed_cells},
    source::{landed_scan, landing_zone::Landed},
    warnings,
};

/// NaN cells of a column, and all of its cells.
type Counts = BTreeMap<String, (u64, u64)>;

/// Warns of NaN cells in the numeric features of `spec`, in `sources` and in those that are joined to them.
///
/// # Errors
/// Failures of the engine.
pub(crate) async fn check_nans(
    session: &SessionContext,
    sources: &[Landed],
    spec: &DatasetSpec,
) -> Result<Option<Warning>, Error> {
    let inputs = spec.landed_inputs();
    let numeric = inputs.filter(|input| input.kind == InputKind::Numeric);
    let own: Vec<(&str, &str)> = numeric
        .map(|input| (input.name.as_str(), input.name.as_str()))
        .collect();
    let mut found = Counts::new();
    for source in sources {
        count(session, source, spec, &own, &mut found).await?;
    }
    for join in &spec.joins {
        let is_read = |name: &str| own.iter().any(|(own, _)| *own == name);
        let taken: Vec<_> = join.taken().filter(|(_, name)| is_read(name)).collect();
        count(session, &join.source, spec, &taken, &mut found).await?;
    }
    found.retain(|_, (nan, _)| *nan > 0);
    let fills = spec.steps.iter().any(|step| {
        matches!(step.step, Step::Impute(_))
            && step.columns.iter().any(|name| found.contains_key(name))
    });
    Ok(warnings::nan_missing(&found, fills))
}

/// Counts the cells of the `columns` of `source` that landed as floats or text, each by its name there and the one it is found by.
async fn count(
    session: &SessionContext,
    source: &Landed,
    spec: &DatasetSpec,
    columns: &[(&str, &str)],
    found: &mut Counts,
) -> Result<(), Error> {
    for generation in &source.generations {
        let schema = &generation.schema;
        let can_hold = |(name, _): &&(&str, &str)| {
            let mut all = schema.columns.iter();
            all.any(|c| {
                c.name == *name && matches!(c.r#type, ColumnType::Float64 | ColumnType::Utf8)
            })
        };
        let there: Vec<&(&str, &str)> = columns.iter().filter(can_hold).collect();
        if there.is_empty() {
            continue;
        }
        let cells: Vec<Expr> = there
            .iter()
            .map(|(name, _)| landed_cells::landed(schema, name).alias(*name))
            .collect();
        let names = there.iter().map(|(name, _)| ident(*name));
        let rows = landed_scan::read(session, source, generation)?
            .select(cells)?
            .select(names.collect::<Vec<_>>())?;
        let mut stream = Box::pin(rows.execute_stream()).await?;
        while let Some(batch) = stream.try_next().await? {
            for (array, (name, named)) in batch.columns().iter().zip(&there) {
                let signs = number_format::of_column(number_format::of(&spec.config), schema, name);
                let of_column = found.entry((*named).to_owned()).or_default();
                of_column.0 += nans(array, signs);
                of_column.1 += array.len() as u64;
            }
        }
    }
    Ok(())
}

fn nans(array: &ArrayRef, signs: Option<NumberSigns>) -> u64 {
    let count = match array.data_type() {
        DataType::Float64 => {
            let cells = array.as_primitive::<Float64Type>().iter().flatten();
            cells.filter(|cell| cell.is_nan()).count()
        }
        DataType::Utf8 => {
            let cells = array.as_string::<i32>().iter().flatten();
            let numbers = cells.filter_map(|text| number_format::number(text, signs));
            numbers.filter(|number| number.is_nan()).count()
        }
        _ => 0,
    };
    count as u64
}
