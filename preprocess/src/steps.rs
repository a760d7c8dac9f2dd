//! Steps of the transform: their fit, their operation on a cell, their warnings and descriptions.
//!
//! A step has a file here, and its keys and fitted form in [`feedline_schemas::steps`]. [`Fit::step`]
//! and [`columns`] list the steps; all other code asks a [`FittedColumn`]. Long searches, and steps
//! that look at more than a cell, are fitted in [`crate::fit`].

mod bin;
mod categories;
mod impute;
mod min_max;
mod power;
mod robust;
mod standardize;
mod winsorize;

use feedline_schemas::{
    config::{ImputeStrategy, Step, StepConfig},
    transform::FittedStep,
};

pub(crate) use self::bin::BinBoundaries;
use crate::{Error, TrainSplit, fit::Fit, transform::CellOp};

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
    format!("  and numbers of their own for {own} values of `{by}` with {fewest} rows or more")
}

impl Fit {
    /// Fits a step; `rest` are the steps after it.
    pub(crate) async fn step(
        &mut self,
        step: &StepConfig,
        rest: &[StepConfig],
        train: &TrainSplit,
    ) -> Result<FittedStep, Error> {
        let StepConfig { columns, step } = step;
        Ok(match step {
            Step::Impute(impute) => match &impute.strategy {
                ImputeStrategy::Knn(knn) => {
                    self.neighbours(columns, knn, impute.indicator, train)
                        .await?
                }
                _ => FittedStep::Impute {
                    columns: self.impute(columns, impute).await?,
                },
            },
            Step::Winsorize(caps) => FittedStep::Winsorize {
                columns: self.winsorize(columns, caps, rest).await?,
            },
            Step::Standardize(step) => FittedStep::Standardize {
                columns: self.standardize(columns, step).await?,
            },
            Step::MinMax(step) => FittedStep::MinMax {
                columns: self.min_max(columns, *step).await?,
            },
            Step::Robust(step) => FittedStep::Robust {
                columns: self.robust(columns, *step).await?,
            },
            Step::Log1p => FittedStep::Log1p {
                columns: self.log1p(columns).await?,
            },
            Step::Power(step) => FittedStep::Power {
                columns: self.power(columns, step.method, rest).await?,
            },
            Step::Bin(step) => FittedStep::Bin {
                columns: self.bin(columns, *step).await?,
            },
            Step::Categories(step) => FittedStep::Categories {
                columns: self.categories(columns, step).await?,
            },
        })
    }
}
