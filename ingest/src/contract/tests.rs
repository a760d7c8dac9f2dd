use ColumnType::{
    Binary, Bool, Decimal, Float64, Int64, Json, List, ListBool, ListFloat64, ListInt64, ListUtf8,
    Null, Timestamp, Utf8,
};
use TypeContract::{Freeze, NullValue, QuarantineRow, Widen};
use feedline_schemas::config::Bounded;

use super::*;

fn config(types: TypeContract) -> ContractConfig {
    ContractConfig {
        types,
        ..ContractConfig::default()
    }
}

pub(super) fn entries(record: &str) -> Vec<(String, Value)> {
    let Ok(Value::Object(entries)) = Value::parse(record.as_bytes()) else {
        panic!("{record}")
    };
    entries
}

/// Decides about values of column `v` one after another: `+` landed, `~` landed coerced, `0`
/// nulled, `x` rejected, `!` stop; then the type of the column, with its final text for each landed
/// value.
fn check_values(
    types: TypeContract,
    values: impl IntoIterator<Item = Value>,
    verdicts: &str,
    r#type: ColumnType,
) {
    let config = config(types);
    let mut contract = Contract::new(&config, None).unwrap();
    let mut landed = Vec::new();
    for value in values {
        landed.push(match contract.admit(vec![("v".into(), value)]) {
            Verdict::Land { nulled, .. } if !nulled.is_empty() => Err('0'),
            Verdict::Land { mut cells, .. } => {
                Ok(cells.pop().map_or(Value::Null, |(_, value)| value))
            }
            Verdict::Reject(_) => Err('x'),
            Verdict::Stop(..) => Err('!'),
        });
    }
    let have = contract.columns[0].r#type;
    assert_eq!(have, r#type);
    let marks: String = landed
        .iter()
        .map(|landed| match landed {
            Ok(value) => {
                let held = match have {
                    _ if *value == Value::Null => true,
                    Null => false,
                    Bool => boolean(value).is_some(),
                    Int64 => integer(value).is_some(),
                    Float64 => float(value).is_some(),
                    Utf8 => text(value).is_some(),
                    Decimal => decimal(value).is_some(),
                    Timestamp => contract.reading.timestamp(value).is_some(),
                    List | ListBool | ListInt64 | ListFloat64 | ListUtf8 => {
                        matches!(value, Value::List(_))
                    }
                    Json => matches!(value, Value::List(_) | Value::Object(_)),
                    Binary => bytes(value).is_some(),
                };
                assert!(
                    held,
                    "{value:?} was let into a column that ends as {have:?}"
                );
                if is_coerced(have, value) { '~' } else { '+' }
            }
            Err(mark) => *mark,
        })
        .collect();
    assert_eq!(marks, verdicts);
}

fn check(types: TypeContract, values: &str, verdicts: &str, r#type: ColumnType) {
    let Ok(Value::List(values)) = Value::parse(values.as_bytes()) else {
        panic!("{values}")
    };
    check_values(types, values, verdicts, r#type);
}

fn check_cells(cells: &[&str], verdicts: &str, r#type: ColumnType) {
    let cells = cells.iter().map(|cell| Value::Cell((*cell).to_owned()));
    check_values(QuarantineRow, cells, verdicts, r#type);
}

#[test]
fn the_first_value_that_is_not_null_decides() {
    check(QuarantineRow, "[null]", "+", Null);
    check(QuarantineRow, "[null, true, 1]", "++x", Bool);
    check(QuarantineRow, "[null, 1]", "++", Int64);
    check(QuarantineRow, "[1.0, null]", "++", Float64);
    check(QuarantineRow, r#"["a", null]"#, "++", Utf8);
    check(QuarantineRow, "[[], {}, [1]]", "+++", Json);
}

#[test]
fn bytes_are_a_column_of_their_own_in_every_mode() {
    let bytes = || Value::Bytes(vec![0, 255]);
    for types in [QuarantineRow, Widen] {
        let values = vec![Value::Null, bytes(), Value::Text("00ff".into()), bytes()];
        check_values(types, values, "++x+", Binary);
        check_values(types, vec![Value::Text("00ff".into()), bytes()], "+x", Utf8);
    }
}

#[test]
fn lossless_values_are_converted_in_every_mode() {
    for types in [QuarantineRow, NullValue, Widen, Freeze] {
        check(types, r#"[1, "12", 3.0, "-7"]"#, "+~~~", Int64);
        check(types, r#"[1.5, 3, "2", "1.50", "6e2"]"#, "+~~~~", Float64);
        check(types, r#"["a", 1, 2.50, true]"#, "+~~~", Utf8);
    }
}

#[test]
fn text_that_says_something_else_than_its_number_is_in_conflict() {
    check(
        QuarantineRow,
        r#"[1, "012", "12k", " 12", "", "1e3", "1.0"]"#,
        "+xxxxxx",
        Int64,
    );
    check(
        QuarantineRow,
        r#"[1.5, "0.10000000000000000001", "NaN", "9007199254740993"]"#,
        "+xxx",
        Float64,
    );
    check(
        QuarantineRow,
        r#"[1.5, "0.30000000000000004", "64321.10000000"]"#,
        "+~~",
        Float64,
    );
}

#[test]
fn digits_of_a_file_are_a_float_where_that_is_exact() {
    let digits = ["13.50", "0.1", "12345678901234567.89"].map(|text| Value::Digits(text.into()));
    assert_eq!(digits.each_ref().map(float), [Some(13.5), Some(0.1), None]);
    assert_eq!(integer(&Value::Digits("13".into())), Some(13));
    assert_eq!(integer(&digits[0]), None);
}

#[test]
fn a_fraction_widens_an_integer_column_unless_frozen() {
    check(QuarantineRow, "[1, 2.5, 3]", "~+~", Float64);
    check(NullValue, "[1, 2.5, 3]", "~+~", Float64);
    check(Freeze, "[1, 2.5, 3]", "+!+", Int64);
}

#[test]
fn integers_beyond_2_to_the_53_never_become_floats() {
    check(QuarantineRow, "[9007199254740993, 2.5]", "+x", Int64);
    check(
        QuarantineRow,
        "[2.5, 9007199254740993, 9007199254740992]",
        "+x~",
        Float64,
    );
    check(Widen, "[9007199254740993, 2.5]", "~~", Decimal);
    check(Widen, "[9007199254740993, 1e-30]", "~~", Utf8);
    check(QuarantineRow, "[1, 9007199254740994.0]", "~+", Float64);
}

#[test]
fn a_conflict_is_handled_by_contract() {
    check(QuarantineRow, r#"[1, "x", 2]"#, "+x+", Int64);
    check(NullValue, r#"[1, "x", 2]"#, "+0+", Int64);
    check(Freeze, r#"[1, "x", 2]"#, "+!+", Int64);
    check(Widen, r#"[1, "x", 2.5, true]"#, "~+~~", Utf8);
    check(Widen, r#"[1, "1.5"]"#, "~~", Float64);
    check(Widen, "[true, 1]", "~~", Utf8);
    check(Widen, "[1, [1], 2]", "+x+", Int64);
    check(Widen, "[[1], 1]", "+x", Json);
}

#[test]
fn cells_are_read_as_what_they_look_like_and_kept_as_written_in_text() {
    check_cells(&["880", "880.5", "1e3", " 7 "], "++++", Float64);
    check_cells(&["1", "x"], "+x", Int64);
    check_cells(&["a", "007", "1.50", "true"], "++++", Utf8);
    check_cells(&["007", "8"], "++", Utf8);
    check_cells(&["true", "False", "yes"], "++x", Bool);
    check_cells(&["0.1", "cheap", "NaN"], "+x+", Float64);
    check_cells(&["12345678901234567890"], "+", Utf8);
    assert_eq!(text(&Value::Cell("1.50 ".into())).unwrap(), "1.50 ");
}

#[test]
fn a_cell_of_digits_around_an_e_is_a_code_beside_integers() {
    for code in ["0012", "1E3", "12e4", " 1E3 ", "1E30"] {
        let cells = || ["1000", code].map(|cell| Value::Cell(cell.to_owned()));
        check_values(QuarantineRow, cells(), "+x", Int64);
        check_values(NullValue, cells(), "+0", Int64);
        check_values(Freeze, cells(), "+!", Int64);
        check_values(Widen, cells(), "++", Utf8);
    }
    // As a float it is the number, and so is a number of JSON.
    check_cells(&["0.5", "1E3"], "++", Float64);
    check(QuarantineRow, "[1, 1E3]", "+~", Int64);
    // Other cells with an exponent are floats.
    for float in ["1e+05", "1.23457E+11", "-1e3", "1e-3"] {
        check_cells(&["1000", float], "++", Float64);
    }
}

#[test]
fn a_code_is_no_first_value_of_a_planned_integer_column() {
    let config = config(Widen);
    let planned = [("v".to_owned(), Int64)].into();
    let contract = Contract::new(&config, None).unwrap();
    let mut contract = contract.with(planned, CellFormat::default());
    contract.admit(vec![("v".into(), Value::Cell("1E3".into()))]);
    assert_eq!(contract.columns[0].r#type, Utf8);
}

#[test]
fn a_cell_with_an_exponent_does_not_fit_a_column_declared_int() {
    let mut config = config(Widen);
    let column = config.column.entry("v".to_owned()).or_default();
    column.r#type = Some(DeclaredType::Int);
    let mut contract = Contract::new(&config, None).unwrap();
    for cell in ["1E3", "1.5e3"] {
        let verdict = contract.admit(vec![("v".into(), Value::Cell(cell.into()))]);
        let Verdict::Reject(rejection) = verdict else {
            panic!("{verdict:?}")
        };
        let detail = format!(
            "column `v` is integer, which takes no cell with an exponent (`float` or `text` does), the value is text `\"{cell}\"`"
        );
        assert_eq!(rejection.detail, detail);
    }
}

#[test]
fn an_integer_that_no_float_holds_is_named_as_such() {
    let mut config = config(QuarantineRow);
    let column = config.column.entry("v".to_owned()).or_default();
    column.r#type = Some(DeclaredType::Float);
    let mut contract = Contract::new(&config, None).unwrap();
    let mut detail = |value: Value| match contract.admit(vec![("v".into(), value)]) {
        Verdict::Reject(rejection) => rejection.detail,
        other => panic!("{other:?}"),
    };
    let long = "column `v` is float, which holds no integer beyond 2^53 exactly (`decimal` or `text` does), the value is an integer `";
    let found = detail(Value::Cell("9007199254740993".into()));
    assert_eq!(found, format!("{long}\"9007199254740993\"`"));
    let found = detail(Value::Int(9_007_199_254_740_993));
    assert_eq!(found, format!("{long}9007199254740993`"));
    let found = detail(Value::Cell("x".into()));
    assert_eq!(found, "column `v` is float, the value is text `\"x\"`");
}

#[test]
fn cells_whose_digits_are_rounded_are_counted_unless_their_column_becomes_wider() {
    let config = config(Widen);
    let count = |cells: &[&str]| {
        let mut contract = Contract::new(&config, None).unwrap();
        for cell in cells {
            let verdict = contract.admit(vec![("v".into(), Value::Cell((*cell).to_owned()))]);
            assert!(matches!(verdict, Verdict::Land { .. }), "{cell}");
        }
        let mut decisions = contract.close().unwrap().decisions;
        let noted = decisions.remove(DIGITS_ROUNDED)?.remove("v")?;
        Some((noted.count, noted.sample))
    };
    let long = "0.12345678901234567891";
    let padded = format!(" {long} ");
    let rounded = Some((2, format!("`{long}`")));
    assert_eq!(count(&["0.5", long, "1.25", padded.as_str()]), rounded);
    assert_eq!(count(&["5", long, long]), rounded);
    for exact in [
        "0.12345678901234568",
        "1234567.8901234567",
        "1.000000000000000056e-01",
        "0.1000000000000000055511151231257827",
        "0.50000000000000000000",
        "9007199254740992",
    ] {
        assert_eq!(count(&["0.5", exact]), None, "{exact}");
    }
    // The text of a cell lands in a column that has become one of text.
    assert_eq!(count(&["0.5", long, "x"]), None);
}

#[test]
fn a_rejected_record_leaves_no_trace_in_the_schema() {
    let config = config(QuarantineRow);
    let mut contract = Contract::new(&config, None).unwrap();
    contract.admit(entries(r#"{"a":1,"n":null}"#));
    let before = contract.columns.clone();
    let verdict = contract.admit(entries(r#"{"new":1,"n":true,"a":"x"}"#));
    let Verdict::Reject(rejection) = verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(
        rejection.detail,
        r#"column `a` is integer, the value is text `"x"`"#
    );
    assert_eq!(
        (rejection.reason, rejection.path.as_str()),
        ("type_conflict", "a")
    );
    assert_eq!(contract.columns, before);
}

#[test]
fn columns_evolve_up_to_their_cap() {
    let config = ContractConfig {
        max_columns: Bounded::literal::<3>(),
        ..config(Freeze)
    };
    let mut contract = Contract::new(&config, None).unwrap();
    assert!(matches!(
        contract.admit(entries(r#"{"a":1,"b":1}"#)),
        Verdict::Land { .. }
    ));
    let verdict = contract.admit(entries(r#"{"c":1,"d":1}"#));
    assert!(
        matches!(
            verdict,
            Verdict::Reject(Rejection {
                reason: "too_many_columns",
                ..
            })
        ),
        "{verdict:?}"
    );
    assert!(matches!(
        contract.admit(entries(r#"{"c":1}"#)),
        Verdict::Land { .. }
    ));
    assert_eq!(
        contract
            .columns
            .iter()
            .map(|c| c.field_id)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
}

#[test]
fn columns_that_are_too_many_are_counted_with_those_of_the_record() {
    let config = ContractConfig {
        max_columns: Bounded::literal::<3>(),
        ..config(Freeze)
    };
    let detail = |records: [&str; 2]| {
        let mut contract = Contract::new(&config, None).unwrap();
        contract.admit(entries(records[0]));
        match contract.admit(entries(records[1])) {
            Verdict::Reject(rejection) => rejection.detail,
            verdict => panic!("{verdict:?}"),
        }
    };
    assert_eq!(
        detail(["{}", r#"{"a":1,"b":1,"c":1,"d":1,"e":1}"#]),
        "with the 5 new ones of this record the source would have 5 columns, `contract.max_columns` is 3"
    );
    assert_eq!(
        detail([r#"{"a":1,"b":1}"#, r#"{"b":1,"c":1,"d":1}"#]),
        "with the 2 new ones of this record the source would have 4 columns, `contract.max_columns` is 3"
    );
}

#[test]
fn reserved_names_are_rejected() {
    let config = config(QuarantineRow);
    let verdict = Contract::new(&config, None)
        .unwrap()
        .admit(entries(r#"{"_feedline_seq":1}"#));
    assert!(
        matches!(
            verdict,
            Verdict::Reject(Rejection {
                reason: "reserved_key",
                ..
            })
        ),
        "{verdict:?}"
    );
}

#[test]
fn the_version_moves_only_when_something_changed() {
    let config = config(QuarantineRow);
    let version = |before: Option<&RecordSchema>, record: &str| {
        let before = before.map(|schema| Before {
            schema: schema.clone(),
            presence: Presence::default(),
        });
        let mut contract = Contract::new(&config, before.as_ref()).unwrap();
        contract.admit(entries(record));
        contract.close().unwrap().schema
    };
    let first = version(None, r#"{"a":null}"#);
    let second = version(Some(&first), r#"{"a":1}"#);
    let same = version(Some(&second), r#"{"a":"3"}"#);
    let third = version(Some(&same), r#"{"a":2.5}"#);
    assert_eq!(
        [&first, &second, &same, &third].map(|s| s.version.get()),
        [1, 2, 2, 3]
    );
    assert_eq!(third.columns[0].field_id, 1);
}
