//! Warnings about columns that come after others have landed: they join the warnings that hold.

use feedline_schemas::{
    count::counted,
    report::{Warning, replace_warning},
};

use super::{
    missing_words::{EXPLANATION, MISSING_WORDS},
    rounded_digits::{self, DIGITS_ROUNDED, ROUNDED},
    separator_warnings::{CODED_AMOUNTS, MIXED_GROUPS, OTHER_POINTS, POINT_GROUPS},
    type_warnings::{
        AMBIGUOUS_DATES, LEADING_ZEROS, LOCAL_TIMES, LOOKS_LIKE_APOSTROPHES,
        LOOKS_LIKE_CODED_AMOUNTS, LOOKS_LIKE_CURRENCY, LOOKS_LIKE_DATES, LOOKS_LIKE_DECIMAL_COMMA,
        LOOKS_LIKE_DECIMAL_POINT, LOOKS_LIKE_LISTS, LOOKS_LIKE_PERCENT, LOOKS_LIKE_POINT_THOUSANDS,
        LOOKS_LIKE_SPACES, LOOKS_LIKE_THOUSANDS, MISSING_SPELLINGS, MIXED_DECIMAL_SEPARATORS,
        MIXED_TYPES, NAMED, ODD_VALUES, TEXT_TIMES,
    },
};

/// Begins of the explanations behind lists of columns, by the codes of their warnings.
const EXPLANATIONS: [(&str, &str); 21] = [
    (
        MISSING_SPELLINGS,
        "usual spellings of a missing value are read as missing",
    ),
    (ODD_VALUES, "values that are no numbers or no dates "),
    (MIXED_TYPES, "columns of several types land as text"),
    (
        LEADING_ZEROS,
        "the column lands as text, so that no digit of a code is lost",
    ),
    (MISSING_WORDS, EXPLANATION),
    (
        LOOKS_LIKE_DECIMAL_COMMA,
        "numbers in a notation with a decimal comma land as text",
    ),
    (LOOKS_LIKE_DECIMAL_POINT, OTHER_POINTS),
    (
        MIXED_DECIMAL_SEPARATORS,
        "numbers with a decimal comma in some rows and a decimal point in others",
    ),
    (LOOKS_LIKE_POINT_THOUSANDS, POINT_GROUPS),
    (
        LOOKS_LIKE_APOSTROPHES,
        "numbers with an apostrophe between thousands land as text",
    ),
    (LOOKS_LIKE_CODED_AMOUNTS, CODED_AMOUNTS),
    (LOOKS_LIKE_LISTS, MIXED_GROUPS),
    (
        LOOKS_LIKE_THOUSANDS,
        "numbers with commas between their digits land as text",
    ),
    (
        LOOKS_LIKE_SPACES,
        "numbers with spaces between thousands land as text",
    ),
    (
        LOOKS_LIKE_PERCENT,
        "numbers with a percent sign land as text",
    ),
    (
        LOOKS_LIKE_CURRENCY,
        "amounts with a currency sign land as text",
    ),
    (
        LOOKS_LIKE_DATES,
        "dates that are not written as in ISO 8601 land as text",
    ),
    (TEXT_TIMES, "times of several forms land as text"),
    (LOCAL_TIMES, "timestamps without an offset are read as UTC"),
    (DIGITS_ROUNDED, ROUNDED),
    (
        AMBIGUOUS_DATES,
        "two formats of `contract.dates` read these differently",
    ),
];

/// Adds a warning, which may be about new columns, to those that hold. A held warning about the types
/// of other columns keeps these; any other one with its code is replaced.
pub(crate) fn add_column_warning(warnings: &mut Vec<Warning>, new: Warning) {
    let held = warnings.iter().find(|held| held.code == new.code);
    let joined = held.and_then(|held| join_warnings(held, &new));
    replace_warning(warnings, joined.unwrap_or(new));
}

/// Returns the `held` warning with the columns of the `new` one; `None` if they have no lists of
/// columns.
fn join_warnings(held: &Warning, new: &Warning) -> Option<Warning> {
    let explained = EXPLANATIONS.iter().find(|(code, _)| *code == new.code);
    let begin = explained.map(|(_, begin)| format!(": {begin}"))?;
    let (new_columns, new_end) = new.message.rsplit_once(begin.as_str())?;
    if held.message.contains(new_columns) {
        return Some(held.clone());
    }
    let message = match held.message.rsplit_once(begin.as_str()) {
        Some((columns, end)) if end == new_end => {
            format!("{}{begin}{end}", join_lists(columns, new_columns))
        }
        // The advice for numbers with more digits than a decimal has is good for the others too.
        Some((columns, _)) if new.code == DIGITS_ROUNDED => {
            let explanation = rounded_digits::explain(true);
            format!("{}: {explanation}", join_lists(columns, new_columns))
        }
        // Other advice is for its own columns.
        _ => format!("{}; {}", held.message, new.message),
    };
    Some(Warning {
        message,
        ..held.clone()
    })
}

/// Joins two lists of columns. Behind a list of as many as a warning names, the others are counted.
fn join_lists(held: &str, new: &str) -> String {
    let ((held, held_more), (new, new_more)) = (split_more(held), split_more(new));
    if held_more > 0 || count_named(held) >= NAMED {
        let more = held_more + count_named(new) + new_more;
        return format!("{held} and {}", counted(more as u64, "more column"));
    }
    match new_more {
        0 => format!("{held}, {new}"),
        more => format!("{held}, {new} and {}", counted(more as u64, "more column")),
    }
}

/// Splits a list of columns into those that it names and the number of further ones.
fn split_more(columns: &str) -> (&str, usize) {
    let split = columns.rsplit_once(" and ").and_then(|(named, more)| {
        let count = more.strip_suffix(" more columns");
        let count = count.or_else(|| more.strip_suffix(" more column"))?;
        Some((named, count.parse().ok()?))
    });
    split.unwrap_or((columns, 0))
}

