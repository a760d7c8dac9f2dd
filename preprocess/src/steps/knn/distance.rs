//! Distances of queries to a block of reference rows, in registers.

use macerator::{Simd, WithSimd};

use super::nearest::Nearest;

/// Reference rows that are gone over together: few enough that a block of 50 columns stays in the nearest cache.
pub(super) const LANES: usize = 32;

/// Lanes of one register, or of two.
const PART: usize = 8;

/// More than the rounding of a limit.
const SLACK: f64 = 1.0 + 1e-12;

type Lanes = [[f64; PART]; LANES / PART];

/// Some reference rows.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Of each column: cells, 0 where missing, and what they are multiplied by, 1 where they are there.
    columns: Vec<[Lanes; 2]>,
    /// Columns that each row has, as bits.
    masks: Vec<Vec<u64>>,
}

impl Block {
    /// The rows from `first` on, as far as there are any.
    pub(super) fn new(columns: &[Vec<f64>], first: usize) -> Self {
        let rows = columns
            .first()
            .map_or(0, |cells| (cells.len() - first).min(LANES));
        let column = |cells: &Vec<f64>| {
            let [mut values, mut there] = [Lanes::default(); 2];
            for (lane, cell) in cells[first..first + rows].iter().enumerate() {
                if cell.is_finite() {
                    values[lane / PART][lane % PART] = *cell;
                    there[lane / PART][lane % PART] = 1.0;
                }
            }
            [values, there]
        };
        let mask = |row: usize| mask(columns, first + row);
        Self {
            columns: columns.iter().map(column).collect(),
            masks: (0..rows).map(mask).collect(),
        }
    }
}

/// The columns whose cells are finite numbers, as bits.
fn mask(columns: &[Vec<f64>], row: usize) -> Vec<u64> {
    let mut mask = vec![0; columns.len().div_ceil(64)];
    for (column, cells) in columns.iter().enumerate() {
        mask[column / 64] |= u64::from(cells[row].is_finite()) << (column % 64);
    }
    mask
}

/// A row with missing cells.
#[derive(Debug)]
pub(super) struct Query {
    /// The columns it has, with its cells.
    there: Vec<(usize, f64)>,
    mask: Vec<u64>,
    /// The columns it lacks.
    pub(super) missing: Vec<usize>,
}

impl Query {
    pub(super) fn new(columns: &[Vec<f64>], row: usize) -> Self {
        let cells = columns.iter().map(|cells| cells[row]).enumerate();
        let missing = cells.clone().filter(|(_, cell)| cell.is_nan());
        Self {
            mask: mask(columns, row),
            missing: missing.map(|(column, _)| column).collect(),
            there: cells.filter(|(_, cell)| cell.is_finite()).collect(),
        }
    }

    /// Number of columns that the query shares with a row of this mask.
    fn shared(&self, mask: &[u64]) -> u32 {
        let both = self.mask.iter().zip(mask);
        both.map(|(a, b)| (a & b).count_ones()).sum()
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "tables have fewer than 2^53 columns"
    )]
    fn columns(&self) -> f64 {
        self.there.len() as f64
    }
}

/// One block, looked through for every query.
pub(super) struct Scan<'a> {
    pub(super) block: &'a Block,
    /// The block's first row.
    pub(super) first: usize,
    pub(super) queries: &'a [Query],
    /// Of each query, the nearest of each missing cell.
    pub(super) found: &'a mut [Vec<Nearest>],
}

impl WithSimd for Scan<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        for (query, found) in self.queries.iter().zip(self.found) {
            let sums = distances(&query.there, &self.block.columns);
            // Fewer shared columns make a distance larger, so none below is lost.
            let worst = found.iter().map(Nearest::limit).fold(0.0, f64::max);
            let limit = worst * query.columns() * SLACK;
            let any = |part: &[f64; PART]| {
                let below = part.iter().map(|sum| u8::from(*sum < limit));
                below.fold(0, |any, below| any | below) != 0
            };
            for (sums, first) in sums.iter().zip((0..).step_by(PART)) {
                if any(sums) {
                    self.block.look(first, sums, self.first, query, found);
                }
            }
        }
    }
}

impl Block {
    /// Looks at the rows of one register.
    #[inline(never)]
    fn look(
        &self,
        lane: usize,
        sums: &[f64; PART],
        first: usize,
        query: &Query,
        found: &mut [Nearest],
    ) {
        for ((sum, mask), lane) in sums.iter().zip(self.masks.iter().skip(lane)).zip(lane..) {
            let shared = query.shared(mask);
            if shared == 0 {
                continue;
            }
            let distance = sum / f64::from(shared);
            for (column, nearest) in query.missing.iter().zip(found.iter_mut()) {
                if mask[column / 64] >> (column % 64) & 1 == 1 {
                    nearest.see(distance, first + lane);
                }
            }
        }
    }
}

/// Sums over the shared columns of the squares of the differences between a query and the rows of a
/// block. The registers are separate variables: in a loop over them the sums would not stay in
/// them.
#[inline(always)]
fn distances(query: &[(usize, f64)], columns: &[[Lanes; 2]]) -> Lanes {
    let [mut a, mut b, mut c, mut d] = Lanes::default();
    for (column, cell) in query {
        let [values, there] = &columns[*column];
        add(&mut a, *cell, &values[0], &there[0]);
        add(&mut b, *cell, &values[1], &there[1]);
        add(&mut c, *cell, &values[2], &there[2]);
        add(&mut d, *cell, &values[3], &there[3]);
    }
    [a, b, c, d]
}

#[inline(always)]
fn add(sums: &mut [f64; PART], cell: f64, values: &[f64; PART], there: &[f64; PART]) {
    for ((sum, value), there) in sums.iter_mut().zip(values).zip(there) {
        let difference = cell.mul_add(*there, -value);
        *sum = difference.mul_add(difference, *sum);
    }
}
