//! Records of a tape on their way into cells.

use std::sync::Arc;

use super::cells::Cells;
use crate::contract::{Contract, is_long_number};
use feedline_readers::{
    cell::{Cell, Held},
    json::{JsonRecord, Keys, Leaf, NoCell, Walk},
};

/// Destination of the values of a path.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    #[default]
    Unknown,
    /// Column, if it exists, and whether an object there is stored as one column.
    Known(Option<usize>, bool),
}

/// Converts records of tapes to cells.
#[derive(Debug, Default)]
pub(super) struct Plain {
    walk: Walk,
    /// Destinations by path, valid for one family of keys, one record path and one contract shape.
    places: Vec<Place>,
    of: Option<(u64, u32, (usize, usize))>,
    /// Cells of the current record.
    pub(super) cells: Vec<(usize, Cell)>,
}

/// Kind of a record on a tape.
pub(super) enum Found {
    /// Its canonical form is at the end of the strings, and its leaves are known.
    Leaves,
    /// It needs a value tree.
    Odd,
}

impl Plain {
    /// Appends the canonical form of a record to the strings of `cells`.
    pub(super) fn write(
        &mut self,
        record: &JsonRecord,
        levels: u32,
        contract: &Contract<'_>,
        cells: &mut Cells,
    ) -> Found {
        let (keys, root) = (Arc::clone(&record.tape.keys), record.key());
        let of = Some((keys.family, root, contract.shape()));
        if self.of != of {
            self.places.clear();
            self.of = of;
        }
        let places = &mut self.places;
        let mut whole = |key| match place(places, contract, &keys, root, key) {
            Place::Known(_, is_whole) => is_whole,
            Place::Unknown => false,
        };
        let start = cells.texts.len();
        let written = self.walk.record(
            &record.tape,
            record.place,
            levels,
            &mut whole,
            &mut cells.texts,
        );
        match written {
            Ok(()) => Found::Leaves,
            Err(NoCell) => {
                cells.texts.truncate(start);
                Found::Odd
            }
        }
    }

    /// Puts the cells of the record just written into columns; `false` if a cell has no column yet.
    /// Strings with escapes, and numbers of text and JSON columns whose text is not in the canonical
    /// form, are appended to the strings of `cells`.
    pub(super) fn place(
        &mut self,
        record: &JsonRecord,
        contract: &Contract<'_>,
        cells: &mut Cells,
    ) -> bool {
        let Walk {
            leaves, unescaped, ..
        } = &mut self.walk;
        for (leaf, text) in unescaped.drain(..) {
            let start = cells.texts.len();
            cells.texts.push_str(&text);
            match Cell::text(Held::Text, start, cells.texts.len()) {
                Some(cell) => leaves[leaf].cell = cell,
                None => return false,
            }
        }
        let root = record.key();
        if !self.keep_numbers(record, contract, cells) {
            return false;
        }
        self.cells.clear();
        for Leaf { key, cell } in &self.walk.leaves {
            match place(&mut self.places, contract, &record.tape.keys, root, *key) {
                Place::Known(Some(column), _) => self.cells.push((column, *cell)),
                _ => return false,
            }
        }
        true
    }

    /// Gives the cells of text and JSON columns their numbers as the document has them; `false` if
    /// a text is too long for a cell, or a float has digits that are rounded.
    fn keep_numbers(
        &mut self,
        record: &JsonRecord,
        contract: &Contract<'_>,
        cells: &mut Cells,
    ) -> bool {
        let (tape, root) = (&record.tape, record.key());
        for i in 0..self.walk.rewritten.len() {
            let (leaf, node) = self.walk.rewritten[i];
            let Leaf { key, cell } = self.walk.leaves[leaf];
            let held = match cell.held {
                Held::Float => match place(&mut self.places, contract, &tape.keys, root, key) {
                    Place::Known(Some(column), _) if contract.is_text(column) => Held::Written,
                    // The contract counts the values whose digits are rounded.
                    _ if is_long_number(tape.text(tape.node(node)), cell.as_float()) => {
                        return false;
                    }
                    _ => continue,
                },
                held => held,
            };
            let start = cells.texts.len();
            if self.walk.write(tape, node, &mut cells.texts).is_err() {
                return false;
            }
            match Cell::text(held, start, cells.texts.len()) {
                Some(cell) => self.walk.leaves[leaf].cell = cell,
                None => return false,
            }
        }
        true
    }
}

/// Returns the destination of the values of the path `key`.
fn place(
    places: &mut Vec<Place>,
    contract: &Contract<'_>,
    keys: &Keys,
    root: u32,
    key: u32,
) -> Place {
    let at = key as usize;
    if places.len() <= at {
        places.resize(at + 1, Place::Unknown);
    }
    if let Place::Unknown = places[at] {
        let name = keys.column(root, key);
        places[at] = Place::Known(contract.column_called(&name), contract.is_whole(&name));
    }
    places[at]
}
