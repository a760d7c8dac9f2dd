//! Place of a piece: its files, and its rows in them.

use std::{ops::Range, path::Path, sync::Arc};

use arrow::buffer::BooleanBuffer;

/// Rows of one split and bucket.
#[derive(Clone, Debug)]
pub(super) struct SpillPiece {
    /// File of its numbers, row by row, followed by the fixed-width cells of its other columns.
    pub(super) file: Arc<Path>,
    /// The first byte of them.
    pub(super) start: u64,
    /// File of the columns of variable width; absent where there are none.
    pub(super) varied: Option<Varied>,
    pub(super) bucket: usize,
    pub(super) rows: usize,
    pub(super) origins: Vec<u64>,
    /// Rows that are no copies; absent for all.
    pub(super) kept: Option<BooleanBuffer>,
}

/// Place of a piece's columns of variable width, stored as an Arrow batch.
#[derive(Clone, Debug)]
pub(super) struct Varied {
    pub(super) file: Arc<Path>,
    /// Batch in the file.
    pub(super) index: usize,
    /// Bytes of the file that hold it.
    pub(super) bytes: Range<u64>,
}

impl SpillPiece {
    /// Rows that are no copies.
    pub(super) fn kept_rows(&self) -> usize {
        let kept = self.kept.as_ref();
        kept.map_or(self.rows, BooleanBuffer::count_set_bits)
    }
}
