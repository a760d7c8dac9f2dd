//! Cells that could not land: they have the outcome that ingest gives them.

use super::*;

/// `code` is text that a step reads as numbers, and `note` is no part of the dataset.
const ORDERS: [(&str, ColumnType); 6] = [
    ("paid", Bool),
    ("amount", Float64),
    ("n", Int64),
    ("code", Utf8),
    ("note", Int64),
    ("y", Float64),
];
const ORDERS_DATASET: &str = "sources = [\"a\"]\ntarget = \"y\"\ndrop = [\"note\"]\n\
    split = { train = 1.0, validation = 0.0, test = 0.0 }\n\
    step = [{ type = \"impute\", columns = [\"paid\", \"amount\", \"n\", \"code\"] }]\n";
/// A complete row, and one that lacks every optional value.
const WHOLE: u32 = 1;
const LACKING: u32 = 21;

fn order(i: u32) -> Cells {
    if i == LACKING {
        let [a, b, c] = [Value::Null, Value::Null, Value::Null];
        return vec![a, b, c, json!("no number"), json!(0), json!(0.5)];
    }
    vec![
        json!(i.is_multiple_of(3)),
        json!(f64::from(i) * 1.5),
        json!(i % 7),
        json!(i.to_string()),
        json!(i),
        json!(f64::from(i) / 10.0),
    ]
}

static ORDERS_BUILT: LazyLock<Built> =
    LazyLock::new(|| built(&ORDERS, ORDERS_DATASET, (0..40).map(order).collect()));

