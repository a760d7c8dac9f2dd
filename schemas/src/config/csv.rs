//! `[source.csv]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[source.csv]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CsvConfig {
    /// Field delimiter, one ASCII character. Default `,` (a tab for `.tsv`). With the default, the
    /// header may be a single column. If one of `;`, tab, `|` and `,` then splits all of the first
    /// lines into equally many fields, it is used, with a warning.
    pub delimiter: Option<String>,
    /// If true, the first line holds the names of the columns. Default true. Without a header, the
    /// names are those of `columns`, or `column_1`, `column_2` and so on.
    #[serde(skip_serializing_if = "is_true")]
    pub header: bool,
    /// Names of the columns, in order; they replace those of the header. Default `[]`: those of the
    /// header.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Encoding of the file, such as `utf-8`, `utf-16`, `latin-1`, `windows-1252` or `shift_jis` (a
    /// label of the WHATWG Encoding Standard). Default `utf-8`, or what the `Content-Type` of a
    /// response declares for bytes that are not UTF-8; a byte order mark of UTF-16 overrides the
    /// default, with a warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Quote character around fields that contain delimiters or line ends, one ASCII character. If
    /// it is empty, no field is quoted and quotes are text. Default `"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// Escape character in quoted fields, one ASCII character such as `"\\"` for the files of Spark and
    /// MySQL: the character behind it is taken as it is, so `\"` is a quote in the text. Default: none,
    /// so quotes in quoted fields are doubled; a warning (`csv_quotes`) names a file that does otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escape: Option<String>,
    /// First character of comment lines, which are skipped: one ASCII character such as `#`.
    /// Default: no comment lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Number of lines to skip before the header, or before the first row if there is no header, 0
    /// to 1,000,000. Default 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_rows: u64,
    /// Values that are read as missing in every column, besides the empty cell, compared after
    /// trimming spaces. Default `[]`: only the usual ones, see `null_spellings`.
    pub null_values: Vec<String>,
    /// Words for a missing value in columns of numbers, booleans and timestamps: `usual` (default;
    /// `NA`, `N/A`, `#N/A`, `NaN`, `NULL`, `None`, `-`, `?` and such) or `none`. With `none`, each
    /// of them is a value that does not fit its column. Text columns keep these words: `None` may
    /// be a category. A warning (`missing_words`) counts them until they are listed in `null_values`
    /// or the type of the column is declared. The report counts the cells that are read as missing.
    #[serde(skip_serializing_if = "NullSpellings::is_usual")]
    pub null_spellings: NullSpellings,
    /// Decimal separator of numbers, one character, such as `","` for `1000,14`. Text columns are
    /// not changed. Default `"."`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decimal_separator: Option<char>,
    /// Thousands separator of numbers, one character, such as `"."` for `1.234,56` or `","` for
    /// `1,234.56`. `" "` means a space, a no-break space, a thin space and a narrow no-break
    /// space, and `"'"` also a typographic apostrophe. Numbers without groups are accepted too;
    /// numbers with groups of another length than three are not, except for Indian groups with
    /// `","`, such as `4,05,638.55`. A number with groups and an exponent but no decimals, such as
    /// `1,234E2`, is text. Default: none, so `1,234` and `1 234` are text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thousands_separator: Option<char>,
    /// If true, numbers followed by a percent sign are accepted; `17%` is read as 17. Default
    /// false: such a column is text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub percent: bool,
    /// Currency sign in front of or behind numbers, one character such as `"$"`; `$17.50` is read
    /// as 17.5 and `-$3` as -3. Amounts in another currency do not fit the column. Default: none,
    /// so such a column is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<char>,
}

/// Words that are read as missing in columns that are not text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NullSpellings {
    /// The usual words.
    #[default]
    Usual,
    /// No words.
    None,
}

impl NullSpellings {
    /// Returns true for [`NullSpellings::Usual`].
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::Usual
    }
}

impl Default for CsvConfig {
    fn default() -> Self {
        Self {
            delimiter: None,
            header: true,
            columns: Vec::new(),
            encoding: None,
            quote: None,
            escape: None,
            comment: None,
            skip_rows: 0,
            null_values: Vec::new(),
            null_spellings: NullSpellings::default(),
            decimal_separator: None,
            thousands_separator: None,
            percent: false,
            currency: None,
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_true(value: &bool) -> bool {
    *value
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}
