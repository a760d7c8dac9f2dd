//! Our functions in the query engine: the learned numbers of [`crate::fit`] come from these aggregates alone.
//!
//! - `feedline_profile(x)`: tally, range and exact moments of a column ([`Profile`]),
//! - `feedline_scan(x, spec)`: one pass of the exact quantile search ([`Scan`]),
//! - `feedline_bins(x, edges)`: cells between edges ([`Bins`]),
//! - `feedline_cell(x, ops)`: fitted steps on a numeric column ([`CellOp`]).
//!
//! Parameters are literal arguments, so a function is serialized by its name. The states and
//! results of the aggregates are binary; they merge by integer additions, so any partitioning gives
//! the same bytes.

mod bins;
mod profile;

use std::{fmt::Debug, sync::Arc};

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, Float64Array},
        datatypes::{DataType, Field, FieldRef, Float64Type},
    },
    common::{ScalarValue, exec_datafusion_err, exec_err},
    error::Result,
    execution::FunctionRegistry,
    functions::{
        datetime::planner::DatetimeFunctionPlanner, unicode::planner::UnicodeFunctionPlanner,
    },
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Expr, ScalarFunctionArgs,
        ScalarUDF, ScalarUDFImpl, Signature, Volatility,
        function::{AccumulatorArgs, StateFieldsArgs},
        lit,
        utils::{AggregateOrderSensitivity, format_state_name},
    },
    physical_expr::expressions::Literal,
    prelude::SessionContext,
};

pub(crate) use bins::Bins;
pub(crate) use profile::Profile;

use crate::{
    statistics::quantile::{Scan, ScanSpec},
    transform::{CellOp, canonical},
};

/// Name of the function that [`cell`] calls.
pub(crate) const CELL: &str = "feedline_cell";

/// Makes the functions known by name, as a plan that was sent here from another process needs it.
pub(crate) fn register(context: &SessionContext) {
    context.register_udaf(aggregate(Kind::Profile));
    context.register_udaf(aggregate(Kind::Scan));
    context.register_udaf(aggregate(Kind::Bins));
    context.register_udf(cell_function());
}

/// Lets queries spell what they call as standard SQL does: `extract(year from t)`, `substring(a from 2)`, `position('x' in a)`.
pub(crate) fn register_spellings(context: &SessionContext) -> Result<()> {
    let state = context.state_ref();
    let mut state = state.write();
    state.register_expr_planner(Arc::new(DatetimeFunctionPlanner))?;
    state.register_expr_planner(Arc::new(UnicodeFunctionPlanner))
}

/// `feedline_profile(argument)`; read the result with [`Profile::merge_bytes`].
pub(crate) fn profile(argument: Expr) -> Expr {
    aggregate(Kind::Profile).call(vec![argument])
}

/// `feedline_scan(argument, spec)`; read the result with [`Scan::merge_bytes`].
pub(crate) fn scan(argument: Expr, spec: &ScanSpec) -> Expr {
    aggregate(Kind::Scan).call(vec![argument, constant(spec.to_bytes())])
}

/// `feedline_bins(argument, edges)`; read the result with [`Bins::merge_bytes`]. Edges ascend.
pub(crate) fn bins(argument: Expr, edges: &[f64]) -> Expr {
    let edges = edges.iter().flat_map(|edge| edge.to_le_bytes()).collect();
    aggregate(Kind::Bins).call(vec![argument, constant(edges)])
}

/// The engine expands literal arguments of an aggregate to a column. As a dictionary that costs one byte a row.
fn constant(bytes: Vec<u8>) -> Expr {
    let bytes = ScalarValue::Binary(Some(bytes));
    lit(ScalarValue::Dictionary(
        Box::new(DataType::Int8),
        Box::new(bytes),
    ))
}

/// `argument`, a numeric column, after `ops`. NaN becomes null and -0.0 becomes 0.0 even without any.
pub(crate) fn cell(argument: Expr, ops: &[CellOp]) -> Expr {
    cell_function().call(vec![
        argument,
        lit(ScalarValue::Binary(Some(CellOp::to_bytes(ops)))),
    ])
}

/// Column and operations of an expression that [`cell`] made of a column.
pub(crate) fn cell_of(expression: &Expr) -> Option<(String, Vec<CellOp>)> {
    let Expr::ScalarFunction(function) = expression else {
        return None;
    };
    match function.args.as_slice() {
        [Expr::Column(column), Expr::Literal(ops, _)] if function.name() == Cell::NAME => Some((
            column.name.clone(),
            binary(ops).and_then(CellOp::from_bytes)?,
        )),
        _ => None,
    }
}

fn aggregate(kind: Kind) -> AggregateUDF {
    let arguments = if kind == Kind::Profile { 1 } else { 2 };
    AggregateUDF::new_from_impl(Aggregate {
        kind,
        signature: Signature::any(arguments, Volatility::Immutable),
    })
}

