//! Numbers in strings with marks that no default of `csv` reads: apostrophes between thousands, and the marks of amounts.

use feedline_schemas::{config::CsvConfig, csv_cell::CellFormat};

use super::{
    amount_marks::{AmountDecimal, are_marked_digits},
    decimal_signs::MARKED,
    kind::Kind,
};

/// Apostrophes between thousands: those of keyboards and of typography.
pub(super) const APOSTROPHES: [char; 2] = ['\'', '\u{2019}'];

/// Numbers of the cells of a column that are text by such marks.
#[derive(Clone, Debug, Default)]
pub(super) struct MarkedNumbers {
    /// Cells with each of the apostrophes and without other marks.
    apostrophes: [u64; 2],
    /// Cells with marks of amounts, such as the code of a currency, and a number that has more than digits in
    /// parentheses or before a minus sign.
    amounts: u64,
    /// Amounts with a decimal comma, and those with a decimal point.
    pub(super) decimals: [u64; 2],
    /// Digits in parentheses or before a minus sign: negative numbers, or marks of footnotes such as `(1)`.
    marked_digits: u64,
    /// The first of all of them in byte order.
    pub(super) sample: Option<String>,
}

impl MarkedNumbers {
    /// Counts a text without spaces around it; returns false if it has no such marks.
    pub(super) fn add(&mut self, text: &str) -> bool {
        let mut signs = APOSTROPHES.into_iter().zip(&mut self.apostrophes);
        if let Some((_, count)) = signs.find(|(sign, _)| is_number(text, *sign)) {
            *count += 1;
        } else if are_marked_digits(text) {
            self.marked_digits += 1;
        } else if let Some(decimal) = AmountDecimal::of(text) {
            let [commas, points] = &mut self.decimals;
            self.amounts += 1;
            *commas += u64::from(decimal == AmountDecimal::Comma);
            *points += u64::from(decimal == AmountDecimal::Point);
        } else {
            return false;
        }
        if self.sample.as_deref().is_none_or(|first| text < first) {
            self.sample = Some(text.to_owned());
        }
        true
    }

    /// Number of such cells in a column with `others` numbers. Digits in parentheses are numbers beside other
    /// numbers only: alone, they are marks of footnotes.
    pub(super) fn count(&self, others: u64) -> u64 {
        let certain = self.apostrophes.iter().sum::<u64>() + self.amounts;
        match certain + others {
            0 => 0,
            _ => certain + self.marked_digits,
        }
    }

    /// Thousands separator that reads all of them; `None` if there is none. Either apostrophe reads both.
    pub(super) const fn separator(&self) -> Option<char> {
        match (self.apostrophes, self.amounts + self.marked_digits) {
            ([0, 0], _) => None,
            ([0, _], 0) => Some(APOSTROPHES[1]),
            (_, 0) => Some(APOSTROPHES[0]),
            _ => None,
        }
    }
}

/// Cells with spaces, apostrophes, and signs or codes of currencies and percent.
#[derive(Clone, Debug, Default)]
pub(super) struct SignedCells {
    pub(super) count: u64,
    /// The first of them in byte order, and the number of its record, from 1.
    pub(super) sample: Option<(String, u64)>,
}

impl SignedCells {
    /// Counts a cell without spaces around it if it has such signs. `is_marked` is true for a text that is a number
    /// with a mark.
    pub(super) fn add(&mut self, kind: Kind, is_marked: bool, text: &str, record: u64) {
        let is_plain = |byte: u8| byte.is_ascii_digit() || b"+-.,eE".contains(&byte);
        let is_signed = is_marked
            || MARKED.contains(&kind)
            || (kind.is_number() && !text.bytes().all(is_plain));
        if !is_signed {
            return;
        }
        self.count += 1;
        if self
            .sample
            .as_ref()
            .is_none_or(|(first, _)| text < first.as_str())
        {
            self.sample = Some((text.to_owned(), record));
        }
    }
}

