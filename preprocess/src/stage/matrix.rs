//! Numbers of 32 bits, row by row: as they lie in scratch, and as shards hold features.
//!
//! A row of them is moved in one piece where columns would be moved cell by cell. A cell that is missing is NaN, which no
//! other cell is.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    buffer::ScalarBuffer,
    datatypes::{DataType, Float32Type, Float64Type},
};

/// Rows whose cells stay in the nearest cache while columns become rows, or the other way round.
const TILE: usize = 64;

/// Rows of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matrix {
    /// Names of the columns.
    names: Arc<[String]>,
    /// `[rows, columns]`.
    cells: ScalarBuffer<f32>,
}

impl Matrix {
    /// Rows of the columns `names`.
    pub(super) fn new(names: Arc<[String]>, cells: Vec<f32>) -> Self {
        Self {
            names,
            cells: cells.into(),
        }
    }

    /// Some of the rows.
    pub(super) fn slice(&self, rows: Range<usize>) -> Self {
        let width = self.names.len();
        Self {
            names: Arc::clone(&self.names),
            cells: self.cells.slice(rows.start * width, rows.len() * width),
        }
    }

    /// Where the column `name` stands in a row, if it is there.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|own| own == name)
    }

    /// Puts the cells of some rows in the column at `place` in place of `cells`: NaN where missing.
    pub(crate) fn fill(&self, place: usize, rows: Range<usize>, cells: &mut Vec<f64>) {
        let width = self.names.len();
        let rows = self.cells[rows.start * width..rows.end * width].chunks_exact(width);
        cells.clear();
        cells.extend(rows.map(|row| f64::from(row[place])));
    }
}

/// Adds the rows of `columns`, which are of floats that 32 bits hold, to `cells`.
pub(super) fn add_rows(columns: &[&ArrayRef], rows: usize, cells: &mut Vec<f32>) {
    let (start, width) = (cells.len(), columns.len());
    cells.resize(start + rows * width, f32::NAN);
    let cells = &mut cells[start..];
    for first in (0..rows).step_by(TILE) {
        let last = (first + TILE).min(rows);
        let tile = &mut cells[first * width..last * width];
        for (place, column) in columns.iter().enumerate() {
            // Never -0.0, which is the same number.
            match column.data_type() {
                DataType::Float32 => {
                    let values = &column.as_primitive::<Float32Type>().values()[first..last];
                    put(tile, width, place, values.iter().map(|x| x + 0.0));
                }
                _ => {
                    let values = &column.as_primitive::<Float64Type>().values()[first..last];
                    #[expect(
                        clippy::cast_possible_truncation,
                        reason = "they have been read from 32 bits"
                    )]
                    put(tile, width, place, values.iter().map(|x| (x + 0.0) as f32));
                }
            }
        }
    }
    for (place, column) in columns.iter().enumerate() {
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        if let Some(nulls) = nulls {
            for row in (!nulls.inner()).set_indices() {
                cells[row * width + place] = f32::NAN;
            }
        }
    }
}

fn put(tile: &mut [f32], width: usize, place: usize, values: impl Iterator<Item = f32>) {
    for (row, value) in tile.chunks_exact_mut(width).zip(values) {
        row[place] = value;
    }
}

/// Puts the columns at `places` of rows of `width` cells in place of `columns`, one behind the other.
pub(super) fn columns_of(cells: &[f32], width: usize, places: &[usize], columns: &mut Vec<f64>) {
    let rows = cells.len() / width.max(1);
    columns.clear();
    columns.resize(rows * places.len(), 0.0);
    for first in (0..rows).step_by(TILE) {
        let last = (first + TILE).min(rows);
        let tile = &cells[first * width..last * width];
        for (at, place) in places.iter().enumerate() {
            let column = &mut columns[at * rows..][first..last];
            for (cell, row) in column.iter_mut().zip(tile.chunks_exact(width)) {
                *cell = f64::from(row[*place]);
            }
        }
    }
}

/// The rows at `places`, in that order.
pub(super) fn taken(cells: &[f32], width: usize, places: &[u32]) -> Vec<f32> {
    let mut rows = Vec::with_capacity(places.len() * width);
    for place in places {
        let start = *place as usize * width;
        rows.extend_from_slice(&cells[start..start + width]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, Float64Array};

    use super::*;

    /// Three columns of 200 rows: cell `r.c`, some missing, some -0.0.
    fn columns() -> Vec<ArrayRef> {
        let cell = |row: u32, column: u32| match (row + column) % 7 {
            0 => None,
            1 => Some(-0.0),
            _ => Some(f64::from(row) + f64::from(column) / 4.0),
        };
        let of = |column: u32| (0..200).map(move |row| cell(row, column));
        #[expect(clippy::cast_possible_truncation, reason = "quarters are exact")]
        let short = of(1).map(|cell| cell.map(|x| x as f32));
        vec![
            Arc::new(of(0).collect::<Float64Array>()),
            Arc::new(short.collect::<Float32Array>()),
            Arc::new(of(2).collect::<Float64Array>()),
        ]
    }

    fn expected(row: usize, column: usize) -> Option<u64> {
        let (row, column) = (u32::try_from(row).unwrap(), u32::try_from(column).unwrap());
        match (row + column) % 7 {
            0 => None,
            1 => Some(0),
            _ => Some((f64::from(row) + f64::from(column) / 4.0).to_bits()),
        }
    }

    fn bits(cell: f64) -> Option<u64> {
        (!cell.is_nan()).then_some(cell.to_bits())
    }

    #[test]
    fn columns_become_rows_and_columns_again() {
        let columns = columns();
        let columns: Vec<&ArrayRef> = columns.iter().collect();
        let mut cells = vec![1.0; 3];
        add_rows(&columns, 200, &mut cells);
        assert_eq!(cells.len(), 603);
        let mut back = vec![9.0];
        columns_of(&cells[3..], 3, &[2, 0], &mut back);
        for row in 0..200 {
            assert_eq!(bits(back[row]), expected(row, 2), "{row}");
            assert_eq!(bits(back[200 + row]), expected(row, 0), "{row}");
        }
    }

    #[test]
    fn rows_are_taken_and_cut() {
        let columns = columns();
        let columns: Vec<&ArrayRef> = columns.iter().collect();
        let mut cells = Vec::new();
        add_rows(&columns, 200, &mut cells);
        let places: Vec<u32> = (0..200).rev().collect();
        let names: Arc<[String]> = ["a", "b", "c"].map(str::to_owned).into();
        let matrix = Matrix::new(names, taken(&cells, 3, &places)).slice(50..60);
        assert_eq!((matrix.place("b"), matrix.place("d")), (Some(1), None));
        let mut found = Vec::new();
        matrix.fill(1, 2..5, &mut found);
        let found: Vec<_> = found.into_iter().map(bits).collect();
        assert_eq!(found, [147, 146, 145].map(|row| expected(row, 1)));
        assert_eq!(Matrix::default().place("a"), None);
    }
}
