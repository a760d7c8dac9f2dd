//! Splits named by the data: by a column, or by an SQL expression over the row.
//!
//! An expression reads the columns as their widest landed types, whatever a schema version has, so one row has one split.
//! It may read one row only, and must be deterministic.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray, UInt8Array},
    datatypes::{DataType, Field, Schema},
};
use datafusion::{
    common::{
        DFSchema,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    error::{DataFusionError, Result as EngineResult},
    logical_expr::{Expr, ExprSchemable, Operator, Volatility, cast, ident},
    prelude::{SessionConfig, SessionContext},
};
use feedline_schemas::{
    manifest::Split,
    record::{ColumnType, RecordSchema},
};
use serde::{Deserialize, Serialize};

use super::{code, integers};
use crate::{
    Error,
    engine::scalar_function::RowFunction,
    message_with_causes,
    schema::{
        landed_cells::typed,
        landed_columns::{MergedColumn, find, landed_type},
        reject_reason::{self, Reason},
    },
    statistics::aggregates::register_spellings,
};

/// Key of the expression in the configuration.
pub(super) const EXPRESSION: &str = "dataset.split.expression";

/// Characters of a value shown in a reject.
const SHOWN: usize = 120;

/// Source of the split's name for a row.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// The name, as text, over `columns` of their widest types.
    name: Expr,
    columns: Vec<MergedColumn>,
    /// The column at fault for a name that is none; empty for an expression.
    at: String,
}

