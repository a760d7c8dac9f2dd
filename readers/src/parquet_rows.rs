//! The rows of a Parquet file as records.

use std::{collections::BTreeSet, sync::Arc};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use feedline_schemas::{file_signature::format_by_signature, guard::catching, record::ColumnType};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
            ParquetRecordBatchReaderBuilder,
        },
    },
    errors::ParquetError,
    file::reader::ChunkReader,
};

use crate::{
    declared_type::declared_type,
    parquet_limits::{LimitedPages, batch_rows, check_items, with_views},
    record::Record,
    record_batches::{Portions, check_names, names_of, nested_of},
    rows::{NextRow, RecordPlace, Rows},
    value_view::ValueView,
};

/// Bytes of the start of a file that show another format.
const START: usize = 512;

/// Rows converted at a time.
const BATCH: usize = 1024;

/// Reads rows; a row is an object of its columns.
pub(crate) struct ParquetRows {
    decoder: Decoder,
    /// Schema of all columns, with views.
    schema: SchemaRef,
    names: Vec<String>,
    /// True for columns of objects.
    nested: Vec<bool>,
    portions: Portions,
}

/// State of the decoder of a file.
enum Decoder {
    /// Columns can still be selected.
    Opened(Box<dyn StartDecoder>),
    Started(ParquetRecordBatchReader),
    Failed,
}

/// Starts a decoder, of the columns at these places or of all.
trait StartDecoder: Send {
    fn start(
        self: Box<Self>,
        places: Option<&BTreeSet<usize>>,
    ) -> Result<ParquetRecordBatchReader, String>;
}

impl<R: ChunkReader + 'static> StartDecoder for ParquetRecordBatchReaderBuilder<R> {
    fn start(
        self: Box<Self>,
        places: Option<&BTreeSet<usize>>,
    ) -> Result<ParquetRecordBatchReader, String> {
        let builder = match places {
            Some(places) => {
                let mask = ProjectionMask::roots(self.parquet_schema(), places.iter().copied());
                self.with_projection(mask)
            }
            None => *self,
        };
        builder.build().map_err(|e| e.to_string())
    }
}

impl ParquetRows {
    /// Opens a file and skips `skip` rows without decoding them. Its rows may have `max_ratio`
    /// times its size.
    pub(crate) fn boxed(
        file: impl ChunkReader + 'static,
        skip: u64,
        max_ratio: u64,
    ) -> Result<Box<dyn Rows>, String> {
        guarded(|| Ok(Box::new(Self::open(file, skip, max_ratio)?) as Box<dyn Rows>))
    }

    fn open(file: impl ChunkReader + 'static, skip: u64, max_ratio: u64) -> Result<Self, String> {
        let bytes = file.len();
        check_signature(&file)?;
        let options = ArrowReaderOptions::new();
        let found = ArrowReaderMetadata::load(&file, options.clone()).map_err(|e| told(&e))?;
        check_items(found.metadata())?;
        let batch_rows = batch_rows(found.metadata(), BATCH);
        let options = options.with_schema(with_views(found.schema()));
        let found = ArrowReaderMetadata::try_new(Arc::clone(found.metadata()), options);
        let found = found.map_err(|e| told(&e))?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(LimitedPages(file), found);
        check_names(builder.schema())?;
        let names = names_of(builder.schema());
        let nested = nested_of(builder.schema());
        let schema = Arc::clone(builder.schema());
        let offset = usize::try_from(skip).map_err(|e| e.to_string())?;
        let builder = builder.with_batch_size(batch_rows).with_offset(offset);
        Ok(Self {
            decoder: Decoder::Opened(Box::new(builder)),
            schema,
            names,
            nested,
            portions: Portions::new(bytes, max_ratio).at_row(skip),
        })
    }

