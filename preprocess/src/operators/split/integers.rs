//! Exact integer arithmetic in SQL: a result that exceeds 64 bits ends the build, where the engine
//! would silently wrap around and put the row into any split.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array},
    buffer::NullBuffer,
    datatypes::{DataType, Int64Type},
};
use datafusion::{
    common::{
        DFSchema,
        tree_node::{Transformed, TreeNode},
    },
    error::Result as EngineResult,
    logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast, lit},
};
use serde::{Deserialize, Serialize};

use crate::{Error, engine::scalar_function::RowFunction};

/// `expression` over columns of `schema`, which the configuration has at `key`, with exact
/// integers.
pub(super) fn checked(
    expression: Expr,
    schema: &DFSchema,
    key: &'static str,
) -> EngineResult<Expr> {
    let zero = lit(0_i64);
    let rewritten = expression.transform_up(|node| {
        let (left, op, right) = match &node {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => (&**left, *op, &**right),
            Expr::Negative(negated) => (&zero, Operator::Minus, &**negated),
            _ => return Ok(Transformed::no(node)),
        };
        let of_integers =
            is_integer(&left.get_type(schema)?) && is_integer(&right.get_type(schema)?);
        let Some(sign) = sign(op).filter(|_| of_integers) else {
            return Ok(Transformed::no(node));
        };
        Ok(Transformed::yes(exact(left, sign, right, key)))
    })?;
    Ok(rewritten.data)
}

/// `left`, `sign`, `right`, all integers of 64 bits, of an expression at `key`.
pub(crate) fn exact(left: &Expr, sign: char, right: &Expr, key: &str) -> Expr {
    let sides = [left, right].map(|side| cast(side.clone(), DataType::Int64));
    let key = key.to_owned();
    Exact { sign, key }.over(sides.to_vec())
}

fn is_integer(r#type: &DataType) -> bool {
    r#type.is_integer() && *r#type != DataType::UInt64
}

const fn sign(op: Operator) -> Option<char> {
    Some(match op {
        Operator::Plus => '+',
        Operator::Minus => '-',
        Operator::Multiply => '*',
        Operator::Divide => '/',
        Operator::Modulo => '%',
        _ => return None,
    })
}

/// An operation on two integers. A quotient is truncated towards zero, and a remainder has the sign
/// of the dividend, as in SQL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Exact {
    sign: char,
    /// Key of the expression in the configuration.
    key: String,
}

impl Exact {
    /// A division by 0 has no value; that it ended the build would hang on which rows the engine looks at together.
    fn of(&self, a: i64, b: i64) -> Result<Option<i64>, Error> {
        if matches!(self.sign, '/' | '%') && b == 0 {
            return Ok(None);
        }
        let found = match self.sign {
            '+' => a.checked_add(b),
            '-' => a.checked_sub(b),
            '*' => a.checked_mul(b),
            '/' => a.checked_div(b),
            _ => a.checked_rem(b),
        };
        found.map(Some).ok_or_else(|| {
            let reason = format!(
                "`{a} {} {b}` is no integer of 64 bits; take a remainder (`%`) of what is large first, or `cast` it to `double`",
                self.sign
            );
            Error::config(&self.key, reason)
        })
    }
}

impl Exact {
    /// Of all cells, the missing ones too; `None` where one of them has no value.
    fn all(&self, a: &[i64], b: &[i64]) -> Option<Vec<i64>> {
        let all = |of: fn(i64, i64) -> (i64, bool)| {
            let mut is_any_bad = false;
            let cells = a.iter().zip(b).map(|(a, b)| {
                let (cell, is_bad) = of(*a, *b);
                is_any_bad |= is_bad;
                cell
            });
            let cells = cells.collect();
            (!is_any_bad).then_some(cells)
        };
        match self.sign {
            '+' => all(i64::overflowing_add),
            '-' => all(i64::overflowing_sub),
            '*' => all(i64::overflowing_mul),
            _ if b.contains(&0) => None,
            '/' => all(i64::overflowing_div),
            // The one that leaves 64 bits is 0 where it wraps around.
            _ => all(i64::overflowing_rem),
        }
    }
}

