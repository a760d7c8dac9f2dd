//! Fast path for records whose values all fit their columns: no decision, and no tree.

use feedline_schemas::{config::TypeContract, number::MAX_EXACT, record::ColumnType};

use super::{Contract, cut_digits::has_cut_digits, decimals};
use feedline_readers::cell::{Cell, Held};

impl Contract<'_> {
    /// Lands a record whose cells all fit their columns and that misses no required value. Any
    /// other record is left to [`Contract::admit`], which decides the same for the records taken
    /// here.
    ///
    /// `cells` are those of the record by column, nulls included, with strings in `texts`.
    pub(crate) fn take(&mut self, cells: &[(usize, Cell)], texts: &str) -> bool {
        let fits = |(column, cell): &(usize, Cell)| {
            self.columns
                .get(*column)
                .is_some_and(|c| self.is_plain(c.r#type, *cell, texts))
        };
        if !cells.iter().all(fits) || !self.has_wanted(cells) {
            return false;
        }
        self.rows += 1;
        for (column, cell) in cells {
            let met = &mut self.met[*column];
            if cell.held == Held::Null {
                met.null += 1;
                continue;
            }
            met.present += 1;
            match (self.columns[*column].r#type, cell.held) {
                (ColumnType::Int64, Held::Int) => {
                    met.is_big |= cell.as_int().unsigned_abs() > MAX_EXACT;
                }
                (ColumnType::Float64, Held::Float)
                    if self.rules[*column].types == TypeContract::Widen =>
                {
                    let value = cell.as_float();
                    met.is_beyond_decimal |=
                        !decimals::is_surely_exact(value) && decimals::of_float(value).is_none();
                }
                _ => {}
            }
        }
        true
    }

    fn is_plain(&self, column: ColumnType, cell: Cell, texts: &str) -> bool {
        match (column, cell.held) {
            (_, Held::Null)
            | (ColumnType::Bool, Held::Bool)
            | (ColumnType::Int64, Held::Int)
            | (ColumnType::Float64, Held::Float)
            | (
                ColumnType::Utf8,
                Held::Bool | Held::Int | Held::Float | Held::Written | Held::Text | Held::Cell,
            )
            | (ColumnType::Json, Held::Json) => true,
            (ColumnType::Float64, Held::Int) => cell.as_int().unsigned_abs() <= MAX_EXACT,
            (ColumnType::Timestamp, Held::Text) => {
                let text = cell.as_text(texts);
                self.reading.dates.micros(text).is_some() && !has_cut_digits(text)
            }
            _ => false,
        }
    }

    /// Returns true if no required column is null.
    fn has_wanted(&self, cells: &[(usize, Cell)]) -> bool {
        let wanted = self.strict + self.strict_unmade().count();
        if wanted == 0 {
            return true;
        }
        let there = cells
            .iter()
            .filter(|(column, cell)| cell.held != Held::Null && self.rules[*column].is_strict());
        there.count() == wanted
    }

    /// Column number of each path, as they are now.
    pub(crate) fn column_called(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Returns true for a text column.
    pub(crate) fn is_text(&self, column: usize) -> bool {
        let column = self.columns.get(column);
        column.is_some_and(|column| column.r#type == ColumnType::Utf8)
    }

    /// Returns true if the object at the path `name` is stored as one JSON column.
    pub(crate) fn is_whole(&self, name: &str) -> bool {
        self.whole.contains(name)
    }

    /// A pair that changes whenever columns or collapsed objects change.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.columns.len(), self.whole.len())
    }
}
