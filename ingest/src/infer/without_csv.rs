//! Warnings about numbers in text columns of sources without the table `csv`, such as pages of a
//! site: other keys read these numbers, or none does.

use feedline_schemas::{config::CsvConfig, report::Warning};

use super::type_warnings::{
    ColumnFindings, LOOKS_LIKE_CURRENCY, LOOKS_LIKE_DECIMAL_COMMA, LOOKS_LIKE_PERCENT,
    LOOKS_LIKE_SPACES, LOOKS_LIKE_THOUSANDS, finding, warn_of_columns,
};

impl ColumnFindings {
    /// Text columns whose values look like numbers of another notation.
    pub(super) fn warn_without_csv(&self) -> [Option<Warning>; 5] {
        let commas = match self.has_grouped_commas {
            true => {
                "`dataset.decimal_separator = \",\"` and `dataset.thousands_separator = \".\"` read them as numbers"
            }
            false => "`dataset.decimal_separator = \",\"` reads them as numbers",
        };
        let spaces = self.space_notation.settings(&CsvConfig::default());
        let spaces: Vec<String> = spaces
            .iter()
            .map(|line| format!("`dataset.{line}`"))
            .collect();
        let reads = if spaces.len() == 1 { "reads" } else { "read" };
        let percents = [&self.percents[..], &self.other_percents].concat();
        [
            warn_of_columns(
                LOOKS_LIKE_DECIMAL_COMMA,
                "dataset.decimal_separator",
                &self.decimal_commas,
                finding(
                    "numbers in a notation with a decimal comma land as text",
                    format!("in a dataset {commas}"),
                ),
            ),
            warn_of_columns(
                LOOKS_LIKE_THOUSANDS,
                "dataset.thousands_separator",
                &self.thousands,
                finding(
                    "numbers with commas between their digits land as text",
                    "where these separate thousands, `dataset.thousands_separator = \",\"` reads them as numbers in a dataset",
                ),
            ),
            warn_of_columns(
                LOOKS_LIKE_SPACES,
                "dataset.thousands_separator",
                &self.spaces,
                finding(
                    "numbers with spaces between thousands land as text",
                    format!(
                        "unless they are telephone numbers or codes, {} {reads} them as numbers in a dataset",
                        spaces.join(" and ")
                    ),
                ),
            ),
            warn_of_columns(
                LOOKS_LIKE_PERCENT,
                "dataset.sql",
                &percents,
                finding(
                    "numbers with a percent sign land as text, which no key of this type of source reads as numbers",
                    "a query in `dataset.sql` may",
                ),
            ),
            warn_of_columns(
                LOOKS_LIKE_CURRENCY,
                "dataset.sql",
                &self.amounts,
                finding(
                    "amounts with a currency sign land as text, which no key of this type of source reads as numbers",
                    "a query in `dataset.sql` may",
                ),
            ),
        ]
    }
}
