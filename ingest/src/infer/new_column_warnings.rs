//! Warnings about columns that come after others have landed: they join the warnings that hold.

use feedline_schemas::report::{Finding, Warning, replace_warning};

use super::rounded_digits::{self, DIGITS_ROUNDED};

/// Adds a warning, which may be about new columns, to those that hold. A held warning about the types
/// of other columns keeps these; any other one with its code is replaced.
pub(crate) fn add_column_warning(warnings: &mut Vec<Warning>, new: Warning) {
    let held = warnings.iter().find(|held| held.code == new.code);
    let joined = held.and_then(|held| join_warnings(held, &new));
    replace_warning(warnings, joined.unwrap_or(new));
}

/// Returns the `held` warning with the columns of the `new` one; `None` if the message of the new one is not
/// made of findings. A held one without findings is of an earlier release, and keeps its text.
fn join_warnings(held: &Warning, new: &Warning) -> Option<Warning> {
    let is_made = |warning: &Warning| {
        let mut findings = warning.findings.iter();
        !warning.findings.is_empty() && findings.all(|finding| !finding.finding.is_empty())
    };
    if !is_made(new) {
        return None;
    }
    if !is_made(held) {
        let message = match held.message.contains(&new.message) {
            true => held.message.clone(),
            false => format!("{}; {}", held.message, new.message),
        };
        return Some(Warning {
            message,
            ..held.clone()
        });
    }
    let mut findings = held.findings.clone();
    for new in &new.findings {
        add_finding(&mut findings, new);
    }
    if held.code == DIGITS_ROUNDED {
        join_advice(&mut findings);
    }
    Some(held.clone().with_findings(findings))
}

/// Adds the columns of a finding: to an equal one, or after all others. A column that has another finding
/// loses it.
fn add_finding(findings: &mut Vec<Finding>, new: &Finding) {
    let without_columns = |finding: &Finding| Finding {
        columns: Vec::new(),
        ..finding.clone()
    };
    let wanted = without_columns(new);
    let mut is_added = false;
    for finding in findings.iter_mut() {
        if !is_added && without_columns(finding) == wanted {
            is_added = true;
            let known = finding.columns.len();
            for column in &new.columns {
                let mut known = finding.columns[..known].iter();
                if known.all(|known| known.name != column.name) {
                    finding.columns.push(column.clone());
                }
            }
        } else {
            let is_new = |name: &str| new.columns.iter().any(|column| column.name == name);
            finding.columns.retain(|column| !is_new(&column.name));
        }
    }
    if !is_added {
        findings.push(new.clone());
    }
    findings.retain(|finding| !finding.columns.is_empty());
}

/// Makes one finding of those about rounded digits: the advice for numbers with more digits than a decimal
/// has is good for the others too.
fn join_advice(findings: &mut Vec<Finding>) {
    if findings.len() < 2 {
        return;
    }
    let columns = findings.drain(..).flat_map(|finding| finding.columns);
    let joined = Finding {
        columns: columns.collect(),
        finding: rounded_digits::ROUNDED.to_owned(),
        advice: rounded_digits::advice(true).to_owned(),
        ..Finding::default()
    };
    findings.push(joined);
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
        assert!(message.ends_with(rounded_digits::advice(true)));
    }

    #[test]
    fn a_held_warning_of_an_earlier_release_keeps_its_text() {
        let new = warning("missing_words", &["b"], &cells(&["NA", "DE"]));
        let message = "`a` (1 `NA` of 2 values): usual spellings";
        let mut held = vec![Warning::new("missing_words", message)];
        for _ in 0..2 {
            add_column_warning(&mut held, new.clone());
            let both = format!("{message}; {}", new.message);
            assert_eq!(held, [Warning::new("missing_words", both)]);
        }
    }

    #[test]
    fn a_warning_without_a_list_of_columns_is_replaced() {
        let mut held = vec![Warning::new("csv_not_used", "a")];
        add_column_warning(&mut held, Warning::new("csv_not_used", "b"));
        assert_eq!(held, [Warning::new("csv_not_used", "b")]);
    }
}