impl RowFunction for Exact {
    const NAME: &'static str = "feedline_exact";
    const RETURNS: DataType = DataType::Int64;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> EngineResult<ArrayRef> {
        let [a, b] = [0, 1].map(|i: usize| columns[i].as_primitive::<Int64Type>());
        if let Some(cells) = self.all(a.values(), b.values()) {
            let nulls = NullBuffer::union(a.nulls(), b.nulls());
            return Ok(Arc::new(Int64Array::try_new(cells.into(), nulls)?));
        }
        let cell = |row: usize| {
            let both = a.is_valid(row) && b.is_valid(row);
            match both {
                true => self.of(a.value(row), b.value(row)),
                false => Ok(None),
            }
        };
        let cells = (0..rows).map(cell).collect::<Result<Int64Array, _>>()?;
        Ok(Arc::new(cells))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exact(a: i64, sign: char, b: i64) -> Result<Option<i64>, Error> {
        let key = "k".to_owned();
        Exact { sign, key }.of(a, b)
    }

    fn of_any_size() -> impl Strategy<Value = Option<i64>> {
        prop_oneof![
            Just(None),
            (-3_i64..9).prop_map(Some),
            any::<i64>().prop_map(Some),
            prop::sample::select(vec![Some(i64::MIN), Some(i64::MAX), Some(-1)]),
        ]
    }

    #[test]
    fn what_leaves_64_bits_is_refused_with_its_operands() {
        let message = exact(i64::MAX, '*', 2).unwrap_err().to_string();
        assert!(message.contains("`9223372036854775807 * 2`"), "{message}");
        for (a, sign, b) in [(i64::MAX, '+', 1), (i64::MIN, '-', 1), (i64::MIN, '/', -1)] {
            assert!(exact(a, sign, b).is_err());
        }
        for (a, sign, b, expected) in [
            (7, '%', 0, None),
            (7, '/', 0, None),
            (-7, '/', 2, Some(-3)),
            (-7, '%', 2, Some(-1)),
        ] {
            assert_eq!(exact(a, sign, b).unwrap(), expected);
        }
    }

    proptest! {
        #[test]
        fn many_at_a_time_are_as_each_alone(
            rows in prop::collection::vec((of_any_size(), of_any_size()), 0..9),
            sign in prop::sample::select(vec!['+', '-', '*', '/', '%']),
        ) {
            let columns = [0, 1].map(|side| -> ArrayRef {
                let cells = rows.iter().map(|row| if side == 0 { row.0 } else { row.1 });
                Arc::new(cells.collect::<Int64Array>())
            });
            let key = "k".to_owned();
            let found = Exact { sign, key }.call(&columns, rows.len());
            let alone = rows.iter().map(|row| match row {
                (Some(a), Some(b)) => exact(*a, sign, *b),
                _ => Ok(None),
            });
            let alone = alone.collect::<Result<Vec<_>, _>>();
            match (found, alone) {
                (Ok(found), Ok(alone)) => {
                    let found = found.as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
                    prop_assert_eq!(found, alone);
                }
                (found, alone) => prop_assert_eq!(found.is_err(), alone.is_err()),
            }
        }

        #[test]
        fn results_are_those_of_wide_integers(a: i64, b: i64) {
            for (sign, wide) in [
                ('+', Some(i128::from(a) + i128::from(b))),
                ('-', Some(i128::from(a) - i128::from(b))),
                ('*', Some(i128::from(a) * i128::from(b))),
                ('/', i128::from(a).checked_div(i128::from(b))),
            ] {
                let wide = wide.and_then(|wide| i64::try_from(wide).ok());
                prop_assert_eq!(exact(a, sign, b).ok().flatten(), wide);
            }
        }
    }
}
