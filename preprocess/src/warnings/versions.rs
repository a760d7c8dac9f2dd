//! Warnings of text columns that order the versions of a key.

use std::collections::BTreeMap;

use feedline_schemas::{
    count::counted,
    report::{Finding, WarnedColumn, Warning},
};
use serde_json::Value;

use super::message::{quoted, toml_string, warning};
use crate::{schema::landed_columns::shown, source::version_notation::TextNotation};

/// Texts of one notation in the column of the versions.
#[derive(Clone, Debug)]
pub(crate) struct VersionTexts {
    pub(crate) notation: TextNotation,
    /// Rows with such a text; absent for samples.
    pub(crate) rows: Option<u64>,
    /// The least of them by bytes.
    pub(crate) least: String,
    /// The greatest of them by bytes.
    pub(crate) most: String,
}

impl VersionTexts {
    /// Describes them with one or two examples.
    fn described(&self) -> String {
        let noun = match self.notation {
            TextNotation::Empty => "empty texts",
            TextNotation::Number | TextNotation::OneDecimal | TextNotation::PaddedDecimal => {
                "numbers"
            }
            TextNotation::Time => "times",
            TextNotation::Month => "months",
            TextNotation::Ulid => "ULIDs",
            TextNotation::TimedUuid => "UUIDs of version 7",
            TextNotation::Other => "texts that are neither numbers nor ISO 8601 times",
        };
        let least = quoted(&self.least);
        let examples = match self.least == self.most {
            true => least,
            false => format!("{least} and {}", quoted(&self.most)),
        };
        let rows = self
            .rows
            .map(|rows| format!(", in {}", counted(rows, "row")));
        format!("{noun} (such as {examples}{})", rows.unwrap_or_default())
    }

    /// Adds the texts of another notation.
    fn add(&mut self, other: &Self) {
        self.rows = self.rows.zip(other.rows).map(|(own, more)| own + more);
        if other.least < self.least {
            self.least.clone_from(&other.least);
        }
        if other.most > self.most {
            self.most.clone_from(&other.most);
        }
    }
}

/// Warns of a text column that decides which row of a key is the latest, if its texts are ordered by
/// their bytes, have several forms, or are numbers that may be version numbers of several parts.
/// `found` has the texts of each notation, in their order. A column that is declared `text`,
/// `is_declared`, has the right order if all its texts are ordered by their bytes.
pub(crate) fn doubtful_versions(
    source: &str,
    column: &str,
    found: &[VersionTexts],
    is_declared: bool,
) -> Option<Warning> {
    match &merge_numbers(found)[..] {
        [] => None,
        [only] if only.notation.is_number() => version_is_number(source, column, found),
        [only] if only.notation != TextNotation::Other || only.least == only.most => None,
        forms if is_declared && are_by_bytes(forms) => None,
        forms => Some(version_is_text(source, column, forms)),
    }
}

fn are_by_bytes(forms: &[VersionTexts]) -> bool {
    forms.iter().all(|texts| texts.notation.is_by_bytes())
}

/// Texts that are not empty, with one entry for all numbers.
fn merge_numbers(found: &[VersionTexts]) -> Vec<VersionTexts> {
    let mut merged: Vec<VersionTexts> = Vec::new();
    for texts in found {
        match merged.last_mut() {
            _ if texts.notation == TextNotation::Empty => {}
            Some(last) if last.notation.is_number() && texts.notation.is_number() => {
                last.add(texts);
            }
            _ => merged.push(texts.clone()),
        }
    }
    merged
}

/// Warns of numbers such as `1.9` beside others such as `1.10`: numbers are seldom written in both
/// ways, and as version numbers they have another order.
fn version_is_number(source: &str, column: &str, found: &[VersionTexts]) -> Option<Warning> {
    let find = |notation| found.iter().find(|texts| texts.notation == notation);
    let short = find(TextNotation::OneDecimal)?;
    let padded = find(TextNotation::PaddedDecimal)?;
    let example = padded.least.trim();
    let number = example.trim_end_matches('0').trim_end_matches('.');
    let message = format!(
        "column `{}` of source `{source}` decides which row of a key is the latest, and holds texts such as {} and {} that are ordered \
         as numbers, so {} is {}, and an older row may be taken for the latest if they are version numbers of several parts: name \
         another column then; if they are numbers, land them with `contract.column.{}.type = \"float\"`, under another source name if \
         the column has landed as text",
        shown(column),
        quoted(short.most.trim()),
        quoted(example),
        quoted(example),
        quoted(number),
        toml_string(column),
    );
    let found = warning("version_is_number", "source.version", message);
    Some(name_column(found, source, column, BTreeMap::new()))
}

