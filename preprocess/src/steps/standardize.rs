//! `standardize`: the mean subtracted, divided by the deviation.

use feedline_schemas::{
    config::Standardize,
    transform::{FittedStandardize, FittedStep},
};

use super::{
    fitted_column::{ColumnWarning, FittedColumn, NumberFormat},
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
        self.constant && !is_unscaled(self)
    }

    fn warning(&self) -> Option<ColumnWarning> {
        is_unscaled(self).then(|| ColumnWarning {
            code: "unscaled_columns",
            problem: "the values differ by less than 64-bit floats of their size resolve over this many training rows, so `standardize` \
                      centres them and does not scale",
            figures: format!("mean {:e}, deviation {:e}", self.mean, self.deviation),
            advice: "subtract what all values share in the source or with `dataset.sql`, or leave the column out with `dataset.drop`",
        })
    }

    fn describe(&self, _: &FittedStep, number: NumberFormat) -> Vec<String> {
        let (mean, deviation) = (number(self.mean), number(self.deviation));
        let name = &self.name;
        let scaled = match is_unscaled(self) {
            true => ", centred and not scaled",
            false => "",
        };
        let mut lines = vec![format!(
            "{name}: mean {mean}, deviation {deviation}{scaled}"
        )];
        let groups = self.groups.iter();
        lines.extend(groups.map(|of| group_text(&of.by, of.moments.len(), of.min_count)));
        lines
    }
}

/// Returns true for values that differ by less than floating-point arithmetic resolves.
fn is_unscaled(column: &FittedStandardize) -> bool {
    column.constant && column.deviation > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_too_little_to_be_scaled_are_not_called_equal() {
        let column = |deviation| FittedStandardize {
            name: "big".to_owned(),
            mean: 1e15,
            deviation,
            scale: 1.0,
            constant: true,
            groups: None,
        };
        let described = |column: &FittedStandardize| {
            let step = FittedStep::Standardize {
                columns: vec![column.clone()],
            };
            column.describe(&step, |number| number.to_string())
        };
        let equal = column(0.0);
        assert!(equal.is_constant() && equal.warning().is_none());
        assert_eq!(
            described(&equal),
            ["big: mean 1000000000000000, deviation 0"]
        );
        let noisy = column(0.9427);
        assert!(!noisy.is_constant());
        let warning = noisy.warning().unwrap();
        assert_eq!(warning.figures, "mean 1e15, deviation 9.427e-1");
        assert!(described(&noisy)[0].ends_with("deviation 0.9427, centred and not scaled"));
    }
}
