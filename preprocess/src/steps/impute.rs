//! `impute`: missing numbers filled with a statistic, or from the nearest rows.

use feedline_schemas::{
    config::{Impute, ImputeStrategy},
    transform::{FittedImpute, FittedNeighbours, FittedStep, ImputeStatistic},
};

use super::fitted_column::{FittedColumn, NumberFormat};
use crate::{Error, fit::Fit, statistics::quantile::Wanted, transform::CellOp};

impl Fit {
    pub(super) async fn impute(
        &mut self,
        columns: &[String],
        step: &Impute,
    ) -> Result<Vec<FittedImpute>, Error> {
        let strategy = step.strategy;
        let mut fitted = Vec::with_capacity(columns.len());
        if strategy == ImputeStrategy::Median {
            let mut medians = std::mem::take(&mut self.medians);
            let unknown = columns.iter().filter(|c| !medians.contains_key(*c));
            let unknown: Vec<&String> = unknown.collect();
            let wanted = unknown
                .iter()
                .map(|name| (self.cell(name), vec![Wanted::Median]))
                .collect();
            for (name, found) in unknown.iter().zip(self.rows.quantiles(wanted).await?) {
                let median = found.quantiles.and_then(|q| q.first().copied());
                let value = median
                    .ok_or_else(|| self.nothing_to_fit("impute", name))?
                    .value;
                medians.insert((*name).clone(), (value, found.tally.missing));
            }
            for name in columns {
                let (value, missing) = medians.remove(name).expect("each was known or asked for");
                fitted.push(imputed(step, name, value, missing));
            }
            self.medians = medians;
            return Ok(fitted);
        }
        for (name, profile) in columns.iter().zip(self.profiles(columns).await?) {
            let value = match strategy {
                ImputeStrategy::Constant(constant) => Some(constant.value + 0.0),
                ImputeStrategy::Mean => profile.summary().map(|summary| summary.mean),
                _ => self
                    .rows
                    .most_frequent(self.cell(name))
                    .await?
                    .map(|most| most.value),
            };
            let value = value.ok_or_else(|| self.nothing_to_fit("impute", name))?;
            fitted.push(imputed(step, name, value, profile.tally().missing));
        }
        Ok(fitted)
    }
}

fn imputed(step: &Impute, name: &str, value: f64, missing: u64) -> FittedImpute {
    let statistic = match step.strategy {
        ImputeStrategy::Median => ImputeStatistic::Median,
        ImputeStrategy::Mean => ImputeStatistic::Mean,
        ImputeStrategy::MostFrequent => ImputeStatistic::MostFrequent,
        ImputeStrategy::Constant(_) => ImputeStatistic::Constant,
        ImputeStrategy::Knn(_) => unreachable!("neighbours have a step of their own"),
    };
    FittedImpute {
        name: name.to_owned(),
        value,
        statistic,
        missing,
        indicator: step.indicator,
    }
}

impl FittedColumn for FittedImpute {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "impute"
    }

    fn operation(&self) -> Option<CellOp> {
        Some(CellOp::Fill(self.value))
    }

    fn has_indicator(&self) -> bool {
        self.indicator
    }

    fn describe(&self, _: &FittedStep, number: NumberFormat) -> Vec<String> {
        let (value, statistic, missing) = (number(self.value), self.statistic, self.missing);
        let name = &self.name;
        vec![format!(
            "{name}: {value} ({statistic:?}), {missing} missing in train"
        )]
    }
}

impl FittedColumn for FittedNeighbours {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "impute"
    }

    fn has_indicator(&self) -> bool {
        self.indicator
    }

    fn describe(&self, step: &FittedStep, _: NumberFormat) -> Vec<String> {
        let neighbours = match step {
            FittedStep::Knn { neighbours, .. } => *neighbours,
            _ => 0,
        };
        let (name, rows, missing) = (&self.name, self.reference.len(), self.missing);
        vec![format!(
            "{name}: the nearest {neighbours} of {rows} rows, {missing} missing in train"
        )]
    }
}
