//! Expectations of a dataset's columns, inferred from a profile, edited by people, enforced by
//! builds.
//!
//! Rows are checked before the split, after all other rejections, including features of series once
//! these are computed; columns after it, over all splits.

mod columns;
mod infer;
mod new_rows;
mod read;

use std::{collections::BTreeSet, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray},
    datatypes::{DataType, Float64Type},
};
use datafusion::error::Result as EngineResult;
use feedline_schemas::{config::OnViolation, expect::ExpectedColumn, ids::Hash128};
use serde::{Deserialize, Serialize};

pub(crate) use self::columns::{Violation, violations};
pub use self::{infer::infer_expectations, new_rows::ExpectedInputs, read::check_expectations};
use crate::{
    engine::scalar_function::RowFunction,
    schema::reject_reason::{self, Reason},
};

/// Characters of a value that a reason shows.
const SHOWN: usize = 120;

/// Expectations that fit a dataset.
#[derive(Clone, Debug)]
pub(crate) struct Expect {
    pub(crate) columns: Vec<ExpectedColumn>,
    pub(crate) on_violation: OnViolation,
    /// URL of the file.
    pub(crate) url: String,
    /// Of the file.
    pub(crate) hash: Hash128,
}

impl Expect {
    /// Checks rows by the columns that `of` selects, where violations reject rows; the arguments
    /// are a reason so far, then the cells of those columns.
    pub(crate) fn rows(&self, of: impl Fn(&str) -> bool) -> Option<(Rows, Vec<&ExpectedColumn>)> {
        let columns = self.columns.iter().filter(|column| of(&column.name));
        let columns: Vec<&ExpectedColumn> = columns.collect();
        let judges = self.on_violation != OnViolation::Warn && !columns.is_empty();
        judges.then(|| (Rows::new(columns.iter().copied()), columns))
    }
}

/// Reason to reject a row, from its earlier reason, if any, and its cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Rows(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Rule {
    column: String,
    required: bool,
    /// Bits of the bounds.
    min: Option<u64>,
    max: Option<u64>,
    values: Option<BTreeSet<String>>,
}

impl Rows {
    pub(crate) fn new<'a>(columns: impl IntoIterator<Item = &'a ExpectedColumn>) -> Self {
        let rule = |column: &ExpectedColumn| Rule {
            column: column.name.clone(),
            required: column.required,
            min: column.min.map(f64::to_bits),
            max: column.max.map(f64::to_bits),
            values: column
                .values
                .as_ref()
                .map(|values| values.iter().cloned().collect()),
        };
        Self(columns.into_iter().map(rule).collect())
    }
}

impl Rule {
    /// The key that the cell of `row` violates; of one cell no two can be.
    fn fault(&self, cells: &ArrayRef, row: usize) -> Option<&'static str> {
        if cells.is_null(row) {
            return self.required.then_some("required");
        }
        if let Some(numbers) = cells.as_primitive_opt::<Float64Type>() {
            let number = numbers.value(row);
            let below = self.min.is_some_and(|min| number < f64::from_bits(min));
            let above = self.max.is_some_and(|max| number > f64::from_bits(max));
            return match (below, above) {
                (true, _) => Some("min"),
                (_, true) => Some("max"),
                _ => None,
            };
        }
        let values = self.values.as_ref()?;
        let is_known = values.contains(cells.as_string::<i32>().value(row));
        (!is_known).then_some("values")
    }
}

/// The cell of `row`, as people are shown it; nothing for a missing one.
fn shown(cells: &ArrayRef, row: usize) -> String {
    if cells.is_null(row) {
        return String::new();
    }
    match cells.as_primitive_opt::<Float64Type>() {
        Some(numbers) => numbers.value(row).to_string(),
        None => {
            let text = cells.as_string::<i32>().value(row);
            text.chars().take(SHOWN).collect()
        }
    }
}

impl RowFunction for Rows {
    const NAME: &'static str = "feedline_expected";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> EngineResult<ArrayRef> {
        let (reasons, cells) = columns.split_first().expect("reasons come before cells");
        let reasons = reasons.as_string::<i32>();
        let reason = |row: usize| {
            if reasons.is_valid(row) {
                return Some(reasons.value(row).to_owned());
            }
            // A row is rejected for one reason, the first.
            self.0.iter().zip(cells).find_map(|(rule, cells)| {
                let key = rule.fault(cells, row)?;
                let reason = Reason {
                    reason: reject_reason::expected(key),
                    column: rule.column.clone(),
                    value: shown(cells, row),
                };
                Some(reason.to_json())
            })
        };
        Ok(Arc::new((0..rows).map(reason).collect::<StringArray>()))
    }
}

#[cfg(test)]
mod tests;