    /// The next batch, if there are more.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, String> {
        self.start(None)?;
        let Decoder::Started(reader) = &mut self.decoder else {
            return Err("its reader has failed".to_owned());
        };
        reader.next().transpose().map_err(|e| e.to_string())
    }

    /// Starts the decoder, unless it is.
    fn start(&mut self, places: Option<&BTreeSet<usize>>) -> Result<(), String> {
        if !matches!(self.decoder, Decoder::Opened(_)) {
            return Ok(());
        }
        if let Decoder::Opened(opened) = std::mem::replace(&mut self.decoder, Decoder::Failed) {
            self.decoder = Decoder::Started(opened.start(places)?);
        }
        Ok(())
    }

    /// Makes the next records ready, if there are more.
    fn fill(&mut self) -> Result<(), String> {
        while self.portions.is_empty() {
            if !self.portions.has_rows() {
                let Some(batch) = self.next_batch()? else {
                    return Ok(());
                };
                self.portions.set_rows(batch);
            }
            self.portions.convert()?;
        }
        Ok(())
    }
}

/// Checks the first bytes of a file.
///
/// # Errors
/// Its format by them, if that is another one.
fn check_signature(file: &impl ChunkReader) -> Result<(), String> {
    let most = usize::try_from(file.len()).unwrap_or(usize::MAX).min(START);
    let start = file.get_bytes(0, most).map_err(|e| told(&e))?;
    if start.starts_with(b"PAR1") || start.starts_with(b"PARE") {
        return Ok(());
    }
    let found = match format_by_signature(&start) {
        Some(format) => format!("it is {format} by its first bytes, and no Parquet file"),
        None => "it is no Parquet file by its first bytes".to_owned(),
    };
    Err(format!(
        "{found}: give it the ending or the `format` of its format, or download it again"
    ))
}

/// Returns the message of an error. Our own errors pass through the library unchanged.
fn told(error: &ParquetError) -> String {
    match error {
        ParquetError::External(error) => error.to_string(),
        error => error.to_string(),
    }
}

impl Rows for ParquetRows {
    fn next(&mut self) -> Result<Option<Record>, String> {
        if self.portions.is_empty() {
            guarded(|| self.fill())?;
        }
        Ok(self.portions.pop())
    }

    fn next_row(&mut self) -> Result<Option<NextRow>, String> {
        if self.portions.is_empty() {
            guarded(|| self.fill())?;
        }
        Ok(self.portions.pop_cells())
    }

    fn cell(&self, index: usize) -> ValueView<'_> {
        self.portions.cell(index)
    }

    fn value_below(&self, index: usize, below: &[String]) -> Option<ValueView<'_>> {
        self.portions.find(index, below)
    }

    fn numbered_place(&self) -> Option<RecordPlace> {
        Some(self.portions.place())
    }

    fn columns(&mut self) -> Result<Option<Vec<String>>, String> {
        Ok(Some(self.names.clone()))
    }

    fn is_nested(&self, place: usize) -> bool {
        self.nested.get(place).copied().unwrap_or_default()
    }

    fn declared_type(&self, place: usize, below: &[String]) -> Option<ColumnType> {
        declared_type(&self.schema, place, below)
    }

    fn select(&mut self, places: &BTreeSet<usize>) -> Result<bool, String> {
        let is_ahead = matches!(self.decoder, Decoder::Opened(_));
        guarded(|| self.start(Some(places)))?;
        Ok(is_ahead)
    }
}