fn cell_function() -> ScalarUDF {
    ScalarUDF::new_from_impl(Cell {
        signature: Signature::any(2, Volatility::Immutable),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Profile,
    Scan,
    Bins,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Aggregate {
    kind: Kind,
    signature: Signature,
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Profile => "feedline_profile",
            Kind::Scan => "feedline_scan",
            Kind::Bins => "feedline_bins",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(
            format_state_name(args.name, "state"),
            DataType::Binary,
            true,
        ))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match self.kind {
            Kind::Profile => Ok(Box::new(Merging(Profile::default()))),
            Kind::Scan => {
                let spec = spec_of(&args)
                    .and_then(ScanSpec::from_bytes)
                    .ok_or_else(|| {
                        exec_datafusion_err!("the second argument of feedline_scan is not a scan")
                    })?;
                Ok(Box::new(Merging(Scan::new(spec))))
            }
            Kind::Bins => {
                let bins = spec_of(&args).and_then(Bins::from_edges).ok_or_else(|| {
                    exec_datafusion_err!(
                        "the second argument of feedline_bins is not a list of edges"
                    )
                })?;
                Ok(Box::new(Merging(bins)))
            }
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The bytes of the second argument.
fn spec_of<'a>(args: &'a AccumulatorArgs<'_>) -> Option<&'a [u8]> {
    let literal = args.exprs.get(1)?.downcast_ref::<Literal>()?;
    match literal.value() {
        ScalarValue::Dictionary(_, value) => binary(value),
        value => binary(value),
    }
}

fn binary(value: &ScalarValue) -> Option<&[u8]> {
    match value {
        ScalarValue::Binary(Some(bytes)) | ScalarValue::LargeBinary(Some(bytes)) => Some(bytes),
        _ => None,
    }
}

/// State of an aggregate over floats that merges through bytes.
pub(crate) trait MergingState: Debug + Send + Sync + 'static {
    fn add_all(&mut self, values: &[f64]) -> Result<()>;
    fn add_missing(&mut self, count: u64);
    fn to_bytes(&self) -> Vec<u8>;
    fn merge_bytes(&mut self, bytes: &[u8]) -> Option<()>;
    fn size(&self) -> usize;
}

impl MergingState for Profile {
    fn add_all(&mut self, values: &[f64]) -> Result<()> {
        Self::add_all(self, values);
        Ok(())
    }
    fn add_missing(&mut self, count: u64) {
        Self::add_missing(self, count);
    }
    fn to_bytes(&self) -> Vec<u8> {
        Self::to_bytes(self)
    }
    fn merge_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        Self::merge_bytes(self, bytes)
    }
    fn size(&self) -> usize {
        Self::size(self)
    }
}

impl MergingState for Scan {
    fn add_all(&mut self, values: &[f64]) -> Result<()> {
        Self::add_all(self, values);
        // Collecting is planned from counts of the same rows; only rows that changed can break the bound.
        if self.is_over_limit() {
            exec_err!("a scan collects more values than were counted")
        } else {
            Ok(())
        }
    }
    fn add_missing(&mut self, count: u64) {
        Self::add_missing(self, count);
    }
    fn to_bytes(&self) -> Vec<u8> {
        Self::to_bytes(self)
    }
    fn merge_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        Self::merge_bytes(self, bytes)
    }
    fn size(&self) -> usize {
        Self::size(self)
    }
}

impl MergingState for Bins {
    fn add_all(&mut self, values: &[f64]) -> Result<()> {
        Self::add_all(self, values);
        Ok(())
    }
    fn add_missing(&mut self, count: u64) {
        Self::add_missing(self, count);
    }
    fn to_bytes(&self) -> Vec<u8> {
        Self::to_bytes(self)
    }
    fn merge_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        Self::merge_bytes(self, bytes)
    }
    fn size(&self) -> usize {
        Self::size(self)
    }
}

#[derive(Debug)]
struct Merging<S>(S);

impl<S: MergingState> Accumulator for Merging<S> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let column = floats(&values[0])?;
        let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) else {
            return self.0.add_all(column.values());
        };
        self.0.add_missing(nulls.null_count() as u64);
        for (start, end) in nulls.valid_slices() {
            self.0.add_all(&column.values()[start..end])?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Binary(Some(self.0.to_bytes())))
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let states = states[0].as_binary_opt::<i32>().ok_or_else(|| {
            exec_datafusion_err!("the state of a feedline aggregate is not binary")
        })?;
        for state in states.iter().flatten() {
            self.0.merge_bytes(state).ok_or_else(|| {
                exec_datafusion_err!("the state of a feedline aggregate is damaged")
            })?;
        }
        Ok(())
    }
}

