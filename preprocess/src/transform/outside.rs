//! Cells far outside of the rows that a transform was fitted on, for predictions.

use datafusion::arrow::array::RecordBatch;
use feedline_schemas::transform::{FittedStep, InputKind, TransformArtefact};

use super::{
    batch_columns::{cells, numeric},
    cell::CellOp,
    numbers::is_shared,
};
use crate::{
    Error,
    steps::{is_grouped, operation},
};

/// Bounds of a numeric input: cells beyond them are far outside.
#[derive(Debug)]
pub(super) struct FarBounds {
    pub(super) name: String,
    /// Steps before the one that has the bounds.
    before: Vec<CellOp>,
    low: f64,
    high: f64,
}

impl FarBounds {
    /// Returns the bounds of each numeric input of `artefact` that has some.
    pub(super) fn of(artefact: &TransformArtefact) -> Vec<Self> {
        let inputs = artefact.inputs.iter();
        let numeric = inputs.filter(|input| input.kind == InputKind::Numeric);
        let bounds = numeric.filter_map(|input| Self::of_column(&artefact.steps, &input.name));
        bounds.collect()
    }

    fn of_column(steps: &[FittedStep], name: &str) -> Option<Self> {
        let mut before = Vec::new();
        for step in steps {
            // Each group has bounds of its own.
            if is_grouped(step) && is_shared(std::slice::from_ref(step), name) {
                return None;
            }
            // A missing cell is in no range.
            let Some(op) = operation(step, name).filter(|op| !matches!(op, CellOp::Fill(_))) else {
                continue;
            };
            let Some((low, high)) = op.training_range() else {
                before.push(op);
                continue;
            };
            return Some(Self {
                name: name.to_owned(),
                before,
                low,
                high,
            });
        }
        None
    }

    /// Returns the rows of `batch` beyond the bounds, in ascending order.
    ///
    /// # Errors
    /// [`Error::Input`] when the column is absent or of another type.
    pub(super) fn rows_outside(&self, batch: &RecordBatch) -> Result<Vec<usize>, Error> {
        let mut cells = cells(&numeric(batch, &self.name)?);
        self.before.iter().for_each(|op| op.apply(&mut cells));
        let is_far = |cell: &f64| *cell < self.low || *cell > self.high;
        let rows = cells.iter().enumerate().filter(|(_, cell)| is_far(cell));
        Ok(rows.map(|(row, _)| row).collect())
    }
}
