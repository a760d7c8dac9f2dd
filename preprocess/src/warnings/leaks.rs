//! Warnings of features that hold the target or values of other rows.

use feedline_schemas::{
    count::counted,
    report::{WarnedColumn, Warning},
};

use super::message::{
    COLUMNS, SHOWN, first_of, list_columns, toml_string, warned_columns, warning,
};
use crate::{
    schema::landed_columns::shown,
    source::sql::{
        other_rows::Construct,
        repeats::{BaseTables, RepeatedTable},
    },
    statistics::target_leakage::{self, EQUAL, Leak},
};

/// Code of the warnings about a query that repeats rows.
const SQL_REPEATS_ROWS: &str = "sql_repeats_rows";

/// Warns of features that give the target away in training rows.
pub(crate) fn target_leakage(target: &str, leaks: &[Leak]) -> Vec<Warning> {
    let target = shown(target);
    let alone: Vec<WarnedColumn> = leaks.iter().filter_map(describe_leak).collect();
    let mut found = Vec::new();
    if !alone.is_empty() {
        let drop = target_leakage::columns_of(leaks)
            .into_iter()
            .map(toml_string);
        let message = format!(
            "each of these features alone gives the target `{target}` away in (nearly) all training rows looked at: {}; where it \
             is not known before the target is, leave it out with `dataset.drop = [{}]`",
            list_columns(&alone, COLUMNS),
            first_of(&drop.collect::<Vec<_>>(), COLUMNS)
        );
        found.push(warning("target_leakage", "dataset.drop", message).with_columns(alone));
    }
    for leak in leaks {
        let Leak::Sum {
            terms,
            residual,
            rows,
        } = leak
        else {
            continue;
        };
        let names = terms.iter().map(|(name, _)| toml_string(name));
        let sum = terms.iter().map(|(name, factor)| {
            let factor = format!("{factor:.6}");
            let factor = factor.trim_end_matches('0').trim_end_matches('.');
            format!("{factor} x `{}`", shown(name))
        });
        let left_out = match rows.compared < rows.known {
            true => format!(
                " (compared are those of {} looked at that have a number in each feature compared)",
                counted(rows.known as u64, "training row")
            ),
            false => String::new(),
        };
        let message = format!(
            "the target `{target}` is a sum of features in {} of {} compared, to {EQUAL} of its standard deviation: {} and a constant, \
             with {residual:.1e} of its variance left{left_out}; where they are not known before the target is, leave them out with \
             `dataset.drop = [{}]`",
            rows.equal,
            counted(rows.compared as u64, "training row"),
            sum.collect::<Vec<_>>().join(" + "),
            names.collect::<Vec<_>>().join(", ")
        );
        let columns = warned_columns(terms.iter().map(|(name, _)| name.as_str()));
        found.push(warning("target_is_sum", "dataset.drop", message).with_columns(columns));
    }
    found
}

/// Describes a feature that gives the target away by itself.
fn describe_leak(leak: &Leak) -> Option<WarnedColumn> {
    let (column, found) = match leak {
        Leak::Line {
            column,
            correlation,
        } => (column, format!("correlation {correlation:.6}")),
        Leak::Order {
            column,
            correlation,
        } => (column, format!("correlation of ranks {correlation:.6}")),
        Leak::Values { column, fraction } => {
            let percent = fraction * 100.0;
            let found = format!("one class for each value in {percent:.2} % of the rows");
            (column, found)
        }
        Leak::Groups { column, explained } => {
            let percent = explained * 100.0;
            let found = format!("its values explain {percent:.3} % of the variance");
            (column, found)
        }
        Leak::Ranges { column, ranges } => {
            (column, format!("{ranges} ranges of it have one class each"))
        }
        Leak::MissingClass { column, fraction } => {
            let percent = fraction * 100.0;
            let found = format!(
                "one class where it is missing, and one where it is not, in {percent:.2} % of the rows"
            );
            (column, found)
        }
        Leak::MissingNumber { column, explained } => {
            let percent = explained * 100.0;
            let found = format!("whether it is missing explains {percent:.3} % of the variance");
            (column, found)
        }
        Leak::Sum { .. } => return None,
    };
    Some(WarnedColumn::with_found(column, found))
}

