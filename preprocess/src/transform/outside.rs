//! Cells far outside of the rows that a transform was fitted on, for predictions.
//!
//! One rule for all steps: a cell is far outside if it is beyond the range of the training rows by
//! more than the width of that range. `min_max` and `bin` know the range, and the caps of
//! `winsorize` are close to its ends. `standardize` knows the mean and the deviation only: its bounds
//! are so far from the mean that no training row is beyond them, or next to none of very many. `robust`
//! knows the rows between its percentiles only: its bounds are 1,000 distances of these from the
//! median, where the number that a model would see is far beyond any scale. Columns without one of
//! these steps have no bounds.

use std::collections::{BTreeMap, HashMap};

use datafusion::arrow::array::{Array, RecordBatch};
use feedline_schemas::transform::{
    FittedCapGroups, FittedScaleGroups, FittedStep, InputKind, TransformArtefact,
};

use super::{
    batch_columns::{cells, numeric, text},
    cell::CellOp,
};
use crate::{
    Error,
    steps::{column, is_grouped, operation},
};

/// Fewest standard deviations between the mean and the bounds.
const DEVIATIONS_MIN: f64 = 10.0;
/// Most standard deviations between them: at most one value of 10,000 is farther away (Chebyshev's
/// inequality).
const DEVIATIONS_MAX: f64 = 100.0;
/// Distances of the percentiles of `robust` between the median and the bounds.
const SPREADS: f64 = 1000.0;
/// Largest difference of rounded statistics of equal values, as a fraction of them.
const ROUNDING: f64 = 1e-9;

/// Rows with a cell beyond the bounds of a numeric input, in ascending order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutsideRows {
    /// Those far outside of the training rows.
    pub(super) far: Vec<usize>,
    /// Those that caps change.
    pub(super) capped: Vec<usize>,
}

/// Bounds of a numeric input: cells beyond them are far outside.
#[derive(Debug)]
pub(super) struct FarBounds {
    pub(super) name: String,
    /// Steps before the one that has the bounds.
    before: Vec<CellOp>,
    bounds: StepBounds,
}

/// Bounds by the numbers of a step.
#[derive(Debug)]
struct StepBounds {
    low: f64,
    high: f64,
    /// Bounds of groups with numbers of their own; those above are for all other rows.
    groups: Option<GroupBounds>,
    /// Caps of a step that has some, unless groups have caps of their own.
    caps: Option<(f64, f64)>,
    /// True if they come from caps, of all rows or of groups.
    is_of_caps: bool,
    source: BoundsSource,
}

/// Knowledge of a step about the training rows, the best one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BoundsSource {
    /// Their range.
    Range,
    /// Their mean and deviation.
    Moments,
    /// Percentiles within their range.
    Percentiles,
}

/// Bounds of groups.
#[derive(Debug)]
struct GroupBounds {
    /// Column whose values are the groups.
    by: String,
    own: HashMap<String, (f64, f64)>,
}

impl FarBounds {
    /// Returns the bounds of each numeric input of `artefact` that has some.
    pub(super) fn of(artefact: &TransformArtefact) -> Vec<Self> {
        let inputs = artefact.inputs.iter();
        let numeric = inputs.filter(|input| input.kind == InputKind::Numeric);
        let bounds = numeric.filter_map(|input| Self::of_column(artefact, &input.name));
        bounds.collect()
    }

    /// Bounds of the first step that knows the range, otherwise of the first of those that know most.
    fn of_column(artefact: &TransformArtefact, name: &str) -> Option<Self> {
        let mut before = Vec::new();
        let mut best: Option<Self> = None;
        for step in &artefact.steps {
            if let Some(bounds) = StepBounds::of(step, name, artefact.fitted_rows) {
                let source = bounds.source;
                if best.as_ref().is_none_or(|best| source < best.bounds.source) {
                    best = Some(Self {
                        name: name.to_owned(),
                        before: before.clone(),
                        bounds,
                    });
                }
                if source == BoundsSource::Range {
                    return best;
                }
            }
            // Later numbers depend on the group.
            if is_grouped(step) && column(step, name).is_some() {
                break;
            }
            // A missing cell is in no range.
            before.extend(operation(step, name).filter(|op| !matches!(op, CellOp::Fill(_))));
        }
        best
    }

    /// Returns true if the bounds come from the caps of a `winsorize` step.
    pub(super) const fn is_of_caps(&self) -> bool {
        self.bounds.is_of_caps
    }

