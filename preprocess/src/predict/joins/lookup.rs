//! New rows looked up in the joined sources, by the engine.
//!
//! Each call is one query over the given rows, planned as a build plans its joins: the keys and the
//! used columns of a source are held in memory, or both sides are sorted outside memory.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array, UInt64Array},
    compute::concat_batches,
    datatypes::{DataType, Field, Schema},
};
use datafusion::{
    common::ScalarValue,
    logical_expr::{Expr, ident, lit},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{
    ids::SchemaVersion,
    record::{Column, ColumnType, RecordSchema, system},
    report::{PredictedJoin, Warning},
    transform::InputKind,
};

use super::{AddedColumn, JoinPlan, NewRowJoin, RowJoins};
use crate::{
    Error,
    engine::{scalar_function::RowFunction, scratch::Scratch, session},
    operators::{
        coerce::{Category, Missing, Numeric},
        join::{self, unmatched::MissedKeys},
        number_format,
        row_check::{Judge, Judged},
    },
    schema::{
        landed_cells::landed,
        reject_reason::{self, Reason},
    },
    source::landing_zone::{Landed, unpacked},
};

/// Column with the reason to reject a row.
const FAULT: &str = "_join_fault";

/// Looks new rows up in the joined sources.
pub(in crate::predict) struct JoinLookup {
    session: SessionContext,
    joins: RowJoins,
    plan: Arc<JoinPlan>,
    /// Keys without a match so far, of each join by key alone.
    missed: Vec<MissedKeys>,
    /// Folder of spilled data.
    _scratch: Scratch,
}

/// Result of looking rows up, with a cell for each of them.
pub(in crate::predict) struct LookedUp {
    /// Cells of the added columns: those of inputs as the build reads them, others as strings.
    pub(in crate::predict) columns: Vec<ArrayRef>,
    /// Reason and details of each row that cannot be used.
    pub(in crate::predict) faults: Vec<Option<(&'static str, String)>>,
    /// Rows with and without a match, of each join: of the rows that no join before it leaves out.
    pub(in crate::predict) matches: Vec<[u64; 2]>,
}

impl JoinLookup {
    /// Checks the joined sources and their keys, and reads each once, for rows of `file`.
    /// Blocks.
    ///
    /// # Errors
    /// Damaged files, keys that are not unique, failures of the store and the engine.
    pub(in crate::predict) fn open(joins: &RowJoins, file: &str) -> Result<Self, Error> {
        let plan = Arc::clone(joins.plan_for(file)?);
        let sources: Vec<Landed> = plan.joins.iter().map(|j| j.join.source.clone()).collect();
        let scratch = Scratch::claim(&plan.context.scratch)?;
        let session = session::session(
            &plan.context,
            &scratch.path("spill"),
            joins.added.len() + plan.joins.len(),
            None,
            unpacked(&sources),
        )?;
        let lookup = Self {
            session,
            joins: joins.clone(),
            missed: plan.joins.iter().map(|_| MissedKeys::default()).collect(),
            plan,
            _scratch: scratch,
        };
        let check = Box::pin(lookup.check_sources());
        lookup.plan.runtime.block_on(check)?;
        Ok(lookup)
    }

    /// Checks the files of the joined sources, and that keys are unique, as a build does.
    async fn check_sources(&self) -> Result<(), Error> {
        for NewRowJoin { join, .. } in &self.plan.joins {
            join.source.verify_files(|_| {}).await?;
            if !join.is_asof() {
                Box::pin(join.check_unique(&self.session)).await?;
            }
            tracing::info!(source = %join.name(), rows = join.source.rows(), "new rows are joined with a landed source");
        }
        let joins: Vec<_> = self.plan.joins.iter().map(|j| j.join.clone()).collect();
        Box::pin(join::limit_batches(&self.session, &joins)).await
    }

    /// Looks up rows with these keys and times, in their order. Blocks.
    ///
    /// # Errors
    /// Two rows of a source at one time, failures of the store and the engine.
    pub(in crate::predict) fn look_up(&mut self, keys: &RecordBatch) -> Result<LookedUp, Error> {
        let rows = keys.num_rows();
        let query = Box::pin(self.query(keys));
        let found = self.plan.runtime.block_on(query)?;
        assert_eq!(found.num_rows(), rows, "a join keeps every row");
        let missed: Vec<&ArrayRef> = self
            .plan
            .joins
            .iter()
            .map(|join| column(&found, &join.join.missed()))
            .collect();
        let reasons = column(&found, FAULT).as_string::<i32>();
        let faults = (0..rows).map(|row| {
            let reason = reasons.is_valid(row).then(|| reasons.value(row))?;
            let is_missed = |place: usize| missed[place].is_valid(row);
            Some(self.describe(&Reason::from_json(reason), is_missed))
        });
        let faults = faults.collect();
        Ok(LookedUp {
            columns: (0..self.joins.added.len())
                .map(|place| Arc::clone(column(&found, &added_column(place))))
                .collect(),
            faults,
            matches: self.count_matches(&missed, rows),
        })
    }

    /// Warnings of the joins, whose `counts` are those of all rows that were looked up. Blocks.
    ///
    /// # Errors
    /// Failures of the store and the engine.
    pub(in crate::predict) fn find_warnings(
        &self,
        counts: &[PredictedJoin],
    ) -> Result<Vec<Warning>, Error> {
        let find = Box::pin(self.compare_missed(counts));
        self.plan.runtime.block_on(find)
    }

    /// Compares the keys without a match with those of the joined sources.
    async fn compare_missed(&self, counts: &[PredictedJoin]) -> Result<Vec<Warning>, Error> {
        let mut found = Vec::new();
        for ((join, missed), counts) in self.plan.joins.iter().zip(&self.missed).zip(counts) {
            let columns = join.compared.each_ref().map(String::as_str);
            let counts = [counts.matched, counts.unmatched];
            let built = &self.plan.built;
            let warning =
                (join.join).find_warning_of_new_rows(&self.session, columns, counts, missed, built);
            found.extend(Box::pin(warning).await?);
        }
        Ok(found)
    }

    /// Counts of each join, from the rows that each has `missed`, whose keys are kept.
    fn count_matches(&mut self, missed: &[&ArrayRef], rows: usize) -> Vec<[u64; 2]> {
        let mut is_left = vec![true; rows];
        let joins = self.plan.joins.iter().zip(&mut self.missed).zip(missed);
        let counts = joins.map(|((join, keys), missed)| {
            let texts = missed.as_string::<i32>();
            let mut counts = [0; 2];
            for (row, is_left) in is_left.iter_mut().enumerate().filter(|(_, left)| **left) {
                let is_missed = missed.is_valid(row);
                counts[usize::from(is_missed)] += 1;
                // A join by time has the time beside the key.
                if is_missed && !join.join.is_asof() && !texts.value(row).is_empty() {
                    keys.add(texts.value(row), 1);
                }
                *is_left = !is_missed || join.unmatched.is_none();
            }
            counts
        });
        counts.collect()
    }

    /// The joined rows in the order of `keys`.
    async fn query(&self, keys: &RecordBatch) -> Result<RecordBatch, Error> {
        let schema = record_schema(keys);
        let joins: Vec<_> = self.plan.joins.iter().map(|j| j.join.clone()).collect();
        let rows = self.session.read_batch(with_origins(keys)?)?;
        let rows = join::beside(&self.session, rows, &schema, &joins)?;
        let rows = rows.select(self.columns(&join::extended(&schema, &joins)))?;
        let rows = rows.sort(vec![ident(system::ROW).sort(true, true)])?;
        collect(rows).await
    }

    /// Row, reason, matches and added columns of rows with the columns of `schema`.
    fn columns(&self, schema: &RecordSchema) -> Vec<Expr> {
        let mut columns = vec![ident(system::ROW), self.judge(schema).alias(FAULT)];
        let joins = self.plan.joins.iter();
        columns.extend(joins.map(|join| ident(join.join.missed())));
        let added = self.joins.added.iter().enumerate();
        columns.extend(added.map(|(place, AddedColumn { name, kind })| {
            let cell = vec![landed(schema, name)];
            let missing = self.plan.missing.clone();
            let typed = match kind {
                Some(InputKind::Numeric) => {
                    let signs = number_format::of_column(self.plan.signs, schema, name);
                    Numeric(missing, signs).over(cell)
                }
                Some(InputKind::Categorical) => Category(missing).over(cell),
                None => Category(Missing::new(&[], &[])).over(cell),
            };
            typed.alias(added_column(place))
        }));
        columns
    }

    /// The first reason of a row to be rejected, in the order of the build: rows without a match,
    /// then numbers without an exact float.
    fn judge(&self, schema: &RecordSchema) -> Expr {
        let joins = self.plan.joins.iter();
        let unmatched = joins.filter_map(|join| join.unmatched.clone());
        let (mut columns, mut cells) = (Vec::new(), Vec::new());
        for (name, judged, missed) in unmatched {
            columns.push((name, judged));
            cells.push(missed);
        }
        let added = self.joins.added.iter();
        for added in added.filter(|added| added.kind == Some(InputKind::Numeric)) {
            columns.push((added.name.clone(), Judged::Number));
            cells.push(landed(schema, &added.name));
        }
        if columns.is_empty() {
            return lit(ScalarValue::Utf8(None));
        }
        let judge = Judge {
            columns,
            missing: self.plan.missing.clone(),
            signs: None,
            classes: Vec::new(),
        };
        judge.over(cells)
    }

    /// Reason of a row, and its details; `is_missed` returns true for a join without a match.
    fn describe(
        &self,
        found: &Reason,
        is_missed: impl Fn(usize) -> bool,
    ) -> (&'static str, String) {
        let Reason {
            reason,
            column,
            value,
        } = found;
        let reason = match reason.as_str() {
            reject_reason::UNMATCHED => reject_reason::UNMATCHED,
            reject_reason::UNMATCHED_DROPPED => reject_reason::UNMATCHED_DROPPED,
            _ => {
                let detail = format!("column `{column}`: `{value}` is beyond 2^53");
                return (reject_reason::INTEGER_TOO_LARGE, detail);
            }
        };
        let mut joins = self.plan.joins.iter().enumerate();
        let missed = joins.find(|(place, join)| join.unmatched.is_some() && is_missed(*place));
        let source = missed.map_or_else(String::new, |(_, join)| join.join.name().to_string());
        let detail = match value.as_str() {
            "" => format!("column `{column}` has no value, so no row of source `{source}` matches"),
            value => format!("column `{column}`: no row of source `{source}` matches `{value}`"),
        };
        (reason, detail)
    }
}

/// Name of an added column in a query.
fn added_column(place: usize) -> String {
    format!("_join_added_{place}")
}

fn column<'a>(rows: &'a RecordBatch, name: &str) -> &'a ArrayRef {
    rows.column_by_name(name)
        .expect("the query has this column")
}

