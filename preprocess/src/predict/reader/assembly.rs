//! A batch of new rows in the making.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array as _, RecordBatch, RecordBatchOptions},
    datatypes::{Field, Schema, SchemaRef},
};
use feedline_schemas::transform::{InputColumn, TransformArtefact};

use super::{
    cell::Input,
    fault::Fault,
    held::{Conflict, LandedAs, inferred_type, known},
    lookup_cells::LookupCells,
    names::Named,
    new_rows::NewRows,
    raw_cell::Raw,
    reading::RowsReading,
    written::Written,
};
use crate::{
    Error,
    operators::{
        coerce::Missing,
        missing_filter::{MissingFilter, describe_missing},
    },
    schema::{
        landed_columns::{lacks_columns, listed},
        reject_reason,
    },
};

/// A batch in the making.
pub(super) struct Assembly {
    schema: SchemaRef,
    pub(super) inputs: Vec<Input>,
    /// True for inputs that any row has had, even without a value.
    pub(super) met: Vec<bool>,
    keep: Vec<String>,
    /// Format of the cells of each passthrough column.
    keep_formats: Vec<Written>,
    kept: Vec<Vec<Option<String>>>,
    sparse: Option<MissingFilter>,
    /// Keys and times of rows that are joined.
    pub(super) lookups: Option<LookupCells>,
    /// Names of the inputs, of what is carried along, then of further keys and times.
    wanted: Vec<String>,
    /// Names of the columns that joins add.
    added: Vec<String>,
    bad: BTreeMap<usize, Fault>,
    pub(super) rows: usize,
    pub(super) bytes: usize,
    /// Rows before this batch.
    before: u64,
    /// True if an object without any of the inputs came before any that has some.
    pub(super) is_foreign: bool,
}

/// Formats of the passthrough columns.
fn keep_formats(reading: &RowsReading) -> Vec<Written> {
    let landed = |name: &String| reading.landed.get(name).copied();
    let columns = reading.keep.iter();
    columns
        .map(|name| Written::of(landed(name), reading))
        .collect()
}

