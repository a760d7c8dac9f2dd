use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{DataType, Float64Type, Int64Type, UInt32Type, UInt64Type},
};
use feedline_readers::{
    json::{JsonRecord, NodeKind, Reader},
    testing::any_record,
};
use feedline_schemas::config::Bounded;
use feedline_schemas::config::{
    ColumnsContract, DuplicateKeys, JsonConfig, ListContract, NullContract, TypeContract,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;

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

/// Decides about records as trees and on tapes, and checks that the results are equal.
pub(super) fn decide_with(
    records: &[&str],
    before: Option<&Before>,
    change: impl FnOnce(&mut ContractConfig),
) -> Decided {
    let mut config = ContractConfig::default();
    change(&mut config);
    let tree = |text: &&str| Record::Value(Value::parse(text.as_bytes()).unwrap());
    let trees = decide_all(records.iter().map(tree).collect(), before, &config);
    let tapes = decide_all(on_tapes(records), before, &config);
    assert_eq!(outcome(&tapes), outcome(&trees), "{records:?}");
    tapes
}

/// The records of a page; a record that no tape accepts is a tree.
fn on_tapes(records: &[&str]) -> Vec<Record> {
    let bounds = JsonConfig::default();
    let mut reader = Reader::default();
    let record = |text: &&str| match reader.read(text.as_bytes().to_vec(), &bounds) {
        Ok(tape) if tape.node(0).kind == NodeKind::Object => Record::Json(JsonRecord {
            tape: Arc::new(tape),
            place: 0,
        }),
        _ => Record::Value(Value::parse(text.as_bytes()).unwrap()),
    };
    records.iter().map(record).collect()
}

fn decide_all(records: Vec<Record>, before: Option<&Before>, config: &ContractConfig) -> Decided {
    let mut batch = Batch::default();
    batch
        .push(Page {
            records,
            next: Position::Start,
            crawled: None,
            parts: Vec::new(),
        })
        .unwrap();
    batch
        .decide("s", config, before, &mut Window::new(100))
        .unwrap()
}

/// All that a batch leaves.
fn outcome(decided: &Decided) -> String {
    let bytes = |file: Option<Encoded>| file.map(|file| (file.file, file.bytes));
    let sequence = Sequence::new(7);
    format!(
        "{:?}",
        (
            &decided.schema,
            &decided.presence,
            decided.counts(),
            decided.rejects(),
            bytes(decided.data_file(sequence).unwrap()),
            bytes(decided.rejects_file(sequence).unwrap()),
        )
    )
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

#[test]
fn a_batch_ends_with_the_page_that_brings_it_to_any_of_its_bounds() {
    let is_full = |change: fn(&mut BatchConfig)| {
        let mut config = BatchConfig::default();
        change(&mut config);
        let mut batch = Batch::default();
        for _ in 0..2 {
            let page = Page {
                records: on_tapes(&[r#"{"a":1}"#, r#"{"a":"four"}"#]),
                next: Position::Start,
                crawled: None,
                parts: Vec::new(),
            };
            batch.push(page).unwrap();
        }
        batch.is_full(&config)
    };
    assert!(!is_full(|_| ()));
    for (at, over) in [
        (
            is_full(|c| c.rows = Bounded::literal::<4>()),
            is_full(|c| c.rows = Bounded::literal::<5>()),
        ),
        (
            is_full(|c| c.pages = Bounded::literal::<2>()),
            is_full(|c| c.pages = Bounded::literal::<3>()),
        ),
        (
            is_full(|c| c.bytes = Bounded::literal::<40>()),
            is_full(|c| c.bytes = Bounded::literal::<41>()),
        ),
    ] {
        assert!(at && !over);
    }
}

/// Pins the bytes: a change here changes the names and hashes of every landed file.
#[test]
fn the_bytes_of_a_file_are_fixed() {
    let decided = decide(&RECORDS, TypeContract::QuarantineRow);
    let path = |encoded: Option<Encoded>| encoded.unwrap().file.path;
    assert_eq!(
        path(decided.data_file(Sequence::new(7)).unwrap()),
        "data/00000000000000000007-e7c2c36962380c28.parquet"
    );
    assert_eq!(
        path(decided.rejects_file(Sequence::new(7)).unwrap()),
        "rejects/00000000000000000007-cf49846f8957d697.parquet"
    );
}

/// Records that are often similar, like those of one source.
fn likely_records() -> impl Strategy<Value = Vec<String>> {
    let value = prop_oneof![
        6 => (-5_i64..5).prop_map(|v| v.to_string()),
        1 => any::<i64>().prop_map(|v| v.to_string()),
        4 => (-400_i32..400).prop_map(|v| format!("{:?}", f64::from(v) / 8.0)),
        1 => prop::sample::select(&["1.50", "1e3", "-0", "-0.0", "2E-7", "1e400", "1e-400", "9223372036854775808", "0.00001", "123456789012345678.5", "0.12345678901234567891", "5.00"][..]).prop_map(str::to_owned),
        4 => "[a-c]{0,2}".prop_map(|v| format!("{v:?}")),
        1 => prop::sample::select(&[r#""\u00e9\n""#, r#""\ud83d\ude00""#, r#""12""#, r#""1.50""#, r#""2024-01-02T03:04:05Z""#, r#""\ud800""#][..]).prop_map(str::to_owned),
        2 => Just("null".to_owned()),
        2 => any::<bool>().prop_map(|v| v.to_string()),
        1 => prop::sample::select(&["[]", "[1,2]", "[\"x\",null]", "[{\"b\":1,\"a\":1.0}]", "{}", "[[1.10]]", "[1e400,2E5]"][..]).prop_map(str::to_owned),
    ];
    let name = prop::sample::select(&["a", "b", "c.d", "\\u0061", "e\\\\"][..]);
    let object = prop::collection::vec((name, value), 0..4).prop_map(|entries| {
        let entries: Vec<String> = entries
            .iter()
            .map(|(k, v)| format!("\"{k}\": {v}"))
            .collect();
        format!("{{{}}}", entries.join(","))
    });
    let record = (0_u8..8, object.clone(), object).prop_map(|(kind, outer, inner)| match kind {
        0 => outer,
        1 => "[3]".to_owned(),
        _ if outer == "{}" => format!(r#"{{"in":{inner}}}"#),
        _ => format!(r#"{},"in":{inner}}}"#, outer.strip_suffix('}').unwrap()),
    });
    prop::collection::vec(record, 1..24)
}

proptest! {
    #[test]
    fn records_on_tapes_are_decided_as_trees_are(
        records in likely_records(),
        types in prop::sample::select(&[TypeContract::QuarantineRow, TypeContract::Widen, TypeContract::NullValue][..]),
        columns in prop::sample::select(&[ColumnsContract::Evolve, ColumnsContract::QuarantineRow, ColumnsContract::NullValue][..]),
        depth in 1_u32..4,
        flags in 0_u8..32,
    ) {
        let is = |flag: u8| flags & (1 << flag) != 0;
        let change = |config: &mut ContractConfig| {
            config.types = types;
            config.columns = columns;
            config.max_depth = Bounded::new(depth).unwrap();
            if is(0) {
                config.lists = ListContract::List;
            }
            if is(1) {
                config.dates = vec!["rfc3339".into()];
            }
            if is(2) {
                config.required = vec!["a".into()];
                config.nulls = NullContract::QuarantineRow;
            }
            if is(3) {
                config.duplicate_keys = DuplicateKeys::Last;
            }
            if is(4) {
                config.max_keys = Bounded::literal::<2>();
            }
        };
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let (first, second) = records.split_at(records.len() / 2);
        let first = decide_with(first, None, change);
        let before = Before { schema: first.schema.clone(), presence: first.presence.clone() };
        decide_with(second, Some(&before).filter(|b| !b.schema.columns.is_empty()), change);
    }

    #[test]
    fn a_tape_holds_what_the_document_does(record in any_record()) {
        let text = record.canonical();
        let tree = Value::parse(text.as_bytes()).unwrap();
        match Reader::default().read(text.clone().into_bytes(), &JsonConfig::default()) {
            Ok(tape) => {
                prop_assert_eq!(tape.size(0), tree.size());
                prop_assert_eq!(tape.value(0), tree);
            }
            // Keys with escapes are left to trees.
            Err(bytes) => prop_assert!(text.contains('\\') && bytes == text.as_bytes()),
        }
    }
}
