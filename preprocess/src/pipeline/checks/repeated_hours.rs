//! Local times in the hour that clocks repeat at the end of summer time: each names two instants.

use arrow::{
    array::{Array, AsArray},
    datatypes::Int64Type,
};
use datafusion::{
    functions_aggregate::expr_fn::{count, min},
    logical_expr::{Expr, ident, lit},
    prelude::SessionContext,
};
use feedline_schemas::{
    record::{ColumnType, RecordSchema},
    report::Warning,
};

use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::time_series::LocalTimes,
    pipeline::prepare::Build,
    source::{landed_scan, landing_zone::Landed},
    warnings::{self, RepeatedHour},
};

const TEXT: &str = "_repeated_text";
const REPEATED: &str = "_repeated";

impl Build<'_> {
    /// Warns of local times of series and of joins by time that name two instants.
    pub(in crate::pipeline) async fn repeated_hours(
        &self,
        session: &SessionContext,
    ) -> Result<Vec<Warning>, Error> {
        let mut found = Vec::new();
        let series = self.spec.series.iter().filter_map(|series| {
            let times = series.local_times()?;
            Some((RepeatedHour::Series, times, self.tables()))
        });
        let joins = self.spec.joins.iter().flat_map(|join| {
            let [own, theirs] = join.local_times();
            let own = own.map(|times| (RepeatedHour::Rows, times, self.tables()));
            let source = std::slice::from_ref(&join.source);
            own.into_iter()
                .chain(theirs.map(|times| (RepeatedHour::Source, times, source)))
        });
        for (of, times, tables) in series.chain(joins) {
            let counted = Box::pin(count_repeated(session, tables, &times)).await?;
            if let Some((rows, sample)) = counted {
                let zone = times.instant.zone();
                let column = times.columns.first().copied().unwrap_or_default();
                found.push(warnings::repeated_hour(of, column, zone, rows, &sample));
            }
        }
        Ok(found)
    }
}

/// Counts the landed rows of `tables` with such a time, and returns the smallest as it landed.
async fn count_repeated(
    session: &SessionContext,
    tables: &[Landed],
    times: &LocalTimes<'_>,
) -> Result<Option<(u64, String)>, Error> {
    let mut found: Option<(u64, String)> = None;
    for table in tables {
        for generation in &table.generations {
            if !hold_text(&generation.schema, &times.columns) {
                continue;
            }
            let cells: Vec<Expr> = times.columns.iter().map(|name| ident(*name)).collect();
            let rows = landed_scan::read(session, table, generation)?.select(vec![
                ident(times.columns[0]).alias(TEXT),
                times.check().over(cells).alias(REPEATED),
            ])?;
            let rows = rows.filter(ident(REPEATED))?;
            let counted = vec![count(lit(1_i64)), min(ident(TEXT))];
            let counted = Box::pin(rows.aggregate(Vec::new(), counted)?.collect()).await?;
            for batch in counted.iter().filter(|batch| batch.num_rows() > 0) {
                let rows = batch.column(0).as_primitive::<Int64Type>().value(0);
                let samples = batch.column(1).as_string::<i32>();
                if rows <= 0 || samples.is_null(0) {
                    continue;
                }
                let sample = samples.value(0);
                let (sum, first) = found.get_or_insert_with(|| (0, sample.to_owned()));
                *sum += rows.unsigned_abs();
                if sample < first.as_str() {
                    sample.clone_into(first);
                }
            }
        }
    }
    Ok(found)
}

/// Returns true if all `columns` hold text in this schema version.
fn hold_text(schema: &RecordSchema, columns: &[&str]) -> bool {
    let is_text = |name: &&str| {
        let mut landed = schema.columns.iter();
        landed.any(|column| column.name == **name && column.r#type == ColumnType::Utf8)
    };
    columns.iter().all(is_text)
}
