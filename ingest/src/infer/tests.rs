mod codes;
mod percents;

use feedline_schemas::{config::load, record::ColumnType};

use super::*;

fn config(more: &str) -> SourceConfig {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = 'x.csv'\n{more}"
    );
    load("p", &text, &[]).unwrap().config.source.remove(0)
}

fn cell(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => Value::Cell(text.to_owned()),
    }
}

fn infer_values(values: Vec<Value>, more: &str) -> Inferred {
    let config = config(more);
    let mut survey = Survey::new(&config);
    for value in values {
        survey.add(&Record::Value(Value::Object(vec![("c".into(), value)])));
    }
    survey.infer(&config)
}

/// Checks the type of a column of these cells, each so many times, and the codes of the warnings.
fn check(cells: &[(&str, usize)], more: &str, expected: Option<ColumnType>, codes: &[&str]) {
    let all = cells
        .iter()
        .flat_map(|(text, times)| std::iter::repeat_n(cell(text), *times));
    let forward: Vec<Value> = all.collect();
    let backward = forward.iter().rev().cloned().collect();
    for values in [forward, backward] {
        let found = infer_values(values, more);
        assert_eq!(found.types.get("c").copied(), expected, "{cells:?}");
        let told: Vec<&str> = found.warnings.iter().map(|w| w.code.as_str()).collect();
        assert_eq!(told, codes, "{cells:?}");
    }
}

#[test]
fn cells_that_are_all_of_a_type_make_a_column_of_it() {
    use ColumnType::{Bool, Decimal, Float64, Int64, Timestamp, Utf8};
    check(&[("1", 3), ("", 2)], "", Some(Int64), &[]);
    check(&[("1", 3), ("2.5", 1)], "", Some(Float64), &[]);
    check(&[("9007199254740993", 1), ("1", 1)], "", Some(Int64), &[]);
    check(
        &[("9007199254740993", 1), ("0.5", 1)],
        "",
        Some(Decimal),
        &[],
    );
    check(&[("18446744073709551615", 1)], "", Some(Decimal), &[]);
    check(&[("true", 1), ("False", 1)], "", Some(Bool), &[]);
    check(&[("2024-02-29", 2)], "", Some(Timestamp), &[]);
    check(&[("2024-02-29T01:02:03Z", 2)], "", Some(Timestamp), &[]);
    check(
        &[("2024-02-29 01:02:03", 2)],
        "",
        Some(Timestamp),
        &["local_times"],
    );
    check(&[("a", 2), ("b", 1)], "", Some(Utf8), &[]);
    check(&[("", 2)], "", None, &[]);
}

#[test]
fn missing_values_that_are_spelled_out_count_where_the_others_are_no_texts() {
    use ColumnType::{Float64, Int64, Utf8};
    check(
        &[("NA", 40), ("1", 1)],
        "",
        Some(Int64),
        &["missing_spellings"],
    );
    check(
        &[("?", 4), ("1.5", 9), ("n/a", 1)],
        "",
        Some(Float64),
        &["missing_spellings"],
    );
    let words = &["missing_words"];
    check(&[("None", 4), ("Wood", 9)], "", Some(Utf8), words);
    check(&[("NA", 4)], "", None, &[]);
    let none = "csv.null_spellings = \"none\"\n";
    check(&[("NA", 4), ("1", 9)], none, Some(Utf8), &["mixed_types"]);
}

#[test]
fn few_odd_values_leave_a_column_of_numbers_and_more_make_it_text_and_both_are_said() {
    use ColumnType::{Float64, Int64, Utf8};
    check(
        &[("1", 199), ("unknown", 1)],
        "",
        Some(Int64),
        &["odd_values"],
    );
    check(
        &[("1", 90), ("unknown", 10)],
        "",
        Some(Utf8),
        &["mixed_types"],
    );
    check(&[("1", 1), ("unknown", 10)], "", Some(Utf8), &[]);
    let more = "infer.max_odd_fraction = 0.2\n";
    check(
        &[("1.5", 90), ("unknown", 10)],
        more,
        Some(Float64),
        &["odd_values"],
    );
    let widen = "contract.types = \"widen\"\n";
    check(&[("1", 199), ("unknown", 1)], widen, Some(Utf8), &[]);
    let found = infer_values(
        std::iter::repeat_n(cell("1"), 199)
            .chain([cell("unknown")])
            .collect(),
        "",
    );
    let warning = &found.warnings[0];
    assert_eq!(warning.key.as_deref(), Some("infer.max_odd_fraction"));
    assert!(
        warning
            .message
            .starts_with("`c` (1 of 200 is no number, such as `unknown`): "),
        "{}",
        warning.message
    );
}

