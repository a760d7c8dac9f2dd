//! Batches of staged rows in the order they are written.

use arrow::array::RecordBatch;

use super::matrix::Matrix;

/// Rows in the order they are written.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    pub(crate) rows: RecordBatch,
    /// Their numeric columns that `rows` lacks.
    pub(crate) numbers: Matrix,
}
