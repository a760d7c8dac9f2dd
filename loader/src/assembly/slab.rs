//! The memory of one batch: up to five columns, each one run of bytes that is split into pieces for
//! the workers.
//!
//! | kind | column 0 | column 1 | column 2 | column 3 | column 4 |
//! |---|---|---|---|---|---|
//! | rows | `x` | `y` | - | - | - |
//! | images | pixels | `y` | - | - | - |
//! | tokens | ids | segments, when packed | positions, when packed | - | - |
//! | multi | `x` | `y` | pixels | ids | lengths |
//!
//! A worker owns its piece, so that pieces are filled side by side without a lock or a copy; put
//! together again they are the slab. The columns are stored one after another in one run of memory,
//! each from a page's start on.

use bytes::BytesMut;

use crate::device::{Registration, SlabMemory};

/// Most columns of a slab.
pub(crate) const COLUMNS: usize = 5;

/// Columns begin at a multiple of this many bytes.
const PAGE: usize = 4096;

/// Capacity of the slabs of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabShape {
    /// Most rows.
    pub(crate) rows: usize,
    /// Bytes that a row takes in each column.
    pub(crate) row_bytes: [usize; COLUMNS],
}

impl SlabShape {
    /// Bytes of memory that a slab needs.
    pub(crate) fn bytes(self) -> usize {
        let rooms = self.row_bytes.map(|bytes| column_room(bytes, self.rows));
        rooms.iter().sum()
    }
}

/// The memory of one batch, allocated once and filled again and again.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    columns: [BytesMut; COLUMNS],
    /// Registration of the page-locked memory.
    registration: Option<Registration>,
}

/// Some rows of a slab, owned by who fills them.
#[derive(Debug)]
pub(crate) struct SlabPiece {
    /// First row, counted in the slab.
    pub(crate) first: usize,
    /// Number of rows.
    pub(crate) rows: usize,
    columns: [BytesMut; COLUMNS],
}

impl Slab {
    /// A slab in memory of [`SlabShape::bytes`].
    pub(crate) fn new(shape: SlabShape, memory: SlabMemory) -> Self {
        let SlabMemory {
            mut bytes,
            registration,
        } = memory;
        let column = |row_bytes: usize| {
            let mut column = bytes.split_to(column_room(row_bytes, shape.rows));
            column.truncate(row_bytes * shape.rows);
            column
        };
        Self {
            columns: shape.row_bytes.map(column),
            registration,
        }
    }

    /// A column.
    pub(crate) fn column(&self, column: usize) -> &[u8] {
        &self.columns[column]
    }

    /// Returns true if all bytes of `part`, a part of a column, are page-locked.
    pub(crate) fn is_page_locked(&self, part: &[u8]) -> bool {
        let registration = self.registration.as_ref();
        registration.is_some_and(|registration| registration.covers(part))
    }

    /// Takes the first `sizes.sum()` rows off in pieces of these sizes and leaves the rest.
    pub(crate) fn split(
        &mut self,
        shape: SlabShape,
        sizes: impl Iterator<Item = usize>,
    ) -> Vec<SlabPiece> {
        let mut first = 0;
        let mut pieces = Vec::new();
        for rows in sizes {
            let mut columns = self.columns.iter_mut().zip(shape.row_bytes);
            let mut take = || {
                let (column, bytes) = columns.next().expect("every column is taken from once");
                column.split_to(rows * bytes)
            };
            pieces.push(SlabPiece {
                first,
                rows,
                columns: std::array::from_fn(|_| take()),
            });
            first += rows;
        }
        pieces
    }

    /// Puts all pieces that were split off, in any order, back in front of the rest.
    pub(crate) fn join(&mut self, mut pieces: Vec<SlabPiece>) {
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

impl SlabPiece {
    /// The piece's part of every column.
    pub(crate) fn columns(&mut self) -> [&mut [u8]; COLUMNS] {
        self.columns.each_mut().map(|column| &mut column[..])
    }
}

/// Bytes that a column takes with what is left free behind it.
fn column_room(row_bytes: usize, rows: usize) -> usize {
    (row_bytes * rows).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::allocate_slabs;

    const SHAPE: SlabShape = SlabShape {
        rows: 10,
        row_bytes: [12, 4, 0, 0, 0],
    };

    fn slab(shape: SlabShape) -> Slab {
        let (mut memories, _) = allocate_slabs(1, shape.bytes(), None);
        Slab::new(shape, memories.remove(0))
    }

    #[test]
    fn pieces_come_together_where_they_were() {
        let mut slab = slab(SHAPE);
        let places = [0, 1].map(|column| slab.column(column).as_ptr());
        assert!(places.iter().all(|place| place.align_offset(PAGE) == 0));
        for round in 1..4u8 {
            let mut pieces = slab.split(SHAPE, [3, 0, 5].into_iter());
            for piece in &mut pieces {
                let (first, rows) = (u8::try_from(piece.first).unwrap(), piece.rows);
                let [x, y, none, ..] = piece.columns();
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
        let mut slab = slab(shape);
        let pieces = slab.split(shape, std::iter::empty());
        slab.join(pieces);
        assert!(slab.column(0).is_empty());
    }
}
