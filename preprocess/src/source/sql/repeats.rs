//! Rows that a query repeats: more rows than landed in the tables that it begins from.
//!
//! A left join begins from its left table, an inner join from its larger one, a cross join from the
//! combinations of the rows of both, a union from all of its parts. A lookup of one row a key leaves
//! their number as it is. A join that matches several rows or `unnest` raises it.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::{
    common::JoinType,
    logical_expr::{
        Aggregate, Distinct, Expr, Join, LogicalPlan, Unnest, utils::split_conjunction,
    },
};

use super::other_rows::{subquery_tables, tables_of};

/// Tables whose rows alone decide the cells of a column, by their places; `None` if copies of one row may
/// have several cells.
type CellOrigin = Option<BTreeSet<usize>>;

/// Tables that the rows of a query begin from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseTables {
    pub(crate) names: Vec<String>,
    /// Landed rows of each.
    landed: Vec<u64>,
    /// Landed rows of all of them, or combinations of these.
    pub(crate) rows: u64,
    /// True if a cross join combines them.
    pub(crate) is_combined: bool,
    /// Origins of the columns of the plan.
    origins: Vec<CellOrigin>,
    /// Names of these columns.
    columns: Vec<String>,
}

impl BaseTables {
    /// The tables that `plan`, as it was planned from the text, begins from; `landed` has the rows of each table. Nothing
    /// if it begins from something else, such as `values`.
    pub(super) fn of(plan: &LogicalPlan, landed: &BTreeMap<String, u64>) -> Option<Self> {
        let mut base = base_tables(plan, landed, &[])?;
        let fields = plan.schema().fields().iter();
        base.columns = fields.map(|field| field.name().clone()).collect();
        Some(base)
    }

    fn origin(&self, column: &str) -> Option<&BTreeSet<usize>> {
        let at = self.columns.iter().position(|name| name == column)?;
        self.origins.get(at)?.as_ref()
    }

    /// Returns true if all copies of a row have the same cell of `column`.
    pub(crate) fn is_same_in_copies(&self, column: &str) -> bool {
        self.origin(column).is_some()
    }

    /// The table of a cross join that alone decides the cells of `column`, and its landed rows, if `rows` rows of
    /// the result repeat these.
    pub(crate) fn repeated_by_cross_join(&self, column: &str, rows: u64) -> Option<(&str, u64)> {
        let origin = self.origin(column).filter(|_| self.is_combined)?;
        let table = origin.first().filter(|_| origin.len() == 1)?;
        let (name, landed) = (self.names.get(*table)?, *self.landed.get(*table)?);
        (rows > landed).then_some((name.as_str(), landed))
    }

    /// Returns true if rows with the same cells of the tables that decide `column` have the same cell of `other`.
    pub(crate) fn decides_too(&self, column: &str, other: &str) -> bool {
        let (Some(origin), Some(other)) = (self.origin(column), self.origin(other)) else {
            return false;
        };
        other.is_subset(origin)
    }

    /// The rows of both; each has some of the result.
    fn and(mut self, other: Self) -> Self {
        let offset = self.names.len();
        let others = other
            .origins
            .into_iter()
            .map(|origin| shift(origin, offset));
        let origins = self.origins.into_iter().zip(others);
        self.origins = origins
            .map(|(own, other)| own.zip(other).map(|(own, other)| &own | &other))
            .collect();
        self.names.extend(other.names);
        self.landed.extend(other.landed);
        self.rows += other.rows;
        self.is_combined = false;
        self
    }

    /// The combinations of the rows of both.
    fn times(mut self, other: Self) -> Self {
        let offset = self.names.len();
        let others = other
            .origins
            .into_iter()
            .map(|origin| shift(origin, offset));
        self.origins.extend(others);
        self.names.extend(other.names);
        self.landed.extend(other.landed);
        self.rows = self.rows.saturating_mul(other.rows);
        self.is_combined = true;
        self
    }

    fn with(self, origins: Vec<CellOrigin>) -> Self {
        Self { origins, ..self }
    }

    /// The same with columns of other rows before and behind its own, `columns` together.
    fn among(self, before: usize, columns: usize) -> Self {
        let mut origins = vec![None; before];
        origins.extend(self.origins.iter().cloned());
        origins.resize(columns, None);
        self.with(origins)
    }