#[test]
fn sources_without_csv_are_advised_of_keys_that_they_have() {
    let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"html\"\nurl = \"http://h/\"\n";
    let config = load("p", text, &[]).unwrap().config.source.remove(0);
    for (cells, key) in [
        (["1,50 €", "2,50 €"], "dataset.sql"),
        (["17%", "18%"], "dataset.sql"),
        (["1,5", "2,5"], "dataset.decimal_separator"),
        (["1,017", "2,018"], "dataset.thousands_separator"),
        (["1 017", "2 018"], "dataset.thousands_separator"),
        (["NA", "7"], "contract.column.<name>.type"),
    ] {
        let mut survey = Survey::new(&config);
        for text in cells {
            let entries = vec![("c".to_owned(), cell(text))];
            survey.add(&Record::Value(Value::Object(entries)));
        }
        let warnings = survey.infer(&config).warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(warnings[0].key.as_deref(), Some(key));
        assert!(!warnings[0].message.contains("`csv."), "{warnings:?}");
    }
}

#[test]
fn settings_of_csv_for_records_of_another_format_are_said() {
    let codes = |values: Vec<Value>, more: &str| {
        let warnings = infer_values(values, more).warnings.into_iter();
        warnings.map(|warning| warning.code).collect::<Vec<_>>()
    };
    let percent = "csv.percent = true\n";
    assert_eq!(codes(vec![Value::Int(1)], percent), ["csv_not_used"]);
    assert!(codes(vec![Value::Int(1)], "").is_empty());
    assert!(codes(vec![cell("5%")], percent).is_empty());
    assert!(codes(vec![Value::Null], percent).is_empty());
    let found = infer_values(vec![Value::Int(1)], percent);
    let message = &found.warnings[0].message;
    assert!(
        message.ends_with(
            "only `predict` reads CSV of new rows with it; remove it if new rows are not CSV, or correct `format`"
        ),
        "{message}"
    );
}

#[test]
fn numbers_and_dates_that_are_written_otherwise_are_asked_about() {
    use ColumnType::{Float64, Int64, Timestamp, Utf8};
    let decimal = ["looks_like_decimal_comma"];
    check(&[("1000,14", 3), ("7", 1)], "", Some(Utf8), &decimal);
    check(&[("1,5", 3), ("1,234", 1)], "", Some(Utf8), &decimal);
    check(
        &[("1,234", 3), ("999", 3)],
        "",
        Some(Utf8),
        &["looks_like_thousands"],
    );
    let spaced = ["looks_like_spaced_thousands"];
    check(&[("12 345", 3), ("7", 1)], "", Some(Utf8), &spaced);
    check(&[("12\u{a0}345,6", 3), ("7,5", 9)], "", Some(Utf8), &spaced);
    check(&[("12 345", 3), ("many", 3)], "", Some(Utf8), &[]);
    check(
        &[("12\u{202f}345,67", 3), ("12 345", 1), ("7,5", 1)],
        "csv = { decimal_separator = \",\", thousands_separator = \" \" }\n",
        Some(Float64),
        &[],
    );
    check(&[("17%", 3)], "", Some(Utf8), &["looks_like_percent"]);
    let currency = ["looks_like_currency"];
    check(&[("$1,008.00", 3), ("7", 1)], "", Some(Utf8), &currency);
    check(&[("$7", 1), ("cheap", 3)], "", Some(Utf8), &[]);
    let dollars = "csv = { currency = \"$\", thousands_separator = \",\" }\n";
    check(&[("$1,008.50", 3), ("7", 1)], dollars, Some(Float64), &[]);
    check(
        &[("01/02/2020", 3), ("31/01/2020", 3)],
        "",
        Some(Utf8),
        &["looks_like_dates"],
    );
    check(
        &[("2020-01-31", 3), ("31/01/2020", 3)],
        "",
        Some(Utf8),
        &["looks_like_dates"],
    );
    check(
        &[("1000,14", 3)],
        "csv.decimal_separator = \",\"\n",
        Some(Float64),
        &[],
    );
    check(
        &[("1,234", 3)],
        "csv.thousands_separator = \",\"\n",
        Some(Int64),
        &[],
    );
    check(&[("17 %", 3)], "csv.percent = true\n", Some(Int64), &[]);
    let dates = "contract.dates = [\"%d/%m/%Y\"]\n";
    check(&[("01/02/2020", 3)], dates, Some(Timestamp), &[]);
}

