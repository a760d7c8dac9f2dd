//! `log1p` and `power`; [`crate::fit`] has the search for powers.

use feedline_schemas::transform::{FittedLog1p, FittedPower, FittedStep};

use super::fitted_column::{FittedColumn, NumberFormat};
use crate::transform::CellOp;

impl FittedColumn for FittedLog1p {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "log1p"
    }

    fn operation(&self) -> Option<CellOp> {
        Some(CellOp::Log1p)
    }

    fn describe(&self, _: &FittedStep, _: NumberFormat) -> Vec<String> {
        vec![self.name.clone()]
    }
}

impl FittedColumn for FittedPower {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "power"
    }

    fn operation(&self) -> Option<CellOp> {
        let (method, lambda) = (self.method, self.lambda);
        Some(CellOp::Power { method, lambda })
    }

    fn describe(&self, _: &FittedStep, number: NumberFormat) -> Vec<String> {
        let (name, method, lambda) = (&self.name, self.method, number(self.lambda));
        vec![format!("{name}: {method:?}, lambda {lambda}")]
    }
}
