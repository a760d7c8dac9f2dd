//! Columns of fixed width, row by row: a row is copied at once where columns would be copied cell
//! by cell.
//!
//! A row is its cells in sequence, without gaps, and a validity bit for each nullable column. A
//! missing cell is zero.

use std::ops::Range;

use arrow::{
    array::{Array, ArrayData, ArrayRef, make_array},
    buffer::{BooleanBuffer, MutableBuffer, NullBuffer},
    datatypes::{DataType, Field, Schema},
    error::ArrowError,
};

/// Rows whose cells stay in the nearest cache while columns become rows, or the other way round.
const TILE: usize = 64;

/// Positions of the columns of fixed width in a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Fixed {
    cells: Vec<Cell>,
    /// Bytes of a row.
    bytes: usize,
}

/// Position of a column.
#[derive(Clone, Debug)]
struct Cell {
    /// Number of the column.
    column: usize,
    bytes: Range<usize>,
    /// The byte, and the bit of it, that says whether the cell is missing; absent where none is.
    missing: Option<(usize, u8)>,
}

impl Fixed {
    /// The columns of `schema` that have a fixed width.
    pub(super) fn of(schema: &Schema) -> Self {
        let mut fixed = Self::default();
        for (column, field) in schema.fields().iter().enumerate() {
            if let Some(width) = width_of(field) {
                let bytes = fixed.bytes..fixed.bytes + width;
                fixed.bytes = bytes.end;
                fixed.cells.push(Cell {
                    column,
                    bytes,
                    missing: None,
                });
            }
        }
        let nullable = |cell: &&mut Cell| schema.field(cell.column).is_nullable();
        for (at, cell) in fixed.cells.iter_mut().filter(nullable).enumerate() {
            cell.missing = Some((fixed.bytes + at / 8, 1 << (at % 8)));
        }
        let last = fixed
            .cells
            .iter()
            .filter_map(|cell| cell.missing)
            .next_back();
        fixed.bytes = last.map_or(fixed.bytes, |(byte, _)| byte + 1);
        fixed
    }

    /// Bytes of a row.
    pub(super) fn row_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if `column` is one of them.
    pub(super) fn has(&self, column: usize) -> bool {
        self.cells.iter().any(|cell| cell.column == column)
    }

    /// Bytes of `column` in a row.
    pub(super) fn place(&self, column: usize) -> Option<Range<usize>> {
        let mut cells = self.cells.iter();
        let cell = cells.find(|cell| cell.column == column);
        cell.map(|cell| cell.bytes.clone())
    }

    /// Adds the rows of `columns` to `piles`: each row to the one that `which` says. `tile` is room to work in.
    pub(super) fn add_rows(
        &self,
        columns: &[ArrayRef],
        which: &[usize],
        piles: &mut [Vec<u8>],
        tile: &mut Vec<u8>,
    ) {
        let data: Vec<ArrayData> = self
            .cells
            .iter()
            .map(|c| columns[c.column].to_data())
            .collect();
        for (at, which) in which.chunks(TILE).enumerate() {
            let rows = at * TILE..at * TILE + which.len();
            tile.clear();
            tile.resize(which.len() * self.bytes, 0);
            for (cell, data) in self.cells.iter().zip(&data) {
                let width = cell.bytes.len();
                let start = data.offset() + rows.start;
                let cells = &data.buffers()[0][start * width..][..which.len() * width];
                put(tile, self.bytes, cell.bytes.start, cells, width);
                let (Some(nulls), Some((byte, bit))) = (data.nulls(), cell.missing) else {
                    continue;
                };
                let nulls = nulls.inner().slice(rows.start, which.len());
                for row in (!&nulls).set_indices() {
                    let row = &mut tile[row * self.bytes..][..self.bytes];
                    row[cell.bytes.clone()].fill(0);
                    row[byte] |= bit;
                }
            }
            for (row, pile) in tile.chunks_exact(self.bytes).zip(which) {
                piles[*pile].extend_from_slice(row);
            }
        }
    }