#[test]
fn amounts_name_the_settings_that_read_them_and_those_of_several_currencies_name_none() {
    let found = |cells: &[&str], more: &str| {
        let found = infer_values(cells.iter().map(|text| cell(text)).collect(), more);
        let message = found.warnings[0].message.clone();
        (found.columns[0].number_settings.clone(), message)
    };
    let (settings, message) = found(&["$1,008.00", "$999.50"], "");
    let expected = ["thousands_separator = \",\"", "currency = \"$\""];
    assert_eq!(settings, expected);
    assert!(
        message.ends_with("set `csv.thousands_separator = \",\"` and `csv.currency = \"$\"` to read them as numbers"),
        "{message}"
    );
    let (settings, _) = found(&["1.234,56 €", "7 €"], "csv.decimal_separator = \",\"\n");
    let expected = ["thousands_separator = \".\"", "currency = \"€\""];
    assert_eq!(settings, expected);
    let (settings, message) = found(&["$5", "€6"], "");
    assert!(settings.is_empty());
    assert!(message.ends_with("these are in `$`, `€`"), "{message}");
    // The comma is the decimal separator already.
    let (settings, message) = found(
        &["$1,008.00", "$2,000.00"],
        "csv.decimal_separator = \",\"\n",
    );
    assert!(settings.is_empty());
    assert!(message.ends_with("other separators"), "{message}");
    let (settings, _) = found(&["1,017", "2,018"], "");
    assert_eq!(settings, ["thousands_separator = \",\""]);
    let (settings, message) = found(&["12\u{a0}345,67", "7,5"], "");
    let expected = ["decimal_separator = \",\"", "thousands_separator = \" \""];
    assert_eq!(settings, expected);
    assert!(
        message.contains("`csv.decimal_separator = \",\"` and `csv.thousands_separator = \" \"`"),
        "{message}"
    );
    let (settings, _) = found(&["1\u{202f}234,50 €", "7 €"], "");
    assert_eq!(settings, [expected[0], expected[1], "currency = \"€\""]);
    let (settings, _) = found(&["17%", "18%"], "");
    assert_eq!(settings, ["percent = true"]);
}

#[test]
fn percentages_with_other_separators_than_those_of_csv_are_no_reason_for_a_reset() {
    let comma = "csv = { decimal_separator = \",\", percent = true }\n";
    let cells = ["1.1 %", "2.2 %", "3.3 %"].map(cell).to_vec();
    let found = infer_values(cells, comma);
    let warning = hold_under(&config(comma), found.warnings[0].clone()).unwrap();
    assert_eq!(warning.code, "looks_like_percent");
    assert_eq!(warning.key.as_deref(), Some("csv.decimal_separator"));
    let message = warning.message;
    assert!(
        message.contains("although `csv.percent` is set")
            && message.contains("`,` for decimals, none for thousands"),
        "{message}"
    );
    assert!(!message.contains("reset"), "{message}");
}

