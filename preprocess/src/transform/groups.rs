//! Steps with numbers that depend on the group of a row.

use std::collections::HashMap;

use datafusion::arrow::array::RecordBatch;
use feedline_schemas::transform::FittedStep;

use super::{batch_columns::text, cell::CellOp};
use crate::Error;

/// A step with numbers for each group.
#[derive(Debug)]
pub(super) struct Grouped {
    /// Column whose values are the groups.
    by: String,
    /// Place of each group that has numbers of its own.
    slots: HashMap<String, usize>,
    /// Position among the numeric columns, and the operation of each place; the last is for all other rows.
    columns: Vec<(usize, Vec<CellOp>)>,
}

/// Operations of a step on one column: in each group, and elsewhere.
struct OfColumn<'a> {
    name: &'a str,
    by: Option<&'a str>,
    own: Vec<(&'a String, CellOp)>,
    others: CellOp,
}

fn columns_of(step: &FittedStep) -> Vec<OfColumn<'_>> {
    match step {
        FittedStep::Winsorize { columns } => {
            let clip = |low, high| CellOp::Clip { low, high };
            let column = columns.iter().map(|c| OfColumn {
                name: &c.name,
                by: c.groups.as_ref().map(|groups| groups.by.as_str()),
                own: (c.groups.iter().flat_map(|groups| &groups.caps))
                    .map(|(group, of)| (group, clip(of.low, of.high)))
                    .collect(),
                others: clip(c.low, c.high),
            });
            column.collect()
        }
        FittedStep::Standardize { columns } => {
            let scaled = |mean, scale| CellOp::Standardize { mean, scale };
            let column = columns.iter().map(|c| OfColumn {
                name: &c.name,
                by: c.groups.as_ref().map(|groups| groups.by.as_str()),
                own: (c.groups.iter().flat_map(|groups| &groups.moments))
                    .map(|(group, of)| (group, scaled(of.mean, of.scale)))
                    .collect(),
                others: scaled(c.mean, c.scale),
            });
            column.collect()
        }
        _ => Vec::new(),
    }
}

impl Grouped {
    /// Prepares `step`, which [`is_grouped`](crate::steps::is_grouped), for the numeric columns; `place` gives their
    /// positions.
    ///
    /// # Errors
    /// A message about the fault: a column that is missing, or columns grouped by different ones.
    pub(super) fn new(
        step: &FittedStep,
        place: impl Fn(&str) -> Result<usize, String>,
    ) -> Result<Self, String> {
        let columns = columns_of(step);
        let by = columns.iter().find_map(|column| column.by);
        let by = by.ok_or("a step without groups has none")?;
        let odd = columns.iter().find(|c| c.by.is_some_and(|own| own != by));
        if let Some(odd) = odd {
            return Err(format!("`{}` is not grouped by `{by}`", odd.name));
        }
        let mut slots = HashMap::new();
        for (group, _) in columns.iter().flat_map(|column| &column.own) {
            let next = slots.len();
            slots.entry((*group).clone()).or_insert(next);
        }
        let placed = |column: &OfColumn<'_>| -> Result<(usize, Vec<CellOp>), String> {
            let mut ops = vec![column.others.clone(); slots.len() + 1];
            for (group, op) in &column.own {
                ops[slots[*group]] = op.clone();
            }
            Ok((place(column.name)?, ops))
        };
        let columns = columns.iter().map(placed).collect::<Result<_, String>>()?;
        Ok(Self {
            by: by.to_owned(),
            slots,
            columns,
        })
    }

    /// Applies the step to the columns of a batch, and returns the number of cells of each column
    /// that caps changed.
    ///
    /// # Errors
    /// [`Error::Input`] when the column of groups is absent or of another type.
    pub(super) fn apply(
        &self,
        batch: &RecordBatch,
        columns: &mut [Vec<f64>],
    ) -> Result<Vec<u64>, Error> {
        let mut capped = vec![0_u64; columns.len()];
        self.each(batch, columns, |place, op, cells| {
            capped[place] += op.count_capped(cells);
            op.apply(cells);
        })?;
        Ok(capped)
    }

    /// Undoes it.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub(super) fn invert(
        &self,
        batch: &RecordBatch,
        columns: &mut [Vec<f64>],
    ) -> Result<(), Error> {
        self.each(batch, columns, |_, op, cells| op.invert(cells))
    }

    /// Returns true if undoing it for the numeric column at `place` needs the groups.
    pub(super) fn hides(&self, place: usize) -> bool {
        let scales = |op: &CellOp| matches!(op, CellOp::Standardize { .. });
        let mut columns = self.columns.iter();
        columns.any(|(at, ops)| *at == place && ops.iter().any(scales))
    }

    fn each(
        &self,
        batch: &RecordBatch,
        columns: &mut [Vec<f64>],
        mut change: impl FnMut(usize, &CellOp, &mut [f64]),
    ) -> Result<(), Error> {
        let groups = text(batch, &self.by)?;
        let others = self.slots.len();
        let slot = |group: Option<&str>| group.and_then(|group| self.slots.get(group).copied());
        let slots: Vec<usize> = groups.iter().map(|g| slot(g).unwrap_or(others)).collect();
        for (place, ops) in &self.columns {
            for (cell, slot) in columns[*place].iter_mut().zip(&slots) {
                change(*place, &ops[*slot], std::slice::from_mut(cell));
            }
        }
        Ok(())
    }
}
