//! Steps of the transform: their fit, their operation on a cell, their warnings and descriptions.
//!
//! A step has a file here, and its keys and fitted form in [`feedline_schemas::steps`]. [`Fit::step`](crate::fit::Fit::step)
//! and [`columns`] list the steps; all other code asks a [`FittedColumn`]. Long searches, and steps
//! that look at more than a cell, are fitted in [`crate::fit`].

mod bin;
mod categories;
mod fitted_column;
mod fitting;
mod impute;
pub mod knn;
mod min_max;
mod power;
mod robust;
mod standardize;
mod winsorize;

use feedline_schemas::{count::counted, transform::FittedStep};

pub use self::{fitted_column::NumberFormat, winsorize::capped_in_train};
pub(crate) use self::{
    fitted_column::{ColumnWarning, FittedColumn},
    winsorize::clipped_in_train,
};
use crate::transform::CellOp;

/// The columns of a fitted step.
pub(crate) fn columns(step: &FittedStep) -> Box<dyn Iterator<Item = &dyn FittedColumn> + '_> {
    match step {
        FittedStep::Impute { columns } => each(columns),
        FittedStep::Winsorize { columns } => each(columns),
        FittedStep::Standardize { columns } => each(columns),
        FittedStep::MinMax { columns } => each(columns),
        FittedStep::Robust { columns } => each(columns),
        FittedStep::Log1p { columns } => each(columns),
        FittedStep::Power { columns } => each(columns),
        FittedStep::Bin { columns } => each(columns),
        FittedStep::Knn { columns, .. } => each(columns),
        FittedStep::Categories { columns } => each(columns),
    }
}

fn each<C: FittedColumn>(columns: &[C]) -> Box<dyn Iterator<Item = &dyn FittedColumn> + '_> {
    Box::new(columns.iter().map(|column| column as &dyn FittedColumn))
}

/// The column `name` of a fitted step.
pub(crate) fn column<'a>(step: &'a FittedStep, name: &str) -> Option<&'a dyn FittedColumn> {
    columns(step).find(|column| column.name() == name)
}

/// Operation of `step` on the numeric column `name`, if it looks at single cells only.
pub(crate) fn operation(step: &FittedStep, name: &str) -> Option<CellOp> {
    if is_grouped(step) {
        return None;
    }
    column(step, name)?.operation()
}

/// Returns true if `step` has numbers for each group.
pub(crate) fn is_grouped(step: &FittedStep) -> bool {
    match step {
        FittedStep::Winsorize { columns } => columns.iter().any(|c| c.groups.is_some()),
        FittedStep::Standardize { columns } => columns.iter().any(|c| c.groups.is_some()),
        _ => false,
    }
}

/// Lines that describe a fitted step, each with the step's name or, where it belongs to the line
/// before, without one. Numbers are as `number` writes them.
#[must_use]
pub fn describe_step(step: &FittedStep, number: NumberFormat) -> Vec<(&'static str, String)> {
    let mut described = Vec::new();
    for column in columns(step) {
        let labels = std::iter::once(column.label()).chain(std::iter::repeat(""));
        described.extend(labels.zip(column.describe(step, number)));
    }
    described
}

/// Description of the groups of a column with separate numbers.
fn group_text(by: &str, own: usize, fewest: u64) -> String {
    let (own, fewest) = (counted(own as u64, "value"), counted(fewest, "row"));
    format!("  and numbers of their own for {own} of `{by}` with {fewest} or more")
}