/// Column and value in the complete row, and the expected outcome.
type Case = (&'static str, Value, Outcome);

enum Outcome {
    /// The row is rejected, with this type of its column and this value.
    Conflict(&'static str),
    /// The feature is the number.
    Is(f32),
    /// The feature is what the build has for a row without a value.
    Missing,
    /// The row is read as if nothing were there.
    Unused,
}

fn read_orders(format: FileFormat, bytes: Vec<u8>, contracts: &[ContractConfig]) -> Read {
    let reading = RowsReading {
        landed: ORDERS_BUILT.landed.clone(),
        contracts: contracts.to_vec(),
        csv: CsvConfig {
            null_values: vec!["?".into()],
            ..CsvConfig::default()
        },
        ..reading(format, 3)
    };
    read_with(&ORDERS_BUILT.transform, bytes, &reading).unwrap()
}

/// `read` has a row for each of `cases`.
fn check_orders(format: FileFormat, read: &Read, cases: &[Case]) {
    let features = &ORDERS_BUILT.transform.artefact().features;
    let (x, bad, _) = read;
    assert_eq!(x.len(), cases.len());
    for (i, (column, value, outcome)) in cases.iter().enumerate() {
        let case = format!("{format:?} {column} {value}");
        let fault = bad.get(&(i as u64));
        if let Outcome::Conflict(expected) = outcome {
            let fault = fault.unwrap_or_else(|| panic!("{case}: no fault"));
            assert_eq!(fault.reason, "type_conflict", "{case}");
            let expected = format!(": column `{column}` is {expected}");
            assert!(fault.detail.ends_with(&expected), "{case}: {fault:?}");
            continue;
        }
        assert_eq!(fault, None, "{case}");
        let mut expected = ORDERS_BUILT.x[&WHOLE].clone();
        let at = features.iter().position(|feature| feature.name == *column);
        match (outcome, at) {
            (Outcome::Is(number), Some(at)) => expected[at] = *number,
            (Outcome::Missing, Some(at)) => expected[at] = ORDERS_BUILT.x[&LACKING][at],
            (Outcome::Unused, None) => {}
            _ => panic!("{case}: no such feature"),
        }
        assert_eq!(bits(&x[i..=i]), bits(&[expected]), "{case}");
    }
}

/// The whole row with another value in a column.
fn with(column: &str, value: &Value) -> Vec<(&'static str, Value)> {
    let names = ORDERS.iter().map(|(name, _)| *name);
    let cells = names.zip(order(WHOLE));
    let cell = |(name, cell)| match name == column {
        true => (name, value.clone()),
        false => (name, cell),
    };
    cells.map(cell).collect()
}

/// Values of objects, and the outcome of each.
fn object_cases() -> Vec<Case> {
    use Outcome::{Conflict, Is, Missing, Unused};
    vec![
        ("paid", json!(true), Is(1.0)),
        (
            "paid",
            json!("false"),
            Conflict("boolean, the value is text `\"false\"`"),
        ),
        (
            "paid",
            json!("False"),
            Conflict("boolean, the value is text `\"False\"`"),
        ),
        (
            "paid",
            json!(2),
            Conflict("boolean, the value is an integer `2`"),
        ),
        (
            "paid",
            json!(0),
            Conflict("boolean, the value is an integer `0`"),
        ),
        ("paid", json!(null), Missing),
        (
            "amount",
            json!("12,5"),
            Conflict("float, the value is text `\"12,5\"`"),
        ),
        (
            "amount",
            json!("n/a"),
            Conflict("float, the value is text `\"n/a\"`"),
        ),
        (
            "amount",
            json!(""),
            Conflict("float, the value is text `\"\"`"),
        ),
        (
            "amount",
            json!(true),
            Conflict("float, the value is a boolean `true`"),
        ),
        (
            "amount",
            json!([1]),
            Conflict("a list, a number or text should be there"),
        ),
        ("amount", json!("2.50"), Is(2.5)),
        ("amount", json!(3), Is(3.0)),
        ("amount", json!(null), Missing),
        (
            "n",
            json!("x"),
            Conflict("integer, the value is text `\"x\"`"),
        ),
        (
            "n",
            json!("2.5"),
            Conflict("integer, the value is text `\"2.5\"`"),
        ),
        (
            "n",
            json!(true),
            Conflict("integer, the value is a boolean `true`"),
        ),
        ("n", json!(2.5), Is(2.5)),
        ("n", json!("12"), Is(12.0)),
        ("code", json!("x"), Missing),
        ("code", json!(7), Is(7.0)),
        ("note", json!("x"), Unused),
        ("note", json!([true]), Unused),
    ]
}

#[test]
fn objects_with_values_that_could_not_land_are_set_aside_as_ingest_does() {
    let cases = object_cases();
    let line = |(column, value, _): &Case| {
        let object: serde_json::Map<String, Value> = with(column, value)
            .into_iter()
            .map(|(name, cell)| (name.to_owned(), cell))
            .collect();
        format!("{}\n", Value::Object(object))
    };
    let lines: String = cases.iter().map(line).collect();
    let read = read_orders(FileFormat::Ndjson, lines.into_bytes(), &[]);
    check_orders(FileFormat::Ndjson, &read, &cases);
}

#[test]
fn cells_of_csv_that_could_not_land_are_set_aside_as_ingest_does() {
    use Outcome::{Conflict, Is, Missing, Unused};
    let cases: Vec<Case> = vec![
        ("paid", json!("TRUE"), Is(1.0)),
        ("paid", json!(" False "), Is(0.0)),
        (
            "paid",
            json!("no"),
            Conflict("boolean, the value is text `\"no\"`"),
        ),
        (
            "paid",
            json!("f"),
            Conflict("boolean, the value is text `\"f\"`"),
        ),
        (
            "paid",
            json!("0"),
            Conflict("boolean, the value is text `\"0\"`"),
        ),
        ("paid", json!(" "), Missing),
        (
            "amount",
            json!("12,5"),
            Conflict("float, the value is text `\"12,5\"`"),
        ),
        (
            "amount",
            json!("12.5 EUR"),
            Conflict("float, the value is text `\"12.5 EUR\"`"),
        ),
        (
            "amount",
            json!("true"),
            Conflict("float, the value is text `\"true\"`"),
        ),
        ("amount", json!(" 4.5"), Is(4.5)),
        ("amount", json!("?"), Missing),
        (
            "n",
            json!("x"),
            Conflict("integer, the value is text `\"x\"`"),
        ),
        (
            "n",
            json!("012"),
            Conflict("integer, the value is text `\"012\"`"),
        ),
        ("n", json!("2.5"), Is(2.5)),
        ("code", json!("12 EUR"), Missing),
        ("code", json!("012"), Is(12.0)),
        ("note", json!("x"), Unused),
    ];
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(ORDERS.map(|(name, _)| name)).unwrap();
    for (column, value, _) in &cases {
        let cells = with(column, value);
        out.write_record(cells.iter().map(|(_, cell)| text(cell)))
            .unwrap();
    }
    let read = read_orders(FileFormat::Csv, out.into_inner().unwrap(), &[]);
    check_orders(FileFormat::Csv, &read, &cases);
}

/// A file of the whole row, as often as `column` has cells.
fn parquet_with(name: &str, column: ArrayRef) -> Vec<u8> {
    let cells = |own: &str| -> ArrayRef {
        let rows = column.len();
        let at = ORDERS.iter().position(|(name, _)| *name == own).unwrap();
        let cell = order(WHOLE)[at].clone();
        match (own == name, &cell) {
            (true, _) => Arc::clone(&column),
            (_, Value::Bool(value)) => Arc::new(BooleanArray::from(vec![*value; rows])),
            (_, Value::String(text)) => Arc::new(StringArray::from(vec![text.as_str(); rows])),
            (_, value) => Arc::new(Float64Array::from(vec![value.as_f64(); rows])),
        }
    };
    let columns = ORDERS.map(|(name, _)| (name, cells(name), true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// Columns of Parquet, and the outcome of each cell.
fn parquet_cases() -> Vec<(ArrayRef, Vec<Case>)> {
    use Outcome::{Conflict, Is, Missing, Unused};
    let texts = |texts: &[&str]| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) };
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(2), Some(0), None]));
    let bools: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
    vec![
        (
            texts(&["false", "True"]),
            vec![
                (
                    "paid",
                    json!("false"),
                    Conflict("boolean, the value is text `\"false\"`"),
                ),
                (
                    "paid",
                    json!("True"),
                    Conflict("boolean, the value is text `\"True\"`"),
                ),
            ],
        ),
        (
            Arc::clone(&ints),
            vec![
                (
                    "paid",
                    json!(2),
                    Conflict("boolean, the value is an integer `2`"),
                ),
                (
                    "paid",
                    json!(0),
                    Conflict("boolean, the value is an integer `0`"),
                ),
                ("paid", json!(null), Missing),
            ],
        ),
        (
            texts(&["12,5", "2.50"]),
            vec![
                (
                    "amount",
                    json!("12,5"),
                    Conflict("float, the value is text `\"12,5\"`"),
                ),
                ("amount", json!("2.50"), Is(2.5)),
            ],
        ),
        (
            ints,
            vec![
                ("amount", json!(2), Is(2.0)),
                ("amount", json!(0), Is(0.0)),
                ("amount", json!(null), Missing),
            ],
        ),
        (
            Arc::clone(&bools),
            vec![(
                "n",
                json!(true),
                Conflict("integer, the value is a boolean `true`"),
            )],
        ),
        (
            texts(&["x", "12"]),
            vec![
                (
                    "n",
                    json!("x"),
                    Conflict("integer, the value is text `\"x\"`"),
                ),
                ("n", json!("12"), Is(12.0)),
            ],
        ),
        (texts(&["12 EUR"]), vec![("code", json!("12 EUR"), Missing)]),
        (bools, vec![("note", json!(true), Unused)]),
    ]
}

