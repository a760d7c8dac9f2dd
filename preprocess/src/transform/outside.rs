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

/// Rows with a cell beyond the bounds of a numeric input, in ascending order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutsideRows {
    /// Those far outside of the training rows.
    pub(super) far: Vec<usize>,
    /// Those that caps change.
    pub(super) capped: Vec<usize>,
}

/// Bounds of a numeric input: cells beyond them are far outside.
#[derive(Debug)]
pub(super) struct FarBounds {
    pub(super) name: String,
    /// Steps before the one that has the bounds.
    before: Vec<CellOp>,
    low: f64,
    high: f64,
    /// Caps of a step that has some.
    caps: Option<(f64, f64)>,
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
            let caps = match &op {
                CellOp::Clip { low, high } => Some((*low, *high)),
                _ => None,
            };
            return Some(Self {
                name: name.to_owned(),
                before,
                low,
                high,
                caps,
            });
        }
        None
    }

    /// Returns the rows of `batch` beyond the bounds, and those beyond the caps.
    ///
    /// # Errors
    /// [`Error::Input`] when the column is absent or of another type.
    pub(super) fn rows_outside(&self, batch: &RecordBatch) -> Result<OutsideRows, Error> {
        let mut cells = cells(&numeric(batch, &self.name)?);
        self.before.iter().for_each(|op| op.apply(&mut cells));
        let rows_beyond = |(low, high): (f64, f64)| -> Vec<usize> {
            let rows = cells.iter().enumerate();
            let beyond = rows.filter(|(_, cell)| **cell < low || **cell > high);
            beyond.map(|(row, _)| row).collect()
        };
        Ok(OutsideRows {
            far: rows_beyond((self.low, self.high)),
            capped: self.caps.map_or_else(Vec::new, rows_beyond),
        })
    }
}