/// Code of [`version_is_text`].
const VERSION_IS_TEXT: &str = "version_is_text";

/// Declared type of a column whose texts are ordered by their bytes.
const TEXT: &str = "text";

/// Key of the declared type of a column.
fn type_key(column: &str) -> String {
    format!("contract.column.{}.type", toml_string(column))
}

/// A warning with the column that it is about, and the `settings` that turn it off.
fn name_column(
    warning: Warning,
    source: &str,
    column: &str,
    settings: BTreeMap<String, Value>,
) -> Warning {
    let column = WarnedColumn {
        source: Some(source.to_owned()),
        ..WarnedColumn::new(column)
    };
    let finding = Finding {
        columns: vec![column],
        settings,
        ..Finding::default()
    };
    Warning {
        findings: vec![finding],
        ..warning
    }
}

/// Returns true if `warning` advises to declare `column` of `source` as text.
pub(crate) fn advises_text(warning: &Warning, source: &str, column: &str) -> bool {
    let is_it = |of: &WarnedColumn| of.name == column && of.source.as_deref() == Some(source);
    let advises = |finding: &Finding| {
        let r#type = finding.settings.get(&type_key(column));
        r#type.is_some_and(|r#type| r#type == TEXT) && finding.columns.iter().any(is_it)
    };
    warning.code == VERSION_IS_TEXT && warning.findings.iter().any(advises)
}

