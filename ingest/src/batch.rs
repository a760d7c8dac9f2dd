//! A batch: pages gathered until they are worth a commit, decided by contract and written as Parquet.
//!
//! Data file: `_feedline_seq` u64, `_feedline_row` u32, `_feedline_hash` fixed-size binary (16), then the source's columns,
//! all nullable: `Null`, `Utf8` and `Json` as text, the others as themselves. Rows are in the order of
//! the source. Rejects file: `_feedline_seq`, `_feedline_row`, `reason`, `path` (column, or empty), `detail`, `raw` (the
//! record as canonical JSON, or the line as it came). `_feedline_row` counts all records of the batch from 0, so landed
//! rows, rejects and the gaps that duplicates leave add up.
//!
//! Frontier file of a `html` source: `_feedline_seq`, `_feedline_row`, then the columns of [`crate::frontier`].
//!
//! Validators file of a `html` source: `_feedline_seq`, `_feedline_row`, then the columns of [`crate::validators`].
//!
//! Files are a pure function of the batch, the schema and the dedup window before it: same batch, same bytes, same name.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{
        ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryBuilder, Float64Array, Int64Array,
        RecordBatch, StringArray, StringBuilder, UInt32Array, UInt64Array,
    },
    datatypes::{Field, Schema},
};
use bytes::Bytes;
use feedline_schemas::{
    commit::{BatchCounts, DataFile, Position},
    config::{BatchConfig, ContractConfig},
    ids::{Hash128, Sequence},
    record::{Column, ColumnType, RecordSchema, system},
};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::WriterProperties,
    schema::types::ColumnPath,
};

use crate::{
    contract::{self, Contract, Verdict},
    dedup::Window,
    error::Error,
    flatten::flatten,
    frontier::{self, Discovery},
    source::{Page, Record},
    validators::{self, Validator},
    value::{Value, shorten},
};

/// Most records of a batch: rows have 24 bits in [`feedline_schemas::ids::Origin`].
const MAX_RECORDS: usize = 1 << 24;

/// A batch of this many bytes is committed at the end of its page: columns are held in memory, with 32-bit offsets.
const MOST_BYTES: u64 = 128 << 20;

/// Pages since the last commit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    records: Vec<Record>,
    pages: u64,
    bytes: u64,
    skipped: BTreeMap<String, u64>,
    frontier: Vec<Discovery>,
    validators: Vec<(Hash128, Validator)>,
}

impl Batch {
    /// Adds a page's records.
    pub(crate) fn push(&mut self, page: Page) -> Result<Position, Error> {
        self.bytes += page.records.iter().map(Record::size).sum::<u64>();
        self.records.extend(page.records);
        if let Some(crawled) = page.crawled {
            self.pages += crawled.urls;
            for (reason, count) in crawled.skipped {
                *self.skipped.entry(reason.to_owned()).or_default() += count;
            }
            self.bytes += crawled
                .found
                .iter()
                .map(|d| d.url.len() as u64)
                .sum::<u64>();
            self.frontier.extend(crawled.found);
            self.validators.extend(crawled.validators);
        } else {
            self.pages += 1;
        }
        if self.records.len() > MAX_RECORDS {
            return Err(Error::config(
                "batch.rows",
                format!(
                    "a page brought the batch to {} records, more than {MAX_RECORDS}; ask for smaller pages",
                    self.records.len()
                ),
            ));
        }
        Ok(page.next)
    }

    /// Whether it is time to commit.
    pub(crate) fn is_full(&self, config: &BatchConfig) -> bool {
        self.len() >= config.rows || self.pages >= config.pages || self.bytes >= MOST_BYTES
    }

    /// Whether any page gave no record for a reason: that is worth an entry of the log.
    pub(crate) fn has_skipped(&self) -> bool {
        !self.skipped.is_empty()
    }

