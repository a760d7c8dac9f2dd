//! `winsorize`: numbers clipped to percentiles.

use feedline_schemas::{
    config::{ImputeStrategy, Step, StepConfig, Winsorize},
    count::counted,
    transform::{FittedStep, FittedWinsorize, TransformArtefact},
};

use super::{
    fitted_column::{ColumnWarning, FittedColumn, NumberFormat},
    group_text,
};
use crate::{
    Error,
    fit::Fit,
    statistics::quantile::{Quantile, Tally, Wanted},
    transform::CellOp,
};

impl Fit {
    pub(super) async fn winsorize(
        &mut self,
        columns: &[String],
        step: &Winsorize,
        rest: &[StepConfig],
    ) -> Result<Vec<FittedWinsorize>, Error> {
        let Winsorize {
            lower,
            upper,
            ref groups,
        } = *step;
        let wanted = |name: &String| {
            let mut wanted = vec![Wanted::Percentile(lower), Wanted::Percentile(upper)];
            // The passes that find the caps find the median, too.
            if groups.is_none() && is_next_median(rest, name) {
                wanted.push(Wanted::Median);
            }
            wanted
        };
        let cells = columns.iter().map(|name| (self.cell(name), wanted(name)));
        let found = self.rows.quantiles(cells.collect()).await?;
        let mut fitted = Vec::with_capacity(columns.len());
        for (name, found) in columns.iter().zip(found) {
            let quantiles = found.quantiles.as_deref();
            let Some([low, high, median @ ..]) = quantiles else {
                return Err(self.nothing_to_fit("winsorize", name));
            };
            if let [median] = median
                && stays_median(found.tally, low, high)
            {
                let known = (median.value, found.tally.missing);
                self.medians.insert(name.clone(), known);
            }
            fitted.push(FittedWinsorize {
                name: name.clone(),
                lower,
                upper,
                low: low.value,
                high: high.value,
                clipped_low: low.below + found.tally.low_infinite,
                clipped_high: high.above + found.tally.high_infinite,
                groups: None,
            });
        }
        if let Some(groups) = groups {
            self.cap_groups(columns, groups, &mut fitted).await?;
        }
        Ok(fitted)
    }
}

/// Returns the fraction of the rows that a transform was fitted on whose number in the column `name`
/// caps change.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
pub fn capped_in_train(artefact: &TransformArtefact, name: &str) -> f64 {
    let capped = clipped_in_train(&artefact.steps, name);
    capped as f64 / artefact.fitted_rows.max(1) as f64
}

/// Number of training values of the column `name` that the caps of fitted steps changed.
pub(crate) fn clipped_in_train(steps: &[FittedStep], name: &str) -> u64 {
    let columns = steps.iter().flat_map(|step| match step {
        FittedStep::Winsorize { columns } => columns.as_slice(),
        _ => &[],
    });
    let clipped = columns.filter(|column| column.name == name).map(|column| {
        let groups = column.groups.iter().flat_map(|groups| groups.caps.values());
        let of_groups: u64 = groups.map(|of| of.clipped_low + of.clipped_high).sum();
        column.clipped_low + column.clipped_high + of_groups
    });
    clipped.sum()
}

/// Returns true if the next step that changes the column `name` fills it with its median.
fn is_next_median(rest: &[StepConfig], name: &str) -> bool {
    let mut rest = rest.iter();
    let next = rest.find(|step| step.columns.iter().any(|column| column == name));
    next.is_some_and(|step| {
        matches!(&step.step, Step::Impute(impute) if impute.strategy == ImputeStrategy::Median)
    })
}

/// Returns true if the median of a column stays the same after capping: both middle values are
/// between the caps, and no infinity becomes a number.
fn stays_median(tally: Tally, low: &Quantile, high: &Quantile) -> bool {
    let (count, infinite) = (tally.finite, tally.low_infinite + tally.high_infinite);
    let half = count.saturating_sub(1) / 2;
    infinite == 0 && low.below <= half && high.above <= half
}

impl FittedColumn for FittedWinsorize {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "winsorize"
    }

    fn operation(&self) -> Option<CellOp> {
        let (low, high) = (self.low, self.high);
        Some(CellOp::Clip { low, high })
    }

    fn is_constant(&self) -> bool {
        has_equal_caps(self) && self.clipped_low + self.clipped_high == 0
    }

    fn warning(&self) -> Option<ColumnWarning> {
        let clipped = self.clipped_low + self.clipped_high;
        (has_equal_caps(self) && clipped > 0).then(|| ColumnWarning {
            code: "constant_by_caps",
            problem: "the caps of `winsorize` are equal, so that every other value was capped and the column is constant",
            figures: counted(clipped, "row"),
            advice: "write the steps without `winsorize` for it, or with other percentiles",
        })
    }

    fn describe(&self, _: &FittedStep, number: NumberFormat) -> Vec<String> {
        let clipped = self.clipped_low + self.clipped_high;
        let (low, high) = (number(self.low), number(self.high));
        let name = &self.name;
        let mut lines = vec![format!(
            "{name}: {low} to {high}, {clipped} clipped in train"
        )];
        lines.extend(self.groups.iter().map(|groups| {
            let caps = groups.caps.values();
            let clipped: u64 = caps.map(|of| of.clipped_low + of.clipped_high).sum();
            let of_groups = group_text(&groups.by, groups.caps.len(), groups.min_count);
            format!("{of_groups}, {clipped} clipped in train")
        }));
        lines
    }
}

/// Returns true if the caps of all rows are equal.
fn has_equal_caps(column: &FittedWinsorize) -> bool {
    column.groups.is_none() && column.low >= column.high
}