fn floats(array: &ArrayRef) -> Result<&Float64Array> {
    array.as_primitive_opt::<Float64Type>().ok_or_else(|| {
        exec_datafusion_err!(
            "a feedline function needs Float64, not {}",
            array.data_type()
        )
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Cell {
    signature: Signature,
}

impl Cell {
    const NAME: &'static str = CELL;
}

impl ScalarUDFImpl for Cell {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ops = match &args.args[1] {
            ColumnarValue::Scalar(value) => binary(value).and_then(CellOp::from_bytes),
            ColumnarValue::Array(_) => None,
        };
        let ops = ops.ok_or_else(|| {
            exec_datafusion_err!("the second argument of feedline_cell is not a list of steps")
        })?;
        let column = args.args[0].to_array(args.number_rows)?;
        let mut cells = crate::transform::cells(floats(&column)?);
        for op in ops {
            op.apply(&mut cells);
        }
        canonical(&mut cells);
        Ok(ColumnarValue::Array(Arc::new(crate::transform::column_of(
            cells,
        ))))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::{arrow::array::RecordBatch, datasource::MemTable, logical_expr::ident};

    use super::*;
    use crate::statistics::quantile::ScanMode;

    /// The one row of an aggregate over `parts`, on `partitions` partitions, from SQL over registered functions.
    async fn aggregate(parts: &[Vec<Option<f64>>], partitions: usize, expression: Expr) -> Vec<u8> {
        let context = SessionContext::new_with_config(
            datafusion::prelude::SessionConfig::new().with_target_partitions(partitions),
        );
        register(&context);
        let batch = |values: &Vec<Option<f64>>| {
            let column: ArrayRef = Arc::new(Float64Array::from(values.clone()));
            RecordBatch::try_from_iter_with_nullable([("x", column, true)]).unwrap()
        };
        let batches: Vec<RecordBatch> = parts.iter().map(batch).collect();
        let per_partition = batches.len().div_ceil(partitions).max(1);
        let schema = batches[0].schema();
        let chunks = batches.chunks(per_partition).map(<[_]>::to_vec).collect();
        let table = MemTable::try_new(schema, chunks).unwrap();
        let frame = context.read_table(Arc::new(table)).unwrap();
        let rows = frame
            .aggregate(vec![], vec![expression.alias("r")])
            .unwrap()
            .collect()
            .await
            .unwrap();
        rows[0].column(0).as_binary::<i32>().value(0).to_vec()
    }

    fn parts() -> Vec<Vec<Option<f64>>> {
        let value = |i: u32| match i % 7 {
            0 => None,
            1 => Some(f64::INFINITY),
            2 => Some(f64::NAN),
            3 => Some(1e16 + f64::from(i)),
            4 => Some(-1e-300 * f64::from(i)),
            _ => Some(f64::from(i).sin()),
        };
        (0..16)
            .map(|part| (0..200).map(|i| value(part * 200 + i)).collect())
            .collect()
    }

    #[tokio::test]
    async fn any_number_of_partitions_and_any_order_gives_the_same_bytes() {
        let spec = ScanSpec {
            mode: ScanMode::Count,
            depth: 0,
            prefixes: vec![0],
        };
        let plain = cell(ident("x"), &[]);
        let edges = [-1e-299, 0.0, 0.25, 1e16];
        for expression in [
            profile(ident("x")),
            profile(plain),
            scan(ident("x"), &spec),
            bins(ident("x"), &edges),
        ] {
            let one = aggregate(&parts(), 1, expression.clone()).await;
            let mut reversed: Vec<Vec<Option<f64>>> = parts();
            reversed.reverse();
            reversed.iter_mut().for_each(|part| part.reverse());
            for partitions in [2, 8] {
                assert_eq!(
                    aggregate(&parts(), partitions, expression.clone()).await,
                    one,
                    "{partitions} {expression}"
                );
                assert_eq!(
                    aggregate(&reversed, partitions, expression.clone()).await,
                    one,
                    "reversed {expression}"
                );
            }
        }
    }

    #[tokio::test]
    async fn an_empty_column_has_an_empty_profile() {
        let bytes = aggregate(&[vec![], vec![None, None]], 2, profile(ident("x"))).await;
        let mut profile = Profile::default();
        profile.merge_bytes(&bytes).unwrap();
        assert_eq!(
            (
                profile.tally().missing,
                profile.tally().cells(),
                profile.summary()
            ),
            (2, 2, None)
        );
    }

    #[tokio::test]
    async fn cells_of_the_plan_are_those_of_the_steps() {
        let ops = [
            CellOp::Fill(2.0),
            CellOp::Clip {
                low: 0.0,
                high: 5.0,
            },
            CellOp::Standardize {
                mean: 1.0,
                scale: 2.0,
            },
        ];
        let values = vec![None, Some(f64::NAN), Some(f64::NEG_INFINITY), Some(9.0)];
        let bytes = aggregate(&[values], 1, profile(cell(ident("x"), &ops))).await;
        let mut profile = Profile::default();
        profile.merge_bytes(&bytes).unwrap();
        assert_eq!(profile.range(), Some((-0.5, 2.0)));
        assert_eq!(
            profile.summary().unwrap().mean.to_bits(),
            0.625f64.to_bits()
        );
    }

    #[tokio::test]
    async fn a_cell_of_the_plan_is_never_minus_zero() {
        let column: ArrayRef = Arc::new(Float64Array::from(vec![-0.0]));
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let frame = SessionContext::new().read_batch(batch).unwrap();
        let rows = frame
            .select(vec![cell(ident("x"), &[])])
            .unwrap()
            .collect()
            .await
            .unwrap();
        assert_eq!(
            rows[0]
                .column(0)
                .as_primitive::<Float64Type>()
                .value(0)
                .to_bits(),
            0
        );
    }
}