impl Named {
    /// By the text of column `name`.
    ///
    /// # Errors
    /// [`Error::Config`] for a column that is missing or is no text.
    pub(super) fn by_column(name: &str, columns: &[MergedColumn]) -> Result<Self, Error> {
        const KEY: &str = "dataset.split.column";
        let column = find(KEY, name, columns)?;
        if column.r#type != ColumnType::Utf8 {
            let reason = format!(
                "column `{name}` does not hold text such as `train`; say what its values mean with `by = \"expression\"`"
            );
            return Err(Error::config(KEY, reason));
        }
        Ok(Self {
            name: ident(name),
            columns: columns.to_vec(),
            at: name.to_owned(),
        })
    }

    /// By an SQL expression.
    ///
    /// # Errors
    /// [`Error::Config`] for one that cannot be read, gives no text, looks beyond its row, or changes from run to run.
    pub(super) fn by_expression(sql: &str, columns: &[MergedColumn]) -> Result<Self, Error> {
        let name = parse(sql, columns).map_err(|reason| Error::config(EXPRESSION, reason))?;
        Ok(Self {
            name,
            columns: columns.to_vec(),
            at: String::new(),
        })
    }

    /// The name for rows of a schema version.
    pub(crate) fn over(&self, schema: &RecordSchema) -> Result<Expr, Error> {
        let read = |node: Expr| -> EngineResult<Transformed<Expr>> {
            let Expr::Column(column) = &node else {
                return Ok(Transformed::no(node));
            };
            let found = self.columns.iter().find(|c| c.name == column.name);
            let found = found.expect("the expression was read over these columns");
            Ok(Transformed::yes(typed(schema, &found.name, found.r#type)?))
        };
        let name = self.name.clone().transform_up(read)?.data;
        Ok(cast(name, DataType::Utf8))
    }

    /// The reason that a row has already, if any, or that nothing names its split.
    pub(crate) fn judged(&self, reject: Expr, name: Expr) -> Expr {
        let at = self.at.clone();
        NoSplit { at }.over(vec![reject, name])
    }
}

fn parse(sql: &str, columns: &[MergedColumn]) -> Result<Expr, String> {
    let fields = columns
        .iter()
        .map(|c| Field::new(&c.name, landed_type(c.r#type), true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let schema = DFSchema::try_from(schema).map_err(|e| unread(&e))?;
    let session = SessionContext::new_with_config(names_as_written(SessionConfig::new()));
    register_spellings(&session).map_err(|e| unread(&e))?;
    let expression = session
        .parse_sql_expr(sql, &schema)
        .map_err(|e| unread(&e))?;
    check(&expression)?;
    let expression = integers::checked(expression, &schema, EXPRESSION).map_err(|e| unread(&e))?;
    match expression.get_type(&schema).map_err(|e| unread(&e))? {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(expression),
        other => Err(format!(
            "it gives {other}, and must give the text `train`, `validation` or `test`: wrap it as `case when ... then \
             'train' ... end`"
        )),
    }
}

fn unread(error: &DataFusionError) -> String {
    format!(
        "it cannot be read: {}; it is SQL over the columns of one row",
        message_with_causes(error)
    )
}

/// `config`, with names in SQL taken as they are written, upper case included.
pub(crate) fn names_as_written(mut config: SessionConfig) -> SessionConfig {
    config.options_mut().sql_parser.enable_ident_normalization = false;
    config
}

/// Refuses what would not be a function of the row.
fn check(expression: &Expr) -> Result<(), String> {
    let mut odd = None;
    let visited = expression.apply(|node| {
        odd = fault(node);
        Ok(match odd {
            None => TreeNodeRecursion::Continue,
            Some(_) => TreeNodeRecursion::Stop,
        })
    });
    visited.map_err(|e| unread(&e))?;
    odd.map_or(Ok(()), Err)
}

fn fault(node: &Expr) -> Option<String> {
    match node {
        Expr::ScalarFunction(call) if call.func.signature().volatility != Volatility::Immutable => {
            let name = call.func.name();
            Some(format!(
                "`{name}` may change from run to run, and a row must stay in its split; leave it out"
            ))
        }
        Expr::AggregateFunction(_)
        | Expr::WindowFunction(_)
        | Expr::ScalarSubquery(_)
        | Expr::Exists(_)
        | Expr::InSubquery(_) => Some(
            "it looks at other rows than its own; name the split by one row, or compute a column in the source".into(),
        ),
        Expr::BinaryExpr(binary) if binary.op == Operator::BitwiseXor => Some(
            "`^` is an exclusive or of bits here; write a power as the number that it is, such as 65536".into(),
        ),
        _ => None,
    }
}

/// The split that is called so, in the order of [`Split::ALL`]; the first for what is no name, since such a row is set
/// aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ByName;

impl RowFunction for ByName {
    const NAME: &'static str = "feedline_split_by_name";
    const RETURNS: DataType = DataType::UInt8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> EngineResult<ArrayRef> {
        let names = columns[0].as_string::<i32>().iter();
        let codes = names.map(|name| code(name.and_then(named).unwrap_or(Split::Train)));
        Ok(Arc::new(UInt8Array::from_iter_values(codes)))
    }
}

fn named(name: &str) -> Option<Split> {
    Split::ALL.into_iter().find(|split| split.as_str() == name)
}

/// Reason to reject a row, from its earlier reason, if any, and the name of its split.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct NoSplit {
    /// Column at fault.
    at: String,
}

impl RowFunction for NoSplit {
    const NAME: &'static str = "feedline_no_split";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> EngineResult<ArrayRef> {
        let (reasons, names) = (columns[0].as_string::<i32>(), columns[1].as_string::<i32>());
        let is_named = |row: usize| names.is_valid(row) && named(names.value(row)).is_some();
        if (0..rows).all(is_named) {
            return Ok(Arc::clone(&columns[0]));
        }
        let reason = |row: usize| {
            if reasons.is_valid(row) {
                return Some(reasons.value(row).to_owned());
            }
            if is_named(row) {
                return None;
            }
            let name = names.is_valid(row).then(|| names.value(row));
            let shown = match name {
                None => "NULL".to_owned(),
                Some(name) => format!("`{}`", name.chars().take(SHOWN).collect::<String>()),
            };
            let reason = Reason {
                reason: reject_reason::NO_SPLIT.to_owned(),
                column: self.at.clone(),
                value: format!("{shown} is not train, validation or test"),
            };
            Some(reason.to_json())
        };
        Ok(Arc::new((0..rows).map(reason).collect::<StringArray>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<MergedColumn> {
        [
            ("id", ColumnType::Int64),
            ("Fold", ColumnType::Utf8),
            ("x", ColumnType::Float64),
            ("ts", ColumnType::Timestamp),
        ]
        .map(|(name, r#type)| MergedColumn {
            name: name.into(),
            r#type,
        })
        .to_vec()
    }

    fn refused(sql: &str, part: &str) {
        let message = Named::by_expression(sql, &columns())
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("`dataset.split.expression`: "),
            "{message}"
        );
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn expressions_that_are_no_function_of_the_row_are_refused() {
        refused("case when id < then 'train' end", "cannot be read");
        refused("case when idd < 3 then 'train' end", "idd");
        refused("id % 10", "it gives Int64");
        refused(
            "case when random() < 0.8 then 'train' end",
            "`random` may change",
        );
        refused("case when now() > ts then 'train' end", "`now` may change");
        refused("case when sum(id) > 3 then 'train' end", "other rows");
        refused("case when id % 2^3 < 3 then 'train' end", "exclusive or");
        refused("case when fold = 'a' then 'train' end", "fold");
    }

    #[test]
    fn names_are_taken_as_they_are_written() {
        for sql in [
            "Fold",
            "\"Fold\"",
            "lower(trim(Fold))",
            "case when x > 1 then Fold end",
        ] {
            Named::by_expression(sql, &columns()).unwrap();
        }
    }

    #[test]
    fn a_column_of_numbers_names_no_split() {
        let message = Named::by_column("id", &columns()).unwrap_err().to_string();
        assert!(message.contains("does not hold text"), "{message}");
    }
}
