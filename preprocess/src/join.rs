//! Columns of other sources, joined to the rows by key before any other step.
//!
//! A key is unique in the joined source, or the build ends: no row is ever multiplied, so a dataset
//! has as many rows after its joins as before. The joined values depend on keys alone, whatever the
//! partitions; with `asof`, on keys and times.
//!
//! The joined source is held in memory, its keys and the used columns, while the rows stream past
//! it; where that would take an eighth of the memory limit both sides are sorted instead, outside
//! memory.

pub(crate) mod asof;
pub(crate) mod key;
mod operator;
mod walk;

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{DataType, Int64Type},
};
use datafusion::{
    common::{JoinType, ScalarValue},
    functions_aggregate::expr_fn::{count, max, min, sum},
    logical_expr::{Expr, cast, ident, lit},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{
    config::{DatasetConfig, JoinConfig, KeyMatch, Unmatched},
    ids::Name,
    manifest::JoinCounts,
    record::{Column, ColumnType, RecordSchema},
};

use self::{
    asof::Asof,
    key::{Key, Missed},
};
use crate::{
    Error,
    columns::{self, MergedColumn, find},
    landing::Landed,
    plain::{self, Plain},
    plan::{landed, landed_type, read},
    scalar::RowFunction,
    typing::Judged,
};

/// Names of the columns that joins work with begin with this.
const RESERVED: &str = "_join_";
const LEFT: &str = "_join_left";
const RIGHT: &str = "_join_right";
const ROWS: &str = "_join_rows";
const LOW: &str = "_join_low";
const HIGH: &str = "_join_high";

/// Reasons for rejecting a row.
pub(crate) mod reason {
    /// The joined source has nothing for it.
    pub(crate) const UNMATCHED: &str = "unmatched";
    /// The same, and such rows are left out by choice.
    pub(crate) const DROPPED: &str = "unmatched_dropped";
}

/// A join, checked against the landed columns.
#[derive(Clone, Debug)]
pub(crate) struct Join {
    pub(crate) source: Landed,
    /// Index of the join in the configuration.
    index: usize,
    /// Columns of the key; without them all rows have one.
    left: Option<String>,
    right: Option<String>,
    matching: KeyMatch,
    asof: Option<Asof>,
    unmatched: Unmatched,
    /// Columns of the source, and what they are called beside the rows.
    taken: Vec<(String, MergedColumn)>,
}

/// The sources that are joined on.
pub(crate) fn sources(config: &DatasetConfig) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    for join in &config.join {
        if !names.contains(&join.source) {
            names.push(join.source.clone());
        }
    }
    names
}

/// Checks the joins of a dataset against its landed `columns`, to which each adds what it brings, and the sources that
/// are joined on.
///
/// # Errors
/// [`Error::Config`] for columns that are missing, cannot be keys, or would take the name of
/// another column.
pub(crate) fn resolve(
    config: &DatasetConfig,
    columns: &mut Vec<MergedColumn>,
    sources: &[Landed],
) -> Result<Vec<Join>, Error> {
    let mut joins = Vec::with_capacity(config.join.len());
    for (index, join) in config.join.iter().enumerate() {
        let source = sources
            .iter()
            .find(|source| source.reference.name.is_records_of(&join.source))
            .expect("every source that is joined on was read");
        let join = resolve_one(index, join, columns, source)?;
        columns.extend(join.brought().cloned());
        joins.push(join);
    }
    Ok(joins)
}

