//! The adaptor between a function over columns and the query engine's scalar functions.

use std::{fmt::Debug, hash::Hash, sync::Arc};

use arrow::{array::ArrayRef, datatypes::DataType};
use datafusion::{
    error::Result,
    logical_expr::{
        ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
};

/// A pure function of the cells of one row; two values that are equal compute the same.
pub(crate) trait RowFunction: Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// Name in plans.
    const NAME: &'static str;
    /// Type of the result.
    const RETURNS: DataType;

    /// Computes the result for `rows` rows; each of `columns` has that length.
    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef>;

    /// The function over `arguments`.
    fn over(self, arguments: Vec<Expr>) -> Expr {
        self.udf().call(arguments)
    }

    /// The function as the engine has it.
    fn udf(self) -> Arc<ScalarUDF> {
        let function = Adaptor {
            function: self,
            signature: Signature::variadic_any(Volatility::Immutable),
        };
        Arc::new(ScalarUDF::new_from_impl(function))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Adaptor<F> {
    pub(crate) function: F,
    signature: Signature,
}

impl<F: RowFunction> ScalarUDFImpl for Adaptor<F> {
    fn name(&self) -> &str {
        F::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(F::RETURNS)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let columns = args
            .args
            .iter()
            .map(|a| a.to_array(rows))
            .collect::<Result<Vec<_>>>()?;
        Ok(ColumnarValue::Array(self.function.call(&columns, rows)?))
    }
}
