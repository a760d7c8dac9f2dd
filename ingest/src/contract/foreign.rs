//! CSV cells as their columns read them: numbers written with other signs, and missing values that are spelled out.

use feedline_schemas::{config::TypeContract, record::ColumnType};

use super::{
    Contract, declared,
    fit::{self, Fit},
};
use crate::{flatten::Leaf, value::Value};

/// Kind of decision: a spelling of a missing value that is read as missing.
const READ_AS_MISSING: &str = "read_as_missing";

impl Contract<'_> {
    /// Converts cells for their columns. Returns the indices of the cells whose notation is invalid
    /// for numbers of this source.
    pub(super) fn translate(&mut self, leaves: &mut [Leaf], places: &[usize]) -> Vec<usize> {
        let mut unreadable = Vec::new();
        for (i, (leaf, place)) in leaves.iter_mut().zip(places).enumerate() {
            let Value::Cell(text) = &leaf.value else {
                continue;
            };
            let column = match self.columns.get(*place).map(|column| column.r#type) {
                None | Some(ColumnType::Null) => declared(self.config, &leaf.name)
                    .or(self.planned.get(&leaf.name).copied())
                    .unwrap_or(ColumnType::Null),
                Some(have) => have,
            };
            let is_open = column == ColumnType::Null;
            if is_open || column.is_number() {
                match self.format.number(text) {
                    Some(number) if *number == **text => continue,
                    Some(number) => {
                        leaf.value = Value::Cell(number.into_owned());
                        continue;
                    }
                    // A spelling of a missing value does not give a column its type.
                    None if is_open && !self.format.is_missing(text.trim()) => continue,
                    None => {}
                }
            } else if !is_of_cells(column) {
                continue;
            }
            if self.format.is_missing(text.trim()) {
                let sample = format!("`{}`", text.trim());
                self.pending
                    .push((READ_AS_MISSING, leaf.name.clone(), sample));
                leaf.value = Value::Null;
            } else if column.is_number() && fit::infer(&leaf.value).is_number() {
                unreadable.push(i);
            }
        }
        unreadable
    }

    /// The type that a column called `name`, which has none yet, gets from `value`.
    pub(super) fn first_type(&self, name: &str, value: &Value) -> ColumnType {
        let Some(planned) = self.planned.get(name).copied() else {
            return self.reading.infer(value);
        };
        match self.reading.fit(planned, value) {
            Fit::Becomes(wider) => wider,
            Fit::Conflict if self.rule(name).types == TypeContract::Widen => {
                planned.widest(self.reading.infer(value))
            }
            Fit::Fits | Fit::Conflict => planned,
        }
    }
}

/// Returns true for types, other than numbers, whose values are not just the text of their cells.
const fn is_of_cells(column: ColumnType) -> bool {
    matches!(column, ColumnType::Bool | ColumnType::Timestamp)
}
