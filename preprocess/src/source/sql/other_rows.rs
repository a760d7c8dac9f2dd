//! Columns of a query that depend on other rows than their own, and the position of those rows.
//!
//! A build checks its own features for rows of another split. It cannot check a query that way:
//! instead the plan is traced from each column of the result down to the tables. A window function
//! that only chooses rows (`row_number() = 1`) does not count, and neither do projections, filters
//! and lookups.

use std::collections::BTreeSet;

use datafusion::{
    common::{Column, ScalarValue},
    logical_expr::{
        Aggregate, Distinct, Expr, Join, LogicalPlan, Window, WindowFrameBound,
        expr::WindowFunction,
    },
};

/// Place of the other rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sight {
    /// Before the row, in the order of the window.
    Behind,
    /// Before, at and after the row: all rows of a partition, or of the table.
    All,
    /// After the row.
    Ahead,
}

impl Sight {
    /// The same where the order is the other way round.
    const fn turned(self) -> Self {
        match self {
            Self::Behind => Self::Ahead,
            Self::Ahead => Self::Behind,
            Self::All => Self::All,
        }
    }

    /// Names the rows for people.
    pub(crate) const fn rows(self) -> &'static str {
        match self {
            Self::Behind => "rows before it",
            Self::All => "all rows of its partition or table",
            Self::Ahead => "rows that come later",
        }
    }
}

/// Something in a query that makes a cell of other rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Construct {
    /// As the query has it, shortened.
    pub(crate) text: String,
    pub(crate) sight: Sight,
    /// Column that its rows are ordered by first.
    pub(crate) order: Option<String>,
}

/// A column of the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MadeColumn {
    pub(crate) name: String,
    /// The parts of the query that make it of other rows, each once.
    pub(crate) constructs: BTreeSet<Construct>,
    /// Columns of tables that it is made of.
    pub(crate) of: BTreeSet<String>,
}

/// The columns of the result of `plan`, as they were planned from the text.
pub(crate) fn columns(plan: &LogicalPlan) -> Vec<MadeColumn> {
    let fields = plan.schema().fields().iter().enumerate();
    let columns = fields.map(|(at, field)| {
        let mut made = MadeColumn {
            name: field.name().clone(),
            ..MadeColumn::default()
        };
        made.follow(plan, &BTreeSet::from([at]));
        made
    });
    columns.collect()
}

