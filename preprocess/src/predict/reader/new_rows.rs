//! New rows that were read, their features, and their unusual cells.

use std::collections::BTreeMap;

use arrow::array::{Array as _, AsArray as _, RecordBatch};

use super::{fault::Fault, lookup_cells::LookupRows};
use crate::{Error, Transform, operators::missing_filter::describe_missing};

/// Some new rows, in their order.
#[derive(Clone, Debug)]
pub struct NewRows {
    pub(super) first: u64,
    pub(super) inputs: RecordBatch,
    pub(super) bad: BTreeMap<usize, Fault>,
    pub(super) kept: Vec<Vec<Option<String>>>,
    /// Keys and times that joins look the rows up by, until they are joined.
    pub(super) lookups: Option<LookupRows>,
}

/// Some new texts, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTexts {
    /// Number of the first row, from 0.
    pub first: u64,
    /// Texts; those of bad rows have no meaning.
    pub texts: Vec<Option<String>>,
    /// Rows that cannot be read, by index from 0.
    pub bad: BTreeMap<usize, Fault>,
    /// Passthrough columns, each with a cell per row.
    pub kept: Vec<Vec<Option<String>>>,
}

/// Features of some new rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// Number of the first row, from 0 as in the files of rejects.
    pub first: u64,
    /// Rows, the bad ones included.
    pub rows: usize,
    /// `[rows, features]`, row-major; values of bad rows have no meaning.
    pub x: Vec<f32>,
    /// Rows that cannot be used, by index from 0.
    pub bad: BTreeMap<usize, Fault>,
    /// Passthrough columns, each with a cell per row.
    pub kept: Vec<Vec<Option<String>>>,
    /// Unusual cells of usable rows.
    pub unusual: UnusualCells,
}

/// Rows, by index from 0 and ascending, with a cell that a model has little experience with, by column.
/// Columns without any are absent, and so are rows that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnusualCells {
    /// Inputs without a value.
    pub missing: BTreeMap<String, Vec<usize>>,
    /// Categories with a value that the transform does not know.
    pub unknown: BTreeMap<String, Vec<usize>>,
    /// Numbers far outside of the training rows.
    pub far_outside: BTreeMap<String, Vec<usize>>,
    /// Numbers that the caps of a `winsorize` step change. Those of a window are of its last row.
    pub capped: BTreeMap<String, Vec<usize>>,
    /// Texts that are longer than a model reads; added where they are encoded for the model.
    pub truncated: BTreeMap<String, Vec<usize>>,
}

/// Flag of a text that is longer than a model reads.
const TRUNCATED: &str = "is truncated, as it is longer than the model reads";

impl UnusualCells {
    /// Inputs of `rows` without those that are `bad`; `unknown` are those of unknown categories.
    pub(crate) fn of(
        rows: &RecordBatch,
        bad: &BTreeMap<usize, Fault>,
        transform: &Transform,
        unknown: BTreeMap<String, Vec<usize>>,
    ) -> Result<Self, Error> {
        let schema = rows.schema();
        let columns = schema.fields().iter().zip(rows.columns());
        let columns = columns.filter(|(_, column)| column.null_count() > 0);
        let missing = columns.map(|(field, column)| {
            let rows = (0..column.len()).filter(|row| column.is_null(*row));
            (field.name().clone(), rows.collect())
        });
        let [far_outside, capped] = transform.rows_outside(rows)?;
        let mut found = Self {
            missing: missing.collect(),
            unknown,
            far_outside,
            capped,
            truncated: BTreeMap::new(),
        };
        for columns in [
            &mut found.missing,
            &mut found.unknown,
            &mut found.far_outside,
            &mut found.capped,
        ] {
            columns.retain(|_, rows: &mut Vec<usize>| {
                rows.retain(|row| !bad.contains_key(row));
                !rows.is_empty()
            });
        }
        Ok(found)
    }

    /// Describes the unusual cells of each row; `inputs` is the number of columns of a row. Numbers of a
    /// column are far outside by caps if `has_caps_as_bounds` says so.
    #[must_use]
    pub fn describe(
        &self,
        rows: usize,
        inputs: usize,
        has_caps_as_bounds: impl Fn(&str) -> bool,
    ) -> Vec<Option<String>> {
        let mut lacking = vec![0_usize; rows];
        for row in self.missing.values().flatten() {
            lacking[*row] += 1;
        }
        let mut flags: Vec<Vec<String>> = lacking
            .into_iter()
            .map(|lacking| match lacking {
                0 => Vec::new(),
                lacking => vec![describe_missing(lacking, inputs, "input")],
            })
            .collect();
        let far = |column: &str| match has_caps_as_bounds(column) {
            true => "is far beyond the caps of `winsorize`",
            false => "is far outside of the training rows",
        };
        let unknown = self.unknown.iter();
        let unknown = unknown.map(|(column, rows)| (column, rows, "has an unknown category"));
        let outside = self.far_outside.iter();
        let outside = outside.map(|(column, rows)| (column, rows, far(column)));
        let truncated = self.truncated.iter();
        let truncated = truncated.map(|(column, rows)| (column, rows, TRUNCATED));
        for (column, rows, what) in unknown.chain(outside).chain(truncated) {
            for row in rows {
                flags[*row].push(format!("`{column}` {what}"));
            }
        }
        let flags = flags.into_iter();
        flags
            .map(|flags| (!flags.is_empty()).then(|| flags.join("; ")))
            .collect()
    }
}

impl NewRows {
    /// Number of rows that are not rejected so far.
    pub(super) fn usable(&self) -> u64 {
        (self.inputs.num_rows() - self.bad.len()) as u64
    }

    /// Returns the texts of rows that were opened by [`RowsIn::open_texts`](super::RowsIn::open_texts).
    #[must_use]
    pub fn into_texts(self) -> NewTexts {
        let texts = self.inputs.column(0).as_string::<i32>().iter();
        NewTexts {
            first: self.first,
            texts: texts.map(|text| text.map(str::to_owned)).collect(),
            bad: self.bad,
            kept: self.kept,
        }
    }

    /// Applies `transform`, the function that the build applies.
    ///
    /// # Errors
    /// As [`Transform::apply`]; none for rows that were read for this transform.
    pub fn features(self, transform: &Transform) -> Result<Features, Error> {
        let applied = transform.apply(&self.inputs)?;
        let mut bad = self.bad;
        for (row, reason, detail) in applied.bad {
            let number = self.first + row as u64;
            bad.entry(row)
                .or_insert_with(|| Fault::new(reason, detail).at(&format!("row {number}")));
        }
        let unusual = UnusualCells::of(&self.inputs, &bad, transform, applied.unknown)?;
        Ok(Features {
            unusual,
            first: self.first,
            rows: self.inputs.num_rows(),
            x: applied.x,
            bad,
            kept: self.kept,
        })
    }
}
