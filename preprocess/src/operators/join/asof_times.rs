//! Time settings of an as-of join, checked against the columns of both sides.

use datafusion::{
    common::ScalarValue,
    logical_expr::{Expr, ident, lit},
};
use feedline_schemas::{
    config::{JoinConfig, TimeColumn},
    record::{ColumnType, RecordSchema},
};

use super::walk::Rule;
use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::time_series::{self, Instant, LocalTimes},
    schema::landed_columns::{MergedColumn, find},
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
    pub(super) rule: Rule,
}

/// Columns of timestamps, and their format.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    pub(super) column: String,
    pub(super) clock: Option<String>,
    pub(super) instant: Instant,
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
                "column `{name}` holds no text: its times are instants already, and those without an offset were read as UTC when they \
                 landed; remove this key where that is right, or land the column as text, with `contract.column.\"{name}\".type = \"text\"` \
                 of the source, under another source name if it has landed already",
                name = time.column
            );
            return Err(Error::config(key("zone"), reason));
        }
        Ok(Self {
            instant: time_series::check_time(time, columns, key)?,
            column: time.column.clone(),
            clock: time.clock.clone(),
        })
    }

    /// Column of timestamps.
    pub(super) fn of_timestamps(column: String) -> Self {
        Self {
            column,
            clock: None,
            instant: Instant::iso(),
        }
    }

    /// Columns of the time, if it is local.
    pub(super) fn local(&self) -> Option<LocalTimes<'_>> {
        let columns = std::iter::once(&self.column).chain(&self.clock);
        self.instant.local_times(columns)
    }

    /// Returns true if `name` is one of its columns.
    pub(super) fn is_of(&self, name: &str) -> bool {
        self.column == name || self.clock.as_deref() == Some(name)
    }

    /// Timestamps of the rows of a schema version; null where they cannot be read.
    pub(super) fn over(&self, schema: &RecordSchema) -> Expr {
        // A column that is already a timestamp must not be parsed as text.
        let cell = |name: &String| match schema.columns.iter().any(|column| column.name == *name) {
            true => ident(name),
            false => lit(ScalarValue::Utf8(None)),
        };
        let cells = std::iter::once(&self.column).chain(&self.clock);
        self.instant.clone().over(cells.map(cell).collect())
    }
}
