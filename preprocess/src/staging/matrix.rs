//! Matrix of 32-bit numbers, row by row, in the format of scratch files and shards.
//!
//! A row is copied at once where columns would be copied cell by cell. A missing cell is NaN, which
//! no other cell is.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    buffer::ScalarBuffer,
    datatypes::{DataType, Float32Type, Float64Type},
};

/// Rows whose cells stay in the nearest cache while columns become rows, or the other way round.
const TILE: usize = 64;

/// Rows of numbers. They stay where they were read to: their order is one of places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matrix {
    /// Names of the columns.
    names: Arc<[String]>,
    /// `[rows, columns]`, in any order.
    cells: Arc<Cells>,
    /// Index of each row among them.
    places: ScalarBuffer<u32>,
}

impl Matrix {
    /// The rows at `places` of the columns `names`.
    pub(super) fn new(names: Arc<[String]>, cells: Cells, places: ScalarBuffer<u32>) -> Self {
        Self {
            names,
            cells: Arc::new(cells),
            places,
        }
    }

    /// Some of the rows.
    pub(super) fn slice(&self, rows: Range<usize>) -> Self {
        Self {
            names: Arc::clone(&self.names),
            cells: Arc::clone(&self.cells),
            places: self.places.slice(rows.start, rows.len()),
        }
    }

    /// Index of the column `name` in a row, if it exists.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|own| own == name)
    }

    /// The cells of a row in all columns; none without columns.
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        let width = self.names.len();
        if width == 0 {
            return &[];
        }
        let first = self.places[row] as usize * width;
        &self.cells.cells[first..first + width]
    }

    /// Puts the cells of some rows in the column at `place` in place of `cells`: NaN where missing.
    pub(crate) fn fill(&self, place: usize, rows: Range<usize>, cells: &mut Vec<f64>) {
        let (width, all) = (self.names.len(), &self.cells.cells);
        let rows = self.places[rows].iter().map(|row| *row as usize * width);
        cells.clear();
        cells.extend(rows.map(|row| f64::from(all[row + place])));
    }
}

/// Reusable memory for cells: fresh pages cost more than the cells written to them.
#[derive(Debug, Default)]
pub(super) struct Cells {
    cells: Vec<f32>,
    pool: Pool,
}

impl Cells {
    /// Makes room for `count` cells and has `fill` write them; old cells may still be in it.
    pub(super) fn read<E>(
        pool: &Pool,
        count: usize,
        fill: impl FnOnce(&mut [f32]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut own = Self {
            cells: pool.lock().pop().unwrap_or_default(),
            pool: pool.clone(),
        };
        own.cells.resize(count, 0.0);
        fill(&mut own.cells)?;
        Ok(own)
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        self.pool.lock().push(std::mem::take(&mut self.cells));
    }
}

/// Unused memory for cells.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool(Arc<Mutex<Vec<Vec<f32>>>>);

impl Pool {
    fn lock(&self) -> impl std::ops::DerefMut<Target = Vec<Vec<f32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds the rows of `columns`, which are of floats that 32 bits hold, to `piles`: each row to the one that `which` says. `tile`
/// is room to work in.
pub(super) fn add_rows(
    columns: &[&ArrayRef],
    which: &[usize],
    piles: &mut [Vec<f32>],
    tile: &mut Vec<f32>,
) {
    let width = columns.len();
    if width == 0 {
        return;
    }
    tile.resize(TILE * width, 0.0);
    for (at, which) in which.chunks(TILE).enumerate() {
        let rows = at * TILE..at * TILE + which.len();
        let tile = &mut tile[..which.len() * width];
        for (place, column) in columns.iter().enumerate() {
            put_column(tile, width, place, column, rows.clone());
        }
        for (row, pile) in tile.chunks_exact(width).zip(which) {
            piles[*pile].extend_from_slice(row);
        }
    }
}

/// Puts `rows` of a column at this `place` of the rows of `tile`.
fn put_column(tile: &mut [f32], width: usize, place: usize, column: &ArrayRef, rows: Range<usize>) {
    // Never -0.0, which is the same number.
    match column.data_type() {
        DataType::Float32 => {
            let values = &column.as_primitive::<Float32Type>().values()[rows.clone()];
            put(tile, width, place, values.iter().map(|x| x + 0.0));
        }
        _ => {
            let values = &column.as_primitive::<Float64Type>().values()[rows.clone()];
            #[expect(
                clippy::cast_possible_truncation,
                reason = "they have been read from 32 bits"
            )]
            put(tile, width, place, values.iter().map(|x| (x + 0.0) as f32));
        }
    }
    if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
        let nulls = nulls.inner().slice(rows.start, rows.len());
        for row in (!&nulls).set_indices() {
            tile[row * width + place] = f32::NAN;
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
        let mut piles = [vec![1.0; 3], Vec::new()];
        let mut tile = Vec::new();
        // The odd ones apart, to see that they are left out.
        let which: Vec<usize> = (0..200).map(|row| row % 2).collect();
        add_rows(&columns, &which, &mut piles, &mut tile);
        assert_eq!((piles[0].len(), piles[1].len()), (303, 300));
        for (at, row) in (1..200).step_by(2).enumerate() {
            let found: Vec<_> = piles[1][at * 3..][..3].iter().collect();
            let found: Vec<_> = found.into_iter().map(|x| bits(f64::from(*x))).collect();
            assert_eq!(
                found,
                [0, 1, 2].map(|column| expected(row, column)),
                "{row}"
            );
        }
        piles[0].truncate(3);
        add_rows(&columns, &[0; 200], &mut piles[..1], &mut tile);
        let [cells, _] = piles;
        assert_eq!(cells.len(), 603);
        let mut back = vec![9.0];
        columns_of(&cells[3..], 3, &[2, 0], &mut back);
        for row in 0..200 {
            assert_eq!(bits(back[row]), expected(row, 2), "{row}");
            assert_eq!(bits(back[200 + row]), expected(row, 0), "{row}");
        }
    }

    #[test]
    fn rows_are_where_their_places_say_and_memory_is_used_again() {
        let columns = columns();
        let columns: Vec<&ArrayRef> = columns.iter().collect();
        let mut piles = [Vec::new()];
        add_rows(&columns, &[0; 200], &mut piles, &mut Vec::new());
        let [cells] = piles;
        let places: Vec<u32> = (0..200).rev().collect();
        let names: Arc<[String]> = ["a", "b", "c"].map(str::to_owned).into();
        let pool = Pool::default();
        let read = |count: usize| {
            Cells::read(&pool, count, |room| {
                room.copy_from_slice(&cells[..count]);
                Ok::<_, ()>(())
            })
        };
        drop(read(300));
        assert_eq!(pool.lock().len(), 1);
        let matrix = Matrix::new(names, read(600).unwrap(), places.into()).slice(50..60);
        assert!(pool.lock().is_empty());
        assert_eq!((matrix.place("b"), matrix.place("d")), (Some(1), None));
        let mut found = Vec::new();
        matrix.fill(1, 2..5, &mut found);
        let found: Vec<_> = found.into_iter().map(bits).collect();
        assert_eq!(found, [147, 146, 145].map(|row| expected(row, 1)));
        assert_eq!(Matrix::default().place("a"), None);
        drop(matrix);
        assert_eq!(pool.lock().len(), 1);
    }
}
