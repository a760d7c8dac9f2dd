//! Record batches of Arrow as records.

use std::{collections::HashSet, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, StringViewArray},
    buffer::NullBuffer,
    compute::cast,
    datatypes::{
        DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        Schema, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
    error::ArrowError,
    util::display::{ArrayFormatter, FormatOptions},
};

use crate::{
    parquet_limits::{ROW, row_bytes},
    record::Record,
    rows::{NextRow, PlaceUnit, RecordPlace},
    value::{Value, hex},
    value_view::ValueView,
};

/// Time zone of written timestamps.
const UTC: &str = "UTC";

/// Minimum file size for the ratio, in bytes; smaller files count as this size.
const FREE: u64 = 16 << 20;

/// Rows that become records or cells in portions of 64 MiB at most.
pub(crate) struct Portions {
    names: Vec<String>,
    waiting: Option<Waiting>,
    /// Columns of the rows that are ready.
    ready: Vec<ColumnCells>,
    /// Bytes of the rows that are ready.
    ready_bytes: Vec<u64>,
    /// Index of the next row that is ready.
    next: usize,
    /// Number of the next row, from 0.
    number: u64,
    /// Size of the file in bytes, as far as it is known.
    file_bytes: u64,
    /// Bytes of all rows so far.
    taken: u64,
    max_ratio: u64,
}

/// Cells of a column.
enum ColumnCells {
    /// Texts in the memory that they were decoded to.
    Texts(StringViewArray),
    Values(Vec<Value>),
    /// Objects by their fields.
    Fields {
        nulls: Option<NullBuffer>,
        names: Vec<String>,
        cells: Vec<Self>,
    },
}

impl ColumnCells {
    fn of(column: &ArrayRef) -> Result<Self, ArrowError> {
        if let Some(texts) = column.as_string_view_opt() {
            return Ok(Self::Texts(texts.clone()));
        }
        let Some(object) = column.as_struct_opt() else {
            return Ok(Self::Values(values(column, BytesAs::Cells)?));
        };
        let fields = object.fields().iter();
        let cells = object.columns().iter().map(Self::of);
        Ok(Self::Fields {
            nulls: object.nulls().cloned(),
            names: fields.map(|field| field.name().clone()).collect(),
            cells: cells.collect::<Result<_, _>>()?,
        })
    }

    /// The value of the row at the path `below`; `None` where there is none.
    fn find(&self, row: usize, below: &[String]) -> Option<ValueView<'_>> {
        let Some((key, rest)) = below.split_first() else {
            return Some(self.view(row));
        };
        let Self::Fields {
            nulls,
            names,
            cells,
        } = self
        else {
            return None;
        };
        let field = names.iter().position(|name| name == key);
        let field = field.filter(|_| !is_null(nulls.as_ref(), row))?;
        cells[field].find(row, rest)
    }

    fn view(&self, row: usize) -> ValueView<'_> {
        match self {
            Self::Texts(texts) if texts.is_null(row) => ValueView::Null,
            Self::Texts(texts) => ValueView::Text(texts.value(row).into()),
            Self::Values(values) => values[row].view(),
            Self::Fields { nulls, .. } if is_null(nulls.as_ref(), row) => ValueView::Null,
            Self::Fields { .. } => ValueView::Object,
        }
    }

    /// Takes the value of the row.
    fn take(&mut self, row: usize) -> Value {
        match self {
            Self::Texts(texts) if texts.is_null(row) => Value::Null,
            Self::Texts(texts) => Value::Text(texts.value(row).to_owned()),
            Self::Values(values) => std::mem::replace(&mut values[row], Value::Null),
            Self::Fields { nulls, .. } if is_null(nulls.as_ref(), row) => Value::Null,
            Self::Fields { names, cells, .. } => {
                let entries = names.iter().zip(cells);
                let entry = |(name, cells): (&String, &mut Self)| (name.clone(), cells.take(row));
                Value::Object(entries.map(entry).collect())
            }
        }
    }
}

fn is_null(nulls: Option<&NullBuffer>, row: usize) -> bool {
    nulls.is_some_and(|nulls| nulls.is_null(row))
}

