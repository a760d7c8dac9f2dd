//! Limits on the memory that a Parquet file may take.
//!
//! A page states its decompressed size, and a reader trusts it and allocates that much memory. So
//! the head of each page is read and checked before the page. A dictionary stores a string once,
//! and any number of rows may refer to it. So strings are read as views of 16 bytes per row, and
//! rows become values in portions.

use std::{
    io::{self, Read},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef},
};
use bytes::Bytes;
use parquet::{
    errors::ParquetError,
    file::{
        metadata::ParquetMetaData,
        reader::{ChunkReader, Length},
    },
};

/// Maximum bytes of a page, decompressed. Writers make pages of 1 MiB; DuckDB goes up to 100 MB.
const PAGE: i64 = 256 << 20;
/// Most bytes of a row, as for CSV; a portion of rows has no more.
pub(crate) const ROW: u64 = 64 << 20;
/// Most items of lists that a row may have on average in a column.
const ITEMS: i64 = 16 << 20;
/// Maximum bytes of the head of a page, which holds the least and the largest value.
const HEAD: usize = 1 << 20;
/// Structs in structs in the head of a page, at most.
const DEPTH: u32 = 8;

/// Refuses a file whose rows have lists that are too long, by its footer.
///
/// # Errors
/// The reason.
pub(crate) fn check_items(file: &ParquetMetaData) -> Result<(), String> {
    for group in file.row_groups() {
        let most = group.num_rows().max(1).saturating_mul(ITEMS);
        for column in group.columns() {
            if column.column_descr().max_rep_level() > 0 && column.num_values() > most {
                return Err(format!(
                    "column `{}` has {} items in {} rows, more than {ITEMS} a row; split its lists",
                    column.column_path().string(),
                    column.num_values(),
                    group.num_rows()
                ));
            }
        }
    }
    Ok(())
}

/// Returns the number of rows to decode at a time: `most`, or fewer if their lists have over 16 Mi
/// items.
pub(crate) fn batch_rows(file: &ParquetMetaData, most: usize) -> usize {
    let mut rows = most;
    for group in file.row_groups() {
        for column in group.columns() {
            if column.column_descr().max_rep_level() > 0 {
                let items = column.num_values() / group.num_rows().max(1);
                let fit = usize::try_from(ITEMS / items.max(1)).unwrap_or(1);
                rows = rows.min(fit.max(1));
            }
        }
    }
    rows
}

/// `schema` with every text and every run of bytes as a view.
pub(crate) fn with_views(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(viewed);
    Arc::new(Schema::new(fields.collect::<Fields>()))
}

fn viewed(field: &FieldRef) -> FieldRef {
    let data_type = view(field.data_type());
    Arc::new(Field::clone(field).with_data_type(data_type))
}

fn view(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Dictionary(_, inner) => view(inner),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(viewed).collect()),
        DataType::List(item) => DataType::List(viewed(item)),
        DataType::LargeList(item) => DataType::LargeList(viewed(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(viewed(item), *len),
        DataType::Map(entries, sorted) => DataType::Map(viewed(entries), *sorted),
        other => other.clone(),
    }
}

/// Bytes of each row, as text and numbers of 8 bytes; at least 1 each.
pub(crate) fn row_bytes(batch: &RecordBatch) -> Vec<u64> {
    let mut rows = vec![0; batch.num_rows()];
    for column in batch.columns() {
        for (row, bytes) in rows.iter_mut().zip(cell_bytes(column)) {
            *row += bytes;
        }
    }
    rows
}

fn cell_bytes(array: &ArrayRef) -> Vec<u64> {
    let lists = |items: &ArrayRef, ends: &mut dyn Iterator<Item = (usize, usize)>| {
        let items = cell_bytes(items);
        ends.map(|(start, end)| 1 + items[start..end].iter().sum::<u64>())
            .collect()
    };
    match array.data_type() {
        DataType::Null => vec![1; array.len()],
        // The length of a text is in the first bytes of its view.
        DataType::Utf8View => lengths(array.as_string_view().views()),
        DataType::BinaryView => lengths(array.as_binary_view().views()),
        DataType::FixedSizeBinary(bytes) => {
            vec![u64::try_from(*bytes).unwrap_or(0) + 1; array.len()]
        }
        DataType::Struct(_) => {
            let mut rows = vec![1; array.len()];
            for column in array.as_struct().columns() {
                for (row, bytes) in rows.iter_mut().zip(cell_bytes(column)) {
                    *row += bytes;
                }
            }
            rows
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let ends = list.value_offsets().windows(2);
            let ends = ends.map(|ends| (index(ends[0].into()), index(ends[1].into())));
            lists(list.values(), &mut { ends })
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let ends = list.value_offsets().windows(2);
            let ends = ends.map(|ends| (index(ends[0]), index(ends[1])));
            lists(list.values(), &mut { ends })
        }
        DataType::FixedSizeList(_, length) => {
            let length = index((*length).into());
            let list = array.as_fixed_size_list();
            let ends = (0..list.len()).map(|row| (row * length, (row + 1) * length));
            lists(list.values(), &mut { ends })
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            let ends = map.value_offsets().windows(2);
            let ends = ends.map(|ends| (index(ends[0].into()), index(ends[1].into())));
            lists(&entries, &mut { ends })
        }
        _ => vec![8; array.len()],
    }
}

