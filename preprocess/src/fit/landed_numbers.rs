//! Pass over the landed cells of numeric features, for counts of what a typed row has lost.

use arrow::array::ArrayRef;
use datafusion::{
    logical_expr::{Expr, ident},
    prelude::SessionContext,
};
use feedline_schemas::{
    record::RecordSchema,
    transform::{InputKind, NumberSigns},
};
use futures::TryStreamExt;

use crate::{
    Error,
    operators::number_format,
    schema::{dataset_spec::DatasetSpec, landed_cells},
    source::{landed_scan, landing_zone::Landed},
};

/// Counts over landed cells.
pub(super) trait CellCounts<'a> {
    /// Returns true if the cells of the column `name` are counted in files of this schema version.
    fn has_cells(&self, source: &Landed, schema: &RecordSchema, name: &str) -> bool;

    /// Adds cells of a feature, whose texts are numbers of this format.
    fn add(&mut self, feature: &'a str, cells: &ArrayRef, signs: Option<NumberSigns>);
}

/// Counts the landed cells of the numeric features of `spec`, in `sources` and in those that are
/// joined to them.
///
/// # Errors
/// Failures of the engine.
pub(super) async fn count_cells<'a>(
    session: &SessionContext,
    sources: &[Landed],
    spec: &'a DatasetSpec,
    counts: &mut impl CellCounts<'a>,
) -> Result<(), Error> {
    let inputs = spec.landed_inputs();
    let numeric = inputs.filter(|input| input.kind == InputKind::Numeric);
    let own: Vec<(&str, &'a str)> = numeric
        .map(|input| (input.name.as_str(), input.name.as_str()))
        .collect();
    for source in sources {
        count_source(session, source, spec, &own, counts).await?;
    }
    for join in &spec.joins {
        let is_read = |name: &str| own.iter().any(|(own, _)| *own == name);
        let taken: Vec<_> = join.taken().filter(|(_, name)| is_read(name)).collect();
        count_source(session, &join.source, spec, &taken, counts).await?;
    }
    Ok(())
}

/// Counts the cells of the `columns` of `source`, each by its name there and the one it is found by.
async fn count_source<'a>(
    session: &SessionContext,
    source: &Landed,
    spec: &DatasetSpec,
    columns: &[(&str, &'a str)],
    counts: &mut impl CellCounts<'a>,
) -> Result<(), Error> {
    for generation in &source.generations {
        let schema = &generation.schema;
        let counted = columns.iter();
        let counted: Vec<_> = counted
            .filter(|(name, _)| counts.has_cells(source, schema, name))
            .collect();
        if counted.is_empty() {
            continue;
        }
        let cells: Vec<Expr> = counted
            .iter()
            .map(|(name, _)| landed_cells::landed(schema, name).alias(*name))
            .collect();
        let names = counted.iter().map(|(name, _)| ident(*name));
        let rows = landed_scan::read(session, source, generation)?
            .select(cells)?
            .select(names.collect::<Vec<_>>())?;
        let mut stream = Box::pin(rows.execute_stream()).await?;
        while let Some(batch) = stream.try_next().await? {
            for (cells, (name, feature)) in batch.columns().iter().zip(&counted) {
                let signs = number_format::of_column(number_format::of(&spec.config), schema, name);
                counts.add(feature, cells, signs);
            }
        }
    }
    Ok(())
}