    /// Those columns of `schema` among `wanted` that are of fixed width, each with its number: their cells in the `rows` at
    /// `places`.
    pub(super) fn columns(
        &self,
        schema: &Schema,
        wanted: Option<&[usize]>,
        rows: &[u8],
        places: &[u32],
    ) -> Result<Vec<(usize, ArrayRef)>, ArrowError> {
        let wanted = |cell: &&Cell| wanted.is_none_or(|wanted| wanted.contains(&cell.column));
        let cells: Vec<&Cell> = self.cells.iter().filter(wanted).collect();
        let buffer = |cell: &&Cell| MutableBuffer::from_len_zeroed(places.len() * cell.bytes.len());
        let mut buffers: Vec<MutableBuffer> = cells.iter().map(buffer).collect();
        for (at, places) in places.chunks(TILE).enumerate() {
            for (cell, buffer) in cells.iter().zip(&mut buffers) {
                let width = cell.bytes.len();
                let own = &mut buffer.as_slice_mut()[at * TILE * width..][..places.len() * width];
                take(own, rows, self.bytes, cell.bytes.start, places, width);
            }
        }
        let columns = cells.iter().zip(buffers).map(|(cell, buffer)| {
            let nulls = cell.missing.map(|(byte, bit)| {
                let is_there = |i| rows[places[i] as usize * self.bytes + byte] & bit == 0;
                NullBuffer::new(BooleanBuffer::collect_bool(places.len(), is_there))
            });
            let kind = schema.field(cell.column).data_type().clone();
            let data = ArrayData::builder(kind).len(places.len());
            let data = data.add_buffer(buffer.into());
            let data = data.nulls(nulls.filter(|nulls| nulls.null_count() > 0));
            Ok((cell.column, make_array(data.build()?)))
        });
        columns.collect()
    }
}

/// Bytes of a cell, where all cells of a column have as many.
fn width_of(field: &Field) -> Option<usize> {
    match field.data_type() {
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok().filter(|width| *width > 0),
        other => other.primitive_width(),
    }
}

/// Puts `cells` of `width` bytes at `start` into rows of `stride` bytes.
fn put(rows: &mut [u8], stride: usize, start: usize, cells: &[u8], width: usize) {
    match width {
        1 => put_of::<1>(rows, stride, start, cells),
        4 => put_of::<4>(rows, stride, start, cells),
        8 => put_of::<8>(rows, stride, start, cells),
        16 => put_of::<16>(rows, stride, start, cells),
        _ => {
            let rows = rows.chunks_exact_mut(stride);
            for (row, cell) in rows.zip(cells.chunks_exact(width)) {
                row[start..start + width].copy_from_slice(cell);
            }
        }
    }
}

fn put_of<const N: usize>(rows: &mut [u8], stride: usize, start: usize, cells: &[u8]) {
    let (cells, _) = cells.as_chunks::<N>();
    for (row, cell) in rows.chunks_exact_mut(stride).zip(cells) {
        row[start..start + N].copy_from_slice(cell);
    }
}

/// Overwrites `cells` with the cells of `width` bytes at `start` in the rows at `places`.
fn take(cells: &mut [u8], rows: &[u8], stride: usize, start: usize, places: &[u32], width: usize) {
    match width {
        1 => take_of::<1>(cells, rows, stride, start, places),
        4 => take_of::<4>(cells, rows, stride, start, places),
        8 => take_of::<8>(cells, rows, stride, start, places),
        16 => take_of::<16>(cells, rows, stride, start, places),
        _ => {
            for (cell, place) in cells.chunks_exact_mut(width).zip(places) {
                cell.copy_from_slice(&rows[*place as usize * stride + start..][..width]);
            }
        }
    }
}

