//! Joins by key: each row gets the one row of the other source that has its key.

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::Int64Type,
};
use datafusion::{
    common::JoinType,
    functions_aggregate::expr_fn::{count, max, min, sum},
    logical_expr::{Expr, ident, lit},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{config::KeyMatch, record::RecordSchema};

use super::{
    key::{Key, Missed},
    resolved_join::{Join, taken_cells},
};
use crate::{
    Error,
    engine::{scalar_function::RowFunction, union::append_rows},
    error::keys_appear,
    schema::{landed_cells::landed, landed_columns::listed},
    source::latest_version::read_latest,
    warnings::toml_string,
};

const LEFT: &str = "_join_left";
const RIGHT: &str = "_join_right";
const ROWS: &str = "_join_rows";
const LOW: &str = "_join_low";
const HIGH: &str = "_join_high";

impl Join {
    /// `rows`, which have the columns of `schema`, with what is taken of the row of their key.
    pub(super) fn keyed_onto(
        &self,
        session: &SessionContext,
        rows: DataFrame,
        schema: &RecordSchema,
    ) -> Result<DataFrame, Error> {
        let own: Vec<String> = names(&rows);
        let mut columns: Vec<Expr> = own.iter().map(ident).collect();
        columns.push(self.left_key(schema).alias(LEFT));
        let rows = rows.select(columns)?;
        // The side that comes first is held in memory.
        let joined =
            self.source_rows(session)?
                .join(rows, JoinType::Right, &[RIGHT], &[LEFT], None)?;
        let mut columns: Vec<Expr> = own.iter().map(ident).collect();
        columns.extend(self.taken.iter().map(|(_, column)| ident(&column.name)));
        let key = vec![ident(LEFT), ident(RIGHT)];
        columns.push(Missed.over(key).alias(self.missed()));
        Ok(joined.select(columns)?)
    }

    /// The rows of the source that have a key: the key, and what is taken. Of a source with a `key` of its own, the latest
    /// versions.
    fn source_rows(&self, session: &SessionContext) -> Result<DataFrame, Error> {
        let all = read_latest(session, &self.source, |schema| {
            let mut columns = vec![self.right_key(schema).alias(RIGHT)];
            columns.extend(taken_cells(&self.taken, schema)?);
            Ok(columns)
        })?;
        let all = all.expect("a landed source has at least one row, so at least one file");
        Ok(all.filter(ident(RIGHT).is_not_null())?)
    }

    /// Checks that keys of the source are unique: a duplicate key would multiply rows.
    ///
    /// # Errors
    /// [`Error::Config`] for keys that are not.
    pub(crate) async fn check_unique(&self, session: &SessionContext) -> Result<(), Error> {
        let keys = self.source_rows(session)?.select(vec![ident(RIGHT)])?;
        let twice = keys
            .aggregate(vec![ident(RIGHT)], vec![count(lit(1_i64)).alias(ROWS)])?
            .filter(ident(ROWS).gt(lit(1_i64)))?;
        let keys = twice.clone().count().await?;
        if keys == 0 {
            return Ok(());
        }
        let first = twice.sort(vec![ident(RIGHT).sort(true, false)])?;
        let first = first.limit(0, Some(1))?.collect().await?;
        let (key, rows) = first.first().map_or_else(Default::default, |batch| {
            let rows = batch.column(1).as_primitive::<Int64Type>().value(0);
            (text(batch, 0), rows)
        });
        Err(Error::config(
            format!("dataset.join.{}.right", self.index),
            format!(
                "{} more than once in column `{}` of source `{}`, such as `{key}` in {rows} rows; {}, or join by another column",
                keys_appear(keys as u64),
                self.right.as_deref().unwrap_or_default(),
                self.name(),
                self.unique_advice()
            ),
        ))
    }

    /// Advice for keys that appear more than once.
    fn unique_advice(&self) -> String {
        let right = self.right.as_deref().unwrap_or_default();
        let key: Vec<&str> = self.source.key.iter().map(String::as_str).collect();
        match self.matching {
            KeyMatch::Name | KeyMatch::Stem => {
                "compare more of it with `match`, or a row would be taken several times: land each key once".to_owned()
            }
            KeyMatch::Exact | KeyMatch::Asof if key.is_empty() => format!(
                "a row would be taken several times: if these rows are versions of one thing, set `key = [{}]` of source `{}`, \
                 so that the latest version of each is read; else land each key once",
                toml_string(right),
                self.name()
            ),
            KeyMatch::Exact | KeyMatch::Asof => format!(
                "a row would be taken several times: `key` of the source says which rows are versions of one thing ({}), and these \
                 are not; land each key once",
                listed(&key, "`")
            ),
        }
    }

    /// Counts those of the `landed` rows that have a partner, and the rows of the source that are one.
    ///
    /// # Errors
    /// [`Error::Config`] for keys that are not unique, or not in the part that is compared.
    pub(super) async fn looked_up(
        &self,
        session: &SessionContext,
        landed: impl FnOnce() -> Result<Vec<(DataFrame, RecordSchema)>, Error>,
    ) -> Result<(u64, u64), Error> {
        self.check_unique(session).await?;
        let matches = self.matches(session, landed()?)?;
        if !self.matching.is_exact() {
            self.check_parts(matches.clone()).await?;
        }
        let found = vec![sum(ident(ROWS)), count(lit(1_i64))];
        let found = matches.aggregate(Vec::new(), found)?.collect().await?;
        let number = |column: usize| -> u64 {
            let cell = found
                .first()
                .map(|batch| batch.column(column).as_primitive::<Int64Type>());
            // The sum of nothing is null.
            let cell = cell.filter(|cell| !cell.is_empty() && cell.is_valid(0));
            cell.and_then(|cell| u64::try_from(cell.value(0)).ok())
                .unwrap_or(0)
        };
        Ok((number(0), number(1)))
    }

    /// The keys that both sides have: how many rows have each, and the smallest and largest of the whole keys.
    fn matches(
        &self,
        session: &SessionContext,
        rows: Vec<(DataFrame, RecordSchema)>,
    ) -> Result<DataFrame, Error> {
        let mut all: Option<DataFrame> = None;
        for (rows, schema) in rows {
            let (key, left) = (self.left_key(&schema), self.left.as_deref());
            let whole = landed(&schema, left.unwrap_or_default());
            let whole = Key(KeyMatch::Exact).over(vec![whole]);
            let keys = rows.select(vec![key.alias(LEFT), whole.alias(LOW)])?;
            all = Some(append_rows(all, keys)?);
        }
        let all = all.expect("a landed source has at least one row, so at least one file");
        let keys = all.filter(ident(LEFT).is_not_null())?.aggregate(
            vec![ident(LEFT)],
            vec![
                count(lit(1_i64)).alias(ROWS),
                max(ident(LOW)).alias(HIGH),
                min(ident(LOW)).alias(LOW),
            ],
        )?;
        let theirs = self.source_rows(session)?.select(vec![ident(RIGHT)])?;
        Ok(theirs.join(keys, JoinType::Inner, &[RIGHT], &[LEFT], None)?)
    }

    /// Rows with different keys must not have the part in common that is compared.
    async fn check_parts(&self, matches: DataFrame) -> Result<(), Error> {
        let shared = matches.filter(ident(LOW).lt(ident(HIGH)))?;
        let keys = shared.clone().count().await?;
        if keys == 0 {
            return Ok(());
        }
        let first = shared
            .select(vec![ident(LEFT), ident(LOW), ident(HIGH)])?
            .sort(vec![ident(LEFT).sort(true, false)])?
            .limit(0, Some(1))?;
        let first = first.collect().await?;
        let [key, low, high] = [0, 1, 2].map(|column| {
            let batch = first.first();
            batch.map_or_else(String::new, |batch| text(batch, column))
        });
        Err(Error::config(
            format!("dataset.join.{}.match", self.index),
            format!(
                "rows with different keys would share a row of source `{}`: `{low}` and `{high}` are both `{key}` ({keys} \
                 such); compare whole keys with `match = \"exact\"`, or join by another column",
                self.name()
            ),
        ))
    }
}

fn names(rows: &DataFrame) -> Vec<String> {
    let fields = rows.schema().fields().iter();
    fields.map(|field| field.name().clone()).collect()
}

fn text(batch: &RecordBatch, column: usize) -> String {
    batch.column(column).as_string::<i32>().value(0).to_owned()
}
