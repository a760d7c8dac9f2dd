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
use feedline_schemas::{
    config::{JoinConfig, JoinDuplicates, TimeColumn},
    record::{ColumnType, RecordSchema},
};
use futures::{TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::{
    Join, extended,
    operator::{Making, Operator},
    typed,
    walk::{KEY, ORIGIN, Rule, THEIRS, TIME, Walk},
};
use crate::{
    Error,
    columns::{MergedColumn, find},
    landing::Landed,
    plan::{landed_type, origin, read},
    scalar::RowFunction,
    series::{self, Instant},
};

/// Time settings of a join.
#[derive(Clone, Debug)]
pub(super) struct Asof {
    /// When rows of the dataset are.
    pub(super) time: Timed,
    /// When rows of the source are.
    pub(super) right_time: Timed,
    /// The column of the age.
    pub(super) age: Option<MergedColumn>,
    rule: Rule,
}

/// Columns of timestamps, and their format.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    pub(super) column: String,
    clock: Option<String>,
    instant: Instant,
}

/// Resolves the time settings of `join`, which the configuration has at `at`.
///
/// # Errors
/// [`Error::Config`] for columns that are missing or hold no times, and for keys that only such a
/// join has.
pub(super) fn resolve(
    join: &JoinConfig,
    columns: &[MergedColumn],
    theirs: &[MergedColumn],
    at: &impl Fn(&str) -> String,
) -> Result<Option<Asof>, Error> {
    if !join.r#match.is_asof() {
        let keys = [
            ("time", join.time.is_some()),
            ("right_time", join.right_time.is_some()),
            ("tolerance", join.tolerance.is_some()),
            ("allow_exact_matches", join.allow_exact_matches),
            ("duplicates", join.duplicates.is_some()),
            ("age", join.age.is_some()),
        ];
        return match keys.into_iter().find(|(_, given)| *given) {
            Some((key, _)) => {
                let reason =
                    "only a join by time has this key: set `match = \"asof\"`, or remove it";
                Err(Error::config(at(key), reason))
            }
            None => Ok(None),
        };
    }
    let Some(time) = &join.time else {
        let reason =
            "name the column with the time of each row, such as `time = { column = \"at\" }`";
        return Err(Error::config(at("time"), reason));
    };
    let (right_key, right_time) = match &join.right_time {
        Some(right_time) => ("right_time", right_time),
        None => ("time", time),
    };
    let own = Timed::resolve(time, columns, &|key: &str| at(&format!("time.{key}")))?;
    if join.right_time.is_none() {
        check_both(time, join, columns, theirs, &at("right_time"))?;
    }
    let mut theirs = Timed::resolve(right_time, theirs, &|key: &str| {
        at(&format!("{right_key}.{key}"))
    })?;
    // What has happened may be known too late, and never too early.
    theirs.instant.is_later = true;
    Ok(Some(Asof {
        time: own,
        right_time: theirs,
        age: join.age.as_ref().map(|name| MergedColumn {
            name: name.clone(),
            r#type: ColumnType::Float64,
        }),
        rule: Rule {
            tolerance: join.tolerance.map(|span| span.micros()),
            exact: join.allow_exact_matches,
            duplicates: join.duplicates.unwrap_or_default(),
            source: join.source.to_string(),
            key: at("duplicates"),
        },
    }))
}

/// Checks that the `time` settings of the rows fit those of the source.
fn check_both(
    time: &TimeColumn,
    join: &JoinConfig,
    columns: &[MergedColumn],
    theirs: &[MergedColumn],
    key: &str,
) -> Result<(), Error> {
    let is_read = time.format.is_some() || time.zone.is_some() || time.clock.is_some();
    let source = &join.source;
    for name in std::iter::once(&time.column).chain(&time.clock) {
        let held = |columns: &[MergedColumn]| {
            let column = columns.iter().find(|column| column.name == *name)?;
            Some(match column.r#type {
                ColumnType::Utf8 => "text",
                number if number.is_number() => "numbers",
                _ => "no text and no numbers",
            })
        };
        let reason = match (held(columns), held(theirs)) {
            (Some(_), None) => format!("source `{source}` has no column `{name}`"),
            (Some(own), Some(other)) if own != other => {
                if !is_read && own != "numbers" && other != "numbers" {
                    continue;
                }
                format!(
                    "column `{name}` holds {own} in the rows and {other} in source `{source}`, so `time` cannot say how \
                     both are read"
                )
            }
            _ => continue,
        };
        let reason = format!(
            "{reason}; say here when the rows of `{source}` were known, such as `right_time = {{ column = \"at\" }}`"
        );
        return Err(Error::config(key, reason));
    }
    Ok(())
}

