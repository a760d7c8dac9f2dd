//! The memory of one batch: up to three columns, each one run of bytes that is cut into pieces for the workers.
//!
//! | kind | column 0 | column 1 | column 2 |
//! |---|---|---|---|
//! | rows | `x` | `y` | - |
//! | pictures | pixels | `y` | - |
//! | tokens | ids | segments, when packed | positions, when packed |
//!
//! A worker owns its piece, so that pieces are filled side by side without a lock or a copy; put together again they
//! are the slab. Each column begins on a page, as registering it with a device wants.

use bytes::{Buf as _, BytesMut};

/// Most columns of a slab.
pub(crate) const COLUMNS: usize = 3;

/// Columns begin at a multiple of this many bytes.
const PAGE: usize = 4096;

/// What the slabs of a ring have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabShape {
    /// Most rows.
    pub(crate) rows: usize,
    /// Bytes that a row takes in each column.
    pub(crate) row_bytes: [usize; COLUMNS],
}

/// The memory of one batch, allocated once and filled again and again.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    columns: [BytesMut; COLUMNS],
}

/// Some rows of a slab, owned by who fills them.
#[derive(Debug)]
pub(crate) struct Piece {
    /// First row, counted in the slab.
    pub(crate) first: usize,
    /// Number of rows.
    pub(crate) rows: usize,
    columns: [BytesMut; COLUMNS],
}

impl Slab {
    /// Allocates a slab, all zero. Pages that are never filled take no memory.
    pub(crate) fn new(shape: SlabShape) -> Self {
        Self {
            columns: shape.row_bytes.map(|bytes| allocate(bytes * shape.rows)),
        }
    }

    /// A column.
    pub(crate) fn column(&self, column: usize) -> &[u8] {
        &self.columns[column]
    }

    /// Takes the first `sizes.sum()` rows off in pieces of these sizes and leaves the rest.
    pub(crate) fn split(
        &mut self,
        shape: SlabShape,
        sizes: impl Iterator<Item = usize>,
    ) -> Vec<Piece> {
        let mut first = 0;
        let mut pieces = Vec::new();
        for rows in sizes {
            let mut columns = self.columns.iter_mut().zip(shape.row_bytes);
            let mut take = || {
                let (column, bytes) = columns.next().expect("every column is taken from once");
                column.split_to(rows * bytes)
            };
            pieces.push(Piece {
                first,
                rows,
                columns: [take(), take(), take()],
            });
            first += rows;
        }
        pieces
    }

    /// Puts all pieces that were split off, in any order, back in front of the rest.
    pub(crate) fn join(&mut self, mut pieces: Vec<Piece>) {
        pieces.sort_by_key(|piece| piece.first);
        let rest = std::mem::take(&mut self.columns);
        for piece in pieces {
            for (to, column) in self.columns.iter_mut().zip(piece.columns) {
                to.unsplit(column);
            }
        }
        for (to, column) in self.columns.iter_mut().zip(rest) {
            to.unsplit(column);
        }
    }
}

impl Piece {
    /// The piece's part of every column.
    pub(crate) fn columns(&mut self) -> [&mut [u8]; COLUMNS] {
        self.columns.each_mut().map(|column| &mut column[..])
    }
}

fn allocate(bytes: usize) -> BytesMut {
    if bytes == 0 {
        return BytesMut::new();
    }
    let mut memory = BytesMut::zeroed(bytes + PAGE);
    let skip = memory.as_ptr().align_offset(PAGE);
    memory.advance(skip.min(PAGE));
    memory.truncate(bytes);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: SlabShape = SlabShape {
        rows: 10,
        row_bytes: [12, 4, 0],
    };

    #[test]
    fn pieces_come_together_where_they_were() {
        let mut slab = Slab::new(SHAPE);
        let places = [0, 1].map(|column| slab.column(column).as_ptr());
        assert!(places.iter().all(|place| place.align_offset(PAGE) == 0));
        for round in 1..4u8 {
            let mut pieces = slab.split(SHAPE, [3, 0, 5].into_iter());
            for piece in &mut pieces {
                let (first, rows) = (u8::try_from(piece.first).unwrap(), piece.rows);
                let [x, y, none] = piece.columns();
                assert_eq!((x.len(), y.len(), none.len()), (rows * 12, rows * 4, 0));
                x.fill(10 * round + first);
                y.fill(first);
            }
            pieces.reverse();
            slab.join(pieces);
            let expected = [vec![10 * round; 36], vec![10 * round + 3; 60], vec![0; 24]].concat();
            assert_eq!(slab.column(0), expected);
            assert_eq!(
                slab.column(1),
                [vec![0; 12], vec![3; 20], vec![0; 8]].concat()
            );
            assert_eq!(
                [0, 1].map(|column| slab.column(column).as_ptr()),
                places,
                "nothing was copied"
            );
        }
    }

    #[test]
    fn a_slab_of_no_rows_is_whole() {
        let shape = SlabShape { rows: 0, ..SHAPE };
        let mut slab = Slab::new(shape);
        let pieces = slab.split(shape, std::iter::empty());
        slab.join(pieces);
        assert!(slab.column(0).is_empty());
    }
}