/// Rows that are decoded and no records yet.
struct Waiting {
    batch: RecordBatch,
    /// Bytes of each row.
    bytes: Vec<u64>,
    /// The next one.
    at: usize,
}

impl Portions {
    /// Rows of a file of `file_bytes`, which may have `max_ratio` times its size.
    pub(crate) fn new(file_bytes: u64, max_ratio: u64) -> Self {
        Self {
            names: Vec::new(),
            waiting: None,
            ready: Vec::new(),
            ready_bytes: Vec::new(),
            next: 0,
            number: 0,
            file_bytes,
            taken: 0,
            max_ratio,
        }
    }

    /// Sets the bytes of the file that were read.
    pub(crate) fn set_file_bytes(&mut self, bytes: u64) {
        self.file_bytes = bytes;
    }

    /// Returns true if no record is ready.
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.ready_bytes.len()
    }

    /// The same, whose first row has this number in its file.
    pub(crate) fn at_row(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    /// Takes the next record that is ready.
    pub(crate) fn pop(&mut self) -> Option<Record> {
        let row = self.next;
        self.advance()?;
        let entry = |(name, column): (&String, &mut ColumnCells)| (name.clone(), column.take(row));
        let entries = self.names.iter().zip(&mut self.ready).map(entry);
        Some(Record::Value(Value::Object(entries.collect())))
    }

    /// Takes the next row that is ready as cells.
    pub(crate) fn pop_cells(&mut self) -> Option<NextRow> {
        let bytes = self.advance()?;
        Some(NextRow::Cells { bytes })
    }

    /// The cell at `index` of the last row that was taken as cells.
    pub(crate) fn cell(&self, index: usize) -> ValueView<'_> {
        let column = self.ready.get(index).zip(self.next.checked_sub(1));
        column.map_or(ValueView::Null, |(column, row)| column.view(row))
    }

    /// The value at the path `below` the cell at `index` of that row; `None` where there is none.
    pub(crate) fn find(&self, index: usize, below: &[String]) -> Option<ValueView<'_>> {
        let (column, row) = self.ready.get(index).zip(self.next.checked_sub(1))?;
        column.find(row, below)
    }

    /// Takes the next row that is ready. Returns its bytes.
    fn advance(&mut self) -> Option<u64> {
        let bytes = *self.ready_bytes.get(self.next)?;
        self.next += 1;
        self.number += 1;
        Some(bytes)
    }

    /// Place of the last record that was taken.
    pub(crate) const fn place(&self) -> RecordPlace {
        RecordPlace::new(PlaceUnit::Row, self.number.saturating_sub(1))
    }

    /// Returns true if rows wait for [`convert`](Self::convert).
    pub(crate) fn has_rows(&self) -> bool {
        self.waiting.is_some()
    }

    /// Sets the rows to convert. Texts and bytes are views.
    pub(crate) fn set_rows(&mut self, batch: RecordBatch) {
        let bytes = row_bytes(&batch);
        let waiting = Waiting {
            batch,
            bytes,
            at: 0,
        };
        self.waiting = (waiting.batch.num_rows() > 0).then_some(waiting);
    }

    /// Makes the next rows that wait ready, 64 MiB at most.
    ///
    /// # Errors
    /// For a row of more than that, and for more rows than the size of the file allows.
    pub(crate) fn convert(&mut self) -> Result<(), String> {
        let Some(Waiting { batch, bytes, at }) = self.waiting.take() else {
            return Ok(());
        };
        let (mut rows, mut taken) = (0, 0);
        for row in &bytes[at..] {
            if rows == 0 && *row > ROW {
                return Err(format!(
                    "a row has {row} bytes, more than {ROW}; remove its large cells, or store them in separate files"
                ));
            }
            if taken + row > ROW {
                break;
            }
            (rows, taken) = (rows + 1, taken + row);
        }
        self.taken += taken;
        let most = self.file_bytes.max(FREE).saturating_mul(self.max_ratio);
        if self.taken > most {
            return Err(format!(
                "its rows have more than {} times its size, like a decompression bomb; raise \
                 `archive.max_ratio` if that is right",
                self.max_ratio
            ));
        }
        let next = batch.slice(at, rows);
        let columns = next.columns().iter().map(ColumnCells::of);
        let columns = columns.collect::<Result<_, _>>();
        self.ready = columns.map_err(|e| e.to_string())?;
        self.names = names_of(batch.schema_ref());
        self.ready_bytes = bytes[at..at + rows].to_vec();
        self.next = 0;
        let at = at + rows;
        self.waiting = (at < batch.num_rows()).then_some(Waiting { batch, bytes, at });
        Ok(())
    }
}

