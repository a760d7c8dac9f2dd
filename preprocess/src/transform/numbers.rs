//! Numeric steps over a batch: column by column where every step only looks at single cells,
//! otherwise over all columns together.

use std::ops::Range;

use datafusion::arrow::array::RecordBatch;
use feedline_schemas::{
    config::PowerMethod,
    transform::{FittedNeighbours, FittedStep},
};

use super::{
    batch_columns::{cells, numeric},
    cell::CellOp,
    groups::Grouped,
};
use crate::{
    Error,
    staging::Matrix,
    steps::{column, is_grouped, knn::Neighbours, operation},
};

/// A numeric column.
#[derive(Debug)]
pub(super) struct NumericPlan {
    pub(super) name: String,
    /// Operations before each joint step, and behind the last.
    segments: Vec<Vec<CellOp>>,
    /// Elements of the missing-value indicators, in the order of the steps.
    marks: Vec<(Mark, usize)>,
    /// Element of the value.
    pub(super) place: usize,
}

/// A moment at which missing cells are noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Before an operation of a segment.
    Operation(usize, usize),
    /// Before a joint step.
    Joint(usize),
}

/// A step that looks at more than the cell it changes.
#[derive(Debug)]
enum Joint {
    Near {
        /// Positions among the numeric columns.
        columns: Vec<usize>,
        neighbours: Neighbours,
    },
    Grouped(Grouped),
}

/// Returns true if `step` looks at more than the cell it changes.
pub(crate) fn is_joint(step: &FittedStep) -> bool {
    matches!(step, FittedStep::Knn { .. }) || is_grouped(step)
}

/// Returns true if a step looks at this column and others at once.
pub(crate) fn is_shared(steps: &[FittedStep], name: &str) -> bool {
    steps.iter().any(|step| match step {
        FittedStep::Knn { columns, .. } => columns.iter().any(|column| column.name == name),
        FittedStep::Winsorize { columns } => {
            let mut of_name = columns.iter().filter(|column| column.name == name);
            of_name.any(|column| column.groups.is_some())
        }
        FittedStep::Standardize { columns } => {
            let mut of_name = columns.iter().filter(|column| column.name == name);
            of_name.any(|column| column.groups.is_some())
        }
        _ => false,
    })
}

/// The numeric columns.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    plans: Vec<NumericPlan>,
    joints: Vec<Joint>,
}

