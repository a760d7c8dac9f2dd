//! Exact integers in a query: a result that exceeds 64 bits ends the build, where the engine would
//! silently wrap around.
//!
//! Once the engine has typed all operands, sums, differences and products of integers become
//! functions that check for overflow, and `sum` adds up in 128 bits. Types and names of columns
//! stay the same; quotients and remainders are those of the engine, which checks them itself.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, BooleanArray, Int64Array, UInt64Array},
    datatypes::{DataType, Decimal128Type, Field, FieldRef},
};
use datafusion::{
    common::{
        DFSchema, ScalarValue, config::ConfigOptions, exec_datafusion_err, tree_node::Transformed,
        tree_node::TreeNode,
    },
    error::Result as EngineResult,
    functions_aggregate::sum::sum_udaf,
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, BinaryExpr, EmitTo, Expr, ExprSchemable,
        GroupsAccumulator, LogicalPlan, Operator, ReversedUDAF, Signature, Volatility,
        WindowFunctionDefinition, cast,
        expr_rewriter::NamePreserver,
        function::{AccumulatorArgs, StateFieldsArgs},
        lit,
        utils::{AggregateOrderSensitivity, merge_schema},
    },
    optimizer::AnalyzerRule,
};

use super::refusal::{KEY, refuse};
use crate::operators::split::integers;

/// Type that holds every integer of 64 bits.
const WIDE: DataType = DataType::Decimal128(20, 0);

/// Type that holds the sum of the greatest possible number of them, as the engine sums [`WIDE`].
const WIDE_SUM: DataType = DataType::Decimal128(30, 0);

/// Makes a plan exact, as the last step of its analysis.
#[derive(Debug)]
pub(super) struct ExactIntegers;

impl AnalyzerRule for ExactIntegers {
    fn name(&self) -> &str {
        "feedline_exact_integers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> EngineResult<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(node)?.data)
    }
}

fn node(plan: LogicalPlan) -> EngineResult<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    let one = |expression: Expr| {
        let name = names.save(&expression);
        let found = expression.transform_up(|part| exact(part, &schema))?;
        Ok(found.update_data(|found| name.restore(found)))
    };
    let found = plan.map_expressions(|expression| match expression {
        // The columns of what is grouped by are those of the sets.
        Expr::GroupingSet(_) => expression.map_children(one),
        expression => one(expression),
    })?;
    match found.transformed {
        true => found.map_data(LogicalPlan::recompute_schema),
        false => Ok(found),
    }
}

fn exact(mut part: Expr, schema: &DFSchema) -> EngineResult<Transformed<Expr>> {
    if let Some(found) = operation(&part, schema)? {
        return Ok(Transformed::yes(found));
    }
    if !matches!(part, Expr::AggregateFunction(_) | Expr::WindowFunction(_)) {
        return Ok(Transformed::no(part));
    }
    let name = part.schema_name().to_string();
    let (function, arguments) = match &mut part {
        Expr::AggregateFunction(call) => (&mut call.func, &mut call.params.args),
        Expr::WindowFunction(call) => match &mut call.fun {
            WindowFunctionDefinition::AggregateUDF(function) => (function, &mut call.params.args),
            WindowFunctionDefinition::WindowUDF(_) => return Ok(Transformed::no(part)),
        },
        _ => return Ok(Transformed::no(part)),
    };
    let [argument] = &mut arguments[..] else {
        return Ok(Transformed::no(part));
    };
    let result = argument.get_type(schema)?;
    if function.name() != Sum::NAME || !result.is_integer() {
        return Ok(Transformed::no(part));
    }
    *argument = cast(argument.clone(), WIDE);
    *function = Arc::new(AggregateUDF::new_from_impl(Sum::of(result, name)));
    Ok(Transformed::yes(part))
}

/// The exact one for an operation on integers.
fn operation(part: &Expr, schema: &DFSchema) -> EngineResult<Option<Expr>> {
    let zero = lit(0_i64);
    let (left, sign, right) = match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::Plus => (&**left, '+', &**right),
            Operator::Minus => (&**left, '-', &**right),
            Operator::Multiply => (&**left, '*', &**right),
            _ => return Ok(None),
        },
        Expr::Negative(negated) => (&zero, '-', &**negated),
        _ => return Ok(None),
    };
    let result = part.get_type(schema)?;
    let of_integers = left.get_type(schema)?.is_integer() && right.get_type(schema)?.is_integer();
    if !of_integers || !result.is_integer() {
        return Ok(None);
    }
    let exact = integers::exact(left, sign, right, KEY);
    // A narrower type is looked for by the engine as it casts.
    Ok(Some(match result {
        DataType::Int64 => exact,
        narrower => cast(exact, narrower),
    }))
}