/// Runs `work` with the library, which panics on some damaged files; then the file is not read on.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catching(work).unwrap_or_else(|panic| {
        Err(format!(
            "it is damaged, and the reader of Parquet failed on it: {panic}; download it again"
        ))
    })
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{
            ArrayRef, BinaryArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array,
            Int32Array, ListArray, RecordBatch, StringArray, StructArray,
            TimestampMillisecondArray, UInt64Array,
        },
        datatypes::{DataType, Int32Type},
    };

    use parquet::arrow::ArrowWriter;

    use super::*;
    use crate::{
        testing::{numbers, parquet_file as file},
        value::Value,
    };

    fn read(bytes: Vec<u8>, skip: u64) -> Vec<String> {
        let mut rows = ParquetRows::boxed(bytes::Bytes::from(bytes), skip, 200).unwrap();
        let mut records = Vec::new();
        while let Some(Record::Value(value)) = rows.next().unwrap() {
            records.push(value.canonical());
        }
        records
    }

    #[test]
    fn every_type_becomes_its_value() {
        let inner: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("a", Arc::new(StringArray::from(vec![Some("x"), None]))),
            ("b", Arc::new(UInt64Array::from(vec![u64::MAX, 7]))),
            ("c", Arc::new(Float32Array::from(vec![0.5, f32::NAN]))),
            ("d", Arc::new(Date32Array::from(vec![0, 19_000]))),
            (
                "e",
                Arc::new(TimestampMillisecondArray::from(vec![1, 2]).with_timezone("UTC")),
            ),
            (
                "f",
                Arc::new(
                    Decimal128Array::from(vec![12_345, -5])
                        .with_precision_and_scale(10, 2)
                        .unwrap(),
                ),
            ),
            (
                "g",
                Arc::new(BinaryArray::from(vec![&b"\x00\xff"[..], b""])),
            ),
            (
                "h",
                Arc::new(DictionaryArray::<Int32Type>::from_iter(["u", "v"])),
            ),
            (
                "i",
                Arc::new(StructArray::from(vec![(
                    Arc::new(arrow::datatypes::Field::new("j", DataType::Int32, true)),
                    inner,
                )])),
            ),
            (
                "k",
                Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
                    Some(vec![Some(1), None]),
                    None,
                ])),
            ),
        ];
        let expected = [
            r#"{"a":"x","b":"18446744073709551615","c":0.5,"d":"1970-01-01","e":"1970-01-01T00:00:00.001Z","f":123.45,"g":"00ff","h":"u","i":{"j":1},"k":[1,null]}"#,
            r#"{"a":null,"b":7,"c":NaN,"d":"2022-01-08","e":"1970-01-01T00:00:00.002Z","f":-0.05,"g":"","h":"v","i":{"j":null},"k":null}"#,
        ];
        assert_eq!(read(file(columns), 0), expected);
    }

    #[test]
    fn bytes_are_cells_in_a_column_and_a_struct_and_text_in_a_list() {
        let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&b"\xff\xd8"[..]]));
        let field = |name| Arc::new(arrow::datatypes::Field::new(name, DataType::Binary, true));
        let inside = StructArray::from(vec![(field("bytes"), Arc::clone(&bytes))]);
        let mut list = arrow::array::ListBuilder::new(arrow::array::BinaryBuilder::new());
        list.append_value([Some(b"\xff\xd8")]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("a", bytes),
            ("b", Arc::new(inside)),
            ("c", Arc::new(list.finish())),
        ];
        let file = bytes::Bytes::from(file(columns));
        let mut rows = ParquetRows::boxed(file, 0, 200).unwrap();
        let Some(Record::Value(row)) = rows.next().unwrap() else {
            panic!("no row")
        };
        let cell = Value::ByteCell(vec![0xff, 0xd8]);
        assert_eq!(row.at("a"), Some(&cell));
        assert_eq!(row.at("b.bytes"), Some(&cell));
        assert_eq!(
            row.at("c"),
            Some(&Value::List(vec![Value::Text("ffd8".into())]))
        );
    }

    #[test]
    fn an_instant_is_one_text_in_whatever_zone_it_was_written() {
        let at = |zone: &str| -> ArrayRef {
            let at = TimestampMillisecondArray::from(vec![Some(1_704_067_200_120), None]);
            Arc::new(at.with_timezone(zone))
        };
        let columns = vec![
            ("a", at("Europe/Berlin")),
            ("b", at("-03:30")),
            ("c", at("UTC")),
        ];
        let text = r#""2024-01-01T00:00:00.120Z""#;
        let expected = [
            format!(r#"{{"a":{text},"b":{text},"c":{text}}}"#),
            r#"{"a":null,"b":null,"c":null}"#.to_owned(),
        ];
        assert_eq!(read(file(columns), 0), expected);
    }

    #[test]
    fn rows_are_skipped_without_being_read() {
        assert_eq!(
            read(numbers(3000), 2998),
            [r#"{"n":2998}"#, r#"{"n":2999}"#]
        );
        assert!(read(numbers(3), 3).is_empty());
    }

    #[test]
    fn a_file_that_is_not_parquet_is_refused() {
        assert!(
            ParquetRows::boxed(bytes::Bytes::from_static(b"not parquet at all"), 0, 200).is_err()
        );
    }

    /// The library panics on the Arrow schema in its footer.
    #[test]
    fn a_file_that_the_library_panics_on_is_refused() {
        let file = include_bytes!("../../fuzz/corpus/parquet/damaged-schema");
        let (rows, reason) = refused(file.to_vec(), 200);
        assert_eq!(rows, 0);
        assert!(
            reason.starts_with("it is damaged, and the reader"),
            "{reason}"
        );
        assert!(reason.ends_with("download it again"), "{reason}");
    }

    /// The rows that are read before the file is refused, and why it is.
    fn refused(bytes: Vec<u8>, max_ratio: u64) -> (usize, String) {
        let bytes = bytes::Bytes::from(bytes);
        let mut rows = match ParquetRows::boxed(bytes, 0, max_ratio) {
            Ok(rows) => rows,
            Err(reason) => return (0, reason),
        };
        for read in 0.. {
            match rows.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("all {read} rows are read"),
                Err(reason) => return (read, reason),
            }
        }
        unreachable!()
    }

    /// A file with compressed pages.
    fn packed(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let packed = parquet::basic::Compression::ZSTD(Default::default());
        let properties = parquet::file::properties::WriterProperties::builder()
            .set_compression(packed)
            .set_statistics_enabled(parquet::file::properties::EnabledStatistics::None);
        let properties = Some(properties.build());
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), properties).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    #[test]
    fn a_cell_of_400_mb_is_refused_before_it_is_unpacked() {
        let cell = "x".repeat(400_000_000);
        let bytes = packed(vec![("a", Arc::new(StringArray::from(vec![cell])))]);
        assert!(bytes.len() < 100_000, "{}", bytes.len());
        let (rows, reason) = refused(bytes, 200);
        assert_eq!(rows, 0);
        assert!(
            reason.contains("a page of 400000004 bytes unpacked is more than"),
            "{reason}"
        );
    }

    #[test]
    fn a_row_of_more_than_64_mib_is_refused_and_the_rows_before_it_are_read() {
        let cells = ["y".to_owned(), "x".repeat(65 << 20)];
        let bytes = packed(vec![("a", Arc::new(StringArray::from_iter_values(cells)))]);
        let (rows, reason) = refused(bytes, 200);
        assert_eq!(rows, 1);
        assert!(
            reason.contains("a row has 68157441 bytes, more than 67108864"),
            "{reason}"
        );
    }

    #[test]
    fn rows_that_repeat_a_text_of_a_dictionary_are_bounded_by_the_files_size() {
        let keys = Int32Array::from(vec![0; 100_000]);
        let text: ArrayRef = Arc::new(StringArray::from(vec!["z".repeat(100_000)]));
        let column = DictionaryArray::<Int32Type>::try_new(keys, text).unwrap();
        let bytes = packed(vec![("a", Arc::new(column))]);
        assert!(bytes.len() < 100_000, "{}", bytes.len());
        let (rows, reason) = refused(bytes, 10);
        assert!((1_000..2_000).contains(&rows), "{rows}");
        assert!(reason.contains("more than 10 times its size"), "{reason}");
        assert!(reason.contains("`archive.max_ratio`"), "{reason}");
    }

    #[test]
    fn lists_of_texts_count_with_all_their_texts() {
        let long = "x".repeat(1 << 20);
        let items: Vec<Option<&str>> = vec![Some(long.as_str()); 70];
        let mut lists = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new());
        lists.append_value([Some("a")]);
        lists.append_value(items);
        let (rows, reason) = refused(packed(vec![("l", Arc::new(lists.finish()))]), 200);
        assert_eq!(rows, 1);
        assert!(reason.starts_with("a row has 734003"), "{reason}");
    }
}