    /// Returns the rows of `batch` beyond the bounds, and those beyond the caps.
    ///
    /// # Errors
    /// [`Error::Input`] when the column, or that of groups, is absent or of another type.
    pub(super) fn rows_outside(&self, batch: &RecordBatch) -> Result<OutsideRows, Error> {
        let mut cells = cells(&numeric(batch, &self.name)?);
        self.before.iter().for_each(|op| op.apply(&mut cells));
        let rows_beyond = |bounds: &dyn Fn(usize) -> (f64, f64)| -> Vec<usize> {
            let rows = cells.iter().enumerate().filter(|(row, cell)| {
                let (low, high) = bounds(*row);
                **cell < low || **cell > high
            });
            rows.map(|(row, _)| row).collect()
        };
        let all = (self.bounds.low, self.bounds.high);
        let far = match &self.bounds.groups {
            None => rows_beyond(&|_| all),
            Some(groups) => {
                let values = text(batch, &groups.by)?;
                rows_beyond(&|row| {
                    let value = values.is_valid(row).then(|| values.value(row));
                    let own = value.and_then(|value| groups.own.get(value));
                    own.copied().unwrap_or(all)
                })
            }
        };
        let capped = self.bounds.caps.map(|caps| rows_beyond(&|_| caps));
        Ok(OutsideRows {
            far,
            capped: capped.unwrap_or_default(),
        })
    }
}

impl StepBounds {
    /// Bounds of the column `name` by the numbers of `step`, which was fitted on `rows`; `None` if it has
    /// none of the column that say where the training rows are.
    fn of(step: &FittedStep, name: &str, rows: u64) -> Option<Self> {
        match step {
            FittedStep::Winsorize { columns } => {
                let found = columns.iter().find(|column| column.name == name)?;
                let own = |groups: &FittedCapGroups| {
                    GroupBounds::new(&groups.by, &groups.caps, |caps| {
                        beyond_caps(caps.low, caps.high)
                    })
                };
                let groups = found.groups.as_ref().map(own);
                Some(Self {
                    caps: groups.is_none().then_some((found.low, found.high)),
                    groups,
                    is_of_caps: true,
                    ..Self::exact(beyond_caps(found.low, found.high))
                })
            }
            FittedStep::MinMax { columns } => {
                let found = columns.iter().find(|column| column.name == name)?;
                Some(Self::exact(beyond(found.min, found.max)))
            }
            FittedStep::Bin { columns } => {
                let found = columns.iter().find(|column| column.name == name)?;
                let ends = (found.boundaries.first()?, found.boundaries.last()?);
                Some(Self::exact(beyond(*ends.0, *ends.1)))
            }
            FittedStep::Standardize { columns } => {
                let found = columns.iter().find(|column| column.name == name)?;
                let own = |groups: &FittedScaleGroups| {
                    GroupBounds::new(&groups.by, &groups.moments, |of| {
                        far_bounds(of.mean, of.deviation, of.rows)
                    })
                };
                Some(Self {
                    groups: found.groups.as_ref().map(own),
                    source: BoundsSource::Moments,
                    ..Self::exact(far_bounds(found.mean, found.deviation, rows))
                })
            }
            FittedStep::Robust { columns } => {
                let found = columns.iter().find(|column| column.name == name)?;
                let distance = SPREADS * found.scale;
                let bounds = (found.median - distance, found.median + distance);
                // Equal percentiles say nothing about the other rows.
                (!found.constant).then(|| Self {
                    source: BoundsSource::Percentiles,
                    ..Self::exact(bounds)
                })
            }
            FittedStep::Impute { .. }
            | FittedStep::Log1p { .. }
            | FittedStep::Power { .. }
            | FittedStep::Knn { .. }
            | FittedStep::Categories { .. } => None,
        }
    }

    /// These bounds of a step that knows the range.
    fn exact((low, high): (f64, f64)) -> Self {
        Self {
            low,
            high,
            groups: None,
            caps: None,
            is_of_caps: false,
            source: BoundsSource::Range,
        }
    }
}

impl GroupBounds {
    /// Bounds of the groups by `by`, each of its numbers.
    fn new<T>(by: &str, own: &BTreeMap<String, T>, bounds: impl Fn(&T) -> (f64, f64)) -> Self {
        let own = own.iter();
        Self {
            by: by.to_owned(),
            own: own.map(|(group, of)| (group.clone(), bounds(of))).collect(),
        }
    }
}

/// The range widened by its width on both sides.
fn beyond(low: f64, high: f64) -> (f64, f64) {
    let width = high - low;
    (low - width, high + width)
}

/// The same of caps, which are percentiles. Equal ones say nothing about the other rows.
fn beyond_caps(low: f64, high: f64) -> (f64, f64) {
    match low < high {
        true => beyond(low, high),
        false => (f64::NEG_INFINITY, f64::INFINITY),
    }
}

/// Bounds around the mean of `rows` values: numbers beyond them are far outside. Those of a column of 0 and 1 are as its range has
/// them.
///
/// No value is more than the square root of `rows - 1` deviations from the mean (Samuelson's inequality).
pub(crate) fn far_bounds(mean: f64, deviation: f64, rows: u64) -> (f64, f64) {
    // Of values from 0 to 1 with this mean, only 0 and 1 vary so much.
    let most = mean * (1.0 - mean);
    if most > 0.0 && (deviation * deviation - most).abs() <= most * ROUNDING {
        return beyond(0.0, 1.0);
    }
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    let deviations = (rows as f64).sqrt().clamp(DEVIATIONS_MIN, DEVIATIONS_MAX);
    let distance = (deviations * deviation).max(mean.abs() * ROUNDING);
    (mean - distance, mean + distance)
}
