//! Content hash of a row: rows with equal hashes are duplicates.
//!
//! Layout hashed (xxh3-128, seed 0): for every column that is not null, in the order of their names by bytes,
//! `name length u32 | name | tag u8 | value`, all numbers little endian. A null cell is left out, so a column that
//! appears later changes no old row's hash. A float that is an integer is hashed as that integer,
//! so a column widened from integer to float changes none either, nor does one widened to decimal,
//! and -0.0 equals 0.0; all NaN are one value; a null is not an empty text.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray,
        Float64Array, Int64Array, StringArray, TimestampMicrosecondArray,
    },
    buffer::{Buffer, NullBuffer},
    datatypes::{DataType, Float64Type, Int64Type, TimeUnit},
};
use datafusion::error::{DataFusionError, Result};
use feedline_schemas::ids::Hash128;
use serde::{Deserialize, Serialize};

use crate::{engine::scalar_function::RowFunction, operators::canonical_text};

/// Bytes of a content hash.
pub(crate) const HASH_BYTES: i32 = 16;

/// Rows whose bytes are put together at a time, a column after the other: a branch on the type for each of so many cells, and
/// all of them stay in the nearest cache.
const ROWS: usize = 64;

/// Bytes of a name that are copied at once, so that it is no call.
const NAME: usize = 24;

/// Bytes of a number: its tag and its value.
const NUMBER: usize = 9;

/// Bytes of texts in a row up to which each row has its place among the others; beyond that it has room of its own.
const MOST_LOOSE: usize = 1024;

/// Form in which a cell enters the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Cells {
    /// By type and value.
    Typed,
    /// By its text, so that `5`, `5.0` and `"5"` are one: entities keep their identity when a source changes the
    /// type of their id.
    Text,
}

/// Content hash of the columns it is called with, which are `names`, sorted by bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ContentHash {
    pub(crate) names: Vec<String>,
    pub(crate) cells: Cells,
}

impl RowFunction for ContentHash {
    const NAME: &'static str = "feedline_content_hash";
    const RETURNS: DataType = DataType::FixedSizeBinary(HASH_BYTES);

    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        assert_eq!(columns.len(), self.names.len(), "one name per column");
        assert!(
            self.names.is_sorted(),
            "columns are hashed in the order of their names"
        );
        let cells = columns.iter().map(Cell::of).collect::<Result<Vec<_>>>()?;
        let parts = cells.iter().zip(columns).zip(&self.names);
        let parts = parts.map(|((cell, column), name)| Part {
            cell,
            nulls: column.nulls().filter(|nulls| nulls.null_count() > 0),
            name: Framed::new(name),
        });
        let parts: Vec<Part<'_>> = parts.collect();
        let mut hashes = Vec::with_capacity(rows * 16);
        let (mut together, mut apart) = (Together::default(), Vec::new());
        for start in (0..rows).step_by(ROWS) {
            let end = rows.min(start + ROWS);
            if together.take(&parts, start..end, self.cells)? {
                let all = together.rows();
                all.for_each(|row| hashes.extend(Hash128::of(row).get().to_be_bytes()));
                continue;
            }
            apart.resize(end - start, Vec::new());
            apart.iter_mut().for_each(Vec::clear);
            for part in &parts {
                for (row, bytes) in (start..).zip(&mut apart) {
                    if part.is_there(row) {
                        bytes.extend_from_slice(&part.name.bytes);
                        part.cell.write(row, self.cells, bytes)?;
                    }
                }
            }
            for row in &apart {
                hashes.extend(Hash128::of(row).get().to_be_bytes());
            }
        }
        let hashes = Buffer::from_vec(hashes);
        Ok(Arc::new(FixedSizeBinaryArray::try_new(
            HASH_BYTES, hashes, None,
        )?))
    }
}

/// A column on its way into the bytes of rows.
struct Part<'a> {
    cell: &'a Cell<'a>,
    nulls: Option<&'a NullBuffer>,
    name: Framed,
}