/// Checks that the names of all columns differ.
///
/// # Errors
/// The reason.
pub(crate) fn check_names(schema: &Schema) -> Result<(), String> {
    let mut seen = HashSet::new();
    let mut fields = schema.fields().iter();
    match fields.find(|field| !seen.insert(field.name())) {
        Some(field) => Err(format!(
            "it has column `{}` twice; give every column a name of its own",
            field.name()
        )),
        None => Ok(()),
    }
}

/// Names of the columns.
pub(crate) fn names_of(schema: &Schema) -> Vec<String> {
    let fields = schema.fields().iter();
    fields.map(|field| field.name().clone()).collect()
}

/// Returns true for columns of objects.
pub(crate) fn nested_of(schema: &Schema) -> Vec<bool> {
    let fields = schema.fields().iter();
    fields
        .map(|field| matches!(field.data_type(), DataType::Struct(_)))
        .collect()
}

fn objects(
    names: &[&str],
    columns: &[ArrayRef],
    rows: usize,
    bytes: BytesAs,
) -> Result<Vec<Value>, ArrowError> {
    let mut objects: Vec<Vec<(String, Value)>> =
        (0..rows).map(|_| Vec::with_capacity(names.len())).collect();
    for (name, column) in names.iter().zip(columns) {
        for (object, value) in objects.iter_mut().zip(values(column, bytes)?) {
            object.push(((*name).to_owned(), value));
        }
    }
    Ok(objects.into_iter().map(Value::Object).collect())
}

/// Digits that every decimal number of a 64-bit float has.
const FLOAT_DIGITS: u8 = 15;

/// Digits that every integer of 64 bits can have.
const INTEGER_DIGITS: u8 = 18;

/// Values that bytes, dates and timestamps become.
#[derive(Clone, Copy, Debug)]
enum BytesAs {
    /// Cells, typed by their own column.
    Cells,
    /// Text, of hexadecimal digits or of ISO 8601: items of lists have no column.
    Text,
}

