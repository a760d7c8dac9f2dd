//! The cells of a batch, column by column.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, FixedSizeBinaryBuilder},
    error::ArrowError,
};
use feedline_readers::{
    cell::{Cell, Held},
    json,
    value::Value,
};
use feedline_schemas::ids::Hash128;

/// The records of a batch that land.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells {
    /// Number of each record in the batch.
    pub(super) rows: Vec<u32>,
    hashes: Vec<Hash128>,
    /// Cells of each column. Missing cells at the end of a column are null.
    columns: Vec<Vec<Cell>>,
    /// Canonical forms of the records, and strings that do not occur in these verbatim.
    pub(super) texts: String,
    odd: Vec<Value>,
}

impl Cells {
    /// Lands a record with the hash `hash`: cells by column, all others null.
    pub(super) fn push(
        &mut self,
        row: u32,
        hash: Hash128,
        cells: impl Iterator<Item = (usize, Cell)>,
    ) {
        let place = self.rows.len();
        for (column, cell) in cells {
            if self.columns.len() <= column {
                self.columns.resize_with(column + 1, Vec::new);
            }
            let held = &mut self.columns[column];
            held.resize(place, Cell::NULL);
            held.push(cell);
        }
        self.rows.push(row);
        self.hashes.push(hash);
    }

    /// Removes the records from the one at `place` on. Their strings stay until the end of the
    /// batch.
    pub(super) fn truncate(&mut self, place: usize) {
        self.rows.truncate(place);
        self.hashes.truncate(place);
        for held in &mut self.columns {
            held.truncate(place);
        }
    }

    /// [`Self::push`] of values.
    pub(super) fn land(&mut self, row: u32, hash: Hash128, cells: Vec<(usize, Value)>) {
        let cells = cells.into_iter();
        let cells: Vec<_> = cells
            .map(|(column, value)| (column, self.keep(value)))
            .collect();
        self.push(row, hash, cells.into_iter());
    }

    /// A value as a cell.
    pub(super) fn keep(&mut self, value: Value) -> Cell {
        let (held, text) = match &value {
            Value::Null => return Cell::NULL,
            Value::Bool(value) => return Cell::bool(*value),
            Value::Int(value) => return Cell::int(*value),
            Value::Float(value) => return Cell::float(*value),
            Value::Written(number) => (Held::Written, number.text()),
            Value::Text(text) => (Held::Text, text.as_str()),
            Value::Cell(text) => (Held::Cell, text.as_str()),
            _ => {
                self.odd.push(value);
                return Cell::of(Held::Odd, self.odd.len() as u64 - 1);
            }
        };
        let start = self.texts.len();
        self.texts.push_str(text);
        match Cell::text(held, start, self.texts.len()) {
            Some(cell) => cell,
            None => {
                self.texts.truncate(start);
                self.odd.push(value);
                Cell::of(Held::Odd, self.odd.len() as u64 - 1)
            }
        }
    }

    /// The cells of a column, one for each record.
    pub(super) fn column(&self, column: usize) -> impl ExactSizeIterator<Item = &Cell> {
        let held = self.columns.get(column).map_or(&[][..], Vec::as_slice);
        (0..self.rows.len()).map(|row| held.get(row).unwrap_or(&Cell::NULL))
    }

    /// Value of a cell that is not null; for [`Held::Json`] its text.
    pub(super) fn value(&self, cell: &Cell) -> Value {
        let text = || cell.as_text(&self.texts).to_owned();
        match cell.held {
            Held::Null => Value::Null,
            Held::Bool => Value::Bool(cell.bits != 0),
            Held::Int => Value::Int(cell.as_int()),
            Held::Float => Value::Float(cell.as_float()),
            Held::Written => json::written_number(&text()).unwrap_or_else(|| Value::Text(text())),
            Held::Text | Held::Json => Value::Text(text()),
            Held::Cell => Value::Cell(text()),
            Held::Odd => self.odd(cell).clone(),
        }
    }

    /// Value of a cell without a plain form, which is stored unchanged.
    pub(super) fn odd(&self, cell: &Cell) -> &Value {
        let place = usize::try_from(cell.bits).unwrap_or(usize::MAX);
        &self.odd[place]
    }

    /// The hashes as a column.
    pub(super) fn hashes(&self) -> Result<ArrayRef, ArrowError> {
        let mut hashes = FixedSizeBinaryBuilder::with_capacity(self.hashes.len(), 16);
        for hash in &self.hashes {
            hashes.append_value(hash.get().to_be_bytes())?;
        }
        Ok(Arc::new(hashes.finish()))
    }
}
