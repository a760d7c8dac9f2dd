//! `robust`: centre and spread by order statistics, which are robust to outliers.

use feedline_schemas::{
    config::Robust,
    transform::{FittedRobust, FittedStep},
};

use super::fitted_column::{FittedColumn, NumberFormat};
use crate::{
    Error,
    fit::Fit,
    statistics::quantile::{Quantile, Wanted},
    transform::CellOp,
};

impl Fit {
    pub(super) async fn robust(
        &self,
        names: &[String],
        step: Robust,
    ) -> Result<Vec<FittedRobust>, Error> {
        let Robust { lower, upper } = step;
        let wanted = [
            Wanted::Median,
            Wanted::Percentile(lower),
            Wanted::Percentile(upper),
        ];
        let columns = names.iter();
        let columns = columns.map(|name| (self.cell(name), wanted.to_vec()));
        let found = self.rows.quantiles(columns.collect()).await?;
        let mut fitted = Vec::with_capacity(names.len());
        for (name, found) in names.iter().zip(found) {
            let quantiles = found.quantiles.as_deref();
            let Some([median, low, high]) =
                quantiles.and_then(|q| <[Quantile; 3]>::try_from(q).ok())
            else {
                return Err(self.nothing_to_fit("robust", name));
            };
            let [median, low, high] = [median, low, high].map(|quantile| quantile.value);
            // The widest spread exceeds the range of floats; half of it is not worth a step of its own.
            let spread = (high - low).min(f64::MAX);
            let constant = spread <= 10.0 * f64::EPSILON * low.abs().max(high.abs());
            if constant {
                tracing::warn!(
                    column = %name, value = low,
                    "the percentiles of a column are equal, so it is only centred"
                );
            }
            fitted.push(FittedRobust {
                name: name.clone(),
                lower,
                upper,
                median,
                low,
                high,
                scale: if constant { 1.0 } else { spread },
                constant,
            });
        }
        Ok(fitted)
    }
}

impl FittedColumn for FittedRobust {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "robust"
    }

    fn operation(&self) -> Option<CellOp> {
        let (mean, scale) = (self.median, self.scale);
        Some(CellOp::Standardize { mean, scale })
    }

    fn describe(&self, _: &FittedStep, number: NumberFormat) -> Vec<String> {
        let (median, spread) = (number(self.median), number(self.scale));
        vec![format!("{}: median {median}, spread {spread}", self.name)]
    }
}