/// The columns of `keys` as a landed schema has them.
fn record_schema(keys: &RecordBatch) -> RecordSchema {
    let columns = keys.schema_ref().fields().iter().map(|field| Column {
        field_id: 0,
        name: field.name().clone(),
        r#type: match field.data_type() {
            DataType::Utf8 => ColumnType::Utf8,
            _ => ColumnType::Timestamp,
        },
        whole: false,
    });
    RecordSchema {
        version: SchemaVersion::new(0),
        columns: columns.collect(),
    }
}

/// The rows of `keys` with the system columns of landed rows, which count them.
fn with_origins(keys: &RecordBatch) -> Result<RecordBatch, Error> {
    let rows = u32::try_from(keys.num_rows()).expect("few rows are looked up together");
    let mut fields = vec![
        Field::new(system::SEQUENCE, DataType::UInt64, true),
        Field::new(system::ROW, DataType::UInt32, true),
    ];
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_value(0, keys.num_rows())),
        Arc::new(UInt32Array::from_iter_values(0..rows)),
    ];
    let own = keys.schema_ref().fields().iter();
    fields.extend(own.map(|field| field.as_ref().clone()));
    columns.extend(keys.columns().iter().cloned());
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

/// All rows of `frame` as one batch.
async fn collect(frame: DataFrame) -> Result<RecordBatch, Error> {
    let schema = Arc::clone(frame.schema().inner());
    let batches = frame.collect().await?;
    let schema = batches.first().map_or(schema, RecordBatch::schema);
    Ok(concat_batches(&schema, &batches)?)
}
