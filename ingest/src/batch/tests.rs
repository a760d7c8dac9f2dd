use arrow::{
    array::{Array, AsArray, RecordBatch},
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
    decide_with(records, None, |config| config.types = types)
}

pub(super) fn decide_with(
    records: &[&str],
    before: Option<&Before>,
    change: impl FnOnce(&mut ContractConfig),
) -> Decided {
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
    let mut config = ContractConfig::default();
    change(&mut config);
    batch
        .decide("s", &config, before, &mut Window::new(100))
        .unwrap()
}

pub(super) fn decode(encoded: Option<Encoded>) -> RecordBatch {
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

pub(super) fn texts<'b>(batch: &'b RecordBatch, column: &str) -> Vec<Option<&'b str>> {
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
        "data/00000000000000000007-a6203b426f221ec9.parquet"
    );
    assert_eq!(
        path(decided.rejects_file(Sequence::new(7)).unwrap()),
        "rejects/00000000000000000007-3a11ccf93d0be690.parquet"
    );
}
