//! Latest version of each key among the landed rows.
//!
//! Rows have the same key when the cells of the source's key have the same texts, so a key that
//! changed its type stays the same key. The latest version is the row of the greatest version, a
//! null being the least; of equal versions it is the one that landed last. Versions that are texts
//! have the order of [`version_order`](super::version_order). So the latest version depends on the
//! landed rows up to the log position, and not on partitions. A row without any part of its key has
//! no later version, and stays.
//!
//! Rows of a child table are read if their record is the latest version.

use datafusion::{
    common::JoinType,
    functions_window::expr_fn::row_number,
    logical_expr::{Expr, ExprFunctionExt, ident, lit},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::record::{ColumnType, RecordSchema};

use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::dedup::content_hash::Cells,
    schema::{
        landed_cells::{content_hash, origin, typed},
        landed_columns::merge,
        system_columns,
    },
    source::{landed_scan::read_all, landing_zone::Landed, version_order::VersionOrder},
};

/// Column of a child table's rows: the origin of their record.
pub(crate) const RECORD: &str = "_newest_record";

const KEY: &str = "_newest_key";
const KEYLESS: &str = "_newest_keyless";
const VERSION: &str = "_newest_version";
const RANK: &str = "_newest_rank";
const KEPT: &str = "_newest_kept";
const LANDED: &str = "_newest_landed";

/// Of the rows of a child table, those of the newest `records`; without [`RECORD`].
///
/// # Errors
/// As [`LatestVersion::of`].
pub(crate) fn of_newest(
    session: &SessionContext,
    rows: DataFrame,
    records: &Landed,
) -> Result<DataFrame, Error> {
    let fields = rows.schema().fields().iter();
    let own = fields.map(|field| field.name().clone());
    let own: Vec<Expr> = own.filter(|name| name != RECORD).map(ident).collect();
    let Some(newest) = LatestVersion::of(records)? else {
        return Ok(rows.select(own)?);
    };
    let Some(all) = versions(session, records, &newest)? else {
        return Ok(rows.select(own)?);
    };
    let kept = newest.keep(all)?;
    let kept = kept.select(vec![ident(system_columns::ORIGIN).alias(KEPT)])?;
    // The side that comes first is held in memory: 8 bytes for each record.
    let rows = kept.join(rows, JoinType::RightSemi, &[KEPT], &[RECORD], None)?;
    Ok(rows.select(own)?)
}

/// Rows of `source` with the `columns` of each schema version: of the latest version of each key where
/// the source has one. `None` without a landed row.
///
/// # Errors
/// Those of `columns`, and as [`LatestVersion::of`].
pub(crate) fn read_latest(
    session: &SessionContext,
    source: &Landed,
    columns: impl Fn(&RecordSchema) -> Result<Vec<Expr>, Error>,
) -> Result<Option<DataFrame>, Error> {
    let Some(newest) = LatestVersion::of(source)? else {
        return read_all(session, source, columns);
    };
    let all = read_all(session, source, |schema| {
        let mut columns = columns(schema)?;
        columns.push(origin(0).alias(LANDED));
        columns.extend(newest.columns(schema)?);
        Ok(columns)
    })?;
    all.map(|all| newest.keep_by(LANDED, all)).transpose()
}

/// Counts the rows that [`read_latest`] returns.
///
/// # Errors
/// As [`LatestVersion::of`], and failures of the engine.
pub(crate) async fn count_latest(session: &SessionContext, source: &Landed) -> Result<u64, Error> {
    if source.key.is_empty() {
        return Ok(source.rows());
    }
    let rows = read_latest(session, source, |_| Ok(vec![lit(true).alias(KEPT)]))?;
    match rows {
        Some(rows) => Ok(rows.count().await? as u64),
        None => Ok(0),
    }
}