/// The engine's `sum` of integers, in 128 bits, its result looked at.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    result: DataType,
    /// The call, as the query has it.
    call: String,
    signature: Signature,
}

impl Sum {
    const NAME: &'static str = "sum";

    fn of(result: DataType, call: String) -> Self {
        let signature = Signature::exact(vec![WIDE], Volatility::Immutable);
        Self {
            result,
            call,
            signature,
        }
    }

    fn narrow(&self) -> Narrow {
        Narrow {
            result: self.result.clone(),
            call: self.call.clone(),
        }
    }
}

fn wide_field() -> FieldRef {
    Arc::new(Field::new("sum", WIDE_SUM, true))
}

fn wide(args: AccumulatorArgs<'_>) -> AccumulatorArgs<'_> {
    AccumulatorArgs {
        return_field: wide_field(),
        ..args
    }
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> EngineResult<DataType> {
        Ok(self.result.clone())
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> EngineResult<Vec<FieldRef>> {
        sum_udaf().state_fields(StateFieldsArgs {
            return_field: wide_field(),
            ..args
        })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> EngineResult<Box<dyn Accumulator>> {
        let narrow = self.narrow();
        let wide = sum_udaf().accumulator(wide(args))?;
        Ok(Box::new(One { wide, narrow }))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> EngineResult<Box<dyn Accumulator>> {
        let narrow = self.narrow();
        let wide = sum_udaf().create_sliding_accumulator(wide(args))?;
        Ok(Box::new(One { wide, narrow }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        sum_udaf().groups_accumulator_supported(wide(args))
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> EngineResult<Box<dyn GroupsAccumulator>> {
        let narrow = self.narrow();
        let wide = sum_udaf().create_groups_accumulator(wide(args))?;
        Ok(Box::new(Groups { wide, narrow }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// Sums back in 64 bits.
#[derive(Debug)]
struct Narrow {
    result: DataType,
    /// The call, as the query has it.
    call: String,
}

impl Narrow {
    fn all(&self, sums: &ArrayRef) -> EngineResult<ArrayRef> {
        let sums = sums
            .as_primitive_opt::<Decimal128Type>()
            .ok_or_else(|| exec_datafusion_err!("a sum of integers is not one of 128 bits"))?
            .iter();
        Ok(match self.result {
            DataType::UInt64 => {
                let sums = sums.map(|sum| self.one(sum));
                Arc::new(sums.collect::<EngineResult<UInt64Array>>()?)
            }
            _ => {
                let sums = sums.map(|sum| self.one(sum));
                Arc::new(sums.collect::<EngineResult<Int64Array>>()?)
            }
        })
    }

    fn one<T: TryFrom<i128>>(&self, sum: Option<i128>) -> EngineResult<Option<T>> {
        let narrowed = |sum: i128| {
            T::try_from(sum).map_err(|_| {
                refuse(format!(
                    "`{}` gives {sum}, which is no integer of 64 bits; sum a `cast(... as double)` or a `cast(... as decimal(38, \
                     0))`",
                    self.call
                ))
            })
        };
        Ok(sum.map(narrowed).transpose()?)
    }
}

/// The sum of one group.
#[derive(Debug)]
struct One {
    wide: Box<dyn Accumulator>,
    narrow: Narrow,
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> EngineResult<()> {
        self.wide.update_batch(values)
    }

    fn evaluate(&mut self) -> EngineResult<ScalarValue> {
        let sum = self.wide.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&self.narrow.all(&sum)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.wide.size()
    }

    fn state(&mut self) -> EngineResult<Vec<ScalarValue>> {
        self.wide.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> EngineResult<()> {
        self.wide.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> EngineResult<()> {
        self.wide.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.wide.supports_retract_batch()
    }
}

/// The sums of many groups.
struct Groups {
    wide: Box<dyn GroupsAccumulator>,
    narrow: Narrow,
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> EngineResult<()> {
        self.wide
            .update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> EngineResult<ArrayRef> {
        self.narrow.all(&self.wide.evaluate(emit_to)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> EngineResult<Vec<ArrayRef>> {
        self.wide.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> EngineResult<()> {
        self.wide
            .merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> EngineResult<Vec<ArrayRef>> {
        self.wide.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.wide.size()
    }
}
