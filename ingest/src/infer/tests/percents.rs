//! Percentages beside numbers without a percent sign.

use super::*;

/// Message and key of the only warning about a column of these cells.
fn warned(cells: &[&str]) -> (String, Option<String>) {
    let found = infer_values(cells.iter().map(|text| cell(text)).collect(), "");
    let [warning] = &found.warnings[..] else {
        panic!("{:?}", found.warnings)
    };
    (warning.message.clone(), warning.key.clone())
}

#[test]
fn numbers_without_a_percent_sign_are_counted_in_the_warning_of_percentages() {
    let (message, key) = warned(&["17%", "18%", "5", "6"]);
    let begin = "`c` (`17%`, `18%`; 2 of 4 values, such as `5`, `6`, have no percent sign and keep their value): numbers with a \
                 percent sign land as text; ";
    assert!(message.starts_with(begin), "{message}");
    assert_eq!(key.as_deref(), Some("csv.percent"));
    let (message, _) = warned(&["17%", "18%", "0.05"]);
    let part = "; 1 of 3 values, such as `0.05`, has no percent sign and keeps its value)";
    assert!(message.contains(part), "{message}");
    let (message, _) = warned(&["17%", "18%"]);
    assert!(message.starts_with("`c` (`17%`, `18%`): "), "{message}");
    // Signs of numbers that the key reads are no plain numbers.
    let keys = "csv = { decimal_separator = \",\", percent = true }\n";
    let cells = ["1.1 %", "2.2 %", "3 %"];
    let found = infer_values(cells.iter().map(|text| cell(text)).collect(), keys);
    let mut messages = found.warnings.iter().map(|warning| &warning.message);
    assert!(
        !messages.any(|message| message.contains("no percent sign")),
        "{:?}",
        found.warnings
    );
    // The key reads both.
    let both = [("17%", 2), ("5", 2)];
    check(&both, "csv.percent = true\n", Some(ColumnType::Int64), &[]);
}

#[test]
fn percentages_count_as_numbers_in_a_column_with_texts() {
    let text = Some(ColumnType::Utf8);
    let most = [("17%", 3), ("5", 3), ("many", 1)];
    check(&most, "", text, &["mixed_types"]);
    check(&[("17%", 3), ("many", 2)], "", text, &["mixed_types"]);
    check(&[("17%", 1), ("5", 1), ("many", 2)], "", text, &[]);
    let (message, _) = warned(&["17%", "5", "6", "many"]);
    for part in [
        "1 percentages such as `17%`",
        ", which `csv.percent` reads, 1 texts such as `many`",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}
