//! Rows that an SQL query makes from the sources, before any other step.
//!
//! The query runs once, in one partition, so that its result does not depend on their number. The
//! rows are sorted by their content hashes and numbered, which is their origin: as long as the
//! query gives the same rows, a row keeps its origin, in whatever order the query gives them. Rows
//! of equal content are neighbours and interchangeable. The result is staged in scratch like a
//! landed source. Its integers are exact or end the build.

mod exact_integers;
pub(crate) mod other_rows;
mod refusal;
pub(crate) mod repeats;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array},
    datatypes::{DataType, SchemaRef},
    error::ArrowError,
};
use datafusion::{
    catalog::streaming::StreamingTable,
    common::{
        TableReference,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    error::DataFusionError,
    execution::{SendableRecordBatchStream, TaskContext, context::SQLOptions},
    logical_expr::{Expr, LogicalPlan, Volatility, cast, ident},
    physical_plan::{stream::RecordBatchStreamAdapter, streaming::PartitionStream},
    prelude::{DataFrame, SessionConfig, SessionContext},
};
use feedline_schemas::{
    commit::DataFile,
    ids::{Hash128, Name, SchemaVersion, Sequence, TableName},
    manifest::SourceReference,
    record::{Column, ColumnType, RecordSchema},
};
use futures::{StreamExt, TryStreamExt, stream};

use self::{
    other_rows::MadeColumn,
    refusal::{KEY, refuse},
    repeats::BaseTables,
};
use crate::{
    Context, Engine, Error,
    engine::{
        scratch::{Scratch, ScratchFile},
        session::session,
    },
    message_with_causes,
    operators::{dedup::content_hash::Cells, split::names_as_written},
    pass_progress::PassProgress,
    schema::{
        landed_cells::{content_hash, origin, parent, typed},
        landed_columns::{landed_schema, landed_type, merge},
        system_columns,
    },
    source::{
        landed_scan::read_all,
        landing_zone::{Generation, Landed},
        latest_version::{self, LatestVersion},
    },
    statistics::aggregates::register_spellings,
};

/// Name in place of a source in the origins of the rows.
pub(crate) const SOURCE: &str = "sql";

/// Bits of a row number within a batch of a source, as origins count.
const BATCH_BITS: u32 = 24;

/// A query, checked against what the sources have landed.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    sql: String,
    /// Columns of the result.
    pub(crate) schema: RecordSchema,
    /// The same, with what makes them of other rows.
    pub(crate) made: Vec<MadeColumn>,
    /// Tables that the rows begin from; nothing before it ran, or if they are unknown.
    pub(crate) base: Option<BaseTables>,
}

