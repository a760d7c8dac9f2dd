//! Predictions written as NDJSON, CSV or Parquet.
//!
//! A number is written with the fewest digits that read back the same. In NDJSON a missing number
//! or class is null, and only failed rows have `error` and `detail`.

use std::{io::Write, sync::Arc};

use arrow::{
    array::{
        Array as _, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, Int64Array,
        RecordBatch, StringArray, UInt64Array,
    },
    datatypes::{
        DataType, Field, Float32Type, Float64Type, Int64Type, Schema, SchemaRef, UInt64Type,
    },
};
use parquet::{arrow::ArrowWriter, errors::ParquetError};
use serde_json::Value;

use crate::Error;

/// Size in bytes of a row group of Parquet, which is held in memory until it is complete.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// Columns that an NDJSON object has only where they have a value.
const OPTIONAL: [&str; 2] = ["error", "detail"];

/// File format of predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// CSV with a header line.
    Csv,
    /// One JSON object per line.
    Ndjson,
    /// Parquet.
    Parquet,
}

impl RowFormat {
    /// Recognizes the format by the ending of a file name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        match name.rsplit_once('.')?.1 {
            "csv" | "tsv" => Some(Self::Csv),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// A column of predictions with a cell per row; missing cells are null.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Numbers of rows.
    Counts(Vec<u64>),
    /// Integers.
    Whole(Vec<Option<u64>>),
    /// Integers with a sign.
    Integers(Vec<Option<i64>>),
    /// True or false.
    Bools(Vec<Option<bool>>),
    /// 32-bit numbers.
    Short(Vec<Option<f32>>),
    /// 64-bit numbers.
    Long(Vec<Option<f64>>),
    /// Text.
    Text(Vec<Option<String>>),
}

impl From<Column> for ArrayRef {
    fn from(column: Column) -> Self {
        match column {
            Column::Counts(cells) => Arc::new(UInt64Array::from(cells)),
            Column::Whole(cells) => Arc::new(UInt64Array::from(cells)),
            Column::Integers(cells) => Arc::new(Int64Array::from(cells)),
            Column::Bools(cells) => Arc::new(BooleanArray::from(cells)),
            Column::Short(cells) => Arc::new(Float32Array::from(cells)),
            Column::Long(cells) => Arc::new(Float64Array::from(cells)),
            Column::Text(cells) => Arc::new(StringArray::from(cells)),
        }
    }
}

/// Writer of predictions.
///
/// ```
/// use feedline_preprocess::{Column, RowFormat, RowsOut};
///
/// let names = ["row", "price"].map(str::to_owned);
/// let mut file = Vec::new();
/// let mut out = RowsOut::new(&mut file, RowFormat::Csv, &names)?;
/// out.write(vec![Column::Counts(vec![0, 1]), Column::Long(vec![Some(9.5), None])])?;
/// out.finish()?;
/// assert_eq!(String::from_utf8(file)?, "row,price\n0,9.5\n1,\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RowsOut<W: Write + Send> {
    writer: Writer<W>,
    /// Names of the columns, in JSON.
    keys: Vec<String>,
    schema: Option<SchemaRef>,
    names: Vec<String>,
    escapes_formulas: bool,
}

impl<W: Write + Send> std::fmt::Debug for RowsOut<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowsOut")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

enum Writer<W: Write + Send> {
    Csv(Box<csv::Writer<W>>),
    Ndjson(W),
    Parquet(Option<W>, Option<Box<ArrowWriter<W>>>),
}

impl<W: Write + Send> RowsOut<W> {
    /// Creates a writer for these columns.
    ///
    /// # Errors
    /// [`Error::Input`] for a duplicate name.
    pub fn new(out: W, format: RowFormat, names: &[String]) -> Result<Self, Error> {
        let twice = (1..names.len()).find(|i| names[..*i].contains(&names[*i]));
        if let Some(name) = twice.map(|i| &names[i]) {
            return Err(Error::input(
                "the columns of the predictions",
                format!("`{name}` would appear twice"),
                "pass each column through once; if two features share this name, rebuild the dataset",
            ));
        }
        Ok(Self {
            writer: match format {
                RowFormat::Csv => Writer::Csv(Box::new(csv::Writer::from_writer(out))),
                RowFormat::Ndjson => Writer::Ndjson(out),
                RowFormat::Parquet => Writer::Parquet(Some(out), None),
            },
            keys: names
                .iter()
                .map(|name| Value::from(name.as_str()).to_string())
                .collect(),
            schema: None,
            names: names.to_vec(),
            escapes_formulas: false,
        })
    }

    /// Enables the escaping of spreadsheet formulas: CSV strings that a spreadsheet would take for
    /// one are written with a `'` before them. Those begin with `=`, `+`, `-`, `@`, a tab or a line
    /// end, and are no number.
    #[must_use]
    pub fn escaping_formulas(mut self) -> Self {
        self.escapes_formulas = true;
        self
    }

