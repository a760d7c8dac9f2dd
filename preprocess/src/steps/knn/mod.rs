//! Missing cells from the nearest of a fixed set of reference rows.
//!
//! The distance of two rows is that of scikit-learn's `nan_euclidean_distances`: over the columns that both have,
//! `sqrt(D / shared · Σ (x - y)²)`, `D` being all columns; rows that share none have none. A missing cell becomes the mean
//! over the `k` nearest reference rows that have it, the earlier of two that are equally near. Where none shares a column
//! it becomes the column's mean. An infinite cell has no distance, gives no value and is not
//! filled.
//!
//! The sum is a product of masked matrices, taken as one so that nothing cancels: a query is multiplied by a block of
//! 32 reference rows, whose mask turns what is missing into a difference of 0. No distance is kept: a block's are
//! compared with the worst neighbour so far of each query, and only those that may be nearer are looked at one by one. A
//! block stays in the nearest cache for 512 queries.
//!
//! Each sum is taken in the order of the columns by fused products, which round alike on every machine, so a row gets the same
//! bits alone, among a million, and in any number of threads.
//!
//! Cost: two instructions for each eight (AVX-512) or four (AVX2) columns of pairs; memory: 16 bytes a cell of the reference,
//! and the neighbours of the queries at hand.

mod distance;
mod nearest;

use feedline_schemas::config::NeighbourWeights;
use macerator::AutoArch;

use distance::{Block, LANES, Query, Scan};
use nearest::Nearest;

/// Queries that share a block while it is in the cache.
const QUERIES: usize = 512;

/// Neighbours held for the queries at hand, at most, unless one query alone has more.
const HELD: usize = 1 << 20;

/// Reference rows to look for neighbours among.
///
/// ```
/// use feedline_preprocess::knn::Neighbours;
/// use feedline_schemas::config::NeighbourWeights;
///
/// let (area, price) = (vec![50.0, 100.0, 110.0], vec![1.0, 3.0, 5.0]);
/// let means = vec![87.0, 3.0];
/// let reference = Neighbours::new(vec![area, price], means, 2, NeighbourWeights::Uniform);
/// let mut rows = [vec![105.0, 52.0], vec![f64::NAN, 9.0]];
/// reference.fill(&mut rows);
/// // The price of the first row is the mean over its two nearest neighbours.
/// assert_eq!(rows[1], [4.0, 9.0]);
/// ```
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// Most neighbours of a cell.
    k: usize,
    weights: NeighbourWeights,
    /// A column's mean, for rows that are near to none.
    means: Vec<f64>,
    /// Cells of the reference rows, column by column; NaN where missing.
    columns: Vec<Vec<f64>>,
    blocks: Vec<Block>,
}

impl Neighbours {
    /// Creates a reference from the rows of `columns`, which are of one length; NaN is missing.
    /// `means` are those of the columns, `k` is the number of neighbours per value.
    #[must_use]
    pub fn new(
        columns: Vec<Vec<f64>>,
        means: Vec<f64>,
        k: usize,
        weights: NeighbourWeights,
    ) -> Self {
        let rows = columns.first().map_or(0, Vec::len);
        let firsts = (0..rows).step_by(LANES);
        Self {
            k: k.max(1),
            weights,
            means,
            blocks: firsts.map(|first| Block::new(&columns, first)).collect(),
            columns,
        }
    }

    /// Fills the missing cells of rows, given column by column in the order of the reference. The columns are of one length.
    pub fn fill(&self, columns: &mut [Vec<f64>]) {
        let rows = columns.first().map_or(0, Vec::len);
        let incomplete = (0..rows).filter(|row| columns.iter().any(|cells| cells[*row].is_nan()));
        let incomplete: Vec<usize> = incomplete.collect();
        let at_once = HELD / (self.k * self.columns.len().max(1));
        for rows in incomplete.chunks(at_once.clamp(1, QUERIES)) {
            let queries: Vec<Query> = rows.iter().map(|row| Query::new(columns, *row)).collect();
            let found = self.nearest(&queries);
            for ((row, query), found) in rows.iter().zip(&queries).zip(&found) {
                for (column, nearest) in query.missing.iter().zip(found) {
                    columns[*column][*row] = self.value(*column, nearest);
                }
            }
        }
    }

    /// The neighbours of each missing cell of the queries.
    fn nearest(&self, queries: &[Query]) -> Vec<Vec<Nearest>> {
        let none = |query: &Query| vec![Nearest::new(self.k); query.missing.len()];
        let mut found: Vec<Vec<Nearest>> = queries.iter().map(none).collect();
        for (block, first) in self.blocks.iter().zip((0..).step_by(LANES)) {
            AutoArch::new().dispatch(Scan {
                block,
                first,
                queries,
                found: &mut found,
            });
        }
        found
    }

    /// Value for a missing cell of `column`.
    fn value(&self, column: usize, nearest: &Nearest) -> f64 {
        let cells = &self.columns[column];
        let of = |weight: &dyn Fn(f64) -> f64| {
            let (mut sum, mut total) = (0.0, 0.0);
            for (distance, row) in nearest.iter() {
                let weight = weight(distance);
                sum += cells[row] * weight;
                total += weight;
            }
            sum / total
        };
        match (nearest.best(), self.weights) {
            (None, _) => self.means[column],
            (Some(_), NeighbourWeights::Uniform) => of(&|_| 1.0),
            (Some(best), NeighbourWeights::Distance) if best > 0.0 => {
                of(&|distance| 1.0 / distance.sqrt())
            }
            // Those at distance 0 count alone.
            (Some(_), NeighbourWeights::Distance) => {
                of(&|distance| f64::from(u8::from(distance <= 0.0)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
