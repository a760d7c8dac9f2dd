//! Unusual cells of rows of a series, and of the windows that they end.

use std::collections::{BTreeMap, VecDeque};

use crate::UnusualCells;

/// Places of the newest rows with such a cell, oldest first, by column.
type NewestPlaces = BTreeMap<String, VecDeque<i64>>;

/// Unusual cells of the newest rows of an entity, as far back as a window reaches.
#[derive(Debug)]
pub(super) struct NewestCells {
    /// Rows of a window; without windows, 1.
    length: u32,
    entity: Vec<u8>,
    missing: NewestPlaces,
    unknown: NewestPlaces,
    far_outside: NewestPlaces,
    /// Columns with such a cell in the last row.
    capped: Vec<String>,
}

/// Columns with unusual cells in a window, or in a row.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WindowCells {
    /// With the number of its cells.
    missing: Vec<(String, usize)>,
    unknown: Vec<String>,
    far_outside: Vec<String>,
    /// Those of the last row: a fraction of single rows is compared with that of the training rows.
    capped: Vec<String>,
}

impl NewestCells {
    /// For windows of `length` rows.
    pub(super) const fn new(length: u32) -> Self {
        Self {
            length,
            entity: Vec::new(),
            missing: NewestPlaces::new(),
            unknown: NewestPlaces::new(),
            far_outside: NewestPlaces::new(),
            capped: Vec::new(),
        }
    }

    /// Takes the row at `place` of its entity, which comes after the rows before it: `row` of those
    /// that `cells` are of.
    pub(super) fn step(&mut self, entity: &[u8], place: i64, (row, cells): (usize, &UnusualCells)) {
        let is_other = self.entity != entity;
        if is_other {
            self.entity.clear();
            self.entity.extend_from_slice(entity);
        }
        let first = place.saturating_sub(i64::from(self.length) - 1);
        for (newest, cells) in [
            (&mut self.missing, &cells.missing),
            (&mut self.unknown, &cells.unknown),
            (&mut self.far_outside, &cells.far_outside),
        ] {
            if is_other {
                newest.clear();
            }
            let found = cells.iter();
            let found = found.filter(|(_, rows)| rows.binary_search(&row).is_ok());
            for (column, _) in found {
                newest.entry(column.clone()).or_default().push_back(place);
            }
            newest.retain(|_, places| {
                while places.front().is_some_and(|place| *place < first) {
                    places.pop_front();
                }
                !places.is_empty()
            });
        }
        let capped = cells.capped.iter();
        let capped = capped.filter(|(_, rows)| rows.binary_search(&row).is_ok());
        self.capped = capped.map(|(column, _)| column.clone()).collect();
    }

    /// The cells of the window that ends with the last row.
    pub(super) fn of_window(&self) -> WindowCells {
        let names = |newest: &NewestPlaces| newest.keys().cloned().collect();
        let missing = self.missing.iter();
        WindowCells {
            missing: missing
                .map(|(column, places)| (column.clone(), places.len()))
                .collect(),
            unknown: names(&self.unknown),
            far_outside: names(&self.far_outside),
            capped: self.capped.clone(),
        }
    }
}

impl WindowCells {
    /// Adds them to `all` as those of `row`, which is behind the rows there: with each missing cell of its
    /// window, and once for each other column.
    pub(super) fn add_to(self, row: usize, all: &mut UnusualCells) {
        for (column, cells) in self.missing {
            let rows = all.missing.entry(column).or_default();
            rows.extend(std::iter::repeat_n(row, cells));
        }
        for column in self.unknown {
            all.unknown.entry(column).or_default().push(row);
        }
        for column in self.far_outside {
            all.far_outside.entry(column).or_default().push(row);
        }
        for column in self.capped {
            all.capped.entry(column).or_default().push(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(columns: &[(&str, &[usize])]) -> BTreeMap<String, Vec<usize>> {
        let columns = columns.iter();
        columns
            .map(|(name, rows)| ((*name).to_owned(), rows.to_vec()))
            .collect()
    }

    #[test]
    fn a_window_has_the_unusual_cells_of_its_rows_and_none_of_another_entity() {
        let cells = UnusualCells {
            missing: columns(&[("a", &[0, 1, 4]), ("b", &[1])]),
            unknown: columns(&[("kind", &[1, 2])]),
            far_outside: columns(&[("a", &[3])]),
            capped: columns(&[("a", &[1, 3])]),
            truncated: columns(&[]),
        };
        // Entity and place of each row.
        let rows = [(b"x", 0), (b"x", 1), (b"x", 2), (b"x", 3), (b"y", 4)];
        for (length, expected) in [
            (1, ["a1", "a1 b1 ?kind", "?kind", "!a", "a1"]),
            (2, ["a1", "a2 b1 ?kind", "a1 b1 ?kind", "?kind !a", "a1"]),
        ] {
            let mut newest = NewestCells::new(length);
            let mut all = UnusualCells::default();
            for (row, ((entity, place), expected)) in rows.into_iter().zip(expected).enumerate() {
                newest.step(entity, place, (row, &cells));
                let window = newest.of_window();
                let missing = window.missing.iter();
                let missing = missing.map(|(column, cells)| format!("{column}{cells}"));
                let unknown = window.unknown.iter().map(|column| format!("?{column}"));
                let far = window.far_outside.iter().map(|column| format!("!{column}"));
                let found: Vec<String> = missing.chain(unknown).chain(far).collect();
                assert_eq!(found.join(" "), expected, "{length} {row}");
                window.add_to(row, &mut all);
            }
            if length == 1 {
                assert_eq!(all, cells);
            } else {
                assert_eq!(all.capped, cells.capped);
                let flags = all.describe(5, 4, |_| true);
                let flag = "3 of 4 inputs are missing; `kind` has an unknown category";
                assert_eq!(flags[1].as_deref(), Some(flag));
                let flag = "`a` is far beyond the caps of `winsorize`";
                assert!(flags[3].as_deref().unwrap().ends_with(flag), "{flags:?}");
                let flags = all.describe(5, 4, |_| false);
                let flag = "`a` is far outside of the training rows";
                assert!(flags[3].as_deref().unwrap().ends_with(flag), "{flags:?}");
            }
        }
    }
}
