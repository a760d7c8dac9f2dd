//! Rows that a query repeats: more rows than it reads from the tables that it begins from, or from the table that the target
//! comes from.
//!
//! A left join begins from its left table, an inner join from its larger one, a cross join from the
//! combinations of the rows of both, a union from all of its parts. A lookup of one row a key leaves
//! their number as it is. A join that matches several rows or `unnest` raises it.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use datafusion::{
    common::{Column, JoinType},
    logical_expr::{
        Aggregate, BinaryExpr, Distinct, Expr, Join, LogicalPlan, Operator, Unnest,
        utils::split_conjunction,
    },
};

use super::other_rows::{subquery_tables, tables_of};

/// Tables whose rows alone decide the cells of a column, by their places; `None` if copies of one row may
/// have several cells.
type CellOrigin = Option<BTreeSet<usize>>;

/// Tables that a query reads, and those of them that its rows begin from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseTables {
    names: Vec<String>,
    /// Rows that the query reads from each.
    read: Vec<u64>,
    /// Places of the tables that the rows begin from.
    begins: BTreeSet<usize>,
    /// Rows of all of these, or combinations of them.
    pub(crate) rows: u64,
    /// True if a cross join combines them.
    pub(crate) is_combined: bool,
    /// Origins of the columns of the plan.
    origins: Vec<CellOrigin>,
    /// Origins of the cells that a join makes equal to those of a column, by the place of the column.
    equals: BTreeMap<usize, BTreeSet<usize>>,
    /// Names of these columns.
    columns: Vec<String>,
}

/// Table whose rows a query repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepeatedTable<'a> {
    pub(crate) name: &'a str,
    /// Rows that the query reads from it.
    pub(crate) rows: u64,
    /// True if it is one of several that a cross join combines.
    pub(crate) is_combined: bool,
    at: usize,
}

impl BaseTables {
    /// The tables that `plan`, as it was planned from the text, begins from; `read` has the rows of each table. Nothing
    /// if it begins from something else, such as `values`.
    pub(super) fn of(plan: &LogicalPlan, read: &BTreeMap<String, u64>) -> Option<Self> {
        let mut base = base_tables(plan, read, &[])?;
        let fields = plan.schema().fields().iter();
        base.columns = fields.map(|field| field.name().clone()).collect();
        Some(base)
    }

    /// Names of the tables that the rows begin from.
    pub(crate) fn base_names(&self) -> impl Iterator<Item = &str> {
        let names = self.begins.iter().filter_map(|at| self.names.get(*at));
        names.map(String::as_str)
    }

