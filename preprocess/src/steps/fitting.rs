//! Fit of one step; the steps are listed here.

use feedline_schemas::{
    config::{ImputeStrategy, Step, StepConfig},
    transform::FittedStep,
};

use crate::{
    Error,
    fit::{Fit, train_split::TrainSplit},
};

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
