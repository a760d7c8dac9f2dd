//! `standardize`: the mean subtracted, divided by the deviation.

use feedline_schemas::{
    config::Standardize,
    transform::{FittedStandardize, FittedStep},
};

use super::{
    fitted_column::{FittedColumn, NumberFormat},
    group_text,
};
use crate::{
    Error,
    fit::{Fit, is_constant},
    statistics::exact_sum::Summary,
    transform::CellOp,
};

impl Fit {
    pub(super) async fn standardize(
        &self,
        columns: &[String],
        step: &Standardize,
    ) -> Result<Vec<FittedStandardize>, Error> {
        let mut fitted = Vec::with_capacity(columns.len());
        for (name, profile) in columns.iter().zip(self.profiles(columns).await?) {
            let summary = profile
                .summary()
                .ok_or_else(|| self.nothing_to_fit("standardize", name))?;
            let constant = is_constant(summary, profile.tally().finite);
            let scale = if constant { 1.0 } else { summary.deviation };
            let Summary { mean, deviation } = summary;
            fitted.push(FittedStandardize {
                name: name.clone(),
                mean,
                deviation,
                scale,
                constant,
                groups: None,
            });
        }
        if let Some(groups) = &step.groups {
            self.scale_groups(columns, groups, &mut fitted).await?;
        }
        Ok(fitted)
    }
}

impl FittedColumn for FittedStandardize {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "standardize"
    }

    fn operation(&self) -> Option<CellOp> {
        let (mean, scale) = (self.mean, self.scale);
        Some(CellOp::Standardize { mean, scale })
    }

    fn is_constant(&self) -> bool {
        self.constant
    }

    fn describe(&self, _: &FittedStep, number: NumberFormat) -> Vec<String> {
        let (mean, deviation) = (number(self.mean), number(self.deviation));
        let name = &self.name;
        let mut lines = vec![format!("{name}: mean {mean}, deviation {deviation}")];
        let groups = self.groups.iter();
        lines.extend(groups.map(|of| group_text(&of.by, of.moments.len(), of.min_count)));
        lines
    }
}
