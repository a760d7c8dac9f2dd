//! Decimal separators of the cells of a column, where some have a comma and others a point.

use feedline_schemas::number;

use super::kind::Kind;

/// Numbers of cells with one decimal separator.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecimalSigns {
    /// Cells with a decimal comma.
    pub(super) commas: u64,
    /// Cells with a decimal point.
    pub(super) points: u64,
    /// Cells among these that are no numbers with the separators of `csv`.
    pub(super) others: u64,
}

impl DecimalSigns {
    /// Counts a cell without spaces around it.
    pub(super) fn add(&mut self, kind: Kind, text: &str) {
        let is_float = matches!(
            kind,
            Kind::Float | Kind::WideFloat | Kind::LongFloat | Kind::LongWideFloat
        );
        let (has_comma, has_point) = (text.contains(','), text.contains('.'));
        // A point where `csv.decimal_separator` is a comma.
        let is_other = kind == Kind::Text && has_point && number::is_number(text);
        self.commas +=
            u64::from(kind == Kind::DecimalComma || (is_float && has_comma && !has_point));
        self.points += u64::from(is_other || (is_float && has_point && !has_comma));
        self.others += u64::from(is_other || kind == Kind::DecimalComma);
    }
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::config::PaginationKind;

    use crate::infer::Survey;

    /// Codes and messages of the warnings about a column of these cells.
    fn warn(cells: &[&str], decimal_separator: Option<char>) -> Vec<(String, String)> {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        config.csv.decimal_separator = decimal_separator;
        let mut survey = Survey::new(&config);
        for cell in cells {
            let entries = vec![("x".to_owned(), Value::Cell((*cell).to_owned()))];
            survey.add(&Record::Value(Value::Object(entries)));
        }
        let warnings = survey.infer(&config).warnings.into_iter();
        warnings
            .map(|warning| (warning.code, warning.message))
            .collect()
    }

    #[test]
    fn files_with_a_point_and_files_with_a_comma_are_reported_with_and_without_the_setting() {
        let cells = ["102.515", "97.358", "6.29", "102,99", "99,498", "5"];
        for separator in [None, Some(',')] {
            let warnings = warn(&cells, separator);
            let [(code, message)] = &warnings[..] else {
                panic!("{warnings:?}")
            };
            assert_eq!(code, "mixed_decimal_separators");
            let begin = "`x` (`102,99`, `102.515`): numbers with a decimal comma in some rows";
            assert!(message.starts_with(begin), "{message}");
            assert!(message.contains("a `[[source]]` of their own"), "{message}");
        }
    }

    #[test]
    fn one_decimal_separator_and_groups_of_thousands_are_not_mixed() {
        let codes = |cells: &[&str], separator| {
            let warnings = warn(cells, separator).into_iter();
            warnings.map(|(code, _)| code).collect::<Vec<_>>()
        };
        let commas = ["102,99", "99,498", "5"];
        assert_eq!(codes(&commas, None), ["looks_like_decimal_comma"]);
        assert_eq!(codes(&commas, Some(',')), [""; 0]);
        let grouped = ["1,234,567", "12.5", "1,234"];
        assert_eq!(codes(&grouped, None), ["looks_like_thousands"]);
    }
}
