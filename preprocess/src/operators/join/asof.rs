//! As-of joins: each row gets the latest row of the other source that came before it.
//!
//! Rows of both sides form one table that the engine sorts by key and time, spilling if needed. An
//! operator that holds one batch and one row then walks over it. So neither side is held in memory,
//! and the result depends neither on partitions nor on the landing order of rows. A row of the
//! source only affects later rows, never earlier ones.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray},
    datatypes::{DataType, Field, SchemaRef},
};
use datafusion::{
    catalog::streaming::StreamingTable,
    common::ScalarValue,
    error::{DataFusionError, Result as EngineResult},
    execution::{SendableRecordBatchStream, TaskContext, memory_pool::MemoryConsumer},
    logical_expr::{Expr, Partitioning, ident, lit},
    physical_plan::{stream::RecordBatchStreamAdapter, streaming::PartitionStream},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{config::JoinDuplicates, record::RecordSchema};
use futures::{TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::{
    asof_times::Asof,
    operator::{Making, Operator},
    resolved_join::{Join, taken_cells},
    walk::{KEY, ORIGIN, Rule, THEIRS, TIME, Walk},
};
use crate::{
    Error,
    engine::scalar_function::RowFunction,
    schema::{
        landed_cells::origin,
        landed_columns::{MergedColumn, landed_type},
    },
    source::latest_version::read_latest,
};

impl Join {
    /// `rows`, which have the columns of `schema`, each with what its newest partner brings.
    pub(super) fn newest_onto(
        &self,
        asof: &Asof,
        session: &SessionContext,
        rows: DataFrame,
        schema: &RecordSchema,
    ) -> Result<DataFrame, Error> {
        let own: Vec<Field> = rows
            .schema()
            .fields()
            .iter()
            .map(|field| Field::new(field.name(), field.data_type().clone(), true))
            .collect();
        let taken = self.taken.iter();
        let taken: Vec<Field> = taken
            .map(|(_, column)| Field::new(&column.name, landed_type(column.r#type), true))
            .collect();
        let mut columns: Vec<Expr> = own
            .iter()
            .map(|field| ident(field.name()).alias(field.name()))
            .collect();
        columns.extend(marks(self.left_key(schema), asof.time.over(schema), false));
        columns.extend(nulls(&taken)?);
        let theirs = self.their_rows(asof, session, &own, &self.taken)?;
        let rows = rows.select(columns)?.union(theirs)?;
        let making = Making {
            rule: asof.rule.clone(),
            own,
            taken,
            age: asof.age.as_ref().map(|column| column.name.clone()),
            missed: self.missed(),
        };
        let schema = Arc::new(making.schema());
        let partition = Sorted {
            frame: sorted(rows, &asof.rule)?,
            schema: Arc::clone(&schema),
            making: Arc::new(making),
        };
        let table = StreamingTable::try_new(schema, vec![Arc::new(partition)])?;
        let rows = session.read_table(Arc::new(table))?;
        let partitions = session.state().config().target_partitions();
        Ok(rows.repartition(Partitioning::RoundRobinBatch(partitions))?)
    }

    /// Rows of the source that have a key and a time: nulls for the columns of the dataset's rows, and what is taken. Of a
    /// source with a `key` of its own, the latest versions.
    fn their_rows(
        &self,
        asof: &Asof,
        session: &SessionContext,
        own: &[Field],
        taken: &[(String, MergedColumn)],
    ) -> Result<DataFrame, Error> {
        let all = read_latest(session, &self.source, |schema| {
            let mut columns = nulls(own)?;
            let time = asof.right_time.over(schema);
            columns.extend(marks(self.right_key(schema), time, true));
            columns.extend(taken_cells(taken, schema)?);
            Ok(columns)
        })?;
        let all = all.expect("a landed source has at least one row, so at least one file");
        Ok(all.filter(is_placed())?)
    }

    /// Counts those of the `landed` rows that find a partner, and the rows of the source that are one, of `theirs` in all.
    ///
    /// # Errors
    /// As [`Walk::over`].
    pub(super) async fn walked(
        &self,
        asof: &Asof,
        session: &SessionContext,
        theirs: u64,
        landed: impl FnOnce() -> Result<Vec<(DataFrame, RecordSchema)>, Error>,
    ) -> Result<(u64, u64), Error> {
        let mut all = self.their_rows(asof, session, &[], &[])?;
        for (rows, schema) in landed()? {
            let own = marks(self.left_key(&schema), asof.time.over(&schema), false);
            all = all.union(rows.select(own)?.filter(is_placed())?)?;
        }
        let mut walk = Walk::new(asof.rule.clone());
        let mut rows = sorted(all, &asof.rule)?.execute_stream().await?;
        while let Some(batch) = rows.try_next().await? {
            walk.over(&batch)?;
        }
        let lost = theirs.saturating_sub(walk.placed);
        if lost > 0 {
            tracing::warn!(
                source = %asof.rule.source, rows = lost,
                "rows of a source that is joined by time have no key, or no time that can be read, so that no row finds them"
            );
        }
        Ok((walk.matched, walk.used))
    }
}

/// Rows of both sources in order; the operator returns those of the dataset.
#[derive(Debug)]
struct Sorted {
    frame: DataFrame,
    schema: SchemaRef,
    making: Arc<Making>,
}

impl PartitionStream for Sorted {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let frame = self.frame.clone();
        let rows = stream::once(async move { frame.execute_stream().await }).try_flatten();
        let held = MemoryConsumer::new("join").register(context.memory_pool());
        let operator = Operator::new(Arc::clone(&self.making), Arc::clone(&self.schema));
        let start = (Box::pin(rows), operator, held);
        let made = stream::try_unfold(start, |(mut rows, mut operator, held)| async move {
            while let Some(batch) = rows.try_next().await? {
                let made = operator.take(&batch)?;
                held.try_resize(operator.bytes())?;
                if let Some(made) = made {
                    return Ok::<_, DataFusionError>(Some((made, (rows, operator, held))));
                }
            }
            Ok(None)
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            made,
        ))
    }
}

/// Sort columns of both sides.
fn marks(key: Expr, time: Expr, is_theirs: bool) -> [Expr; 4] {
    [
        key.alias(KEY),
        time.clone().alias(TIME),
        Side { is_theirs }.over(vec![time]).alias(THEIRS),
        origin(0).alias(ORIGIN),
    ]
}

fn is_placed() -> Expr {
    ident(KEY).is_not_null().and(ident(TIME).is_not_null())
}

fn nulls(fields: &[Field]) -> Result<Vec<Expr>, Error> {
    let mut nulls = Vec::with_capacity(fields.len());
    for field in fields {
        let null = ScalarValue::try_from(field.data_type())?;
        nulls.push(lit(null).alias(field.name()));
    }
    Ok(nulls)
}

/// Sorts by time. Rows that may match the same time come before the row, the preferred one last.
fn sorted(rows: DataFrame, rule: &Rule) -> Result<DataFrame, Error> {
    let newest_first = rule.duplicates == JoinDuplicates::First;
    Ok(rows.sort(vec![
        ident(KEY).sort(true, true),
        ident(TIME).sort(true, true),
        ident(THEIRS).sort(!rule.exact, true),
        ident(ORIGIN).sort(!newest_first, true),
    ])?)
}

/// Side of a row. A function of a column, so that the engine does not treat it as a constant and
/// drop it from the sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Side {
    is_theirs: bool,
}

impl RowFunction for Side {
    const NAME: &'static str = "feedline_join_side";
    const RETURNS: DataType = DataType::Boolean;

    fn call(&self, _: &[ArrayRef], rows: usize) -> EngineResult<ArrayRef> {
        Ok(Arc::new(BooleanArray::from(vec![self.is_theirs; rows])))
    }
}

#[cfg(test)]
mod tests;