    /// Writes rows: a cell of each column, in the order of the names. CSV and NDJSON are flushed.
    ///
    /// # Errors
    /// Errors of the underlying writer.
    ///
    /// # Panics
    /// When there are not as many columns as names, or not as many cells in each.
    pub fn write(&mut self, columns: Vec<Column>) -> std::io::Result<()> {
        let arrays: Vec<ArrayRef> = columns.into_iter().map(ArrayRef::from).collect();
        assert_eq!(arrays.len(), self.names.len(), "every column has a name");
        let is_first = self.schema.is_none();
        let fields = arrays.iter().zip(&self.names);
        let fields = fields.map(|(array, name)| Field::new(name, array.data_type().clone(), true));
        let schema = self
            .schema
            .get_or_insert_with(|| Arc::new(Schema::new(fields.collect::<Vec<_>>())));
        let batch = RecordBatch::try_new(Arc::clone(schema), arrays)
            .expect("columns are of one length and their types stay");
        match &mut self.writer {
            Writer::Csv(out) => {
                let field = |text: String| match self.escapes_formulas && is_formula(&text) {
                    true => format!("'{text}"),
                    false => text,
                };
                if is_first {
                    out.write_record(self.names.iter().cloned().map(field))
                        .map_err(csv_cause)?;
                }
                for row in 0..batch.num_rows() {
                    for column in batch.columns() {
                        out.write_field(field(cell(column, row).unwrap_or_default()))
                            .map_err(csv_cause)?;
                    }
                    out.write_record(None::<&[u8]>).map_err(csv_cause)?;
                }
                out.flush()
            }
            Writer::Ndjson(out) => {
                let mut text = String::new();
                for row in 0..batch.num_rows() {
                    object(&self.keys, &self.names, &batch, row, &mut text);
                }
                out.write_all(text.as_bytes())?;
                out.flush()
            }
            Writer::Parquet(out, writer) => {
                if let Some(out) = out.take() {
                    *writer = Some(Box::new(
                        ArrowWriter::try_new(out, batch.schema(), None).map_err(parquet_cause)?,
                    ));
                }
                let writer = writer.as_mut().expect("it was made with the first rows");
                writer.write(&batch).map_err(parquet_cause)?;
                if writer.in_progress_size() > ROW_GROUP_BYTES {
                    writer.flush().map_err(parquet_cause)?;
                }
                Ok(())
            }
        }
    }

    /// Ends the file. Without rows the file is empty, and so not a valid Parquet file.
    ///
    /// # Errors
    /// Errors of the underlying writer.
    pub fn finish(self) -> std::io::Result<()> {
        match self.writer {
            Writer::Csv(mut out) => out.flush(),
            Writer::Ndjson(mut out) => out.flush(),
            Writer::Parquet(_, None) => Ok(()),
            Writer::Parquet(_, Some(writer)) => writer.close().map(drop).map_err(parquet_cause),
        }
    }
}

/// Returns the error of the underlying writer, such as a full disk.
fn csv_cause(error: csv::Error) -> std::io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(cause) => cause,
        other => std::io::Error::other(format!("{other:?}")),
    }
}

/// The same of Parquet.
fn parquet_cause(error: ParquetError) -> std::io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast() {
            Ok(cause) => *cause,
            Err(cause) => std::io::Error::other(cause),
        },
        other => std::io::Error::other(other),
    }
}

/// A cell as text; none where it has no value.
fn cell(column: &ArrayRef, row: usize) -> Option<String> {
    column.is_valid(row).then(|| match column.data_type() {
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Float32 => format!("{:?}", column.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => format!("{:?}", column.as_primitive::<Float64Type>().value(row)),
        _ => column.as_string::<i32>().value(row).to_owned(),
    })
}

/// Returns whether a spreadsheet that opens a CSV file would evaluate a string.
fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) && text.trim().parse::<f64>().is_err()
}

