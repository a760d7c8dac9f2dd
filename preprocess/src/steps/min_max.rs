//! `min_max`: numbers scaled to 0 to 1.

use feedline_schemas::{
    config::MinMax,
    transform::{FittedMinMax, FittedStep},
};

use super::fitted_column::{FittedColumn, NumberFormat};
use crate::{Error, fit::Fit, transform::CellOp};

impl Fit {
    pub(super) async fn min_max(
        &self,
        columns: &[String],
        step: MinMax,
    ) -> Result<Vec<FittedMinMax>, Error> {
        let mut fitted = Vec::with_capacity(columns.len());
        for (name, profile) in columns.iter().zip(self.profiles(columns).await?) {
            let (min, max) = profile
                .range()
                .ok_or_else(|| self.nothing_to_fit("min_max", name))?;
            fitted.push(FittedMinMax {
                name: name.clone(),
                min,
                max,
                clip: step.clip.unwrap_or(false),
            });
        }
        Ok(fitted)
    }
}

impl FittedColumn for FittedMinMax {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "min-max"
    }

    fn operation(&self) -> Option<CellOp> {
        let Self { min, max, clip, .. } = *self;
        Some(CellOp::MinMax { min, max, clip })
    }

    fn describe(&self, _: &FittedStep, number: NumberFormat) -> Vec<String> {
        let (min, max) = (number(self.min), number(self.max));
        vec![format!("{}: {min} to {max}", self.name)]
    }
}