    fn place(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|name| name == column)
    }

    fn origin(&self, column: &str) -> Option<&BTreeSet<usize>> {
        self.origins.get(self.place(column)?)?.as_ref()
    }

    /// Returns true if rows of the result with the same rows of `tables` have the same cell of `column`.
    fn is_decided_by(&self, column: &str, tables: &BTreeSet<usize>) -> bool {
        let equal = self.place(column).and_then(|at| self.equals.get(&at));
        let mut origins = self.origin(column).into_iter().chain(equal);
        origins.any(|origin| origin.is_subset(tables))
    }

    /// Returns true if a split by `key`, or by `time`, keeps all copies of a row together.
    pub(crate) fn keeps_copies(&self, key: &[String], time: Option<&String>) -> bool {
        let is_same = |column: &String| self.is_decided_by(column, &self.begins);
        !key.is_empty() && key.iter().all(is_same) || time.is_some_and(is_same)
    }

    /// The table that alone decides the cells of `column`, if `rows` rows of the result are more than it has. Nothing
    /// if it is the only one that the rows begin from: then all cells of its rows are repeated.
    pub(crate) fn repeated_with(&self, column: &str, rows: u64) -> Option<RepeatedTable<'_>> {
        let origin = self.origin(column).filter(|origin| origin.len() == 1)?;
        let at = *origin.first().filter(|_| *origin != self.begins)?;
        let table = RepeatedTable {
            name: self.names.get(at)?,
            rows: *self.read.get(at)?,
            is_combined: self.is_combined && self.begins.contains(&at),
            at,
        };
        (rows > table.rows).then_some(table)
    }

    /// Returns true if a split by `key`, or by `time`, keeps all copies of a row of `table` together, or if `key`
    /// identifies a combination of a cross join, so that each has an outcome of its own.
    pub(crate) fn keeps_copies_of(
        &self,
        table: RepeatedTable<'_>,
        key: &[String],
        time: Option<&String>,
    ) -> bool {
        let of_table = BTreeSet::from([table.at]);
        let is_same = |column: &String| self.is_decided_by(column, &of_table);
        let origins = key.iter().filter_map(|column| self.origin(column));
        let named: BTreeSet<usize> = origins.flatten().copied().collect();
        let is_combination = table.is_combined && self.begins.is_subset(&named);
        let is_together = !key.is_empty() && key.iter().all(is_same);
        is_together || is_combination || time.is_some_and(is_same)
    }

    /// The rows of both; each has some of the result.
    fn and(mut self, other: Self) -> Self {
        let offset = self.names.len();
        let others = other
            .origins
            .into_iter()
            .map(|origin| Some(shift(origin?, offset)));
        let origins = self.origins.into_iter().zip(others);
        self.origins = origins
            .map(|(own, other)| own.zip(other).map(|(own, other)| &own | &other))
            .collect();
        self.names.extend(other.names);
        self.read.extend(other.read);
        self.begins.extend(shift(other.begins, offset));
        self.rows += other.rows;
        self.is_combined = false;
        self.equals.clear();
        self
    }

    /// The combinations of the rows of both.
    fn times(self, other: Self) -> Self {
        let offset = self.names.len();
        let begins = shift(other.begins.clone(), offset);
        let rows = self.rows.saturating_mul(other.rows);
        let mut all = self.beside(other);
        all.begins.extend(begins);
        all.rows = rows;
        all.is_combined = true;
        all
    }

    /// The rows of an inner join with `other`: they begin from the larger side.
    fn joined(self, other: Self) -> Self {
        let is_other = other.rows > self.rows;
        let begins = match is_other {
            true => shift(other.begins.clone(), self.names.len()),
            false => self.begins.clone(),
        };
        let (rows, is_combined) = match is_other {
            true => (other.rows, other.is_combined),
            false => (self.rows, self.is_combined),
        };
        Self {
            begins,
            rows,
            is_combined,
            ..self.beside(other)
        }
    }

    /// The same with the columns that a join adds from the rows of `other`, behind its own.
    fn beside(mut self, other: Self) -> Self {
        let (offset, before) = (self.names.len(), self.origins.len());
        let others = other.origins.into_iter();
        self.origins
            .extend(others.map(|origin| Some(shift(origin?, offset))));
        let equals = other.equals.into_iter();
        self.equals
            .extend(equals.map(|(at, origin)| (at + before, shift(origin, offset))));
        self.names.extend(other.names);
        self.read.extend(other.read);
        self
    }

    fn with(self, origins: Vec<CellOrigin>) -> Self {
        let equals = BTreeMap::new();
        Self {
            origins,
            equals,
            ..self
        }
    }

    /// The same with columns of other rows before and behind its own, `columns` together.
    fn among(mut self, before: usize, columns: usize) -> Self {
        let mut origins = vec![None; before];
        origins.extend(self.origins.iter().cloned());
        origins.resize(columns, None);
        let equals = mem::take(&mut self.equals).into_iter();
        let equals = equals.map(|(at, origin)| (at + before, origin)).collect();
        Self {
            equals,
            ..self.with(origins)
        }
    }

    /// The same for the result of `join`, below filters by `predicates`, with the columns that it makes equal.
    fn equated(mut self, join: &Join, predicates: &[&Expr]) -> Self {
        for (at, equal) in equal_columns(join, predicates) {
            let origin = self.origins.get(equal).cloned().flatten();
            self.equals.extend(origin.map(|origin| (at, origin)));
        }
        self
    }

    /// The columns of a projection by `expressions`.
    fn projected(self, expressions: &[Expr], input: &LogicalPlan) -> Self {
        let origins = self.origins_of(expressions, input);
        let columns = expressions.iter().enumerate();
        let equals = columns.filter_map(|(at, expression)| {
            let column = cast_column(expression)?;
            let place = input.schema().maybe_index_of_column(column)?;
            Some((at, self.equals.get(&place)?.clone()))
        });
        let equals = equals.collect();
        Self {
            equals,
            ..self.with(origins)
        }
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

fn shift(tables: BTreeSet<usize>, offset: usize) -> BTreeSet<usize> {
    tables.into_iter().map(|table| table + offset).collect()
}

/// The tables that `plan` begins from, below filters by `predicates`.
fn base_tables(
    plan: &LogicalPlan,
    read: &BTreeMap<String, u64>,
    predicates: &[&Expr],
) -> Option<BaseTables> {
    let columns = plan.schema().fields().len();
    let base = |input: &LogicalPlan| base_tables(input, read, &[]);
    match plan {
        // A source is a view, so it is a plan of its own under its name.
        LogicalPlan::SubqueryAlias(alias) if tables_of(&alias.input).is_empty() => {
            let name = alias.alias.table();
            let rows = *read.get(name)?;
            Some(BaseTables {
                names: vec![name.to_owned()],
                read: vec![rows],
                begins: BTreeSet::from([0]),
                rows,
                is_combined: false,
                origins: vec![Some(BTreeSet::from([0])); columns],
                equals: BTreeMap::new(),
                columns: Vec::new(),
            })
        }
        LogicalPlan::Join(join) => join_tables(join, read, predicates),
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
            base_tables(&filter.input, read, &all)
        }
        LogicalPlan::Projection(projection) => {
            Some(base(&projection.input)?.projected(&projection.expr, &projection.input))
        }
        LogicalPlan::Distinct(Distinct::On(on)) => {
            Some(base(&on.input)?.projected(&on.select_expr, &on.input))
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
    read: &BTreeMap<String, u64>,
    predicates: &[&Expr],
) -> Option<BaseTables> {
    let base = |input: &LogicalPlan| base_tables(input, read, &[]);
    let columns = join.schema.fields().len();
    let left = join.left.schema().fields().len();
    match join.join_type {
        JoinType::Left => {
            let of_left = base(&join.left)?.among(0, columns);
            Some(of_left.equated(join, &[]))
        }
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            Some(base(&join.left)?.among(0, columns))
        }
        JoinType::Inner => {
            let side = |input: &LogicalPlan| base_tables(input, read, predicates);
            let (of_left, of_right) = (side(&join.left)?, side(&join.right)?);
            let both = match is_cross(join, predicates) {
                true => of_left.times(of_right),
                false => of_left.joined(of_right),
            };
            Some(both.equated(join, predicates))
        }
        JoinType::Full => {
            let both = base(&join.left)?.and(base(&join.right)?);
            Some(both.with(vec![None; columns]))
        }
        JoinType::Right => {
            let of_right = base(&join.right)?.among(left, columns);
            Some(of_right.equated(join, &[]))
        }
        _ => Some(base(&join.right)?.among(0, columns)),
    }
}

/// The column that an expression names or casts, under whatever name.
fn cast_column(expression: &Expr) -> Option<&Column> {
    match expression {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => cast_column(&alias.expr),
        Expr::Cast(cast) => cast_column(&cast.expr),
        Expr::TryCast(cast) => cast_column(&cast.expr),
        _ => None,
    }
}

/// Places of the columns in the result of an inner or outer join that it, or `predicates` over it, makes equal to another
/// column or a cast of it, each with the place of that one.
fn equal_columns(join: &Join, predicates: &[&Expr]) -> Vec<(usize, usize)> {
    let place = |expression: &Expr| match expression {
        Expr::Column(column) => join.schema.maybe_index_of_column(column),
        _ => None,
    };
    let place_of_cast =
        |expression: &Expr| join.schema.maybe_index_of_column(cast_column(expression)?);
    let mut equal: Vec<(&Expr, &Expr)> = join.on.iter().map(|(one, other)| (one, other)).collect();
    let filters = join.filter.iter().chain(predicates.iter().copied());
    for predicate in filters.flat_map(split_conjunction) {
        if let Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) = predicate
        {
            equal.push((left, right));
        }
    }
    let both = equal.into_iter();
    let both = both.flat_map(|(one, other)| [(one, other), (other, one)]);
    both.filter_map(|(one, other)| Some((place(one)?, place_of_cast(other)?)))
        .collect()
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