/// A row as a line of JSON.
fn object(keys: &[String], names: &[String], batch: &RecordBatch, row: usize, out: &mut String) {
    out.push('{');
    let mut is_first = true;
    for ((key, name), column) in keys.iter().zip(names).zip(batch.columns()) {
        let cell = cell(column, row);
        if cell.is_none() && OPTIONAL.contains(&name.as_str()) {
            continue;
        }
        if !is_first {
            out.push(',');
        }
        is_first = false;
        out.push_str(key);
        out.push(':');
        match cell {
            None => out.push_str("null"),
            Some(text) if *column.data_type() == DataType::Utf8 => {
                out.push_str(&Value::from(text).to_string());
            }
            Some(number) => out.push_str(&number),
        }
    }
    out.push_str("}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(format: RowFormat) -> Vec<u8> {
        let mut out = Vec::new();
        let names = ["row", "prediction", "class", "error"].map(str::to_owned);
        let mut rows = RowsOut::new(&mut out, format, &names).unwrap();
        for first in [1, 3] {
            rows.write(vec![
                Column::Counts(vec![first, first + 1]),
                Column::Long(vec![Some(0.1 + 0.2), None]),
                Column::Text(vec![Some("a\"b,c".into()), None]),
                Column::Text(vec![None, Some("ragged_row".into())]),
            ])
            .unwrap();
        }
        rows.finish().unwrap();
        out
    }

    #[test]
    fn lines_hold_objects_and_numbers_read_back_the_same() {
        let text = String::from_utf8(write(RowFormat::Ndjson)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(
            lines[0],
            r#"{"row":1,"prediction":0.30000000000000004,"class":"a\"b,c"}"#
        );
        assert_eq!(
            lines[3],
            r#"{"row":4,"prediction":null,"class":null,"error":"ragged_row"}"#
        );
    }

    #[test]
    fn a_full_disk_stays_one_in_the_error_of_every_format() {
        struct FullDisk;
        impl Write for FullDisk {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        for format in [RowFormat::Csv, RowFormat::Ndjson, RowFormat::Parquet] {
            let names = ["class".to_owned()];
            let mut out = RowsOut::new(FullDisk, format, &names).unwrap();
            // More than the buffer of a writer holds.
            let cells = vec![Some("c".repeat(100)); 1_000];
            let written = out.write(vec![Column::Text(cells)]);
            let error = written.and_then(|()| out.finish()).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{format:?}");
        }
    }

    #[test]
    fn csv_has_one_header() {
        let text = String::from_utf8(write(RowFormat::Csv)).unwrap();
        let expected =
            "row,prediction,class,error\n1,0.30000000000000004,\"a\"\"b,c\",\n2,,,ragged_row\n3,";
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(text.lines().count(), 5);
    }

    #[test]
    fn formulas_are_written_as_texts_where_that_is_asked_for() {
        let write = |escapes: bool| {
            let mut out = Vec::new();
            let names = ["n", "kept", "=name"].map(str::to_owned);
            let mut rows = RowsOut::new(&mut out, RowFormat::Csv, &names).unwrap();
            if escapes {
                rows = rows.escaping_formulas();
            }
            let texts = ["=cmd|calc!A0", "@SUM(A1)", "-1.5", "+x", "a=b"];
            let texts = texts.map(|text| Some(text.to_owned()));
            rows.write(vec![
                Column::Long(vec![Some(-1.0); 5]),
                Column::Text(texts.to_vec()),
                Column::Text(vec![None; 5]),
            ])
            .unwrap();
            rows.finish().unwrap();
            String::from_utf8(out).unwrap()
        };
        let expected = "n,kept,'=name\n-1.0,'=cmd|calc!A0,\n-1.0,'@SUM(A1),\n-1.0,-1.5,\n-1.0,'+x,\n-1.0,a=b,\n";
        assert_eq!(write(true), expected);
        assert_eq!(write(false), expected.replace('\'', ""));
    }

    #[test]
    fn parquet_holds_all_batches() {
        let bytes = bytes::Bytes::from(write(RowFormat::Parquet));
        let reader =
            parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes, 100).unwrap();
        let rows: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
        let numbers = rows[0]["row"].as_primitive::<UInt64Type>();
        assert_eq!(numbers.values().to_vec(), [1, 2, 3, 4]);
    }

    #[test]
    fn integers_and_booleans_are_no_strings() {
        let names = ["id", "new"].map(str::to_owned);
        let columns = || {
            vec![
                Column::Integers(vec![Some(-7), None]),
                Column::Bools(vec![Some(true), None]),
            ]
        };
        let mut out = Vec::new();
        let mut rows = RowsOut::new(&mut out, RowFormat::Ndjson, &names).unwrap();
        rows.write(columns()).unwrap();
        rows.finish().unwrap();
        let expected = "{\"id\":-7,\"new\":true}\n{\"id\":null,\"new\":null}\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        let mut rows = RowsOut::new(&mut out, RowFormat::Parquet, &names).unwrap();
        rows.write(columns()).unwrap();
        rows.finish().unwrap();
        let bytes = bytes::Bytes::from(out);
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes, 100);
        let batch = reader.unwrap().next().unwrap().unwrap();
        let integers = batch["id"].as_primitive::<Int64Type>();
        assert_eq!(integers.iter().collect::<Vec<_>>(), [Some(-7), None]);
        let bools: Vec<Option<bool>> = batch["new"].as_boolean().iter().collect();
        assert_eq!(bools, [Some(true), None]);
    }

    #[test]
    fn a_name_that_stands_twice_is_refused() {
        let names = ["row", "row"].map(str::to_owned);
        let error = RowsOut::new(Vec::new(), RowFormat::Csv, &names).unwrap_err();
        assert!(
            error.to_string().contains("`row` would appear twice"),
            "{error}"
        );
    }
}