fn resolve_one(
    index: usize,
    join: &JoinConfig,
    columns: &[MergedColumn],
    source: &Landed,
) -> Result<Join, Error> {
    let at = |field: &str| format!("dataset.join.{index}.{field}");
    let theirs = columns::merge(source.generations.iter().map(|g| &g.schema));
    let asof = asof::resolve(join, columns, &theirs, &at)?;
    if join.left.is_none() && (asof.is_none() || join.right.is_some()) {
        let reason = "name the column of the rows that the rows of `source` are looked up by";
        return Err(Error::config(at("left"), reason));
    }
    let right = join.right.as_ref().or(join.left.as_ref());
    if let (Some(left), Some(right)) = (&join.left, right) {
        let right_key = at(if join.right.is_some() {
            "right"
        } else {
            "left"
        });
        check_key(&at("left"), find(&at("left"), left, columns)?)?;
        check_key(&right_key, find(&right_key, right, &theirs)?)?;
    }
    let mut taken = Vec::new();
    if join.columns.is_empty() {
        let is_time = |name: &str| asof.as_ref().is_some_and(|a| a.right_time.is_of(name));
        let is_key = |name: &String| right == Some(name);
        let columns = theirs.iter();
        taken.extend(columns.filter(|column| !is_key(&column.name) && !is_time(&column.name)));
    }
    for name in &join.columns {
        taken.push(find(&at("columns"), name, &theirs)?);
    }
    let named = |column: &MergedColumn| MergedColumn {
        name: format!("{}{}", join.prefix, column.name),
        r#type: column.r#type,
    };
    let mut found: Vec<(String, MergedColumn)> = Vec::new();
    for column in taken {
        let named = named(column);
        let is_taken = |there: &MergedColumn| there.name == named.name;
        if columns.iter().any(is_taken) || found.iter().any(|(_, there)| is_taken(there)) {
            let reason = format!(
                "the rows already have a column `{}`, which `{}` has too; list the columns that are wanted here, or put \
                 something before their names with `prefix`",
                named.name, join.source
            );
            return Err(Error::config(at("columns"), reason));
        }
        check_reserved(&at("columns"), &named, "leave it out, or set `prefix`")?;
        found.push((column.name.clone(), named));
    }
    if let Some(age) = asof.as_ref().and_then(|asof| asof.age.as_ref()) {
        let mut others = columns.iter().chain(found.iter().map(|(_, there)| there));
        if age.name.is_empty() || others.any(|there| there.name == age.name) {
            let reason = match age.name.as_str() {
                "" => "a column needs a name".to_owned(),
                name => format!("there is a column `{name}`, choose another name"),
            };
            return Err(Error::config(at("age"), reason));
        }
        check_reserved(&at("age"), age, "choose another")?;
    }
    Ok(Join {
        source: source.clone(),
        index,
        left: join.left.clone(),
        right: right.cloned(),
        matching: join.r#match,
        asof,
        unmatched: join.unmatched,
        taken: found,
    })
}

fn check_key(key: &str, column: &MergedColumn) -> Result<(), Error> {
    let what = match column.r#type {
        ColumnType::Null => "holds no value in any row",
        ColumnType::Json => "holds lists",
        list if list.is_list() => "holds lists",
        ColumnType::Binary => "holds bytes",
        _ => return Ok(()),
    };
    let name = &column.name;
    Err(Error::config(
        key,
        format!("column `{name}` {what}, so it cannot be a key; name another"),
    ))
}

fn check_reserved(key: &str, column: &MergedColumn, advice: &str) -> Result<(), Error> {
    let name = &column.name;
    if !name.starts_with(RESERVED) {
        return Ok(());
    }
    let reason = format!("`{name}` has a name that the build itself uses; {advice}");
    Err(Error::config(key, reason))
}

/// The schema of rows that `joins` brought their columns to.
pub(crate) fn extended(schema: &RecordSchema, joins: &[Join]) -> RecordSchema {
    let mut schema = schema.clone();
    let brought = joins.iter().flat_map(Join::brought);
    schema.columns.extend(brought.map(|column| Column {
        field_id: 0,
        name: column.name.clone(),
        r#type: column.r#type,
        whole: false,
    }));
    schema
}

/// `rows`, which have the columns of `schema`, with what `joins` bring beside them.
pub(crate) fn beside(
    session: &SessionContext,
    mut rows: DataFrame,
    schema: &RecordSchema,
    joins: &[Join],
) -> Result<DataFrame, Error> {
    for (index, join) in joins.iter().enumerate() {
        let schema = extended(schema, &joins[..index]);
        rows = join.onto(session, rows, &schema)?;
    }
    Ok(rows)
}