/// Converts a column to values. Dates and timestamps become text in lists, and so do bytes. A time
/// of day without a date is always text. Numbers are never rounded.
fn values(array: &ArrayRef, bytes: BytesAs) -> Result<Vec<Value>, ArrowError> {
    macro_rules! primitive {
        ($type:ty, $value:expr) => {
            array
                .as_primitive::<$type>()
                .iter()
                .map(|v| v.map_or(Value::Null, $value))
                .collect()
        };
    }
    let text = |text: Option<&str>| text.map_or(Value::Null, |text| Value::Text(text.to_owned()));
    Ok(match array.data_type() {
        DataType::Null => vec![Value::Null; array.len()],
        DataType::Boolean => array
            .as_boolean()
            .iter()
            .map(|v| v.map_or(Value::Null, Value::Bool))
            .collect(),
        DataType::Int8 => primitive!(Int8Type, |v| Value::Int(v.into())),
        DataType::Int16 => primitive!(Int16Type, |v| Value::Int(v.into())),
        DataType::Int32 => primitive!(Int32Type, |v| Value::Int(v.into())),
        DataType::Int64 => primitive!(Int64Type, Value::Int),
        DataType::UInt8 => primitive!(UInt8Type, |v| Value::Int(v.into())),
        DataType::UInt16 => primitive!(UInt16Type, |v| Value::Int(v.into())),
        DataType::UInt32 => primitive!(UInt32Type, |v| Value::Int(v.into())),
        DataType::UInt64 => primitive!(UInt64Type, |v| match i64::try_from(v) {
            Ok(v) => Value::Int(v),
            Err(_) => Value::Digits(v.to_string()),
        }),
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => decimals(array, *digits, *scale)?,
        DataType::Float16 => primitive!(Float16Type, |v| Value::Float(v.into())),
        DataType::Float32 => primitive!(Float32Type, |v| Value::Float(v.into())),
        DataType::Float64 => primitive!(Float64Type, Value::Float),
        DataType::Utf8 => array.as_string::<i32>().iter().map(text).collect(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().map(text).collect(),
        DataType::Utf8View => array.as_string_view().iter().map(text).collect(),
        DataType::BinaryView => {
            let cell = |cell: &[u8]| match bytes {
                BytesAs::Cells => Value::ByteCell(cell.to_vec()),
                BytesAs::Text => Value::Text(hex(cell)),
            };
            let cells = array.as_binary_view().iter();
            cells.map(|bytes| bytes.map_or(Value::Null, cell)).collect()
        }
        DataType::Dictionary(_, inner) => values(&cast(array, inner)?, bytes)?,
        // An instant is one text, in whatever zone it was written.
        DataType::Timestamp(unit, Some(zone)) if **zone != *UTC => {
            let array = cast(array, &DataType::Timestamp(*unit, Some(UTC.into())))?;
            values(&array, bytes)?
        }
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => match bytes {
            BytesAs::Cells => texts(array, Value::Time)?,
            BytesAs::Text => texts(array, Value::Text)?,
        },
        DataType::Struct(fields) => {
            let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
            let columns = array.as_struct().columns();
            let objects = objects(&names, columns, array.len(), bytes)?;
            objects
                .into_iter()
                .enumerate()
                .map(|(i, v)| if array.is_null(i) { Value::Null } else { v })
                .collect()
        }
        DataType::List(_) => lists(array.as_list::<i32>().iter())?,
        DataType::LargeList(_) => lists(array.as_list::<i64>().iter())?,
        DataType::FixedSizeList(..) => lists(array.as_fixed_size_list().iter())?,
        DataType::Map(..) => maps(array)?,
        _ => texts(array, Value::Text)?,
    })
}

/// Converts decimals of `digits` digits, `scale` of them behind the point.
fn decimals(array: &ArrayRef, digits: u8, scale: i8) -> Result<Vec<Value>, ArrowError> {
    let number = |text: String| {
        match (digits, scale) {
            (..=INTEGER_DIGITS, 0) => text.parse().ok().map(Value::Int),
            (..=FLOAT_DIGITS, _) => text.parse().ok().map(Value::Float),
            _ => None,
        }
        .unwrap_or(Value::Digits(text))
    };
    texts(array, number)
}

/// Converts the formatted texts of a column with `value`.
fn texts(array: &ArrayRef, value: impl Fn(String) -> Value) -> Result<Vec<Value>, ArrowError> {
    let formatter = ArrayFormatter::try_new(array, &FormatOptions::default())?;
    let cell = |i: usize| match array.is_null(i) {
        true => Ok(Value::Null),
        false => formatter.value(i).try_to_string().map(&value),
    };
    (0..array.len()).map(cell).collect()
}

fn maps(array: &ArrayRef) -> Result<Vec<Value>, ArrowError> {
    let maps = array.as_map();
    let entry = |i: usize| {
        if array.is_null(i) {
            return Ok(Value::Null);
        }
        let entries: ArrayRef = Arc::new(maps.value(i));
        values(&entries, BytesAs::Text).map(Value::List)
    };
    (0..array.len()).map(entry).collect()
}

fn lists(lists: impl Iterator<Item = Option<ArrayRef>>) -> Result<Vec<Value>, ArrowError> {
    lists
        .map(|list| match list {
            Some(items) => values(&items, BytesAs::Text).map(Value::List),
            None => Ok(Value::Null),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{
            Date32Array, Decimal128Array, Int64Array, StringViewArray, StructArray,
            TimestampNanosecondArray, UInt64Array,
        },
        datatypes::Field,
    };

    use super::*;

    fn objects_of(fields: Vec<(&str, ArrayRef)>, nulls: Option<Vec<bool>>) -> ArrayRef {
        let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = fields
            .into_iter()
            .map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column))
            .unzip();
        let nulls = nulls.map(NullBuffer::from);
        Arc::new(StructArray::new(fields.into(), columns, nulls))
    }

    #[test]
    fn values_below_cells_are_those_of_the_records() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(4)]));
        let texts = StringViewArray::from(vec![Some("a"), Some("b"), Some("c"), None]);
        let deep = objects_of(vec![("n", numbers)], Some(vec![true, true, true, false]));
        let fields = vec![("deep", deep), ("s", Arc::new(texts) as ArrayRef)];
        let column = objects_of(fields, Some(vec![true, true, false, true]));
        let batch = RecordBatch::try_from_iter_with_nullable([("o", column, true)]).unwrap();
        let portions = || {
            let mut portions = Portions::new(1 << 20, 100);
            portions.set_rows(batch.clone());
            portions.convert().unwrap();
            portions
        };
        let (mut cells, mut records) = (portions(), portions());
        let mut texts = Vec::new();
        while let Some(record) = records.pop() {
            assert!(cells.pop_cells().is_some());
            let value = record.into_value().unwrap();
            texts.push(value.canonical());
            let field = |at: Value, key: &&str| match at {
                Value::Object(entries) => {
                    let mut entries = entries.into_iter();
                    entries
                        .find(|(name, _)| name == key)
                        .map(|(_, value)| value)
                }
                _ => None,
            };
            for path in [
                &["s"][..],
                &["deep"],
                &["deep", "n"],
                &["deep", "x"],
                &["s", "n"],
            ] {
                let expected = ["o"].iter().chain(path).try_fold(value.clone(), field);
                let below: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
                let found = cells.find(0, &below);
                assert_eq!(
                    found,
                    expected.as_ref().map(Value::view),
                    "{path:?} {value:?}"
                );
            }
        }
        let expected = [
            r#"{"o":{"deep":{"n":1},"s":"a"}}"#,
            r#"{"o":{"deep":{"n":null},"s":"b"}}"#,
            r#"{"o":null}"#,
            r#"{"o":{"deep":null,"s":null}}"#,
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn dates_are_times_in_columns_and_texts_in_lists() {
        let nanos = TimestampNanosecondArray::from(vec![Some(1_500_000_001), None]);
        let paris: ArrayRef = Arc::new(nanos.clone().with_timezone("+01:00"));
        let cases: [(ArrayRef, &str); 3] = [
            (Arc::new(nanos), "1970-01-01T00:00:01.500000001"),
            (paris, "1970-01-01T00:00:01.500000001Z"),
            (
                Arc::new(Date32Array::from(vec![Some(0), None])),
                "1970-01-01",
            ),
        ];
        for (array, text) in cases {
            let cells = values(&array, BytesAs::Cells).unwrap();
            assert_eq!(cells, [Value::Time(text.to_owned()), Value::Null]);
            let items = values(&array, BytesAs::Text).unwrap();
            assert_eq!(items, [Value::Text(text.to_owned()), Value::Null]);
        }
    }

    #[test]
    fn a_number_stays_one_and_is_never_rounded() {
        let decimals = |digits, scale, values: Vec<Option<i128>>| -> ArrayRef {
            let values = Decimal128Array::from(values);
            Arc::new(values.with_precision_and_scale(digits, scale).unwrap())
        };
        let digits = |text: &str| Value::Digits(text.to_owned());
        let long = 12_345_678_901_234_567_890;
        for (array, expected) in [
            (
                decimals(15, 2, vec![Some(999_999_999_999_999), Some(-5), None]),
                vec![
                    Value::Float(9_999_999_999_999.99),
                    Value::Float(-0.05),
                    Value::Null,
                ],
            ),
            (decimals(16, 2, vec![Some(1350)]), vec![digits("13.50")]),
            (
                decimals(38, 2, vec![Some(long)]),
                vec![digits("123456789012345678.90")],
            ),
            (
                decimals(18, 0, vec![Some(-999_999_999_999_999_999)]),
                vec![Value::Int(-999_999_999_999_999_999)],
            ),
            (decimals(19, 0, vec![Some(7)]), vec![digits("7")]),
            (
                decimals(5, -3, vec![Some(12)]),
                vec![Value::Float(12_000.0)],
            ),
            (
                Arc::new(UInt64Array::from(vec![u64::MAX, 7])),
                vec![digits("18446744073709551615"), Value::Int(7)],
            ),
        ] {
            assert_eq!(
                values(&array, BytesAs::Cells).unwrap(),
                expected,
                "{}",
                array.data_type()
            );
        }
    }
}