    /// Number of records.
    pub(crate) fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// Decides about every record in order, and takes note of the landed ones in `window`.
    ///
    /// # Errors
    /// [`Error::Frozen`] when the contract stops the run.
    pub(crate) fn decide(
        self,
        source: &str,
        config: &ContractConfig,
        before: Option<&RecordSchema>,
        window: &mut Window,
    ) -> Result<Decided, Error> {
        let mut contract = Contract::new(config, before);
        let mut rows = Vec::with_capacity(self.records.len());
        let mut rejects = Vec::new();
        let mut duplicates = 0;
        let mut nulled: BTreeMap<usize, u64> = BTreeMap::new();
        for (row, record) in (0_u32..).zip(self.records) {
            let entries = match record {
                Record::Value(Value::Object(entries)) => entries,
                Record::Value(other) => {
                    rejects.push(Reject::new(
                        row,
                        Record::of(other, || format!("record {row} of the batch")),
                    ));
                    continue;
                }
                bad @ Record::Bad { .. } => {
                    rejects.push(Reject::new(row, bad));
                    continue;
                }
            };
            let record = Value::Object(entries);
            let raw = record.canonical();
            let hash = Hash128::of(raw.as_bytes());
            if window.contains(hash) {
                duplicates += 1;
                continue;
            }
            let Value::Object(entries) = record else {
                continue;
            };
            match contract.admit(flatten(entries, config.max_depth)) {
                Verdict::Land {
                    mut cells,
                    nulled: columns,
                } => {
                    cells.sort_unstable_by_key(|(column, _)| *column);
                    columns
                        .into_iter()
                        .for_each(|column| *nulled.entry(column).or_default() += 1);
                    window.push(hash);
                    rows.push(Row { row, hash, cells });
                }
                Verdict::Reject(r) => {
                    rejects.push(Reject {
                        row,
                        reason: r.reason,
                        path: r.path,
                        detail: r.detail,
                        raw,
                    });
                }
                Verdict::Stop(r) => {
                    let record = shorten(&raw, 500).into_owned();
                    return Err(Error::Frozen {
                        source: source.to_owned(),
                        detail: r.detail,
                        record,
                    });
                }
            }
        }
        let schema = contract.into_schema(before);
        let name = |column: usize| schema.columns[column].name.clone();
        let nulled = nulled
            .into_iter()
            .map(|(column, count)| (name(column), count))
            .collect();
        Ok(Decided {
            schema,
            rows,
            rejects,
            duplicates,
            nulled,
            pages: self.pages,
            skipped: self.skipped,
            frontier: self.frontier,
            validators: self.validators,
        })
    }
}

/// A batch after all decisions.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) schema: RecordSchema,
    rows: Vec<Row>,
    rejects: Vec<Reject>,
    duplicates: u64,
    nulled: BTreeMap<String, u64>,
    pages: u64,
    skipped: BTreeMap<String, u64>,
    frontier: Vec<Discovery>,
    validators: Vec<(Hash128, Validator)>,
}

/// A record that lands.
#[derive(Clone, Debug)]
struct Row {
    row: u32,
    hash: Hash128,
    /// Column index and value, nulls left out, in the order of columns.
    cells: Vec<(usize, Value)>,
}

/// A record that is set aside.
#[derive(Clone, Debug)]
pub(crate) struct Reject {
    row: u32,
    pub(crate) reason: &'static str,
    path: String,
    detail: String,
    raw: String,
}

impl Reject {
    fn new(row: u32, record: Record) -> Self {
        match record {
            Record::Bad {
                raw,
                reason,
                detail,
            } => Self {
                row,
                reason,
                path: String::new(),
                detail,
                raw,
            },
            Record::Value(value) => {
                let detail = format!("record {row} of the batch is {}", value.kind());
                Self {
                    row,
                    reason: "not_an_object",
                    path: String::new(),
                    detail,
                    raw: value.canonical(),
                }
            }
        }
    }

    /// For a person.
    pub(crate) fn sample(&self) -> String {
        describe(self.reason, &self.detail, &self.raw)
    }
}

