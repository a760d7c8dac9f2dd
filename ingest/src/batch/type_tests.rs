//! Contents of landed files: every type of column, field ids, odd JSON, odd names.

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{DataType, Decimal128Type, Int64Type, TimestampMicrosecondType},
    util::display::array_value_to_string,
};
use feedline_schemas::{
    config::{DeclaredType, DuplicateKeys, ListContract, TypeContract},
    record::{ColumnType, split_path},
};
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::{
    tests::{decide_with, decode, texts},
    *,
};

fn landed(decided: &Decided) -> RecordBatch {
    decode(decided.data_file(Sequence::new(0)).unwrap())
}

fn rejected(decided: &Decided) -> Vec<String> {
    let rejects = decided.rejects().iter();
    rejects
        .map(|r| format!("{} {}", r.reason, r.path))
        .collect()
}

fn types(decided: &Decided) -> Vec<ColumnType> {
    decided.schema.columns.iter().map(|c| c.r#type).collect()
}

/// Cells of a column as text; empty for nulls.
fn shown(batch: &RecordBatch, column: &str) -> Vec<String> {
    let cells = batch.column_by_name(column).unwrap();
    (0..cells.len())
        .map(|row| array_value_to_string(cells, row).unwrap())
        .collect()
}

fn values(values: &[&str], change: impl FnOnce(&mut ContractConfig)) -> Decided {
    let records: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(i, value)| format!(r#"{{"i":{i},"v":{value}}}"#))
        .collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    decide_with(&records, None, change)
}

const QUARANTINE: TypeContract = TypeContract::QuarantineRow;
const WIDEN: TypeContract = TypeContract::Widen;

/// Checks the type of a column of these values, its landed cells, and the number of rejects.
fn check_numbers(
    (numbers, mode): (&[&str], TypeContract),
    column: ColumnType,
    cells: &[&str],
    rejects: usize,
) {
    let decided = values(numbers, |config| config.types = mode);
    assert_eq!(types(&decided)[1], column, "{numbers:?}");
    assert_eq!(shown(&landed(&decided), "v"), cells);
    assert_eq!(decided.rejects().len(), rejects);
}

#[test]
fn fault_34_a_number_that_no_64_bits_hold_is_a_decimal_and_not_rounded() {
    let check = |numbers: [&str; 2], mode: TypeContract, cells: [&str; 2]| {
        check_numbers((&numbers, mode), ColumnType::Decimal, &cells, 0);
    };
    let zeros = "000000000000000000";
    let (one, max) = (
        &*format!("1.{zeros}"),
        &*format!("18446744073709551615.{zeros}"),
    );
    let exact = &*format!("9007199254740993.{zeros}");
    check(["18446744073709551615", "1"], QUARANTINE, [max, one]);
    check(["1", "18446744073709551615"], WIDEN, [one, max]);
    check(
        ["9007199254740993", "0.5"],
        WIDEN,
        [exact, "0.500000000000000000"],
    );
    check(
        ["0.1", "9007199254740993"],
        WIDEN,
        ["0.100000000000000000", exact],
    );
    check(
        ["0.001", "9007199254740993"],
        WIDEN,
        ["0.001000000000000000", exact],
    );
    let integers = ["1", "9223372036854775808"];
    check_numbers((&integers, QUARANTINE), ColumnType::Int64, &["1"], 1);
    let tiny = ["1e-30", "9007199254740993"];
    check_numbers((&tiny, WIDEN), ColumnType::Utf8, &tiny, 0);
}

#[test]
fn numbers_beyond_floats_are_text_and_values_of_other_types_are_decided_by_the_contract() {
    let check = check_numbers;
    let huge = ["1e400", "1"];
    check((&huge, QUARANTINE), ColumnType::Utf8, &huge, 0);
    let huge = ["1", "1e400"];
    check((&huge, WIDEN), ColumnType::Utf8, &huge, 0);
    let float = ColumnType::Float64;
    check((&["1.5", "1e400"], QUARANTINE), float, &["1.5"], 1);
    check((&["1", "-0"], QUARANTINE), float, &["1.0", "-0.0"], 0);
    check((&["1.5", "\"NaN\""], QUARANTINE), float, &["1.5"], 1);
    check((&["true", "1"], QUARANTINE), ColumnType::Bool, &["true"], 1);
    let mixed = ["1", "true"];
    check((&mixed, WIDEN), ColumnType::Utf8, &mixed, 0);
}

/// A batch of these values in a column of a declared type.
fn declared(numbers: &[&str], r#type: DeclaredType) -> Decided {
    values(numbers, |config| {
        let column = config.column.entry("v".to_owned()).or_default();
        column.r#type = Some(r#type);
    })
}

#[test]
fn values_whose_digits_are_rounded_are_counted_in_floats_and_lists_of_floats() {
    const KIND: &str = "digits_rounded";
    let long = "1234567.123456789012345678";
    // The type of the column is that of its first value.
    let floats = values(&["0.5", long, "0.1", "1.10", long], |_| {});
    assert_eq!(types(&floats)[1], ColumnType::Float64);
    let decisions = floats.counts().decisions;
    let noted = &decisions[KIND]["v"];
    assert_eq!((noted.count, &noted.sample), (2, &format!("`{long}`")));
    let list = format!("[0.5,{long}]");
    let lists = values(&["[0.5]", list.as_str()], |config| {
        config.lists = ListContract::List;
    });
    assert_eq!(types(&lists)[1], ColumnType::ListFloat64);
    let decisions = lists.counts().decisions;
    let noted = &decisions[KIND]["v"];
    assert_eq!((noted.count, &noted.sample), (1, &format!("`{list}`")));
    // Nothing is rounded as text, as a decimal, and in a list that lands as JSON text.
    for exact in [
        declared(&[long], DeclaredType::Text),
        declared(&[long], DeclaredType::Decimal),
        values(&[list.as_str()], |_| {}),
    ] {
        assert!(!exact.counts().decisions.contains_key(KIND));
    }
}

#[test]
fn fault_34_a_declared_column_has_the_exact_digits_of_a_number() {
    let long = "1234567.123456789012345678";
    let decimal = declared(&[long, "1.10", "1e2", "0.1"], DeclaredType::Decimal);
    let zeros = "0".repeat(16);
    let cells = [
        long.to_owned(),
        format!("1.10{zeros}"),
        format!("100.00{zeros}"),
        format!("0.10{zeros}"),
    ];
    assert_eq!(shown(&landed(&decimal), "v"), cells);
    let texts = [
        long,
        "1.10",
        "1E2",
        "-0",
        "2.5",
        "12345678901234567.123456789",
    ];
    let text = declared(&texts, DeclaredType::Text);
    assert_eq!(shown(&landed(&text), "v"), texts);
    // A number that the column does not hold exactly is no value of it.
    let decimal = declared(&["0.12345678901234567891", "1"], DeclaredType::Decimal);
    assert_eq!(rejected(&decimal), ["type_conflict v"]);
    let detail = &decimal.rejects()[0].detail;
    assert!(
        detail.contains(
            "18 behind it (`text` keeps all), the value is a float `0.12345678901234567891`"
        ),
        "{detail}"
    );
    let no_number = declared(&["\"x\"", "1"], DeclaredType::Decimal);
    let detail = &no_number.rejects()[0].detail;
    assert!(detail.contains("is decimal, the value"), "{detail}");
    let int = declared(&["5.00", "5.00000000000000000001"], DeclaredType::Int);
    assert_eq!(shown(&landed(&int), "v"), ["5"]);
    assert_eq!(rejected(&int), ["type_conflict v"]);
}

#[test]
fn fault_34_numbers_that_round_to_one_float_are_two_records() {
    let [one, other] = ["0.12345678901234567891", "0.12345678901234567892"];
    let record = |number: &str| format!(r#"{{"v":{number}}}"#);
    let rows = |numbers: [&str; 2]| {
        let records = numbers.map(record);
        let counts = decide_with(&[&records[0], &records[1]], None, |_| {}).counts();
        (counts.rows, counts.duplicates)
    };
    assert_eq!(rows([one, other]), (2, 0));
    assert_eq!(rows([one, one]), (1, 1));
    assert_eq!(rows(["1.10", "1.1"]), (1, 1));
    assert_eq!(rows(["0.1", "0.10000000000000001"]), (1, 1));
    // The hash of a record whose numbers are exact does not depend on their notation.
    let batch = landed(&decide_with(
        &[r#"{"v":[1.10,1E5],"w":2.50}"#],
        None,
        |_| {},
    ));
    let hash = batch.column_by_name("_feedline_hash").unwrap();
    let canonical = r#"{"v":[1.1,100000.0],"w":2.5}"#;
    assert_eq!(
        hash.as_fixed_size_binary().value(0),
        Hash128::of(canonical.as_bytes()).get().to_be_bytes()
    );
}

#[test]
fn fault_34_a_reject_keeps_its_numbers_as_they_were_written() {
    let record = r#"{"a":12345678901234567.123456789,"b":1.10,"c":[1e400,1E5],"v":true}"#;
    let records = [r#"{"v":"x"}"#, record];
    let decided = decide_with(&records, None, |config| {
        let column = config.column.entry("v".to_owned()).or_default();
        column.r#type = Some(DeclaredType::Int);
    });
    let raws: Vec<&str> = decided.rejects().iter().map(|r| r.raw.as_str()).collect();
    assert_eq!(raws, records);
    let list = decide_with(&["[1.10]"], None, |_| {});
    assert_eq!(list.rejects()[0].raw, "[1.10]");
}

#[test]
fn fault_34_a_list_keeps_its_numbers_as_they_were_written() {
    let lists = [
        "[1.10,12345678901234567.125,123456789012345678901234567890,1e400]",
        r#"[{"a":1.10,"b":[2E5,-0]},"1.10",0.5]"#,
        "[1,2.5]",
        "[1.50]",
    ];
    let decided = values(&lists, |_| {});
    assert_eq!(types(&decided)[1], ColumnType::Json);
    assert_eq!(shown(&landed(&decided), "v"), lists);
}

#[test]
fn fault_33_a_wider_column_is_a_new_version_told_with_its_value() {
    let before = Before {
        schema: decide_with(&[r#"{"flight":1}"#], None, |_| {}).schema,
        presence: Presence::default(),
    };
    let widened = decide_with(
        &[r#"{"flight":2}"#, r#"{"flight":"AR2411"}"#],
        Some(&before),
        |config| {
            config.types = TypeContract::Widen;
        },
    );
    assert_eq!(widened.schema.version.get(), 2);
    assert_eq!(
        widened.schema.columns[0].field_id,
        before.schema.columns[0].field_id
    );
    assert_eq!(
        texts(&landed(&widened), "flight"),
        [Some("2"), Some("AR2411")]
    );
    let noted = &widened.counts().decisions["widened"]["flight"];
    assert_eq!(
        (noted.count, noted.sample.as_str()),
        (1, "integer to text for `\"AR2411\"`")
    );
}

#[test]
fn timestamps_and_lists_land_as_themselves() {
    let records = [
        r#"{"at":"2024-02-29T15:05:09.25+02:00","n":[1,null,3],"s":["a"],"e":[]}"#,
        r#"{"at":null,"n":[],"s":["b","c"],"e":[null]}"#,
    ];
    let decided = decide_with(&records, None, |config| {
        config.lists = ListContract::List;
        config.dates = vec!["rfc3339".into()];
    });
    let batch = landed(&decided);
    let at = batch.column_by_name("at").unwrap();
    assert_eq!(
        at.as_primitive::<TimestampMicrosecondType>().value(0),
        1_709_211_909_250_000
    );
    assert_eq!(at.data_type().to_string(), "Timestamp(µs, \"UTC\")");
    assert!(at.is_null(1));
    assert_eq!(shown(&batch, "n"), ["[1, , 3]", "[]"]);
    assert_eq!(shown(&batch, "s"), ["[a]", "[b, c]"]);
    assert_eq!(shown(&batch, "e"), ["[]", "[]"]);
    assert_eq!(
        types(&decided),
        [
            ColumnType::Timestamp,
            ColumnType::ListInt64,
            ColumnType::ListUtf8,
            ColumnType::List
        ]
    );
    assert_eq!(
        batch
            .column_by_name("n")
            .unwrap()
            .as_list::<i32>()
            .value(0)
            .as_primitive::<Int64Type>()
            .null_count(),
        1
    );
}

#[test]
fn columns_carry_their_field_id_in_the_file() {
    let decided = values(&["18446744073709551615"], |_| {});
    let Encoded { bytes, .. } = decided.data_file(Sequence::new(0)).unwrap().unwrap();
    let reader = SerializedFileReader::new(bytes).unwrap();
    let schema = reader.metadata().file_metadata().schema();
    let ids: Vec<(String, Option<i32>)> = schema
        .get_fields()
        .iter()
        .map(|field| {
            let info = field.get_basic_info();
            (info.name().to_owned(), info.has_id().then(|| info.id()))
        })
        .collect();
    let expected = [
        ("_feedline_seq", None),
        ("_feedline_row", None),
        ("_feedline_hash", None),
        ("i", Some(1)),
        ("v", Some(2)),
    ];
    assert_eq!(ids, expected.map(|(name, id)| (name.to_owned(), id)));
    let v = landed(&decided);
    assert_eq!(
        v.column_by_name("v").unwrap().data_type(),
        &DataType::Decimal128(38, 18)
    );
    let units = v
        .column_by_name("v")
        .unwrap()
        .as_primitive::<Decimal128Type>()
        .value(0);
    assert_eq!(units, 18_446_744_073_709_551_615_i128 * 10_i128.pow(18));
}

#[test]
fn fault_38_a_record_with_a_key_twice_is_rejected_or_settled() {
    let records = [r#"{"a":1,"b":{"c":1,"c":2}}"#, r#"{"a":2,"b":{"c":3}}"#];
    let rejecting = decide_with(&records, None, |_| {});
    assert_eq!(rejected(&rejecting), ["duplicate_key b.c"]);
    assert_eq!(rejecting.rejects()[0].raw, r#"{"a":1,"b":{"c":1,"c":2}}"#);
    let settled = decide_with(&records, None, |config| {
        config.duplicate_keys = DuplicateKeys::Last
    });
    assert_eq!(shown(&landed(&settled), "b.c"), ["2", "3"]);
    let noted = &settled.counts().decisions["duplicate_key"]["b.c"];
    assert_eq!(noted.count, 1);
    assert_eq!(noted.sample, "key `c` twice in one object at byte 18: 2");
    // A fault that no setting settles is the reason.
    let both = [r#"{"a":1,"a":"\ud800"}"#, r#"{"a":1,"a":2,"b":"\ud800"}"#];
    let rejecting = decide_with(&both, None, |_| {});
    let expected = ["lone_surrogate a", "lone_surrogate b"];
    assert_eq!(rejected(&rejecting), expected);
}

#[test]
fn fault_40_a_record_of_broken_text_is_rejected_and_the_others_land() {
    let records = [
        r#"{"a":"\ud800"}"#,
        r#"{"a":"fine"}"#,
        r#"{"l":[["\udfff"]]}"#,
    ];
    let decided = decide_with(&records, None, |config| {
        config.duplicate_keys = DuplicateKeys::Last
    });
    assert_eq!(
        rejected(&decided),
        ["lone_surrogate a", "lone_surrogate l.[0].[0]"]
    );
    assert_eq!(texts(&landed(&decided), "a"), [Some("fine")]);
    // A fault inside landed JSON text is found too.
    assert_eq!(decided.schema.columns.len(), 1);
}

#[test]
fn fault_37_odd_names_stay_apart_and_can_be_read_back() {
    let long = "k".repeat(4096);
    let keys = [
        "a.b",
        "a__b",
        "a\\",
        "Foo",
        "foo",
        "",
        " ",
        "\u{0}",
        "\u{1f600}",
        "\u{5e9}\u{5dc}",
        "e\u{301}",
        "\u{e9}",
        "a\"b",
        "a\nb",
        long.as_str(),
    ];
    let entries: Vec<String> = keys
        .iter()
        .enumerate()
        .map(|(i, key)| format!("{}:{i}", serde_json::to_string(key).unwrap()))
        .collect();
    let nested = r#""a":{"b":100,"":101},"n":{"a.b":102}"#;
    let record = format!("{{{},{nested}}}", entries.join(","));
    let decided = decide_with(&[&record], None, |_| {});
    let batch = landed(&decided);
    for (i, key) in keys.iter().enumerate() {
        let column = decided
            .schema
            .columns
            .iter()
            .find(|c| split_path(&c.name) == [*key])
            .unwrap();
        assert_eq!(shown(&batch, &column.name), [i.to_string()], "{key:?}");
    }
    for (path, value) in [
        (vec!["a", "b"], 100),
        (vec!["a", ""], 101),
        (vec!["n", "a.b"], 102),
    ] {
        let column = decided
            .schema
            .columns
            .iter()
            .find(|c| split_path(&c.name) == path)
            .unwrap();
        assert_eq!(shown(&batch, &column.name), [value.to_string()]);
    }
    assert_eq!(batch.num_columns(), 3 + keys.len() + 3);
    let again = decide_with(&[&record], None, |_| {});
    assert_eq!(
        again.data_file(Sequence::new(0)).unwrap().unwrap().file,
        decided.data_file(Sequence::new(0)).unwrap().unwrap().file
    );
}

#[test]
fn fault_44_the_same_pages_make_the_same_file_on_any_thread() {
    let records: Vec<String> = (0..2_000)
        .map(|i| {
            format!(
                r#"{{"a":{i},"b":{{"x":"{}","y":[{i},2]}},"c":{}}}"#,
                i % 7,
                f64::from(i) / 3.0
            )
        })
        .collect();
    let make = move || {
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let decided = decide_with(&records, None, |config| config.lists = ListContract::List);
        decided.data_file(Sequence::new(3)).unwrap().unwrap()
    };
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make.clone())).collect();
    let files: Vec<Encoded> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    assert!(
        files
            .iter()
            .all(|encoded| encoded.bytes == files[0].bytes && encoded.file == files[0].file)
    );
}

#[test]
fn fault_44_the_order_of_keys_in_a_record_changes_no_file() {
    let first = r#"{"a":1,"b":{"x":1,"y":2},"c":[{"p":1,"q":2}]}"#;
    let other = r#"{"b":{"y":4,"x":3},"c":[{"q":4,"p":3}],"a":2}"#;
    let same = r#"{"a":2,"c":[{"p":3,"q":4}],"b":{"x":3,"y":4}}"#;
    let file = |records: &[&str]| {
        decide_with(records, None, |_| {})
            .data_file(Sequence::new(0))
            .unwrap()
            .unwrap()
            .bytes
    };
    assert_eq!(file(&[first, other]), file(&[first, same]));
}