impl Part<'_> {
    #[inline]
    fn is_there(&self, row: usize) -> bool {
        self.nulls.is_none_or(|nulls| nulls.is_valid(row))
    }

    /// Bit mask of at most [`ROWS`] rows that are not null, the first in the lowest bit.
    fn there(&self, rows: Range<usize>) -> u64 {
        let Some(nulls) = self.nulls else {
            return u64::MAX;
        };
        let some = nulls.inner().slice(rows.start, rows.len());
        some.bit_chunks().iter_padded().next().unwrap_or(0)
    }
}

/// A name with its length before it.
struct Framed {
    bytes: Vec<u8>,
    /// The same with zeros behind it, where it is short.
    padded: Option<[u8; NAME]>,
}

impl Framed {
    fn new(name: &str) -> Self {
        let bytes = framed(name.as_bytes());
        let mut padded = [0; NAME];
        let short = padded.get_mut(..bytes.len());
        let is_short = short.map(|short| short.copy_from_slice(&bytes)).is_some();
        Self {
            padded: is_short.then_some(padded),
            bytes,
        }
    }

    /// Writes it to the start of `row`, and maybe zeros behind it.
    #[inline]
    fn write(&self, row: &mut [u8]) {
        match &self.padded {
            Some(padded) => row[..NAME].copy_from_slice(padded),
            None => row[..self.bytes.len()].copy_from_slice(&self.bytes),
        }
    }
}

/// The bytes of some rows in one place, each with the same room.
#[derive(Default)]
struct Together {
    bytes: Vec<u8>,
    /// Bytes from one row to the next.
    room: usize,
    /// Bytes of each row.
    ends: Vec<usize>,
    /// Cells of the columns that are no numbers, one after the other, and where each ends.
    loose: Vec<u8>,
    loose_ends: Vec<usize>,
    numbers: Numbers,
}

impl Together {
    /// Puts `rows` together; false where they are too long for that.
    fn take(&mut self, parts: &[Part<'_>], rows: Range<usize>, cells: Cells) -> Result<bool> {
        self.loose.clear();
        self.loose_ends.clear();
        let (mut room, mut loose_room) = (NAME, 0);
        for part in parts {
            room += part.name.bytes.len();
            if part.cell.is_number(cells) {
                room += NUMBER;
                continue;
            }
            let mut longest = 0;
            for row in rows.clone() {
                let before = self.loose.len();
                if part.is_there(row) {
                    part.cell.write(row, cells, &mut self.loose)?;
                }
                longest = longest.max(self.loose.len() - before);
                self.loose_ends.push(self.loose.len());
            }
            loose_room += longest;
            if loose_room > MOST_LOOSE {
                return Ok(false);
            }
        }
        self.room = room + loose_room;
        self.bytes.resize(self.room * rows.len(), 0);
        self.ends.clear();
        self.ends.resize(rows.len(), 0);
        let (mut loose, mut next) = (0, 0);
        for part in parts {
            match part.cell {
                Cell::Float(values) if cells == Cells::Typed => {
                    self.numbers.floats(&values.values()[rows.clone()]);
                    self.put_numbers(part, rows.clone());
                }
                Cell::Int(values) if cells == Cells::Typed => {
                    self.numbers.integers(&values.values()[rows.clone()]);
                    self.put_numbers(part, rows.clone());
                }
                _ => {
                    let ends = &self.loose_ends[next..next + rows.len()];
                    next += rows.len();
                    let places = self.bytes.chunks_exact_mut(self.room).zip(&mut self.ends);
                    for ((row, (place, end)), loose_end) in rows.clone().zip(places).zip(ends) {
                        let value = &self.loose[loose..*loose_end];
                        loose = *loose_end;
                        if part.is_there(row) {
                            let at = *end + part.name.bytes.len();
                            part.name.write(&mut place[*end..]);
                            place[at..at + value.len()].copy_from_slice(value);
                            *end = at + value.len();
                        }
                    }
                }
            }
        }
        Ok(true)
    }

    /// Writes a cell of [`Self::numbers`] to each row, and leaves it behind where it is not null.
    fn put_numbers(&mut self, part: &Part<'_>, rows: Range<usize>) {
        let length = part.name.bytes.len();
        let mut there = part.there(rows);
        let places = self.bytes.chunks_exact_mut(self.room).zip(&mut self.ends);
        let values = self.numbers.tags.iter().zip(&self.numbers.values);
        for ((place, end), (tag, value)) in places.zip(values) {
            let place = &mut place[*end..];
            part.name.write(place);
            let cell = &mut place[length..length + NUMBER];
            cell[0] = *tag;
            cell[1..].copy_from_slice(&value.to_le_bytes());
            // The next cell overwrites a null cell.
            *end += usize::from(there & 1 == 1) * (length + NUMBER);
            there >>= 1;
        }
    }

    fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let rows = self.bytes.chunks_exact(self.room).zip(&self.ends);
        rows.map(|(row, end)| &row[..*end])
    }
}