impl Join {
    /// Columns that it takes of its source, and what they are called beside the rows.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (&str, &str)> {
        let taken = self.taken.iter();
        taken.map(|(name, column)| (name.as_str(), column.name.as_str()))
    }

    /// Columns that the join adds to the rows.
    fn brought(&self) -> impl Iterator<Item = &MergedColumn> {
        let age = self.asof.as_ref().and_then(|asof| asof.age.as_ref());
        self.taken.iter().map(|(_, column)| column).chain(age)
    }

    /// Reason and condition that make a row without a partner unusable, if they do.
    pub(crate) fn judged(&self) -> Option<(String, Judged, Expr)> {
        let judged = match self.unmatched {
            Unmatched::Null => return None,
            Unmatched::Reject => Judged::Unmatched,
            Unmatched::Drop => Judged::Dropped,
        };
        let time = self.asof.as_ref().map(|asof| &asof.time.column);
        let column = self.left.as_ref().or(time).cloned();
        Some((column.unwrap_or_default(), judged, ident(self.missed())))
    }

    /// The column that has the key of a row without a partner.
    fn missed(&self) -> String {
        format!("{RESERVED}missed_{}", self.index)
    }

    fn onto(
        &self,
        session: &SessionContext,
        rows: DataFrame,
        schema: &RecordSchema,
    ) -> Result<DataFrame, Error> {
        if let Some(asof) = &self.asof {
            return self.newest_onto(asof, session, rows, schema);
        }
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

    /// The rows of the source that have a key: the key, and what is taken.
    fn source_rows(&self, session: &SessionContext) -> Result<DataFrame, Error> {
        let mut all: Option<DataFrame> = None;
        for generation in &self.source.generations {
            let schema = &generation.schema;
            let mut columns = vec![self.right_key(schema).alias(RIGHT)];
            for (name, column) in &self.taken {
                columns.push(typed(schema, name, column.r#type)?.alias(&column.name));
            }
            let rows = read(session, &self.source, generation)?.select(columns)?;
            all = Some(match all {
                Some(above) => above.union(rows)?,
                None => rows,
            });
        }
        let all = all.expect("a landed source has at least one row, so at least one file");
        Ok(all.filter(ident(RIGHT).is_not_null())?)
    }

    fn left_key(&self, schema: &RecordSchema) -> Expr {
        self.key(schema, self.left.as_ref())
    }

    fn right_key(&self, schema: &RecordSchema) -> Expr {
        self.key(schema, self.right.as_ref())
    }

    fn key(&self, schema: &RecordSchema, column: Option<&String>) -> Expr {
        match column {
            Some(column) => Key(self.matching).over(vec![landed(schema, column)]),
            None => lit(""),
        }
    }

    fn name(&self) -> &Name {
        &self.source.reference.name.source
    }

    /// Checks that keys of the source are unique: a duplicate key would multiply rows.
    async fn check_unique(&self, session: &SessionContext) -> Result<(), Error> {
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
        let advice = match self.matching {
            KeyMatch::Exact | KeyMatch::Asof => "a row would be taken several times",
            KeyMatch::Name | KeyMatch::Stem => {
                "compare more of it with `match`, or a row would be taken several times"
            }
        };
        Err(Error::config(
            format!("dataset.join.{}.right", self.index),
            format!(
                "{keys} keys appear more than once in column `{}` of source `{}`, such as `{key}` in {rows} rows; {advice}: \
                 land each key once, or join by another column",
                self.right.as_deref().unwrap_or_default(),
                self.name()
            ),
        ))
    }
}

/// Counts of each join over `rows` landed rows of `sources`.
///
/// # Errors
/// [`Error::Config`] for a key that appears twice in the joined source (as-of: twice at one time),
/// and for two keys of the rows that are equal in the part that is compared.
pub(crate) async fn counted(
    session: &SessionContext,
    sources: &[Landed],
    joins: &[Join],
    rows: u64,
) -> Result<Vec<JoinCounts>, Error> {
    let mut counts = Vec::with_capacity(joins.len());
    for (index, join) in joins.iter().enumerate() {
        let before = &joins[..index];
        let (matched, used) = match &join.asof {
            Some(asof) => join.walked(asof, session, sources, before).await?,
            None => join.looked_up(session, sources, before).await?,
        };
        let counted = JoinCounts {
            source: join.name().clone(),
            matched,
            unmatched: rows.saturating_sub(matched),
            unused: join.source.rows().saturating_sub(used),
        };
        tracing::info!(
            source = %counted.source, matched, unmatched = counted.unmatched, unused = counted.unused, "joined"
        );
        counts.push(counted);
    }
    Ok(counts)
}

impl Join {
    /// Counts the rows of `sources` that have a partner, with the columns of the joins before, and
    /// the rows of the source that are one.
    async fn looked_up(
        &self,
        session: &SessionContext,
        sources: &[Landed],
        before: &[Self],
    ) -> Result<(u64, u64), Error> {
        self.check_unique(session).await?;
        let matches = self.matches(session, sources, before)?;
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
        sources: &[Landed],
        before: &[Self],
    ) -> Result<DataFrame, Error> {
        let mut all: Option<DataFrame> = None;
        for source in sources {
            for generation in &source.generations {
                let rows = read(session, source, generation)?;
                let rows = beside(session, rows, &generation.schema, before)?;
                let schema = extended(&generation.schema, before);
                let (key, left) = (self.left_key(&schema), self.left.as_deref());
                let whole = landed(&schema, left.unwrap_or_default());
                let whole = Key(KeyMatch::Exact).over(vec![whole]);
                let keys = rows.select(vec![key.alias(LEFT), whole.alias(LOW)])?;
                all = Some(match all {
                    Some(above) => above.union(keys)?,
                    None => keys,
                });
            }
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

/// A column of a schema version as values of `type`, which holds all of them; nulls where that lacks it.
pub(crate) fn typed(schema: &RecordSchema, name: &str, r#type: ColumnType) -> Result<Expr, Error> {
    let wanted = landed_type(r#type);
    let found = schema.columns.iter().find(|column| column.name == name);
    let is_plain = |column: &Column| !plain::is_needed(column.r#type);
    Ok(
        match found.map(|column| (landed_type(column.r#type), is_plain(column))) {
            Some((found, _)) if found == wanted => ident(name),
            Some((_, false)) if wanted == DataType::Utf8 => Plain.over(vec![ident(name)]),
            Some(_) => cast(ident(name), wanted),
            None => lit(ScalarValue::try_from(&wanted)?),
        },
    )
}

#[cfg(test)]
mod tests;