/// Converts an offset into an array, which is never below 0.
fn index(offset: i64) -> usize {
    usize::try_from(offset).unwrap_or(0)
}

fn lengths(views: &[u128]) -> Vec<u64> {
    let length = |view: &u128| 1 + u64::from(u32::try_from(view & 0xffff_ffff).unwrap_or(0));
    views.iter().map(length).collect()
}

/// A file whose pages are checked by their heads.
#[derive(Debug)]
pub(crate) struct LimitedPages<R>(pub R);

impl<R: Length> Length for LimitedPages<R> {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl<R: ChunkReader> ChunkReader for LimitedPages<R> {
    type T = PageReader<R::T>;

    /// Returns a reader of the head of a page. Everything else is read by
    /// [`get_bytes`](Self::get_bytes) once the footer is known.
    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(PageReader {
            inner: self.0.get_read(start)?,
            head: None,
            at: 0,
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.0.get_bytes(start, length)
    }
}

/// Reads a page, whose head is checked before its first byte is returned.
#[derive(Debug)]
pub(crate) struct PageReader<T> {
    inner: T,
    head: Option<Vec<u8>>,
    /// Bytes of the head already returned.
    at: usize,
}

impl<T: Read> Read for PageReader<T> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.head.is_none() {
            let head = PageHead::read(&mut self.inner)?;
            self.head = Some(head);
        }
        let left = self.head.as_deref().unwrap_or_default();
        let left = left.get(self.at..).unwrap_or_default();
        if left.is_empty() {
            return self.inner.read(out);
        }
        let count = left.len().min(out.len());
        out[..count].copy_from_slice(&left[..count]);
        self.at += count;
        Ok(count)
    }
}

/// A struct in the head of a page.
#[derive(Clone, Copy, Debug)]
enum HeadStruct {
    Page,
    DataPage,
    DictionaryPage,
    DataPageV2,
    Other,
}

impl HeadStruct {
    /// The struct in field `id` of this one.
    const fn inner(self, id: i16) -> Self {
        match (self, id) {
            (Self::Page, 5) => Self::DataPage,
            (Self::Page, 7) => Self::DictionaryPage,
            (Self::Page, 8) => Self::DataPageV2,
            _ => Self::Other,
        }
    }

    /// Returns false for a field of another type than the format has. The Parquet library reads these fields whatever
    /// their type is, and so would read on at a wrong byte, up to 2^31 items of lists that are not in the file.
    const fn has_type(self, id: i16, thrift_type: u8) -> bool {
        match (self, id) {
            (Self::Page | Self::DataPage, 1..=4)
            | (Self::DictionaryPage, 1..=2)
            | (Self::DataPageV2, 1..=6) => matches!(thrift_type, 4..=6),
            (Self::Page, 5..=8) => thrift_type == 12,
            _ => true,
        }
    }
}

/// The head of a page while it is read: a struct in Thrift's compact protocol, whose field 2 is the
/// decompressed size of the page.
struct PageHead<'a, T> {
    inner: &'a mut T,
    bytes: Vec<u8>,
    /// Decompressed size of the page, 0 before it is read.
    page_bytes: i64,
}

impl<'a, T: Read> PageHead<'a, T> {
    /// The bytes of a head.
    ///
    /// # Errors
    /// For a page that is too large, and for anything that is no head.
    fn read(inner: &'a mut T) -> io::Result<Vec<u8>> {
        let mut head = Self {
            inner,
            bytes: Vec::new(),
            page_bytes: 0,
        };
        head.read_struct(HeadStruct::Page, 0)?;
        Ok(head.bytes)
    }

    fn read_struct(&mut self, part: HeadStruct, depth: u32) -> io::Result<()> {
        if depth > DEPTH {
            return Err(no_head());
        }
        let mut id: i16 = 0;
        loop {
            let field = self.byte()?;
            if field == 0 {
                return Ok(());
            }
            let next = match field >> 4 {
                0 => i16::try_from(self.number()?).ok(),
                delta => id.checked_add(delta.into()),
            };
            id = next.ok_or_else(no_head)?;
            if !part.has_type(id, field & 0xf) {
                return Err(no_head());
            }
            match field & 0xf {
                // The value is the type.
                1 | 2 => {}
                3 => {
                    self.byte()?;
                }
                4..=6 => {
                    let number = self.number()?;
                    self.check_number(part, id, number)?;
                }
                7 => self.skip(8)?,
                8 => {
                    let length = self.varint()?;
                    self.skip(length)?;
                }
                12 => self.read_struct(part.inner(id), depth + 1)?,
                _ => return Err(no_head()),
            }
        }
    }