#[test]
fn cells_of_parquet_that_could_not_land_are_set_aside_as_ingest_does() {
    for (column, cases) in parquet_cases() {
        let bytes = parquet_with(cases[0].0, column);
        let read = read_orders(FileFormat::Parquet, bytes, &[]);
        check_orders(FileFormat::Parquet, &read, &cases);
    }
}

#[test]
fn the_contract_of_the_source_says_what_becomes_of_a_cell_that_cannot_land() {
    use Outcome::{Conflict, Is, Missing};
    let contract = |text: &str| -> ContractConfig { serde_json::from_str(text).unwrap() };
    let paid = || json!("false");
    let lines = "{\"paid\":\"false\",\"amount\":1.5,\"n\":1,\"code\":\"1\"}\n\
                 {\"paid\":false,\"amount\":1.5,\"n\":2.5,\"code\":\"1\"}\n";
    let conflict = || Conflict("boolean, the value is text `\"false\"`");
    for (contract, of_paid, of_n) in [
        (contract("{}"), conflict(), Is(2.5)),
        (contract(r#"{"types":"widen"}"#), conflict(), Is(2.5)),
        (contract(r#"{"types":"null_value"}"#), Missing, Is(2.5)),
        (
            contract(r#"{"types":"freeze"}"#),
            conflict(),
            Conflict("integer, the value is a float `2.5`"),
        ),
        (
            contract(r#"{"column":{"n":{"type":"int"},"paid":{"types":"null_value"}}}"#),
            Missing,
            Conflict("integer, the value is a float `2.5`"),
        ),
    ] {
        let read = read_orders(FileFormat::Ndjson, lines.into(), &[contract]);
        let cases = [("paid", paid(), of_paid), ("n", json!(2.5), of_n)];
        check_orders(FileFormat::Ndjson, &read, &cases);
    }
}

#[test]
fn without_the_landing_zone_texts_are_read_as_they_look_and_no_row_is_lost() {
    let lines = "{\"paid\":\"x\",\"amount\":\"12,5\",\"n\":\"12\",\"code\":\"1\"}\n";
    let reading = RowsReading {
        landed: BTreeMap::new(),
        ..reading(FileFormat::Ndjson, 3)
    };
    let read = read_with(&ORDERS_BUILT.transform, lines.into(), &reading).unwrap();
    assert_eq!(read.1, BTreeMap::new());
    let features = &ORDERS_BUILT.transform.artefact().features;
    let lacking = &ORDERS_BUILT.x[&LACKING];
    for (at, feature) in features.iter().enumerate() {
        let expected = match feature.name.as_str() {
            "n" => 12.0,
            "code" => 1.0,
            _ => lacking[at],
        };
        assert_eq!(
            read.0[0][at].to_bits(),
            expected.to_bits(),
            "{}",
            feature.name
        );
    }
}
