//! Codes of digits, and words for a missing value that may be codes.

use super::*;

#[test]
fn codes_keep_their_zeros() {
    check(&[("007", 1), ("123", 999)], "", Some(ColumnType::Utf8), &[]);
    let postcodes = [("02134", 8), ("90210", 92)];
    check(&postcodes, "", Some(ColumnType::Utf8), &[]);
    // Most begin with a zero, so the others are no plain numbers either.
    check(&[("042", 9), ("1234", 8)], "", Some(ColumnType::Utf8), &[]);
}

#[test]
fn postcodes_of_five_and_of_nine_digits_are_codes_with_and_without_a_hyphen() {
    for long in ["02139-4307", "10001-0001"] {
        let cells = [("90210", 6), ("60601", 3), ("02139", 1), (long, 1)];
        check(&cells, "", Some(ColumnType::Utf8), &[]);
    }
    let cells = [
        ("90210", 6),
        ("100010001", 3),
        ("02139", 1),
        ("021394307", 1),
    ];
    check(&cells, "", Some(ColumnType::Utf8), &[]);
    // Without a zero to keep, most are numbers.
    let cells = [("90210", 6), ("10001-0001", 1)];
    check(&cells, "", Some(ColumnType::Utf8), &["mixed_types"]);
}

#[test]
fn spellings_of_a_missing_value_in_text_columns_are_counted_until_they_are_decided_about() {
    let words = &["missing_words"];
    let text = Some(ColumnType::Utf8);
    for word in ["NA", "N/A", "NULL", "null", "None", "nan", "-", "?"] {
        let cells = [("DE", 40), (word, 1), ("", 3)];
        check(&cells, "", text, words);
        let nulls = format!("csv.null_values = [\"{word}\"]\n");
        // As the reader of CSV gives a cell that is listed.
        check(&[("DE", 40), ("", 4)], &nulls, text, &[]);
        check(&cells, "contract.column.c.type = \"text\"\n", None, &[]);
    }
    check(&[("0042", 9), ("17", 1), ("-", 2)], "", text, words);
    let values = ["NA", "a", " NA ", "None", "b"].map(cell);
    let found = infer_values(values.into(), "");
    assert_eq!(found.warnings[0].key.as_deref(), Some("csv.null_values"));
    let message = &found.warnings[0].message;
    let begin = "`c` (2 `NA`, 1 `None` of 5 values): usual spellings of a missing value stay text";
    assert!(message.starts_with(begin), "{message}");
    let json = ["NA", "a"].map(|text| Value::Text(text.to_owned()));
    assert!(infer_values(json.into(), "").warnings.is_empty());
}

#[test]
fn few_leading_zeros_among_numbers_of_several_widths_are_said() {
    let cells = [("7", 1000), ("1200", 1998), ("12.5", 1), ("0042", 1)];
    check(&cells, "", Some(ColumnType::Utf8), &["leading_zeros"]);
    let found = infer_values(["7", "0042", "1200", "036"].map(cell).into(), "");
    assert_eq!(found.types["c"], ColumnType::Utf8);
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    let found = infer_values(["7", "0042", "1200", "12"].map(cell).into(), "");
    let warning = &found.warnings[0];
    assert_eq!(warning.key.as_deref(), Some("contract.column.<name>.type"));
    let begin = "`c` (1 of 4 values begins with a 0, such as `0042`): the column lands as text";
    assert!(warning.message.starts_with(begin), "{}", warning.message);
    // A declared type is not doubted.
    let declared = "contract.column.c.type = \"text\"\n";
    check(&cells, declared, None, &[]);
}