impl Query {
    /// Plans `sql` over tables that are called as `sources` are.
    ///
    /// # Errors
    /// [`Error::Config`] for a query that cannot be read, that is none, whose result may change from run to run, or whose
    /// columns have no landed type or one name.
    pub(crate) async fn resolve(sql: &str, sources: &[Landed]) -> Result<Self, Error> {
        let session = SessionContext::new_with_config(names_as_written(SessionConfig::new()));
        let frame = planned(&session, sql, sources).await?;
        check(frame.logical_plan())?;
        let mut columns: Vec<Column> = Vec::new();
        for field in frame.schema().fields() {
            let name = field.name();
            let r#type = column_type(field.data_type()).ok_or_else(|| {
                refuse(format!(
                    "column `{name}` is of type {}, which is not supported; `cast` it, or leave it out",
                    field.data_type()
                ))
            })?;
            if columns.iter().any(|column| column.name == *name) {
                return Err(refuse(format!(
                    "two columns of the result are called `{name}`; name one apart with `as`"
                )));
            }
            columns.push(Column {
                field_id: 0,
                name: name.clone(),
                r#type,
                whole: false,
            });
        }
        Ok(Self {
            sql: sql.to_owned(),
            made: other_rows::columns(frame.logical_plan()),
            base: None,
            schema: RecordSchema {
                version: SchemaVersion::new(0),
                columns,
            },
        })
    }

    /// Runs the query, and stages its rows.
    pub(crate) async fn run(
        &mut self,
        sources: &[Landed],
        context: &Context,
        scratch: &Scratch,
    ) -> Result<Landed, Error> {
        let staged = self.staged(sources, context, scratch).await;
        let (landed, base) = staged.map_err(of_query)?;
        self.base = base;
        Ok(landed)
    }

    async fn staged(
        &self,
        sources: &[Landed],
        context: &Context,
        scratch: &Scratch,
    ) -> Result<(Landed, Option<BaseTables>), Error> {
        let session = opened(context, &scratch.path("spill-sql"))?;
        session.add_analyzer_rule(Arc::new(exact_integers::ExactIntegers));
        let frame = planned(&session, &self.sql, sources).await?;
        let tables = other_rows::tables_of(frame.logical_plan());
        let read = Box::pin(rows_read(&session, sources, &tables)).await?;
        let base = BaseTables::of(frame.logical_plan(), &read);
        let columns: Vec<Expr> = frame
            .schema()
            .iter()
            .zip(&self.schema.columns)
            .map(|(field, column)| {
                cast(Expr::from(field), landed_type(column.r#type)).alias(&column.name)
            })
            .collect();
        let names = self
            .schema
            .columns
            .iter()
            .map(|column| column.name.as_str());
        let mut with_hash: Vec<Expr> = names.clone().map(ident).collect();
        with_hash.push(content_hash(names, Cells::Typed).alias(system_columns::HASH));
        let rows = frame
            .select(columns)?
            .select(with_hash)?
            .sort(vec![ident(system_columns::HASH).sort(true, false)])?;
        Ok((self.stage(rows, context, scratch).await?, base))
    }

    async fn stage(
        &self,
        rows: DataFrame,
        context: &Context,
        scratch: &Scratch,
    ) -> Result<Landed, Error> {
        let schema = Arc::new(landed_schema(&self.schema, false));
        let mut file = ScratchFile::new(scratch.path("sql.parquet"), Arc::clone(&schema));
        let meter = PassProgress::new(&context.progress, "shards: sql", 0);
        let mut stream = rows.execute_stream().await?;
        let mut place = 0_u64;
        while let Some(batch) = stream.try_next().await? {
            let places = place..place + batch.num_rows() as u64;
            let row = |place: u64| u32::try_from(place % (1 << BATCH_BITS)).unwrap_or(u32::MAX);
            let sequences: UInt64Array = places.clone().map(|place| place >> BATCH_BITS).collect();
            let places: UInt32Array = places.map(row).collect();
            let mut columns: Vec<ArrayRef> = vec![Arc::new(sequences), Arc::new(places)];
            let own = batch.columns().iter().take(self.schema.columns.len());
            columns.extend(own.map(Arc::clone));
            file.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
            place += batch.num_rows() as u64;
            meter.add(batch.num_rows() as u64);
        }
        let Some(file) = file.finish()? else {
            return Err(Error::input(
                "the result of `dataset.sql`",
                "it has no row",
                "look at its conditions and at what the sources have landed",
            ));
        };
        let listed = DataFile {
            path: file.path.to_string(),
            rows: place,
            bytes: file.bytes,
            hash: Hash128::new(0),
        };
        Ok(Landed {
            store: context.root.clone(),
            reference: SourceReference {
                name: table_name(),
                sequence: Sequence::new(0),
                entry_hash: Hash128::new(0),
                licence: None,
            },
            log_end: None,
            generations: vec![Generation {
                schema: self.schema.clone(),
                files: vec![listed],
            }],
            key: Vec::new(),
            version: None,
            has_declared_version: false,
            records: None,
            local: Some(file),
            in_place: None,
            left_out: 0,
        })
    }
}

/// Landed rows of each table of a query.
pub(crate) fn landed_rows(sources: &[Landed]) -> BTreeMap<String, u64> {
    let tables = sources.iter();
    tables
        .map(|source| (source.reference.name.to_string(), source.rows()))
        .collect()
}

/// Rows that a query reads from each of its `tables`: of a source with a `key`, the latest versions.
async fn rows_read(
    session: &SessionContext,
    sources: &[Landed],
    tables: &BTreeSet<String>,
) -> Result<BTreeMap<String, u64>, Error> {
    let mut rows = landed_rows(sources);
    for source in sources {
        let name = source.reference.name.to_string();
        let (key, _) = source.newest();
        if !key.is_empty() && tables.contains(&name) {
            let read = table(session, source)?.count().await?;
            rows.insert(name, read as u64);
        }
    }
    Ok(rows)
}

/// Source name of the rows.
pub(crate) fn table_name() -> TableName {
    TableName::from(Name::new(SOURCE).expect("it is a name"))
}

/// A local session of one partition: sums of the user's query may depend on partitions.
fn opened(context: &Context, spill: &Path) -> Result<SessionContext, Error> {
    let context = Context {
        partitions: 1,
        engine: Engine::Local,
        ..context.clone()
    };
    session(&context, spill, 16, None, 0)
}

async fn planned(
    session: &SessionContext,
    sql: &str,
    sources: &[Landed],
) -> Result<DataFrame, Error> {
    register_spellings(session)?;
    for source in sources {
        let name = source.reference.name.to_string();
        let view = table(session, source)?.into_view();
        session.register_table(TableReference::bare(name), view)?;
    }
    let options = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    session
        .sql_with_options(sql, options)
        .await
        .map_err(|error| {
            let tables: Vec<String> = sources
                .iter()
                .map(|s| s.reference.name.to_string())
                .collect();
            let error = message_with_causes(&error);
            refuse(format!(
                "it cannot be read: {error}; it is one `select` over the tables {}{}",
                tables.join(", "),
                child_table_advice(&error, sources)
            ))
        })
}

/// Advice for a query that names a child table of a source without making it one of its tables. The engine has no type of error for
/// a missing table, only this text; where its words change, the advice is missing, and the error remains.
fn child_table_advice(error: &str, sources: &[Landed]) -> String {
    let missing = error.split_once("table '").map(|(_, rest)| rest);
    let missing = missing.and_then(|rest| Some(rest.split_once("' not found")?.0));
    let mut names = sources.iter().map(|s| &s.reference.name.source);
    match missing.and_then(|table| names.find(|name| table.contains(&format!(".{name}.")))) {
        Some(name) => format!(
            "; a child table of `{name}` is listed in `dataset.sources`, such as `[\"{name}\", \"{name}.items\"]`, and is \
             called `\"{name}.items\"` in the query, with its quotation marks"
        ),
        None => String::new(),
    }
}

/// The rows of a source, all schema versions, of each thing the newest where it has a key.
fn table(session: &SessionContext, source: &Landed) -> Result<DataFrame, Error> {
    let newest = LatestVersion::of(source)?;
    let merged = merge(source.generations.iter().map(|g| &g.schema));
    let all = read_all(session, source, |schema| {
        let mut columns = Vec::with_capacity(merged.len() + 4);
        for column in &merged {
            columns.push(typed(schema, &column.name, column.r#type)?.alias(&column.name));
        }
        columns.push(origin(0).alias(system_columns::ORIGIN));
        if let Some(newest) = &newest {
            columns.extend(newest.columns(schema)?);
        }
        if source.records.is_some() {
            columns.push(parent().alias(latest_version::RECORD));
        }
        Ok(columns)
    })?;
    let mut all = all.expect("a landed source has at least one row, so at least one file");
    if source.generations.len() > 1 {
        let schema = Arc::new(all.schema().as_arrow().clone());
        let in_turn = InTurn {
            rows: all,
            schema: Arc::clone(&schema),
        };
        let table = StreamingTable::try_new(schema, vec![Arc::new(in_turn)])?;
        all = session.read_table(Arc::new(table))?;
    }
    let rows = match &newest {
        Some(newest) => newest.keep(all)?,
        None => all,
    };
    let rows = match &source.records {
        Some(records) => latest_version::of_newest(session, rows, records)?,
        None => rows,
    };
    Ok(rows.select(
        merged
            .iter()
            .map(|column| ident(&column.name))
            .collect::<Vec<_>>(),
    )?)
}

/// The rows of several plans, one plan after the other: a union is as many partitions, which come as they are ready.
#[derive(Debug)]
struct InTurn {
    rows: DataFrame,
    schema: SchemaRef,
}

impl PartitionStream for InTurn {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let parts = stream::once(self.rows.clone().execute_stream_partitioned());
        let batches = parts.map_ok(|parts| stream::iter(parts).flatten());
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            batches.try_flatten(),
        ))
    }
}