fn take_of<const N: usize>(
    cells: &mut [u8],
    rows: &[u8],
    stride: usize,
    start: usize,
    places: &[u32],
) {
    let (cells, _) = cells.as_chunks_mut::<N>();
    for (cell, place) in cells.iter_mut().zip(places) {
        cell.copy_from_slice(&rows[*place as usize * stride + start..][..N]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{
            AsArray, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int16Array, Int32Array,
            RecordBatch, StringArray, UInt8Array, UInt32Array,
        },
        compute::take_record_batch,
        datatypes::UInt8Type,
    };

    use super::*;

    /// Rows of columns of all widths, some with missing cells; more columns have them than a byte
    /// has bits.
    fn rows() -> RecordBatch {
        let cell = |row: i32, column: i32| (row % (column + 3) != 1).then_some(row * 31 + column);
        let byte = |row: i32| u8::try_from(row % 251).unwrap();
        let all = || 0..300;
        let mut columns: Vec<(String, ArrayRef, bool)> = Vec::new();
        for column in 0..9 {
            let cells: Int32Array = all().map(|row| cell(row, column)).collect();
            columns.push((format!("i{column}"), Arc::new(cells), true));
        }
        let short = all().map(|row| cell(row, 2).map(|x| i16::try_from(x % 999).unwrap()));
        let short = short.collect::<Int16Array>();
        columns.push(("short".into(), Arc::new(short), true));
        let text = all().map(|row| Some(format!("{row}")));
        columns.push(("text".into(), Arc::new(text.collect::<StringArray>()), true));
        let split = all().map(byte).collect::<UInt8Array>();
        columns.push(("byte".into(), Arc::new(split), false));
        let float = all().map(|row| cell(row, 4).map(f64::from));
        let float = float.collect::<Float64Array>();
        columns.push(("float".into(), Arc::new(float), true));
        let hash = all().map(|row| [byte(row); 16]);
        let hash = FixedSizeBinaryArray::try_from_iter(hash).unwrap();
        columns.push(("hash".into(), Arc::new(hash), false));
        let three = all().map(|row| cell(row, 5).map(|_| [byte(row), 1, 2]));
        let three = FixedSizeBinaryArray::try_from_sparse_iter_with_size(three, 3).unwrap();
        columns.push(("three".into(), Arc::new(three), true));
        let wide = all().map(|row| cell(row, 6).map(|x| i128::from(x) << 80));
        let wide = wide.collect::<Decimal128Array>();
        columns.push(("wide".into(), Arc::new(wide), true));
        let fields = columns.iter().map(|(name, column, is_nullable)| {
            Field::new(name, column.data_type().clone(), *is_nullable)
        });
        let schema = Schema::new(fields.collect::<Vec<_>>());
        let columns = columns.into_iter().map(|(_, column, _)| column).collect();
        RecordBatch::try_new(Arc::new(schema), columns).unwrap()
    }

    #[test]
    fn rows_of_all_widths_come_back_as_they_were() {
        let rows = rows();
        let schema = rows.schema();
        let text = schema.index_of("text").unwrap();
        let fixed = Fixed::of(&schema);
        assert!(!fixed.has(text) && fixed.has(text + 1));
        // Nine of 4 bytes, and 2, 1, 8, 16, 3 and 16; 13 of them may lack cells.
        assert_eq!(fixed.row_bytes(), 9 * 4 + 2 + 1 + 8 + 16 + 3 + 16 + 2);
        assert_eq!(fixed.place(0), Some(0..4));
        assert_eq!(fixed.place(text), None);

        // In two parts; the second begins within a byte of the validity bits.
        let mut piles = vec![Vec::new(); 2];
        let mut tile = vec![7; 5];
        let mut dealt = vec![Vec::new(); 2];
        for (start, count) in [(0, 77), (77, 223)] {
            let part = rows.slice(start, count);
            let which: Vec<usize> = (0..count).map(|row| (row / 3) % 2).collect();
            fixed.add_rows(part.columns(), &which, &mut piles, &mut tile);
            for (row, pile) in which.iter().enumerate() {
                dealt[*pile].push(u32::try_from(start + row).unwrap());
            }
        }
        for (pile, dealt) in piles.iter().zip(dealt) {
            assert_eq!(pile.len(), dealt.len() * fixed.row_bytes());
            let order: Vec<u32> = (0..u32::try_from(dealt.len()).unwrap()).rev().collect();
            let found = fixed.columns(&schema, None, pile, &order).unwrap();
            let expected = dealt.into_iter().rev().collect::<UInt32Array>();
            let expected = take_record_batch(&rows, &expected).unwrap();
            let names: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
            let all: Vec<usize> = (0..rows.num_columns()).filter(|at| *at != text).collect();
            assert_eq!(names, all);
            for (at, column) in found {
                assert_eq!(&column, expected.column(at), "{}", schema.field(at).name());
            }
        }
    }

    #[test]
    fn columns_that_are_not_wanted_are_not_read() {
        let rows = rows();
        let schema = rows.schema();
        let (fixed, byte) = (Fixed::of(&schema), schema.index_of("byte").unwrap());
        let mut piles = vec![Vec::new()];
        fixed.add_rows(rows.columns(), &[0; 300], &mut piles, &mut Vec::new());
        let found = fixed
            .columns(&schema, Some(&[byte]), &piles[0], &[299, 7])
            .unwrap();
        let [(at, column)] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(*at, byte);
        assert_eq!(column.as_primitive::<UInt8Type>().values()[..], [48, 7]);
    }

    #[test]
    fn what_a_missing_cell_hides_is_not_stored() {
        let hidden = |hidden: i32| {
            let values = vec![1, hidden, 3].into();
            let nulls = NullBuffer::from(vec![true, false, true]);
            let column: ArrayRef = Arc::new(Int32Array::new(values, Some(nulls)));
            let schema = Schema::new(vec![Field::new("a", DataType::Int32, true)]);
            let mut piles = vec![Vec::new()];
            Fixed::of(&schema).add_rows(&[column], &[0; 3], &mut piles, &mut Vec::new());
            piles
        };
        assert_eq!(hidden(5), hidden(-9));
    }
}