/// Tags and values of one column of some rows.
struct Numbers {
    tags: [u8; ROWS],
    values: [u64; ROWS],
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            tags: [b'i'; ROWS],
            values: [0; ROWS],
        }
    }
}

impl Numbers {
    fn integers(&mut self, cells: &[i64]) {
        self.tags.fill(b'i');
        for (value, cell) in self.values.iter_mut().zip(cells) {
            *value = cell.cast_unsigned();
        }
    }

    /// As [`of_float`], without a branch for each cell: integers among floats are as good as
    /// random.
    fn floats(&mut self, cells: &[f64]) {
        // Added to a number of less than 2^51, it leaves no room for a fraction, and the whole number in the lowest bits.
        const SHIFT: f64 = 1.5 * 4_503_599_627_370_496.0;
        const MOST: f64 = 2_251_799_813_685_248.0;
        let mut is_large = false;
        let places = self.tags.iter_mut().zip(&mut self.values);
        for ((tag, value), cell) in places.zip(cells) {
            is_large |= cell.abs() >= MOST;
            let shifted = cell + SHIFT;
            #[expect(
                clippy::float_cmp,
                reason = "a number is an integer where nothing of it was lost"
            )]
            let is_whole = shifted - SHIFT == *cell;
            let whole = shifted.to_bits().wrapping_sub(SHIFT.to_bits());
            let bits = match cell.is_nan() {
                true => f64::NAN.to_bits(),
                false => cell.to_bits(),
            };
            *tag = if is_whole { b'i' } else { b'f' };
            *value = if is_whole { whole } else { bits };
        }
        if is_large {
            let places = self.tags.iter_mut().zip(&mut self.values);
            for ((tag, value), cell) in places.zip(cells) {
                (*tag, *value) = of_float(*cell);
            }
        }
    }
}

/// The first 8 bytes of a content hash: the sample key stored in shards.
pub(crate) fn key_of(hash: &[u8]) -> u64 {
    let first: [u8; 8] = hash[..8].try_into().expect("a content hash has 16 bytes");
    u64::from_be_bytes(first)
}

/// Converts a float that equals exactly one 64-bit integer to that integer.
pub(crate) fn as_integer(value: f64) -> Option<i64> {
    // -2^63 is a float, 2^63 is the first float past the range.
    let in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "in range: the cast leaves out the fraction only"
    )]
    let integer = value as i64;
    #[expect(
        clippy::cast_precision_loss,
        clippy::float_cmp,
        reason = "a float without its fraction is a float, and the same one only if it had none"
    )]
    let is_whole = integer as f64 == value;
    (in_range && is_whole).then_some(integer)
}