impl MadeColumn {
    /// Follows the columns of `plan` at the places `wanted`.
    fn follow(&mut self, plan: &LogicalPlan, wanted: &BTreeSet<usize>) {
        if wanted.is_empty() {
            return;
        }
        match plan {
            LogicalPlan::Projection(projection) => {
                let chosen = wanted.iter().filter_map(|at| projection.expr.get(*at));
                let chosen: Vec<&Expr> = chosen.collect();
                self.expressions(&chosen, &projection.input);
            }
            LogicalPlan::Window(window) => self.window(window, wanted),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate, wanted),
            LogicalPlan::Join(join) => self.join(join, wanted),
            LogicalPlan::Union(union) => {
                union
                    .inputs
                    .iter()
                    .for_each(|input| self.follow(input, wanted));
            }
            LogicalPlan::Distinct(Distinct::On(on)) => {
                let chosen = wanted.iter().filter_map(|at| on.select_expr.get(*at));
                let chosen: Vec<&Expr> = chosen.collect();
                self.expressions(&chosen, &on.input);
            }
            LogicalPlan::SubqueryAlias(alias) if tables_of(&alias.input).is_empty() => {
                let schema = plan.schema();
                self.of
                    .extend(wanted.iter().map(|at| schema.field(*at).name().clone()));
            }
            LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Distinct(Distinct::All(_)) => {
                plan.inputs()
                    .into_iter()
                    .for_each(|input| self.follow(input, wanted));
            }
            other => {
                if matches!(other, LogicalPlan::RecursiveQuery(_)) {
                    self.add("a recursive query", Sight::All, None);
                }
                for input in other.inputs() {
                    self.follow(input, &(0..input.schema().fields().len()).collect());
                }
            }
        }
    }

    fn add(&mut self, text: &str, sight: Sight, order: Option<String>) {
        self.constructs.insert(Construct {
            text: text.to_owned(),
            sight,
            order,
        });
    }

    /// Follows the columns of `input` that `expressions` read.
    fn expressions(&mut self, expressions: &[&Expr], input: &LogicalPlan) {
        let mut wanted = BTreeSet::new();
        for expression in expressions {
            let columns = expression.column_refs();
            wanted.extend(
                columns
                    .into_iter()
                    .filter_map(|column| place(input, column)),
            );
            if let Some(tables) = subquery_tables(expression)
                && !tables.is_disjoint(&tables_of(input))
            {
                self.add("a subquery over the same table", Sight::All, None);
            }
        }
        self.follow(input, &wanted);
    }

    fn window(&mut self, window: &Window, wanted: &BTreeSet<usize>) {
        let own = window.input.schema().fields().len();
        let mut below: BTreeSet<usize> = wanted.iter().copied().filter(|at| *at < own).collect();
        for at in wanted.iter().filter(|at| **at >= own) {
            let Some(expression) = window.window_expr.get(at - own) else {
                continue;
            };
            let expression = expression.clone().unalias();
            let columns = expression.column_refs();
            below.extend(
                columns
                    .into_iter()
                    .filter_map(|column| place(&window.input, column)),
            );
            if let Expr::WindowFunction(call) = &expression
                && let Some(sight) = sight_of(call)
            {
                let order = call.params.order_by.first();
                let order = order.and_then(|sort| match &sort.expr {
                    Expr::Column(column) => Some(column.name.clone()),
                    _ => None,
                });
                self.add(&call_text(call), sight, order);
            }
        }
        self.follow(&window.input, &below);
    }

    fn aggregate(&mut self, aggregate: &Aggregate, wanted: &BTreeSet<usize>) {
        let expressions = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
        let expressions: Vec<&Expr> = expressions.collect();
        // Sets of groups have a column more, and one expression for several columns.
        let is_plain = expressions.len() == aggregate.schema.fields().len();
        let chosen = expressions.iter().enumerate();
        let chosen = chosen.filter(|(at, _)| !is_plain || wanted.contains(at));
        let chosen: Vec<&Expr> = chosen.map(|(_, expression)| *expression).collect();
        // Without a join each row of the result has a group of rows to itself.
        self.expressions(&chosen, &aggregate.input);
    }

    fn join(&mut self, join: &Join, wanted: &BTreeSet<usize>) {
        let left = join.left.schema().fields().len();
        let all = join.schema.fields().len();
        let right = join.right.schema().fields().len();
        if all != left + right {
            // Of one side alone: the other one chooses rows.
            let side = if all == left { &join.left } else { &join.right };
            self.follow(side, wanted);
            return;
        }
        let [of_left, of_right] = [&join.left, &join.right].map(|side| tables_of(side));
        let ours: BTreeSet<usize> = wanted.iter().copied().filter(|at| *at < left).collect();
        let theirs: BTreeSet<usize> = wanted
            .iter()
            .filter_map(|at| at.checked_sub(left))
            .collect();
        let both = of_left.intersection(&of_right).next();
        for (side, wanted) in [(&join.left, &ours), (&join.right, &theirs)] {
            if let Some(table) = both.filter(|_| !wanted.is_empty() && is_made(side)) {
                let text = format!("an aggregate over `{table}`, joined to its rows");
                self.add(&text, Sight::All, None);
            }
        }
        let is_plain = !is_made(&join.left) && !is_made(&join.right);
        if let Some(table) = both.filter(|_| is_plain && !theirs.is_empty()) {
            self.add(
                &format!("a join of `{table}` with itself"),
                Sight::All,
                None,
            );
        }
        self.follow(&join.left, &ours);
        self.follow(&join.right, &theirs);
    }
}