#[test]
fn percentages_that_the_key_does_not_read_have_no_advice_to_set_it() {
    let comma = "csv.decimal_separator = \",\"\n";
    for (cells, more, expected) in [
        (["1.1 %", "2.2 %", "3 %"], comma, "dataset.sql"),
        (["1,1 %", "2,2 %", "3 %"], "", "csv.decimal_separator"),
        (["1,1 %", "2,2 %", "3 %"], comma, "csv.percent"),
        (["1.1 %", "2.2 %", "3 %"], "", "csv.percent"),
    ] {
        let found = infer_values(cells.map(cell).to_vec(), more);
        let warning = &found.warnings[0];
        assert_eq!(warning.code, "looks_like_percent");
        assert_eq!(warning.key.as_deref(), Some(expected), "{warning:?}");
        let message = &warning.message;
        let is_advised = message.contains("set `csv.percent = true`");
        assert_eq!(is_advised, expected == "csv.percent", "{message}");
        // Followed, the advice holds.
        if is_advised {
            let more = format!("{more}csv.percent = true\n");
            let followed = infer_values(cells.map(cell).to_vec(), &more);
            assert!(followed.warnings.is_empty(), "{:?}", followed.warnings);
        }
    }
}

#[test]
fn advice_to_set_a_key_becomes_advice_to_reset_once_the_key_is_set() {
    let landed = |cells: &[&str], before: &str, now: &str| {
        let found = infer_values(cells.iter().map(|text| cell(text)).collect(), before);
        let config = config(now);
        hold_under(&config, found.warnings[0].clone())
            .unwrap()
            .message
    };
    let dates = "contract.dates = [\"%d/%m/%Y\"]\n";
    let percent = "csv.percent = true\n";
    let comma = "csv.thousands_separator = \",\"\n";
    for (cells, now) in [
        (["31/01/2020", "01/02/2020"], dates),
        (["17%", "18%"], percent),
        (["1,017", "2,018"], comma),
        (["1 017", "2 018"], "csv.thousands_separator = \" \"\n"),
        (["$5", "$6"], "csv.currency = \"$\"\n"),
    ] {
        let message = landed(&cells, "", now);
        assert!(
            message.contains(
                "is set, but a column keeps its type: `feedline ingest reset PIPELINE.toml s`"
            ),
            "{message}"
        );
        assert!(
            !message.contains("to have dates name") && !message.contains("; set `"),
            "{message}"
        );
        let unset = landed(&cells, "", "");
        assert!(!unset.contains("reset"), "{unset}");
    }
    // Other formats were set when these landed.
    let message = landed(&["31.01.2020", "01.02.2020"], dates, dates);
    assert!(
        message.contains("the formats of `contract.dates` fit 0 of 2"),
        "{message}"
    );
    assert!(!message.contains("reset"), "{message}");
}

#[test]
fn decimal_commas_with_groups_name_both_separators_until_they_are_set() {
    let warning = |cells: &[&str], more: &str| {
        let found = infer_values(cells.iter().map(|text| cell(text)).collect(), more);
        let warning = found.warnings.first().cloned();
        warning.map(|warning| (warning.key.unwrap(), warning.message))
    };
    let (comma, both) = (
        "csv.decimal_separator = \",\"\n",
        "csv = { decimal_separator = \",\", thousands_separator = \".\" }\n",
    );
    // Cells without groups are first in byte order, so no shown sample has one.
    let grouped = ["1,5", "1,6", "1,7", "1,8", "1.234,56"];
    let (key, message) = warning(&grouped, "").unwrap();
    assert_eq!(key, "csv.decimal_separator");
    let wanted =
        "set `csv.decimal_separator = \",\"` and `csv.thousands_separator = \".\"` to read";
    assert!(message.contains(wanted), "{message}");
    let (key, message) = warning(&grouped, comma).unwrap();
    assert_eq!(key, "csv.thousands_separator");
    assert!(
        message.contains("set `csv.thousands_separator = \".\"` to read"),
        "{message}"
    );
    assert_eq!(warning(&grouped, both), None);
    let (_, message) = warning(&["1,5", "2,5"], "").unwrap();
    assert!(!message.contains("thousands"), "{message}");
}