impl Timed {
    fn resolve(
        time: &TimeColumn,
        columns: &[MergedColumn],
        key: &impl Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let column = find(&key("column"), &time.column, columns)?;
        if time.zone.is_some() && column.r#type != ColumnType::Utf8 {
            let reason = format!(
                "column `{}` holds no text, so its times are in UTC as they are; remove this key",
                time.column
            );
            return Err(Error::config(key("zone"), reason));
        }
        Ok(Self {
            instant: series::check_time(time, columns, key)?,
            column: time.column.clone(),
            clock: time.clock.clone(),
        })
    }

    /// Returns true if `name` is one of its columns.
    pub(super) fn is_of(&self, name: &str) -> bool {
        self.column == name || self.clock.as_deref() == Some(name)
    }

    /// Timestamps of the rows of a schema version; null where they cannot be read.
    fn over(&self, schema: &RecordSchema) -> Expr {
        // A column that is already a timestamp must not be parsed as text.
        let cell = |name: &String| match schema.columns.iter().any(|column| column.name == *name) {
            true => ident(name),
            false => lit(ScalarValue::Utf8(None)),
        };
        let cells = std::iter::once(&self.column).chain(&self.clock);
        self.instant.clone().over(cells.map(cell).collect())
    }
}

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

    /// Rows of the source that have a key and a time: nulls for the columns of the dataset's rows, and what is taken.
    fn their_rows(
        &self,
        asof: &Asof,
        session: &SessionContext,
        own: &[Field],
        taken: &[(String, MergedColumn)],
    ) -> Result<DataFrame, Error> {
        let mut all: Option<DataFrame> = None;
        for generation in &self.source.generations {
            let schema = &generation.schema;
            let mut columns = nulls(own)?;
            let time = asof.right_time.over(schema);
            columns.extend(marks(self.right_key(schema), time, true));
            for (name, column) in taken {
                columns.push(typed(schema, name, column.r#type)?.alias(&column.name));
            }
            let rows = read(session, &self.source, generation)?.select(columns)?;
            all = Some(match all {
                Some(above) => above.union(rows)?,
                None => rows,
            });
        }
        let all = all.expect("a landed source has at least one row, so at least one file");
        Ok(all.filter(is_placed())?)
    }

    /// Counts the rows of `sources` that find a partner, with the columns of the joins before, and
    /// the rows of the source that are one.
    ///
    /// # Errors
    /// As [`Walk::over`].
    pub(super) async fn walked(
        &self,
        asof: &Asof,
        session: &SessionContext,
        sources: &[Landed],
        before: &[Self],
    ) -> Result<(u64, u64), Error> {
        let mut all = self.their_rows(asof, session, &[], &[])?;
        for source in sources {
            for generation in &source.generations {
                let rows = read(session, source, generation)?;
                let rows = super::beside(session, rows, &generation.schema, before)?;
                let schema = extended(&generation.schema, before);
                let own = marks(self.left_key(&schema), asof.time.over(&schema), false);
                all = all.union(rows.select(own)?.filter(is_placed())?)?;
            }
        }
        let mut walk = Walk::new(asof.rule.clone());
        let mut rows = sorted(all, &asof.rule)?.execute_stream().await?;
        while let Some(batch) = rows.try_next().await? {
            walk.over(&batch)?;
        }
        let lost = self.source.rows().saturating_sub(walk.placed);
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