fn place(plan: &LogicalPlan, column: &Column) -> Option<usize> {
    plan.schema().maybe_index_of_column(column)
}

/// The tables that a plan reads. A source is a view, so it is a plan of its own under its name; below that nothing has a name.
pub(super) fn tables_of(plan: &LogicalPlan) -> BTreeSet<String> {
    let mut tables = BTreeSet::new();
    for input in plan.inputs() {
        tables.extend(tables_of(input));
    }
    if let LogicalPlan::SubqueryAlias(alias) = plan
        && tables.is_empty()
    {
        tables.insert(alias.alias.table().to_owned());
    }
    tables
}

/// Returns whether rows of a plan are aggregates.
fn is_made(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Aggregate(_)) || plan.inputs().into_iter().any(is_made)
}

/// The tables of the subqueries of an expression; nothing where it has none.
pub(super) fn subquery_tables(expression: &Expr) -> Option<BTreeSet<String>> {
    use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
    let mut tables: Option<BTreeSet<String>> = None;
    let looked = expression.apply(|part| {
        let subquery = match part {
            Expr::ScalarSubquery(subquery) => Some(subquery),
            Expr::Exists(exists) => Some(&exists.subquery),
            Expr::InSubquery(found) => Some(&found.subquery),
            _ => None,
        };
        if let Some(subquery) = subquery {
            let own = tables_of(&subquery.subquery);
            tables.get_or_insert_default().extend(own);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    looked.ok().and(tables)
}

/// Place of the rows that a window function takes values from; nothing where that is its own row.
fn sight_of(call: &WindowFunction) -> Option<Sight> {
    let params = &call.params;
    let order = params.order_by.first();
    let is_down = order.is_some_and(|sort| !sort.asc);
    let name = call.fun.name().to_lowercase();
    let forward = match name.as_str() {
        "lag" | "lead" => {
            let shift = params.args.get(1).map_or(Some(1), integer);
            let ahead = match name.as_str() {
                "lag" => shift.and_then(i64::checked_neg),
                _ => shift,
            };
            match ahead {
                Some(0) => return None,
                Some(ahead) if ahead < 0 => Sight::Behind,
                _ => Sight::Ahead,
            }
        }
        "row_number" | "rank" | "dense_rank" => Sight::Behind,
        "ntile" | "percent_rank" | "cume_dist" => return Some(Sight::All),
        _ if order.is_none() => return Some(Sight::All),
        _ => {
            let frame = &params.window_frame;
            let is_open = |bound: &WindowFrameBound| match bound {
                WindowFrameBound::Preceding(value) | WindowFrameBound::Following(value) => {
                    value.is_null()
                }
                WindowFrameBound::CurrentRow => false,
            };
            match &frame.end_bound {
                end @ WindowFrameBound::Following(_)
                    if is_open(end) && is_open(&frame.start_bound) =>
                {
                    return Some(Sight::All);
                }
                WindowFrameBound::Following(value) if !is_zero(value) => Sight::Ahead,
                _ => Sight::Behind,
            }
        }
    };
    Some(if is_down { forward.turned() } else { forward })
}

fn is_zero(value: &ScalarValue) -> bool {
    !value.is_null() && value.to_string() == "0"
}

/// An integer that is written down.
fn integer(expression: &Expr) -> Option<i64> {
    match expression {
        Expr::Literal(value, _) => value.to_string().parse().ok(),
        Expr::Negative(inner) => integer(inner)?.checked_neg(),
        Expr::Cast(cast) => integer(&cast.expr),
        _ => None,
    }
}

/// A call with its arguments, columns without their tables.
fn call_text(call: &WindowFunction) -> String {
    let arguments = call.params.args.iter().map(|argument| match argument {
        Expr::Column(column) => column.name.clone(),
        Expr::Literal(value, _) => value.to_string(),
        other => other.to_string(),
    });
    let arguments: Vec<String> = arguments.collect();
    format!(
        "{}({})",
        call.fun.name().to_lowercase(),
        arguments.join(", ")
    )
}