/// Origins of all `records` beside the columns of `newest`; `None` without a record.
pub(crate) fn versions(
    session: &SessionContext,
    records: &Landed,
    newest: &LatestVersion<'_>,
) -> Result<Option<DataFrame>, Error> {
    read_all(session, records, |schema| {
        let mut columns = vec![origin(0).alias(system_columns::ORIGIN)];
        columns.extend(newest.columns(schema)?);
        Ok(columns)
    })
}

/// Columns that decide the latest version of each key of a source.
pub(crate) struct LatestVersion<'a> {
    key: &'a [String],
    version: Option<(&'a str, ColumnType)>,
}

impl<'a> LatestVersion<'a> {
    /// Nothing for a source without a key.
    ///
    /// # Errors
    /// [`Error::Config`] for a column that is missing, or that has no order.
    pub(crate) fn of(source: &'a Landed) -> Result<Option<Self>, Error> {
        let Landed { key, version, .. } = source;
        let name = &source.reference.name;
        let merged = merge(
            source
                .generations
                .iter()
                .map(|generation| &generation.schema),
        );
        let find = |setting: &str, column: &str| {
            let found = merged.iter().find(|merged| merged.name == column);
            found.map(|merged| merged.r#type).ok_or_else(|| {
                let reason =
                    format!("source `{name}` has no column `{column}`; name one that it has");
                Error::config(format!("source.{setting}"), reason)
            })
        };
        for column in key {
            find("key", column)?;
        }
        let version = match version.as_deref() {
            None => None,
            Some(_) if key.is_empty() => {
                let reason = format!(
                    "source `{name}` has no `key` that rows could be newer of; give it one"
                );
                return Err(Error::config("source.version", reason));
            }
            Some(column) => Some((column, find("version", column)?)),
        };
        if let Some((column, r#type)) = version
            && (matches!(r#type, ColumnType::Json | ColumnType::Binary) || r#type.is_list())
        {
            let reason = format!(
                "column `{column}` of source `{name}` has no order; name one of numbers, dates or text"
            );
            return Err(Error::config("source.version", reason));
        }
        Ok((!key.is_empty()).then_some(Self { key, version }))
    }

    /// System columns of the rows of a schema version.
    pub(crate) fn columns(&self, schema: &RecordSchema) -> Result<Vec<Expr>, Error> {
        let names = schema.columns.iter().map(|column| column.name.as_str());
        let there: Vec<&str> = names
            .filter(|name| self.key.iter().any(|key| key == name))
            .collect();
        let nothing = there.iter().map(|name| ident(*name).is_null());
        let mut columns = vec![
            nothing
                .reduce(Expr::and)
                .unwrap_or_else(|| lit(true))
                .alias(KEYLESS),
            content_hash(there.into_iter(), Cells::Text).alias(KEY),
        ];
        if let Some((name, r#type)) = self.version {
            let version = typed(schema, name, r#type)?;
            let version = match r#type {
                ColumnType::Utf8 => VersionOrder.over(vec![version]),
                _ => version,
            };
            columns.push(version.alias(VERSION));
        }
        Ok(columns)
    }

    /// The newest of all rows of the source, without the columns beside their own.
    pub(crate) fn keep(&self, rows: DataFrame) -> Result<DataFrame, Error> {
        self.keep_by(system_columns::ORIGIN, rows)
    }

    /// The same, where column `landed` has the order in which rows landed.
    fn keep_by(&self, landed: &str, rows: DataFrame) -> Result<DataFrame, Error> {
        let fields = rows
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone());
        let own = fields.filter(|name| ![KEY, KEYLESS, VERSION, LANDED].contains(&name.as_str()));
        let own: Vec<Expr> = own.map(ident).collect();
        let mut order = Vec::new();
        if self.version.is_some() {
            order.push(ident(VERSION).sort(false, false));
        }
        order.push(ident(landed).sort(false, false));
        let rank = row_number()
            .partition_by(vec![ident(KEY)])
            .order_by(order)
            .build()?
            .alias(RANK);
        let is_newest = ident(RANK).eq(lit(1_u64)).or(ident(KEYLESS));
        Ok(rows.window(vec![rank])?.filter(is_newest)?.select(own)?)
    }
}