/// A rejected record for a person: why, and what it was.
pub(crate) fn describe(reason: &str, detail: &str, raw: &str) -> String {
    format!(
        "`{reason}`: {}: {}",
        shorten(detail, 300),
        shorten(raw, 200)
    )
}

/// A file ready to be written.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    /// Its entry in the log.
    pub(crate) file: DataFile,
    /// Its content.
    pub(crate) bytes: Bytes,
}

impl Decided {
    /// Rejected records.
    pub(crate) fn rejects(&self) -> &[Reject] {
        &self.rejects
    }

    /// What happened to the records.
    pub(crate) fn counts(&self) -> BatchCounts {
        let mut counts = BatchCounts {
            rows: self.rows.len() as u64,
            duplicates: self.duplicates,
            rejected: self.rejects.len() as u64,
            nulled: self.nulled.clone(),
            pages: self.pages,
            skipped: self.skipped.clone(),
            ..BatchCounts::default()
        };
        for reject in &self.rejects {
            *counts
                .rejected_by_reason
                .entry(reject.reason.to_owned())
                .or_default() += 1;
        }
        let mut coerced = vec![0; self.schema.columns.len()];
        for (column, value) in self.rows.iter().flat_map(|row| &row.cells) {
            coerced[*column] += u64::from(contract::is_coerced(
                self.schema.columns[*column].r#type,
                value,
            ));
        }
        let named = self
            .schema
            .columns
            .iter()
            .zip(coerced)
            .filter(|(_, count)| *count > 0);
        counts.coerced = named
            .map(|(column, count)| (column.name.clone(), count))
            .collect();
        counts
    }

    /// The data file, if any record landed.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn data_file(&self, sequence: Sequence) -> Result<Option<Encoded>, Error> {
        let rows = self.rows.iter().map(|row| row.row);
        let mut hashes = FixedSizeBinaryBuilder::with_capacity(self.rows.len(), 16);
        for row in &self.rows {
            hashes
                .append_value(row.hash.get().to_be_bytes())
                .map_err(|e| encode_error("data", e.into()))?;
        }
        let mut columns = vec![(system::HASH, Arc::new(hashes.finish()) as ArrayRef)];
        columns.extend(
            self.schema
                .columns
                .iter()
                .map(|c| c.name.as_str())
                .zip(self.source_columns()),
        );
        encode("data", sequence, rows, columns)
    }

    /// The rejects file, if any record was rejected.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn rejects_file(&self, sequence: Sequence) -> Result<Option<Encoded>, Error> {
        let rows = self.rejects.iter().map(|reject| reject.row);
        let text = |get: fn(&Reject) -> &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(self.rejects.iter().map(get)))
        };
        let columns = vec![
            (rejects::REASON, text(|r| r.reason)),
            (rejects::PATH, text(|r| &r.path)),
            (rejects::DETAIL, text(|r| &r.detail)),
            (rejects::RAW, text(|r| &r.raw)),
        ];
        encode("rejects", sequence, rows, columns)
    }

    /// The frontier file, if the batch found any URL.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn frontier_file(&self, sequence: Sequence) -> Result<Option<Encoded>, Error> {
        let rows = (0..).take(self.frontier.len()).collect::<Vec<u32>>();
        encode(
            "frontier",
            sequence,
            rows.into_iter(),
            frontier::columns(&self.frontier),
        )
    }

    /// The validators file, if a page came with any.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn validators_file(&self, sequence: Sequence) -> Result<Option<Encoded>, Error> {
        let rows = (0..).take(self.validators.len()).collect::<Vec<u32>>();
        let columns = validators::columns(&self.validators);
        encode("validators", sequence, rows.into_iter(), columns)
    }

    /// The source's columns, from rows to columns. Cells are in the order of columns, so one cursor for each row is all
    /// it takes to walk them column by column.
    fn source_columns(&self) -> Vec<ArrayRef> {
        let mut cursors = vec![0; self.rows.len()];
        let mut arrays = Vec::with_capacity(self.schema.columns.len());
        for (i, column) in self.schema.columns.iter().enumerate() {
            let mut cells = vec![None; self.rows.len()];
            for ((cell, row), cursor) in cells.iter_mut().zip(&self.rows).zip(&mut cursors) {
                if let Some((_, value)) = row.cells.get(*cursor).filter(|(column, _)| *column == i)
                {
                    *cell = Some(value);
                    *cursor += 1;
                }
            }
            arrays.push(array(column, cells));
        }
        arrays
    }
}