#[test]
fn values_with_types_get_the_narrowest_type_that_loses_none() {
    use ColumnType::{Bool, Decimal, Float64, Int64, Utf8};
    let all = |values: &[(Value, usize)]| {
        let of = |(value, times): &(Value, usize)| std::iter::repeat_n(value.clone(), *times);
        let values: Vec<Value> = values.iter().flat_map(of).collect();
        let back = infer_values(values.iter().rev().cloned().collect(), "");
        let found = infer_values(values, "");
        assert_eq!(found.types, back.types);
        assert_eq!(found.warnings, back.warnings);
        let codes = found.warnings.into_iter().map(|warning| warning.code);
        (found.types.get("c").copied(), codes.collect::<Vec<_>>())
    };
    let text = |text: &str| Value::Text(text.into());
    let (int, float, bool) = (Value::Int(3), Value::Float(0.5), Value::Bool(false));
    let mixed = vec!["mixed_types".to_owned()];
    assert_eq!(
        all(&[(bool.clone(), 90), (float.clone(), 10)]),
        (Some(Utf8), mixed.clone())
    );
    assert_eq!(
        all(&[(bool.clone(), 10), (text("x"), 10)]),
        (Some(Utf8), mixed)
    );
    assert_eq!(all(&[(bool, 9)]), (Some(Bool), vec![]));
    assert_eq!(
        all(&[(int.clone(), 2), (float.clone(), 2)]),
        (Some(Float64), vec![])
    );
    assert_eq!(
        all(&[(Value::Int(i64::MAX), 1), (float, 1)]),
        (Some(Decimal), vec![])
    );
    assert_eq!(all(&[(int, 2), (text("12"), 2)]), (Some(Int64), vec![]));
    assert_eq!(
        all(&[(text("12"), 2), (text("NA"), 1)]),
        (Some(Utf8), vec![])
    );
    assert_eq!(
        all(&[(Value::List(vec![]), 2), (text("x"), 1)]),
        (None, vec![])
    );
}

#[test]
fn digits_that_a_float_cannot_hold_are_named_for_json_and_csv() {
    let warnings = |values: Vec<Value>| {
        let found = infer_values(values, "");
        assert_eq!(found.types["c"], ColumnType::Float64);
        found.warnings
    };
    let json = |text: &&str| Value::parse(text.as_bytes()).unwrap();
    for long in ["1234567.123456789012345678", "0.12345678901234567891"] {
        let texts = ["0.1", long];
        let of_json = warnings(texts.iter().map(json).collect());
        let of_csv = warnings(texts.iter().map(|text| cell(text)).collect());
        assert_eq!(of_json, of_csv);
        assert_eq!(of_json[0].code, "digits_rounded");
        let begin = format!("`c` (`{long}`): numbers of more than 17 digits are rounded");
        assert!(of_json[0].message.starts_with(&begin), "{of_json:?}");
    }
    let texts = ["1.10", "1E5", "0.10000000000000001"];
    assert!(warnings(texts.iter().map(json).collect()).is_empty());
}

#[test]
fn floats_that_programs_write_with_many_digits_lose_none() {
    // As `%.18e`, `%.20f`, `%.15f` and `%.6f` print 0.1, 0.1, 123.456 and 1234567890123.4.
    let texts = [
        "1.000000000000000056e-01",
        "0.10000000000000000555",
        "123.456000000000003",
        "1234567890123.399902",
        "0.333333333333333314829616256247390992939472198486328125",
    ];
    let of_json = texts.map(|text| Value::parse(text.as_bytes()).unwrap());
    for values in [of_json.to_vec(), texts.map(cell).to_vec()] {
        let found = infer_values(values, "");
        assert_eq!(found.types["c"], ColumnType::Float64);
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    }
}

#[test]
fn text_alone_is_advised_for_digits_that_a_decimal_does_not_keep() {
    let advice = |long: &str| {
        let mut warnings = infer_values(vec![cell("0.1"), cell(long)], "").warnings;
        warnings.remove(0).message
    };
    let of_decimal = advice("1234567.123456789012345678");
    assert!(of_decimal.contains("`decimal`, or `text`,"), "{of_decimal}");
    let of_text = advice("0.12345678901234567891");
    assert!(of_text.contains("declare the column `text`"), "{of_text}");
    assert!(of_text.contains("18 behind it"), "{of_text}");
}