impl Assembly {
    pub(super) fn new(reading: &RowsReading, artefact: &TransformArtefact) -> Self {
        let input = |column: &InputColumn| {
            let landed_type = reading.landed.get(&column.name).copied();
            let r#type = inferred_type(landed_type, column, artefact);
            let landed = LandedAs::of(r#type, &reading.contracts, column, artefact);
            let conflict = Conflict::of(&reading.contracts, &column.name);
            let missing = Missing::new(&artefact.null_values, &artefact.missing_values);
            let written = Written::of(r#type, reading).inferred(r#type != landed_type);
            let written = match landed {
                LandedAs::LikelyNumber => written.knowing(known(artefact, &column.name)),
                _ => written,
            };
            Input::new(column, (landed, conflict), missing, artefact.signs).written(written)
        };
        let mut inputs: Vec<Input> = artefact.inputs.iter().map(input).collect();
        let field = |input: &mut Input| {
            let empty = input.take();
            Field::new(&input.name, empty.data_type().clone(), true)
        };
        let fields: Vec<Field> = inputs.iter_mut().map(field).collect();
        let names = inputs.iter().map(|input| &input.name);
        let mut wanted: Vec<String> = names.chain(&reading.keep).cloned().collect();
        let joins = reading.joins.as_ref();
        Self {
            added: joins.map_or_else(Vec::new, |joins| {
                let added = joins.added().iter();
                added.map(|added| added.name.clone()).collect()
            }),
            lookups: joins.map(|joins| LookupCells::new(joins, &mut wanted, reading, artefact)),
            wanted,
            schema: Arc::new(Schema::new(fields)),
            met: vec![false; inputs.len()],
            inputs,
            kept: vec![Vec::new(); reading.keep.len()],
            keep: reading.keep.clone(),
            keep_formats: keep_formats(reading),
            sparse: reading.max_missing_fraction.map(MissingFilter::new),
            bad: BTreeMap::new(),
            rows: 0,
            bytes: 0,
            before: 0,
            is_foreign: false,
        }
    }

    /// Names of the inputs, then of what is carried along, then of the keys and times of joins.
    pub(super) fn wanted(&self) -> Vec<String> {
        self.wanted.clone()
    }

    /// Reads rows of a table with these columns. Returns true if it has columns that joins would
    /// add, and so all of them: nothing is looked up then.
    pub(super) fn read_table(&mut self, names: &[String]) -> bool {
        let found = Named::new(names.to_vec(), &self.added);
        let is_joined = found.places().iter().any(Option::is_some);
        if is_joined {
            self.lookups = None;
            self.wanted.truncate(self.inputs.len() + self.keep.len());
        }
        is_joined
    }

    /// Notes the wanted columns that the next row has, which are those that `is_found` returns true
    /// for.
    pub(super) fn note_found(&mut self, is_found: impl Fn(usize) -> bool) {
        for (column, met) in self.met.iter_mut().enumerate() {
            *met = *met || is_found(column);
        }
        if let Some(lookups) = &mut self.lookups {
            lookups.note_found(is_found);
        }
    }

    /// Returns true if any row has had an input, or a column that joins read.
    pub(super) fn has_met(&self) -> bool {
        let lookups = self.lookups.as_ref();
        self.met.is_empty() || self.met.contains(&true) || lookups.is_some_and(|l| l.met)
    }

    /// All wanted columns are among those of the file, without those that joins add.
    pub(super) fn check(&self, names: &Named, file: &str) -> Result<(), Error> {
        let wanted = self.wanted();
        let lacking = wanted.iter().zip(names.places());
        let is_added = |name: &String| self.lookups.is_some() && self.added.contains(name);
        let lacking = lacking.filter(|(name, place)| place.is_none() && !is_added(name));
        let lacking: Vec<&str> = lacking.map(|(name, _)| name.as_str()).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let known = names.names().iter().map(String::as_str);
        let mut passthrough = self.keep.iter();
        let lacks_passthrough = passthrough.any(|name| lacking.contains(&name.as_str()));
        let of_passthrough = match lacks_passthrough {
            true => " and those of `--passthrough`",
            false => "",
        };
        let of_joins = match self.added.is_empty() {
            true => "",
            false => ", those that joins add all or none",
        };
        let advice = format!(
            "give all columns of the training data{of_passthrough}{of_joins}, with an empty cell where a value is missing"
        );
        Err(lacks_columns(file, &lacking, wanted.len(), known, &advice))
    }

    pub(super) fn check_first(&self, file: &str) -> Result<(), Error> {
        if !self.is_foreign {
            return Ok(());
        }
        let names: Vec<&str> = self
            .inputs
            .iter()
            .map(|input| input.name.as_str())
            .collect();
        Err(Error::input(
            format!("`{file}`"),
            format!(
                "its first object has none of the columns that the transform was fitted on: {}",
                listed(&names, "`")
            ),
            "check that it is the file for this dataset",
        ))
    }

    /// Warns once per column of cells that could not be read and count as missing.
    pub(super) fn warn_unread(&mut self, file: &str) {
        for input in &mut self.inputs {
            let Some(unread) = input.unread.take() else {
                continue;
            };
            tracing::warn!(
                file, column = %input.name, cells = unread.cells, example = %unread.example,
                "cells of a column could not be read and count as missing, as in the dataset; correct them, or list the \
                 spellings of a missing value in `dataset.null_values`"
            );
        }
    }

    /// Adds a row with these cells of the wanted columns, found at `place`.
    pub(super) fn add<'a>(
        &mut self,
        cell: impl Fn(usize) -> Raw<'a>,
        place: impl FnOnce() -> String,
    ) {
        let (mut fault, mut lacking) = (None, 0);
        for (i, input) in self.inputs.iter_mut().enumerate() {
            let found = input.push(&cell(i));
            lacking += usize::from(input.lacks);
            fault = fault.or(found);
        }
        if let Some(lookups) = &mut self.lookups {
            fault = fault.or(lookups.push(&cell));
        }
        let all = self.inputs.len();
        let is_too_many = |sparse: &MissingFilter| sparse.is_too_many(lacking, all);
        // Rows that are joined may lack fewer inputs then.
        let is_complete = self.lookups.is_none();
        if is_complete && fault.is_none() && self.sparse.as_ref().is_some_and(is_too_many) {
            let detail = describe_missing(lacking, all, "feature");
            fault = Some(Fault::new(reject_reason::TOO_MANY_MISSING, detail));
        }
        for (i, (kept, format)) in self.kept.iter_mut().zip(&self.keep_formats).enumerate() {
            kept.push(format.carried(&cell(all + i)));
        }
        if let Some(fault) = fault {
            self.bad.insert(self.rows, fault.at(&place()));
        }
        self.rows += 1;
    }

    /// Adds a row that cannot be read at all.
    pub(super) fn add_bad(&mut self, fault: Fault) {
        self.bad.insert(self.rows, fault);
        for input in &mut self.inputs {
            input.push(&Raw::Null);
        }
        if let Some(lookups) = &mut self.lookups {
            lookups.push(|_| Raw::Null);
        }
        self.kept.iter_mut().for_each(|kept| kept.push(None));
        self.rows += 1;
    }

    pub(super) fn take(&mut self) -> Result<Option<NewRows>, Error> {
        if self.rows == 0 {
            return Ok(None);
        }
        let columns = self.inputs.iter_mut().map(Input::take).collect();
        // There may be none of them.
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let schema = Arc::clone(&self.schema);
        let inputs = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let lookups = self.lookups.as_mut().map(LookupCells::take).transpose()?;
        let first = self.before;
        self.before += self.rows as u64;
        (self.rows, self.bytes) = (0, 0);
        Ok(Some(NewRows {
            first,
            inputs,
            bad: std::mem::take(&mut self.bad),
            kept: self.kept.iter_mut().map(std::mem::take).collect(),
            lookups,
        }))
    }
}