/// Columns of a rejects file besides the system ones.
pub(crate) mod rejects {
    pub(crate) const REASON: &str = "reason";
    pub(crate) const PATH: &str = "path";
    pub(crate) const DETAIL: &str = "detail";
    pub(crate) const RAW: &str = "raw";
}

/// A column; every cell was admitted to it by the contract.
fn array(column: &Column, cells: Vec<Option<&Value>>) -> ArrayRef {
    fn converted<T>(
        column: &Column,
        cells: Vec<Option<&Value>>,
        as_held: fn(&Value) -> Option<T>,
    ) -> Vec<Option<T>> {
        let convert = |value| {
            let held = as_held(value);
            assert!(
                held.is_some(),
                "the contract let {value:?} into column {column:?}"
            );
            held
        };
        cells
            .into_iter()
            .map(|cell| cell.and_then(convert))
            .collect()
    }
    match column.r#type {
        ColumnType::Bool => Arc::new(BooleanArray::from(converted(
            column,
            cells,
            contract::boolean,
        ))),
        ColumnType::Int64 => Arc::new(Int64Array::from(converted(
            column,
            cells,
            contract::integer,
        ))),
        ColumnType::Float64 => Arc::new(Float64Array::from(converted(
            column,
            cells,
            contract::float,
        ))),
        ColumnType::Utf8 | ColumnType::Null => texts(converted(column, cells, contract::text)),
        ColumnType::Json => texts(converted(column, cells, |value| Some(value.canonical()))),
        ColumnType::Binary => Arc::new(BinaryArray::from_iter(converted(
            column,
            cells,
            contract::bytes,
        ))),
    }
}

fn texts(cells: Vec<Option<String>>) -> ArrayRef {
    let mut builder = StringBuilder::new();
    cells
        .into_iter()
        .for_each(|cell| builder.append_option(cell));
    Arc::new(builder.finish())
}

/// Encodes a file of the kind `folder`; `None` when it has no rows.
fn encode(
    folder: &str,
    sequence: Sequence,
    rows: impl ExactSizeIterator<Item = u32>,
    columns: Vec<(&str, ArrayRef)>,
) -> Result<Option<Encoded>, Error> {
    let count = rows.len();
    if count == 0 {
        return Ok(None);
    }
    let system: Vec<(&str, ArrayRef)> = vec![
        (
            system::SEQUENCE,
            Arc::new(UInt64Array::from(vec![sequence.get(); count])),
        ),
        (system::ROW, Arc::new(UInt32Array::from_iter_values(rows))),
    ];
    let all = || system.iter().chain(&columns);
    let field = |(name, array): &(&str, ArrayRef)| {
        Field::new(
            *name,
            array.data_type().clone(),
            !name.starts_with(system::PREFIX),
        )
    };
    let schema = Arc::new(Schema::new(all().map(field).collect::<Vec<_>>()));
    let arrays = all().map(|(_, array)| Arc::clone(array)).collect();
    let bytes = RecordBatch::try_new(schema, arrays)
        .map_err(ParquetError::from)
        .and_then(|batch| write(&batch))
        .map_err(|cause| encode_error(folder, cause))?;
    let hash = Hash128::of(&bytes);
    let path = format!("{folder}/{:020}-{}.parquet", sequence.get(), hash.short());
    let file = DataFile {
        path,
        rows: count as u64,
        bytes: bytes.len() as u64,
        hash,
    };
    Ok(Some(Encoded { file, bytes }))
}