/// Checks the warning about dates of a column of these cells, and the type with the key that the
/// warning names.
fn check_advice(cells: &[&str], more: &str, parts: &[&str], key: Option<&str>) {
    let values = || cells.iter().map(|text| cell(text)).collect();
    let found = infer_values(values(), more);
    assert_eq!(found.types["c"], ColumnType::Utf8, "{cells:?}");
    let [warning] = &found.warnings[..] else {
        panic!("{cells:?}: {:?}", found.warnings)
    };
    assert_eq!(warning.code, "looks_like_dates");
    for part in parts {
        assert!(warning.message.contains(part), "`{part}`: {warning:?}");
    }
    let Some(key) = key else {
        assert!(
            !warning.message.contains("such as `contract.dates"),
            "{warning:?}"
        );
        return;
    };
    assert!(warning.message.contains(&format!("`{key}`")), "{warning:?}");
    let followed = infer_values(values(), &format!("{key}\n"));
    assert_eq!(followed.types["c"], ColumnType::Timestamp, "{key}");
    assert!(followed.warnings.is_empty(), "{:?}", followed.warnings);
}

#[test]
fn the_advice_on_dates_names_the_format_that_fits_and_following_it_makes_dates() {
    let certain = ["`%m/%d/%Y` fits all"];
    let key = Some("contract.dates = [\"%m/%d/%Y\"]");
    check_advice(&["12/25/2024", "01/02/2024", "1/2/2024"], "", &certain, key);
    check_advice(
        &["25.12.2024 10:30", "01.02.2024 09:00"],
        "",
        &["`%d.%m.%Y %H:%M` fits all"],
        Some("contract.dates = [\"%d.%m.%Y %H:%M\"]"),
    );
    check_advice(
        &["2024/12/25", "2024/01/02"],
        "",
        &["`%Y/%m/%d` fits all"],
        Some("contract.dates = [\"%Y/%m/%d\"]"),
    );
    check_advice(
        &["01/02/2024", "03/04/2024"],
        "",
        &["`%d/%m/%Y` and `%m/%d/%Y` fit all, so the order of day and month is not certain"],
        Some("contract.dates = [\"%d/%m/%Y\"]"),
    );
    // ISO 8601 cells are read in addition to those of a declared format.
    check_advice(
        &["2024-12-25", "25/12/2024"],
        "",
        &["`%d/%m/%Y` fits all"],
        Some("contract.dates = [\"%d/%m/%Y\"]"),
    );
    check_advice(
        &["25/12/2024", "12/25/2024"],
        "",
        &["no usual format fits all"],
        None,
    );
}

#[test]
fn a_declared_format_that_does_not_fit_a_column_is_said_with_the_one_that_does() {
    let declared = "contract.dates = [\"%d/%m/%Y\"]\n";
    let found = infer_values(
        ["12/25/2024", "01/02/2024", "01/30/2024"].map(cell).into(),
        declared,
    );
    assert_eq!(found.types["c"], ColumnType::Utf8);
    let message = &found.warnings[0].message;
    let parts = [
        "`%m/%d/%Y` fits all",
        "the formats of `contract.dates` fit 1 of 3",
    ];
    for part in parts {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn integers_beyond_exact_floats_are_counted_in_columns_of_decimals_too() {
    let large_as = |cells: &[&str], more: &str| {
        let cells = cells.iter().map(|text| cell(text)).collect();
        let found = infer_values(cells, more);
        let large = found.columns.into_iter().next().unwrap().large_integers;
        large.map(|large| (large.count, large.sample))
    };
    let large = |cells: &[&str]| large_as(cells, "");
    let longest = "18446744073709551615".to_owned();
    assert_eq!(
        large(&["18446744073709551615", "9223372036854775807", "7"]),
        Some((2, longest.clone()))
    );
    assert_eq!(
        large(&["9223372036854775808", "18446744073709551615"]),
        Some((2, "9223372036854775808".to_owned()))
    );
    let with_fraction = large(&["18446744073709551615", "0.5"]);
    assert_eq!(with_fraction, Some((1, longest.clone())));
    assert_eq!(large(&["18446744073709551615.5", "0.5"]), None);
    // As the configured notation reads it.
    let thousands = "csv.thousands_separator = \",\"\n";
    let grouped = ["18,446,744,073,709,551,615", "1,234"];
    assert_eq!(large_as(&grouped, thousands), Some((1, longest)));
}
