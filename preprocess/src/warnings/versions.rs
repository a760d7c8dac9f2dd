//! Warnings of text columns that order the versions of a key.

use feedline_schemas::{count::counted, report::Warning};

use super::message::{quoted, toml_string, warning};
use crate::{schema::landed_columns::shown, source::version_order::TextForm};

/// Texts of one form in the column of the versions.
#[derive(Clone, Debug)]
pub(crate) struct VersionTexts {
    pub(crate) form: TextForm,
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
        let noun = match self.form {
            TextForm::Empty => "empty texts",
            TextForm::Number => "numbers",
            TextForm::Time => "times",
            TextForm::Other => "texts that are neither numbers nor ISO 8601 times",
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
}

/// Warns of a text column that decides which row of a key is the latest, if its texts are ordered
/// by their bytes, or have several forms. `found` has the texts of each form, in their order.
pub(crate) fn version_is_text(
    source: &str,
    column: &str,
    found: &[VersionTexts],
) -> Option<Warning> {
    let forms = found.iter().filter(|texts| texts.form != TextForm::Empty);
    let forms: Vec<&VersionTexts> = forms.collect();
    let is_ordered = match forms[..] {
        [] => true,
        [only] => only.form != TextForm::Other || only.least == only.most,
        _ => false,
    };
    if is_ordered {
        return None;
    }
    let described: Vec<String> = forms.iter().map(|texts| texts.described()).collect();
    let message = format!(
        "column `{}` of source `{source}` decides which row of a key is the latest, and holds {}: numbers are ordered before times, \
         and times before other texts, which are ordered by their bytes, so an older row may be taken for the latest; land dates with \
         `contract.column.{}.type = \"timestamp\"` and their format in `contract.dates`, under another source name if the column has \
         landed as text, or name another column",
        shown(column),
        described.join(" and "),
        toml_string(column),
    );
    Some(warning("version_is_text", "source.version", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(form: TextForm, rows: u64, least: &str, most: &str) -> VersionTexts {
        VersionTexts {
            form,
            rows: Some(rows),
            least: least.to_owned(),
            most: most.to_owned(),
        }
    }

    #[test]
    fn texts_by_bytes_and_mixed_forms_are_named_with_two_examples_and_the_keys() {
        let dates = texts(TextForm::Other, 100, "01.02.2024", "31.01.2024");
        let found = version_is_text("s", "u", &[dates]).unwrap();
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
            texts(TextForm::Number, 1, "7", "7"),
            texts(TextForm::Time, 2, "2026-01-01", "2026-01-02"),
        ];
        let message = version_is_text("s", "u", &mixed).unwrap().message;
        let part = "numbers (such as `7`, in 1 row) and times (such as `2026-01-01` and `2026-01-02`, in 2 rows)";
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn texts_of_one_form_with_an_order_are_not_warned_of() {
        let numbers = [
            texts(TextForm::Empty, 3, "", ""),
            texts(TextForm::Number, 2, "10", "9"),
        ];
        assert_eq!(version_is_text("s", "u", &numbers), None);
        let one = [texts(TextForm::Other, 9, "v1", "v1")];
        assert_eq!(version_is_text("s", "u", &one), None);
        assert_eq!(version_is_text("s", "u", &[]), None);
    }
}