/// Parquet with fixed settings: nothing in it depends on time, machine or release.
fn write(batch: &RecordBatch) -> Result<Bytes, ParquetError> {
    let properties = WriterProperties::builder()
        .set_created_by("feedline".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(MAX_RECORDS))
        .set_column_dictionary_enabled(ColumnPath::from(system::HASH), false)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(batch)?;
    Ok(writer.into_inner()?.into())
}

fn encode_error(what: &str, cause: ParquetError) -> Error {
    Error::Encode {
        what: format!("the {what} file of a batch"),
        cause,
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Array, AsArray},
        datatypes::{DataType, Float64Type, Int64Type, UInt32Type, UInt64Type},
    };
    use feedline_schemas::config::TypeContract;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    const RECORDS: [&str; 8] = [
        r#"{"id":1,"price":2,"note":null,"at":{"x":true}}"#,
        r#"{"id":"2","price":2.5,"tags":["a",1]}"#,
        r#"{"at":{"x":true},"note":null,"price":2,"id":1}"#,
        "[1]",
        r#"{"id":"no number","note":"x"}"#,
        r#"{"note":"late","id":3.0,"at":{"x":null}}"#,
        r#"{"id":4,"note":5}"#,
        r#"{"id":1,"price":2.0,"at":{"x":true}}"#,
    ];

    fn decide(records: &[&str], types: TypeContract) -> Decided {
        let records = records
            .iter()
            .map(|r| Record::Value(Value::parse(r.as_bytes()).unwrap()))
            .collect();
        let mut batch = Batch::default();
        batch
            .push(Page {
                records,
                next: Position::Start,
                crawled: None,
            })
            .unwrap();
        let config = ContractConfig {
            types,
            ..ContractConfig::default()
        };
        batch
            .decide("s", &config, None, &mut Window::new(100))
            .unwrap()
    }

    fn decode(encoded: Option<Encoded>) -> RecordBatch {
        let Encoded { file, bytes } = encoded.unwrap();
        assert_eq!(
            (file.bytes, file.hash),
            (bytes.len() as u64, Hash128::of(&bytes))
        );
        let batch = ParquetRecordBatchReaderBuilder::try_new(bytes)
            .unwrap()
            .build()
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        assert_eq!(file.rows, batch.num_rows() as u64);
        batch
    }

    fn texts<'b>(batch: &'b RecordBatch, column: &str) -> Vec<Option<&'b str>> {
        batch
            .column_by_name(column)
            .unwrap()
            .as_string::<i32>()
            .iter()
            .collect()
    }

    #[test]
    fn landed_rows_have_the_columns_of_the_contract() {
        let decided = decide(&RECORDS, TypeContract::QuarantineRow);
        let batch = decode(decided.data_file(Sequence::new(7)).unwrap());
        let fields: Vec<_> = batch
            .schema_ref()
            .fields()
            .iter()
            .map(|f| (f.name().clone(), f.data_type().clone()))
            .collect();
        let expected = [
            ("_feedline_seq", DataType::UInt64),
            ("_feedline_row", DataType::UInt32),
            ("_feedline_hash", DataType::FixedSizeBinary(16)),
            ("id", DataType::Int64),
            ("price", DataType::Float64),
            ("note", DataType::Utf8),
            ("at.x", DataType::Boolean),
            ("tags", DataType::Utf8),
        ];
        assert_eq!(
            fields,
            expected.map(|(name, r#type)| (name.to_owned(), r#type))
        );
        let column = |name: &str| batch.column_by_name(name).unwrap();
        assert!(
            column("_feedline_seq")
                .as_primitive::<UInt64Type>()
                .values()
                .iter()
                .all(|seq| *seq == 7)
        );
        assert_eq!(
            column("_feedline_row")
                .as_primitive::<UInt32Type>()
                .values(),
            &[0, 1, 5, 6, 7]
        );
        assert_eq!(
            column("id").as_primitive::<Int64Type>().values(),
            &[1, 2, 3, 4, 1]
        );
        let price: Vec<_> = column("price")
            .as_primitive::<Float64Type>()
            .iter()
            .collect();
        assert_eq!(price, [Some(2.0), Some(2.5), None, None, Some(2.0)]);
        assert_eq!(
            texts(&batch, "note"),
            [None, None, Some("late"), Some("5"), None]
        );
        assert_eq!(
            texts(&batch, "tags"),
            [None, Some(r#"["a",1]"#), None, None, None]
        );
        let hash = column("_feedline_hash").as_fixed_size_binary().value(0);
        let canonical = r#"{"at":{"x":true},"id":1,"note":null,"price":2}"#;
        assert_eq!(hash, Hash128::of(canonical.as_bytes()).get().to_be_bytes());
    }

    #[test]
    fn rejects_keep_the_record_and_say_why() {
        let decided = decide(&RECORDS, TypeContract::QuarantineRow);
        let batch = decode(decided.rejects_file(Sequence::new(7)).unwrap());
        assert_eq!(
            batch
                .column_by_name("_feedline_row")
                .unwrap()
                .as_primitive::<UInt32Type>()
                .values(),
            &[3, 4]
        );
        assert_eq!(
            texts(&batch, "reason"),
            [Some("not_an_object"), Some("type_conflict")]
        );
        assert_eq!(texts(&batch, "path"), [Some(""), Some("id")]);
        assert_eq!(
            texts(&batch, "detail"),
            [
                Some("record 3 of the batch: a list where an object should be"),
                Some(r#"column `id` is integer, the value is text `"no number"`"#),
            ]
        );
        assert_eq!(
            texts(&batch, "raw"),
            [Some("[1]"), Some(r#"{"id":"no number","note":"x"}"#)]
        );
    }

    #[test]
    fn every_record_is_counted_once_and_every_conversion() {
        let counts = decide(&RECORDS, TypeContract::QuarantineRow).counts();
        assert_eq!(
            (
                counts.rows,
                counts.duplicates,
                counts.rejected,
                counts.pages
            ),
            (5, 1, 2, 1)
        );
        let coerced: Vec<_> = counts
            .coerced
            .iter()
            .map(|(name, count)| (name.as_str(), *count))
            .collect();
        assert_eq!(coerced, [("id", 2), ("note", 1), ("price", 1)]);
        assert!(counts.nulled.is_empty());
        let counts = decide(&RECORDS, TypeContract::NullValue).counts();
        assert_eq!((counts.rows, counts.rejected), (6, 1));
        assert_eq!(counts.nulled, [("id".to_owned(), 1)].into());
    }

    #[test]
    fn nothing_landed_or_rejected_makes_no_file() {
        let decided = decide(&[], TypeContract::Freeze);
        assert!(decided.data_file(Sequence::new(0)).unwrap().is_none());
        assert!(decided.rejects_file(Sequence::new(0)).unwrap().is_none());
        assert_eq!(decided.schema.version.get(), 1);
    }

    #[test]
    fn columns_without_a_value_and_without_any_column_can_be_written() {
        let batch = decode(
            decide(&[r#"{"a":null}"#], TypeContract::Freeze)
                .data_file(Sequence::new(0))
                .unwrap(),
        );
        assert_eq!(batch.column_by_name("a").unwrap().null_count(), 1);
        let batch = decode(
            decide(&["{}"], TypeContract::Freeze)
                .data_file(Sequence::new(0))
                .unwrap(),
        );
        assert_eq!(batch.num_columns(), 3);
    }

    /// Pins the bytes: a change here changes the names and hashes of every landed file.
    #[test]
    fn the_bytes_of_a_file_are_fixed() {
        let decided = decide(&RECORDS, TypeContract::QuarantineRow);
        let path = |encoded: Option<Encoded>| encoded.unwrap().file.path;
        assert_eq!(
            path(decided.data_file(Sequence::new(7)).unwrap()),
            "data/00000000000000000007-3a018aa7d07e9f76.parquet"
        );
        assert_eq!(
            path(decided.rejects_file(Sequence::new(7)).unwrap()),
            "rejects/00000000000000000007-3a11ccf93d0be690.parquet"
        );
    }
}