/// Number of columns that a list names: each has its values in parentheses behind it.
fn count_named(columns: &str) -> usize {
    columns.matches("` (").count()
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::config::PaginationKind;

    use super::*;
    use crate::infer::{Survey, TYPE_WARNINGS};

    const LONG: &str = "0.12345678901234567891";

    fn cells(texts: &[&str]) -> Vec<Value> {
        let texts = texts.iter().copied();
        texts.map(|text| Value::Cell(text.to_owned())).collect()
    }

    fn strings(texts: &[&str]) -> Vec<Value> {
        let texts = texts.iter().copied();
        texts.map(|text| Value::Text(text.to_owned())).collect()
    }

    /// The warning with this code about columns of these names, each with these values.
    fn warning(code: &str, names: &[&str], values: &[Value]) -> Warning {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        config.contract.dates = vec!["%d/%m/%Y".to_owned(), "%m/%d/%Y".to_owned()];
        config.csv.thousands_separator = (code == "looks_like_lists").then_some(',');
        config.csv.decimal_separator = (code == "looks_like_decimal_point").then_some(',');
        let mut survey = Survey::new(&config);
        for value in values {
            let entries = names.iter().map(|name| ((*name).to_owned(), value.clone()));
            survey.add(&Record::Value(Value::Object(entries.collect())));
        }
        let mut found = survey.infer(&config).warnings.into_iter();
        found.find(|warning| warning.code == code).unwrap()
    }

    #[test]
    fn a_warning_about_a_new_column_keeps_the_columns_of_the_held_one() {
        let mut odd = vec!["1"; 199];
        odd.push("x");
        let cases = [
            ("missing_spellings", cells(&["1", "NA"])),
            ("odd_values", cells(&odd)),
            ("mixed_types", cells(&["1", "2", "x"])),
            ("leading_zeros", cells(&["1", "2", "007"])),
            ("missing_words", cells(&["NA", "DE"])),
            ("looks_like_decimal_comma", cells(&["1000,14"])),
            ("looks_like_decimal_point", cells(&["0.5", "12.5"])),
            ("mixed_decimal_separators", cells(&["1,5", "1.5"])),
            ("looks_like_thousands", cells(&["1,234,567"])),
            ("looks_like_point_thousands", cells(&["1.234"; 10])),
            ("looks_like_apostrophe_thousands", cells(&["1'234"])),
            ("looks_like_coded_amounts", cells(&["EUR 5.50"])),
            ("looks_like_lists", cells(&["76,98,419", "405,638"])),
            ("looks_like_spaced_thousands", cells(&["12 345"])),
            ("looks_like_percent", cells(&["17%"])),
            ("looks_like_currency", cells(&["$5"])),
            ("looks_like_dates", cells(&["31.12.2020"])),
            (
                "text_times",
                strings(&["2026-03-01", "2026-03-01T12:00:00Z"]),
            ),
            ("local_times", cells(&["2024-02-29 13:05"])),
            ("digits_rounded", cells(&["0.5", LONG])),
            ("ambiguous_dates", cells(&["01/02/2020"])),
        ];
        // The other two are about the version and about all columns.
        assert_eq!(cases.len() + 2, TYPE_WARNINGS.len());
        for (code, values) in cases {
            let both = warning(code, &["a", "b"], &values);
            let mut held = vec![warning(code, &["a"], &values)];
            for _ in 0..2 {
                add_column_warning(&mut held, warning(code, &["b"], &values));
                assert_eq!(held, std::slice::from_ref(&both));
            }
        }
    }

    #[test]
    fn behind_five_columns_the_others_are_counted() {
        let values = cells(&["NA", "DE"]);
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut held = vec![warning("missing_words", &names[..5], &values)];
        for (new, all) in [(5..6, 6), (6..8, 8)] {
            let new = warning("missing_words", &names[new], &values);
            add_column_warning(&mut held, new);
            let all = warning("missing_words", &names[..all], &values);
            assert_eq!(held, [all]);
        }
    }

    #[test]
    fn advice_that_differs_is_given_for_its_own_columns() {
        let days = strings(&["2026-03-01", "2026-03-01T12:00:00Z"]);
        let times = strings(&["2026-03-01T12:00:00Z", "2026-03-01T12:00:00.5Z"]);
        let first = warning("text_times", &["a"], &days);
        let mut held = vec![first.clone()];
        for (new, others) in [("b", &["b"][..]), ("c", &["b", "c"])] {
            add_column_warning(&mut held, warning("text_times", &[new], &times));
            let others = warning("text_times", others, &times);
            let expected = format!("{}; {}", first.message, others.message);
            assert_eq!(held[0].message, expected);
        }
        // A decimal keeps the digits of `a`, and text those of both.
        let fits = cells(&["0.5", "0.123456789012345678"]);
        let mut held = vec![warning("digits_rounded", &["a"], &fits)];
        assert!(held[0].message.contains("declare the column `decimal`"));
        let other = warning("digits_rounded", &["b"], &cells(&["0.5", LONG]));
        add_column_warning(&mut held, other);
        let message = &held[0].message;
        assert!(message.starts_with("`a` (`0.123456789012345678`), `b` (`0.1"));
        assert!(message.ends_with(&rounded_digits::explain(true)));
    }

    #[test]
    fn a_warning_without_a_list_of_columns_is_replaced() {
        let mut held = vec![Warning::new("csv_not_used", "a")];
        add_column_warning(&mut held, Warning::new("csv_not_used", "b"));
        assert_eq!(held, [Warning::new("csv_not_used", "b")]);
    }
}