/// Refuses what may give another result for the same rows.
fn check(plan: &LogicalPlan) -> Result<(), Error> {
    let mut odd = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::ScalarFunction(call) = part
                    && call.func.signature().volatility != Volatility::Immutable
                {
                    odd.get_or_insert_with(|| call.func.name().to_owned());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })
    .map_err(|error: DataFusionError| refuse(message_with_causes(&error)))?;
    odd.map_or(Ok(()), |name| {
        Err(refuse(format!(
            "`{name}` may change from run to run, and the same input makes the same dataset; leave it out"
        )))
    })
}

/// An error of the engine while the query ran, which says so; what the machine lacks is no fault of the query.
fn of_query(error: Error) -> Error {
    match error {
        Error::Memory { reason } => Error::Memory {
            reason: format!("{reason}, while the query of `{KEY}` ran"),
        },
        Error::Engine(error) => match error.find_root() {
            DataFusionError::IoError(_)
            | DataFusionError::ObjectStore(_)
            | DataFusionError::ParquetError(_) => {
                Error::Engine(error.context(format!("the query of `{KEY}`")))
            }
            root => refuse(format!(
                "it fails: {}; {}",
                message_with_causes(&error),
                advice_on(root)
            )),
        },
        other => other,
    }
}

/// Advice on an error of the rows of a query.
fn advice_on(error: &DataFusionError) -> &'static str {
    let error = match error {
        DataFusionError::ArrowError(error, _) => Some(&**error),
        _ => None,
    };
    match error {
        Some(ArrowError::DivideByZero) => "divide by `nullif(..., 0)`, which gives no value there",
        Some(ArrowError::CastError(_)) => "use `try_cast`, which gives no value there",
        _ => "correct the query or the rows",
    }
}

/// The landed type that holds all values of a column of the result.
fn column_type(found: &DataType) -> Option<ColumnType> {
    Some(match found {
        DataType::Null => ColumnType::Null,
        DataType::Boolean => ColumnType::Bool,
        found if found.is_integer() => ColumnType::Int64,
        found if found.is_floating() => ColumnType::Float64,
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => ColumnType::Decimal,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ColumnType::Utf8,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => ColumnType::Binary,
        // What is no instant is its text, as everywhere.
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None) => ColumnType::Utf8,
        DataType::Timestamp(..) => ColumnType::Timestamp,
        DataType::List(item) | DataType::LargeList(item) => match column_type(item.data_type())? {
            ColumnType::Bool => ColumnType::ListBool,
            ColumnType::Int64 => ColumnType::ListInt64,
            ColumnType::Float64 => ColumnType::ListFloat64,
            ColumnType::Utf8 => ColumnType::ListUtf8,
            _ => return None,
        },
        DataType::Dictionary(_, value) => return column_type(value),
        _ => return None,
    })
}