    /// Origins of expressions over `input`, whose columns are its own.
    fn origins_of<'a>(
        &self,
        expressions: impl IntoIterator<Item = &'a Expr>,
        input: &LogicalPlan,
    ) -> Vec<CellOrigin> {
        let origin = |expression: &Expr| -> CellOrigin {
            if subquery_tables(expression).is_some() {
                return None;
            }
            let mut tables = BTreeSet::new();
            for column in expression.column_refs() {
                let at = input.schema().maybe_index_of_column(column)?;
                tables.extend(self.origins.get(at)?.as_ref()?);
            }
            Some(tables)
        };
        expressions.into_iter().map(origin).collect()
    }

    fn of_aggregate(self, aggregate: &Aggregate) -> Self {
        let columns = aggregate.schema.fields().len();
        let groups = aggregate.group_expr.len();
        // Sets of groups have a column more, and one expression for several columns.
        if groups + aggregate.aggr_expr.len() != columns {
            return self.with(vec![None; columns]);
        }
        let mut origins = self.origins_of(&aggregate.group_expr, &aggregate.input);
        origins.resize(columns, None);
        self.with(origins)
    }

    fn of_unnest(self, unnest: &Unnest) -> Self {
        let lists = unnest.list_type_columns.iter().map(|(at, _)| *at);
        let lists: BTreeSet<usize> = lists.collect();
        let of = unnest.dependency_indices.iter().map(|at| {
            let origin = self.origins.get(*at).cloned().flatten();
            origin.filter(|_| !lists.contains(at))
        });
        let mut origins: Vec<CellOrigin> = of.collect();
        origins.resize(unnest.schema.fields().len(), None);
        self.with(origins)
    }
}

fn shift(origin: CellOrigin, offset: usize) -> CellOrigin {
    origin.map(|tables| tables.into_iter().map(|table| table + offset).collect())
}

/// The tables that `plan` begins from, below filters by `predicates`.
fn base_tables(
    plan: &LogicalPlan,
    landed: &BTreeMap<String, u64>,
    predicates: &[&Expr],
) -> Option<BaseTables> {
    let columns = plan.schema().fields().len();
    let base = |input: &LogicalPlan| base_tables(input, landed, &[]);
    match plan {
        // A source is a view, so it is a plan of its own under its name.
        LogicalPlan::SubqueryAlias(alias) if tables_of(&alias.input).is_empty() => {
            let name = alias.alias.table();
            let rows = *landed.get(name)?;
            Some(BaseTables {
                names: vec![name.to_owned()],
                landed: vec![rows],
                rows,
                is_combined: false,
                origins: vec![Some(BTreeSet::from([0])); columns],
                columns: Vec::new(),
            })
        }
        LogicalPlan::Join(join) => join_tables(join, landed, predicates),
        LogicalPlan::Union(union) => {
            let mut parts = union.inputs.iter().map(|input| base(input));
            let first = parts.next()??;
            parts.try_fold(first, |all, part| Some(all.and(part?)))
        }
        LogicalPlan::Filter(filter) => {
            let all: Vec<&Expr> = predicates
                .iter()
                .copied()
                .chain([&filter.predicate])
                .collect();
            base_tables(&filter.input, landed, &all)
        }
        LogicalPlan::Projection(projection) => {
            let of = base(&projection.input)?;
            let origins = of.origins_of(&projection.expr, &projection.input);
            Some(of.with(origins))
        }
        LogicalPlan::Distinct(Distinct::On(on)) => {
            let of = base(&on.input)?;
            let origins = of.origins_of(&on.select_expr, &on.input);
            Some(of.with(origins))
        }
        LogicalPlan::Aggregate(aggregate) => Some(base(&aggregate.input)?.of_aggregate(aggregate)),
        LogicalPlan::Unnest(unnest) => Some(base(&unnest.input)?.of_unnest(unnest)),
        LogicalPlan::Window(window) => Some(base(&window.input)?.among(0, columns)),
        LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => base(plan.inputs().first()?),
        other => match other.inputs()[..] {
            [input] => Some(base(input)?.with(vec![None; columns])),
            _ => None,
        },
    }
}

fn join_tables(
    join: &Join,
    landed: &BTreeMap<String, u64>,
    predicates: &[&Expr],
) -> Option<BaseTables> {
    let base = |input: &LogicalPlan| base_tables(input, landed, &[]);
    let columns = join.schema.fields().len();
    let left = join.left.schema().fields().len();
    match join.join_type {
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            Some(base(&join.left)?.among(0, columns))
        }
        JoinType::Inner if is_cross(join, predicates) => {
            let side = |input: &LogicalPlan| base_tables(input, landed, predicates);
            Some(side(&join.left)?.times(side(&join.right)?))
        }
        JoinType::Inner => {
            let side = |input: &LogicalPlan| base_tables(input, landed, predicates);
            let (of_left, of_right) = (side(&join.left)?, side(&join.right)?);
            Some(match of_right.rows > of_left.rows {
                true => of_right.among(left, columns),
                false => of_left.among(0, columns),
            })
        }
        JoinType::Full => {
            let both = base(&join.left)?.and(base(&join.right)?);
            Some(both.with(vec![None; columns]))
        }
        JoinType::Right => Some(base(&join.right)?.among(left, columns)),
        _ => Some(base(&join.right)?.among(0, columns)),
    }
}

/// Returns true if nothing relates the rows of both sides of an inner join, the `predicates` over its result
/// included.
fn is_cross(join: &Join, predicates: &[&Expr]) -> bool {
    let filters = join.filter.iter().chain(predicates.iter().copied());
    let mut relating = filters.flat_map(split_conjunction).filter(|predicate| {
        let reads = |side: &LogicalPlan| {
            let mut columns = predicate.column_refs().into_iter();
            columns.any(|column| side.schema().has_column(column))
        };
        reads(&join.left) && reads(&join.right)
    });
    join.on.is_empty() && relating.next().is_none()
}