/// Warns of columns of `dataset.sql` that are made of other rows, each with what makes it so.
pub(crate) fn made_of_other_rows(found: &[(&str, &Construct)]) -> Option<Warning> {
    let columns: Vec<String> = found
        .iter()
        .map(|(column, construct)| {
            let Construct { text, sight, .. } = construct;
            let text: String = text.chars().take(2 * SHOWN).collect();
            format!(
                "`{}` by {} of {}",
                shown(column),
                quoted_call(&text),
                sight.rows()
            )
        })
        .collect();
    (!columns.is_empty()).then(|| {
        let message = format!(
            "the query makes columns of other rows, which no check of the splits sees, so they may hold values of another \
             split: {}; make such features with `[[dataset.feature]]`, which are checked, or let windows look back along \
             `dataset.split.time` alone and set a `dataset.split.embargo` as long as they do",
            first_of(&columns, COLUMNS)
        );
        let columns = warned_columns(found.iter().map(|(column, _)| *column));
        warning("sql_sees_other_rows", "dataset.sql", message).with_columns(columns)
    })
}

/// Warns of a query of `rows` rows, more than it reads from the tables of `base`.
pub(crate) fn sql_repeats_rows(rows: u64, base: &BaseTables) -> Warning {
    let tables = base.base_names().map(|name| format!("`{}`", shown(name)));
    let tables: Vec<String> = tables.collect();
    let tables = first_of(&tables, COLUMNS);
    let read = match base.is_combined {
        true => format!("rows of {tables} have {} combinations", base.rows),
        false => format!("it reads {} from {tables}", base.rows),
    };
    let message = format!(
        "the query returns {}, and {read}, which it begins from: a join that matches several rows, or `unnest`, \
         repeats rows, so copies of one row can be in training and in test, and count several times; join one row a key \
         (`group by`, `distinct`), or, where more rows are meant, list columns of {tables} that identify a row of it in \
         `dataset.split.key`, and no others: its copies then share a split, and this warning ends",
        counted(rows, "row")
    );
    warning(SQL_REPEATS_ROWS, "dataset.sql", message)
}

/// Warns of a query of `rows` rows whose join repeats the rows of a table, and the target with them.
pub(crate) fn query_repeats_target(
    rows: u64,
    target: &str,
    repeated: RepeatedTable<'_>,
) -> Warning {
    let (target, table) = (shown(target), shown(repeated.name));
    let rows = counted(rows, "row");
    let read = repeated.rows;
    let message = match repeated.is_combined {
        true => format!(
            "the query returns {rows}, combinations of a cross join, and the target `{target}` comes from `{table}` alone, and it \
             reads {read} rows of that: does each combination have an outcome of its own? If not, copies of one row of `{table}` can be \
             in training and in test; list columns of `{table}` that identify such a row in `dataset.split.key`, and no others: its \
             copies then share a split. If so, list those that identify a combination; this warning ends with either"
        ),
        false => format!(
            "the query returns {rows}, and the target `{target}` comes from `{table}` alone, and it reads {read} rows of that: a join \
             repeats rows of `{table}` with their target, so copies of one row can be in training and in test; list columns of \
             `{table}` that identify a row of it in `dataset.split.key`, and no others: its copies then share a split, and this \
             warning ends, as it does where `dataset.split.by` is `column` or `expression`"
        ),
    };
    warning(SQL_REPEATS_ROWS, "dataset.sql", message)
}

/// A call in backticks; words as they are.
fn quoted_call(text: &str) -> String {
    match text.contains('(') {
        true => format!("`{}`", shown(text)),
        false => shown(text),
    }
}