/// Warns of texts that are ordered by their bytes, or have several forms.
fn version_is_text(source: &str, column: &str, forms: &[VersionTexts]) -> Warning {
    let described: Vec<String> = forms.iter().map(|texts| texts.described()).collect();
    let key = type_key(column);
    let mut message = format!(
        "column `{}` of source `{source}` decides which row of a key is the latest, and holds {}: numbers are ordered before times, \
         and times before other texts, which are ordered by their bytes, so an older row may be taken for the latest; land dates with \
         `{key} = \"timestamp\"` and their format in `contract.dates`, under another source name if the column has landed as text, or \
         name another column",
        shown(column),
        described.join(" and "),
    );
    let mut settings = BTreeMap::new();
    if are_by_bytes(forms) {
        message += &format!(
            "; if the order of their bytes is right, declare it with `{key} = \"{TEXT}\"`, which turns this warning off"
        );
        settings.insert(key, Value::from(TEXT));
    }
    let found = warning(VERSION_IS_TEXT, "source.version", message);
    name_column(found, source, column, settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The warning where the column is not declared.
    fn doubtful_versions(source: &str, column: &str, found: &[VersionTexts]) -> Option<Warning> {
        super::doubtful_versions(source, column, found, false)
    }

    fn texts(notation: TextNotation, rows: u64, least: &str, most: &str) -> VersionTexts {
        VersionTexts {
            notation,
            rows: Some(rows),
            least: least.to_owned(),
            most: most.to_owned(),
        }
    }

    #[test]
    fn texts_by_bytes_and_mixed_forms_are_named_with_two_examples_and_the_keys() {
        let dates = texts(TextNotation::Other, 100, "01.02.2024", "31.01.2024");
        let found = doubtful_versions("s", "u", &[dates]).unwrap();
        assert_eq!(found.key.as_deref(), Some("source.version"));
        for part in [
            "column `u` of source `s`",
            "(such as `01.02.2024` and `31.01.2024`, in 100 rows)",
            "`contract.column.\"u\".type = \"timestamp\"`",
            "`contract.dates`",
        ] {
            assert!(found.message.contains(part), "{part}: {}", found.message);
        }
        let mixed = [
            texts(TextNotation::Number, 1, "7", "7"),
            texts(TextNotation::Time, 2, "2026-01-01", "2026-01-02"),
        ];
        let message = doubtful_versions("s", "u", &mixed).unwrap().message;
        let part = "numbers (such as `7`, in 1 row) and times (such as `2026-01-01` and `2026-01-02`, in 2 rows)";
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn texts_of_one_form_with_an_order_are_not_warned_of() {
        let numbers = [
            texts(TextNotation::Empty, 3, "", ""),
            texts(TextNotation::Number, 2, "10", "9"),
        ];
        assert_eq!(doubtful_versions("s", "u", &numbers), None);
        let one = [texts(TextNotation::Other, 9, "v1", "v1")];
        assert_eq!(doubtful_versions("s", "u", &one), None);
        assert_eq!(doubtful_versions("s", "u", &[]), None);
    }

    #[test]
    fn texts_whose_bytes_have_the_order_of_their_times_are_not_warned_of() {
        for (notation, least, most) in [
            (TextNotation::Month, "2023-12", "2024-01"),
            (
                TextNotation::Ulid,
                "01ARZ3NDEKTSV4RRFFQ69G5FAV",
                "01BX5ZZKBKACTAV9WEVGEMMVRZ",
            ),
            (
                TextNotation::TimedUuid,
                "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
                "018f22e2-79b0-7cc3-98c4-dc0c0c07398f",
            ),
        ] {
            let one = texts(notation, 2, least, most);
            let empty = texts(TextNotation::Empty, 1, "", "");
            assert_eq!(doubtful_versions("s", "u", &[empty, one.clone()]), None);
            let mixed = [one, texts(TextNotation::Other, 1, "v1", "v1")];
            let warning = doubtful_versions("s", "u", &mixed).unwrap();
            assert_eq!(warning.code, "version_is_text");
        }
    }

    #[test]
    fn a_declared_column_is_warned_of_unless_bytes_order_all_its_texts() {
        let other = texts(TextNotation::Other, 2, "r0001", "r0002");
        let month = texts(TextNotation::Month, 2, "2023-12", "2024-01");
        let week = texts(TextNotation::Other, 2, "2024-W01", "2024-W02");
        let time = texts(TextNotation::Time, 1, "2026-01-01", "2026-01-01");
        let number = texts(TextNotation::Number, 1, "7", "7");
        let short = texts(TextNotation::OneDecimal, 1, "1.9", "1.9");
        let padded = texts(TextNotation::PaddedDecimal, 1, "1.10", "1.10");
        for (found, declared) in [
            (&[other.clone()][..], None),
            (&[month, week], None),
            (&[time, other.clone()], Some("version_is_text")),
            (&[number, other], Some("version_is_text")),
            (&[short, padded], Some("version_is_number")),
        ] {
            let open = doubtful_versions("s", "u", found).unwrap();
            let advice = "`contract.column.\"u\".type = \"text\"`, which turns this warning off";
            assert_eq!(
                open.message.contains(advice),
                declared.is_none(),
                "{open:?}"
            );
            assert_eq!(advises_text(&open, "s", "u"), declared.is_none());
            assert!(!advises_text(&open, "s", "v") && !advises_text(&open, "t", "u"));
            // Other words for the same advice change nothing.
            let message = "`u` orders versions".to_owned();
            let reworded = Warning { message, ..open };
            assert_eq!(advises_text(&reworded, "s", "u"), declared.is_none());
            let warning = super::doubtful_versions("s", "u", found, true);
            assert_eq!(warning.map(|w| w.code).as_deref(), declared);
        }
    }

    #[test]
    fn numbers_that_may_be_version_numbers_are_named_with_their_values() {
        let short = texts(TextNotation::OneDecimal, 3, "1.8", "1.9");
        let padded = texts(TextNotation::PaddedDecimal, 2, "1.10", "1.20");
        let others = texts(TextNotation::Number, 4, "1.11", "2");
        let all = [others.clone(), short.clone(), padded.clone()];
        let found = doubtful_versions("s", "u", &all).unwrap();
        assert_eq!(found.code, "version_is_number");
        for part in [
            "texts such as `1.9` and `1.10` that are ordered as numbers, so `1.10` is `1.1`",
            "`contract.column.\"u\".type = \"float\"`",
        ] {
            assert!(found.message.contains(part), "{part}: {}", found.message);
        }
        // All with as many decimals, or none with a zero at the end.
        assert_eq!(doubtful_versions("s", "u", &[others.clone(), padded]), None);
        assert_eq!(doubtful_versions("s", "u", &[others, short]), None);
        // One entry for the numbers beside texts of another form.
        let mut mixed = all.to_vec();
        mixed.push(texts(TextNotation::Time, 1, "2026-01-01", "2026-01-01"));
        let message = doubtful_versions("s", "u", &mixed).unwrap().message;
        let part = "holds numbers (such as `1.10` and `2`, in 9 rows) and times";
        assert!(message.contains(part), "{message}");
    }
}