/// Returns true for a number with a decimal point that has `sign` between thousands.
fn is_number(text: &str, sign: char) -> bool {
    let csv = CsvConfig {
        thousands_separator: Some(sign),
        ..CsvConfig::default()
    };
    text.contains(sign) && CellFormat::new(&csv).number(text).is_some()
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::config::{ColumnContract, DeclaredType, PaginationKind, SourceConfig};

    use crate::infer::{Inferred, Survey, hold_under};

    fn infer(cells: &[&str]) -> Inferred {
        let config = crate::testing::config("http://h/", PaginationKind::Page);
        let mut survey = Survey::new(&config);
        for cell in cells {
            let entries = vec![("x".to_owned(), Value::Cell((*cell).to_owned()))];
            survey.add(&Record::Value(Value::Object(entries)));
        }
        survey.infer(&config)
    }

    #[test]
    fn numbers_with_other_marks_are_named_with_the_setting_or_query_that_reads_them() {
        let apostrophe = "set `csv.thousands_separator = \"'\"`";
        let typographic = "set `csv.thousands_separator = \"\u{2019}\"`";
        let query = "else '' end, regexp_replace(\"COLUMN\", '[^0-9.]', '', 'g')) as double)";
        let comma = "replace(regexp_replace(\"COLUMN\", '[^0-9,]', '', 'g'), ',', '.')) as double)";
        for (cells, code, part) in [
            (&["18'194", "679"][..], "apostrophe_thousands", apostrophe),
            (&["2'138.93", "5.5"], "apostrophe_thousands", apostrophe),
            (&["7\u{2019}810.35"], "apostrophe_thousands", typographic),
            (
                &["2'138.93", "7\u{2019}810.35"],
                "apostrophe_thousands",
                apostrophe,
            ),
            (&["CHF 7'810.35"], "coded_amounts", query),
            (&["$1,894.16", "($5,183.09)"], "coded_amounts", query),
            (&["9,552.70 CR", "12.50 DR"], "coded_amounts", query),
            (&["19.1%", "(14.5%)"], "coded_amounts", query),
            (&["11.250,22", "8.382,41-"], "coded_amounts", comma),
            (&["852,-", "11.250,22"], "coded_amounts", comma),
            (&["852,37 H", "8.382,41 S"], "coded_amounts", comma),
            (&["852,37", "(8.382,41)"], "coded_amounts", comma),
            (&["EUR 779.99", "5,243.64 EUR"], "coded_amounts", query),
            (&["(3,220.01)", "3,213.46"], "coded_amounts", query),
            (&["(3,220.01)", "(5)"], "coded_amounts", query),
            (&["(500)", "1200", "800"], "coded_amounts", query),
            // Each separator is shown, so neither query reads all of them.
            (
                &["(1.234,56)", "(1,234.56)", "(2,345.67)"],
                "coded_amounts",
                "; for a decimal comma, write",
            ),
        ] {
            let found = infer(cells);
            let [warning] = &found.warnings[..] else {
                panic!("{cells:?}: {:?}", found.warnings)
            };
            assert_eq!(warning.code, format!("looks_like_{code}"), "{cells:?}");
            assert!(warning.message.contains(part), "{warning:?}");
            let settings = &found.columns[0].number_settings;
            assert_eq!(settings.is_empty(), code == "coded_amounts", "{cells:?}");
        }
        for cells in [["7'81", "rock'n'roll"], ["(a)", "b"], ["SKU 12", "TOP 5"]] {
            assert_eq!(infer(&cells).warnings, [], "{cells:?}");
        }
    }

    #[test]
    fn one_amount_with_a_mark_of_many_leaves_the_others_their_setting() {
        let mut cells = vec!["$1,894.16"; 199];
        let codes = |cells: &[&str]| {
            let found = infer(cells);
            let has_settings = !found.columns[0].number_settings.is_empty();
            let codes = found.warnings.into_iter().map(|warning| warning.code);
            (codes.collect::<Vec<_>>(), has_settings)
        };
        cells.push("($5.00)");
        assert_eq!(
            codes(&cells),
            (vec!["looks_like_currency".to_owned()], true)
        );
        cells.extend(["($5.00)"; 19]);
        let expected = vec!["looks_like_coded_amounts".to_owned()];
        assert_eq!(codes(&cells), (expected, false));
    }

    #[test]
    fn marks_of_footnotes_are_no_amounts() {
        for cells in [
            &["(1)", "(2)", "(3)"][..],
            &["(1)", "(a)"],
            &["(10)"],
            &["()", "(1) (2)"],
        ] {
            assert_eq!(infer(cells).warnings, [], "{cells:?}");
        }
    }

    #[test]
    fn the_advice_about_coded_amounts_silences_its_warning() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        let survey_of = |config: &SourceConfig| {
            let mut survey = Survey::new(config);
            for cell in ["EUR 779.99", "(3,220.01)"] {
                let entries = vec![("x".to_owned(), Value::Cell(cell.to_owned()))];
                survey.add(&Record::Value(Value::Object(entries)));
            }
            survey.infer(config).warnings
        };
        let warnings = survey_of(&config);
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}")
        };
        let advice = "declare `contract.column.<name>.type = \"text\"`";
        assert!(warning.message.contains(advice), "{warning:?}");
        assert!(hold_under(&config, warning.clone()).is_some());
        let column = ColumnContract {
            r#type: Some(DeclaredType::Text),
            ..ColumnContract::default()
        };
        config.contract.column.insert("x".to_owned(), column);
        assert_eq!(survey_of(&config), []);
        // So is the warning of an earlier run.
        assert!(hold_under(&config, warning.clone()).is_none());
    }
}