enum Cell<'a> {
    Bool(&'a BooleanArray),
    Int(&'a Int64Array),
    Float(&'a Float64Array),
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    Decimal(&'a Decimal128Array),
    Instant(&'a TimestampMicrosecondArray),
    /// Hashed like its text.
    Plain(&'a ArrayRef),
}

impl<'a> Cell<'a> {
    fn of(column: &'a ArrayRef) -> Result<Self> {
        Ok(match column.data_type() {
            DataType::Boolean => Self::Bool(column.as_boolean()),
            DataType::Int64 => Self::Int(column.as_primitive::<Int64Type>()),
            DataType::Float64 => Self::Float(column.as_primitive::<Float64Type>()),
            DataType::Utf8 => Self::Text(column.as_string()),
            DataType::Binary => Self::Bytes(column.as_binary()),
            DataType::Decimal128(..) => Self::Decimal(column.as_primitive()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => Self::Instant(column.as_primitive()),
            DataType::List(_) => Self::Plain(column),
            other => {
                return Err(DataFusionError::Internal(format!(
                    "no landed column is of type {other}"
                )));
            }
        })
    }

    /// Returns true if cells enter the hash as numbers.
    fn is_number(&self, cells: Cells) -> bool {
        cells == Cells::Typed && matches!(self, Self::Int(_) | Self::Float(_))
    }

    fn write(&self, row: usize, cells: Cells, bytes: &mut Vec<u8>) -> Result<()> {
        match (self, cells) {
            (Self::Bool(values), Cells::Typed) => bytes.extend([b'b', u8::from(values.value(row))]),
            (Self::Bool(values), Cells::Text) => {
                text(if values.value(row) { "true" } else { "false" }, bytes)
            }
            (Self::Int(values), Cells::Typed) => integer(values.value(row), bytes),
            (Self::Int(values), Cells::Text) => text(&values.value(row).to_string(), bytes),
            (Self::Float(values), cells) => float(values.value(row), cells, bytes),
            (Self::Text(values), _) => text(values.value(row), bytes),
            (Self::Bytes(values), _) => framed_value(b'x', values.value(row), bytes),
            (Self::Decimal(values), cells) => {
                decimal(&canonical_text::decimal(values, row), cells, bytes)
            }
            (Self::Instant(values), _) => {
                bytes.push(b't');
                let length = bytes.len();
                bytes.extend(0_u64.to_le_bytes());
                let start = bytes.len();
                canonical_text::write_instant(values.value(row), bytes);
                let written = (bytes.len() - start) as u64;
                bytes[length..start].copy_from_slice(&written.to_le_bytes());
            }
            (Self::Plain(column), _) => text(&canonical_text::text(column, row)?, bytes),
        }
        Ok(())
    }
}

/// Decimal digits as the narrowest type that holds them does, so that a column which was widened changes no hash.
fn decimal(digits: &str, cells: Cells, bytes: &mut Vec<u8>) {
    let number = match cells {
        Cells::Typed => digits.parse::<i64>().ok(),
        Cells::Text => None,
    };
    let value = digits.parse::<f64>().unwrap_or(f64::NAN);
    match number {
        Some(number) => integer(number, bytes),
        None if cells == Cells::Typed && value.to_string() == digits => float(value, cells, bytes),
        None => text(digits, bytes),
    }
}

fn integer(value: i64, bytes: &mut Vec<u8>) {
    number((b'i', value.cast_unsigned()), bytes);
}

fn number((tag, value): (u8, u64), bytes: &mut Vec<u8>) {
    bytes.push(tag);
    bytes.extend(value.to_le_bytes());
}

/// Tag and value of a float.
#[inline]
fn of_float(value: f64) -> (u8, u64) {
    match as_integer(value) {
        Some(whole) => (b'i', whole.cast_unsigned()),
        None if value.is_nan() => (b'f', f64::NAN.to_bits()),
        None => (b'f', value.to_bits()),
    }
}

fn float(value: f64, cells: Cells, bytes: &mut Vec<u8>) {
    match (as_integer(value), cells) {
        (_, Cells::Typed) => number(of_float(value), bytes),
        (Some(whole), Cells::Text) => text(&whole.to_string(), bytes),
        (None, Cells::Text) => text(&value.to_string(), bytes),
    }
}

fn text(value: &str, bytes: &mut Vec<u8>) {
    framed_value(b't', value.as_bytes(), bytes);
}

fn framed_value(tag: u8, value: &[u8], bytes: &mut Vec<u8>) {
    bytes.push(tag);
    bytes.extend((value.len() as u64).to_le_bytes());
    bytes.extend(value);
}

fn framed(name: &[u8]) -> Vec<u8> {
    let length = u32::try_from(name.len()).expect("a column name is shorter than 4 GiB");
    [&length.to_le_bytes(), name].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn floats_of_a_column_enter_as_each_alone(
            cells in prop::collection::vec(
                prop_oneof![
                    any::<f64>(),
                    any::<u64>().prop_map(f64::from_bits),
                    any::<i64>().prop_map(crate::operators::coerce::to_float),
                    (45_i32..66, -8_i8..9, any::<bool>()).prop_map(|(power, quarters, is_negative)| {
                        let size = 2_f64.powi(power) + f64::from(quarters) / 4.0;
                        if is_negative { -size } else { size }
                    }),
                    Just(-0.0),
                    Just(f64::NEG_INFINITY),
                ],
                1..=ROWS,
            ),
        ) {
            let mut numbers = Numbers::default();
            numbers.floats(&cells);
            for (at, cell) in cells.iter().enumerate() {
                prop_assert_eq!((numbers.tags[at], numbers.values[at]), of_float(*cell), "{}", cell);
            }
        }
    }

    fn hash(cells: Cells, columns: &[(&str, ArrayRef)]) -> Vec<u8> {
        let names = columns.iter().map(|c| c.0.to_owned()).collect();
        let arrays: Vec<ArrayRef> = columns.iter().map(|c| Arc::clone(&c.1)).collect();
        let hashes = ContentHash { names, cells }.call(&arrays, 1).unwrap();
        hashes.as_fixed_size_binary().value(0).to_vec()
    }

    fn int(value: impl Into<Option<i64>>) -> ArrayRef {
        Arc::new(Int64Array::from(vec![value.into()]))
    }

    fn float(value: f64) -> ArrayRef {
        Arc::new(Float64Array::from(vec![value]))
    }

    fn text(value: &str) -> ArrayRef {
        Arc::new(StringArray::from(vec![value]))
    }

    fn bytes(value: &[u8]) -> ArrayRef {
        Arc::new(BinaryArray::from(vec![value]))
    }

    fn check(cells: Cells, a: ArrayRef, b: ArrayRef, same: bool) {
        let (left, right) = (hash(cells, &[("c", a)]), hash(cells, &[("c", b)]));
        assert_eq!(left == right, same);
    }

    #[test]
    fn equal_numbers_hash_equally_whatever_their_type() {
        check(Cells::Typed, int(5), float(5.0), true);
        check(Cells::Typed, float(0.0), float(-0.0), true);
        check(Cells::Typed, float(f64::NAN), float(-f64::NAN), true);
        check(Cells::Typed, int(5), float(5.5), false);
        check(
            Cells::Typed,
            int(i64::MAX),
            float(9_223_372_036_854_775_808.0),
            false,
        );
    }

    #[test]
    fn trap_09_all_nan_are_one_value_whatever_their_bits() {
        let quiet = f64::NAN.to_bits();
        // With a payload, with a sign, and one that signals.
        for bits in [quiet | 77, quiet | 1 << 63, 0x7ff0_0000_0000_0001] {
            let other = f64::from_bits(bits);
            assert!(other.is_nan() && bits != quiet);
            for cells in [Cells::Typed, Cells::Text] {
                check(cells, float(f64::NAN), float(other), true);
                check(cells, float(f64::INFINITY), float(other), false);
            }
        }
    }

    #[test]
    fn types_are_told_apart_unless_cells_are_read_as_text() {
        let truth: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
        check(Cells::Typed, int(5), text("5"), false);
        check(Cells::Typed, Arc::clone(&truth), text("true"), false);
        check(Cells::Typed, bytes(b"5"), text("5"), false);
        check(Cells::Typed, bytes(b"5"), bytes(b"5"), true);
        check(Cells::Text, int(5), text("5"), true);
        check(Cells::Text, float(5.0), text("5"), true);
        check(Cells::Text, truth, text("true"), true);
    }

    #[test]
    fn a_column_widened_to_decimal_keeps_its_hashes() {
        let decimal = |digits: &str| -> ArrayRef {
            let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
            let units: i128 = format!("{whole}{part:0<18}").parse().unwrap();
            let column = Decimal128Array::from(vec![units]);
            Arc::new(column.with_precision_and_scale(38, 18).unwrap())
        };
        for cells in [Cells::Typed, Cells::Text] {
            check(cells, int(5), decimal("5"), true);
            check(cells, int(i64::MAX), decimal("9223372036854775807"), true);
            check(cells, float(2.5), decimal("2.5"), true);
            check(cells, float(-0.1), decimal("-0.1"), true);
            check(cells, float(0.1), decimal("0.100000000000000001"), false);
            check(
                cells,
                decimal("18446744073709551615"),
                decimal("18446744073709551614"),
                false,
            );
        }
        check(Cells::Text, text("2.5"), decimal("2.5"), true);
        check(Cells::Typed, text("2.5"), decimal("2.5"), false);
    }

    #[test]
    fn a_null_cell_counts_as_absent_and_not_as_empty_text() {
        let nothing: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>]));
        check(Cells::Typed, Arc::clone(&nothing), text(""), false);
        let with = hash(Cells::Typed, &[("a", int(1)), ("b", nothing)]);
        assert_eq!(with, hash(Cells::Typed, &[("a", int(1))]));
    }

    #[test]
    fn a_value_moved_to_another_column_is_another_row() {
        let left = hash(Cells::Typed, &[("a", int(1)), ("b", int(None))]);
        let right = hash(Cells::Typed, &[("a", int(None)), ("b", int(1))]);
        assert_ne!(left, right);
    }

    #[test]
    fn a_row_has_the_hash_it_has_alone_however_many_stand_around_it() {
        let rows = 3 * ROWS + 5;
        let cell = |i: usize| (i % 5 != 2).then_some(i);
        let number = |i: usize| f64::from(u32::try_from(i).unwrap()) / 4.0 - 20.0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(
                (0..rows)
                    .map(|i| cell(i).map(number))
                    .collect::<Float64Array>(),
            ),
            Arc::new(
                (0..rows)
                    .map(|i| cell(i + 1).map(|i| i as i64))
                    .collect::<Int64Array>(),
            ),
            Arc::new(
                (0..rows)
                    .map(|i| cell(i + 2).map(|i| "x".repeat(i % 7)))
                    .collect::<StringArray>(),
            ),
            Arc::new(
                (0..rows)
                    .map(|i| cell(i + 3).map(|i| i % 2 == 0))
                    .collect::<BooleanArray>(),
            ),
        ];
        // Rows of few bytes, and some of many; names of few, and of many.
        let long = |i: usize| "y".repeat(if i / ROWS == 1 { MOST_LOOSE } else { 3 });
        let texts = (0..rows).map(|i| cell(i).map(long));
        let more: [ArrayRef; 2] = [
            Arc::new(texts.collect::<StringArray>()),
            Arc::clone(&columns[0]),
        ];
        let columns = [columns, more.into()].concat();
        let names = [
            "a",
            "b",
            "c",
            "d",
            "e",
            "f, which takes more room than most",
        ];
        for cells in [Cells::Typed, Cells::Text] {
            let all = ContentHash {
                names: names.map(str::to_owned).to_vec(),
                cells,
            };
            let all = all.call(&columns, rows).unwrap();
            for row in 0..rows {
                let mut bytes = Vec::new();
                for (name, column) in names.iter().zip(&columns) {
                    if column.is_valid(row) {
                        bytes.extend(framed(name.as_bytes()));
                        let cell = Cell::of(column).unwrap();
                        cell.write(row, cells, &mut bytes).unwrap();
                    }
                }
                let expected = Hash128::of(&bytes).get().to_be_bytes();
                assert_eq!(all.as_fixed_size_binary().value(row), expected, "{row}");
            }
        }
    }

    #[test]
    fn only_whole_floats_in_range_are_integers() {
        for (value, expected) in [
            (0.0, Some(0)),
            (-0.0, Some(0)),
            (-3.0, Some(-3)),
            (2.5, None),
            (5e-324, None),
            (4_503_599_627_370_495.5, None),
            (9_223_372_036_854_774_784.0, Some(9_223_372_036_854_774_784)),
            (9_223_372_036_854_775_808.0, None),
            (-9_223_372_036_854_775_808.0, Some(i64::MIN)),
            (-9_223_372_036_854_777_856.0, None),
            (f64::INFINITY, None),
            (f64::NAN, None),
        ] {
            assert_eq!(as_integer(value), expected, "{value}");
        }
    }

    #[test]
    fn the_layout_does_not_change_in_silence() {
        let row = hash(Cells::Typed, &[("a", int(1)), ("b", text("x"))]);
        assert_eq!(
            Hash128::new(u128::from_be_bytes(row.try_into().unwrap())).to_string(),
            "775bb71d0f0a68513407a9c54ffdfcff"
        );
    }
}
