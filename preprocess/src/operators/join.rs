//! Columns of other sources, joined to the rows by key before any other step.
//!
//! A key is unique in the joined source, or the build ends: no row is ever multiplied, so a dataset
//! has as many rows after its joins as before. The joined values depend on keys alone, whatever the
//! partitions; with `asof`, on keys and times. Of a joined source with a `key` of its own, only the
//! latest version of each is read, as of the sources of rows.
//!
//! The joined source is held in memory, its keys and the used columns, while the rows stream past
//! it; where that would take an eighth of the memory limit both sides are sorted instead, outside
//! memory. A batch of joined rows has fewer rows where the joined cells are large.

pub(crate) mod asof;
mod asof_times;
mod by_key;
pub(crate) mod key;
pub(crate) mod new_rows;
mod operator;
mod resolved_join;
pub(crate) mod row_bytes;
pub(crate) mod unmatched;
mod walk;

use datafusion::prelude::{DataFrame, SessionContext};
use feedline_schemas::{
    config::{DatasetConfig, JoinConfig},
    ids::Name,
    manifest::JoinCounts,
    record::{ColumnType, RecordSchema},
};

pub(crate) use self::{
    resolved_join::{Join, extended},
    row_bytes::limit_batches,
};

use self::resolved_join::RESERVED;
use crate::{
    Error,
    schema::landed_columns::{self, MergedColumn, find},
    source::{landed_scan::read, landing_zone::Landed, latest_version::count_latest},
};

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

/// Checks one join, the one at `index` of the configuration, against the landed `columns` and its `source`.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn resolve_one(
    index: usize,
    join: &JoinConfig,
    columns: &[MergedColumn],
    source: &Landed,
) -> Result<Join, Error> {
    let at = |field: &str| format!("dataset.join.{index}.{field}");
    let theirs = landed_columns::merge(source.generations.iter().map(|g| &g.schema));
    let asof = asof_times::resolve(join, columns, &theirs, &at)?;
    if join.left.is_none() && (asof.is_none() || join.right.is_some()) {
        let reason = "name the column of the rows that the rows of `source` are looked up by";
        return Err(Error::config(at("left"), reason));
    }
    let right = join.right.as_ref().or(join.left.as_ref());
    let mut key_types = None;
    if let (Some(left), Some(right)) = (&join.left, right) {
        let right_key = at(if join.right.is_some() {
            "right"
        } else {
            "left"
        });
        let own = find(&at("left"), left, columns)?;
        check_key(&at("left"), own)?;
        let their = find(&right_key, right, &theirs)?;
        check_key(&right_key, their)?;
        key_types = Some([own.r#type, their.r#type]);
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
        key_types,
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

/// `rows`, which have the columns of `schema`, with what `joins` bring beside them.
pub(crate) fn beside(
    session: &SessionContext,
    mut rows: DataFrame,
    schema: &RecordSchema,
    joins: &[Join],
) -> Result<DataFrame, Error> {
    for (index, join) in joins.iter().enumerate() {
        let schema = extended(schema, &joins[..index]);
        rows = match &join.asof {
            Some(asof) => join.newest_onto(asof, session, rows, &schema)?,
            None => join.keyed_onto(session, rows, &schema)?,
        };
    }
    Ok(rows)
}

/// The landed rows of each schema version of `sources` with the columns of the joins `before`, and their schema: the rows that
/// none of these leaves out.
fn landed_beside(
    session: &SessionContext,
    sources: &[Landed],
    before: &[Join],
) -> Result<Vec<(DataFrame, RecordSchema)>, Error> {
    let generations = sources.iter().flat_map(|source| {
        let generations = source.generations.iter();
        generations.map(move |generation| (source, generation))
    });
    let landed = generations.map(|(source, generation)| {
        let rows = read(session, source, generation)?;
        let mut rows = beside(session, rows, &generation.schema, before)?;
        for (_, _, missed) in before.iter().filter_map(Join::judged) {
            rows = rows.filter(missed.is_null())?;
        }
        Ok((rows, extended(&generation.schema, before)))
    });
    landed.collect()
}

/// Counts of each join over `rows` landed rows of `sources`, without those that the joins before it leave out.
///
/// # Errors
/// [`Error::Config`] for a key that appears twice in the joined source (as-of: twice at one time),
/// and for two keys of the rows that are equal in the part that is compared.
pub(crate) async fn counted(
    session: &SessionContext,
    sources: &[Landed],
    joins: &[Join],
    mut rows: u64,
) -> Result<Vec<JoinCounts>, Error> {
    let mut counts = Vec::with_capacity(joins.len());
    for (index, join) in joins.iter().enumerate() {
        let landed = || landed_beside(session, sources, &joins[..index]);
        let theirs = count_latest(session, &join.source).await?;
        let (matched, used) = match &join.asof {
            Some(asof) => join.walked(asof, session, theirs, landed).await?,
            None => join.looked_up(session, landed).await?,
        };
        let counted = JoinCounts {
            source: join.name().clone(),
            matched,
            unmatched: rows.saturating_sub(matched),
            unused: theirs.saturating_sub(used),
        };
        tracing::info!(
            source = %counted.source, matched, unmatched = counted.unmatched, unused = counted.unused, "joined"
        );
        counts.push(counted);
        if join.judged().is_some() {
            rows = matched;
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests;
