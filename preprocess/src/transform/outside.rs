//! Cells far outside of the rows that a transform was fitted on, for predictions.

use std::collections::BTreeMap;

use datafusion::arrow::array::RecordBatch;
use feedline_schemas::transform::{FittedStep, InputKind, TransformArtefact};

use super::{CellOp, Transform, cells, groups::is_grouped, numeric};
use crate::{Error, profile::is_shared};

/// Bounds of a numeric input: cells beyond them are far outside.
#[derive(Debug)]
pub(super) struct FarBounds {
    name: String,
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
            let Some(op) = CellOp::of(step, name).filter(|op| !matches!(op, CellOp::Fill(_)))
            else {
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
}

impl Transform {
    /// Returns the rows of `batch` with a number far outside of the training rows, by column, in ascending order: beyond the caps of
    /// a `winsorize` step by more than they are apart, or outside of the range of a `min_max` step. Columns without any, and
    /// those without such a step, are absent.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub(crate) fn far_outside(
        &self,
        batch: &RecordBatch,
    ) -> Result<BTreeMap<String, Vec<usize>>, Error> {
        let mut found = BTreeMap::new();
        for bounds in &self.bounds {
            let mut cells = cells(&numeric(batch, &bounds.name)?);
            bounds.before.iter().for_each(|op| op.apply(&mut cells));
            let is_far = |cell: &f64| *cell < bounds.low || *cell > bounds.high;
            let rows = cells.iter().enumerate().filter(|(_, cell)| is_far(cell));
            let rows: Vec<usize> = rows.map(|(row, _)| row).collect();
            if !rows.is_empty() {
                found.insert(bounds.name.clone(), rows);
            }
        }
        Ok(found)
    }
}