/// Output for a numeric column.
pub(super) enum Made<'a> {
    /// Cells before all steps.
    Landed(&'a NumericPlan, &'a [f64]),
    /// Number of cells that a cap changes.
    Capped(&'a NumericPlan, u64),
    /// The cells as they are when missing ones are noted, and the element to note it in.
    Marked(usize, &'a [f64]),
    /// The cells after all steps.
    Number(&'a NumericPlan, &'a [f64]),
}

/// Rows whose cells stay in the nearest cache, in rows and in columns.
const TILE: usize = 128;

impl NumericPlan {
    /// Plan of `steps` for `name`, whose value has element `place`; indicators follow it.
    pub(super) fn new(steps: &[FittedStep], name: &str, place: usize) -> Self {
        let (mut segments, mut marks) = (vec![Vec::new()], Vec::new());
        for step in steps {
            let joints = segments.len() - 1;
            let segment = segments.last_mut().expect("there is always one");
            if let Some(op) = operation(step, name) {
                if has_indicator(step, name) {
                    marks.push(Mark::Operation(joints, segment.len()));
                }
                segment.push(op);
            }
            if is_joint(step) {
                if has_indicator(step, name) {
                    marks.push(Mark::Joint(joints));
                }
                segments.push(Vec::new());
            }
        }
        Self {
            name: name.to_owned(),
            segments,
            marks: marks.into_iter().zip(place + 1..).collect(),
            place,
        }
    }

    /// Elements of the column: its value and its indicators.
    pub(super) fn width(&self) -> usize {
        1 + self.marks.len()
    }

    fn run(
        &self,
        segment: usize,
        first: usize,
        cells: &mut [f64],
        made: &mut impl FnMut(usize, Made<'_>),
    ) {
        for (i, op) in self.segments[segment].iter().enumerate() {
            self.mark(Mark::Operation(segment, i), first, cells, made);
            if matches!(op, CellOp::Clip { .. }) {
                made(first, Made::Capped(self, op.count_capped(cells)));
            }
            op.apply(cells);
        }
    }

    fn mark(&self, now: Mark, first: usize, cells: &[f64], made: &mut impl FnMut(usize, Made<'_>)) {
        for (mark, place) in &self.marks {
            if *mark == now {
                made(first, Made::Marked(*place, cells));
            }
        }
    }

    /// Explanation of an infinite result for a cell that landed as `landed`. Steps that look at
    /// more than the cell are skipped, so the number in the message may differ after such a step.
    pub(super) fn why_infinite(&self, landed: f64) -> String {
        if landed.is_infinite() {
            return "is infinite and nothing caps it".to_owned();
        }
        let mut cell = [landed];
        for op in self.segments.iter().flatten() {
            let [before] = cell;
            op.apply(&mut cell);
            if !cell[0].is_infinite() {
                continue;
            }
            let (step, least) = match op {
                CellOp::Log1p => ("log1p", "-1"),
                CellOp::Power {
                    method: PowerMethod::BoxCox,
                    ..
                } => ("box_cox", "0"),
                _ => break,
            };
            let is_below = match op {
                CellOp::Log1p => before <= -1.0,
                _ => before <= 0.0,
            };
            if is_below {
                return format!(
                    "is `{before:?}` where `{step}` takes it, which knows only numbers above {least}; a `winsorize` step before \
                     caps such cells"
                );
            }
            break;
        }
        format!("is `{landed:?}` as it landed and becomes infinite in the steps")
    }

    /// Undoes the operations of a segment, the last first.
    fn undo(&self, segment: usize, cells: &mut [f64]) {
        let ops = self.segments[segment].iter();
        ops.rev().for_each(|op| op.invert(cells));
    }
}

/// Returns true if `step` adds an indicator for the numeric column `name`.
pub(super) fn has_indicator(step: &FittedStep, name: &str) -> bool {
    column(step, name).is_some_and(|column| column.has_indicator())
}

impl Numbers {
    /// The columns of `plans`.
    ///
    /// # Errors
    /// A message about the fault: neighbours among columns that are missing, or that do not have
    /// the same rows; groups of several kinds.
    pub(super) fn new(plans: Vec<NumericPlan>, steps: &[FittedStep]) -> Result<Self, String> {
        let mut joints = Vec::new();
        let place = |name: &str| {
            let found = plans.iter().position(|plan| plan.name == name);
            found.ok_or_else(|| format!("`{name}` is no numeric column"))
        };
        for step in steps {
            if is_grouped(step) {
                joints.push(Joint::Grouped(Grouped::new(step, place)?));
            }
            if let FittedStep::Knn {
                neighbours,
                weights,
                columns,
            } = step
            {
                let places = columns.iter().map(|c| place(&c.name));
                let places = places.collect::<Result<_, _>>()?;
                let rows = columns.first().map_or(0, |c| c.reference.len());
                if let Some(odd) = columns.iter().find(|c| c.reference.len() != rows) {
                    return Err(format!(
                        "the reference rows of `{}` are {}, not {rows}",
                        odd.name,
                        odd.reference.len()
                    ));
                }
                let cells = |c: &FittedNeighbours| {
                    let cells = c.reference.iter();
                    cells.map(|cell| cell.unwrap_or(f64::NAN)).collect()
                };
                joints.push(Joint::Near {
                    columns: places,
                    neighbours: Neighbours::new(
                        columns.iter().map(cells).collect(),
                        columns.iter().map(|c| c.mean).collect(),
                        *neighbours as usize,
                        *weights,
                    ),
                });
            }
        }
        Ok(Self { plans, joints })
    }

    /// The columns called `names` after `steps`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn of(names: &[String], steps: &[FittedStep]) -> Result<Self, String> {
        let plans = names.iter().map(|name| NumericPlan::new(steps, name, 0));
        Self::new(plans.collect(), steps)
    }

    pub(super) fn plans(&self) -> &[NumericPlan] {
        &self.plans
    }

    /// Returns true if the column at `place` among the numeric ones was scaled by groups.
    pub(super) fn hides(&self, place: usize) -> bool {
        let mut joints = self.joints.iter();
        joints.any(|joint| matches!(joint, Joint::Grouped(grouped) if grouped.hides(place)))
    }

    /// Undoes all operations on the columns, the last first. What neighbours filled stays. The groups are those of `batch`;
    /// without one, what a group decides stays as it is.
    ///
    /// # Errors
    /// [`Error::Input`] when a column of groups is absent or of another type.
    pub(super) fn invert(
        &self,
        batch: Option<&RecordBatch>,
        columns: &mut [Vec<f64>],
    ) -> Result<(), Error> {
        for segment in (0..=self.joints.len()).rev() {
            for (plan, cells) in self.plans.iter().zip(columns.iter_mut()) {
                plan.undo(segment, cells);
            }
            let before = segment.checked_sub(1).and_then(|i| self.joints.get(i));
            if let (Some(Joint::Grouped(grouped)), Some(batch)) = (before, batch) {
                grouped.invert(batch, columns)?;
            }
        }
        Ok(())
    }

    /// Runs the steps over a batch; numeric columns may be in `numbers` instead. `made` gets the
    /// row of the first cell.
    ///
    /// # Errors
    /// [`Error::Input`] when a column is absent or of another type.
    pub(super) fn apply(
        &self,
        batch: &RecordBatch,
        numbers: &Matrix,
        made: &mut impl FnMut(usize, Made<'_>),
    ) -> Result<(), Error> {
        let rows = batch.num_rows();
        let read = |plan: &NumericPlan| landed(batch, numbers, &plan.name, 0..rows);
        let places = self.plans.iter().map(|plan| numbers.place(&plan.name));
        let places = places.collect::<Option<Vec<usize>>>();
        if let Some(places) = places.filter(|_| self.joints.is_empty()) {
            let mut cells = Vec::with_capacity(TILE);
            for first in (0..rows).step_by(TILE) {
                let tile = first..rows.min(first + TILE);
                for (plan, place) in self.plans.iter().zip(&places) {
                    numbers.fill(*place, tile.clone(), &mut cells);
                    made(first, Made::Landed(plan, &cells));
                    plan.run(0, first, &mut cells, made);
                    made(first, Made::Number(plan, &cells));
                }
            }
            return Ok(());
        }
        if self.joints.is_empty() {
            for plan in &self.plans {
                let mut cells = read(plan)?;
                made(0, Made::Landed(plan, &cells));
                plan.run(0, 0, &mut cells, made);
                made(0, Made::Number(plan, &cells));
            }
            return Ok(());
        }
        let columns = self.plans.iter().map(read);
        let mut columns: Vec<Vec<f64>> = columns.collect::<Result<_, Error>>()?;
        for (plan, cells) in self.plans.iter().zip(&columns) {
            made(0, Made::Landed(plan, cells));
        }
        for segment in 0..=self.joints.len() {
            for (plan, cells) in self.plans.iter().zip(&mut columns) {
                plan.run(segment, 0, cells, made);
            }
            if let Some(joint) = self.joints.get(segment) {
                for (plan, cells) in self.plans.iter().zip(&columns) {
                    plan.mark(Mark::Joint(segment), 0, cells, made);
                }
                let capped = joint.apply(batch, &mut columns)?;
                for (plan, capped) in self.plans.iter().zip(capped) {
                    made(0, Made::Capped(plan, capped));
                }
            }
        }
        for (plan, cells) in self.plans.iter().zip(&columns) {
            made(0, Made::Number(plan, cells));
        }
        Ok(())
    }

    /// The columns of a batch after the steps, in the order of their names.
    ///
    /// # Errors
    /// [`Error::Input`] when a column is absent or of another type.
    pub(crate) fn columns(&self, batch: &RecordBatch) -> Result<Vec<Vec<f64>>, Error> {
        let mut columns = Vec::with_capacity(self.plans.len());
        self.apply(batch, &Matrix::default(), &mut |_, made| {
            if let Made::Number(_, cells) = made {
                columns.push(cells.to_vec());
            }
        })?;
        Ok(columns)
    }
}

/// Some cells of a numeric column as they landed.
///
/// # Errors
/// [`Error::Input`] when the column is absent or of another type.
pub(super) fn landed(
    batch: &RecordBatch,
    numbers: &Matrix,
    name: &str,
    rows: Range<usize>,
) -> Result<Vec<f64>, Error> {
    match numbers.place(name) {
        None => Ok(cells(&numeric(batch, name)?.slice(rows.start, rows.len()))),
        Some(place) => {
            let mut cells = Vec::with_capacity(rows.len());
            numbers.fill(place, rows, &mut cells);
            Ok(cells)
        }
    }
}

impl Joint {
    /// Applies the step to all columns, and returns the number of cells of each that caps changed.
    fn apply(&self, batch: &RecordBatch, columns: &mut [Vec<f64>]) -> Result<Vec<u64>, Error> {
        match self {
            Self::Grouped(grouped) => grouped.apply(batch, columns),
            Self::Near {
                columns: places,
                neighbours,
            } => {
                let taken = places.iter();
                let mut taken: Vec<Vec<f64>> =
                    taken.map(|i| std::mem::take(&mut columns[*i])).collect();
                neighbours.fill(&mut taken);
                for (i, cells) in places.iter().zip(taken) {
                    columns[*i] = cells;
                }
                Ok(Vec::new())
            }
        }
    }
}
