//! A column of a fitted step: its operation on a cell, its warning and its description.

use feedline_schemas::transform::FittedStep;

use crate::transform::CellOp;

/// Function that writes a fitted number for a person.
pub type NumberFormat = fn(f64) -> String;

/// A column of a fitted step.
pub(crate) trait FittedColumn {
    /// Name of the column.
    fn name(&self) -> &str;

    /// Name of the step in reports.
    fn label(&self) -> &'static str;

    /// The step on one cell; `None` if it looks at more than the cell.
    fn operation(&self) -> Option<CellOp> {
        None
    }

    /// Returns true if an indicator of missing cells is added.
    fn has_indicator(&self) -> bool {
        false
    }

    /// Returns true if all training rows have the same value, so a model cannot learn from it.
    fn is_constant(&self) -> bool {
        false
    }

    /// Warning about the fitted numbers.
    fn warning(&self) -> Option<ColumnWarning> {
        None
    }

    /// Lines that describe the column of `step`; those after the first belong to it.
    fn describe(&self, step: &FittedStep, number: NumberFormat) -> Vec<String>;
}

/// Warning about a fitted column; those with one code are reported together.
#[derive(Debug)]
pub(crate) struct ColumnWarning {
    /// Code of the warning.
    pub(crate) code: &'static str,
    /// Problem, before the list of columns.
    pub(crate) problem: &'static str,
    /// Figures of the column.
    pub(crate) figures: String,
    /// Advice, after the list.
    pub(crate) advice: &'static str,
}
