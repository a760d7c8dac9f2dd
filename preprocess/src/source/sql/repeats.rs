//! Rows that a query repeats: more rows than landed in the tables that it begins from.
//!
//! A left join begins from its left table, an inner join from its larger one, a union from all of its
//! parts. A lookup of one row a key leaves their number as it is. A join that matches several rows, a
//! cross join or `unnest` raises it.

use std::collections::BTreeMap;

use datafusion::{common::JoinType, logical_expr::LogicalPlan};

use super::other_rows::tables_of;

/// Tables that the rows of a query begin from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseTables {
    pub(crate) names: Vec<String>,
    /// Landed rows of all of them.
    pub(crate) rows: u64,
}

impl BaseTables {
    fn and(mut self, other: Self) -> Self {
        self.names.extend(other.names);
        self.rows += other.rows;
        self
    }

    fn or_larger(self, other: Self) -> Self {
        match other.rows > self.rows {
            true => other,
            false => self,
        }
    }
}

/// The tables that `plan`, as it was planned from the text, begins from; `landed` has the rows of each table. Nothing if it
/// begins from something else, such as `values`.
pub(super) fn base_tables(
    plan: &LogicalPlan,
    landed: &BTreeMap<String, u64>,
) -> Option<BaseTables> {
    let base = |input: &LogicalPlan| base_tables(input, landed);
    match plan {
        // A source is a view, so it is a plan of its own under its name.
        LogicalPlan::SubqueryAlias(alias) if tables_of(&alias.input).is_empty() => {
            let name = alias.alias.table();
            let rows = *landed.get(name)?;
            Some(BaseTables {
                names: vec![name.to_owned()],
                rows,
            })
        }
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                base(&join.left)
            }
            JoinType::Inner => Some(base(&join.left)?.or_larger(base(&join.right)?)),
            JoinType::Full => Some(base(&join.left)?.and(base(&join.right)?)),
            _ => base(&join.right),
        },
        LogicalPlan::Union(union) => {
            let mut parts = union.inputs.iter().map(|input| base(input));
            let first = parts.next()??;
            parts.try_fold(first, |all, part| Some(all.and(part?)))
        }
        other => match other.inputs()[..] {
            [input] => base(input),
            _ => None,
        },
    }
}