    /// Checks the numbers that the Parquet library allocates memory for: bytes of a page, and values of a
    /// dictionary. Each value has a byte; of values with the fixed length 0, a dictionary has one.
    fn check_number(&mut self, part: HeadStruct, id: i16, number: i64) -> io::Result<()> {
        match (part, id) {
            (HeadStruct::Page, 2) if number > PAGE => Err(io::Error::other(format!(
                "a page of {number} bytes unpacked is more than this program reads, {PAGE}; write the file with smaller pages, and cells of at most {ROW} bytes"
            ))),
            (HeadStruct::Page, 2) => {
                self.page_bytes = number;
                Ok(())
            }
            (HeadStruct::DictionaryPage, 1) if !(0..=self.page_bytes.max(1)).contains(&number) => {
                Err(io::Error::other(format!(
                    "a dictionary of {number} values in a page of {} bytes unpacked; the file is damaged",
                    self.page_bytes
                )))
            }
            _ => Ok(()),
        }
    }

    fn byte(&mut self) -> io::Result<u8> {
        if self.bytes.len() >= HEAD {
            return Err(no_head());
        }
        let mut byte = [0];
        self.inner.read_exact(&mut byte)?;
        self.bytes.push(byte[0]);
        Ok(byte[0])
    }

    fn skip(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            self.byte()?;
        }
        Ok(())
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(no_head())
    }

    /// Reads a zigzag integer, whose last bit is its sign.
    fn number(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        let half = i64::try_from(value >> 1).unwrap_or(i64::MAX);
        Ok(if value & 1 == 0 { half } else { !half })
    }
}

fn no_head() -> io::Error {
    io::Error::other("a page does not begin with a page header; the file is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: &[u8]) -> Result<Vec<u8>, String> {
        PageHead::read(&mut &*bytes).map_err(|e| e.to_string())
    }

    /// 2 * `number`, as a varint.
    fn varint(number: u64) -> Vec<u8> {
        let (mut left, mut bytes) = (number * 2, Vec::new());
        while left > 0x7f {
            bytes.push(0x80 | u8::try_from(left & 0x7f).unwrap());
            left >>= 7;
        }
        bytes.push(u8::try_from(left).unwrap());
        bytes
    }

    fn page(unpacked: u64, rest: &[u8]) -> Vec<u8> {
        [&[0x15, 0, 0x15], &*varint(unpacked), &[0x15, 2], rest, &[0]].concat()
    }

    #[test]
    fn a_page_is_refused_by_its_size_however_its_head_is_written() {
        let most = u64::try_from(PAGE).unwrap();
        // A data page's own head with a value of bytes, a number and a flag in it.
        let rest = [0x2c, 0x15, 8, 0x4c, 0x18, 2, 7, 7, 0x11, 0, 0];
        let good = page(most, &rest);
        assert_eq!(head(&[&*good, b"data"].concat()), Ok(good));
        let large = head(&page(most + 1, &rest)).unwrap_err();
        assert!(
            large.contains("a page of 268435457 bytes unpacked"),
            "{large}"
        );
        // Field 2 once more, with its number in full.
        let again = [&[0x05, 4], &*varint(1 << 30)].concat();
        assert!(
            head(&page(1, &again))
                .unwrap_err()
                .contains("1073741824 bytes")
        );
    }

    #[test]
    fn a_dictionary_has_no_more_values_than_bytes() {
        let page = |values: &[u8]| page(24, &[&[0x4c, 0x15], values, &[0x15, 0, 0]].concat());
        assert!(head(&page(&varint(24))).is_ok());
        let more = head(&page(&varint(25))).unwrap_err();
        assert!(more.contains("25 values in a page of 24 bytes"), "{more}");
        // Below 0.
        assert!(head(&page(&[1])).is_err());
    }

    #[test]
    fn what_is_no_head_ends_in_an_error() {
        for bytes in [
            &[0x15][..],
            &[0x19, 0],
            &[0x1c; 20],
            &[
                0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
            ],
            &[0x18, 0xff, 0xff, 0xff, 0xff, 0x7f],
            // Fields that the format has, with other types: size, head of a data page and its number of values.
            &[0x15, 0, 0x1c, 0, 0],
            &[0x15, 0, 0x15, 0, 0x15, 0, 0x25, 0, 0],
            &[0x15, 0, 0x15, 0, 0x15, 0, 0x2c, 0x18, 0, 0, 0],
            // A number of a field beyond 16 bits.
            &[0x05, 0x80, 0x80, 0x08, 0, 0],
        ] {
            assert!(head(bytes).is_err(), "{bytes:x?}");
        }
    }
}
